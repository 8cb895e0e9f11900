"""The decision rule: from an estimate and what disturbs it to a verdict with reasons. Reads no samples.

In this order: too few replicates; equivalence (both one-sided tests against the declared margin); a difference
(the t-test at 1 - confidence, after correction where several arms or kernels were looked at); neither. Then the
disturbances: each one found forbids a verdict, so ``undecided`` with its reason in front.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rcatools import units
from rcatools.stats.records import Reason, Verdict, WithoutExtreme
from rcatools.stats.ttest import LogDifference

MIN_REPLICATES = 3
CARRIED_SHARE = 0.5  # an outlier carries the effect when more than half of it goes with it


@dataclass(frozen=True)
class Note:
    """A reason found outside the test, with its sentence; ``blocks`` forbids any verdict but undecided."""

    reason: Reason
    text: str
    blocks: bool


@dataclass(frozen=True)
class Facts:
    """What the rule looks at.

    Attributes:
        difference: the estimate.
        margin: declared margin.
        alpha: two-sided level.
        p_floor: smallest exact p at this size.
        p_adjusted: p-value after correction over arms or a family, None without correction.
        noise_floor: |ratio - 1| that equal arms were seen to differ by.
        min_effect: smallest |ratio - 1| worth a verdict in a large family, 0 otherwise.
        without_extreme: the effect without the most extreme replicate.
        notes: disturbances found by the caller.
    """

    difference: LogDifference
    margin: float
    alpha: float
    p_floor: float | None = None
    p_adjusted: float | None = None
    noise_floor: float | None = None
    min_effect: float = 0.0
    without_extreme: WithoutExtreme | None = None
    notes: tuple[Note, ...] = ()


def check_declared(margin: float, confidence: float) -> None:
    """Raise ValueError unless 0 < margin < 1 and 0.5 <= confidence < 1."""
    if not 0 < margin < 1:
        raise ValueError(f"the margin must lie between 0 and 1 (0.02 = 2 %), got {margin}")
    if not 0.5 <= confidence < 1:
        raise ValueError(f"the confidence must lie between 0.5 and 1, got {confidence}")


def judge(facts: Facts) -> tuple[Verdict, tuple[str, ...], tuple[str, ...]]:
    """The verdict, its reasons (the carrying one first) and its warnings."""
    blocking = [note for note in facts.notes if note.blocks]
    marks = [note for note in facts.notes if not note.blocks]
    verdict, reasons, texts = _from_test(facts)
    front: list[Reason] = [note.reason for note in blocking]
    if front:
        if verdict is Verdict.UNDECIDED and set(front) == {Reason.POOLED_SAMPLES_REFUSED}:
            front, marks = [], [*marks, *blocking]  # the data decide nothing even if samples were runs
        verdict = Verdict.UNDECIDED
    elif _below_floor(facts, verdict):
        verdict = Verdict.UNDECIDED
        front.append(Reason.WITHIN_NOISE_FLOOR)
        texts.append(
            f"arms of the same build differ by up to {units.percent(facts.noise_floor)}; this effect is inside that"
        )
    if Reason.MODES_IN_ARM not in {note.reason for note in facts.notes}:
        texts += _outlier_text(facts)
    if _outlier_carries(facts):
        if verdict in (Verdict.SLOWER, Verdict.FASTER):
            verdict = Verdict.UNDECIDED
            front.append(Reason.OUTLIER_CARRIES_EFFECT)
        else:
            reasons.append(Reason.OUTLIER_CARRIES_EFFECT)
    ordered = dict.fromkeys([*front, *reasons, *(note.reason for note in marks)])
    return verdict, tuple(ordered), tuple([note.text for note in facts.notes] + texts)


def _from_test(facts: Facts) -> tuple[Verdict, list[Reason], list[str]]:
    test, texts = facts.difference, list[str]()
    if test.n < MIN_REPLICATES:
        few = f"{test.n} {'run' if test.n == 1 else 'runs'} in the smaller arm; a verdict needs {MIN_REPLICATES}"
        reasons = [Reason.SINGLE_RUN_PER_ARM] if test.n <= 1 else [Reason.TOO_FEW_RUNS]
        texts.append(few)
        if facts.noise_floor is not None and abs(test.mean) > math.log1p(facts.noise_floor):
            texts.append(
                f"{units.change(test.ratio)} in time is more than runs of one build differ by "
                f"({units.percent(facts.noise_floor)}): likely real, its size unproven"
            )
        return Verdict.UNDECIDED, reasons, texts
    p_value, p_equivalence = test.p_value(), test.p_equivalence(facts.margin)
    if p_value is None or p_equivalence is None:
        return Verdict.UNDECIDED, [Reason.INTERVAL_TOO_WIDE], ["no spread is known, so no interval either"]
    p_used = p_value if facts.p_adjusted is None else facts.p_adjusted
    alone, differs = p_value < facts.alpha, p_used < facts.alpha
    large = abs(test.mean) >= math.log1p(facts.min_effect)
    if p_equivalence < facts.alpha:
        reasons = [Reason.INTERVAL_INSIDE_MARGIN]
        if differs:
            reasons.append(Reason.INTERVAL_EXCLUDES_ONE)
            texts.append(
                f"a difference of {units.change(test.ratio)} in time is there; it is smaller than the margin"
            )
        verdict = Verdict.EQUIVALENT
    elif differs and large:
        reasons = [Reason.INTERVAL_EXCLUDES_ONE]
        verdict = Verdict.SLOWER if test.mean > 0 else Verdict.FASTER
    else:
        reasons = [Reason.INTERVAL_TOO_WIDE]
        verdict = Verdict.UNDECIDED
        if alone and not differs:
            texts.append(
                f"p = {units.p_value(p_value)} alone, {units.p_value(p_used)} among all comparisons made"
            )
        elif differs:
            texts.append(
                f"the effect lies below the smallest one reported, {units.percent(facts.min_effect)}"
            )
    if facts.p_floor is not None and facts.p_floor > facts.alpha:
        reasons.append(Reason.TOO_FEW_RUNS)
        texts.append(
            f"with so few runs an exact test cannot fall below p = {units.significant(facts.p_floor)}; "
            "the t-test rests on near-normal logs"
        )
    if verdict in (Verdict.SLOWER, Verdict.FASTER) and test.error == 0:
        texts.append("there is no spread at all: these values are counted, rounded or copied, not timed")
    return verdict, reasons, texts


def _below_floor(facts: Facts, verdict: Verdict) -> bool:
    """Whether the A/A floor forbids the verdict; a single run below the floor is marked as well."""
    floor = facts.noise_floor
    if floor is None:
        return False
    inside = abs(facts.difference.mean) <= math.log1p(floor)
    if verdict is Verdict.EQUIVALENT:
        return floor > facts.margin
    return inside


def _outlier_carries(facts: Facts) -> bool:
    extreme, effect = facts.without_extreme, facts.difference.mean
    if extreme is None or not extreme.is_outlier or abs(effect) < math.log1p(facts.margin) / 4:
        return False
    rest = math.log(extreme.ratio)
    return rest * effect <= 0 or abs(rest) < (1 - CARRIED_SHARE) * abs(effect)


def _outlier_text(facts: Facts) -> list[str]:
    extreme = facts.without_extreme
    if extreme is None or not extreme.is_outlier:
        return []
    if abs(math.log(extreme.ratio) - facts.difference.mean) < math.log1p(facts.margin) / 4:
        return []
    where = "one pair" if extreme.arm == "pair" else f"one {extreme.arm} run"
    return [
        f"{where} lies far out: time {units.change(facts.difference.ratio)} with it, "
        f"{units.change(extreme.ratio)} without it; it is kept"
    ]
