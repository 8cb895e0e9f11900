"""A mean over blocks with its t-interval, and what it would have shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rcatools.stats.decide import MIN_REPLICATES
from rcatools.stats.detection import smallest_detectable

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mean:
    """A mean over blocks with its t-interval; log-ratios unless told otherwise.

    Attributes:
        value: the mean.
        error: its standard error, 0 without spread.
        half: half the interval.
        n: blocks.
        sd: standard deviation of one block.
    """

    value: float
    error: float
    half: float
    n: int
    sd: float

    @property
    def low(self) -> float:
        """Lower bound."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Upper bound."""
        return self.value + self.half


@lru_cache(maxsize=4096)
def t_quantile(confidence: float, df: int) -> float:
    """Two-sided quantile of Student's t."""
    return float(stats.t.ppf(0.5 + confidence / 2, df))


def mean_over_blocks(values: Floats, confidence: float) -> Mean | None:
    """Mean and t-interval of finite values; None with fewer than three, which carry no verdict."""
    values = values[np.isfinite(values)]
    if values.size < MIN_REPLICATES:
        return None
    sd = float(values.std(ddof=1))
    error = sd / math.sqrt(values.size)
    return Mean(
        float(values.mean()), error, t_quantile(confidence, values.size - 1) * error, int(values.size), sd
    )


def detectable(mean: Mean, confidence: float) -> float | None:
    """Smallest |ratio - 1| that a mean of so many log-ratios would have shown with 80 % power."""
    return smallest_detectable(mean.sd, mean.n, alpha=1 - confidence)
