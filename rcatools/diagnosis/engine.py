"""From an investigation and its evidence to a diagnosis."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from rcatools.diagnosis import answer, environment, mechanisms, provenance, rows
from rcatools.diagnosis.boundary import boundary, marked
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.checks import observe_all
from rcatools.diagnosis.claims import judge_claims
from rcatools.diagnosis.investigation import Investigation
from rcatools.diagnosis.records import Diagnosis, HypothesisResult
from rcatools.diagnosis.steps import StepFigures
from rcatools.diagnosis.verdicts import judge_hypotheses, judge_links
from rcatools.errors import InputError
from rcatools.recording import Recording
from rcatools.recording.capacity import confounds


def judge(
    investigation: Investigation,
    recordings: Sequence[Recording],
    tables: Mapping[str, pd.DataFrame] | None = None,
    *,
    margin: float | None = None,
    without: Collection[str] = (),
    companions: Sequence[Recording] = (),
) -> Diagnosis:
    """Judge an investigation from its evidence; the same input gives the same diagnosis.

    Args:
        investigation: what ``loading.load_investigation`` read.
        recordings: recordings in order of weight. The first decides the device; others of the same device add
            arms; those of another device are listed and not mixed in.
        tables: tables by the names that the investigation declares, beside or instead of its own.
        margin: another margin than the one declared before the first run; the diagnosis says so.
        without: arms to judge without, to see what rests on them.
        companions: recordings of further workloads that the investigation names; each is judged within itself.

    Raises:
        InputError: a table lacks a row, column or number that the investigation names, or the margin is not
            between 0 and 1.
    """
    if margin is not None and not 0 < margin < 1:
        raise InputError(f"the margin must lie between 0 and 1 (0.01 = 1 %), got {margin}")
    kept = [without_arms(recording, without) for recording in recordings] if without else recordings
    return diagnose(Case(investigation, kept, tables, margin=margin, companions=companions))


def without_arms(recording: Recording, names: Collection[str]) -> Recording:
    """The recording as if these arms had not been run."""

    def rest(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[~frame["arm"].isin(list(names))]

    return replace(
        recording,
        runs=rest(recording.runs),
        samples=rest(recording.samples),
        kernels=rest(recording.kernels),
        snapshots={arm: path for arm, path in recording.snapshots.items() if arm not in names},
        traces={arm: path for arm, path in recording.traces.items() if arm not in names},
        warnings=(*recording.warnings, f"judged without {', '.join(sorted(names))}"),
    )


def judge_causes(
    investigation: Investigation,
    recordings: Sequence[Recording],
    steps: Mapping[tuple[str, str], StepFigures] | None = None,
) -> tuple[HypothesisResult, ...]:
    """Only the hypotheses, with figures of traces given instead of read (by recording path and arm)."""
    case = Case(investigation, recordings, steps=steps)
    return judge_hypotheses(investigation, observe_all(case, mechanisms.sensitivity(case)))


def diagnose(case: Case) -> Diagnosis:
    """The diagnosis of a case."""
    spec, investigation = case.spec, case.investigation
    sensitive = mechanisms.sensitivity(case)
    observed = observe_all(case, sensitive)
    links, ends_at, chain = judge_links(spec.links, observed)
    hypotheses = (*provenance.between_recordings(case), *judge_hypotheses(investigation, observed))
    how = mechanisms.all_mechanisms(case)
    planted = mechanisms.plants(case, how)
    kernels = rows.kernels(case)
    price = boundary(case, kernels)
    found = case.compare(case.suspect)
    effect = rows.estimate_of(case, *found, case.metric) if found else None
    open_questions = answer.open_questions(case, list(observed.values()), hypotheses)
    return Diagnosis(
        investigation=spec.slug,
        title=spec.title,
        question=" ".join(spec.question.split()),
        answer=answer.answer(case, effect, hypotheses, observed),
        details=(
            *([chain] if chain else []),
            *answer.details(case, observed, hypotheses, open_questions),
            *answer.quality(planted),
        ),
        effect=effect,
        noise=rows.noise(case),
        sensitive=sensitive,
        links=links,
        chain_ends_at=ends_at,
        chain_text=chain,
        observations=tuple(observed.values()),
        hypotheses=hypotheses,
        claims=judge_claims(case, observed, {item.id: item for item in hypotheses}),
        fixes=rows.fixes(case),
        arms=rows.arm_estimates(case),
        mechanisms=how,
        plants=planted,
        kernels=marked(kernels, price, case),
        boundary=price,
        reconcile=mechanisms.reconciliations(case, how),
        published=rows.published(case),
        open=open_questions,
        environment=environment.document(case),
        reproduce=spec.reproduce or f"rcatools report {spec.slug}",
        warnings=_warnings(case),
    )


def _warnings(case: Case) -> tuple[str, ...]:
    found = [text for recording in case.recordings for text in recording.warnings]
    found += case.warnings
    for recording in case.recordings:
        failed = recording.timed_runs()
        failed = failed[failed["outcome"] != "ok"]
        if len(failed):
            kinds = ", ".join(f"{n} {kind}" for kind, n in failed["outcome"].value_counts().items())
            found.append(f"{recording.name}: runs without a result are left out and counted: {kinds}")
        declared = recording.manifest.margin
        if declared != case.margin:
            found.append(
                f"{recording.name} declared a margin of {declared:g} before its first run; this verdict uses {case.margin:g}"
            )
        if str(recording.manifest.workload.get("name", "")).startswith("vllm"):
            found += [item.text for item in confounds(recording.timed_runs(), case.baseline)]
        unknown = sorted(set(recording.manifest.arm_names) - set(case.spec.arms))
        if unknown:
            found.append(f"{recording.name} has arms the investigation does not know: {', '.join(unknown)}")
    found += environment.warnings(case)
    found += [
        f"{recording.name} was made {why} and is not part of this verdict" for recording, why in case.others
    ]
    return tuple(dict.fromkeys(found))
