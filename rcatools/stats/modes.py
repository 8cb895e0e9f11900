"""Are the runs of one arm a mixture of two levels? Tested, not eyeballed.

The sorted logs are cut where the within-cluster sum of squares is smallest (both clusters keep at least two
members, so that a single outlier is not a mode). The statistic is the distance of the centres over the
within-cluster standard deviation; its null distribution is simulated for one level of normal, Laplace and
exponential shape, and the largest of the three p-values counts, so that heavy tails or skew alone are no modes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rcatools.stats.records import Modes

MIN_VALUES = 6
MIN_MEMBERS = 2
MIN_GAP = 0.01
ALPHA = 0.01
_NULL_DRAWS = 4000
_NULL_CACHE_N = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ModesTable:
    """``find_modes`` for many rows: arrays of one entry per row."""

    found: NDArray[np.bool_]
    n: int
    num_high: NDArray[np.int64]
    low_log: Floats
    high_log: Floats
    separation: Floats
    p_value: Floats
    cut: Floats


def find_modes(values: ArrayLike, *, alpha: float = ALPHA, min_gap: float = MIN_GAP) -> Modes:
    """Test whether positive values (one per run) come from two levels.

    Args:
        values: shape (n,), positive; entries that are not finite are left out.
        alpha: level of the test.
        min_gap: smallest relative distance of the levels worth a name.

    Returns:
        The split with its p-value; with fewer than six values nothing is found and p is 1.
    """
    logs = np.log(np.asarray(values, dtype=float))
    logs = logs[np.isfinite(logs)]
    if logs.size < MIN_VALUES:
        centre = float(np.exp(np.median(logs))) if logs.size else float("nan")
        return Modes(False, logs.size, 0.0, centre, centre, 0.0, 0.0, 1.0, (False,) * logs.size)
    table = find_modes_rows(logs[None, :], alpha=alpha, min_gap=min_gap)
    members = tuple(bool(v) for v in logs > table.cut[0])
    low, high = float(np.exp(table.low_log[0])), float(np.exp(table.high_log[0]))
    return Modes(
        found=bool(table.found[0]),
        n=logs.size,
        share_high=float(table.num_high[0]) / logs.size,
        low=low,
        high=high,
        gap=high / low - 1.0,
        separation=float(table.separation[0]),
        p_value=float(table.p_value[0]),
        members=members,
    )


def find_modes_rows(logs: Floats, *, alpha: float = ALPHA, min_gap: float = MIN_GAP) -> ModesTable:
    """The same test for each row of natural logs, shape (rows, n), n >= 6, all finite."""
    n = logs.shape[1]
    statistic, split, ordered = _best_split(logs)
    null = _null_statistics(min(n, _NULL_CACHE_N))
    exceed = [draws.size - np.searchsorted(draws, statistic, side="left") for draws in null]
    p_value = (1.0 + np.max(exceed, axis=0)) / (1.0 + _NULL_DRAWS)
    rows = np.arange(logs.shape[0])
    sums = np.cumsum(ordered, axis=1)
    low = sums[rows, split - 1] / split
    high = (sums[:, -1] - sums[rows, split - 1]) / (n - split)
    found = (p_value <= alpha) & (np.expm1(high - low) >= min_gap)
    cut = (ordered[rows, split - 1] + ordered[rows, split]) / 2
    return ModesTable(found, n, n - split, low, high, statistic, p_value, cut)


def _best_split(logs: Floats) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Separation at the best cut, number of values below it, and the sorted rows."""
    n = logs.shape[1]
    ordered = np.sort(logs, axis=1)
    centred = ordered - ordered.mean(axis=1, keepdims=True)
    left = np.arange(MIN_MEMBERS, n - MIN_MEMBERS + 1)
    sums = np.cumsum(centred, axis=1)[:, left - 1]
    between = sums**2 * (1.0 / left + 1.0 / (n - left))
    best = np.argmax(between, axis=1)
    rows = np.arange(logs.shape[0])
    split = left[best]
    total = (centred**2).sum(axis=1)
    within = np.maximum(total - between[rows, best], 0.0) / (n - 2)
    within = np.sqrt(within + _resolution(ordered) ** 2 / 12.0)
    distance = np.abs(sums[rows, best]) * (1.0 / split + 1.0 / (n - split))
    statistic = np.divide(distance, within, out=np.zeros_like(distance), where=within > 0)
    return statistic, split, ordered


def _resolution(ordered: Floats) -> Floats:
    """Smallest step between neighbours that differ: rounded values must not look like two sharp levels."""
    steps = np.diff(ordered, axis=1)
    steps = np.where(steps > 1e-12, steps, np.inf)
    smallest = steps.min(axis=1)
    return np.where(np.isfinite(smallest), smallest, 0.0)


@lru_cache(maxsize=64)
def _null_statistics(n: int) -> tuple[Floats, ...]:
    rng = np.random.default_rng(20261201 + n)
    shapes = (rng.standard_normal, rng.laplace, rng.standard_exponential)
    return tuple(np.sort(_best_split(np.asarray(draw(size=(_NULL_DRAWS, n))))[0]) for draw in shapes)
