"""Wilcoxon's signed-rank test, for the many small tests of a difference of traces.

Written out here because loading scipy.stats takes longer than comparing two traces.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt

EXACT_UP_TO = 25


def signed_rank_p(change: npt.NDArray[np.float64]) -> float:
    """Two-sided p-value of changes that are symmetric about zero under the null hypothesis.

    Exact for up to 25 changes without ties and zeros. Otherwise the normal approximation with the variance corrected
    for ties; the ranks of changes that are zero are split between both signs. No change at all gives 1.

    Args:
        change: at least one finite number.
    """
    if not change.any():
        return 1.0
    size = np.abs(change)
    values, place, counts = np.unique(size, return_inverse=True, return_counts=True)
    n = change.size
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    if n <= EXACT_UP_TO and values.size == n and values[0] > 0:
        below = _distribution(n)
        total = int(ranks[change > 0].sum())
        tail = below[min(total, n * (n + 1) // 2 - total)]
        return float(min(1.0, 2 * tail))
    positive = float(ranks[change > 0].sum()) + float(ranks[change == 0].sum()) / 2
    tied = counts[counts > 1].astype(float)
    variance = (n * (n + 1) * (2 * n + 1) - float((tied**3 - tied).sum()) / 2) / 24
    return math.erfc(abs(positive - n * (n + 1) / 4) / math.sqrt(2 * variance))


@cache
def _distribution(n: int) -> tuple[float, ...]:
    """Probability of at most 0, 1, 2, ... for the sum of the positive ranks of n changes."""
    ways = np.zeros(n * (n + 1) // 2 + 1, dtype=np.int64)
    ways[0] = 1
    for rank in range(1, n + 1):
        ways[rank:] += ways[:-rank].copy()
    return tuple((np.cumsum(ways) / 2.0**n).tolist())
