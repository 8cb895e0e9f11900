"""The difference of two spans split into terms that add up to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from rcatools.stats.multiplicity import false_discovery
from rcatools.trace.align import BASES, CONFIDENCE, Alignment
from rcatools.trace.intervals import extent
from rcatools.trace.model import Trace
from rcatools.trace.roles import roles
from rcatools.trace.signed_rank import signed_rank_p

Ints = npt.NDArray[np.int64]
TERMS = ("slower", "launches", "replaced", "new", "gone", "unaligned", "gaps")
MIN_PAIRS = 6  # the smallest two-sided exact signed-rank p-value is 0.031 with six pairs
MIN_EFFECT = 0.02
FALSE_DISCOVERY = 0.05


@dataclass(frozen=True)
class Decomposition:
    """Delta = sum of the terms.

    Attributes:
        total_ns: span of b minus span of a.
        terms_ns: nanoseconds by term. ``slower``: the same kernel at the same place takes longer (negative:
            less long). ``replaced``: another kernel of the same role stands at the same place. ``launches``:
            a kernel that both have is launched more or less often. ``new``, ``gone``: a kernel that only b, only
            a has. ``unaligned``: kernels that both launch equally often, but in another order. ``gaps``: idle
            time between activities, minus their overlap.
        rows: one per (term, name_a, name_b, role): counts, totals and means of both sides, delta_us, ratio of the
            time per call, basis and confidence of the alignment, p and q (Benjamini-Hochberg) of the paired
            signed-rank test over the launches of these two traces, ``changed`` (q and effect size).
        roles: one per role: counts and totals of both sides, delta_us.
        aligned_us_a, aligned_us_b: time of aligned activities.
    """

    total_ns: int
    terms_ns: dict[str, int]
    rows: pd.DataFrame
    roles: pd.DataFrame
    aligned_us_a: float
    aligned_us_b: float


def decompose(a: Trace, b: Trace, alignment: Alignment) -> Decomposition:
    """Split the difference of two aligned traces."""
    left, right = _side(a), _side(b)
    pairs = alignment.pairs
    paired = pd.DataFrame(
        {
            "name_a": left["name"].to_numpy()[pairs["a"]],
            "name_b": right["name"].to_numpy()[pairs["b"]],
            "same": left["full_name"].to_numpy()[pairs["a"]] == right["full_name"].to_numpy()[pairs["b"]],
            "role": left["role"].to_numpy()[pairs["a"]],
            "dur_a": left["dur_ns"].to_numpy()[pairs["a"]],
            "dur_b": right["dur_ns"].to_numpy()[pairs["b"]],
            "basis": pairs["basis"].to_numpy(),
        }
    )
    paired["term"] = np.where(paired["same"], "slower", "replaced")
    parts = [_pair_rows(paired), _single_rows(left, right, alignment)]
    rows = (
        pd.concat([part for part in parts if len(part)], ignore_index=True)
        if any(map(len, parts))
        else parts[0]
    )
    terms = {
        term: int(rows.loc[rows["term"] == term, "delta_ns"].sum()) if len(rows) else 0 for term in TERMS
    }
    span_a, span_b = (extent(t.kernels["start_ns"], t.kernels["dur_ns"]) for t in (a, b))
    time_a, time_b = int(left["dur_ns"].sum()), int(right["dur_ns"].sum())
    terms["gaps"] = (span_b - time_b) - (span_a - time_a)
    total = span_b - span_a
    assert sum(terms.values()) == total, "the terms must add up"
    return Decomposition(
        total_ns=total,
        terms_ns=terms,
        rows=_tested(rows),
        roles=_by_role(left, right),
        aligned_us_a=int(paired["dur_a"].sum()) / 1000,
        aligned_us_b=int(paired["dur_b"].sum()) / 1000,
    )


def _side(trace: Trace) -> pd.DataFrame:
    table = trace.kernels
    return pd.DataFrame(
        {
            "name": table["name"].astype(object),
            "full_name": table["full_name"].astype(object),
            "role": np.asarray(roles(table), dtype=object),
            "dur_ns": table["dur_ns"].to_numpy(),
        }
    )


_COLUMNS = ("term", "name_a", "name_b", "role", "count_a", "count_b", "total_a_ns", "total_b_ns", "delta_ns",
            "ratio", "basis", "confidence", "p_value")  # fmt: skip


def _pair_rows(paired: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (term, name_a, name_b, role), group in paired.groupby(
        ["term", "name_a", "name_b", "role"], sort=False
    ):
        dur_a, dur_b = group["dur_a"].to_numpy(), group["dur_b"].to_numpy()
        total_a, total_b = int(dur_a.sum()), int(dur_b.sum())
        weakest = int(group["basis"].max())
        rows.append(
            (term, name_a, name_b, role, len(group), len(group), total_a, total_b, total_b - total_a,
             _ratio(dur_a, dur_b), BASES[weakest], CONFIDENCE[BASES[weakest]], _signed_rank(dur_a, dur_b))
        )  # fmt: skip
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _ratio(dur_a: Ints, dur_b: Ints) -> float:
    """Median of b over a for launches with time on both sides; NaN when there is none."""
    good = (dur_a > 0) & (dur_b > 0)
    return float(np.median(dur_b[good] / dur_a[good])) if good.any() else float("nan")


def _signed_rank(dur_a: Ints, dur_b: Ints) -> float:
    good = (dur_a > 0) & (dur_b > 0)
    if good.sum() < MIN_PAIRS:
        return float("nan")
    return signed_rank_p(np.log(dur_b[good] / dur_a[good]))


def _single_rows(left: pd.DataFrame, right: pd.DataFrame, alignment: Alignment) -> pd.DataFrame:
    """Rows for activities without a partner, by what their name's counts say about them."""
    lone_a, lone_b = left.iloc[alignment.only_a], right.iloc[alignment.only_b]
    names_a, names_b = set(left["full_name"]), set(right["full_name"])
    groups_a = dict(list(lone_a.groupby(["full_name", "role"], sort=False)))
    groups_b = dict(list(lone_b.groupby(["full_name", "role"], sort=False)))
    nothing = left.iloc[:0]
    rows = []
    for key in dict.fromkeys([*groups_a, *groups_b]):
        one, two = groups_a.get(key, nothing), groups_b.get(key, nothing)
        name, role = (one if len(one) else two)["name"].iloc[0], key[1]
        if key[0] not in names_a or key[0] not in names_b:
            rows.append(_row("new" if len(two) else "gone", name, role, one, two))
            continue
        moved = min(len(one), len(two))
        if moved:
            rows.append(_row("unaligned", name, role, one.iloc[:moved], two.iloc[:moved]))
        if len(one) != len(two):
            rows.append(_row("launches", name, role, one.iloc[moved:], two.iloc[moved:]))
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _row(term: str, name: object, role: object, one: pd.DataFrame, two: pd.DataFrame) -> tuple[object, ...]:
    total_a, total_b = int(one["dur_ns"].sum()), int(two["dur_ns"].sum())
    nan = float("nan")
    return (
        term, name if len(one) else None, name if len(two) else None, role, len(one), len(two), total_a, total_b,
        total_b - total_a, nan, None, nan, nan,
    )  # fmt: skip


def _tested(rows: pd.DataFrame) -> pd.DataFrame:
    """Times in microseconds, q-values over the tested rows, largest deltas first."""
    out = rows.copy()
    for column in ("total_a", "total_b", "delta"):
        out[f"{column}_us"] = out.pop(f"{column}_ns").astype(np.int64) / 1000
    p = out.pop("p_value").to_numpy(dtype=float)
    q = false_discovery(p)
    large = np.abs(np.log(np.where(out["ratio"] > 0, out["ratio"], 1.0).astype(float))) >= np.log1p(
        MIN_EFFECT
    )
    out["p_value"], out["q_value"] = p, q
    out["changed"] = (q <= FALSE_DISCOVERY) & large
    order = np.argsort(-np.abs(out["delta_us"].to_numpy(dtype=float)), kind="stable")
    return out.iloc[order].reset_index(drop=True)


def _by_role(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    sums = [
        side.groupby("role")["dur_ns"].agg(["count", "sum"]).add_suffix(suffix)
        for side, suffix in ((left, "_a"), (right, "_b"))
    ]
    out = sums[0].join(sums[1], how="outer").fillna(0).astype(np.int64).reset_index()
    frame = pd.DataFrame(
        {
            "role": out["role"],
            "count_a": out["count_a"],
            "count_b": out["count_b"],
            "total_a_us": out["sum_a"] / 1000,
            "total_b_us": out["sum_b"] / 1000,
            "delta_us": (out["sum_b"] - out["sum_a"]) / 1000,
        }
    )
    order = np.argsort(-np.abs(frame["delta_us"].to_numpy()), kind="stable")
    return frame.iloc[order].reset_index(drop=True)
