"""The difference of two traces: comparability, exact terms, gaps, and what kind of slowdown it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rcatools.errors import InputError
from rcatools.trace.additive import AdditiveFit, fit_additive
from rcatools.trace.align import Alignment, align
from rcatools.trace.boundaries import BoundaryCost, boundary_cost
from rcatools.trace.bounds import Ceilings
from rcatools.trace.decompose import TERMS, Decomposition, decompose
from rcatools.trace.gate import Reason, comparable, gate
from rcatools.trace.health import health
from rcatools.trace.intervals import extent
from rcatools.trace.model import Trace
from rcatools.trace.reading import Evidence, read, statements
from rcatools.trace.records import records
from rcatools.trace.roles import roles
from rcatools.trace.summary import Coverage, coverage, kernel_table


@dataclass(frozen=True)
class TraceDiff:
    """What ``rcatools trace diff`` says.

    Attributes:
        comparable: nothing in ``reasons`` blocks reading the difference.
        reasons: differences of device, workload, types, counts and health.
        decomposition: the terms, the kernel rows and the roles.
        boundaries: cost per kernel boundary.
        fit: additive and multiplicative part over the launches of kernels that both have.
        classes: the same per role and, with ceilings, per bound: by, class, launches, total_a_us, total_b_us,
            ratio_of_sums, us_per_kernel, ratio with their bounds, reading, why.
        pairs: the aligned launches of the same kernel the fit was made of: name, device, role, signature, dur_a and
            dur_b in microseconds.
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
    classes: pd.DataFrame
    pairs: pd.DataFrame
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
            "classes": records(self.classes),
            "kernels": records(self.kernels),
            "roles": records(self.decomposition.roles),
            "coverage_a": {**vars(self.coverage_a), "aligned_share": self.aligned_share[0]},
            "coverage_b": {**vars(self.coverage_b), "aligned_share": self.aligned_share[1]},
        }


def diff(a: Trace, b: Trace, ceilings: Ceilings | None = None) -> TraceDiff:
    """Compare trace ``b`` (candidate) with trace ``a`` (baseline).

    ``ceilings`` of the device let the fit be made per bound class too.

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
    parts = decompose(a, b, alignment)
    times = [int(trace.kernels["dur_ns"].sum()) / 1000 for trace in (a, b)]
    share = (
        parts.aligned_us_a / times[0] if times[0] else 1.0,
        parts.aligned_us_b / times[1] if times[1] else 1.0,
    )
    span_a, span_b = (extent(t.kernels["start_ns"], t.kernels["dur_ns"]) / 1000 for t in (a, b))
    pairs = _same_kernels(a, b, alignment)
    healths = (health(a), health(b))
    evidence = Evidence(
        reasons=gate(a, b, share, healths),
        parts=parts,
        boundaries=boundary_cost(a, b, alignment, span_a),
        fit=fit_additive(pairs["dur_a"], pairs["dur_b"], pairs["signature"]),
        span_a_us=span_a,
        launches_a=len(a.kernels),
        trusted_gaps=not any({"gaps", "everything"} & set(checked.blocks) for checked in healths),
    )
    return TraceDiff(
        comparable=comparable(evidence.reasons),
        reasons=evidence.reasons,
        decomposition=parts,
        boundaries=evidence.boundaries,
        fit=evidence.fit,
        classes=_by_class(a, pairs, ceilings),
        pairs=pairs,
        reading=read(evidence),
        statements=statements(evidence),
        coverage_a=coverage(a),
        coverage_b=coverage(b),
        spans_us=(span_a, span_b),
        aligned_share=share,
    )


def _same_kernels(a: Trace, b: Trace, alignment: Alignment) -> pd.DataFrame:
    """Aligned launches of the same kernel: durations, role, name and a number per name, grid, operation and shapes."""
    left, right = a.kernels.iloc[alignment.pairs["a"]], b.kernels.iloc[alignment.pairs["b"]]
    same = (left["full_name"].astype(object).to_numpy() == right["full_name"].astype(object).to_numpy()) & (
        left["kind"].astype(object).to_numpy() == "kernel"
    )
    rows = left[same]
    signature = rows.groupby(["full_name", "grid", "op", "shapes"], observed=True, sort=False).ngroup()
    return pd.DataFrame(
        {
            "name": rows["name"].astype(object).to_numpy(),
            "device": rows["device"].to_numpy(),
            "role": np.asarray(roles(rows), dtype=object),
            "signature": signature.to_numpy(),
            "dur_a": rows["dur_us"].to_numpy(),
            "dur_b": right["dur_us"].to_numpy()[same],
        }
    )


def _by_class(a: Trace, pairs: pd.DataFrame, ceilings: Ceilings | None) -> pd.DataFrame:
    """The fit per role and, when ceilings are given, per bound."""
    columns = {"role": pairs["role"]}
    if ceilings is not None:
        table = kernel_table(a, ceilings)
        bound = dict(zip(zip(table["name"], table["device"], strict=True), table["bound"], strict=True))
        columns["bound"] = pd.Series(
            [bound.get(key, "cannot_tell") for key in zip(pairs["name"], pairs["device"], strict=True)],
            dtype=object,
        )
    out = []
    for sort, column in columns.items():
        for label, rows in pairs.groupby(column.to_numpy(dtype=object), sort=True):
            fit = fit_additive(rows["dur_a"], rows["dur_b"], rows["signature"])
            total_a, total_b = float(rows["dur_a"].sum()), float(rows["dur_b"].sum())
            out.append(
                {
                    "by": sort,
                    "class": str(label),
                    "launches": len(rows),
                    "total_a_us": total_a,
                    "total_b_us": total_b,
                    "ratio_of_sums": total_b / total_a if total_a else float("nan"),
                    "us_per_kernel": fit.us_per_kernel,
                    "us_low": fit.us_ci[0],
                    "us_high": fit.us_ci[1],
                    "ratio": fit.ratio,
                    "ratio_low": fit.ratio_ci[0],
                    "ratio_high": fit.ratio_ci[1],
                    "reading": fit.reading,
                    "why": fit.why,
                }
            )
    return pd.DataFrame(out)
