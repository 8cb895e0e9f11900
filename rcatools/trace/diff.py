"""The difference of two traces: comparability, exact terms, gaps, and what kind of slowdown it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from rcatools.errors import InputError
from rcatools.trace.additive import AdditiveFit, fit_additive
from rcatools.trace.align import Alignment, align
from rcatools.trace.boundaries import BoundaryCost, boundary_cost
from rcatools.trace.decompose import TERMS, Decomposition, decompose
from rcatools.trace.gate import Reason, comparable, gate
from rcatools.trace.health import health
from rcatools.trace.intervals import extent
from rcatools.trace.model import Trace
from rcatools.trace.records import records
from rcatools.trace.summary import Coverage, coverage


@dataclass(frozen=True)
class TraceDiff:
    """What ``rcatools trace diff`` says.

    Attributes:
        comparable: nothing in ``reasons`` blocks reading the difference.
        reasons: differences of device, workload, types, counts and health.
        decomposition: the terms, the kernel rows and the roles.
        boundaries: cost per kernel boundary.
        fit: additive and multiplicative part over the launches of kernels that both have.
        reading: "additive", "multiplicative", "both", "neither" or "undecided", durations and gaps together;
            always "undecided" when the traces are not comparable or come from different devices.
        statements: the same in sentences.
        coverage_a, coverage_b: what part of the kernels is linked, graph-launched, aligned.
        spans_us: first start to last end of a and of b.
    """

    comparable: bool
    reasons: tuple[Reason, ...]
    decomposition: Decomposition
    boundaries: BoundaryCost
    fit: AdditiveFit
    reading: str
    statements: tuple[str, ...]
    coverage_a: Coverage
    coverage_b: Coverage
    spans_us: tuple[float, float]
    aligned_share: tuple[float, float]

    @property
    def total_delta_us(self) -> float:
        """Span of b minus span of a."""
        return self.decomposition.total_ns / 1000

    @property
    def terms(self) -> dict[str, float]:
        """Microseconds by term; they add up to ``total_delta_us``."""
        return {f"{term}_us": self.decomposition.terms_ns[term] / 1000 for term in TERMS}

    @property
    def kernels(self) -> pd.DataFrame:
        """Rows of ``Decomposition.rows``."""
        return self.decomposition.rows

    def to_json(self) -> dict[str, Any]:
        """The form of the command line."""
        return {
            "comparable": self.comparable,
            "reasons": [reason.to_json() for reason in self.reasons],
            "total_delta_us": self.total_delta_us,
            "span_a_us": self.spans_us[0],
            "span_b_us": self.spans_us[1],
            "terms": self.terms,
            "gaps": self.boundaries.to_json(),
            **self.fit.to_json(),
            "reading": self.reading,
            "statements": list(self.statements),
            "kernels": records(self.kernels),
            "roles": records(self.decomposition.roles),
            "coverage_a": {**vars(self.coverage_a), "aligned_share": self.aligned_share[0]},
            "coverage_b": {**vars(self.coverage_b), "aligned_share": self.aligned_share[1]},
        }


def diff(a: Trace, b: Trace) -> TraceDiff:
    """Compare trace ``b`` (candidate) with trace ``a`` (baseline).

    The terms are exact whatever the traces are; the reading is given only when they are comparable.

    Raises:
        InputError: one of them holds no GPU activity.
    """
    for trace in (a, b):
        if not len(trace.kernels):
            raise InputError(
                f"{trace.label}: no GPU activity, so there is nothing to compare; profile the GPU too"
            )
    alignment = align(a, b)
    decomposition = decompose(a, b, alignment)
    times = [int(trace.kernels["dur_ns"].sum()) / 1000 for trace in (a, b)]
    share = (
        decomposition.aligned_us_a / times[0] if times[0] else 1.0,
        decomposition.aligned_us_b / times[1] if times[1] else 1.0,
    )
    reasons = gate(a, b, share)
    spans = tuple(extent(t.kernels["start_ns"], t.kernels["dur_ns"]) / 1000 for t in (a, b))
    boundaries = boundary_cost(a, b, alignment, spans[0])
    fit = _fit(a, b, alignment)
    trusted = not any({"gaps", "everything"} & set(health(trace).blocks) for trace in (a, b))
    readable = comparable(reasons) and not any(reason.code == "device_differs" for reason in reasons)
    reading = _reading(fit, boundaries, trusted) if readable else "undecided"
    return TraceDiff(
        comparable=comparable(reasons),
        reasons=reasons,
        decomposition=decomposition,
        boundaries=boundaries,
        fit=fit,
        reading=reading,
        statements=_statements(reasons, decomposition, boundaries, fit, trusted),
        coverage_a=coverage(a),
        coverage_b=coverage(b),
        spans_us=(spans[0], spans[1]),
        aligned_share=share,
    )


def _fit(a: Trace, b: Trace, alignment: Alignment) -> AdditiveFit:
    """Fit over aligned kernels of the same name; their signature is name, grid, operation and shapes."""
    left, right = a.kernels.iloc[alignment.pairs["a"]], b.kernels.iloc[alignment.pairs["b"]]
    same = (left["full_name"].astype(object).to_numpy() == right["full_name"].astype(object).to_numpy()) & (
        left["kind"].astype(object).to_numpy() == "kernel"
    )
    rows = left[same]
    signature = (
        rows.groupby(["full_name", "grid", "op", "shapes"], observed=True, sort=False).ngroup().to_numpy()
    )
    return fit_additive(rows["dur_us"], right["dur_us"].to_numpy()[same], signature)


def _reading(fit: AdditiveFit, boundaries: BoundaryCost, trusted: bool) -> str:
    """Durations and gaps together: a cost at boundaries is a fixed cost per kernel."""
    if not (trusted and boundaries.changed):
        return fit.reading
    return {"multiplicative": "both", "neither": "additive", "undecided": "additive"}.get(
        fit.reading, fit.reading
    )


def _statements(
    reasons: tuple[Reason, ...],
    parts: Decomposition,
    boundaries: BoundaryCost,
    fit: AdditiveFit,
    trusted: bool,
) -> tuple[str, ...]:
    out = []
    if not comparable(reasons):
        first = next(reason for reason in reasons if reason.blocking)
        out.append(f"Not comparable: {first.text}. The terms below are bookkeeping, not a finding.")
    total, gap = parts.total_ns / 1000, parts.terms_ns["gaps"] / 1000
    durations = total - gap
    out.append(
        f"The span changed by {total:+.3f} us: {durations:+.3f} us in durations, {gap:+.3f} us in gaps."
    )
    if total:
        largest = max((term for term in TERMS), key=lambda term: abs(parts.terms_ns[term]))
        share = 100 * parts.terms_ns[largest] / parts.total_ns
        out.append(
            f"The largest term is {largest} ({parts.terms_ns[largest] / 1000:+.3f} us, {share:.0f} % of the change)."
        )
    out.append(f"Durations of kernels that both have: {fit.reading} ({fit.why}).")
    if boundaries.us_per_boundary is None:
        out.append(f"Gaps: only {boundaries.paired} boundaries correspond, too few to compare.")
    elif not trusted:
        out.append("Gaps are not read: the health of a trace forbids it.")
    else:
        where = "inside graph replays" if boundaries.place == "replay" else "between consecutive activities"
        low, high = boundaries.ci
        verdict = "changed" if boundaries.changed else "did not change materially"
        out.append(
            f"Gaps {where} {verdict}: {boundaries.us_per_boundary:+.3f} us at the median of {boundaries.paired} boundaries "
            f"({100 * boundaries.level:.0f} % interval {low:+.3f} to {high:+.3f})."
        )
        if boundaries.changed and fit.reading == "neither" and abs(gap) > abs(durations):
            out.append(
                "The kernels themselves take as long as before; the change sits between them, which a table of kernel "
                "durations cannot show."
            )
    return tuple(out)
