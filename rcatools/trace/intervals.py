"""Arithmetic on sets of time intervals: numpy int64 nanoseconds in, exact integers out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def merged(start: npt.ArrayLike, duration: npt.ArrayLike) -> tuple[Ints, Ints]:
    """The union of intervals [start, start + duration) as disjoint (starts, ends), in order."""
    begin = np.asarray(start, dtype=np.int64)
    if begin.size == 0:
        return begin, begin.copy()
    order = np.argsort(begin, kind="stable")
    begin = begin[order]
    end = begin + np.asarray(duration, dtype=np.int64)[order]
    reach = np.maximum.accumulate(end)
    opens = np.empty(begin.size, dtype=bool)
    opens[0] = True
    opens[1:] = begin[1:] > reach[:-1]
    first = np.flatnonzero(opens)
    last = np.append(first[1:] - 1, begin.size - 1)
    return begin[first], reach[last]


def union_length(start: npt.ArrayLike, duration: npt.ArrayLike) -> int:
    """Length of the union of the intervals."""
    starts, ends = merged(start, duration)
    return int((ends - starts).sum())


def extent(start: npt.ArrayLike, duration: npt.ArrayLike) -> int:
    """From the first start to the last end; 0 when there is nothing."""
    begin = np.asarray(start, dtype=np.int64)
    if begin.size == 0:
        return 0
    return int((begin + np.asarray(duration, dtype=np.int64)).max() - begin.min())


def intersection_length(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> int:
    """Length of the intersection of two unions made by ``merged``."""
    points = np.concatenate([a[0], a[1], b[0], b[1]])
    steps = np.concatenate([np.ones_like(a[0]), -np.ones_like(a[1]), np.ones_like(b[0]), -np.ones_like(b[1])])
    order = np.argsort(points, kind="stable")
    depth = np.cumsum(steps[order])
    lengths: np.ndarray[Any, Any] = np.diff(points[order])
    return int(lengths[depth[:-1] == 2].sum())
