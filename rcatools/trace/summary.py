"""Kernel table, busy time, streams and coverage of one trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from rcatools.trace.intervals import extent, union_length
from rcatools.trace.model import Trace, TraceWarning


@dataclass(frozen=True)
class DeviceTime:
    """Time of one device in microseconds; ``busy_us`` is the union of kernels, copies and sets."""

    device: int
    name: str | None
    kernels: int
    kernel_us: float
    busy_us: float
    span_us: float
    idle_us: float


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
            "streams": self.streams.to_dict("records"),
            "coverage": vars(self.coverage),
            "kernels": self.kernels.to_dict("records"),
            "warnings": [warning.to_json() for warning in self.warnings],
        }


def summarize(trace: Trace) -> Summary:
    """Summarise one trace; empty tables when it holds no GPU activity."""
    table = trace.kernels
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
                idle_us=(span - busy) / 1000,
            )
        )
    return Summary(
        format=trace.format,
        devices=tuple(devices),
        streams=stream_table(table),
        coverage=coverage(trace),
        kernels=kernel_table(trace),
        warnings=tuple(trace.warnings),
    )


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
            "device": int(device),
            "stream": int(stream),
            "kernels": int((group["kind"] == "kernel").sum()),
            "busy_us": union_length(group["start_ns"], group["dur_ns"]) / 1000,
        }
        for (device, stream), group in table.groupby(["device", "stream"], sort=True)
    ]
    return pd.DataFrame(rows, columns=["device", "stream", "kernels", "busy_us"])


def kernel_table(trace: Trace) -> pd.DataFrame:
    """One row per kernel name and device, by falling total time."""
    kernels = trace.only_kernels()
    groups = kernels.groupby(["name", "device"], observed=True, sort=False)["dur_ns"]
    frame = groups.agg(["count", "sum", "mean", "median", "min", "max"]).reset_index()
    frame["p95"] = groups.quantile(0.95).to_numpy() if len(frame) else []
    total = max(int(kernels["dur_ns"].sum()), 1)
    out = pd.DataFrame(
        {
            "name": frame["name"].astype(object),
            "device": frame["device"].astype("int64"),
            "count": frame["count"].astype("int64"),
            "total_us": frame["sum"] / 1000,
            "mean_us": frame["mean"] / 1000,
            "median_us": frame["median"] / 1000,
            "p95_us": frame["p95"] / 1000,
            "min_us": frame["min"] / 1000,
            "max_us": frame["max"] / 1000,
            "share": frame["sum"] / total,
            "role": "other",
            "bound": "cannot_tell",
            "bound_basis": "no bytes or FLOPs known",
        }
    )
    return out.sort_values(["total_us", "name"], ascending=[False, True], ignore_index=True)
