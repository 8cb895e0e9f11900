"""What is settled before the numbers are looked at, and which arms it makes candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rcatools.errors import InputError, UnknownNameError
from rcatools.stats.naming import is_repeat_of
from rcatools.stats.records import DEFAULT_CONFIDENCE, DEFAULT_MARGIN
from rcatools.stats.ttest import LogDifference

MAX_ARMS = 100


@dataclass(frozen=True)
class Declared:
    """What is settled before the numbers are looked at.

    Attributes:
        baseline: name of the baseline arm.
        arms: candidates to judge, all others of the table when empty.
        margin: largest |ratio - 1| that does not matter; ``margins`` overrules it by (metric, workload).
        confidence: level of intervals.
        unit: "auto" or the unit of replication.
        repeats: arms that are the baseline once more, beside those whose name says so.
        not_repeats: arms that are no repeat whatever their name says.
        repeat_runs: times of further runs of the baseline's build, from another table.
        repeat_difference: an A/A difference from another table.
        margins: margin by (metric, workload).
    """

    baseline: str
    arms: tuple[str, ...] = ()
    margin: float = DEFAULT_MARGIN
    confidence: float = DEFAULT_CONFIDENCE
    unit: str = "auto"
    repeats: tuple[str, ...] = ()
    not_repeats: tuple[str, ...] = ()
    repeat_runs: tuple[float, ...] = ()
    repeat_difference: LogDifference | None = None
    margins: dict[tuple[str | None, str | None], float] = field(default_factory=dict)


def split_arms(arms: Sequence[str], declared: Declared) -> tuple[list[str], list[str]]:
    """Candidates and A/A arms in order of appearance."""
    if declared.baseline not in arms:
        raise UnknownNameError("baseline arm", declared.baseline, arms[:20])
    for name in (*declared.arms, *declared.repeats, *declared.not_repeats):
        if name not in arms:
            raise UnknownNameError("arm", name, arms[:20])
    if declared.baseline in (*declared.arms, *declared.repeats):
        raise InputError(f"{declared.baseline!r} is the baseline itself; name another arm to compare with it")
    others = [arm for arm in arms if arm != declared.baseline]
    if not others:
        raise InputError(
            f"the table holds the arm {declared.baseline!r} only; give rows of a second arm, or the column that names them with --arm-column"
        )
    repeats = [
        arm
        for arm in others
        if arm not in declared.arms
        and arm not in declared.not_repeats
        and (arm in declared.repeats or is_repeat_of(arm, declared.baseline))
    ]
    wanted = [arm for arm in others if arm not in repeats and (not declared.arms or arm in declared.arms)]
    if len(wanted) > MAX_ARMS:
        raise InputError(
            f"the table holds {len(others) + 1:,} arms, more than {MAX_ARMS}; name the ones to judge "
            "with --arm, or check which column names the arm"
        )
    return wanted, repeats
