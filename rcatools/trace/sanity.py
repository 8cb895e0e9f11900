"""Which GPU events cannot be true and must stay out of every sum."""

from __future__ import annotations

import numpy as np
import pandas as pd

NS_PER_S = 1_000_000_000


def separate_impossible(
    table: pd.DataFrame, host_extent_ns: tuple[int, int] | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split a table into rows that can be true and rows that cannot.

    A negative duration is impossible. So is a duration above the extent of all other events together
    (host events included) when it is also above one second or a hundred times that extent with at least
    eight other events: a profile of a few kernels without host events may well hold one long kernel.

    Args:
        table: activities with ``start_ns`` and ``dur_ns``.
        host_extent_ns: first start and last end of the host events, or None.

    Returns:
        The kept rows and the excluded ones; the latter with a column ``reason``.
    """
    duration = table["dur_ns"].to_numpy()
    start = table["start_ns"].to_numpy()
    reason = np.full(len(table), "", dtype=object)
    reason[duration < 0] = "negative_duration"
    for row in np.argsort(-duration, kind="stable"):
        if duration[row] < 0:
            break
        others = reason == ""
        others[row] = False
        extent = _extent(start[others], duration[others], host_extent_ns)
        count = int(others.sum())
        too_long = duration[row] > extent and count > 0
        if too_long and (duration[row] >= NS_PER_S or (duration[row] > 100 * extent and count >= 8)):
            reason[row] = "impossible_duration"
        else:
            break
    good = reason == ""
    excluded = table[~good].assign(reason=reason[~good])
    return table[good].reset_index(drop=True), excluded.reset_index(drop=True)


def _extent(
    start: np.ndarray,
    duration: np.ndarray,
    host: tuple[int, int] | None,  # type: ignore[type-arg]
) -> int:
    edges = [] if start.size == 0 else [int(start.min()), int((start + duration).max())]
    if host is not None:
        edges += list(host)
    return max(edges) - min(edges) if edges else 0
