"""The records every reader fills and every analysis reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

NO_ID = -1
KINDS = ("kernel", "memcpy", "memset")

COLUMNS: dict[str, str] = {
    "name": "name as the profiler shows it (categorical)",
    "full_name": "name with its template arguments when the profiler also has a short one (categorical)",
    "kind": "kernel, memcpy or memset (categorical)",
    "device": "device number as the profiler wrote it",
    "stream": "stream (CUDA, HIP) or queue when the file has no streams",
    "queue": "hardware queue, -1 when the file does not tell",
    "start_ns": "start in nanoseconds after the trace's origin (int64, exact)",
    "dur_ns": "duration in nanoseconds (int64, exact)",
    "start_us": "start in microseconds after the trace's origin",
    "dur_us": "duration in microseconds",
    "correlation": "correlation number of the launch, -1 when there is none",
    "linked": "the file holds the launch event with this correlation",
    "graph": "that launch is a graph launch",
    "launch": "name of the launch call, empty when unlinked (categorical)",
    "launch_ns": "start of the launch call in nanoseconds after the origin, int64 minimum when unlinked",
    "grid": "grid as 'x,y,z', empty when not recorded (categorical)",
    "block": "block as 'x,y,z', empty when not recorded (categorical)",
    "op": "framework operation that launched it, empty when unknown (categorical)",
    "shapes": "input shapes of that operation as JSON text, empty when unknown (categorical)",
    "dtypes": "input types of that operation as JSON text, empty when unknown (categorical)",
    "bytes": "bytes moved as the profiler wrote them (copies), -1 when unknown",
}
"""Columns of ``Trace.kernels`` and what each holds."""

NO_TIME = np.iinfo(np.int64).min
MAX_NS = 2**61
"""Largest time stamp taken from a file (73 years): differences and ends stay inside 64 bits."""


def usable_stamp(value: int) -> bool:
    """Whether a time stamp in nanoseconds is one a profiler may have written."""
    return -MAX_NS <= value <= MAX_NS


def signed64(number: int) -> int:
    """A handle of up to 64 bits as a signed number; ``NO_ID`` for anything larger."""
    if not -(2**63) <= number < 2**64:
        return NO_ID
    return number - 2**64 if number >= 2**63 else number


@dataclass(frozen=True)
class TraceWarning:
    """Something about the input a reader must know; ``count`` is how many events it concerns."""

    code: str
    text: str
    count: int = 0

    def to_json(self) -> dict[str, Any]:
        """The form of the command line."""
        return {"code": self.code, "text": self.text, "count": self.count}


@dataclass(frozen=True)
class EventCounts:
    """What became of every event of the file.

    ``events`` counts all events met; ``dropped`` those that could not be read at all; ``repaired``
    those read after a repair; ``excluded`` GPU events that were read but cannot be true.
    """

    events: int = 0
    dropped: int = 0
    repaired: int = 0
    excluded: int = 0


@dataclass(frozen=True)
class Trace:
    """One profile as a table of GPU activities.

    Attributes:
        label: file name without its folder.
        format: "kineto", "rocprofv3-csv", "rocprofv3-json", "rocpd" or "nsys".
        kernels: kernels, copies and sets in start order per device; columns in ``COLUMNS``.
        excluded: activities that cannot be true, with the same columns and ``reason``.
        steps: annotated steps: ``name``, ``start_ns``, ``dur_ns``.
        devices: device number to device name; ``None`` when the file does not tell.
        meta: what the file says about itself (versions, backend, record_shapes, ...).
        counts: what became of the events.
        warnings: what a reader of any table must know.
    """

    label: str
    format: str
    kernels: pd.DataFrame
    excluded: pd.DataFrame
    steps: pd.DataFrame
    devices: Mapping[int, str | None] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    counts: EventCounts = field(default_factory=EventCounts)
    warnings: Sequence[TraceWarning] = ()

    def only_kernels(self) -> pd.DataFrame:
        """The rows that are kernels, without copies and sets; picked once, so not to be written to."""
        return self._only_kernels

    @cached_property
    def _only_kernels(self) -> pd.DataFrame:
        return self.kernels[self.kernels["kind"] == "kernel"]


CATEGORICAL = ("name", "full_name", "kind", "launch", "grid", "block", "op", "shapes", "dtypes")


def activity_table(
    columns: Mapping[str, Sequence[Any] | np.ndarray[Any, Any] | pd.Categorical[Any]], size: int
) -> pd.DataFrame:
    """A table with every column of ``COLUMNS`` from those given; the others get their "unknown".

    Args:
        columns: arrays, lists or categoricals of ``size`` values by column name (``start_us``, ``dur_us`` are derived).
        size: number of rows.

    Returns:
        Rows sorted by device, start, longer first; a fresh index.
    """
    data: dict[str, Any] = {}
    for column in COLUMNS:
        if column in ("start_us", "dur_us"):
            data[column] = np.asarray(columns[column.replace("_us", "_ns")], dtype=np.int64) / 1000.0
        elif column in CATEGORICAL:
            values = columns.get(column, columns["name"] if column == "full_name" else None)
            data[column] = categorical([""] * size if values is None else values)
        elif column in ("linked", "graph"):
            data[column] = np.asarray(columns.get(column, np.zeros(size, dtype=bool)), dtype=bool)
        else:
            unknown = NO_TIME if column == "launch_ns" else NO_ID
            data[column] = np.asarray(columns.get(column, np.full(size, unknown)), dtype=np.int64)
    frame = pd.DataFrame(data, columns=list(COLUMNS))
    order = np.lexsort(
        (-frame["dur_ns"].to_numpy(), frame["start_ns"].to_numpy(), frame["device"].to_numpy())
    )
    if (np.diff(order) == 1).all():  # a copy of a long trace is not free
        return frame
    return frame.iloc[order].reset_index(drop=True)


def categorical(values: Sequence[Any] | np.ndarray[Any, Any] | pd.Categorical) -> pd.Categorical:
    """Text values as a categorical column with the categories in order of appearance."""
    if isinstance(values, pd.Categorical):
        return values
    codes, names = pd.factorize(np.asarray(values, dtype=object))
    return pd.Categorical.from_codes(codes, categories=pd.Index(names, dtype=object))


def steps_table(steps: Sequence[tuple[str, int, int]] = ()) -> pd.DataFrame:
    """Annotated steps in order: name, start_ns, dur_ns."""
    ordered = sorted(steps, key=lambda step: step[1])
    return pd.DataFrame(
        {
            "name": np.array([name for name, _, _ in ordered], dtype=object),
            "start_ns": np.array([start for _, start, _ in ordered], dtype=np.int64),
            "dur_ns": np.array([duration for _, _, duration in ordered], dtype=np.int64),
        }
    )


def distinct_rows(
    table: pd.DataFrame, columns: Sequence[str]
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]:
    """A number per row that is equal for rows equal in some columns, and the first row of each number.

    Numbers count from 0 in order of appearance.
    """
    group = np.zeros(len(table), dtype=np.int64)
    for column in columns:
        values = table[column]
        codes = (
            values.cat.codes.to_numpy().astype(np.int64)
            if isinstance(values.dtype, pd.CategoricalDtype)
            else pd.factorize(values.to_numpy())[0].astype(np.int64)
        )
        width = int(codes.max(initial=0)) + 2
        group = pd.factorize(group * width + codes + 1)[0].astype(np.int64)
    return group, np.unique(group, return_index=True)[1].astype(np.int64)


def lanes(table: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number per row for what runs one after another: the hardware queue when known, else the stream."""
    queue = table["queue"].to_numpy()
    numbers = (table["device"].to_numpy(), queue == NO_ID, np.where(queue == NO_ID, table["stream"], queue))
    lane = np.zeros(len(table), dtype=np.int64)
    for values in numbers:
        codes, distinct = pd.factorize(values)
        lane = pd.factorize(lane * max(len(distinct), 1) + codes)[0].astype(np.int64)
    return lane
