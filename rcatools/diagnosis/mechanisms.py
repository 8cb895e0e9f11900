"""How each arm differs from the baseline, from what was measured; names and roles of arms are not read.

With traces: where the difference of the step sits - in kernels that only one side has, in the duration of equal
kernels, or in the gaps between them. Without: the isolated kernels can only say whether they explain it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
from rcatools.stats.records import Comparison, Reason, Verdict

DOMINANT = 0.6
EXPLAINS = (0.33, 2.5)
OVERSTATED = 1.1  # of the measured difference
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
    other = Reason.OUTPUTS_DIFFER in comparison.reasons and excludes_one(comparison)
    if comparison.verdict is Verdict.UNDECIDED and not other:
        return MechanismResult(arm, Mechanism.UNDECIDED, None, f"no verdict: {timed.text}", (timed,))
    delta = step_delta_us(case, recording, arm)
    candidate, base = case.step_figures(arm), case.step_figures(case.baseline)
    if candidate is not None and base is not None:
        result = _from_traces(arm, delta, candidate, base[0], timed)
    else:
        result = _without_trace(case, recording, arm, delta, timed)
    text = f"its output is not the baseline's, so this is no verdict on time; {result.text}"
    return replace(result, text=text) if other else result


def excludes_one(comparison: Comparison) -> bool:
    """Whether the interval lies on one side of no difference."""
    low, high = comparison.estimate.ci_low, comparison.estimate.ci_high
    return low is not None and high is not None and not low <= 1 <= high


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
    named = ", ".join(f"{name} {units.duration_us(value)}" for name, value in terms.items())
    text = (
        f"of {units.duration_us(delta)} a step measured, the traces show {units.duration_us(total)}: {named}"
    )
    evidence = Evidence(text, recording.name, (arm,), "trace", NOTEBOOK, total, unit="us", n=figures.steps)
    if total * delta <= 0 or not EXPLAINS[0] <= total / delta <= EXPLAINS[1]:
        text += "; they do not explain what was measured"
        return MechanismResult(arm, Mechanism.UNDECIDED, None, text, (timed, evidence))
    name = max(terms, key=lambda key: terms[key] / total)
    share = terms[name] / total
    if share < DOMINANT:
        return MechanismResult(arm, Mechanism.MIXED, share, text, (timed, evidence))
    detail = _detail(name, base, figures)
    text += _too_much(delta, terms)
    return MechanismResult(arm, _KIND[name], share, f"{detail}; {text}", (timed, evidence))


def _detail(term: str, base: StepFigures, figures: StepFigures) -> str:
    if term == "gaps":
        per = float(trace_terms(base, figures)["gaps"].mean()) / max(base.boundaries, 1.0)
        return f"gaps between kernels are longer, by {units.duration_us(per)} in the mean over {base.boundaries:.0f} of them"
    if term == "launches":
        return f"{figures.kernels - base.kernels:+.0f} kernels a step ({base.kernels:.0f} to {figures.kernels:.0f})"
    changes = {
        name: us - base.by_name[name][1]
        for name, (count, us) in figures.by_name.items()
        if name in base.by_name and base.by_name[name][0] == count
    }
    worst = max(changes, key=lambda key: abs(changes[key]))
    factor = figures.by_name[worst][1] / base.by_name[worst][1]
    return f"kernels themselves take another time, above all {worst}: {factor:.3g} times as long"


def _without_trace(
    case: Case, recording: Recording, arm: str, delta: float, timed: Evidence
) -> MechanismResult:
    """From isolated kernels and the price of a boundary, each measured in every process."""
    declared = declared_kernels(recording)
    launches = sum(per_step(entry) for entry in declared.values())
    price = _boundary_delta(case, recording, arm)
    gaps = None if price is None or not launches else price * launches
    changes = _isolated_changes(case, recording, arm)
    if gaps is None and not changes:
        text = "slower or faster, but neither a trace nor isolated kernels of this arm tell where"
        return MechanismResult(arm, Mechanism.UNDECIDED, None, text, (timed,))
    # kernels timed in a graph of their own pay for their boundaries too
    kernels = sum(changes.values()) - (gaps or 0.0) if changes else 0.0
    parts = {Mechanism.LONGER_GAPS: gaps or 0.0, Mechanism.SLOWER_KERNELS: kernels}
    total = sum(parts.values())
    text = f"of {units.duration_us(delta)} a step, kernels timed alone explain {units.duration_us(kernels)}"
    if gaps is not None:
        text += f" beyond the boundaries' {units.duration_us(gaps)}"
    evidence = Evidence(text, recording.name, (arm,), "kernels", NOTEBOOK, total, unit="us")
    if total * delta <= 0 or not EXPLAINS[0] <= total / delta <= EXPLAINS[1]:
        return MechanismResult(
            arm, Mechanism.UNDECIDED, None, f"{text}: the cost is elsewhere", (timed, evidence)
        )
    kind = max(parts, key=lambda key: parts[key] / total)
    share = parts[kind] / total
    if share < DOMINANT:
        return MechanismResult(arm, Mechanism.MIXED, share, text, (timed, evidence))
    if kind is Mechanism.SLOWER_KERNELS:
        worst = max(changes, key=lambda name: changes[name] / total)
        alone = changes[worst] / sum(changes.values())
        weight = per_step(declared[worst]) / launches
        if gaps is None and not (alone >= DOMINANT and alone > 1.5 * weight):
            text += "; without a trace, longer kernels and longer gaps between them cannot be told apart"
            return MechanismResult(arm, Mechanism.UNDECIDED, share, text, (timed, evidence))
        text = f"{worst} carries {units.share(alone)} of what kernels timed alone take longer; {text}"
    return MechanismResult(arm, kind, share, text, (timed, evidence))


def _isolated_changes(case: Case, recording: Recording, arm: str) -> dict[str, float]:
    """Microseconds a step by which each isolated kernel takes longer than in the baseline."""
    logs = case.kernel_logs(recording)
    if arm not in logs or case.baseline not in logs:
        return {}
    declared = declared_kernels(recording)
    base, own = np.exp(logs[case.baseline].median()), np.exp(logs[arm].median())
    return {
        str(name): per_step(declared[name]) * float(own[name] - base[name])
        for name in base.index
        if name in own.index and name in declared
    }


def _boundary_delta(case: Case, recording: Recording, arm: str) -> float | None:
    """Microseconds by which one kernel boundary costs more than in the baseline, where runs measured it."""
    metric = case.spec.effect.boundary_metric
    if not metric or not {arm, case.baseline} <= set(case.logs(recording, metric).columns):
        return None
    table = np.exp(case.logs(recording, metric)[[arm, case.baseline]].to_numpy())
    value = float(np.nanmedian(table[:, 0] - table[:, 1]))
    return value if np.isfinite(value) else None


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
        results.append(PlantResult(arm, planted, shown, item.kind.value, text, shown and named))
    return tuple(results)


def sensitivity(case: Case) -> bool | None:
    """False where a planted arm was measured and not seen as slower or faster; None where none was measured."""
    states = [
        found[0].verdict in (Verdict.SLOWER, Verdict.FASTER)
        for arm in case.spec.plants
        if (found := case.compare(arm)) is not None
    ]
    return all(states) if states else None


def _too_much(delta: float, terms: Mapping[str, float]) -> str:
    """A clause where added launches look dearer under the profiler than they are without it."""
    total = sum(terms.values())
    if delta <= 0 or total <= OVERSTATED * delta or max(terms, key=lambda name: terms[name]) != "launches":
        return ""
    return f"; with the profiler on, the added launches look dearer than they are, by {units.duration_us(total - delta)} a step"


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
        gaps, kernels, launches = terms["gaps"], terms["kernels"], terms["launches"]
        total = gaps + kernels + launches
        shown = timed[0].verdict in (Verdict.SLOWER, Verdict.FASTER)
        explained = total / delta if shown and delta else None
        text = f"measured {units.duration_us(delta)} a step; traced: gaps {units.duration_us(gaps)}, kernels "
        text += units.duration_us(kernels)
        text += f", launches {units.duration_us(launches)}" if launches else ""
        if explained is None:
            text += "; no difference to explain"
        else:
            text += f"; the trace shows {units.share(explained)} of it{_too_much(delta, terms)}"
        results.append(
            Reconciliation(item.arm, delta, gaps, kernels, explained, delta - total, text, launches)
        )
    return tuple(results)
