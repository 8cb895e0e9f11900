"""The answer in words, from the records: one sentence, then the sentences that belong to it."""

from __future__ import annotations

from collections.abc import Sequence

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.checks import command
from rcatools.diagnosis.records import (
    ArmEstimate,
    HypothesisResult,
    Noise,
    Observation,
    OpenQuestion,
    PlantResult,
    Status,
)
from rcatools.stats.detection import blocks_needed
from rcatools.stats.records import Verdict

MAIN_GROUP = "cause"


def answer(case: Case, effect: ArmEstimate | None, hypotheses: Sequence[HypothesisResult]) -> str:
    """What stands on this device, in one sentence."""
    if case.primary is None and not set(case.tables) - {case.spec.published}:
        return "Nothing was measured: no recording and no table was given."
    causes = [item for item in hypotheses if item.group == MAIN_GROUP]
    stands = next((item for item in causes if item.status is Status.SUPPORTED), None)
    cause = _stands(case, stands.id) if stands else ""
    if effect is None:
        if case.primary is None:
            return cause[:1].upper() + cause[1:] + "." if cause else "The tables given settle no cause."
        return f"On {case.device_name} the suspect and the baseline were not both measured: no answer."
    noun, suspect = case.spec.effect.noun, case.spec.arms[case.suspect].text
    size = f"{units.change(effect.ratio)} {units.interval(effect.ci_low, effect.ci_high)}"
    if effect.verdict in ("slower", "faster"):
        share = units.percent(abs(effect.ratio - 1)) if effect.ratio else units.NOT_AVAILABLE
        bounds = units.interval(effect.ci_low, effect.ci_high)
        head = f"On {case.device_name}, {noun} is {share} {effect.verdict} {bounds} with {suspect}"
        if stands:
            return f"{head}, because {cause}."
        return f"{head}; its cause is not settled: {_count(causes)}."
    if effect.verdict == "equivalent":
        head = (
            f"On {case.device_name}, {noun} does not change with {suspect}: {size}, "
            f"a change of {units.percent(effect.mde)} would have been seen"
        )
        return f"{head}; {cause}." if stands and not _is_null(case, stands.id) else f"{head}."
    head = (
        f"On {case.device_name} there is no verdict on {noun} with {suspect}: {size}, "
        f"detection limit {units.percent(effect.mde)} ({', '.join(effect.reasons)})"
    )
    return f"{head}; {cause}." if stands else f"{head}."


def _stands(case: Case, name: str) -> str:
    return next(item.stands for item in case.spec.hypotheses if item.id == name)


def _is_null(case: Case, name: str) -> bool:
    return next(item.is_null for item in case.spec.hypotheses if item.id == name)


def _count(causes: Sequence[HypothesisResult]) -> str:
    fallen = sum(item.status is Status.CONTRADICTED for item in causes)
    open_names = [item.title for item in causes if item.status in (Status.UNDECIDED, Status.NOT_TESTED)]
    text = f"{fallen} of {len(causes)} causes are excluded"
    return text + (f", still open: {', '.join(open_names)}" if open_names else "")


def details(
    case: Case,
    hypotheses: Sequence[HypothesisResult],
    open_questions: Sequence[OpenQuestion],
) -> tuple[str, ...]:
    """The sentences about causes, owners and what is open."""
    lines = []
    for item in hypotheses:
        if item.group != MAIN_GROUP and item.status is Status.SUPPORTED:
            lines.append(f"{_sentence(_stands(case, item.id))}: {item.reason}.")
    causes = [item for item in hypotheses if item.group == MAIN_GROUP]
    lines += [text for item in causes if item.status is Status.SUPPORTED for text in _seen_before(case, item)]
    excluded = [item for item in causes if item.status is Status.CONTRADICTED and not _is_null(case, item.id)]
    if excluded:
        lines.append(f"Excluded on {case.device_name}: {', '.join(item.title for item in excluded)}.")
    for item in causes:
        if case.effect is not None and item.status in (Status.UNDECIDED, Status.NOT_TESTED) and item.decide:
            lines.append(
                f"{_sentence(item.title)}: {item.status.value.replace('_', ' ')}. {item.decide.text}."
            )
    found = case.compare(case.suspect)
    if found is not None and found[0].verdict is Verdict.UNDECIDED and found[0].estimate.sd_log is not None:
        blocks = blocks_needed(found[0].estimate.sd_log, case.margin)
        lines.append(
            f"With this spread about {blocks} blocks would show a difference of {units.percent(case.margin)}."
        )
    needs = [item for item in open_questions if item.needs]
    if needs:
        lines.append(f"Open, needs {', '.join(dict.fromkeys(q.needs for q in needs))}: {needs[0].text}")
    return tuple(lines)


def _seen_before(case: Case, item: HypothesisResult) -> list[str]:
    written_after = next(h.written_after for h in case.spec.hypotheses if h.id == item.id)
    seen = [r.name for r in case.recordings if r.manifest.created_utc in written_after]
    if not seen:
        return []
    return [
        f"The predictions of {item.title!r} took their present form after {', '.join(seen)} had been seen: "
        f"its support describes these data, a fresh recording is the test "
        f"(rcatools record {case.spec.slug} --out fresh, then rcatools report {case.spec.slug} --recording fresh)."
    ]


def quality(noise: Noise | None, plants: Sequence[PlantResult]) -> tuple[str, ...]:
    """The sentences about what these data can show at all."""
    lines = [f"Equal arms: {noise.text}."] if noise is not None else []
    if not plants:
        lines.append("No regression was planted in these data: what they could have missed is not proven.")
    seen = [item for item in plants if item.found]
    if plants:
        lines.append(
            f"Planted regressions: {len(seen)} of {len(plants)} seen"
            + ("." if len(seen) == len(plants) else "; no difference proves nothing in these data.")
        )
    return tuple(lines)


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
