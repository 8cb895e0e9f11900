"""Reader of Chrome traces written by torch.profiler (kineto) on CUDA and ROCm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rcatools.errors import InputError
from rcatools.trace.columns import Ints, last_rows
from rcatools.trace.events import EventStream
from rcatools.trace.kineto_events import READ_CATEGORIES, Collector, is_graph_launch, is_launch
from rcatools.trace.model import (
    KINDS,
    NO_ID,
    NO_TIME,
    EventCounts,
    Trace,
    TraceWarning,
    activity_table,
    steps_table,
)
from rcatools.trace.sanity import exclusion_warnings, separate_impossible
from rcatools.trace.stream import DEFAULT_LIMITS, ByteSource, Limits, collection_paused
from rcatools.units import counted

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
    stream, found = _collect(path, limits, fold_case=False)
    if found.odd_names:
        stream, found = _collect(path, limits, fold_case=True)
    if not found.events and stream.dropped and not stream.source.truncated:
        raise InputError(f"{path.name}: its list holds no trace events; give a trace of torch.profiler")
    return _build(path, stream, found)


def _collect(path: Path, limits: Limits, fold_case: bool) -> tuple[EventStream, Collector]:
    """Read the whole file; ends early where it must be read with keys in any case."""
    stream, found = EventStream(ByteSource(path, limits), READ_CATEGORIES, fold_case), Collector()
    with collection_paused():
        for part in stream.parts():
            found.add(part)
            del part  # before the next one is decoded
            if found.odd_names and not fold_case:
                break
    return stream, found


def _build(path: Path, stream: EventStream, found: Collector) -> Trace:
    rows, calls, texts = found.activities.whole(), found.launches.whole(), found.texts
    size = len(rows["start"])
    origin = int(rows["start"].min()) if size else 0
    call = last_rows(calls["number"], rows["correlation"])  # -1: the appended element
    launch, launch_ns = np.append(calls["name"], 0)[call], np.append(calls["start"], NO_TIME)[call]
    operations = found.operations_of(rows["external"], launch_ns)
    names = texts.categorical(rows["name"])
    table = activity_table(
        {
            "name": names,
            "full_name": names,
            "kind": pd.Categorical.from_codes(rows["kind"], categories=pd.Index(KINDS, dtype=object)),
            "device": rows["device"],
            "stream": rows["stream"],
            "start_ns": rows["start"] - origin,
            "dur_ns": rows["duration"],
            "correlation": rows["correlation"],
            "linked": launch != 0,
            "graph": texts.where(launch, is_graph_launch),
            "launch": texts.categorical(launch),
            "launch_ns": np.where(launch_ns == NO_TIME, NO_TIME, launch_ns - origin),
            "grid": texts.categorical(rows["grid"], _without_brackets),
            "block": texts.categorical(rows["block"], _without_brackets),
            "op": texts.categorical(operations.name),
            "shapes": texts.categorical(operations.dims),
            "dtypes": texts.categorical(operations.types),
            "bytes": rows["moved"],
        },
        size,
    )
    host = (found.host_start - origin, found.host_end - origin) if found.host_events else None
    kept, excluded = separate_impossible(table, host)
    steps = steps_table([(name, start - origin, duration) for name, start, duration in found.steps])
    header = {key.lower(): value for key, value in stream.header.items()}
    meta = {key: header[key.lower()] for key in _META_KEYS if key.lower() in header}
    called = [texts.texts[number] for number in dict.fromkeys(calls["name"].tolist())]
    meta["backend"] = _backend(header, called)
    meta["origin_ns"] = origin
    meta["host_extent_ns"] = list(host) if host else None
    meta.update(_launch_counts(found, calls, rows["correlation"]))
    numbers = sorted({int(device) for device in table["device"].unique()})
    return Trace(
        label=path.name,
        format="kineto",
        kernels=kept,
        excluded=excluded,
        steps=steps,
        devices=_device_names(header, numbers),
        meta=meta,
        counts=EventCounts(
            events=found.events + stream.dropped,
            dropped=stream.dropped + found.bad_time,
            repaired=sum(stream.repaired.values()),
            excluded=len(excluded),
        ),
        warnings=tuple(_warnings(stream, found, excluded)),
    )


def _without_brackets(text: str) -> str:
    return text.strip("[]")


def _launch_counts(found: Collector, calls: Mapping[str, Ints], correlation: Ints) -> dict[str, int]:
    """How many launches the file holds, and how many of them have no GPU activity; the last call of a number counts."""
    numbers = np.unique(calls["number"][calls["number"] != NO_ID])
    name = calls["name"][last_rows(calls["number"], numbers)]
    launches, graphs = found.texts.where(name, is_launch), found.texts.where(name, is_graph_launch)
    idle = launches & ~np.isin(numbers, correlation)
    return {
        "launch_events": int(launches.sum()),
        "launches_without_activity": int(idle.sum()),
        "graph_launches_without_activity": int((idle & graphs).sum()),
    }


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
                f"left out, not valid JSON: {counted(stream.dropped, 'event')} ({stream.dropped_bytes} bytes)",
                stream.dropped,
            )
        )
    if found.bad_time:
        notes.append(
            TraceWarning(
                "bad_time",
                f"left out, without a usable time: {counted(found.bad_time, 'GPU event')}",
                found.bad_time,
            )
        )
    for kind, count in sorted(stream.repaired.items()):
        notes.append(
            TraceWarning(
                f"repaired_{kind}", f"{counted(count, 'event was', 'events were')} {_REPAIRS[kind]}", count
            )
        )
    if stream.trailing_bytes:
        notes.append(
            TraceWarning(
                "trailing_data", f"{stream.trailing_bytes} bytes after the trace's end were not read", 1
            )
        )
    notes += exclusion_warnings(excluded)
    if not found.gpu_events:
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


def _backend(header: Mapping[str, Any], calls: Iterable[str]) -> str | None:
    keys = " ".join(header)
    if "roctracer" in keys or "hip_" in keys or "rocprofiler" in keys:
        return "rocm"
    if "cupti" in keys or "cuda_" in keys:
        return "cuda"
    for name in calls:
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
    properties = header.get("deviceproperties")
    for entry in properties if isinstance(properties, list) else []:
        found = {str(key).lower(): value for key, value in entry.items()} if isinstance(entry, dict) else {}
        if isinstance(found.get("id"), int):
            listed[found["id"]] = str(found.get("name") or "")
    distinct = set(listed.values())
    if len(distinct) == 1:
        only = distinct.pop() or None
        return dict.fromkeys(numbers, only)
    is_rocm = any("hip" in key or "roc" in key for key in header)
    return {number: None if is_rocm else (listed.get(number) or None) for number in numbers}
