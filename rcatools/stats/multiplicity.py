"""Several arms, hundreds of kernels: p-values corrected for how many were looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def holm(p_values: ArrayLike) -> Floats:
    """Holm's step-down p-values (family-wise error), NaN where the input is NaN; same order."""
    from statsmodels.stats.multitest import multipletests  # half a second, needed for several arms only

    return _known(p_values, lambda p: np.asarray(multipletests(p, method="holm")[1]))


def false_discovery(p_values: ArrayLike, *, dependent: bool = False) -> Floats:
    """Benjamini-Hochberg p-values (Benjamini-Yekutieli if ``dependent``), NaN where the input is NaN.

    Written out here because loading scipy.stats for it costs a command on many kernels a tenth of its time.
    """

    def correct(p: Floats) -> Floats:
        n = p.size
        descending = np.argsort(p)[::-1]
        factor = n / np.arange(n, 0, -1) * (np.sum(1.0 / np.arange(1, n + 1)) if dependent else 1.0)
        adjusted = np.empty(n)
        adjusted[descending] = np.minimum(np.minimum.accumulate(p[descending] * factor), 1.0)
        return adjusted

    return _known(p_values, correct)


def discoveries(
    ratios: ArrayLike, p_values: ArrayLike, *, min_effect: float = 0.02, q: float = 0.05
) -> NDArray[np.bool_]:
    """Kernels to report: significant after Benjamini-Hochberg AND with at least the minimum effect.

    Args:
        ratios: candidate / baseline, shape (n,).
        p_values: raw p-values, shape (n,), NaN where none could be computed.
        min_effect: smallest change worth reporting, taken on the log scale (0.02: outside 1/1.02 .. 1.02).
        q: false-discovery rate.

    Returns:
        Boolean mask of shape (n,).
    """
    adjusted = false_discovery(p_values)
    large = np.abs(np.log(np.asarray(ratios, dtype=float))) >= np.log1p(min_effect)
    return np.asarray((adjusted <= q) & large, dtype=bool)


def dunnett(candidates: Sequence[ArrayLike], baseline: ArrayLike, seed: int = 0) -> tuple[float, ...]:
    """Dunnett's many-to-one p-values for independent (unpaired) arms, on the logs of positive run values.

    Assumes a common variance; arms paired by block go through ``holm`` instead.

    Args:
        candidates: one vector of run values per arm.
        baseline: run values of the baseline.
        seed: of the integration, so that the result repeats.
    """
    from scipy import stats

    logs = [np.log(np.asarray(c, dtype=float)) for c in candidates]
    control = np.log(np.asarray(baseline, dtype=float))
    result = stats.dunnett(*logs, control=control, rng=np.random.default_rng(seed))
    return tuple(float(p) for p in result.pvalue)


def _known(p_values: ArrayLike, correct: Callable[[Floats], Floats]) -> Floats:
    p = np.asarray(p_values, dtype=float)
    out = np.full(p.shape, np.nan)
    known = np.isfinite(p)
    if known.any():
        out[known] = correct(p[known])
    return out
