"""Is a cost additive (a fixed time per kernel) or multiplicative (a share of its duration)?"""

from __future__ import annotations

import numpy as np
import statsmodels.api as sm
from numpy.typing import ArrayLike

from rcatools.stats.records import DEFAULT_CONFIDENCE, Fit

MIN_POINTS = 3


def additive_multiplicative(
    base_us: ArrayLike,
    delta_us: ArrayLike,
    weights: ArrayLike | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Fit:
    """Fit delta = intercept + slope * base by weighted least squares.

    Without weights the errors are heteroscedasticity-consistent (HC3, MacKinnon and White 1985), because long
    kernels vary more in absolute time; with weights (inverse variances, up to a factor) they are the usual ones.

    Args:
        base_us: duration of each kernel in the baseline, shape (n,).
        delta_us: its change, same shape, same unit.
        weights: positive weights, same shape.
        confidence: level of both intervals (t distribution, n - 2 degrees of freedom).

    Raises:
        ValueError: shapes differ, fewer than three usable points, or all base values equal.
    """
    x, y = np.asarray(base_us, dtype=float), np.asarray(delta_us, dtype=float)
    w = np.ones_like(x) if weights is None else np.asarray(weights, dtype=float)
    if x.shape != y.shape or x.shape != w.shape or x.ndim != 1:
        raise ValueError(f"need three vectors of one length, got {x.shape}, {y.shape}, {w.shape}")
    usable = np.isfinite(x) & np.isfinite(y) & np.isfinite(w) & (w > 0)
    x, y, w = x[usable], y[usable], w[usable]
    if x.size < MIN_POINTS or np.ptp(x) == 0:
        raise ValueError(f"need at least {MIN_POINTS} points with differing base times, got {x.size}")
    covariance = "HC3" if weights is None and x.size > MIN_POINTS else "nonrobust"
    model = sm.WLS(y, sm.add_constant(x), weights=w).fit(cov_type=covariance, use_t=True)
    bounds = np.asarray(model.conf_int(alpha=1 - confidence))
    return Fit(
        intercept=float(model.params[0]),
        intercept_ci=(float(bounds[0, 0]), float(bounds[0, 1])),
        slope=float(model.params[1]),
        slope_ci=(float(bounds[1, 0]), float(bounds[1, 1])),
        n=int(x.size),
        residual_sd=float(np.sqrt(model.scale)),
        covariance_type=covariance,
    )
