"""Readers of profiler databases: rocprofv3's rocpd and Nsight Systems' SQLite export. Opened read-only."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from rcatools.errors import InputError, UnsafeInputError
from rcatools.trace.columns import Codes, Ints, Table, last_rows
from rcatools.trace.model import (
    KINDS,
    NO_ID,
    NO_TIME,
    EventCounts,
    Trace,
    TraceWarning,
    activity_table,
    steps_table,
    usable_stamp,
)
from rcatools.trace.sanity import exclusion_warnings, separate_impossible
from rcatools.trace.stream import DEFAULT_LIMITS, Limits
from rcatools.units import counted

SQLITE_MAGIC = b"SQLite format 3\0"
_NO_GPU = "the database holds no kernel table: no kernel was captured"
Wanted = Sequence[str | tuple[str, ...]]
_CHUNK_ROWS = 1 << 14
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}


def read_sqlite(path: Path, limits: Limits = DEFAULT_LIMITS) -> Trace:
    """Read a rocpd or nsys database.

    Raises:
        InputError: neither of the two, or damaged.
        UnsafeInputError: larger than the limits allow.
    """
    if path.stat().st_size > limits.max_bytes:
        raise UnsafeInputError(f"{path.name}: larger than {limits.max_bytes:,} bytes (limit max_bytes)")
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
        ) as database:
            names = {str(name) for (name,) in database.execute("SELECT name FROM sqlite_master")}
            if "StringIds" in names or any(name.startswith("CUPTI_ACTIVITY_KIND") for name in names):
                return _read_nsys(path, database, names)
            if any(name.startswith("rocpd_") for name in names):
                return _read_rocpd(path, database, names)
    except sqlite3.Error as error:
        raise InputError(
            f"{path.name}: cannot be read as a profiler database ({error}); export it again"
        ) from error
    raise InputError(
        f"{path.name}: a database, but neither rocpd nor nsys; give one of these or a JSON or CSV trace"
    )


class _Activities:
    """Activities and calls of a database as columns of numbers, grown chunk by chunk."""

    def __init__(self) -> None:
        self.table = Table(
            "kind", "name", "start", "end", "device", "stream", "queue", "number", "by_graph", "bytes", "grid", "block"
        )  # fmt: skip
        self.calls = Table("number", "name", "start")
        self.texts = Codes()
        self.kernels = self.activities = self.called = self.dropped = 0

    def add_calls(self, number: Ints, name: Sequence[int], start: Ints) -> None:
        """Take calls that may have launched something; of calls with one number the last counts."""
        self.called += len(number)
        self.calls.add(number, name, start)

    def add(
        self, kind: str, name: Sequence[int], times: tuple[Ints, Ints], **numbers: Ints | list[int]
    ) -> None:
        """Take activities of one kind; those without usable times are counted and left out."""
        start, end = times
        good = (start != NO_TIME) & (end != NO_TIME)
        self.dropped += int((~good).sum())
        unknown = {"by_graph": 0, "grid": 0, "block": 0}
        rest = [
            np.asarray(numbers.get(column, np.full(start.size, unknown.get(column, NO_ID))), dtype=np.int64)[
                good
            ]
            for column in self.table.columns[4:]
        ]
        count = int(good.sum())
        self.table.add(
            np.full(count, KINDS.index(kind)),
            np.asarray(name, dtype=np.int64)[good],
            start[good],
            end[good],
            *rest,
        )
        self.activities += count
        self.kernels += count if kind == "kernel" else 0

    def trace(
        self, path: Path, form: str, devices: dict[int, str | None], warnings: list[TraceWarning]
    ) -> Trace:
        """The trace of everything that was taken."""
        rows, calls, texts = self.table.whole(), self.calls.whole(), self.texts
        size, starts = self.activities, rows["start"]
        origin = int(starts.min()) if size else 0
        call = last_rows(calls["number"], rows["number"])  # -1: the appended element
        launch, launch_ns = np.append(calls["name"], 0)[call], np.append(calls["start"], NO_TIME)[call]
        names = texts.categorical(rows["name"])
        table = activity_table(
            {
                "name": names,
                "full_name": names,
                "kind": pd.Categorical.from_codes(rows["kind"], categories=pd.Index(KINDS, dtype=object)),
                "device": rows["device"],
                "stream": rows["stream"],
                "queue": rows["queue"],
                "start_ns": starts - origin,
                "dur_ns": rows["end"] - starts,
                "correlation": rows["number"],
                "linked": launch != 0,
                "graph": (launch != 0) & (texts.where(launch, _is_graph_launch) | (rows["by_graph"] != 0)),
                "launch": texts.categorical(launch),
                "launch_ns": np.where(launch_ns == NO_TIME, NO_TIME, launch_ns - origin),
                "grid": texts.categorical(rows["grid"]),
                "block": texts.categorical(rows["block"]),
                "bytes": rows["bytes"],
            },
            size,
        )
        kept, excluded = separate_impossible(table, None)
        if not size:
            warnings = [TraceWarning("no_gpu_events", _NO_GPU), *warnings]
        if self.dropped:
            text = f"left out, without a usable time or a name: {counted(self.dropped, 'row')}"
            warnings.append(TraceWarning("dropped_events", text, self.dropped))
        used = sorted({int(device) for device in table["device"].unique()})
        return Trace(
            label=path.name,
            format=form,
            kernels=kept,
            excluded=excluded,
            steps=steps_table(),
            devices={device: devices.get(device) for device in used},
            meta={"backend": "rocm" if form == "rocpd" else "cuda", "origin_ns": origin},
            counts=EventCounts(events=size + self.dropped, dropped=self.dropped, excluded=len(excluded)),
            warnings=tuple(warnings + exclusion_warnings(excluded)),
        )


def _is_graph_launch(name: str) -> bool:
    return "graphlaunch" in name.lower()


def _fields(database: sqlite3.Connection, table: str) -> dict[str, str]:
    """Columns of a table or view, lower-cased name to the name itself."""
    quoted = table.replace('"', '""')
    return {str(row[1]).lower(): str(row[1]) for row in database.execute(f'PRAGMA table_info("{quoted}")')}


def _select(database: sqlite3.Connection, table: str, wanted: Wanted) -> sqlite3.Cursor:
    """Rows of a table with the wanted columns; a tuple names alternatives; missing ones are NULL."""
    fields = _fields(database, table)
    chosen = []
    for want in wanted:
        spellings = (want,) if isinstance(want, str) else want
        there = next((fields[s.lower()] for s in spellings if s.lower() in fields), None)
        chosen.append("NULL" if there is None else '"' + there.replace('"', '""') + '"')
    quoted = table.replace('"', '""')
    return database.execute(f'SELECT {", ".join(chosen)} FROM "{quoted}"')


def _chunks(cursor: sqlite3.Cursor) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a cursor as columns, some thousands of rows at a time."""
    while rows := cursor.fetchmany(_CHUNK_ROWS):
        yield list(zip(*rows, strict=True))


def _int(value: Any) -> int:
    return value if isinstance(value, int) else NO_ID


def _ints(values: Sequence[Any]) -> Ints:
    return np.array([_int(value) for value in values], dtype=np.int64)


def _stamps(values: Sequence[Any]) -> Ints:
    """Whole nanoseconds; ``NO_TIME`` for what is no usable time."""
    return np.array(
        [value if isinstance(value, int) and usable_stamp(value) else NO_TIME for value in values],
        dtype=np.int64,
    )


def _sizes(texts: Codes, axes: Sequence[Sequence[Any]]) -> list[int]:
    """Numbers of the texts 'x,y,z'; 0 where a part is missing."""
    return [
        texts[f"{x},{y},{z}"] if type(x) is type(y) is type(z) is int else 0
        for x, y, z in zip(*axes, strict=True)
    ]


def _read_nsys(path: Path, database: sqlite3.Connection, names: set[str]) -> Trace:
    strings: dict[Any, str] = {}
    if "StringIds" in names:
        strings = {key: str(value) for key, value in _select(database, "StringIds", ("id", "value"))}
    found = _Activities()
    texts = found.texts
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in names:
        called = {key: re.sub(r"_v\d+$", "", text) for key, text in strings.items()}
        wanted: Wanted = ("correlationId", "nameId", "start")
        for number, name, start in _chunks(_select(database, "CUPTI_ACTIVITY_KIND_RUNTIME", wanted)):
            found.add_calls(_ints(number), texts.of(called.get(key, "") for key in name), _stamps(start))
    if "CUPTI_ACTIVITY_KIND_KERNEL" in names:
        wanted = ("start", "end", "deviceId", "streamId", "correlationId", "shortName", "demangledName", "graphId",
                  "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")  # fmt: skip
        for columns in _chunks(_select(database, "CUPTI_ACTIVITY_KIND_KERNEL", wanted)):
            start, end, device, stream, number, short, full, graph, *sizes = columns
            labels = [
                strings.get(long) or strings.get(brief) or "unnamed kernel"
                for long, brief in zip(full, short, strict=True)
            ]
            found.add(
                "kernel", texts.of(labels), (_stamps(start), _stamps(end)), device=_ints(device), stream=_ints(stream),
                number=_ints(number), by_graph=[int(isinstance(value, int)) for value in graph],
                grid=_sizes(texts, sizes[:3]), block=_sizes(texts, sizes[3:]),
            )  # fmt: skip
    for table, kind in (("CUPTI_ACTIVITY_KIND_MEMCPY", "memcpy"), ("CUPTI_ACTIVITY_KIND_MEMSET", "memset")):
        if table not in names:
            continue
        wanted = ("start", "end", "deviceId", "streamId", "correlationId", "bytes", "copyKind", "graphId")
        for start, end, device, stream, number, size, copy, graph in _chunks(
            _select(database, table, wanted)
        ):
            labels = [
                "Memset" if kind == "memset" else f"Memcpy {_COPY_KINDS.get(way, '')}".strip() for way in copy
            ]
            found.add(
                kind, texts.of(labels), (_stamps(start), _stamps(end)), device=_ints(device), stream=_ints(stream),
                number=_ints(number), by_graph=[int(isinstance(value, int)) for value in graph], bytes=_ints(size),
            )  # fmt: skip
    devices: dict[int, str | None] = {}
    if "TARGET_INFO_GPU" in names:
        gpus = dict(_select(database, "TARGET_INFO_GPU", ("id", "name")))
        devices = {_int(key): str(name) for key, name in gpus.items()}
        if "TARGET_INFO_CUDA_DEVICE" in names:
            for gpu, cuda in _select(database, "TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId")):
                if gpu in gpus:
                    devices[_int(cuda)] = str(gpus[gpu])
    warnings = []
    if "DIAGNOSTIC_EVENT" in names:
        severe = [
            str(text)
            for level, text in _select(database, "DIAGNOSTIC_EVENT", ("severity", "text"))
            if _int(level) >= 2
        ]
        if severe:
            said = re.sub(r"/\S+", "[path]", " ".join(" ".join(severe).split()))  # paths may name people
            warnings.append(
                TraceWarning("profiler_diagnostics", f"the profiler reported: {said[:400]}", len(severe))
            )
    return found.trace(path, "nsys", devices, warnings)


def _read_rocpd(path: Path, database: sqlite3.Connection, names: set[str]) -> Trace:
    found = _Activities()
    texts = found.texts
    if "regions" in names:
        for number, name, start in _chunks(_select(database, "regions", ("stack_id", "name", "start"))):
            labels, ids = list(map(str, name)), _ints(number)
            calls = (ids != NO_ID) & np.array([label.startswith("hip") for label in labels], dtype=bool)
            found.add_calls(
                ids[calls], np.array(texts.of(labels), dtype=np.int64)[calls], _stamps(start)[calls]
            )
    if "kernels" in names:
        wanted: Wanted = (
            "name", "start", "end", ("agent_abs_index", "agent_id"), "stream_id", "queue_id", ("stack_id", "correlation_id"),
            "grid_x", "grid_y", "grid_z", "workgroup_x", "workgroup_y", "workgroup_z",
        )  # fmt: skip
        for columns in _chunks(_select(database, "kernels", wanted)):
            name, start, end, device, stream, queue, number, *sizes = columns
            found.add(
                "kernel", texts.of(str(text or "unnamed kernel") for text in name), (_stamps(start), _stamps(end)),
                device=_ints(device), stream=_ints(stream), queue=_ints(queue), number=_ints(number),
                grid=_sizes(texts, sizes[:3]), block=_sizes(texts, sizes[3:]),
            )  # fmt: skip
    if "memory_copies" in names:
        wanted = ("name", "start", "end", "dst_agent_abs_index", "src_agent_abs_index", "dst_agent_type", "stream_id",
                  "queue_id", "stack_id", "size")  # fmt: skip
        for columns in _chunks(_select(database, "memory_copies", wanted)):
            name, start, end, target, source, kind, stream, queue, number, size = columns
            to_host = np.array([agent == "CPU" for agent in kind], dtype=bool)
            found.add(
                "memcpy", texts.of(str(text or "memory copy") for text in name), (_stamps(start), _stamps(end)),
                device=np.where(to_host, _ints(source), _ints(target)), stream=_ints(stream), queue=_ints(queue),
                number=_ints(number), bytes=_ints(size),
            )  # fmt: skip
    _check_dispatches(path, database, names, found)
    devices: dict[int, str | None] = {}
    agents = next((name for name in sorted(names) if name.startswith("rocpd_info_agent")), None)
    if agents is not None:
        rows = _select(database, agents, ("absolute_index", ("product_name", "name"), "type"))
        devices = {_int(number): str(name) for number, name, kind in rows if kind == "GPU" and name}
    warnings = []
    if found.activities and not found.called:
        text = "the database holds no HIP calls: no kernel can be linked"
        warnings.append(TraceWarning("no_launch_events", text, found.activities))
    return found.trace(path, "rocpd", devices, warnings)


def _check_dispatches(path: Path, database: sqlite3.Connection, names: set[str], found: _Activities) -> None:
    """Count dispatches that the view ``kernels`` leaves out because a joined row is missing."""
    tables = sorted(name for name in names if re.fullmatch(r"rocpd_kernel_dispatch.*", name))
    if not tables:
        if "rocpd_op" in names:
            raise InputError(
                f"{path.name}: an RPD database of rocmProfileData, which is not read; profile with rocprofv3"
            )
        return
    if "kernels" not in names:
        raise InputError(
            f"{path.name}: a rocpd database without its view 'kernels'; convert it with rocpd first"
        )
    plain = "rocpd_kernel_dispatch" in tables
    dispatched = 0
    for table in ["rocpd_kernel_dispatch"] if plain else tables:
        quoted = table.replace('"', '""')
        dispatched += int(database.execute(f'SELECT COUNT(*) FROM "{quoted}"').fetchone()[0])
    found.dropped += max(dispatched - found.kernels - found.dropped, 0)
