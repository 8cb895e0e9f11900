"""Reader of rocprofv3 kernel and copy CSV of every ROCm version."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rcatools.errors import InputError, UnsafeInputError
from rcatools.trace.columns import Codes, Ints, Table
from rcatools.trace.model import (
    MAX_NS,
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
from rcatools.trace.sanity import exclusion_warnings, separate_impossible
from rcatools.trace.stream import DEFAULT_LIMITS, ByteSource, Limits
from rcatools.units import counted

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
_IDS = ("queue", "stream", "correlation", "bytes")
_CHUNK_ROWS = 1 << 14
csv.field_size_limit(1 << 20)


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
    rows = _Rows(columns, is_copy)
    for chunk in rows.chunks(reader):
        rows.add(chunk)
    found, texts = rows.table.whole(), rows.texts
    starts = found["start"]
    origin = int(starts.min()) if starts.size else 0
    names = texts.categorical(found["name"])
    table = activity_table(
        {
            "name": names,
            "full_name": names,
            "kind": pd.Categorical.from_codes(
                np.zeros(starts.size, dtype=np.int8),
                categories=pd.Index(["memcpy" if is_copy else "kernel"], dtype=object),
            ),
            "device": found["agent"],
            "stream": found["stream"] if "stream" in columns else found["queue"],
            "queue": found["queue"],
            "start_ns": starts - origin,
            "dur_ns": found["end"] - starts,
            "correlation": found["correlation"],
            "grid": texts.categorical(found["grid"]),
            "block": texts.categorical(found["block"]),
            "bytes": found["bytes"],
        },
        starts.size,
    )
    kept, excluded = separate_impossible(table, None)
    warnings = [no_launches(len(kept))] if len(kept) else [NO_GPU]
    if rows.dropped:
        warnings.append(
            TraceWarning(
                "dropped_events",
                f"left out, without a usable time: {counted(rows.dropped, 'row')}",
                rows.dropped,
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
        whole, line_end, rest = block.rpartition(b"\n")
        if not line_end:
            pending += block
        else:
            yield from _text_lines(pending + whole + line_end)
            pending = rest
        if len(pending) > source.limits.max_event_bytes:
            raise UnsafeInputError(
                f"{source.path.name}: one line is longer than {source.limits.max_event_bytes:,} bytes; "
                "this is no profiler's CSV"
            )
    yield from _text_lines(pending)


def _text_lines(lines: bytes) -> Iterator[str]:
    return iter(io.StringIO(lines.replace(b"\0", b"").decode("utf-8", "replace"), newline="\n"))


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


class _Ids(dict[str, int]):
    """The number at the end of "4", "Agent 4" or "GPU 0"; ``NO_ID`` when there is none."""

    def __missing__(self, text: str) -> int:
        found = _NUMBER.search(text)
        number = self[text] = signed64(int(found[1])) if found else NO_ID
        return number


class _Rows:
    """The rows of a CSV as columns of numbers, grown chunk by chunk; counts those that could not be used."""

    def __init__(self, columns: Mapping[str, int], is_copy: bool) -> None:
        self._columns, self._is_copy = columns, is_copy
        self._width = max(columns.values()) + 1
        self.table = Table("name", "start", "end", "agent", *_IDS, "grid", "block")
        self.texts = Codes()
        self.dropped = self.total = 0

    def chunks(self, reader: Iterator[list[str]]) -> Iterator[list[list[str]]]:
        """Rows of the file, some thousands at a time; those that are no CSV are counted."""
        chunk: list[list[str]] = []
        while True:
            try:
                chunk += islice(reader, _CHUNK_ROWS - len(chunk))
            except csv.Error:
                self.total, self.dropped = self.total + 1, self.dropped + 1
                continue
            if not chunk:
                return
            yield [row for row in chunk if row]
            chunk = []

    def add(self, rows: list[list[str]]) -> None:
        """Take a chunk of rows."""
        self.total += len(rows)
        for row in rows:
            if len(row) < self._width:
                row.extend([""] * (self._width - len(row)))
        start, end = self._times(rows, "start"), self._times(rows, "end")
        if "duration" in self._columns:
            duration = self._times(rows, "duration")
            lacking = (end == NO_TIME) & (start != NO_TIME) & (duration != NO_TIME)
            end[lacking] = start[lacking] + duration[lacking]
        good = (start != NO_TIME) & (end != NO_TIME)
        if not good.all():
            self.dropped += int((~good).sum())
            rows = [row for row, usable in zip(rows, good, strict=True) if usable]
            start, end = start[good], end[good]
        names = self._cells(rows, "name")
        agent = self._numbers(rows, "agent")
        if self._is_copy:
            directions = self._cells(rows, "direction")
            names = [direction or name for direction, name in zip(directions, names, strict=True)]
            to_host = [text.upper().endswith(("DEVICE_TO_HOST", "DTOH")) for text in directions]
            agent = np.where(np.array(to_host, dtype=bool), self._numbers(rows, "source_agent"), agent)
        self.table.add(
            self.texts.of(names), start, end, agent, *(self._numbers(rows, what) for what in _IDS),
            self._sizes(rows, "grid"), self._sizes(rows, "block"),
        )  # fmt: skip

    def _cells(self, rows: list[list[str]], meaning: str) -> list[str]:
        at = self._columns.get(meaning)
        return [""] * len(rows) if at is None else [row[at] for row in rows]

    def _times(self, rows: list[list[str]], meaning: str) -> Ints:
        """Whole nanoseconds; ``NO_TIME`` for what is no usable time."""
        cells = self._cells(rows, meaning)
        try:
            values = np.array(list(map(int, cells)), dtype=np.int64)
        except (ValueError, OverflowError):
            values = np.array([_whole(cell) for cell in cells], dtype=np.int64)
        values[(values > MAX_NS) | (values < -MAX_NS)] = NO_TIME
        return values

    def _numbers(self, rows: list[list[str]], meaning: str) -> Ints:
        if meaning not in self._columns:
            return np.full(len(rows), NO_ID, dtype=np.int64)
        cells = self._cells(rows, meaning)
        try:
            return np.array(list(map(int, cells)), dtype=np.int64)
        except (ValueError, OverflowError):
            ids = _Ids()
            return np.array([ids[cell] for cell in cells], dtype=np.int64)

    def _sizes(self, rows: list[list[str]], what: str) -> list[int]:
        """Numbers of the texts 'x,y,z' of the parts that the file has."""
        axes = [at for axis in "xyz" if (at := self._columns.get(f"{what}_{axis}")) is not None]
        if not axes:
            return [0] * len(rows)
        return self.texts.of([",".join([row[at] for at in axes if row[at]]) for row in rows])


def _whole(text: str) -> int:
    """A time in whole nanoseconds; ``NO_TIME`` when it is none."""
    try:
        value = int(text)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            return NO_TIME
        if not np.isfinite(number):
            return NO_TIME
        value = round(number)
    return value if usable_stamp(value) else NO_TIME


def _csv_device_names(path: Path, devices: Iterable[Any]) -> dict[int, str | None]:
    names: dict[int, str | None] = {int(device): None for device in devices}
    prefix = re.sub(r"(kernel|memory_copy)_trace\.csv(\.gz)?$", "", path.name)
    info = path.with_name(prefix + "agent_info.csv")
    if prefix == path.name or not info.is_file() or info.stat().st_size > 1 << 20:
        return names
    for row in csv.DictReader(io.StringIO(info.read_text("utf-8", "replace"))):
        lowered = {_plain(key): value for key, value in row.items() if key and isinstance(value, str)}
        number = _Ids()[lowered.get("nodeid", "")]
        if number in names and lowered.get("agenttype", "").upper() == "GPU":
            names[number] = lowered.get("productname") or lowered.get("name") or None
    return names
