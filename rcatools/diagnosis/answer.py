"""The answer in words, from the records: one sentence, then the sentences that belong to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rcatools import units
from rcatools.diagnosis.cards import other_cards
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.checks import command
from rcatools.diagnosis.records import (
    ArmEstimate,
    HypothesisResult,
    Observation,
    OpenQuestion,
    PlantResult,
    Status,
)
from rcatools.diagnosis.remarks import figures, filled, moved, remarks
from rcatools.diagnosis.rows import timed_arms
from rcatools.diagnosis.wording import reasons
from rcatools.stats.decide import MIN_REPLICATES
from rcatools.stats.detection import blocks_needed
from rcatools.stats.records import Reason, Verdict
from rcatools.units import counted

MAIN_GROUP = "cause"
FEW = 2  # predictions whose figures are told instead of counted
_PLACE = re.compile(r"\{(\w+)\}")
_ASIDE = re.compile(r" \([^(){}]*\{(\w+)(?::time)?\}[^(){}]*\)")


def answer(
    case: Case,
    effect: ArmEstimate | None,
    hypotheses: Sequence[HypothesisResult],
    observed: Mapping[str, Observation],
) -> str:
    """What stands on this device, in one sentence."""
    if case.primary is None and not set(case.tables) - {case.spec.published}:
        return "Nothing was measured: no recording and no table was given."
    causes = [item for item in hypotheses if item.group == MAIN_GROUP]
    stands = next((item for item in causes if item.status is Status.SUPPORTED), None)
    cause = _stands(case, stands.id, observed) if stands else ""
    if effect is None:
        if case.primary is None:
            return cause[:1].upper() + cause[1:] + "." if cause else "The tables given settle no cause."
        return f"On {case.device_name} the suspect and the baseline were not both measured: no answer."
    noun, suspect = with_parameters(case, case.spec.effect.noun), case.spec.arms[case.suspect].text
    size = units.estimate(effect.ratio, effect.ci_low, effect.ci_high)
    if effect.verdict in ("slower", "faster"):
        head = f"On {case.device_name}, {noun} {moved(size, effect.verdict)}{_beside(case, observed)} with {suspect}"
        if stands and (waits := _waits(stands)):
            return f"{head}. So far the data support that {cause}; not tested: {'; '.join(waits)}."
        if stands:
            return f"{head}, because {cause}."
        return f"{head}; its cause is not settled: {_count(causes)}."
    if effect.verdict == "equivalent":
        there = "interval_excludes_one" in effect.reasons
        change = (
            f"changes by less than the margin of {units.percent(case.margin)}" if there else "does not change"
        )
        head = (
            f"On {case.device_name}, {noun} {change} with {suspect}: {size}, "
            f"a change of {units.percent(effect.mde)} would have been seen"
        )
        return f"{head}; {cause}." if stands and not _is_null(case, stands.id) else f"{head}."
    head = (
        f"On {case.device_name} there is no verdict on {noun} with {suspect}: {size}, "
        f"detection limit {units.percent(effect.mde)} ({reasons(effect.reasons)})"
    )
    return f"{head}; {cause}." if stands else f"{head}."


def _beside(case: Case, observed: Mapping[str, Observation]) -> str:
    """Ratios that stand beside the headline figure, such as that of the whole call; empty where none was measured."""
    told = []
    for name, text in case.spec.effect.beside.items():
        for item in observed[name].outcome.evidence[:1]:
            told.append(f"{text}: {units.estimate(item.value, item.ci_low, item.ci_high)}")
    return f" ({'; '.join(told)})" if told else ""


def _waits(stands: HypothesisResult) -> list[str]:
    """Necessary predictions of a cause that no data speak about: it is not isolated while there are some."""
    return [item.text for item in stands.predictions if item.necessary and item.outcome is None]


def with_parameters(case: Case, text: str) -> str:
    """The text with ``{name}`` replaced by a workload parameter, or a fact that all timed runs share."""
    if case.primary is None:
        return text
    parameters = case.primary.manifest.workload.get("parameters")
    known = {str(k): str(v) for k, v in parameters.items()} if isinstance(parameters, Mapping) else {}
    runs = case.primary.timed_runs()
    for name in _PLACE.findall(text):
        if name not in known and name in runs.columns and runs[name].dropna().nunique() == 1:
            known[name] = str(runs[name].dropna().iloc[0])
    return _PLACE.sub(lambda match: known.get(match.group(1), match.group(1)), text)


def _stands(case: Case, name: str, observed: Mapping[str, Observation]) -> str:
    text = next(item.stands for item in case.spec.hypotheses if item.id == name)
    return filled(_ASIDE.sub(lambda match: _measured(match, observed), text), observed)


def _measured(aside: re.Match[str], observed: Mapping[str, Observation]) -> str:
    """An aside with a figure, or nothing where that was not measured."""
    return aside.group() if observed[aside.group(1)].outcome.evidence else ""


def _is_null(case: Case, name: str) -> bool:
    return next(item.is_null for item in case.spec.hypotheses if item.id == name)


def _count(causes: Sequence[HypothesisResult]) -> str:
    fallen = sum(item.status is Status.CONTRADICTED for item in causes)
    open_names = [item.title for item in causes if item.status in (Status.UNDECIDED, Status.NOT_TESTED)]
    text = f"{fallen} of {len(causes)} causes are excluded"
    return text + (f", still open: {', '.join(open_names)}" if open_names else "")


def details(
    case: Case,
    observed: Mapping[str, Observation],
    hypotheses: Sequence[HypothesisResult],
    open_questions: Sequence[OpenQuestion],
) -> tuple[str, ...]:
    """The sentences about causes, owners and what is open."""
    causes = [item for item in hypotheses if item.group == MAIN_GROUP]
    lines = [case.spec.effect.scope] if case.spec.effect.scope and case.effect is not None else []
    excluded = [item for item in causes if item.status is Status.CONTRADICTED and not _is_null(case, item.id)]
    if excluded:
        lines.append(f"Excluded on {case.device_name}: {', '.join(item.title for item in excluded)}.")
    lines += remarks(case.spec.hypotheses, hypotheses, observed)
    for item in hypotheses:
        if item.group != MAIN_GROUP and item.status is Status.SUPPORTED:
            text = _sentence(_stands(case, item.id, observed))
            lines.append(f"{text}." if has_figures(case, item.id) else f"{text} ({_held(item, observed)}).")
    lines += [text for item in causes if item.status is Status.SUPPORTED for text in _foreseen(case, item)]
    for item in causes:
        if case.effect is not None and item.status in (Status.UNDECIDED, Status.NOT_TESTED) and item.decide:
            lines.append(
                f"{_sentence(item.title)}: {item.status.value.replace('_', ' ')}. {item.decide.text}."
            )
    needs = [item for item in open_questions if item.needs]
    if needs:
        lines.append(f"Open, needs {', '.join(dict.fromkeys(q.needs for q in needs))}: {needs[0].text}")
    found = case.compare(case.suspect)
    if found is not None and found[0].verdict is Verdict.UNDECIDED and found[0].estimate.sd_log is not None:
        blocks = blocks_needed(found[0].estimate.sd_log, case.margin)
        lines.append(
            f"With this spread about {blocks} blocks would show a difference of {units.percent(case.margin)}."
        )
    return (*lines, *other_cards(case), *not_judged(case))


def has_figures(case: Case, name: str) -> bool:
    """Whether what a hypothesis says where it stands names observations itself."""
    return "{" in next(item.stands for item in case.spec.hypotheses if item.id == name)


def _held(item: HypothesisResult, observed: Mapping[str, Observation]) -> str:
    """The figures of its predictions where they are few, or how many hold, with the devices they were seen on."""
    tested = [p for p in item.predictions if p.holds is not None]
    if len(tested) <= FEW:
        return "; ".join(figures(observed[p.observation]) for p in tested)
    held = sum(1 for p in tested if p.holds)
    devices = dict.fromkeys(e.device for p in tested for e in p.places if e.device)
    text = f"{held} of {counted(len(tested), 'tested prediction')} {'holds' if held == 1 else 'hold'}"
    return ", ".join([text, *devices])


def not_judged(case: Case) -> list[str]:
    """Arms that were measured and carry no verdict on time: too few blocks, or outputs that differ."""
    few, other = [], []
    for name in timed_arms(case):
        found = case.compare(name)
        if found is None:
            continue
        comparison, e = found[0], found[0].estimate
        if Reason.OUTPUTS_DIFFER in comparison.reasons:
            other.append(f"{name} ({units.estimate(e.ratio, e.ci_low, e.ci_high)}): {comparison.warnings[0]}")
        elif e.n < MIN_REPLICATES:
            few.append(f"{name} {units.change(e.ratio)} ({counted(e.n, 'block')})")
    lines = []
    if few:
        lines.append(
            f"Measured in too few blocks for a verdict ({MIN_REPLICATES} are needed): {', '.join(few)}."
        )
    if other:
        lines.append(f"Measured, but not judged on time: {'; '.join(other)}.")
    return lines


def _foreseen(case: Case, item: HypothesisResult) -> list[str]:
    """Whether the predictions stood before the recordings were made: a test, or a description of what was seen."""
    written_after = next(h.written_after for h in case.spec.hypotheses if h.id == item.id)
    if not written_after:
        return []
    seen = [r.name for r in case.recordings if r.manifest.created_utc in written_after]
    fresh = [r for r in case.recordings if r.manifest.created_utc > max(written_after)]
    old = [r.name for r in case.recordings if r.name not in seen and r not in fresh]
    lines = []
    made = " and ".join(f"{r.name} ({r.manifest.created_utc[:16].replace('T', ' ')} UTC)" for r in fresh)
    test = f"{made} {'was' if len(fresh) == 1 else 'were'} recorded after that: {'this is' if len(fresh) == 1 else 'these are'} the test of the predicted outcomes"
    if seen:
        known = f"The predictions of '{item.title}' took their present form after {' and '.join(seen)} had been seen"
        lines.append(
            f"{known}; {test}."
            if fresh
            else f"{known}: its support describes these data, a fresh recording is the test "
            f"(rcatools record {case.spec.slug} --out fresh, then rcatools report {case.spec.slug} --recording fresh)."
        )
    elif fresh:
        lines.append(
            f"The predictions of '{item.title}' took their present form after other recordings had been seen; {test}."
        )
    if old:
        lines.append(
            f"{' and '.join(old)} is older than the predictions of '{item.title}' and may have been known when they "
            f"were written: no test of them."
        )
    return lines


def quality(plants: Sequence[PlantResult]) -> tuple[str, ...]:
    """The sentences about what these data cannot show; where all is well, the figures stand for themselves."""
    if not plants:
        return ("No regression was planted in these data: what they could have missed is not proven.",)
    seen = sum(1 for item in plants if item.found)
    if seen < len(plants):
        return (
            f"Planted regressions: {seen} of {len(plants)} seen; no difference proves nothing in these data.",
        )
    return ()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def open_questions(
    case: Case, observed: Sequence[Observation], hypotheses: Sequence[HypothesisResult]
) -> tuple[OpenQuestion, ...]:
    """Declared questions that this device cannot answer, and observations that a hypothesis still waits for."""
    names = {"rocm": "an AMD card with ROCm", "cuda": "an NVIDIA card", "gpu": "a GPU"}
    found = [
        OpenQuestion(item.text, item.run, names.get(item.needs, item.needs))
        for item in case.spec.open
        if not item.needs or item.needs != case.backend
    ]
    waited = {p.observation for h in hypotheses for p in h.predictions if p.holds is None}
    missing: dict[str, list[Observation]] = {}
    for item in observed:
        if item.id in waited and item.outcome.name is None and item.run:
            missing.setdefault(case.spec.observations[item.id].needs, []).append(item)
    for needs, items in missing.items():
        checks = [case.spec.observations[item.id] for item in items]
        text = "Predictions wait for: " + "; ".join(item.text for item in items)
        found.append(OpenQuestion(text, command(case, checks, "open"), names.get(needs, "")))
    return tuple(found)
