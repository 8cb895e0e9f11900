"""What a diagnosis says: frozen records, and their JSON form in ``Diagnosis.document()``.

The JSON document is verdict.json. Times are microseconds, sizes bytes, ratios candidate / baseline of TIME
(1.20 = 20 % slower), numbers finite or null. Every field:

    investigation    slug                         title            one line
    question         the question as declared     answer           one sentence: what stands on this device
    details          sentences that belong to the answer, in reading order (device, effect, cause, limits)
    effect           headline: the suspect against the baseline, an *estimate* (below) or null
    noise            A/A: {arms, ratio, ci_low, ci_high, floor, detectable, n, verdict, text} or null
    sensitive        true where every planted regression was seen; false where one was missed;
                     null where none was planted. While false, no "no difference" may contradict anything.
    links            the causal chain: [{id, text, verdict, reason, as_cause, evidence: [evidence...]}]
                     verdict: shown, not_shown, undecided, not_tested;
                     as_cause: false from the first link on that is not shown
    chain            {ends_at: link id or null, text}
    observations     every check that was asked for, once: [{id, text, check, outcome, definite, observed,
                     detection_limit, evidence: [evidence...], reason, run}]; outcome null = not tested;
                     definite: the outcome may hold or fail a prediction; run: the command that would answer it
    hypotheses       [{id, title, group, mechanism, source, status, reason, decide, predictions: [...]}]
                     status: supported, contradicted, undecided, not_tested
                     decide: {run, text} - the one run that would settle it - or null
                     predictions: [{text, expected, observed, holds, evidence, observation, necessary,
                     distinct_from, places, outcome}]; holds: true, false, null (not tested); evidence: the place as
                     one text; distinct_from: ids of the rivals that expect another outcome; outcome: as above
    claims           [{id, source, url, date, text, published, measured, status, reasons, environment, pending}]
                     status: supported, contradicted, not_reproduced, not_attributable, not_testable
                     environment: [{key, published, here}] only where they differ; pending: a command or null
    fixes            [{arm, role, summary, ratio, ci_low, ci_high, mde, n, verdict, reasons, recovered,
                     memory_bytes, memory_delta_bytes, kv_delta_bytes, live_bytes, correct, output,
                     output_rel_error, best, text}]
                     ratio against the baseline; recovered: share of the suspect's effect that is gone;
                     memory_bytes: allocator bytes reserved when decode starts; live_bytes: live bytes left under
                     the profiling stream; correct: output right (true, false, null unknown); output: identical (bit
                     for bit the baseline's), within_tolerance (other bits), mismatch or not_checked
    arms             every arm against the baseline: [estimate + {role, summary, recording, live_bytes}]
    mechanisms       how each arm differs from the baseline, from measurement alone (its name and role are not
                     read): [{arm, kind, share, text, evidence}]; kind: none, more_kernels, slower_kernels,
                     longer_gaps, mixed, undecided
    plants           [{arm, planted, found, diagnosed, text, named}]
    kernels          kernels timed alone, suspect against baseline: [{kernel, bound, per_step, base_us, delta_us,
                     ratio, ci_low, ci_high, mde, share (of the step), verdict, ceiling (part of the measured rate)}]
    boundary         price of one kernel boundary: {base_us, delta_us, ci_low_us, ci_high_us, n, gap_us, recording,
                     sentences: what it says about the kernels timed alone} or null
    reconcile        [{arm, measured_us, gaps_us, kernels_us, launches_us, explained, unexplained_us, text}]: does the trace's
                     difference explain the measured difference of the step
    published        numbers from elsewhere, never mixed with ours: [{id, source, url, label, value, unit, note}]
    open             what was not tested: [{text, run, needs}]
    environment      {device, backend, arch, driver, torch, ..., recordings: [{name, state, created_utc, blocks,
                     runs_ok, runs_failed, command, git, sessions: [{processes, commit}], files}],
                     tables: [{name, devices, rows, sha256, made_by, made_utc, torch, python, os, source_sha256,
                     commit}]: tables of things met on a device; null where the table does not tell}
    reproduce        one command
    warnings         [text]

    estimate         {arm, against, metric, ratio, ci_low, ci_high, n, mde, p_value, verdict, reasons, warnings}
    evidence         {text, recording, arms, source, notebook, value, ci_low, ci_high, unit, n, detection_limit}
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rcatools.diagnosis.parts import (
    ArmEstimate,
    Boundary,
    Difference,
    Evidence,
    FixResult,
    KernelResult,
    Mechanism,
    MechanismResult,
    Noise,
    OpenQuestion,
    Outcome,
    PlantResult,
    PublishedNumber,
    Reconciliation,
)

__all__ = [
    "ArmEstimate",
    "Boundary",
    "ClaimResult",
    "ClaimStatus",
    "Decide",
    "Diagnosis",
    "Difference",
    "Evidence",
    "FixResult",
    "HypothesisResult",
    "KernelResult",
    "LinkResult",
    "LinkVerdict",
    "Mechanism",
    "MechanismResult",
    "Noise",
    "Observation",
    "OpenQuestion",
    "Outcome",
    "PlantResult",
    "PredictionResult",
    "PublishedNumber",
    "Reconciliation",
    "Status",
    "to_json",
]


class LinkVerdict(StrEnum):
    """Whether a link of the chain was seen."""

    SHOWN = "shown"
    NOT_SHOWN = "not_shown"
    UNDECIDED = "undecided"
    NOT_TESTED = "not_tested"


class Status(StrEnum):
    """What the evidence does to a hypothesis."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"
    NOT_TESTED = "not_tested"


class ClaimStatus(StrEnum):
    """What the evidence does to a published claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    NOT_REPRODUCED = "not_reproduced"
    NOT_ATTRIBUTABLE = "not_attributable"
    NOT_TESTABLE = "not_testable"


@dataclass(frozen=True)
class Observation:
    """A declared check with its outcome and the command that would answer it."""

    id: str
    text: str
    check: str
    outcome: Outcome
    run: str


@dataclass(frozen=True)
class LinkResult:
    """One link of the chain; ``as_cause`` is false from the first link on that was not shown."""

    id: str
    text: str
    verdict: LinkVerdict
    reason: str
    evidence: tuple[Evidence, ...]
    as_cause: bool


@dataclass(frozen=True)
class PredictionResult:
    """What a hypothesis expects of an observation, and what was seen."""

    observation: str
    text: str
    expected: str
    observed: str
    holds: bool | None
    necessary: bool
    distinct_from: tuple[str, ...]
    places: tuple[Evidence, ...]
    reason: str = ""
    outcome: str | None = None

    @property
    def evidence(self) -> str:
        """Every place of the evidence as one text, or why there is none."""
        places = list(dict.fromkeys(item.place for item in self.places if item.place))
        return "; ".join(places) or self.reason or "not tested"


@dataclass(frozen=True)
class Decide:
    """The run that would settle a hypothesis, and what its outcomes would mean."""

    run: str
    text: str


@dataclass(frozen=True)
class HypothesisResult:
    """A hypothesis, judged."""

    id: str
    title: str
    group: str
    mechanism: str
    source: str
    status: Status
    reason: str
    predictions: tuple[PredictionResult, ...]
    decide: Decide | None = None


@dataclass(frozen=True)
class ClaimResult:
    """A published claim, judged."""

    id: str
    source: str
    url: str
    date: str
    text: str
    published: str
    measured: str
    status: ClaimStatus
    reasons: tuple[str, ...]
    environment: tuple[Difference, ...] = ()
    pending: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """Everything the workbook says about one investigation; see the module docstring for each field."""

    investigation: str
    title: str
    question: str
    answer: str
    details: tuple[str, ...]
    effect: ArmEstimate | None
    noise: Noise | None
    sensitive: bool | None
    links: tuple[LinkResult, ...]
    chain_ends_at: str | None
    chain_text: str
    observations: tuple[Observation, ...]
    hypotheses: tuple[HypothesisResult, ...]
    claims: tuple[ClaimResult, ...]
    fixes: tuple[FixResult, ...]
    arms: tuple[ArmEstimate, ...]
    mechanisms: tuple[MechanismResult, ...]
    plants: tuple[PlantResult, ...]
    kernels: tuple[KernelResult, ...]
    reconcile: tuple[Reconciliation, ...]
    published: tuple[PublishedNumber, ...]
    open: tuple[OpenQuestion, ...]
    environment: dict[str, Any]
    reproduce: str
    warnings: tuple[str, ...] = field(default=())
    boundary: Boundary | None = None

    def hypothesis(self, name: str) -> HypothesisResult:
        """The hypothesis with that id; KeyError where there is none."""
        for item in self.hypotheses:
            if item.id == name:
                return item
        raise KeyError(name)

    def document(self) -> dict[str, Any]:
        """verdict.json: plain JSON values, finite numbers or null."""
        plain: dict[str, Any] = to_json(self)
        plain["chain"] = {"ends_at": plain.pop("chain_ends_at"), "text": plain.pop("chain_text")}
        plain["observations"] = [
            {
                "id": item.id,
                "text": item.text,
                "check": item.check,
                "outcome": item.outcome.name,
                **{
                    key: to_json(getattr(item.outcome, key))
                    for key in ("definite", "observed", "detection_limit", "evidence", "reason")
                },
                "run": item.run,
            }
            for item in self.observations
        ]
        for target, source in zip(plain["hypotheses"], self.hypotheses, strict=True):
            for prediction, result in zip(target["predictions"], source.predictions, strict=True):
                prediction["evidence"] = result.evidence
        return plain


def to_json(value: Any) -> Any:
    """Records, enums, tuples and numbers as plain JSON values; numbers that are not finite become None."""
    if isinstance(value, StrEnum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_json(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if hasattr(value, "item"):
        return to_json(value.item())
    return str(value)
