"""The effect with and without the most extreme replicate: both shown, none dropped."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rcatools.stats.records import WithoutExtreme

OUTLIER_Z = 3.5  # Iglewicz and Hoaglin (1993), modified z-score
MIN_VALUES = 3
_MAD_TO_SD = 1.4826
_MEAN_DEVIATION_TO_SD = 1.2533
Floats = NDArray[np.float64]


def without_extreme_pair(d: Floats) -> WithoutExtreme | None:
    """Set the pair farthest from the median aside.

    Args:
        d: log-ratios of pairs, shape (n,).

    Returns:
        What is left, or None with fewer than three pairs.
    """
    if d.size < MIN_VALUES:
        return None
    index, _, z = farthest(d)
    rest = (float(d.sum()) - float(d[index])) / (d.size - 1)
    return WithoutExtreme(index, "pair", math.exp(float(d[index])), math.exp(rest), z, z > OUTLIER_Z)


def without_extreme_run(b: Floats, c: Floats) -> WithoutExtreme | None:
    """Set the run aside that pulls its own arm's mean hardest.

    Args:
        b: logs of the baseline's runs.
        c: logs of the candidate's runs.

    Returns:
        What is left, or None where an arm has fewer than three runs.
    """
    if min(b.size, c.size) < MIN_VALUES:
        return None
    at_b, distance_b, z_b = farthest(b)
    at_c, distance_c, z_c = farthest(c)
    in_baseline = distance_b / b.size >= distance_c / c.size
    logs, index, z = (b, at_b, z_b) if in_baseline else (c, at_c, z_c)
    rest = (float(logs.sum()) - float(logs[index])) / (logs.size - 1)
    mean = float(c.mean()) - rest if in_baseline else rest - float(b.mean())
    arm = "baseline" if in_baseline else "candidate"
    return WithoutExtreme(index, arm, math.exp(float(logs[index])), math.exp(mean), z, z > OUTLIER_Z)


def farthest(logs: Floats) -> tuple[int, float, float]:
    """The value farthest from the median: index, distance, and distance in robust standard deviations.

    The scale is the median absolute deviation; where more than half of the values are equal, the mean absolute
    deviation takes its place.
    """
    distance = np.abs(logs - _median(logs))
    index = int(np.argmax(distance))
    scale = _MAD_TO_SD * _median(distance)
    if scale <= 1e-12:
        scale = _MEAN_DEVIATION_TO_SD * float(distance.mean())
    far = float(distance[index])
    return index, far, far / scale if scale > 1e-12 else 0.0


def _median(values: Floats) -> float:
    ordered = np.sort(values)
    return (float(ordered[(ordered.size - 1) // 2]) + float(ordered[ordered.size // 2])) / 2
