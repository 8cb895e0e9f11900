"""Readers of rocprofv3 output: kernel and copy CSV of every ROCm version, and its JSON."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rcatools.errors import InputError
from rcatools.trace.model import NO_ID, NO_TIME, EventCounts, Trace, TraceWarning, activity_table, no_steps
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
_MAX_JSON_BYTES = 4 << 30
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
    header = next(reader, [])
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
    warnings = [_no_launches(len(kept))] if len(kept) else [NO_GPU]
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
        steps=no_steps(),
        devices=_csv_device_names(path, table["device"].unique()),
        meta={"backend": "rocm", "columns": len(header), "origin_ns": origin},
        counts=EventCounts(events=rows.total, dropped=rows.dropped, excluded=len(excluded)),
        warnings=tuple(warnings + exclusion_warnings(excluded)),
    )


NO_GPU = TraceWarning("no_gpu_events", "the file holds no GPU activity")


def _no_launches(count: int) -> TraceWarning:
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
        for line in lines:
            yield line.replace(b"\0", b"").decode("utf-8", "replace") + "\n"
    if pending:
        yield pending.replace(b"\0", b"").decode("utf-8", "replace")


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-]+", "", name.lstrip("\ufeff")).lower()


def _columns(header: Iterable[str]) -> dict[str, int]:
    positions: dict[str, int] = {}
    for index, name in enumerate(header):
        positions.setdefault(_plain(name), index)
    return {
        meaning: positions[spelling]
        for meaning, spellings in _SPELLINGS.items()
        for spelling in reversed(spellings)
        if spelling in positions
    } | {
        meaning: positions[spellings[0]]
        for meaning, spellings in _SPELLINGS.items()
        if spellings[0] in positions
    }


def _read_rows(reader: Iterator[list[str]], columns: Mapping[str, int], is_copy: bool) -> _Rows:
    names = (
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
    values: dict[str, list[Any]] = {name: [] for name in names}
    dropped = total = 0
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

        def cell(meaning: str, row: list[str] = row) -> str:
            at = columns.get(meaning)
            return row[at].strip() if at is not None and at < len(row) else ""

        start, end = _whole(cell("start")), _whole(cell("end"))
        if end is None and start is not None and (duration := _whole(cell("duration"))) is not None:
            end = start + duration
        if start is None or end is None:
            dropped += 1
            continue
        values["start"].append(start)
        values["end"].append(end)
        values["name"].append(cell("direction") if is_copy else cell("name"))
        values["kind"].append("memcpy" if is_copy else "kernel")
        to_host = is_copy and cell("direction").upper().endswith(("DEVICE_TO_HOST", "DTOH"))
        values["agent"].append(_id(cell("source_agent") if to_host else cell("agent")))
        values["queue"].append(_id(cell("queue")))
        values["stream"].append(_id(cell("stream")))
        values["correlation"].append(_id(cell("correlation")))
        values["bytes"].append(_id(cell("bytes")))
        for what in ("grid", "block"):
            parts = [cell(f"{what}_{axis}") for axis in "xyz"]
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
    return value if abs(value) < 2**62 else None


def _id(text: str) -> int:
    """The number at the end of "4", "Agent 4" or "GPU 0"; ``NO_ID`` when there is none."""
    found = _NUMBER.search(text)
    number = int(found[1]) if found else NO_ID
    return number if -(2**63) <= number < 2**63 else NO_ID


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


class _Handle(msgspec.Struct, gc=False):
    handle: int = NO_ID


class _Size(msgspec.Struct, gc=False):
    x: int = 0
    y: int = 0
    z: int = 0


class _Correlation(msgspec.Struct, gc=False):
    internal: int = NO_ID


class _DispatchInfo(msgspec.Struct, gc=False):
    kernel_id: int = NO_ID
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    workgroup_size: _Size = msgspec.field(default_factory=_Size)
    grid_size: _Size = msgspec.field(default_factory=_Size)


class _Dispatch(msgspec.Struct, gc=False):
    start_timestamp: int
    end_timestamp: int
    dispatch_info: _DispatchInfo
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)
    stream_id: _Handle = msgspec.field(default_factory=_Handle)


class _Copy(msgspec.Struct, gc=False):
    start_timestamp: int
    end_timestamp: int
    dst_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    src_agent_id: _Handle = msgspec.field(default_factory=_Handle)
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)
    stream_id: _Handle = msgspec.field(default_factory=_Handle)
    bytes: int = NO_ID


class _Agent(msgspec.Struct, gc=False):
    id: _Handle = msgspec.field(default_factory=_Handle)
    node_id: int = NO_ID
    type: int | str = 0
    name: str = ""
    product_name: str = ""


class _Symbol(msgspec.Struct, gc=False):
    kernel_id: int = NO_ID
    kernel_name: str = ""
    formatted_kernel_name: str = ""
    truncated_kernel_name: str = ""


class _Call(msgspec.Struct, gc=False):
    kind: int = NO_ID
    operation: int = NO_ID
    start_timestamp: int = 0
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)


class _Records(msgspec.Struct, gc=False):
    kernel_dispatch: list[_Dispatch] = []
    memory_copy: list[_Copy] = []
    hip_api: list[_Call] = []


class _Domain(msgspec.Struct, gc=False):
    kind: str = ""
    operations: list[str] = []


class _Strings(msgspec.Struct, gc=False):
    buffer_records: list[_Domain] = []


class _Process(msgspec.Struct, gc=False):
    agents: list[_Agent] = []
    kernel_symbols: list[_Symbol] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    buffer_records: _Records = msgspec.field(default_factory=_Records)


class _Document(msgspec.Struct, gc=False):
    processes: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool", default_factory=list)


def read_rocprof_json(path: Path, limits: Limits = DEFAULT_LIMITS) -> Trace:
    """Read a rocprofv3 JSON file (rocprofiler-sdk-tool), gz too.

    ``name`` is the truncated kernel name and ``full_name`` the one with template arguments. A device is the
    agent's node number, as in the CSV's "Agent N".

    Raises:
        InputError: not such a document.
    """
    source = ByteSource(path, limits)
    try:
        document = msgspec.json.decode(source.read_all(_MAX_JSON_BYTES), type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = source.truncated or str(error)
        raise InputError(
            f"{path.name}: not a whole rocprofv3 JSON document ({why}); export it again"
        ) from error
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "name",
            "full_name",
            "kind",
            "device",
            "queue",
            "stream",
            "start_ns",
            "dur_ns",
            "correlation",
            "grid",
            "block",
            "bytes",
            "launch",
            "launch_ns",
            "linked",
            "graph",
        )
    }
    names: dict[int, str | None] = {}
    for process in document.processes:
        _add_process(process, columns, names)
    size = len(columns["name"])
    starts = np.array(columns["start_ns"], dtype=np.int64)
    origin = int(starts.min()) if size else 0
    launched = np.array(columns["launch_ns"], dtype=np.int64)
    times = {
        "start_ns": starts - origin,
        "launch_ns": np.where(launched == NO_TIME, NO_TIME, launched - origin),
    }
    table = activity_table({**columns, **times}, size)
    kept, excluded = separate_impossible(table, None)
    used = {int(device) for device in table["device"].unique()}
    return Trace(
        label=path.name,
        format="rocprofv3-json",
        kernels=kept,
        excluded=excluded,
        steps=no_steps(),
        devices={device: names.get(device) for device in sorted(used)},
        meta={"backend": "rocm", "processes": len(document.processes), "origin_ns": origin},
        counts=EventCounts(events=size, excluded=len(excluded)),
        warnings=(
            *([NO_GPU] if not size else [] if any(columns["linked"]) else [_no_launches(len(kept))]),
            *exclusion_warnings(excluded),
        ),
    )


def _add_process(process: _Process, columns: dict[str, list[Any]], names: dict[int, str | None]) -> None:
    nodes = {agent.id.handle: agent.node_id for agent in process.agents}
    gpus = {agent.id.handle for agent in process.agents if agent.type in (2, "GPU")}
    names.update({agent.node_id: agent.product_name or agent.name or None for agent in process.agents})
    calls = _calls(process)
    symbols = {symbol.kernel_id: symbol for symbol in process.kernel_symbols}
    unknown = _Symbol()
    for record in process.buffer_records.kernel_dispatch:
        info = record.dispatch_info
        symbol = symbols.get(info.kernel_id, unknown)
        full = symbol.formatted_kernel_name or symbol.kernel_name or f"kernel {info.kernel_id}"
        columns["name"].append(symbol.truncated_kernel_name or full)
        columns["full_name"].append(full)
        columns["kind"].append("kernel")
        columns["device"].append(nodes.get(info.agent_id.handle, info.agent_id.handle))
        columns["queue"].append(info.queue_id.handle)
        columns["stream"].append(_signed(record.stream_id.handle))
        columns["start_ns"].append(record.start_timestamp)
        columns["dur_ns"].append(record.end_timestamp - record.start_timestamp)
        columns["correlation"].append(record.correlation_id.internal)
        columns["grid"].append(f"{info.grid_size.x},{info.grid_size.y},{info.grid_size.z}")
        columns["block"].append(f"{info.workgroup_size.x},{info.workgroup_size.y},{info.workgroup_size.z}")
        columns["bytes"].append(NO_ID)
        _add_launch(columns, calls, record.correlation_id.internal)
    for copy in process.buffer_records.memory_copy:
        to_device = copy.dst_agent_id.handle in gpus
        handle = copy.dst_agent_id.handle if to_device else copy.src_agent_id.handle
        columns["name"].append("memory copy to device" if to_device else "memory copy to host")
        columns["full_name"].append(columns["name"][-1])
        columns["kind"].append("memcpy")
        columns["device"].append(nodes.get(handle, handle))
        columns["queue"].append(NO_ID)
        columns["stream"].append(_signed(copy.stream_id.handle))
        columns["start_ns"].append(copy.start_timestamp)
        columns["dur_ns"].append(copy.end_timestamp - copy.start_timestamp)
        columns["correlation"].append(copy.correlation_id.internal)
        columns["grid"].append("")
        columns["block"].append("")
        columns["bytes"].append(copy.bytes)
        _add_launch(columns, calls, copy.correlation_id.internal)


def _calls(process: _Process) -> dict[int, tuple[str, int]]:
    """Name and start of each HIP call by its correlation number."""
    domains = [domain.operations for domain in process.strings.buffer_records]
    calls = {}
    for call in process.buffer_records.hip_api:
        known = 0 <= call.kind < len(domains) and 0 <= call.operation < len(domains[call.kind])
        name = domains[call.kind][call.operation] if known else "hip call"
        calls[call.correlation_id.internal] = (name, call.start_timestamp)
    return calls


def _add_launch(columns: dict[str, list[Any]], calls: dict[int, tuple[str, int]], number: int) -> None:
    name, start = calls.get(number, ("", NO_TIME))
    columns["launch"].append(name)
    columns["launch_ns"].append(start)
    columns["linked"].append(bool(name))
    columns["graph"].append("graphlaunch" in name.lower())


def _signed(handle: int) -> int:
    return handle - 2**64 if handle >= 2**63 else handle
