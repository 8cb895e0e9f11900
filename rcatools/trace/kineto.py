"""Reader of Chrome traces written by torch.profiler (kineto) on CUDA and ROCm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rcatools.trace.events import Event, EventStream
from rcatools.trace.model import NO_ID, NO_TIME, EventCounts, Trace, TraceWarning, activity_table
from rcatools.trace.sanity import separate_impossible
from rcatools.trace.stream import DEFAULT_LIMITS, ByteSource, Limits

GPU_CATEGORIES = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
LAUNCH_CATEGORIES = {"cuda_runtime", "cuda_driver", "runtime", "driver"}
OPERATION_CATEGORIES = {"cpu_op", "operator"}
STEP_NAME = re.compile(
    r"^(ProfilerStep#\d+|(?:.*\b)?(?:step|iter(?:ation)?)[\s_#:\[]*.*\d.*)$", re.IGNORECASE
)
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


def time_ns(text: bytes) -> int | None:
    """Microseconds as JSON text to whole nanoseconds, exactly; None when it is no finite number.

    Numbers written as strings are accepted.
    """
    whole, _, fraction = text.partition(b".")
    try:
        if not fraction:
            return int(whole) * 1000
        if len(fraction) <= 3 and fraction.isdigit():
            size = int(whole) * 1000
            part = int(fraction) * (1, 100, 10, 1)[len(fraction)]
            return size - part if whole.startswith(b"-") else size + part
    except ValueError:
        pass
    try:
        value = Decimal(text.strip().strip(b'"').decode())
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not value.is_finite() or abs(value) > Decimal(10) ** 15 * 9:
        return None
    return int((value * 1000).to_integral_value())


@dataclass
class _Collector:
    """Columns as they grow, one list per column."""

    kind: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    dur: list[int] = field(default_factory=list)
    correlation: list[int] = field(default_factory=list)
    external: list[int] = field(default_factory=list)
    grid: list[str] = field(default_factory=list)
    block: list[str] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    launches: dict[int, tuple[str, int]] = field(default_factory=dict)
    operations: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    host_end: int = NO_TIME
    host_start: int = -NO_TIME - 1
    host_events: int = 0
    events: int = 0
    bad_time: int = 0
    texts: dict[Any, str] = field(default_factory=dict)

    def add(self, part: list[Event]) -> None:
        self.events += len(part)
        for event in part:
            if event.ph != "X":
                continue
            category = event.cat.lower()
            if category in GPU_CATEGORIES:
                self._gpu(event, GPU_CATEGORIES[category])
            elif category in LAUNCH_CATEGORIES:
                self._launch(event)
            elif category in OPERATION_CATEGORIES:
                self._operation(event)
            elif category == "user_annotation":
                self._step(event)

    def text(self, raw: Any) -> str:
        """The text of a raw value, each distinct one kept once."""
        key = bytes(raw)
        if key not in self.texts:
            self.texts[key] = b"".join(key.split()).decode("utf-8", "replace").strip("[]") if key else ""
        return self.texts[key]

    def raw_text(self, raw: Any) -> str:
        key = ("raw", bytes(raw))
        if key not in self.texts:
            self.texts[key] = b"".join(key[1].split()).decode("utf-8", "replace")
        return self.texts[key]

    def _gpu(self, event: Event, kind: str) -> None:
        start, duration = time_ns(bytes(event.ts)), time_ns(bytes(event.dur))
        if start is None or duration is None:
            self.bad_time += 1
            return
        args = event.args
        self.kind.append(kind)
        self.name.append(event.name)
        self.start.append(start)
        self.dur.append(duration)
        device = _number(args.device) if args else NO_ID
        stream = _number(args.stream) if args else NO_ID
        self.device.append(_number(bytes(event.pid)) if device == NO_ID else device)
        self.stream.append(_number(bytes(event.tid)) if stream == NO_ID else stream)
        self.correlation.append(_number(args.correlation) if args else NO_ID)
        self.external.append(_number(args.external_id) if args else NO_ID)
        self.bytes.append(_number(args.bytes) if args else NO_ID)
        self.grid.append(self.text(args.grid) if args else "")
        self.block.append(self.text(args.block) if args else "")

    def _launch(self, event: Event) -> None:
        start = time_ns(bytes(event.ts))
        self._host(start, time_ns(bytes(event.dur)))
        number = _number(event.args.correlation) if event.args else NO_ID
        if number != NO_ID:
            self.launches[number] = (event.name, NO_TIME if start is None else start)

    def _operation(self, event: Event) -> None:
        self._host(time_ns(bytes(event.ts)), time_ns(bytes(event.dur)))
        number = _number(event.args.external_id) if event.args else NO_ID
        if number != NO_ID and event.args is not None:
            self.operations[number] = (
                event.name,
                self.raw_text(event.args.dims),
                self.raw_text(event.args.types),
            )

    def _step(self, event: Event) -> None:
        start, duration = time_ns(bytes(event.ts)), time_ns(bytes(event.dur))
        self._host(start, duration)
        if start is not None and duration is not None and STEP_NAME.match(event.name):
            self.steps.append((event.name, start, duration))

    def _host(self, start: int | None, duration: int | None) -> None:
        if start is None:
            return
        self.host_events += 1
        self.host_start = min(self.host_start, start)
        self.host_end = max(self.host_end, start + max(duration or 0, 0))


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
    found = _Collector()
    for part in stream.parts():
        found.add(part)
    return _build(path, stream, found)


def _build(path: Path, stream: EventStream, found: _Collector) -> Trace:
    size = len(found.name)
    starts = np.array(found.start, dtype=np.int64)
    origin = int(starts.min()) if size else 0
    unlinked = ("", NO_TIME)
    launches = [found.launches.get(number, unlinked) for number in found.correlation]
    operations = [found.operations.get(number, ("", "", "")) for number in found.external]
    launch_ns = np.array([at for _, at in launches], dtype=np.int64)
    table = activity_table(
        {
            "name": found.name,
            "kind": found.kind,
            "device": found.device,
            "stream": found.stream,
            "start_ns": starts - origin,
            "dur_ns": np.array(found.dur, dtype=np.int64),
            "correlation": found.correlation,
            "linked": np.array([bool(name) for name, _ in launches], dtype=bool),
            "graph": np.array(["graphlaunch" in name.lower() for name, _ in launches], dtype=bool),
            "launch": [name for name, _ in launches],
            "launch_ns": np.where(launch_ns == NO_TIME, NO_TIME, launch_ns - origin),
            "grid": found.grid,
            "block": found.block,
            "op": [operation[0] for operation in operations],
            "shapes": [operation[1] for operation in operations],
            "dtypes": [operation[2] for operation in operations],
            "bytes": found.bytes,
        },
        size,
    )
    host = (found.host_start - origin, found.host_end - origin) if found.host_events else None
    kept, excluded = separate_impossible(table, host)
    steps = pd.DataFrame(
        {
            "name": [name for name, _, _ in found.steps],
            "start_ns": np.array([start - origin for _, start, _ in found.steps], dtype=np.int64),
            "dur_ns": np.array([duration for _, _, duration in found.steps], dtype=np.int64),
        }
    ).sort_values("start_ns", ignore_index=True)
    meta = {key: stream.header[key] for key in _META_KEYS if key in stream.header}
    meta["backend"] = _backend(stream.header, found)
    meta["origin_ns"] = origin
    meta["host_extent_ns"] = list(host) if host else None
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


def _warnings(stream: EventStream, found: _Collector, excluded: pd.DataFrame) -> list[TraceWarning]:
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
    for reason, count in excluded["reason"].value_counts(sort=False).items() if len(excluded) else ():
        if count:
            notes.append(
                TraceWarning(
                    str(reason), f"{count} GPU events excluded: {_EXCLUSIONS[str(reason)]}", int(count)
                )
            )
    if not found.name:
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
_EXCLUSIONS = {
    "negative_duration": "their duration is negative",
    "impossible_duration": "they last longer than everything else in the trace together",
}


def _backend(header: Mapping[str, Any], found: _Collector) -> str | None:
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


def _number(value: Any) -> int:
    """A whole number from a number or its text; ``NO_ID`` otherwise."""
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else NO_ID
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bytes):
        value = value.strip(b'"').decode("utf-8", "replace")
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return NO_ID
    return NO_ID
