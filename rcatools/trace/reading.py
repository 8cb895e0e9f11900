"""What kind of slowdown two traces show: durations, gaps and launches together, in a word and in sentences."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from rcatools.trace.additive import AdditiveFit
from rcatools.trace.boundaries import BoundaryCost
from rcatools.trace.decompose import TERMS, Decomposition
from rcatools.trace.gate import Reason, comparable

LOCAL_SHARE = 0.01  # of the span of a: kernels that changed on their own must carry this much
REST_SHARE = 0.02  # of their own time: the other kernels may have changed by no more
EXTRA_SHARE = 0.02  # of the launches of a: so many more launches are a cost per launch
EXTRA_TIME = 0.005  # of the span of a, for the same


@dataclass(frozen=True)
class Evidence:
    """Everything a reading rests on.

    ``trusted_gaps`` is False when the health of a trace forbids to read its gaps.
    """

    reasons: tuple[Reason, ...]
    parts: Decomposition
    boundaries: BoundaryCost
    fit: AdditiveFit
    span_a_us: float
    launches_a: int
    trusted_gaps: bool

    @property
    def readable(self) -> bool:
        """The traces are comparable and of one device."""
        return comparable(self.reasons) and all(reason.code != "device_differs" for reason in self.reasons)

    @property
    def gaps_changed(self) -> bool:
        """A cost at boundaries was found, may be read, and goes the way the span went.

        Gaps that shrink while the span grows only make room for longer kernels.
        """
        same_way = self.boundaries.total_us * self.parts.total_ns > 0
        return self.trusted_gaps and self.boundaries.changed and same_way

    @property
    def local(self) -> pd.DataFrame:
        """Kernels that changed while the others did not; empty when they carry little or much was replaced."""
        same = self.parts.rows[self.parts.rows["term"] == "slower"]
        rows, rest = same[same["changed"].astype(bool)], same[~same["changed"].astype(bool)]
        terms = self.parts.terms_ns
        unchanged = abs(rest["delta_us"].sum()) <= REST_SHARE * max(rest["total_a_us"].sum(), 1e-9)
        if self.fit.reading not in ("neither", "undecided") or not unchanged:
            return same.iloc[:0]
        if abs(terms["replaced"]) + abs(terms["unaligned"]) > abs(terms["slower"]):
            return same.iloc[:0]
        return rows if abs(rows["delta_us"].sum()) >= LOCAL_SHARE * self.span_a_us else same.iloc[:0]

    @property
    def extra_launches(self) -> int:
        """How many more (or fewer, negative) launches there are, when they are many and cost time; else 0."""
        rows = self.parts.rows
        rows = rows[rows["term"].isin(["new", "gone", "launches"])]
        count = int(rows["count_b"].sum() - rows["count_a"].sum()) if len(rows) else 0
        time = float(rows["delta_us"].sum()) if len(rows) else 0.0
        many = abs(count) >= EXTRA_SHARE * max(self.launches_a, 1)
        return count if many and abs(time) >= EXTRA_TIME * self.span_a_us and count * time > 0 else 0


def read(evidence: Evidence) -> str:
    """ "additive", "multiplicative", "both", "neither" or "undecided".

    A cost at kernel boundaries, and more launches, are fixed costs per kernel. Kernels that changed while the
    others show that there is no common fixed cost are a multiplicative change of those kernels.
    """
    if not evidence.readable:
        return "undecided"
    reading = evidence.fit.reading
    additive = reading in ("additive", "both") or evidence.gaps_changed or evidence.extra_launches != 0
    multiplicative = reading in ("multiplicative", "both") or len(evidence.local) > 0
    if additive or multiplicative:
        return "both" if additive and multiplicative else "additive" if additive else "multiplicative"
    return reading


def statements(evidence: Evidence) -> tuple[str, ...]:
    """The reading and what it rests on, in sentences."""
    parts, fit = evidence.parts, evidence.fit
    out = []
    if not comparable(evidence.reasons):
        first = next(reason for reason in evidence.reasons if reason.blocking)
        out.append(f"Not comparable: {first.text}. The terms below are bookkeeping, not a finding.")
    elif not evidence.readable:
        out.append("The traces come from different devices: what kind of change it is is not read.")
    total, gap = parts.total_ns / 1000, parts.terms_ns["gaps"] / 1000
    out.append(
        f"The span changed by {total:+.3f} us: {total - gap:+.3f} us in durations, {gap:+.3f} us in gaps."
    )
    if parts.total_ns:
        largest = max(TERMS, key=lambda term: abs(parts.terms_ns[term]))
        share = 100 * parts.terms_ns[largest] / parts.total_ns
        out.append(
            f"The largest term is {largest} ({parts.terms_ns[largest] / 1000:+.3f} us, {share:.0f} % of the change)."
        )
    out.append(f"Durations of kernels that both have: {fit.reading} ({fit.why}).")
    out += _local(evidence) if evidence.readable else []
    if evidence.readable and evidence.extra_launches:
        out.append(
            f"b launches {evidence.extra_launches:+d} kernels: a cost per launch, not per microsecond of work."
        )
    out.append(_gaps(evidence))
    if (
        evidence.gaps_changed
        and fit.reading == "neither"
        and not len(evidence.local)
        and abs(gap) > abs(total - gap)
    ):
        out.append(
            "The kernels themselves take as long as before; the change sits between them, which a table of kernel "
            "durations cannot show."
        )
    return tuple(out)


def _local(evidence: Evidence) -> list[str]:
    rows = evidence.local
    if not len(rows):
        return []
    names = ", ".join(dict.fromkeys(rows["role"].astype(str)))
    return [
        f"{len(rows)} kernels ({names}) changed by {rows['delta_us'].sum():+.3f} us in sum while the others did not: no "
        "fixed cost per kernel, but a change of these."
    ]


def _gaps(evidence: Evidence) -> str:
    boundaries = evidence.boundaries
    if boundaries.us_per_boundary is None:
        return f"Gaps: only {boundaries.paired} boundaries correspond, too few to compare."
    if not evidence.trusted_gaps:
        return "Gaps are not read: the health of a trace forbids it."
    where = "inside graph replays" if boundaries.place == "replay" else "between consecutive activities"
    verdict = "changed" if boundaries.changed else "did not change materially"
    low, high = boundaries.ci
    return (
        f"Gaps {where} {verdict}: {boundaries.us_per_boundary:+.3f} us at the median of {boundaries.paired} boundaries "
        f"({100 * boundaries.level:.0f} % interval {low:+.3f} to {high:+.3f})."
    )
