"""Runs a declared check: whether the device can answer it, what it finds, and the command that would answer it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rcatools.diagnosis import (
    checks_fit,
    checks_kernels,
    checks_memory,
    checks_time,
    checks_trend,
    quantities,
)
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.checks_time import not_tested
from rcatools.diagnosis.records import Evidence, Observation, Outcome
from rcatools.diagnosis.vocabulary import CHECKS, Check, Compare, Quantity, Seen
from rcatools.diagnosis.wording import said

TIMED = frozenset(
    {"ratio", "equivalence", "effect_share", "dose", "step", "kernel_ratio", "delta_fit", "gap", "reconcile"}
)
NO_DIFFERENCE = frozenset({"equivalent", "absent", "zero", "same", "flat", "not_explained", "one_mode"})


def compare(case: Case, check: Compare) -> Outcome:
    """Two quantities, equal up to the relative tolerance."""
    left, right = case.quantity(check.left), case.quantity(check.right)
    if left is None or right is None:
        return not_tested("a figure of the comparison is missing in its table")
    if abs(left - right) <= check.tolerance * max(abs(left), abs(right)):
        name = "equal"
    else:
        name = "less" if left < right else "more"
    text = f"{left:,.10g} against {right:,.10g}" + (f" {check.unit}" if check.unit else "")
    told: list[str] = []
    if isinstance(check.left, Quantity):
        told = quantities.cells(case.tables, check.left.table, check.left.where, check.tell)
    text += _from([*told, check.source])
    evidence = Evidence(text, source="published" if check.source else "table", value=left)
    return Outcome(name, True, f"{said(name)}: {text}", (evidence,))


def _from(places: Sequence[str]) -> str:
    """Where a figure comes from, in parentheses."""
    named = [item for item in places if item]
    return f" ({', '.join(named)})" if named else ""


def seen(case: Case, check: Seen) -> Outcome:
    """One row of a table: its flag, and its words."""
    flag = case.quantity(Quantity(table=check.table, column=check.column, where=check.where))
    if flag is None:
        return not_tested(f"table {check.table} does not say it")
    words, *told = quantities.cells(case.tables, check.table, check.where, [check.say, *check.tell])
    name = "yes" if flag else "no"
    text = words + _from([*told, check.source])
    source = "published" if check.source else "table"
    device = (
        told[check.tell.index("device")] if "device" in check.tell and len(told) == len(check.tell) else ""
    )
    evidence = Evidence(text, source=source, notebook=check.notebook, value=flag, device=device)
    return Outcome(name, True, f"{said(name)}: {text}", (evidence,))


_RUN: dict[str, Callable[[Case, Any], Outcome]] = {
    "ratio": checks_time.ratio,
    "equivalence": checks_time.ratio,
    "effect_share": checks_time.effect_share,
    "modes": checks_time.modes,
    "dose": checks_trend.dose,
    "step": checks_trend.step,
    "kernel_ratio": checks_kernels.kernel_ratio,
    "delta_fit": checks_fit.delta_fit,
    "gap": checks_kernels.gap,
    "reconcile": checks_kernels.reconcile,
    "ledger": checks_memory.ledger,
    "owner": checks_memory.owner,
    "compare": compare,
    "seen": seen,
}
assert _RUN.keys() == CHECKS.keys()


def observe(case: Case, name: str, check: Check, *, sensitive: bool | None) -> Observation:
    """Run one check.

    Args:
        case: the evidence.
        name: id of the observation.
        check: what was declared.
        sensitive: False where a planted regression was missed; then "no difference" decides nothing.
    """
    if getattr(check, "recording", ""):
        sensitive = companion_sensitivity(case, check)
    outcome = _RUN[check.kind](case, check) if _answerable(case, check) else _other_device(case, check)
    outcome = _of_equal_outputs(case, check, outcome)
    if sensitive is False and outcome.definite and outcome.name in NO_DIFFERENCE:
        outcome = replace(
            outcome,
            definite=False,
            reason="a planted regression was not seen in these data, so no difference proves nothing",
        )
    return Observation(name, check.text, check.kind, outcome, command(case, [check], name))


def _of_equal_outputs(case: Case, check: Check, outcome: Outcome) -> Outcome:
    """The outcome, without a verdict where it compares times of arms whose outputs differ."""
    if check.kind not in TIMED or outcome.name is None:
        return outcome
    by_name = {item.name: item for item in (*case.recordings, *case.companions.values())}
    for item in outcome.evidence:
        why = (
            case.conditions.outputs_apart(by_name[item.recording], item.arms)
            if item.recording in by_name
            else ""
        )
        if why:
            return replace(outcome, definite=False, reason=why, observed=f"not judged: {item.text}; {why}")
    return outcome


def companion_sensitivity(case: Case, check: Any) -> bool | None:
    """Whether the companion's own planted arms are told from its baseline on the check's metric.

    True where every interval excludes no difference, None where nothing was planted or the check has no metric.
    """
    recording = case.companions.get(check.recording)
    metric = getattr(check, "metric", "")
    if recording is None or not metric:
        return None
    seen = []
    for arm in recording.manifest.design["arms"]:
        if str(arm.get("role", "")).startswith("plant_"):
            found = case.compare(
                str(arm["name"]), recording.manifest.baseline, metric, companion=recording.name
            )
            if found is not None:
                e = found[0].estimate
                seen.append(e.ci_low is not None and e.ci_high is not None and not e.ci_low <= 1 <= e.ci_high)
    return all(seen) if seen else None


def observe_all(case: Case, sensitive: bool | None) -> dict[str, Observation]:
    """Every declared observation, once, in declared order."""
    return {
        name: observe(case, name, check, sensitive=sensitive)
        for name, check in case.spec.observations.items()
    }


def _answerable(case: Case, check: Check) -> bool:
    if not check.needs:
        return True
    return case.backend in (("cuda", "rocm") if check.needs == "gpu" else (check.needs,))


def _other_device(case: Case, check: Check) -> Outcome:
    need = {"rocm": "an AMD card with ROCm", "cuda": "an NVIDIA card", "gpu": "a GPU"}[check.needs]
    if case.primary is None:
        return not_tested(f"needs {need}, and no recording was given")
    return not_tested(f"needs {need}; {case.device_name} cannot answer it")


def command(case: Case, checks: Sequence[Check], name: str) -> str:
    """The command that would answer one check, or several together."""
    own = [check.run for check in checks if check.run]
    if own:
        return own[0]
    arms = [case.baseline, *case.spec.effect.repeat, case.suspect]
    arms += [arm for check in checks for arm in check.arms()]
    if all(check.kind in ("compare", "seen") for check in checks):
        return ""
    listed = ",".join(dict.fromkeys(arms))
    device = next((f" --device {c.needs}" for c in checks if c.needs in ("rocm", "cuda")), "")
    return f"rcatools record {case.spec.slug}{device} --arms {listed} --out {case.spec.slug}-{name}"
