"""May two traces be compared at all? Asked before any difference is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rcatools.trace.health import Health, health
from rcatools.trace.model import Trace
from rcatools.trace.roles import roles

SAME_WORKLOAD = 0.9  # common part of (operation, shapes) launches that shows two traces run the same work
OTHER_WORKLOAD = 0.5  # below this they do not
MIN_SHAPES = 0.5  # part of the kernels whose shapes must be recorded for either statement
COUNT_TOLERANCE = 0.25
WELL_ALIGNED = 0.8  # of each side's time: above, more launches are a finding and no obstacle
MIN_ALIGNED = 0.5  # of each side's time: below, the terms say too little


@dataclass(frozen=True)
class Reason:
    """One difference between the traces; ``blocking`` ones make them not comparable."""

    code: str
    text: str
    blocking: bool

    def to_json(self) -> dict[str, Any]:
        """The form of the command line."""
        return vars(self)


def gate(
    a: Trace,
    b: Trace,
    aligned_share: tuple[float, float] | None = None,
    healths: tuple[Health, Health] | None = None,
) -> tuple[Reason, ...]:
    """Reasons against comparing two traces, blocking ones first; empty when nothing speaks against it.

    Args:
        a: baseline.
        b: candidate.
        aligned_share: part of each side's time that was aligned, once known.
        healths: of a and of b; looked at here when not given.
    """
    healths = healths or (health(a), health(b))
    workload = _workload(a, b)
    reasons = [
        *_health(healths),
        *workload.reasons,
        *_devices(a, b, workload.shown),
        *_types(a, b),
        *_counts(a, b, aligned_share),
        *_clocks(healths),
    ]
    if aligned_share is not None and min(aligned_share) < MIN_ALIGNED:
        text = (
            f"only {100 * aligned_share[0]:.0f} % of the time of a and {100 * aligned_share[1]:.0f} % of b could be "
            f"aligned (floor {100 * MIN_ALIGNED:.0f} %): the terms describe the rest only as new or gone"
        )
        reasons.append(Reason("low_coverage", text, True))
    return tuple(sorted(reasons, key=lambda reason: not reason.blocking))


def comparable(reasons: tuple[Reason, ...]) -> bool:
    """Nothing blocks the comparison."""
    return not any(reason.blocking for reason in reasons)


@dataclass(frozen=True)
class _Workload:
    shown: bool
    reasons: list[Reason]


def _health(healths: tuple[Health, Health]) -> list[Reason]:
    out = []
    for side, checked in zip("ab", healths, strict=True):
        blocking = [block for block in checked.blocks if block in {"everything", "durations", "totals"}]
        noted = [block for block in checked.blocks if block in {"idle", "gaps", "per_step"}]
        for finding in checked.findings:
            if set(finding.blocks) & set(blocking):
                out.append(Reason(f"health_{finding.code}", f"trace {side}: {finding.text}", True))
            elif set(finding.blocks) & set(noted):
                out.append(Reason(f"health_{finding.code}", f"trace {side}: {finding.text}", False))
    return out


def _workload(a: Trace, b: Trace) -> _Workload:
    """Whether both ran the same work, by recorded shapes or else by roles."""
    sides = [trace.only_kernels() for trace in (a, b)]
    if not all(len(side) for side in sides):
        return _Workload(False, [])
    recorded = min(float((side["shapes"].astype(object) != "").mean()) for side in sides)
    if recorded >= MIN_SHAPES:
        known = [side[side["shapes"].astype(object) != ""] for side in sides]
        common = _common_share(*(side[["op", "shapes"]].astype(str) for side in known))
        if common < OTHER_WORKLOAD:
            text = (
                f"operations and shapes agree for {100 * common:.0f} % of the launches only: another workload"
            )
            return _Workload(False, [Reason("shapes_differ", text, True)])
        if common < SAME_WORKLOAD:
            text = f"operations and shapes agree for {100 * common:.0f} % of the launches"
            return _Workload(False, [Reason("shapes_partly_differ", text, False)])
        return _Workload(True, [])
    by_role = _common_share(
        *(pd.DataFrame({"role": np.asarray(roles(side), dtype=object)}) for side in sides)
    )
    reasons = []
    if by_role < OTHER_WORKLOAD:
        text = f"roles agree for {100 * by_role:.0f} % of the launches only: another workload"
        reasons.append(Reason("workload_differs", text, True))
    else:
        text = "input shapes are not recorded in both traces: that they ran the same work is not shown"
        reasons.append(Reason("shapes_unknown", text, False))
    return _Workload(False, reasons)


def _common_share(a: pd.DataFrame, b: pd.DataFrame) -> float:
    """Rows that both have (with multiplicity) over the larger number of rows."""
    counts = [side.value_counts() for side in (a, b)]
    both = counts[0].to_frame("a").join(counts[1].to_frame("b"), how="inner").min(axis=1)
    return float(both.sum()) / max(len(a), len(b), 1)


def _devices(a: Trace, b: Trace, same_workload: bool) -> list[Reason]:
    names = [sorted({name for name in trace.devices.values() if name}) for trace in (a, b)]
    out = []
    if names[0] and names[1] and names[0] != names[1]:
        between = f"{', '.join(names[0])} against {', '.join(names[1])}"
        if same_workload:
            text = f"different devices ({between}) ran the same operations and shapes: deltas are between devices"
            out.append(Reason("device_differs", text, False))
        else:
            text = f"different devices ({between}), and it is not shown that they ran the same work"
            out.append(Reason("device_differs", text, True))
    elif not (names[0] and names[1]):
        out.append(Reason("device_unknown", "not both traces name their device", False))
    if len(a.devices) != len(b.devices):
        text = f"{len(a.devices)} against {len(b.devices)} devices in the trace"
        out.append(Reason("device_count_differs", text, True))
    backends = [trace.meta.get("backend") for trace in (a, b)]
    if None not in backends and backends[0] != backends[1] and not same_workload:
        out.append(Reason("backend_differs", f"{backends[0]} against {backends[1]}", True))
    return out


def _types(a: Trace, b: Trace) -> list[Reason]:
    """The number type that most of the matrix-product time works in."""
    main = [_main_type(trace) for trace in (a, b)]
    if None in main or main[0] == main[1]:
        return []
    return [Reason("dtype_differs", f"matrix products work in {main[0]} against {main[1]}", True)]


_TYPE_NAMES = {"c10::BFloat16": "bfloat16", "c10::Half": "float16", "float": "float32", "double": "float64"}


def _main_type(trace: Trace) -> str | None:
    kernels = trace.only_kernels()
    rows = kernels[np.asarray(roles(kernels), dtype=object) == "matmul"]
    rows = rows[rows["dtypes"].astype(object) != ""]
    if rows.empty:
        return None
    first = rows["dtypes"].astype(str).str.extract(r'"([^"]+)"', expand=False)
    time = rows.groupby(first)["dur_ns"].sum()
    if time.empty or time.max() < 0.5 * int(rows["dur_ns"].sum()):
        return None
    name = str(time.idxmax())
    return _TYPE_NAMES.get(name, name)


def _counts(a: Trace, b: Trace, aligned_share: tuple[float, float] | None) -> list[Reason]:
    out = []
    if len(a.steps) != len(b.steps):
        out.append(Reason("steps_differ", f"{len(a.steps)} against {len(b.steps)} annotated steps", True))
    replays = [trace.kernels.loc[trace.kernels["graph"], "correlation"].nunique() for trace in (a, b)]
    if replays[0] != replays[1]:
        blocking = min(replays) > 0
        text = f"{replays[0]} against {replays[1]} graph replays"
        out.append(Reason("replays_differ", text, blocking))
    counts = [len(trace.only_kernels()) for trace in (a, b)]
    if min(counts) and abs(counts[0] - counts[1]) > COUNT_TOLERANCE * max(counts):
        text = f"{counts[0]} against {counts[1]} kernels"
        explained = aligned_share is not None and min(aligned_share) >= WELL_ALIGNED
        out.append(Reason("kernel_counts_differ", text, not explained))
    return out


def _clocks(healths: tuple[Health, Health]) -> list[Reason]:
    """Traces hold no clock rates; a uniform scaling of every kernel is what a clock difference looks like."""
    coarse = [any(f.code == "microsecond_clock" for f in checked.findings) for checked in healths]
    if coarse[0] != coarse[1]:
        return [
            Reason("clock_resolution_differs", "only one trace has times finer than a microsecond", False)
        ]
    return []
