"""The difference of two traces as terms that add up exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from rcatools.trace.gaps import gaps
from rcatools.trace.intervals import extent
from rcatools.trace.model import Trace
from rcatools.trace.summary import Coverage, coverage


@dataclass(frozen=True)
class TraceDiff:
    """What ``rcatools trace diff`` says; see ``to_json`` for the document."""

    comparable: bool
    reasons: tuple[dict[str, Any], ...]
    total_delta_us: float
    terms: dict[str, float]
    gaps: dict[str, Any]
    additive: dict[str, Any]
    multiplicative: dict[str, Any]
    reading: str
    kernels: pd.DataFrame
    coverage_a: Coverage
    coverage_b: Coverage

    def to_json(self) -> dict[str, Any]:
        """The form of the command line."""
        return {
            "comparable": self.comparable,
            "reasons": list(self.reasons),
            "total_delta_us": self.total_delta_us,
            "terms": self.terms,
            "gaps": self.gaps,
            "additive": self.additive,
            "multiplicative": self.multiplicative,
            "reading": self.reading,
            "kernels": self.kernels.to_dict("records"),
            "coverage_a": vars(self.coverage_a),
            "coverage_b": vars(self.coverage_b),
        }


def diff(a: Trace, b: Trace) -> TraceDiff:
    """Compare trace ``b`` (candidate) with trace ``a`` (baseline)."""
    time_a, time_b = int(a.kernels["dur_ns"].sum()), int(b.kernels["dur_ns"].sum())
    span_a, span_b = (extent(t.kernels["start_ns"], t.kernels["dur_ns"]) for t in (a, b))
    terms = dict.fromkeys(("slower_us", "launches_us", "replaced_us", "new_us", "gone_us"), 0.0)
    terms["unaligned_us"] = (time_b - time_a) / 1000
    terms["gaps_us"] = ((span_b - time_b) - (span_a - time_a)) / 1000
    return TraceDiff(
        comparable=True,
        reasons=(),
        total_delta_us=(span_b - span_a) / 1000,
        terms=terms,
        gaps={
            "a": gaps(a).statistics(),
            "b": gaps(b).statistics(),
            "us_per_boundary": None,
            "ci": [None, None],
        },
        additive={"us_per_kernel": None, "ci": [None, None]},
        multiplicative={"ratio": None, "ci": [None, None]},
        reading="undecided",
        kernels=pd.DataFrame(),
        coverage_a=coverage(a),
        coverage_b=coverage(b),
    )
