"""What could have been seen: power of the t-test on log-ratios, from the noncentral t distribution."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from rcatools.stats.ttest import LogDifference

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


def detectable(difference: LogDifference, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """Smallest true |ratio - 1| that a design seen once would see with ``power``: its spread, size and error."""
    if difference.error is None or difference.sd is None or difference.df < 1:
        return None
    delta = noncentrality(max(1, math.floor(difference.df)), power, alpha)
    return float(np.expm1(min(difference.error * delta, 700.0)))


def detectable_two_samples(
    sd_log: float, n_a: int, n_b: int, power: float = 0.8, alpha: float = 0.05
) -> float | None:
    """The same for two independent arms with a common spread ``sd_log`` of one run; None below 2 runs each."""
    if min(n_a, n_b) < 2 or not math.isfinite(sd_log):
        return None
    delta = noncentrality(n_a + n_b - 2, power, alpha) * math.sqrt(1 / n_a + 1 / n_b)
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
    return noncentrality(n - 1, power, alpha) / math.sqrt(n)


@lru_cache(maxsize=4096)
def noncentrality(df: int, power: float, alpha: float) -> float:
    """Noncentrality (effect over standard error) at which the two-sided t-test reaches the power.

    The chance of a significant result on the wrong side is left out; at 80 % power it is below 1e-5.
    """
    critical = special.stdtrit(df, 1 - alpha / 2)
    return float(special.nctdtrinc(df, 1 - power, critical))
