"""How each arm differs from the baseline, from what was measured; names and roles of arms are not read.

With traces: where the difference of the step sits - in kernels that only one side has, in the duration of equal
kernels, or in the gaps between them. Without: the isolated kernels can only say whether they explain it.
"""

from __future__ import annotations

import numpy as np

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.checks_kernels import NOTEBOOK, declared_kernels, per_step, trace_terms
from rcatools.diagnosis.checks_time import comparison_evidence
from rcatools.diagnosis.records import (
    Evidence,
    Mechanism,
    MechanismResult,
    PlantResult,
    Reconciliation,
)
from rcatools.diagnosis.steps import StepFigures
from rcatools.recording import Recording
from rcatools.stats.records import Comparison, Verdict

DOMINANT = 0.6
EXPLAINS = (0.4, 2.5)
_KIND = {
    "launches": Mechanism.MORE_KERNELS,
    "kernels": Mechanism.SLOWER_KERNELS,
    "gaps": Mechanism.LONGER_GAPS,
}


def mechanism(case: Case, arm: str) -> MechanismResult | None:
    """The mechanism of one arm against the baseline; None where the arm was not timed."""
    found = case.compare(arm)
    if found is None:
        return None
    comparison, recording = found
    timed = comparison_evidence(comparison, recording, case.metric)
    if comparison.verdict is Verdict.EQUIVALENT:
        return MechanismResult(arm, Mechanism.NONE, None, f"no difference: {timed.text}", (timed,))
    if comparison.verdict is Verdict.UNDECIDED:
        return MechanismResult(arm, Mechanism.UNDECIDED, None, f"no verdict: {timed.text}", (timed,))
    delta = step_delta_us(case, recording, arm)
    candidate, base = case.step_figures(arm), case.step_figures(case.baseline)
    if candidate is not None and base is not None:
        return _from_traces(arm, delta, candidate, base[0], timed)
    return _from_isolated(case, recording, comparison, delta, timed)


def step_delta_us(case: Case, recording: Recording, arm: str) -> float:
    """Median over blocks of arm minus baseline, in the metric's unit."""
    table = np.exp(case.logs(recording, case.metric)[[arm, case.baseline]].to_numpy())
    return float(np.nanmedian(table[:, 0] - table[:, 1]))


def _from_traces(
    arm: str, delta: float, candidate: tuple[StepFigures, Recording], base: StepFigures, timed: Evidence
) -> MechanismResult:
    figures, recording = candidate
    terms = {name: float(values.mean()) for name, values in trace_terms(base, figures).items()}
    total = sum(terms.values())
    named = ", ".join(f"{name} {units.significant(value)} us" for name, value in terms.items())
    text = f"of {units.significant(delta)} us a step measured, the traces show {units.significant(total)} us: {named}"
    evidence = Evidence(text, recording.name, (arm,), "trace", NOTEBOOK, total, unit="us", n=figures.steps)
    if total * delta <= 0 or not EXPLAINS[0] <= total / delta <= EXPLAINS[1]:
        text += "; they do not explain what was measured"
        return MechanismResult(arm, Mechanism.UNDECIDED, None, text, (timed, evidence))
    name = max(terms, key=lambda key: terms[key] / total)
    share = terms[name] / total
    if share < DOMINANT:
        return MechanismResult(arm, Mechanism.MIXED, share, text, (timed, evidence))
    detail = _detail(name, base, figures)
    return MechanismResult(arm, _KIND[name], share, f"{detail}; {text}", (timed, evidence))


def _detail(term: str, base: StepFigures, figures: StepFigures) -> str:
    if term == "gaps":
        per = (figures.gap_us.mean() - base.gap_us.mean()) / max(base.boundaries, 1.0)
        return f"each of {base.boundaries:.0f} gaps between kernels is {units.duration_us(per)} longer, kernels are not"
    if term == "launches":
        return f"{figures.kernels - base.kernels:+.0f} kernels a step ({base.kernels:.0f} to {figures.kernels:.0f})"
    changes = {
        name: us - base.by_name[name][1]
        for name, (count, us) in figures.by_name.items()
        if name in base.by_name and base.by_name[name][0] == count
    }
    worst = max(changes, key=lambda key: abs(changes[key]))
    share = changes[worst] / sum(changes.values())
    factor = figures.by_name[worst][1] / base.by_name[worst][1]
    return f"kernels themselves take longer, {worst} {factor:.3g} times as long ({100 * share:.0f} % of it)"


def _from_isolated(
    case: Case, recording: Recording, comparison: Comparison, delta: float, timed: Evidence
) -> MechanismResult:
    arm = comparison.arm
    logs = case.kernel_logs(recording)
    if arm not in logs or case.baseline not in logs:
        text = "slower or faster, but neither a trace nor isolated kernels of this arm tell where"
        return MechanismResult(arm, Mechanism.UNDECIDED, None, text, (timed,))
    declared = declared_kernels(recording)
    base, own = np.exp(logs[case.baseline].median()), np.exp(logs[arm].median())
    names = [name for name in base.index if name in own.index and name in declared]
    changes = {name: per_step(declared[name]) * float(own[name] - base[name]) for name in names}
    total = sum(changes.values())
    text = f"isolated kernels explain {units.significant(total)} of {units.significant(delta)} us a step"
    evidence = Evidence(text, recording.name, (arm,), "kernels", NOTEBOOK, total, unit="us")
    if not names or total * delta <= 0 or not EXPLAINS[0] <= total / delta <= EXPLAINS[1]:
        return MechanismResult(
            arm, Mechanism.UNDECIDED, None, text + ": the cost is elsewhere", (timed, evidence)
        )
    worst = max(changes, key=lambda name: changes[name] / total)
    share = changes[worst] / total
    weight = per_step(declared[worst]) / sum(per_step(declared[name]) for name in names)
    if share >= DOMINANT and share > 1.5 * weight:
        text = f"{worst} alone takes {float(own[worst] / base[worst]):.3g} times as long; {text}"
        return MechanismResult(arm, Mechanism.SLOWER_KERNELS, share, text, (timed, evidence))
    text += "; without a trace, longer kernels and longer gaps between them cannot be told apart"
    return MechanismResult(arm, Mechanism.UNDECIDED, share, text, (timed, evidence))


def all_mechanisms(case: Case) -> tuple[MechanismResult, ...]:
    """One entry per timed arm of the device's recordings, the baseline left out."""
    arms = dict.fromkeys(
        str(name)
        for recording in case.recordings
        for name in case.logs(recording, case.metric).columns
        if name != case.baseline
    )
    return tuple(item for name in arms if (item := mechanism(case, name)) is not None)


def plants(case: Case, found: tuple[MechanismResult, ...]) -> tuple[PlantResult, ...]:
    """Whether each planted arm that was measured was seen, and what it was taken for."""
    by_arm = {item.arm: item for item in found}
    results = []
    for arm, kinds in case.spec.plants.items():
        item = by_arm.get(arm)
        if item is None:
            continue
        planted = case.spec.arms[arm].text
        seen = case.compare(arm)
        verdict = seen[0].verdict if seen else Verdict.UNDECIDED
        shown = verdict in (Verdict.SLOWER, Verdict.FASTER)
        named = item.kind.value in kinds
        if not shown:
            text = f"planted ({planted}) and not seen: these data cannot show a difference of this size"
        elif named:
            text = f"planted ({planted}), seen and diagnosed as {item.kind.value.replace('_', ' ')}"
        else:
            text = f"planted ({planted}) and seen, but not diagnosed: {item.text}"
        results.append(PlantResult(arm, planted, shown, item.kind.value, text))
    return tuple(results)


def sensitivity(case: Case) -> bool | None:
    """False where a planted arm was measured and not seen as slower or faster; None where none was measured."""
    states = [
        found[0].verdict in (Verdict.SLOWER, Verdict.FASTER)
        for arm in case.spec.plants
        if (found := case.compare(arm)) is not None
    ]
    return all(states) if states else None


def reconciliations(case: Case, found: tuple[MechanismResult, ...]) -> tuple[Reconciliation, ...]:
    """For every arm with a trace and a verdict: does the trace's difference explain the measured one."""
    base = case.step_figures(case.baseline)
    results = []
    for item in found:
        candidate, timed = case.step_figures(item.arm), case.compare(item.arm)
        if base is None or candidate is None or timed is None:
            continue
        delta = step_delta_us(case, timed[1], item.arm)
        terms = {k: float(v.mean()) for k, v in trace_terms(base[0], candidate[0]).items()}
        gaps, kernels = terms["gaps"], terms["kernels"] + terms["launches"]
        shown = timed[0].verdict in (Verdict.SLOWER, Verdict.FASTER)
        explained = (gaps + kernels) / delta if shown and delta else None
        text = f"measured {units.significant(delta)} us a step; gaps {units.significant(gaps)} us, kernels "
        text += f"{units.significant(kernels)} us"
        text += (
            f": {100 * explained:.0f} % explained" if explained is not None else "; no difference to explain"
        )
        results.append(
            Reconciliation(item.arm, delta, gaps, kernels, explained, delta - gaps - kernels, text)
        )
    return tuple(results)
