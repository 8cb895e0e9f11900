"""What a comparison says: small frozen records that carry their reasons and warnings.

Ratios are candidate / baseline of a time-like value (1.20 = 20 % slower); a rate is inverted before it comes
here. ``sd_log`` is a standard deviation of natural logarithms, for small values the relative spread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rcatools.stats.decide import Facts

DEFAULT_MARGIN = 0.02
DEFAULT_CONFIDENCE = 0.95


class Verdict(StrEnum):
    """What the data allow to say about a candidate; members compare equal to their text."""

    SLOWER = "slower"
    FASTER = "faster"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"


class Reason(StrEnum):
    """Why a verdict is what it is; members compare equal to their text."""

    INTERVAL_EXCLUDES_ONE = "interval_excludes_one"
    INTERVAL_INSIDE_MARGIN = "interval_inside_margin"
    INTERVAL_TOO_WIDE = "interval_too_wide"
    TOO_FEW_RUNS = "too_few_runs"
    WITHIN_NOISE_FLOOR = "within_noise_floor"
    ORDER_OR_DRIFT = "order_or_drift"
    MODES_IN_ARM = "modes_in_arm"
    UNEQUAL_SPREAD = "unequal_spread"
    OUTLIER_CARRIES_EFFECT = "outlier_carries_effect"
    MIXED_MACHINES = "mixed_machines"
    SINGLE_RUN_PER_ARM = "single_run_per_arm"
    POOLED_SAMPLES_REFUSED = "pooled_samples_refused"
    OUTPUTS_DIFFER = "outputs_differ"


@dataclass(frozen=True)
class Estimate:
    """A ratio with its interval.

    Attributes:
        ratio: geometric mean ratio candidate / baseline.
        ci_low: lower bound of the two-sided interval, None when it cannot be computed.
        ci_high: upper bound.
        n: replicates the estimate rests on: pairs, or the smaller of the two arms' run counts.
        sd_log: spread of one replicate on the log scale (of pair differences, or pooled over arms).
    """

    ratio: float
    ci_low: float | None
    ci_high: float | None
    n: int
    sd_log: float | None


@dataclass(frozen=True)
class WithoutExtreme:
    """The effect once the most extreme replicate is set aside; nothing is dropped from the verdict.

    Attributes:
        index: position of the replicate in the arm (or of the pair in the sequence of blocks).
        arm: "baseline", "candidate" or "pair".
        value: what was set aside: the run's value, or the pair's ratio.
        ratio: the geometric mean ratio without it.
        robust_z: its distance from the median in units of the scaled median absolute deviation.
        is_outlier: whether that distance passes the limit of 3.5 (Iglewicz and Hoaglin 1993).
    """

    index: int
    arm: str
    value: float
    ratio: float
    robust_z: float
    is_outlier: bool


@dataclass(frozen=True)
class Modes:
    """Whether values are a mixture of two levels.

    Attributes:
        found: the test rejects one level at ``alpha`` and both clusters have at least two members.
        n: values tested.
        share_high: share of values in the upper cluster.
        low: geometric centre of the lower cluster.
        high: geometric centre of the upper cluster.
        gap: high / low - 1.
        separation: gap on the log scale over the within-cluster standard deviation.
        p_value: chance of a split at least this clean from one level.
        members: True where the value belongs to the upper cluster, in input order.
    """

    found: bool
    n: int
    share_high: float
    low: float
    high: float
    gap: float
    separation: float
    p_value: float
    members: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Drift:
    """A trend along the order in which values were taken.

    Attributes:
        slope_per_step: relative change per step (Theil-Sen on logs).
        total: relative change from the first to the last value along that slope.
        p_value: Kendall's tau against no trend.
        lag1: autocorrelation of neighbours.
        found: p below alpha and the total above the threshold given.
    """

    slope_per_step: float
    total: float
    p_value: float
    lag1: float
    found: bool


@dataclass(frozen=True)
class NoiseFloor:
    """What two arms of the same build differ by.

    Attributes:
        floor: largest |ratio - 1| that equal arms are compatible with (the far bound of the A/A interval).
        ratio: the A/A ratio itself, 1.0 when it comes from the spread of one arm.
        ci_low: lower bound of the A/A ratio.
        ci_high: upper bound.
        sd_log: spread of one A/A pair difference (paired) or of one run (unpaired).
        n: A/A pairs or runs.
        detectable: smallest true effect seen with 80 % power by as many replicates.
    """

    floor: float
    ratio: float
    ci_low: float
    ci_high: float
    sd_log: float
    n: int
    detectable: float | None


@dataclass(frozen=True)
class Fit:
    """A straight line delta = intercept + slope * base with its confidence intervals.

    Attributes:
        intercept: additive cost, in the unit of the input (microseconds).
        intercept_ci: interval of the intercept.
        slope: multiplicative cost as a fraction (0.05 = 5 % of the base time).
        slope_ci: interval of the slope.
        n: points.
        residual_sd: weighted residual standard deviation.
        covariance_type: how the errors of the coefficients were computed.
    """

    intercept: float
    intercept_ci: tuple[float, float]
    slope: float
    slope_ci: tuple[float, float]
    n: int
    residual_sd: float
    covariance_type: str


@dataclass(frozen=True)
class Comparison:
    """One candidate against the baseline, with what carries the verdict.

    Attributes:
        arm: the candidate's name.
        baseline: the baseline's name.
        estimate: ratio, interval, replicates, spread.
        p_value: two-sided t-test of no difference (paired t, or Welch), None with one replicate.
        p_floor: the smallest two-sided p an exact test can give at this number of replicates.
        mde: smallest true |ratio - 1| seen with 80 % power at this n and spread, None when unknown.
        margin: the largest |ratio - 1| declared not to matter.
        verdict: slower, faster, equivalent or undecided.
        reasons: codes of ``Reason``, the carrying one first.
        warnings: sentences for a reader.
        p_exact: exact sign-flip (paired) or Mann-Whitney (unpaired) p.
        p_equivalence: the larger p of the two one-sided tests against the margin.
        p_adjusted: p_value after the correction over arms or over a family, where one was made.
        confidence: level of the interval.
        paired: whether replicates were paired by block.
        n_baseline: replicates of the baseline.
        n_candidate: replicates of the candidate.
        dropped: replicates left out because one side of the pair is missing or not a number.
        noise_floor: the A/A floor the verdict was held against.
        without_extreme: the effect without the most extreme replicate.
        facts: what the decision rule looked at, so that it can judge again after a correction.
        own_warnings: the warnings that do not come from the rule.
    """

    arm: str
    baseline: str
    estimate: Estimate
    p_value: float | None
    p_floor: float | None
    mde: float | None
    margin: float
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    p_exact: float | None = None
    p_equivalence: float | None = None
    p_adjusted: float | None = None
    confidence: float = DEFAULT_CONFIDENCE
    paired: bool = True
    n_baseline: int = 0
    n_candidate: int = 0
    dropped: int = 0
    noise_floor: float | None = None
    without_extreme: WithoutExtreme | None = None
    facts: Facts | None = None
    own_warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """One metric and workload: every candidate against the baseline.

    Attributes:
        metric: name of the metric, None where the table has one only.
        workload: name of the workload, None likewise.
        baseline: the baseline's name.
        unit: what was taken as one replicate: "block", "run", "row" or "summary".
        paired: whether replicates were paired by block.
        comparisons: candidates in order of appearance, without A/A arms.
        repeats: the baseline's A/A arms against it.
        noise: the A/A floor, None without A/A data.
        levels: geometric mean of each arm's runs, time-like.
        verdict: the worst of the comparisons.
        warnings: sentences on the whole result.
    """

    metric: str | None
    workload: str | None
    baseline: str
    unit: str
    paired: bool
    comparisons: tuple[Comparison, ...]
    repeats: tuple[Comparison, ...]
    noise: NoiseFloor | None
    levels: dict[str, float]
    verdict: Verdict
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupEstimate:
    """Single runs of several workloads taken together, arm against baseline: weak evidence, never a verdict.

    Attributes:
        metric: name of the metric.
        column: the column that names the group, "all" for all workloads.
        value: the group.
        arm: the candidate.
        estimate: over workloads, one log-ratio each.
        p_value: one-sample t over workloads.
        spread: smallest and largest ratio among the workloads.
    """

    metric: str | None
    column: str
    value: str
    arm: str
    estimate: Estimate
    p_value: float | None
    spread: tuple[float, float]


@dataclass(frozen=True)
class TableVerdict:
    """Everything a table says.

    Attributes:
        baseline: the baseline's name.
        results: one entry per metric and workload, in order of appearance.
        verdict: the worst over all results (slower, undecided, equivalent, faster).
        correction: "none", "holm", "dunnett" or "benjamini-hochberg".
        groups: single-run workloads taken together by class.
        warnings: sentences on the whole table.
    """

    baseline: str
    results: tuple[Result, ...]
    verdict: Verdict
    correction: str
    groups: tuple[GroupEstimate, ...] = ()
    warnings: tuple[str, ...] = ()


_WORST_FIRST = (Verdict.SLOWER, Verdict.UNDECIDED, Verdict.EQUIVALENT, Verdict.FASTER)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that a gate must not overlook: slower, undecided, equivalent, faster in this order."""
    present = set(verdicts)
    return next((verdict for verdict in _WORST_FIRST if verdict in present), Verdict.UNDECIDED)
