"""Published claims against the evidence.

* ``not_attributable``: the number cannot be laid to what it names - its code is in no commit, it was taken under
  other conditions, or the same pattern is seen here without the named cause;
* ``not_testable``: nothing here speaks about it;
* ``not_reproduced``: measured, and the published number lies outside what was seen, without being excluded;
* ``contradicted`` and ``supported``: the evidence decides.

Where a claim was made on another device, agreement or disagreement here is said as such and no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.claims_values import NOT_MEASURED, Judgement, by_value
from rcatools.diagnosis.environment import UNCOMMITTED, differences, here
from rcatools.diagnosis.investigation import (
    ByDeltas,
    ByEffect,
    ByHypothesis,
    ByNothing,
    ByObservation,
    BySpeaksAbout,
    ByValue,
    Claim,
    ClaimTable,
    outcomes_of,
)
from rcatools.diagnosis.means import mean_over_blocks
from rcatools.diagnosis.quantities import rows_of
from rcatools.diagnosis.records import (
    ClaimResult,
    ClaimStatus,
    Difference,
    Evidence,
    HypothesisResult,
    Observation,
    PredictionResult,
    Status,
)
from rcatools.diagnosis.verdicts import holds
from rcatools.diagnosis.vocabulary import Quantity
from rcatools.diagnosis.wording import in_words, said, setting
from rcatools.recording import Recording
from rcatools.stats.records import Verdict
from rcatools.units import counted

MOST_REASONS = 2


def judge_claims(
    case: Case,
    observed: Mapping[str, Observation],
    hypotheses: Mapping[str, HypothesisResult],
) -> tuple[ClaimResult, ...]:
    """Every claim with its status, reasons and the differences of its environment, in declared order."""
    primary = here(case)
    results = []
    for claim in [*case.spec.claims, *(c for t in case.spec.claim_tables for c in claims_of(case, t))]:
        used = _used(case, claim, observed, hypotheses)
        known = here(case, used) if used else primary
        different = differences(claim.environment, known) if known else ()
        status, measured, reasons = _judge(case, claim, observed, hypotheses, different)
        if claim.environment.get("code") == UNCOMMITTED and status in (
            ClaimStatus.SUPPORTED,
            ClaimStatus.CONTRADICTED,
            ClaimStatus.NOT_REPRODUCED,
            ClaimStatus.NOT_TESTABLE,
        ):
            status = ClaimStatus.NOT_ATTRIBUTABLE
            reasons.insert(0, "the measured code is in no commit, so no code state can be held to the number")
        if status in claim.reading:
            reasons.append(claim.reading[status])
        results.append(
            ClaimResult(
                id=claim.id,
                source=claim.source,
                url=claim.url,
                date=claim.date,
                text=claim.text,
                published=claim.published,
                measured=measured,
                status=status,
                reasons=tuple(reasons),
                environment=different,
                pending=claim.pending or None,
            )
        )
    return tuple(results)


def _used(
    case: Case,
    claim: Claim,
    observed: Mapping[str, Observation],
    hypotheses: Mapping[str, HypothesisResult],
) -> Recording | None:
    """The companion that judges the claim, where it is judged on one; None: the recordings of the device."""
    judged = claim.judged
    places: list[Evidence] = []
    if isinstance(judged, ByObservation):
        places = list(observed[judged.observation].outcome.evidence)
    if isinstance(judged, ByHypothesis):
        places = [e for p in hypotheses[judged.hypothesis].predictions for e in p.places]
    names = {item.recording for item in places if item.recording}
    return case.companions.get(names.pop()) if len(names) == 1 else None


def claims_of(case: Case, table: ClaimTable) -> list[Claim]:
    """One claim for every row of a table of published and measured values."""
    frame = rows_of(case.tables, table.table, table.id, {})
    found = []
    for name in frame[table.id].astype(str):

        def cell(column: str, name: str = name) -> Quantity | None:
            return Quantity(table=table.table, column=column, where={table.id: name}) if column else None

        unit = str(frame.loc[frame[table.id].astype(str) == name, table.unit].iloc[0]) if table.unit else ""
        percent = cell(table.tolerance_percent)
        measured = cell(table.measured)
        assert measured is not None
        published = case.quantity(cell(table.published))
        found.append(
            Claim(
                id=name,
                text=f"{name} reaches the published value",
                source=table.source,
                published=f"{units.significant(published, 4)} {unit}".strip(),
                judged=ByValue(
                    measured=measured,
                    published=published,
                    low=cell(table.low),
                    high=cell(table.high),
                    repeats=cell(table.repeats),
                    tolerance=Quantity(ratio=[percent, 100.0]) if percent else table.tolerance,
                    higher_is_better=table.higher_is_better,
                    unit=unit,
                ),
            )
        )
    return found


def _judge(
    case: Case,
    claim: Claim,
    observed: Mapping[str, Observation],
    hypotheses: Mapping[str, HypothesisResult],
    different: tuple[Difference, ...],
) -> Judgement:
    judged = claim.judged
    if isinstance(judged, ByEffect):
        cause = hypotheses[claim.cause] if claim.cause else None
        return _by_effect(case, judged, cause, different)
    if isinstance(judged, ByObservation):
        return _by_observation(judged, observed[judged.observation])
    if isinstance(judged, ByHypothesis):
        return _by_hypothesis(case, hypotheses[judged.hypothesis], different)
    if isinstance(judged, ByDeltas):
        return _by_deltas(case, judged)
    if isinstance(judged, ByNothing):
        return ClaimStatus.NOT_TESTABLE, NOT_MEASURED, [judged.because]
    if isinstance(judged, BySpeaksAbout):
        other = next(item for item in case.spec.claims if item.id == judged.claim)
        return _speaks_about(claim, other, judged)
    return by_value(case, judged)


def _by_effect(
    case: Case,
    judged: ByEffect,
    cause: HypothesisResult | None,
    different: tuple[Difference, ...],
) -> Judgement:
    published = case.quantity(judged.ratio)
    found = case.compare(judged.arm, judged.against)
    if found is None or published is None:
        return ClaimStatus.NOT_TESTABLE, NOT_MEASURED, ["no recording of these arms was given"]
    comparison, recording = found
    e = comparison.estimate
    measured = (
        f"{units.estimate(e.ratio, e.ci_low, e.ci_high)} in time, {counted(e.n, 'block')}, "
        f"{case.device_name} ({recording.name})"
    )
    keys = ", ".join(setting(item.key) for item in different)
    elsewhere = [f"measured under other conditions: {keys}"] if different else []
    if comparison.verdict is Verdict.UNDECIDED:
        return (
            ClaimStatus.NOT_TESTABLE,
            measured,
            [f"no verdict here, detection limit {units.percent(comparison.mde)}", *elsewhere],
        )
    same_way = comparison.verdict is (Verdict.SLOWER if published > 1 else Verdict.FASTER)
    if abs(math.log(published)) <= math.log1p(case.margin):
        same_way = comparison.verdict is Verdict.EQUIVALENT
    if not same_way:
        reason = f"{comparison.verdict.value} here, detection limit {units.percent(comparison.mde)}"
        status = ClaimStatus.NOT_REPRODUCED if different else ClaimStatus.CONTRADICTED
        return status, measured, [reason, *elsewhere]
    sizes = f"{units.change(e.ratio)} in time, published {units.change(published)}"
    if cause is not None and cause.status is Status.CONTRADICTED:
        return (
            ClaimStatus.NOT_ATTRIBUTABLE,
            measured,
            [
                f"the same direction is seen here ({sizes}), without the named cause ({cause.title})",
                *elsewhere,
            ],
        )
    if different:
        return (
            ClaimStatus.NOT_ATTRIBUTABLE,
            measured,
            [
                f"the same is seen here ({sizes}); the published size belongs to its own conditions",
                *elsewhere,
            ],
        )
    low, high = e.ci_low or e.ratio, e.ci_high or e.ratio
    slack = 1 + judged.tolerance
    if low / slack <= published <= high * slack:
        return ClaimStatus.SUPPORTED, measured, ["the published ratio lies within the interval and tolerance"]
    return ClaimStatus.NOT_REPRODUCED, measured, ["same direction, another size"]


def _by_observation(judged: ByObservation, observation: Observation) -> Judgement:
    wanted = outcomes_of(judged.outcomes)
    state = holds(observation.outcome, wanted)
    if state is None:
        return ClaimStatus.NOT_TESTABLE, NOT_MEASURED, [observation.outcome.reason or "not tested"]
    status = ClaimStatus.SUPPORTED if state else ClaimStatus.CONTRADICTED
    return (
        status,
        observation.outcome.observed,
        [f"{observation.text}: the claim needs {in_words(wanted)}"],
    )


def _by_hypothesis(case: Case, hypothesis: HypothesisResult, different: tuple[Difference, ...]) -> Judgement:
    decided = [p for p in hypothesis.predictions if p.holds is not None]
    failed = [p for p in decided if p.necessary and not p.holds]
    telling = failed or [p for p in decided if p.holds and p.distinct_from] or decided
    measured = "; ".join(f"{p.text}: {p.observed}" for p in telling) or NOT_MEASURED
    devices = case.devices_of(e.recording for p in decided for e in p.places)
    scope = [f"seen on {devices}; the claim speaks of another device"] if different else []
    if hypothesis.status is Status.SUPPORTED:
        if different:
            return (
                ClaimStatus.NOT_ATTRIBUTABLE,
                measured,
                ["the cause is seen at work here, on another device than the claim's", *scope],
            )
        return ClaimStatus.SUPPORTED, measured, [hypothesis.reason]
    if hypothesis.status is Status.CONTRADICTED:
        by_numbers = any(p.places and not any(e.recording for e in p.places) for p in failed)
        reason = f"{counted(len(failed), 'thing')} it needs {'is' if len(failed) == 1 else 'are'} not seen: "
        reason += "; ".join(f"{p.text} ({_seen(p)} instead of {p.expected})" for p in failed[:MOST_REASONS])
        if len(failed) > MOST_REASONS:
            reason += f"; {len(failed) - MOST_REASONS} more"
        if different and not by_numbers:
            return ClaimStatus.NOT_REPRODUCED, measured, [f"not at work here: {reason}", *scope]
        anywhere = ["at least one of them by published numbers, whatever the device"] if different else []
        return ClaimStatus.CONTRADICTED, measured, [reason, *anywhere]
    decide = hypothesis.decide.text if hypothesis.decide else ""
    return ClaimStatus.NOT_TESTABLE, measured, [item for item in (hypothesis.reason, decide) if item]


def _seen(prediction: PredictionResult) -> str:
    return said(prediction.outcome) if prediction.outcome else "not tested"


def _by_deltas(case: Case, judged: ByDeltas) -> Judgement:
    rows = rows_of(case.tables, judged.table, judged.column, judged.where)
    deltas = rows[judged.column].astype(float).to_numpy() * judged.scale
    mean = mean_over_blocks(np.log1p(deltas), 0.95)
    if mean is None:
        return ClaimStatus.NOT_TESTABLE, NOT_MEASURED, ["fewer than two published differences"]
    low, high = math.expm1(mean.low), math.expm1(mean.high)
    text = (
        f"published numbers read again: mean {units.signed_percent(math.expm1(mean.value))} "
        f"[{units.signed_percent(low)}, {units.signed_percent(high)}] over {mean.n} cells, largest "
        f"{units.percent(float(np.abs(deltas).max()))}"
    )
    if -judged.margin < low and high < judged.margin:
        return ClaimStatus.SUPPORTED, text, [f"the interval lies within {units.percent(judged.margin)}"]
    if low > 0 or high < 0:
        return ClaimStatus.CONTRADICTED, text, ["the interval excludes no difference"]
    return ClaimStatus.NOT_REPRODUCED, text, [f"the interval is wider than {units.percent(judged.margin)}"]


def _speaks_about(claim: Claim, other: Claim, judged: BySpeaksAbout) -> Judgement:
    keys = tuple(judged.keys)
    different = differences(other.environment, dict(claim.environment), keys)
    if different:
        listed = "; ".join(
            f"{setting(d.key)}: {d.published} there, {d.here or 'not told'} here" for d in different
        )
        about = f"'{other.text}' ({other.source})"
        return (
            ClaimStatus.NOT_ATTRIBUTABLE,
            f"conditions differ from those of {about}: {listed}",
            [f"a measurement under other conditions cannot refute {about}"],
        )
    return (
        ClaimStatus.NOT_TESTABLE,
        "same conditions told",
        ["both stand: only a repeated measurement decides"],
    )
