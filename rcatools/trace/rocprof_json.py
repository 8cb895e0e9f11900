"""Reader of rocprofv3 JSON (rocprofiler-sdk-tool)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import pandas as pd

from rcatools.errors import InputError
from rcatools.trace.columns import Codes, Ints, Table, last_rows
from rcatools.trace.model import (
    KINDS,
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
_CHUNK = 1 << 14


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


_Record = TypeVar("_Record", _Dispatch, _Copy)


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
    found = _Activities()
    processes = len(document.processes)
    while document.processes:
        found.add(document.processes.pop(0))
    rows, texts, size = found.table.whole(), found.texts, found.kept
    origin = int(rows["start"].min()) if size else 0
    launch = rows["launch"]
    table = activity_table(
        {
            "name": texts.categorical(rows["name"]),
            "full_name": texts.categorical(rows["full"]),
            "kind": pd.Categorical.from_codes(rows["kind"], categories=pd.Index(KINDS, dtype=object)),
            "device": rows["device"],
            "queue": rows["queue"],
            "stream": rows["stream"],
            "start_ns": rows["start"] - origin,
            "dur_ns": rows["end"] - rows["start"],
            "correlation": rows["number"],
            "linked": launch != 0,
            "graph": texts.where(launch, lambda name: "graphlaunch" in name.lower()),
            "launch": texts.categorical(launch),
            "launch_ns": np.where(rows["launched"] == NO_TIME, NO_TIME, rows["launched"] - origin),
            "grid": texts.categorical(rows["grid"]),
            "block": texts.categorical(rows["block"]),
            "bytes": rows["bytes"],
        },
        size,
    )
    kept, excluded = separate_impossible(table, None)
    dropped = [
        TraceWarning(
            "dropped_events",
            f"{found.dropped} records have no usable time and were left out",
            found.dropped,
        )
    ]
    used = {int(device) for device in table["device"].unique()}
    return Trace(
        label=path.name,
        format="rocprofv3-json",
        kernels=kept,
        excluded=excluded,
        steps=steps_table(),
        devices={device: found.devices.get(device) for device in sorted(used)},
        meta={"backend": "rocm", "processes": processes, "origin_ns": origin},
        counts=EventCounts(events=size + found.dropped, dropped=found.dropped, excluded=len(excluded)),
        warnings=(
            *([NO_GPU] if not size else [] if launch.any() else [no_launches(len(kept))]),
            *(dropped if found.dropped else []),
            *exclusion_warnings(excluded),
        ),
    )


class _Activities:
    """Dispatches and copies of all processes as columns of numbers; the records are given up as they are taken."""

    def __init__(self) -> None:
        self.table = Table("kind", "name", "full", "device", "queue", "stream", "start", "end", "number", "grid", "block", "bytes", "launch", "launched")  # fmt: skip
        self.texts = Codes()
        self.devices: dict[int, str | None] = {}
        self.kept = self.dropped = 0

    def add(self, process: _Process) -> None:
        """Take one process; its correlation numbers are its own."""
        nodes = {agent.id.handle: agent.node_id for agent in process.agents}
        gpus = {agent.id.handle for agent in process.agents if agent.type in (2, "GPU")}
        self.devices.update(
            {agent.node_id: agent.product_name or agent.name or None for agent in process.agents}
        )
        calls = self._calls(process)
        names = {symbol.kernel_id: self._names(symbol) for symbol in process.kernel_symbols}
        records = process.buffer_records
        for dispatches in self._chunks(records.kernel_dispatch):
            infos = [record.dispatch_info for record in dispatches]
            labels = [names.get(info.kernel_id) or self._names(_Symbol(info.kernel_id)) for info in infos]
            self._take(
                dispatches, calls, "kernel", labels,
                device=[nodes.get(info.agent_id.handle, info.agent_id.handle) for info in infos],
                queue=[info.queue_id.handle for info in infos],
                grid=[self._size(info.grid_size) for info in infos],
                block=[self._size(info.workgroup_size) for info in infos],
                moved=[NO_ID] * len(infos),
            )  # fmt: skip
        ways = [self.texts[f"memory copy to {end}"] for end in ("host", "device")]
        for copies in self._chunks(records.memory_copy):
            inward = [copy.dst_agent_id.handle in gpus for copy in copies]
            handles = [
                copy.dst_agent_id.handle if to_device else copy.src_agent_id.handle
                for copy, to_device in zip(copies, inward, strict=True)
            ]
            self._take(
                copies, calls, "memcpy", [(ways[to_device], ways[to_device]) for to_device in inward],
                device=[nodes.get(handle, handle) for handle in handles],
                queue=[NO_ID] * len(copies),
                grid=[0] * len(copies),
                block=[0] * len(copies),
                moved=[copy.bytes for copy in copies],
            )  # fmt: skip

    def _chunks(self, records: list[_Record]) -> Iterator[list[_Record]]:
        """The records with usable times, some thousands at a time; the others are counted."""
        records.reverse()
        while records:
            chunk = records[: -_CHUNK - 1 : -1]
            del records[-_CHUNK:]
            good = [record for record in chunk if _timed(record)]
            self.dropped += len(chunk) - len(good)
            yield good

    def _take(
        self, records: Sequence[_Dispatch | _Copy], calls: _Calls, kind: str, labels: list[tuple[int, int]], *,
        device: list[int], queue: list[int], grid: list[int], block: list[int], moved: list[int],
    ) -> None:  # fmt: skip
        number = _signed([record.correlation_id.internal for record in records])
        call = last_rows(calls.number, number)  # -1: the appended element
        self.table.add(
            [KINDS.index(kind)] * len(records), [name for name, _ in labels], [full for _, full in labels],
            _signed(device), _signed(queue), _signed([record.stream_id.handle for record in records]),
            [record.start_timestamp for record in records], [record.end_timestamp for record in records],
            number, grid, block, _signed(moved), calls.name[call], calls.start[call],
        )  # fmt: skip
        self.kept += len(records)

    def _names(self, symbol: _Symbol) -> tuple[int, int]:
        full = symbol.formatted_kernel_name or symbol.kernel_name or f"kernel {symbol.kernel_id}"
        return self.texts[symbol.truncated_kernel_name or full], self.texts[full]

    def _size(self, size: _Size) -> int:
        return self.texts[f"{size.x},{size.y},{size.z}"]

    def _calls(self, process: _Process) -> _Calls:
        """Number, name and start of each HIP call."""
        domains = [domain.operations for domain in process.strings.buffer_records]
        table = Table("number", "name", "start")
        for calls in self._chunks_of_calls(process.buffer_records.hip_api):
            table.add(
                _signed([call.correlation_id.internal for call in calls]),
                [self.texts[_operation(domains, call)] for call in calls],
                [call.start_timestamp for call in calls],
            )
        columns = table.whole()
        return _Calls(columns["number"], np.append(columns["name"], 0), np.append(columns["start"], NO_TIME))

    def _chunks_of_calls(self, records: list[_Call]) -> Iterator[list[_Call]]:
        for start in range(0, len(records), _CHUNK):
            yield [call for call in records[start : start + _CHUNK] if usable_stamp(call.start_timestamp)]


class _Calls(NamedTuple):
    """Calls by row; ``name`` and ``start`` have one element more, for "no call"."""

    number: Ints
    name: Ints
    start: Ints


def _operation(domains: list[list[str]], call: _Call) -> str:
    known = 0 <= call.kind < len(domains) and 0 <= call.operation < len(domains[call.kind])
    return domains[call.kind][call.operation] if known else "hip call"


def _signed(numbers: list[int]) -> Ints:
    return np.array([signed64(number) for number in numbers], dtype=np.int64)


def _timed(record: _Dispatch | _Copy) -> bool:
    return usable_stamp(record.start_timestamp) and usable_stamp(record.end_timestamp)
