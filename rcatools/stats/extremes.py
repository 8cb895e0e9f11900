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
    index = farthest(d)
    rest = (float(d.sum()) - float(d[index])) / (d.size - 1)
    return _record(index, "pair", d, rest)


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
    i, j = farthest(b), farthest(c)
    pull_b = abs(float(b[i] - np.median(b))) / b.size
    pull_c = abs(float(c[j] - np.median(c))) / c.size
    if pull_b >= pull_c:
        rest = (float(b.sum()) - float(b[i])) / (b.size - 1)
        return _record(i, "baseline", b, float(c.mean()) - rest)
    rest = (float(c.sum()) - float(c[j])) / (c.size - 1)
    return _record(j, "candidate", c, rest - float(b.mean()))


def farthest(logs: Floats) -> int:
    """Index of the value farthest from the median."""
    return int(np.argmax(np.abs(logs - np.median(logs))))


def robust_z(logs: Floats, index: int) -> float:
    """Distance of one value from the median in scaled median absolute deviations.

    Where more than half of the values are equal, the mean absolute deviation takes the median one's place.
    """
    distance = np.abs(logs - np.median(logs))
    scale = _MAD_TO_SD * float(np.median(distance))
    if scale <= 1e-12:
        scale = _MEAN_DEVIATION_TO_SD * float(distance.mean())
    return float(distance[index]) / scale if scale > 1e-12 else 0.0


def _record(index: int, arm: str, logs: Floats, rest: float) -> WithoutExtreme:
    z = robust_z(logs, index)
    return WithoutExtreme(index, arm, math.exp(float(logs[index])), math.exp(rest), z, z > OUTLIER_Z)
