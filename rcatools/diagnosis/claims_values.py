"""A published value against a measured one."""

from __future__ import annotations

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.investigation import ByValue
from rcatools.diagnosis.records import ClaimStatus

Judgement = tuple[ClaimStatus, str, list[str]]
NOT_MEASURED = "not measured here"


def by_value(case: Case, judged: ByValue) -> Judgement:
    measured = case.quantity(judged.measured)
    if measured is None:
        return ClaimStatus.NOT_TESTABLE, NOT_MEASURED, ["no measurement of it is given"]
    repeats = case.quantity(judged.repeats)
    count = f", {repeats:.0f} runs" if repeats is not None else ""
    unit = f" {judged.unit}" if judged.unit else ""
    shown = f"{units.significant(measured, 4)}{unit}"
    single = ["one run: no spread is known"] if repeats is not None and repeats < 2 else []
    if judged.at_least is not None:
        enough = measured >= judged.at_least
        status = ClaimStatus.SUPPORTED if enough else ClaimStatus.CONTRADICTED
        reason = f"{'at least' if enough else 'below'} {units.significant(judged.at_least, 3)}{unit}"
        return status, shown + count, [reason, *single]
    published = case.quantity(judged.published)
    if published is None or published == 0:
        return ClaimStatus.NOT_TESTABLE, shown + count, ["no published number is given"]
    status, text, reasons = _against_published(case, judged, measured, published, shown + count)
    return status, text, [*reasons, *single]


def _against_published(
    case: Case, judged: ByValue, measured: float, published: float, shown: str
) -> Judgement:
    drift = measured / published - 1
    tolerance = case.quantity(judged.tolerance) or 0.0
    low, high = case.quantity(judged.low), case.quantity(judged.high)
    better = drift > 0 if judged.higher_is_better else drift < 0
    reasons = [
        f"drift {units.signed_percent(drift)} ({'better' if better else 'worse'} than published)",
    ]
    apart = False
    if low is not None and high is not None:
        apart = not low <= published <= high
        spread = units.percent((high - low) / measured)
        side = "outside" if apart else "inside"
        reasons.append(f"the published value lies {side} the measured range (spread {spread})")
    if abs(drift) > tolerance and not better:
        reasons.append(f"beyond the tolerance of {units.percent(tolerance)}")
        return ClaimStatus.CONTRADICTED, shown, reasons
    if better and abs(drift) > 0:
        return ClaimStatus.SUPPORTED, shown, [*reasons, "reached and exceeded"]
    if apart:
        reasons.append("within the tolerance, which is not a confirmation")
        return ClaimStatus.NOT_REPRODUCED, shown, reasons
    return ClaimStatus.SUPPORTED, shown, [*reasons, f"within the tolerance of {units.percent(tolerance)}"]
