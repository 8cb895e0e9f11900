"""Kernel table, busy time, streams and coverage of one trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rcatools.trace.bounds import Ceilings, bound_of, kernel_work
from rcatools.trace.health import Health, health
from rcatools.trace.intervals import Ints, extent, union_length
from rcatools.trace.model import Trace, TraceWarning, distinct_rows
from rcatools.trace.records import records
from rcatools.trace.roles import role_of
from rcatools.trace.work import Work


@dataclass(frozen=True)
class DeviceTime:
    """Time of one device in microseconds.

    ``busy_us`` is the union of kernels, copies and sets; ``idle_us`` is the rest of the span, or None when the
    trace's health forbids to speak of idle time.
    """

    device: int
    name: str | None
    kernels: int
    kernel_us: float
    busy_us: float
    span_us: float
    idle_us: float | None


@dataclass(frozen=True)
class Coverage:
    """What part of the kernels a statement about launches can speak about."""

    kernels: int
    kernel_us: float
    linked: int
    linked_us: float
    unlinked: int
    unlinked_us: float
    graph: int
    graph_us: float
    dropped_events: int


@dataclass(frozen=True)
class Summary:
    """Everything ``rcatools trace summary`` says.

    ``kernels`` has one row per (name, device) by falling total: name, device, count, total_us, mean_us,
    median_us, p95_us, min_us, max_us, share (of the kernel time of all devices), role, bound, bound_basis.
    """

    format: str
    devices: tuple[DeviceTime, ...]
    streams: pd.DataFrame
    coverage: Coverage
    kernels: pd.DataFrame
    warnings: tuple[TraceWarning, ...]

    def to_json(self) -> dict[str, Any]:
        """The form of the command line."""
        return {
            "format": self.format,
            "devices": [vars(device) for device in self.devices],
            "streams": records(self.streams),
            "coverage": vars(self.coverage),
            "kernels": records(self.kernels),
            "warnings": [warning.to_json() for warning in self.warnings],
        }


def summarize(
    trace: Trace, ceilings: Ceilings | None = None, declared: Mapping[str, Work] | None = None
) -> Summary:
    """Summarise one trace; empty tables when it holds no GPU activity.

    Args:
        trace: the trace.
        ceilings: of its device, for the bounds.
        declared: work of one launch by a part of the kernel's name, for the bounds.
    """
    table = trace.kernels
    checked = health(trace)
    idle_known = not {"idle", "everything"} & set(checked.blocks)
    devices = []
    for device, rows in table.groupby("device", sort=True):
        kernels = rows[rows["kind"] == "kernel"]
        busy = union_length(rows["start_ns"], rows["dur_ns"])
        span = extent(rows["start_ns"], rows["dur_ns"])
        number = int(str(device))
        devices.append(
            DeviceTime(
                device=number,
                name=trace.devices.get(number),
                kernels=len(kernels),
                kernel_us=int(kernels["dur_ns"].sum()) / 1000,
                busy_us=busy / 1000,
                span_us=span / 1000,
                idle_us=(span - busy) / 1000 if idle_known else None,
            )
        )
    return Summary(
        format=trace.format,
        devices=tuple(devices),
        streams=stream_table(table),
        coverage=coverage(trace),
        kernels=kernel_table(trace, ceilings, declared),
        warnings=_warnings(trace, checked, ceilings),
    )


def _warnings(trace: Trace, checked: Health, ceilings: Ceilings | None) -> tuple[TraceWarning, ...]:
    """The reader's warnings, what health adds to them, and ceilings that cannot be right."""
    known = {warning.code for warning in trace.warnings}
    added = [TraceWarning(f.code, f.text, f.count) for f in checked.findings if f.code not in known]
    wrong = [TraceWarning("ceilings", problem) for problem in (ceilings.problems() if ceilings else ())]
    return (*trace.warnings, *added, *wrong)


def coverage(trace: Trace) -> Coverage:
    """Counts and times of linked, unlinked and graph-launched kernels."""
    kernels = trace.only_kernels()
    duration = kernels["dur_ns"].to_numpy()
    linked, graph = kernels["linked"].to_numpy(), kernels["graph"].to_numpy()

    def us(mask: Any) -> float:
        return int(duration[mask].sum()) / 1000

    return Coverage(
        kernels=len(kernels),
        kernel_us=int(duration.sum()) / 1000,
        linked=int(linked.sum()),
        linked_us=us(linked),
        unlinked=int((~linked).sum()),
        unlinked_us=us(~linked),
        graph=int(graph.sum()),
        graph_us=us(graph),
        dropped_events=trace.counts.dropped + trace.counts.excluded,
    )


def stream_table(table: pd.DataFrame) -> pd.DataFrame:
    """Per (device, stream): number of kernels and busy time (kernels, copies and sets)."""
    rows = [
        {
            "device": int(group["device"].iloc[0]),
            "stream": int(group["stream"].iloc[0]),
            "kernels": int((group["kind"] == "kernel").sum()),
            "busy_us": union_length(group["start_ns"], group["dur_ns"]) / 1000,
        }
        for _, group in table.groupby(["device", "stream"], sort=True)
    ]
    return pd.DataFrame(rows, columns=["device", "stream", "kernels", "busy_us"])


def kernel_table(
    trace: Trace, ceilings: Ceilings | None = None, declared: Mapping[str, Work] | None = None
) -> pd.DataFrame:
    """One row per kernel name and device, by falling total time; columns as in ``Summary``.

    ``work_coverage`` is the part of the launches whose bytes and operations are known; ``bytes_per_s`` and
    ``flops_per_s`` are their achieved rates (None when unknown).
    """
    kernels = trace.only_kernels()
    duration = kernels["dur_ns"].to_numpy()
    group, rows = distinct_rows(kernels, ("name", "device"))
    ordered = duration[np.lexsort((duration, group))]
    count = np.bincount(group, minlength=len(rows))
    begin = np.cumsum(count) - count
    sums = np.add.reduceat(ordered, begin) if len(rows) else np.zeros(0, dtype=np.int64)
    total = max(int(duration.sum()), 1)
    out = pd.DataFrame(
        {
            "name": kernels["name"].iloc[rows].astype(object).to_numpy(),
            "device": kernels["device"].to_numpy()[rows],
            "count": count,
            "total_us": sums / 1000,
            "mean_us": sums / count / 1000,
            "median_us": _quantile(ordered, begin, count, 0.5) / 1000,
            "p95_us": _quantile(ordered, begin, count, 0.95) / 1000,
            "min_us": ordered[begin] / 1000,
            "max_us": ordered[begin + count - 1] / 1000,
            "share": sums / total,
        }
    )
    first = kernels.drop_duplicates(["name"])
    named = {
        str(name): role_of(str(full), str(op))[0]
        for name, full, op in zip(first["name"], first["full_name"], first["op"], strict=True)
    }
    out["role"] = [named[name] for name in out["name"]]
    out = _with_bounds(out, kernel_work(trace, declared), ceilings)
    return out.sort_values(["total_us", "name"], ascending=[False, True], ignore_index=True)


def _quantile(ordered: Ints, begin: Ints, count: Ints, q: float) -> npt.NDArray[np.float64]:
    """A quantile of each group of ``ordered``, which holds the groups one after another, each in order; interpolated."""
    place = q * (count - 1)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, count - 1)
    lower, upper = ordered[begin + low], ordered[begin + high]
    return np.asarray(lower + (upper - lower) * (place - low), dtype=np.float64)


def _with_bounds(table: pd.DataFrame, work: pd.DataFrame, ceilings: Ceilings | None) -> pd.DataFrame:
    known = {(row["name"], row["device"]): row for row in work.to_dict("records")}
    added: dict[str, list[Any]] = {
        column: [] for column in ("bound", "bound_basis", "work_coverage", "bytes_per_s", "flops_per_s")
    }
    for name, device, count in zip(table["name"], table["device"], table["count"], strict=True):
        row = known.get((name, device))
        one, time_us = None, 0.0
        if row is not None:
            time_us = row["known_us"]
            one = Work(row["bytes"] / row["known"], row["flops"] / row["known"], row["dtype"])
        bound, basis = bound_of(one, time_us / row["known"] if row else 0.0, ceilings)
        added["bound"].append(bound)
        added["bound_basis"].append(basis)
        added["work_coverage"].append(row["known"] / count if row else 0.0)
        added["bytes_per_s"].append(1e6 * row["bytes"] / time_us if row and time_us else None)
        added["flops_per_s"].append(1e6 * row["flops"] / time_us if row and time_us else None)
    return table.assign(**added)
