"""The noise floor: what two arms of the same build differ by."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from rcatools.stats import ttest
from rcatools.stats.detection import noncentrality
from rcatools.stats.records import DEFAULT_CONFIDENCE, NoiseFloor
from rcatools.stats.ttest import LogDifference


def noise_floor(a: ArrayLike, a2: ArrayLike, confidence: float = DEFAULT_CONFIDENCE) -> NoiseFloor | None:
    """The floor from A/A blocks: the same build measured twice in each block.

    Args:
        a: one positive time per block, shape (n,).
        a2: the second arm of the same build, paired by block.
        confidence: level of the A/A interval.

    Returns:
        The far bound of the A/A interval as floor, or None with fewer than two usable pairs.
    """
    d = np.log(np.asarray(a2, dtype=float)) - np.log(np.asarray(a, dtype=float))
    d = d[np.isfinite(d)]
    if d.size < 2:
        return None
    difference = ttest.from_pairs(d)
    return from_difference(difference, difference.scale, confidence)


def floor_from_runs(
    runs: ArrayLike, n_a: int, n_b: int, confidence: float = DEFAULT_CONFIDENCE
) -> NoiseFloor | None:
    """The floor of a difference of two means of ``n_a`` and ``n_b`` runs, from repeated runs of one build.

    With n_a = n_b = 1 this is the limit for a difference of two single runs: t * sd * sqrt(2).

    Args:
        runs: positive times of identical runs, shape (m,).
        n_a: runs of the first arm to be compared.
        n_b: runs of the second arm.
        confidence: level of the limit.

    Returns:
        The floor, or None with fewer than two usable runs.
    """
    logs = np.log(np.asarray(runs, dtype=float))
    logs = logs[np.isfinite(logs)]
    if logs.size < 2:
        return None
    sd = float(logs.std(ddof=1))
    scale = math.sqrt(1 / n_a + 1 / n_b)
    return from_difference(
        LogDifference(0.0, sd * scale, logs.size - 1, logs.size, sd, scale), scale, confidence
    )


def floor_for(
    difference: LogDifference, n_a: int, n_b: int, confidence: float = DEFAULT_CONFIDENCE
) -> NoiseFloor | None:
    """The floor that an A/A difference sets for a comparison of ``n_a`` and ``n_b`` replicates."""
    scale = 1 / math.sqrt(min(n_a, n_b)) if difference.pairs else math.sqrt(1 / n_a + 1 / n_b)
    return from_difference(difference, scale, confidence)


def from_difference(
    difference: LogDifference, scale: float, confidence: float = DEFAULT_CONFIDENCE
) -> NoiseFloor | None:
    """The floor for a comparison of another size than the A/A one.

    Args:
        difference: the A/A difference with its spread of one replicate.
        scale: error of the comparison over the spread of one replicate, 1 / sqrt(pairs) or
            sqrt(1 / runs + 1 / runs).
        confidence: level of the limit.

    Returns:
        |A/A ratio| plus the half-width at that size, or None where the A/A difference has no spread.
    """
    if difference.sd is None or difference.df < 1:
        return None
    half = ttest.t_quantile(0.5 + confidence / 2, difference.df) * difference.sd * scale
    low, high = difference.mean - half, difference.mean + half
    delta = noncentrality(max(1, math.floor(difference.df)), 0.8, 1 - confidence) * difference.sd * scale
    return NoiseFloor(
        floor=_expm1(max(abs(low), abs(high))),
        ratio=difference.ratio,
        ci_low=math.exp(max(low, -700.0)),
        ci_high=math.exp(min(high, 700.0)),
        sd_log=difference.sd,
        n=difference.n,
        detectable=_expm1(delta),
    )


def _expm1(value: float) -> float:
    return math.expm1(min(value, 700.0))
