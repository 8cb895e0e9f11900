"""The noise floor: what two arms of the same build differ by."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from rcatools.stats.detection import smallest_detectable, smallest_detectable_two_samples
from rcatools.stats.records import DEFAULT_CONFIDENCE, NoiseFloor


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
    sd = float(d.std(ddof=1))
    half = float(stats.t.ppf(0.5 + confidence / 2, d.size - 1)) * sd / math.sqrt(d.size)
    return _floor(float(d.mean()), half, sd, d.size, smallest_detectable(sd, d.size))


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
    half = float(stats.t.ppf(0.5 + confidence / 2, logs.size - 1)) * sd * math.sqrt(1 / n_a + 1 / n_b)
    return _floor(0.0, half, sd, logs.size, smallest_detectable_two_samples(sd, n_a, n_b))


def _floor(mean: float, half: float, sd: float, n: int, detectable: float | None) -> NoiseFloor:
    low, high = math.exp(mean - half), math.exp(mean + half)
    return NoiseFloor(
        floor=max(abs(low - 1), abs(high - 1)),
        ratio=math.exp(mean),
        ci_low=low,
        ci_high=high,
        sd_log=sd,
        n=n,
        detectable=detectable,
    )
