"""One difference of log means with its error: the number every verdict rests on, whatever the design.

A ``LogDifference`` comes from block pairs, from two independent groups of runs (Welch 1947), from runs inside
strata (a common difference after each stratum's level is taken out), from published summaries, or from runs
against a fixed published number. Test, interval and equivalence are the same for all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LogDifference:
    """log(candidate) - log(baseline) as a t-distributed estimate.

    Attributes:
        mean: the difference of log means.
        error: its standard error, None when the replicates cannot give one.
        df: degrees of freedom of the error.
        n: replicates: pairs, or runs of the smaller arm.
        sd: standard deviation of one replicate on the log scale.
        scale: error = sd * scale, so that another sample size can be asked about.
        pairs: whether a replicate is a pair (``sd`` is that of a pair's difference) or a run.
    """

    mean: float
    error: float | None
    df: float
    n: int
    sd: float | None
    scale: float = 1.0
    pairs: bool = False

    @property
    def ratio(self) -> float:
        """exp(mean): the geometric mean ratio."""
        return math.exp(self.mean)

    def interval(self, confidence: float) -> tuple[float | None, float | None]:
        """Two-sided interval of the ratio, (None, None) without an error."""
        if self.error is None:
            return None, None
        half = t_quantile(0.5 + confidence / 2, self.df) * self.error
        return _exp(self.mean - half), _exp(self.mean + half)

    def p_value(self) -> float | None:
        """Two-sided p of no difference; without any spread 0 for a difference and 1 for none."""
        if self.error is None:
            return None
        if self.error <= 0:
            return 0.0 if self.mean != 0 else 1.0
        return 2.0 * t_tail(abs(self.mean) / self.error, self.df)

    def p_equivalence(self, margin: float) -> float | None:
        """The larger p of the two one-sided tests against +-log(1 + margin) (Schuirmann 1987)."""
        if self.error is None:
            return None
        room = math.log1p(margin) - abs(self.mean)
        if self.error <= 0:
            return 0.0 if room > 0 else 1.0
        return t_tail(room / self.error, self.df)


def from_pairs(d: Floats) -> LogDifference:
    """Paired t on log-ratios, shape (n,), n >= 1."""
    n = d.size
    mean = float(d.mean())
    if n == 1:
        return LogDifference(mean, None, 0, 1, None, pairs=True)
    sd = standard_deviation(d)
    return LogDifference(
        mean, _significant_error(sd, d) / math.sqrt(n), n - 1, n, sd, 1 / math.sqrt(n), pairs=True
    )


def from_runs(b: Floats, c: Floats) -> LogDifference:
    """Welch's t on the logs of independent runs of two arms."""
    mean, n = float(c.mean() - b.mean()), min(b.size, c.size)
    if n < 2:
        return LogDifference(mean, None, 0, n, None)
    sd_b = _significant_error(standard_deviation(b), b)
    sd_c = _significant_error(standard_deviation(c), c)
    return from_moments(mean, sd_b, b.size, sd_c, c.size)


def from_moments(mean: float, sd_b: float, n_b: int, sd_c: float, n_c: int) -> LogDifference:
    """Welch's t from a difference of log means and each arm's log standard deviation and count."""
    u, v = sd_b**2 / n_b, sd_c**2 / n_c
    variance = u + v
    df = variance**2 / (u**2 / (n_b - 1) + v**2 / (n_c - 1)) if variance > 0 else n_b + n_c - 2
    scale = math.sqrt(1 / n_b + 1 / n_c)
    return LogDifference(mean, math.sqrt(variance), df, min(n_b, n_c), math.sqrt(variance) / scale, scale)


def from_strata(
    b: Floats, c: Floats, stratum_b: NDArray[np.int64], stratum_c: NDArray[np.int64]
) -> LogDifference:
    """A common difference of two arms inside strata (machines, days), by least squares on logs.

    Model: log value = level of the stratum + difference * (is candidate) + noise. Strata that hold one arm
    only do not move the difference. The caller makes sure that at least one stratum holds both.
    """
    y = np.concatenate([b, c])
    is_c = np.concatenate([np.zeros(b.size), np.ones(c.size)])
    _, stratum = np.unique(np.concatenate([stratum_b, stratum_c]), return_inverse=True)
    y_in, x_in = _within(y, stratum), _within(is_c, stratum)
    information = float(x_in @ x_in)
    mean = float(x_in @ y_in) / information
    df = y.size - int(stratum.max()) - 2
    n = min(b.size, c.size)
    if df < 1:
        return LogDifference(mean, None, 0, n, None)
    residual = y_in - mean * x_in
    sd = math.sqrt(float(residual @ residual) / df)
    scale = 1 / math.sqrt(information)
    return LogDifference(mean, sd * scale, df, n, sd, scale)


def aligned(
    b: Floats, c: Floats, stratum_b: NDArray[np.int64], stratum_c: NDArray[np.int64], step: float
) -> tuple[Floats, Floats]:
    """Both arms' logs with each stratum's level taken out, the step between the arms kept."""
    _, stratum = np.unique(np.concatenate([stratum_b, stratum_c]), return_inverse=True)
    level = np.bincount(stratum, weights=np.concatenate([b, c - step])) / np.bincount(stratum)
    return b - level[stratum[: b.size]], c - level[stratum[b.size :]]


def against_fixed(runs: Floats, reference_log: float) -> LogDifference:
    """One-sample t of runs (logs) against a number given without spread, as baseline."""
    return from_pairs(runs - reference_log)


@lru_cache(maxsize=4096)
def t_quantile(probability: float, df: float) -> float:
    """Quantile of Student's t."""
    return float(special.stdtrit(df, probability))


def t_tail(t: float, df: float) -> float:
    """Upper tail of Student's t."""
    return float(special.stdtr(df, -t))


def standard_deviation(values: Floats) -> float:
    """Sample standard deviation, shape (n,), n >= 2; a few times faster than ``values.std(ddof=1)`` for few values."""
    e = values - float(values.sum()) / values.size
    return math.sqrt(float(e @ e) / (values.size - 1))


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _within(values: Floats, stratum: NDArray[np.int64]) -> Floats:
    means = np.bincount(stratum, weights=values) / np.bincount(stratum)
    return np.asarray(values - means[stratum], dtype=float)


def _significant_error(sd: float, values: Floats) -> float:
    """The spread, or 0.0 where it is only rounding of equal numbers."""
    return 0.0 if sd <= 1e-12 * max(1.0, float(np.abs(values).max())) else sd
