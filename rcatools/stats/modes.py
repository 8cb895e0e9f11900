"""Are the runs of one arm a mixture of two levels? Tested, not eyeballed.

The sorted logs are cut where the within-cluster sum of squares is smallest; both clusters keep at least two
members and a tenth of the runs. The statistic is the distance of the centres over the within-cluster standard
deviation. Its null distribution is simulated for one level of normal, Laplace and gamma(4) shape (a fixed seed
for each count), and the largest of the three p-values counts, so that heavy tails or skew alone are no modes.

One run alone on another level could as well be a disturbance. With ten to twenty runs it is named as a level only
when a deleted-residual t-test, corrected for the choice of the run, falls below 1e-6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rcatools.stats.records import Modes

MIN_VALUES = 6
MIN_VALUES_FOR_ONE = 10
MAX_VALUES_FOR_ONE = 20  # beyond, a level with a tenth of the runs shows at least two of them
MIN_MEMBERS = 2
MIN_SHARE = 0.1
MIN_GAP = 0.01
ALPHA = 0.01
ALPHA_FOR_ONE = 1e-6
_NULL_DRAWS = 4000
_NULL_LARGEST_N = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ModesTable:
    """``find_modes`` for many rows: arrays with one entry per row; levels are natural logs."""

    found: NDArray[np.bool_]
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
        centre = math.exp(float(np.median(logs))) if logs.size else math.nan
        return Modes(False, logs.size, 0.0, centre, centre, 0.0, 0.0, 1.0, (False,) * logs.size)
    table = find_modes_rows(logs[None, :], alpha=alpha, min_gap=min_gap)
    low, high = math.exp(float(table.low_log[0])), math.exp(float(table.high_log[0]))
    return Modes(
        found=bool(table.found[0]),
        n=logs.size,
        share_high=float(table.num_high[0]) / logs.size,
        low=low,
        high=high,
        gap=high / low - 1.0,
        separation=float(table.separation[0]),
        p_value=float(table.p_value[0]),
        members=tuple(bool(v) for v in logs > table.cut[0]),
    )


def find_modes_rows(logs: Floats, *, alpha: float = ALPHA, min_gap: float = MIN_GAP) -> ModesTable:
    """The same test for each row of natural logs, shape (rows, n), n >= 6, all finite."""
    n = logs.shape[1]
    ordered = np.sort(logs, axis=1)
    split, separation = _best_split(ordered)
    null = _null_separations(min(n, _NULL_LARGEST_N))
    exceed = [draws.size - np.searchsorted(draws, separation, side="left") for draws in null]
    p_value = (1.0 + np.max(exceed, axis=0)) / (1.0 + _NULL_DRAWS)
    found = p_value <= alpha
    if MIN_VALUES_FOR_ONE <= n <= MAX_VALUES_FOR_ONE:
        one_split, one_separation, one_p = _one_apart(ordered)
        alone = ~found & (one_p <= min(ALPHA_FOR_ONE, alpha))
        split = np.where(alone, one_split, split)
        separation = np.where(alone, one_separation, separation)
        p_value = np.where(alone, one_p, p_value)
        found = found | alone
    rows = np.arange(logs.shape[0])
    sums = np.cumsum(ordered, axis=1)
    below = sums[rows, split - 1]
    low, high = below / split, (sums[:, -1] - below) / (n - split)
    cut = (ordered[rows, split - 1] + ordered[rows, split]) / 2
    return ModesTable(
        found & (np.expm1(high - low) >= min_gap), n - split, low, high, separation, p_value, cut
    )


def _best_split(ordered: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Number of values below the best cut of sorted rows, and the separation there."""
    n = ordered.shape[1]
    fewest = max(MIN_MEMBERS, math.ceil(MIN_SHARE * n))
    left = np.arange(fewest, n - fewest + 1)
    centred = ordered - ordered.mean(axis=1, keepdims=True)
    sums = np.cumsum(centred, axis=1)[:, left - 1]
    between = sums**2 * (1.0 / left + 1.0 / (n - left))
    best = np.argmax(between, axis=1)
    rows = np.arange(ordered.shape[0])
    split = left[best]
    within = np.maximum((centred**2).sum(axis=1) - between[rows, best], 0.0) / (n - 2)
    sd = np.sqrt(within + _resolution(ordered) ** 2 / 12.0)
    distance = np.abs(sums[rows, best]) * (1.0 / split + 1.0 / (n - split))
    return split, np.divide(distance, sd, out=np.zeros_like(distance), where=sd > 0)


def _one_apart(ordered: Floats) -> tuple[NDArray[np.int64], Floats, Floats]:
    """The lowest or highest value against the rest: split, separation, corrected p of the deleted residual."""
    n = ordered.shape[1]
    resolution = _resolution(ordered)
    separations = []
    for rest, alone in ((ordered[:, 1:], ordered[:, 0]), (ordered[:, :-1], ordered[:, -1])):
        sd = np.sqrt(rest.var(axis=1, ddof=1) + resolution**2 / 12.0)
        distance = np.abs(alone - rest.mean(axis=1))
        separations.append(np.divide(distance, sd, out=np.zeros_like(distance), where=sd > 0))
    low_is_alone = separations[0] > separations[1]
    separation = np.maximum(separations[0], separations[1])
    t = separation / math.sqrt(1.0 + 1.0 / (n - 1))
    p_value = np.minimum(1.0, 2 * n * special.stdtr(n - 2, -t))
    return np.where(low_is_alone, 1, n - 1), separation, p_value


def _resolution(ordered: Floats) -> Floats:
    """Smallest step between neighbours that differ: rounded values must not look like two sharp levels."""
    steps = np.diff(ordered, axis=1)
    smallest = np.where(steps > 1e-12, steps, np.inf).min(axis=1)
    return np.where(np.isfinite(smallest), smallest, 0.0)


@lru_cache(maxsize=64)
def _null_separations(n: int) -> tuple[Floats, ...]:
    rng = np.random.default_rng([2026, n])
    size = (_NULL_DRAWS, n)
    shapes = (rng.standard_normal(size), rng.laplace(size=size), rng.standard_gamma(4.0, size))
    return tuple(np.sort(_best_split(np.sort(shape, axis=1))[1]) for shape in shapes)
