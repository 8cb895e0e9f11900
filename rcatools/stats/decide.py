"""The decision rule: from what was computed to a verdict with its reasons. Computes nothing from samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats

from rcatools import units
from rcatools.stats.records import Estimate, Modes, Reason, Verdict, WithoutExtreme

MIN_REPLICATES = 3


@dataclass(frozen=True)
class Facts:
    """Everything the rule looks at; see ``Comparison`` for the fields' meaning."""

    estimate: Estimate
    p_value: float | None
    p_equivalence: float | None
    p_floor: float | None
    margin: float
    alpha: float
    noise_floor: float | None
    n_smaller: int
    without_extreme: WithoutExtreme | None = None
    modes_in_difference: Modes | None = None


def check_declared(margin: float, confidence: float) -> None:
    """Raise ValueError unless 0 < margin < 1 and 0.5 <= confidence < 1."""
    if not 0 < margin < 1:
        raise ValueError(f"the margin must lie between 0 and 1 (0.02 = 2 %), got {margin}")
    if not 0.5 <= confidence < 1:
        raise ValueError(f"the confidence must lie between 0.5 and 1, got {confidence}")


def two_sided_p(mean: float, error: float, df: float) -> float:
    """Two-sided p of a t-statistic; without any spread 0 for a difference and 1 for none."""
    if error <= 0:
        return 0.0 if mean != 0 else 1.0
    return float(2 * stats.t.sf(abs(mean) / error, df))


def equivalence_p(mean: float, error: float, df: float, margin: float) -> float:
    """The larger p of the two one-sided t-tests against +-log(1 + margin) (Schuirmann 1987)."""
    bound = math.log1p(margin)
    if error <= 0:
        return 0.0 if abs(mean) < bound else 1.0
    return float(stats.t.sf((bound - abs(mean)) / error, df))


def judge(facts: Facts) -> tuple[Verdict, tuple[str, ...], tuple[str, ...]]:
    """The verdict with its reasons (the carrying one first) and warnings."""
    n = facts.n_smaller
    if n < MIN_REPLICATES or facts.p_value is None or facts.p_equivalence is None:
        reasons = (Reason.SINGLE_RUN_PER_ARM, Reason.TOO_FEW_RUNS) if n <= 1 else (Reason.TOO_FEW_RUNS,)
        return (
            Verdict.UNDECIDED,
            reasons,
            (f"{n} runs an arm cannot carry a verdict; at least {MIN_REPLICATES} are needed",),
        )
    reasons_found: list[str] = []
    notes: list[str] = []
    effect = math.log(facts.estimate.ratio)
    differs = facts.p_value < facts.alpha
    inside = facts.p_equivalence < 0.05
    if inside:
        verdict = Verdict.EQUIVALENT
        reasons_found.append(Reason.INTERVAL_INSIDE_MARGIN)
        if differs:
            reasons_found.append(Reason.INTERVAL_EXCLUDES_ONE)
            notes.append(
                f"a difference of {units.change(facts.estimate.ratio)} is there, smaller than the margin"
            )
    elif differs:
        verdict = Verdict.SLOWER if effect > 0 else Verdict.FASTER
        reasons_found.append(Reason.INTERVAL_EXCLUDES_ONE)
    else:
        verdict = Verdict.UNDECIDED
        reasons_found.append(Reason.INTERVAL_TOO_WIDE)
    return _hold_against_disturbances(facts, verdict, effect, reasons_found, notes)


def _hold_against_disturbances(
    facts: Facts, verdict: Verdict, effect: float, reasons: list[str], notes: list[str]
) -> tuple[Verdict, tuple[str, ...], tuple[str, ...]]:
    if facts.p_floor is not None and facts.p_floor > facts.alpha:
        reasons.append(Reason.TOO_FEW_RUNS)
        notes.append(f"an exact test cannot fall below p = {facts.p_floor:.3g} with so few runs")
    floor = facts.noise_floor
    if floor is not None:
        below = verdict in (Verdict.SLOWER, Verdict.FASTER) and abs(effect) <= math.log1p(floor)
        if below or (verdict is Verdict.EQUIVALENT and floor > facts.margin):
            verdict = Verdict.UNDECIDED
            reasons.insert(0, Reason.WITHIN_NOISE_FLOOR)
    modes = facts.modes_in_difference
    if modes is not None and modes.found:
        verdict = Verdict.UNDECIDED
        reasons.insert(0, Reason.MODES_IN_ARM)
    extreme = facts.without_extreme
    if extreme is not None and extreme.is_outlier and abs(math.log(extreme.ratio)) < 0.5 * abs(effect):
        reasons.append(Reason.OUTLIER_CARRIES_EFFECT)
        verdict = Verdict.UNDECIDED if verdict is not Verdict.EQUIVALENT else verdict
    return verdict, tuple(dict.fromkeys(reasons)), tuple(notes)
