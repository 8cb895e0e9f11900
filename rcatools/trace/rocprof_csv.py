"""Reader of rocprofv3 kernel and copy CSV of every ROCm version."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rcatools.errors import InputError, UnsafeInputError
from rcatools.trace.model import (
    NO_ID,
    EventCounts,
    Trace,
    TraceWarning,
    activity_table,
    signed64,
    steps_table,
    usable_stamp,
)
from rcatools.trace.sanity import exclusion_warnings, separate_impossible
from rcatools.trace.stream import DEFAULT_LIMITS, ByteSource, Limits

# Column spellings by meaning; matched without case, blanks, dashes and underscores. The second and later
# ones are those of rocprof v1/v2, rocpd2csv and rocprof-compute's timestamps.
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "name": ("kernelname",),
    "direction": ("direction",),
    "kind": ("kind", "domain", "category"),
    "start": ("starttimestamp", "beginns", "start", "startns"),
    "end": ("endtimestamp", "endns", "end"),
    "duration": ("duration", "durationns"),
    "agent": ("agentid", "gpuid", "agent", "destinationagentid"),
    "source_agent": ("sourceagentid",),
    "queue": ("queueid",),
    "stream": ("streamid",),
    "correlation": ("correlationid",),
    "grid_x": ("gridsizex", "gridsize", "grd"),
    "grid_y": ("gridsizey",),
    "grid_z": ("gridsizez",),
    "block_x": ("workgroupsizex", "workgroupsize", "wgr"),
    "block_y": ("workgroupsizey",),
    "block_z": ("workgroupsizez",),
    "counter": ("countername",),
    "bytes": ("size", "bytes"),
}
_NUMBER = re.compile(r"(-?\d+)\s*$")
csv.field_size_limit(1 << 20)


@dataclass(frozen=True)
class _Rows:
    """Rows of a CSV as columns by meaning, and how many could not be used."""

    values: dict[str, list[Any]]
    dropped: int
    total: int


def read_rocprof_csv(path: Path, limits: Limits = DEFAULT_LIMITS) -> Trace:
    """Read a rocprofv3 kernel_trace.csv or memory_copy_trace.csv (gz too), of any ROCm version.

    Times are nanoseconds, grids are in work-items. Device names come from the ``*agent_info.csv`` of the same
    run when it lies beside the file.

    Raises:
        InputError: the columns of a kernel or copy trace are missing.
    """
    source = ByteSource(path, limits)
    reader = csv.reader(_lines(source))
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise InputError(
            f"{path.name}: its first line is no CSV header ({error}); give kernel_trace.csv"
        ) from error
    columns = _columns(header)
    is_copy = "direction" in columns and "name" not in columns
    missing = [
        what
        for what, there in (
            ("a kernel name", "name" in columns or is_copy),
            ("a start", "start" in columns),
            ("an end or a duration", "end" in columns or "duration" in columns),
        )
        if not there
    ]
    if missing or "counter" in columns:
        what = "one row per counter" if "counter" in columns else f"no column for {', '.join(missing)}"
        raise InputError(
            f"{path.name}: {what} in this CSV; give the kernel_trace.csv that rocprofv3 --kernel-trace writes"
        )
    rows = _read_rows(reader, columns, is_copy)
    found = rows.values
    starts = np.array(found["start"], dtype=np.int64)
    origin = int(starts.min()) if starts.size else 0
    kinds = found["kind"]
    table = activity_table(
        {
            "name": found["name"],
            "kind": kinds,
            "device": found["agent"],
            "stream": found["stream"] if "stream" in columns else found["queue"],
            "queue": found["queue"],
            "start_ns": starts - origin,
            "dur_ns": np.array(found["end"], dtype=np.int64) - starts,
            "correlation": found["correlation"],
            "grid": found["grid"],
            "block": found["block"],
            "bytes": found["bytes"],
        },
        len(kinds),
    )
    kept, excluded = separate_impossible(table, None)
    warnings = [no_launches(len(kept))] if len(kept) else [NO_GPU]
    if rows.dropped:
        warnings.append(
            TraceWarning(
                "dropped_events", f"{rows.dropped} rows have no usable time and were left out", rows.dropped
            )
        )
    if source.truncated:
        warnings.append(TraceWarning("truncated", f"{source.truncated}: rows before the end were read", 1))
    return Trace(
        label=path.name,
        format="rocprofv3-csv",
        kernels=kept,
        excluded=excluded,
        steps=steps_table(),
        devices=_csv_device_names(path, table["device"].unique()),
        meta={"backend": "rocm", "columns": len(header), "origin_ns": origin},
        counts=EventCounts(events=rows.total, dropped=rows.dropped, excluded=len(excluded)),
        warnings=tuple(warnings + exclusion_warnings(excluded)),
    )


NO_GPU = TraceWarning("no_gpu_events", "the file holds no GPU activity")


def no_launches(count: int) -> TraceWarning:
    return TraceWarning(
        "no_launch_events",
        "the file holds no launch calls: no kernel can be linked, and no graph replay told from its launches",
        count,
    )


def _lines(source: ByteSource) -> Iterator[str]:
    pending = b""
    for block in source.blocks():
        lines = (pending + block).split(b"\n")
        pending = lines.pop()
        if len(pending) > source.limits.max_event_bytes:
            raise UnsafeInputError(
                f"{source.path.name}: one line is longer than {source.limits.max_event_bytes:,} bytes; "
                "this is no profiler's CSV"
            )
        for line in lines:
            yield line.replace(b"\0", b"").decode("utf-8", "replace") + "\n"
    if pending:
        yield pending.replace(b"\0", b"").decode("utf-8", "replace")


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-]+", "", name.lstrip("\ufeff")).lower()


def _columns(header: Iterable[str]) -> dict[str, int]:
    """Position of each meaning that the header has; of several spellings the first in the list."""
    positions: dict[str, int] = {}
    for index, name in enumerate(header):
        positions.setdefault(_plain(name), index)
    found = {}
    for meaning, spellings in _SPELLINGS.items():
        there = [positions[spelling] for spelling in spellings if spelling in positions]
        if there:
            found[meaning] = there[0]
    return found


_FIELDS = (
    "name",
    "kind",
    "agent",
    "queue",
    "stream",
    "start",
    "end",
    "correlation",
    "grid",
    "block",
    "bytes",
)


def _read_rows(reader: Iterator[list[str]], columns: Mapping[str, int], is_copy: bool) -> _Rows:
    values: dict[str, list[Any]] = {name: [] for name in _FIELDS}
    dropped = total = 0
    width = max(columns.values()) + 1
    while True:
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error:
            total, dropped = total + 1, dropped + 1
            continue
        if not row:
            continue
        total += 1
        row += [""] * (width - len(row))
        cell = {meaning: row[at] for meaning, at in columns.items()}.get
        start, end = _whole(cell("start", "")), _whole(cell("end", ""))
        if end is None and start is not None and (duration := _whole(cell("duration", ""))) is not None:
            end = start + duration
        if start is None or end is None:
            dropped += 1
            continue
        values["start"].append(start)
        values["end"].append(end)
        direction = cell("direction", "") if is_copy else ""
        to_host = direction.upper().endswith(("DEVICE_TO_HOST", "DTOH"))
        values["name"].append(direction or cell("name", ""))
        values["kind"].append("memcpy" if is_copy else "kernel")
        values["agent"].append(_id(cell("source_agent" if to_host else "agent", "")))
        for what in ("queue", "stream", "correlation", "bytes"):
            values[what].append(_id(cell(what, "")))
        for what in ("grid", "block"):
            parts = [cell(f"{what}_{axis}", "") for axis in "xyz"]
            values[what].append(",".join(part for part in parts if part))
    return _Rows(values, dropped, total)


def _whole(text: str) -> int | None:
    try:
        value = int(text)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            return None
        if not np.isfinite(number):
            return None
        value = round(number)
    return value if usable_stamp(value) else None


def _id(text: str) -> int:
    """The number at the end of "4", "Agent 4" or "GPU 0"; ``NO_ID`` when there is none."""
    found = _NUMBER.search(text)
    number = int(found[1]) if found else NO_ID
    return signed64(number)


def _csv_device_names(path: Path, devices: Iterable[Any]) -> dict[int, str | None]:
    names: dict[int, str | None] = {int(device): None for device in devices}
    prefix = re.sub(r"(kernel|memory_copy)_trace\.csv(\.gz)?$", "", path.name)
    info = path.with_name(prefix + "agent_info.csv")
    if prefix == path.name or not info.is_file() or info.stat().st_size > 1 << 20:
        return names
    for row in csv.DictReader(io.StringIO(info.read_text("utf-8", "replace"))):
        lowered = {_plain(key): value for key, value in row.items() if key and isinstance(value, str)}
        number = _id(lowered.get("nodeid", ""))
        if number in names and lowered.get("agenttype", "").upper() == "GPU":
            names[number] = lowered.get("productname") or lowered.get("name") or None
    return names
