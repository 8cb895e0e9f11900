"""Reader of Chrome traces written by torch.profiler (kineto) on CUDA and ROCm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rcatools.errors import InputError
from rcatools.trace.events import EventStream
from rcatools.trace.kineto_events import Activity, Collector, is_launch
from rcatools.trace.model import NO_TIME, EventCounts, Trace, TraceWarning, activity_table, steps_table
from rcatools.trace.sanity import exclusion_warnings, separate_impossible
from rcatools.trace.stream import DEFAULT_LIMITS, ByteSource, Limits, collection_paused

_META_KEYS = (
    "schemaVersion",
    "record_shapes",
    "with_stack",
    "with_flops",
    "profile_memory",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "roctracer_version",
    "rocprofiler-sdk_version",
    "hip_runtime_version",
    "hip_driver_version",
)


def read_kineto(path: Path, limits: Limits = DEFAULT_LIMITS) -> Trace:
    """Read a torch.profiler trace.

    Args:
        path: a .json or .json.gz file.
        limits: what the file may cost.

    Returns:
        The trace; a file without GPU activity gives an empty table and a warning.

    Raises:
        InputError: not such a file.
        UnsafeInputError: beyond the limits.
    """
    stream = EventStream(ByteSource(path, limits))
    found = Collector()
    with collection_paused():
        for part in stream.parts():
            found.add(part)
    if not found.events and stream.dropped and not stream.source.truncated:
        raise InputError(f"{path.name}: its list holds no trace events; give a trace of torch.profiler")
    return _build(path, stream, found)


class _Columns(NamedTuple):
    """The fields of ``Activity``, one tuple per field."""

    kind: tuple[str, ...]
    name: tuple[str, ...]
    start: tuple[int, ...]
    duration: tuple[int, ...]
    device: tuple[int, ...]
    stream: tuple[int, ...]
    correlation: tuple[int, ...]
    external: tuple[int, ...]
    moved: tuple[int, ...]
    grid: tuple[str, ...]
    block: tuple[str, ...]


def _build(path: Path, stream: EventStream, found: Collector) -> Trace:
    size = len(found.activities)
    columns = _Columns._make(zip(*found.activities, strict=True) if size else [()] * len(Activity._fields))
    starts = np.array(columns.start, dtype=np.int64)
    origin = int(starts.min()) if size else 0
    unlinked = ("", NO_TIME)
    launches = [found.launches.get(number, unlinked) for number in columns.correlation]
    operations = [
        found.operation_of(number, at) for number, (_, at) in zip(columns.external, launches, strict=True)
    ]
    launch_ns = np.array([at for _, at in launches], dtype=np.int64)
    table = activity_table(
        {
            "name": columns.name,
            "kind": columns.kind,
            "device": columns.device,
            "stream": columns.stream,
            "start_ns": starts - origin,
            "dur_ns": np.array(columns.duration, dtype=np.int64),
            "correlation": columns.correlation,
            "linked": np.array([bool(name) for name, _ in launches], dtype=bool),
            "graph": np.array(["graphlaunch" in name.lower() for name, _ in launches], dtype=bool),
            "launch": [name for name, _ in launches],
            "launch_ns": np.where(launch_ns == NO_TIME, NO_TIME, launch_ns - origin),
            "grid": columns.grid,
            "block": columns.block,
            "op": [operation[0] for operation in operations],
            "shapes": [operation[1] for operation in operations],
            "dtypes": [operation[2] for operation in operations],
            "bytes": columns.moved,
        },
        size,
    )
    host = (found.host_start - origin, found.host_end - origin) if found.host_events else None
    kept, excluded = separate_impossible(table, host)
    steps = steps_table([(name, start - origin, duration) for name, start, duration in found.steps])
    meta = {key: stream.header[key] for key in _META_KEYS if key in stream.header}
    meta["backend"] = _backend(stream.header, found)
    meta["origin_ns"] = origin
    meta["host_extent_ns"] = list(host) if host else None
    meta["launch_events"] = sum(is_launch(name) for name, _ in found.launches.values())
    used = set(columns.correlation)
    idle = [
        (number, *call)
        for number, call in found.launches.items()
        if number not in used and is_launch(call[0])
    ]
    meta["launches_without_activity"] = len(idle)
    meta["graph_launches_without_activity"] = sum("graphlaunch" in name.lower() for _, name, _ in idle)
    numbers = sorted({int(device) for device in table["device"].unique()})
    return Trace(
        label=path.name,
        format="kineto",
        kernels=kept,
        excluded=excluded,
        steps=steps,
        devices=_device_names(stream.header, numbers),
        meta=meta,
        counts=EventCounts(
            events=found.events + stream.dropped,
            dropped=stream.dropped + found.bad_time,
            repaired=sum(stream.repaired.values()),
            excluded=len(excluded),
        ),
        warnings=tuple(_warnings(stream, found, excluded)),
    )


def _warnings(stream: EventStream, found: Collector, excluded: pd.DataFrame) -> list[TraceWarning]:
    notes: list[TraceWarning] = []
    if stream.source.truncated or not stream.complete:
        why = stream.source.truncated or "the list of events is not closed"
        notes.append(
            TraceWarning(
                "truncated", f"{why}: only the {found.events} complete events before the end were read", 1
            )
        )
    if stream.dropped:
        notes.append(
            TraceWarning(
                "dropped_events",
                f"{stream.dropped} events ({stream.dropped_bytes} bytes) are not valid JSON and were left out",
                stream.dropped,
            )
        )
    if found.bad_time:
        notes.append(
            TraceWarning(
                "bad_time",
                f"{found.bad_time} GPU events have no usable time and were left out",
                found.bad_time,
            )
        )
    for kind, count in sorted(stream.repaired.items()):
        notes.append(TraceWarning(f"repaired_{kind}", f"{count} events were {_REPAIRS[kind]}", count))
    if stream.trailing_bytes:
        notes.append(
            TraceWarning(
                "trailing_data", f"{stream.trailing_bytes} bytes after the trace's end were not read", 1
            )
        )
    notes += exclusion_warnings(excluded)
    if not found.activities:
        notes.append(
            TraceWarning("no_gpu_events", "the file holds no GPU activity (CPU-only or metadata-only trace)")
        )
    return notes


_REPAIRS = {
    "non_finite": "read with NaN or Infinity taken as missing",
    "control_character": "read with raw control characters in a text",
    "bad_utf8": "read with bytes that are not UTF-8 replaced",
    "wrong_type": "read with a field of an unexpected type",
}


def _backend(header: Mapping[str, Any], found: Collector) -> str | None:
    keys = " ".join(header)
    if "roctracer" in keys or "hip_" in keys or "rocprofiler" in keys:
        return "rocm"
    if "cupti" in keys or "cuda_" in keys:
        return "cuda"
    for name, _ in found.launches.values():
        if name.startswith("hip"):
            return "rocm"
        if name.startswith("cuda"):
            return "cuda"
    return None


def _device_names(header: Mapping[str, Any], numbers: list[int]) -> dict[int, str | None]:
    """Device names by the numbers that events carry.

    ROCm counts CPU agents too, so an event's number may not be in the list: the name is then known only
    when all listed devices have the same one.
    """
    listed: dict[int, str] = {}
    properties = header.get("deviceProperties")
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("id"), int):
            listed[entry["id"]] = str(entry.get("name") or "")
    distinct = set(listed.values())
    if len(distinct) == 1:
        only = distinct.pop() or None
        return dict.fromkeys(numbers, only)
    is_rocm = any("hip" in key or "roc" in key for key in header)
    return {number: None if is_rocm else (listed.get(number) or None) for number in numbers}
