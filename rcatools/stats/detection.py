"""What could have been seen: power of the t-test on log-ratios, from the noncentral t distribution."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import optimize, stats

MAX_BLOCKS = 100_000


def smallest_detectable(sd_log: float, n: int, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """Smallest true |ratio - 1| that a two-sided one-sample t-test of n log-ratios sees with ``power``.

    Args:
        sd_log: standard deviation of one block's log-ratio.
        n: blocks.
        power: wanted chance of seeing it.
        alpha: two-sided error of the test.

    Returns:
        exp(effect) - 1; 0.0 without spread; None for fewer than two blocks.
    """
    if n < 2 or not math.isfinite(sd_log):
        return None
    return float(np.expm1(sd_log * _standard_effect(n, power, alpha)))


def smallest_detectable_two_samples(
    sd_log: float, n_a: int, n_b: int, power: float = 0.8, alpha: float = 0.05
) -> float | None:
    """The same for two independent arms with a common spread ``sd_log`` of one run; None below 2 runs each."""
    if min(n_a, n_b) < 2 or not math.isfinite(sd_log):
        return None
    delta = _noncentrality(n_a + n_b - 2, power, alpha) * math.sqrt(1 / n_a + 1 / n_b)
    return float(np.expm1(sd_log * delta))


def blocks_needed(sd_log: float, effect: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Blocks for which a true ratio of 1 + effect is seen with ``power``.

    Raises:
        ValueError: the effect is zero or not above -1.
    """
    if effect == 0 or effect <= -1:
        raise ValueError(f"the wanted effect must be nonzero and above -1, got {effect}")
    if sd_log <= 0:
        return 2
    wanted = abs(math.log1p(effect)) / sd_log
    low, high = 1, 2
    while high < MAX_BLOCKS and _standard_effect(high, power, alpha) > wanted:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if _standard_effect(middle, power, alpha) > wanted:
            low = middle
        else:
            high = middle
    return high


def _standard_effect(n: int, power: float, alpha: float) -> float:
    return _noncentrality(n - 1, power, alpha) / math.sqrt(n)


@lru_cache(maxsize=4096)
def _noncentrality(df: int, power: float, alpha: float) -> float:
    """Noncentrality at which the two-sided t-test with ``df`` degrees of freedom has the power."""
    critical = float(stats.t.ppf(1 - alpha / 2, df))

    def excess(delta: float) -> float:
        other_side = stats.nct.cdf(-critical, df, delta) if delta < 5 else 0.0
        return float(stats.nct.sf(critical, df, delta) + other_side) - power

    high = critical
    while excess(high) < 0:
        high *= 1.25
    return float(optimize.brentq(excess, 0.0, high, xtol=1e-6))
