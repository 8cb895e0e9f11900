"""Exact tests, and the smallest p-value each can give: what few runs cannot show.

Counts are exact to floating-point ties: sums closer than 1e-9 of the largest possible sum count as equal.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

EXACT_SIGN_FLIP_LIMIT = 40
_TIE = 1e-9


def sign_flip_floor(n: int) -> float:
    """Smallest two-sided p of a sign-flip test of n differences: 2 / 2**n, at most 1."""
    return min(1.0, 2.0 ** (1 - n))


def rank_floor(n_a: int, n_b: int) -> float:
    """Smallest two-sided p of a rank or permutation test of two groups: 2 / C(n_a + n_b, n_a), at most 1."""
    if n_a + n_b <= 1000:
        return min(1.0, 2.0 / math.comb(n_a + n_b, n_a))
    log_splits = math.lgamma(n_a + n_b + 1) - math.lgamma(n_a + 1) - math.lgamma(n_b + 1)
    return min(1.0, 2.0 * math.exp(-log_splits))


def sign_flip_p(differences: ArrayLike) -> float:
    """Exact two-sided sign-flip p of the mean of paired differences.

    Both halves' sums are enumerated and matched by bisection, so 40 differences cost 2 x 2**20 sums; above
    that the normal limit of the same statistic is used.

    Args:
        differences: shape (n,), any unit.

    Returns:
        The share of the 2**n sign patterns with a sum at least as far from zero; 1.0 for n = 0.
    """
    d = np.asarray(differences, dtype=float)
    n = d.size
    if n == 0 or not np.any(d):
        return 1.0
    observed = abs(d.sum())
    if n > EXACT_SIGN_FLIP_LIMIT:
        return float(2 * special.ndtr(-observed / math.sqrt(float(d @ d))))
    left, right = _signed_sums(d[: n // 2]), np.sort(_signed_sums(d[n // 2 :]))
    slack = _TIE * float(np.abs(d).sum())
    above = right.size - np.searchsorted(right, observed - slack - left, side="left")
    below = np.searchsorted(right, -observed + slack - left, side="right")
    return min(1.0, float(above.sum() + below.sum()) / float(left.size * right.size))


def mann_whitney_p(a: ArrayLike, b: ArrayLike) -> float:
    """Two-sided Mann-Whitney p: exact up to 50 values a side (with ties: up to 20,000 splits), else the normal limit."""
    x, y = np.asarray(a, dtype=float).ravel(), np.asarray(b, dtype=float).ravel()
    if x.size == 0 or y.size == 0:
        return 1.0
    from scipy import stats  # half a second, needed where an exact p-value is asked for

    ties = np.unique(np.concatenate([x, y])).size < x.size + y.size
    small = max(x.size, y.size) <= 50
    if small and ties and math.comb(x.size + y.size, x.size) <= 20_000:
        return _rank_sum_permutation_p(x, y)
    if small and not ties:
        return float(stats.mannwhitneyu(x, y, alternative="two-sided", method="exact").pvalue)
    return float(stats.mannwhitneyu(x, y, alternative="two-sided", method="asymptotic").pvalue)


def _signed_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _rank_sum_permutation_p(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    from scipy import stats

    ranks = stats.rankdata(np.concatenate([x, y]))
    centre = x.size * (ranks.size + 1) / 2
    splits = np.array(list(combinations(range(ranks.size), x.size)))
    distances = np.abs(ranks[splits].sum(axis=1) - centre)
    observed = abs(ranks[: x.size].sum() - centre)
    return float(np.mean(distances >= observed - _TIE))
