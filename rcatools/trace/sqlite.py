"""Readers of profiler databases: rocprofv3's rocpd and Nsight Systems' SQLite export. Opened read-only."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from rcatools.errors import InputError, UnsafeInputError
from rcatools.trace.model import (
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

SQLITE_MAGIC = b"SQLite format 3\0"
_NO_GPU = "the database holds no kernel table: no kernel was captured"
Wanted = Sequence[str | tuple[str, ...]]
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


class _Columns:
    """Activity columns as they grow."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.dropped = 0

    NAMES = (
        "name", "full_name", "kind", "device", "stream", "queue", "start_ns", "dur_ns", "correlation", "linked",
        "graph", "launch", "launch_ns", "grid", "block", "bytes",
    )  # fmt: skip

    def add(self, **values: Any) -> None:
        start, end = values.pop("start"), values.pop("end")
        if not (
            isinstance(start, int) and isinstance(end, int) and usable_stamp(start) and usable_stamp(end)
        ):
            self.dropped += 1
            return
        unknown = {
            "linked": False,
            "graph": False,
            "launch": "",
            "launch_ns": NO_TIME,
            "grid": "",
            "block": "",
        }
        values |= {"start_ns": start, "dur_ns": end - start}
        values.setdefault("full_name", values["name"])
        self.rows.append(tuple(values.get(name, unknown.get(name, NO_ID)) for name in self.NAMES))

    def trace(
        self, path: Path, form: str, devices: dict[int, str | None], warnings: list[TraceWarning]
    ) -> Trace:
        columns: dict[str, Any] = dict(
            zip(self.NAMES, map(list, zip(*self.rows, strict=True)), strict=True)
            if self.rows
            else ((name, []) for name in self.NAMES)
        )
        starts = np.array(columns["start_ns"], dtype=np.int64)
        origin = int(starts.min()) if starts.size else 0
        launch = np.array(columns["launch_ns"], dtype=np.int64)
        columns |= {
            "start_ns": starts - origin,
            "launch_ns": np.where(launch == NO_TIME, NO_TIME, launch - origin),
        }
        table = activity_table(columns, len(self.rows))
        kept, excluded = separate_impossible(table, None)
        if not self.rows:
            warnings = [TraceWarning("no_gpu_events", _NO_GPU), *warnings]
        if self.dropped:
            warnings.append(
                TraceWarning(
                    "dropped_events",
                    f"{self.dropped} rows have no usable time or no name and were left out",
                    self.dropped,
                )
            )
        used = sorted({int(device) for device in table["device"].unique()})
        return Trace(
            label=path.name,
            format=form,
            kernels=kept,
            excluded=excluded,
            steps=steps_table(),
            devices={device: devices.get(device) for device in used},
            meta={"backend": "rocm" if form == "rocpd" else "cuda", "origin_ns": origin},
            counts=EventCounts(
                events=len(self.rows) + self.dropped, dropped=self.dropped, excluded=len(excluded)
            ),
            warnings=tuple(warnings + exclusion_warnings(excluded)),
        )


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


def _int(value: Any) -> int:
    return value if isinstance(value, int) else NO_ID


def _read_nsys(path: Path, database: sqlite3.Connection, names: set[str]) -> Trace:
    texts: dict[Any, str] = {}
    if "StringIds" in names:
        texts = {key: str(value) for key, value in _select(database, "StringIds", ("id", "value"))}
    calls: dict[int, tuple[str, int]] = {}
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in names:
        wanted: Wanted = ("correlationId", "nameId", "start")
        for number, name, start in _select(database, "CUPTI_ACTIVITY_KIND_RUNTIME", wanted):
            calls[_int(number)] = (re.sub(r"_v\d+$", "", texts.get(name, "")), _int(start))
    columns = _Columns()

    def launch(number: Any, graph: Any) -> dict[str, Any]:
        name, start = calls.get(_int(number), ("", NO_TIME))
        by_graph = "graphlaunch" in name.lower() or isinstance(graph, int)
        return {"linked": bool(name), "graph": bool(name) and by_graph, "launch": name, "launch_ns": start}

    if "CUPTI_ACTIVITY_KIND_KERNEL" in names:
        wanted = ("start", "end", "deviceId", "streamId", "correlationId", "shortName", "demangledName", "graphId",
                  "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")  # fmt: skip
        for row in _select(database, "CUPTI_ACTIVITY_KIND_KERNEL", wanted):
            start, end, device, stream, number, short, full, graph, *sizes = row
            name = texts.get(full) or texts.get(short) or "unnamed kernel"
            known = all(isinstance(size, int) for size in sizes)
            columns.add(
                start=start, end=end, name=name, kind="kernel", device=_int(device), stream=_int(stream),
                correlation=_int(number), grid="{},{},{}".format(*sizes[:3]) if known else "",
                block="{},{},{}".format(*sizes[3:]) if known else "", **launch(number, graph),
            )  # fmt: skip
    for table, kind in (("CUPTI_ACTIVITY_KIND_MEMCPY", "memcpy"), ("CUPTI_ACTIVITY_KIND_MEMSET", "memset")):
        if table not in names:
            continue
        wanted = (
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "bytes",
            "copyKind",
            "graphId",
        )
        for start, end, device, stream, number, size, copy, graph in _select(database, table, wanted):
            label = "Memset" if kind == "memset" else f"Memcpy {_COPY_KINDS.get(copy, '')}".strip()
            columns.add(
                start=start, end=end, name=label, kind=kind, device=_int(device), stream=_int(stream),
                correlation=_int(number), bytes=_int(size), **launch(number, graph),
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
    return columns.trace(path, "nsys", devices, warnings)


def _read_rocpd(path: Path, database: sqlite3.Connection, names: set[str]) -> Trace:
    columns = _Columns()
    calls: dict[int, tuple[str, int]] = {}
    if "regions" in names:
        for number, name, start in _select(database, "regions", ("stack_id", "name", "start")):
            if isinstance(number, int) and str(name).startswith("hip"):
                calls[number] = (str(name), _int(start))
    if "kernels" in names:
        wanted: Wanted = (
            "name", "start", "end", ("agent_abs_index", "agent_id"), "stream_id", "queue_id", ("stack_id", "correlation_id"),
            "grid_x", "grid_y", "grid_z", "workgroup_x", "workgroup_y", "workgroup_z",
        )  # fmt: skip
        for name, start, end, device, stream, queue, number, *sizes in _select(database, "kernels", wanted):
            known = all(isinstance(size, int) for size in sizes)
            launch, launched = calls.get(_int(number), ("", NO_TIME))
            columns.add(
                start=start, end=end, name=str(name or "unnamed kernel"), kind="kernel", device=_int(device),
                stream=_int(stream), queue=_int(queue), correlation=_int(number), linked=bool(launch),
                graph="graphlaunch" in launch.lower(), launch=launch, launch_ns=launched,
                grid="{},{},{}".format(*sizes[:3]) if known else "", block="{},{},{}".format(*sizes[3:]) if known else "",
            )  # fmt: skip
    if "memory_copies" in names:
        wanted = ("name", "start", "end", "dst_agent_abs_index", "src_agent_abs_index", "dst_agent_type", "stream_id",
                  "queue_id", "stack_id", "size")  # fmt: skip
        for name, start, end, target, source, kind, stream, queue, number, size in _select(
            database, "memory_copies", wanted
        ):
            launch, launched = calls.get(_int(number), ("", NO_TIME))
            columns.add(
                start=start, end=end, name=str(name or "memory copy"), kind="memcpy",
                device=_int(source) if kind == "CPU" else _int(target), stream=_int(stream), queue=_int(queue),
                correlation=_int(number), bytes=_int(size), linked=bool(launch), launch=launch, launch_ns=launched,
            )  # fmt: skip
    _check_dispatches(path, database, names, columns)
    devices: dict[int, str | None] = {}
    agents = next((name for name in sorted(names) if name.startswith("rocpd_info_agent")), None)
    if agents is not None:
        rows = _select(database, agents, ("absolute_index", ("product_name", "name"), "type"))
        devices = {_int(number): str(name) for number, name, kind in rows if kind == "GPU" and name}
    warnings = []
    if columns.rows and not calls:
        warnings.append(
            TraceWarning(
                "no_launch_events",
                "the database holds no HIP calls: no kernel can be linked",
                len(columns.rows),
            )
        )
    return columns.trace(path, "rocpd", devices, warnings)


def _check_dispatches(path: Path, database: sqlite3.Connection, names: set[str], columns: _Columns) -> None:
    """Count dispatches that the view ``kernels`` leaves out because a joined row is missing."""
    tables = sorted(name for name in names if re.fullmatch(r"rocpd_kernel_dispatch.*", name))
    if not tables:
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
    columns.dropped += max(
        dispatched - sum(1 for row in columns.rows if row[2] == "kernel") - columns.dropped, 0
    )
