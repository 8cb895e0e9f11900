"""The effect with and without the most extreme replicate: both shown, none dropped."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rcatools.stats.records import WithoutExtreme

OUTLIER_Z = 3.5  # Iglewicz and Hoaglin (1993), modified z-score
_MAD_TO_SD = 1.4826
Floats = NDArray[np.float64]


def robust_z(logs: Floats) -> Floats:
    """Distance of each value from the median in scaled median absolute deviations.

    Where more than half of the values are equal, the mean absolute deviation takes the place of the median one.
    """
    distance = np.abs(logs - np.median(logs))
    scale = _MAD_TO_SD * float(np.median(distance))
    if scale <= 1e-12:
        scale = 1.2533 * float(distance.mean())
    return distance / scale if scale > 1e-12 else np.zeros_like(distance)


def without_extreme_pair(d: Floats, alpha: float = 0.05) -> WithoutExtreme:
    """Set the pair farthest from the median aside; ``d`` are log-ratios, shape (n,), n >= 3."""
    del alpha
    z = robust_z(d)
    index = int(np.argmax(z))
    rest = np.delete(d, index)
    return WithoutExtreme(
        index=index,
        arm="pair",
        value=math.exp(float(d[index])),
        ratio=math.exp(float(rest.mean())),
        robust_z=float(z[index]),
        is_outlier=bool(z[index] > OUTLIER_Z),
    )


def without_extreme_run(b: Floats, c: Floats) -> WithoutExtreme:
    """Set the run farthest from its own arm's median aside; ``b``, ``c`` are logs of run values, each n >= 3."""
    z_b, z_c = robust_z(b), robust_z(c)
    in_baseline = float(z_b.max()) >= float(z_c.max())
    z, logs = (z_b, b) if in_baseline else (z_c, c)
    index = int(np.argmax(z))
    rest = np.delete(logs, index)
    mean = c.mean() - rest.mean() if in_baseline else rest.mean() - b.mean()
    return WithoutExtreme(
        index=index,
        arm="baseline" if in_baseline else "candidate",
        value=math.exp(float(logs[index])),
        ratio=math.exp(float(mean)),
        robust_z=float(z[index]),
        is_outlier=bool(z[index] > OUTLIER_Z),
    )
