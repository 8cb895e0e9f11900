"""Reader of rocprofv3 JSON (rocprofiler-sdk-tool)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rcatools.errors import InputError
from rcatools.trace.model import (
    NO_ID,
    NO_TIME,
    EventCounts,
    Trace,
    TraceWarning,
    activity_table,
    signed64,
    steps_table,
    usable_stamp,
)
from rcatools.trace.rocprof_csv import NO_GPU, no_launches
from rcatools.trace.sanity import exclusion_warnings, separate_impossible
from rcatools.trace.stream import DEFAULT_LIMITS, ByteSource, Limits

_MAX_JSON_BYTES = 4 << 30


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
    found = sum(
        len(process.buffer_records.kernel_dispatch) + len(process.buffer_records.memory_copy)
        for process in document.processes
    )
    dropped = [
        TraceWarning(
            "dropped_events", f"{found - size} records have no usable time and were left out", found - size
        )
    ]
    used = {int(device) for device in table["device"].unique()}
    return Trace(
        label=path.name,
        format="rocprofv3-json",
        kernels=kept,
        excluded=excluded,
        steps=steps_table(),
        devices={device: names.get(device) for device in sorted(used)},
        meta={"backend": "rocm", "processes": len(document.processes), "origin_ns": origin},
        counts=EventCounts(events=found, dropped=found - size, excluded=len(excluded)),
        warnings=(
            *([NO_GPU] if not size else [] if any(columns["linked"]) else [no_launches(len(kept))]),
            *(dropped if found > size else []),
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
        if not _timed(record):
            continue
        info = record.dispatch_info
        symbol = symbols.get(info.kernel_id, unknown)
        full = symbol.formatted_kernel_name or symbol.kernel_name or f"kernel {info.kernel_id}"
        columns["name"].append(symbol.truncated_kernel_name or full)
        columns["full_name"].append(full)
        columns["kind"].append("kernel")
        columns["device"].append(signed64(nodes.get(info.agent_id.handle, info.agent_id.handle)))
        columns["queue"].append(signed64(info.queue_id.handle))
        columns["stream"].append(signed64(record.stream_id.handle))
        columns["start_ns"].append(record.start_timestamp)
        columns["dur_ns"].append(record.end_timestamp - record.start_timestamp)
        columns["correlation"].append(signed64(record.correlation_id.internal))
        columns["grid"].append(f"{info.grid_size.x},{info.grid_size.y},{info.grid_size.z}")
        columns["block"].append(f"{info.workgroup_size.x},{info.workgroup_size.y},{info.workgroup_size.z}")
        columns["bytes"].append(NO_ID)
        _add_launch(columns, calls, record.correlation_id.internal)
    for copy in process.buffer_records.memory_copy:
        if not _timed(copy):
            continue
        to_device = copy.dst_agent_id.handle in gpus
        handle = copy.dst_agent_id.handle if to_device else copy.src_agent_id.handle
        columns["name"].append("memory copy to device" if to_device else "memory copy to host")
        columns["full_name"].append(columns["name"][-1])
        columns["kind"].append("memcpy")
        columns["device"].append(signed64(nodes.get(handle, handle)))
        columns["queue"].append(NO_ID)
        columns["stream"].append(signed64(copy.stream_id.handle))
        columns["start_ns"].append(copy.start_timestamp)
        columns["dur_ns"].append(copy.end_timestamp - copy.start_timestamp)
        columns["correlation"].append(signed64(copy.correlation_id.internal))
        columns["grid"].append("")
        columns["block"].append("")
        columns["bytes"].append(signed64(copy.bytes))
        _add_launch(columns, calls, copy.correlation_id.internal)


def _timed(record: _Dispatch | _Copy) -> bool:
    return usable_stamp(record.start_timestamp) and usable_stamp(record.end_timestamp)


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
