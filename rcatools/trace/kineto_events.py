"""GPU activities, launches, operations and steps picked out of kineto's events."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from rcatools.trace.columns import Codes, Ints, Table, last_rows, whole_number, whole_numbers
from rcatools.trace.event_records import AnyEvent, Args, Call, Event, Operation, Wanted
from rcatools.trace.model import KINDS, NO_ID, NO_TIME, usable_stamp

GPU_CATEGORIES = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
LAUNCH_CATEGORIES = {"cuda_runtime", "cuda_driver", "runtime", "driver"}
OPERATION_CATEGORIES = {"cpu_op", "operator"}
_SORTS = {
    **dict.fromkeys(GPU_CATEGORIES, "gpu"),
    **dict.fromkeys(LAUNCH_CATEGORIES, "launch"),
    **dict.fromkeys(OPERATION_CATEGORIES, "operation"),
    "user_annotation": "annotation",
}
_RECORDS: dict[str, type[Event] | type[Call] | type[Operation]] = {
    "gpu": Event,
    "annotation": Event,
    "launch": Call,
    "operation": Operation,
}
READ_CATEGORIES: Wanted = {category: _RECORDS[sort] for category, sort in _SORTS.items()}
"""Categories, lower case, that hold something of use, and the records to read them as."""
STEP_NAME = re.compile(
    r"^(ProfilerStep#\d+|(?:.*\b)?(?:step|iter(?:ation)?)[\s_#:\[]*.*\d.*)$", re.IGNORECASE
)
_LONGEST_TIME = 32  # characters kept of an operation's time; profilers write up to 20
_NO_ARGS = Args()


def time_ns(text: bytes) -> int | None:
    """Microseconds as JSON text to whole nanoseconds, exactly; None when it is no finite number.

    Numbers written as strings are accepted.
    """
    whole, _, fraction = text.partition(b".")
    try:
        if len(fraction) == 3 and len(whole) < 16 and fraction.isdigit():  # as profilers write them
            return int(whole + fraction)
        if not fraction:
            return _in_64_bits(int(whole) * 1000)
    except ValueError:
        pass
    try:
        value = Decimal(text.strip().strip(b'"').decode())
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not value.is_finite() or value.adjusted() > 18:
        return None
    return _in_64_bits(int((value * 1000).to_integral_value()))


def _in_64_bits(value: int) -> int | None:
    return value if -(2**63) < value < 2**63 else None


def _stamp(text: bytes) -> int:
    """A usable time stamp in nanoseconds; ``NO_TIME`` when it is none."""
    value = time_ns(text)
    return NO_TIME if value is None or not usable_stamp(value) else value


def _texts(raws: list[msgspec.Raw]) -> list[bytes]:
    """Raw JSON values as bytes; JSON holds no NUL, so they can be copied in one go."""
    return b"\0".join(raws).split(b"\0") if raws else []


class _Sorts(dict[str, str]):
    """The sort of a category as the file spells it; "" for one that is not read."""

    def __missing__(self, category: str) -> str:
        sort = self[category] = _SORTS.get(category.lower(), "")
        return sort


class Operations(NamedTuple):
    """Numbers of the texts of the operations of some kernels; 0 where a kernel has none."""

    name: Ints
    dims: Ints
    types: Ints


@dataclass
class Collector:
    """What is of use in the events, as it grows: a few numbers per event, and each distinct text once.

    ``activities`` and ``launches`` are in file order, times in nanoseconds, ``NO_ID`` where a number is not
    recorded. Names, shapes, types, grids and blocks are numbers of ``texts``. ``odd_names``: a part of the file
    looks as if its keys were spelled in another case.
    """

    activities: Table = field(
        default_factory=lambda: Table(
            "kind", "name", "start", "duration", "device", "stream", "correlation", "external", "moved", "grid", "block"
        )
    )  # fmt: skip
    launches: Table = field(default_factory=lambda: Table("number", "name", "start"))
    texts: Codes = field(default_factory=Codes)
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    host_end: int = NO_TIME
    host_start: int = -NO_TIME - 1
    host_events: int = 0
    events: int = 0
    gpu_events: int = 0
    bad_time: int = 0
    odd_names: bool = False
    _operations: Table = field(default_factory=lambda: Table("number", "name", "dims", "types"))
    _op_times: list[npt.NDArray[np.bytes_]] = field(default_factory=list)
    _sorts: _Sorts = field(default_factory=_Sorts)

    def add(self, part: list[Event]) -> None:
        """Take what is of use from a part of the file."""
        self.events += len(part)
        by_sort: dict[str, list[Event]] = {"gpu": [], "launch": [], "operation": [], "annotation": []}
        sorts = map(self._sorts.__getitem__, [event.cat for event in part])
        for event, sort in zip(part, sorts, strict=True):
            if sort and event.ph == "X":
                by_sort[sort].append(event)
        self.odd_names = self.odd_names or _odd_names(part, by_sort)
        self._add_activities(by_sort["gpu"])
        self._add_launches(by_sort["launch"])
        self._add_operations(by_sort["operation"])
        for event in by_sort["annotation"]:
            self._add_step(event)

    def _add_activities(self, events: list[Event]) -> None:
        starts = [_stamp(text) for text in _texts([event.ts for event in events])]
        durations = [time_ns(text) for text in _texts([event.dur for event in events])]
        good = [
            (event, start, duration)
            for event, start, duration in zip(events, starts, durations, strict=True)
            if start != NO_TIME and duration is not None
        ]
        self.bad_time += len(events) - len(good)
        self.gpu_events += len(good)
        kept = [event for event, _, _ in good]
        args = [event.args or _NO_ARGS for event in kept]
        device = whole_numbers([arg.device for arg in args])
        for row in np.flatnonzero(device == NO_ID):
            device[row] = whole_number(bytes(kept[row].pid))
        stream = whole_numbers([arg.stream for arg in args])
        for row in np.flatnonzero(stream == NO_ID):
            stream[row] = whole_number(bytes(kept[row].tid))
        self.activities.add(
            [KINDS.index(GPU_CATEGORIES[event.cat.lower()]) for event in kept],
            self.texts.of([event.name for event in kept]),
            [start for _, start, _ in good],
            [duration for _, _, duration in good],
            device,
            stream,
            whole_numbers([arg.correlation for arg in args]),
            whole_numbers(
                [arg.older_external_id if arg.external_id is None else arg.external_id for arg in args]
            ),
            whole_numbers([arg.bytes for arg in args]),
            self.texts.of(_texts([arg.grid for arg in args])),
            self.texts.of(_texts([arg.block for arg in args])),
        )

    def _add_launches(self, events: list[Event]) -> None:
        starts = [_stamp(text) for text in _texts([event.ts for event in events])]
        self.launches.add(
            whole_numbers([(event.args or _NO_ARGS).correlation for event in events]),
            self.texts.of([event.name for event in events]),
            starts,
        )
        if usable := [start for start in starts if start != NO_TIME]:
            self._host(min(usable), max(usable))

    def _add_operations(self, events: list[Event]) -> None:
        """Times stay text: few operations launch something, and only those are looked at later."""
        if not events:
            return
        args = [event.args or _NO_ARGS for event in events]
        self._operations.add(
            whole_numbers([arg.external_id for arg in args]),
            self.texts.of([event.name for event in events]),
            self.texts.of(_texts([arg.dims if len(arg.dims) else arg.older_dims for arg in args])),
            self.texts.of(_texts([arg.types for arg in args])),
        )
        begun, lasted = _texts([event.ts for event in events]), _texts([event.dur for event in events])
        for column in (begun, lasted):
            if max(map(len, column)) > _LONGEST_TIME:
                column[:] = [_shorter(text) for text in column]
        self._op_times.append(np.array([begun, lasted]))
        for text in (begun[0], begun[-1]):  # enough to tell how far the host's activity reaches
            if (moment := _stamp(text)) != NO_TIME:
                self._host(moment, moment)

    def _add_step(self, event: Event) -> None:
        start, duration = _stamp(bytes(event.ts)), time_ns(bytes(event.dur))
        if start == NO_TIME:
            return
        end = start + max(duration or 0, 0)
        if usable_stamp(end):
            self._host(start, end)
        if duration is not None and usable_stamp(duration) and STEP_NAME.match(event.name):
            self.steps.append((event.name, start, duration))

    def _host(self, start: int, end: int) -> None:
        self.host_events += 1
        self.host_start = min(self.host_start, start)
        self.host_end = max(self.host_end, end)

    def operations_of(self, external: Ints, launched: Ints) -> Operations:
        """The operation with each kernel's external id, where the launch lies inside it.

        Older files repeat the correlation number in "External id"; it may then hit an unrelated operation.

        Args:
            external: the external id of each kernel.
            launched: when the call that launched it began, ``NO_TIME`` when unknown.
        """
        known = self._operations.whole()
        rows = last_rows(known["number"], external)
        rows[launched == NO_TIME] = -1
        used, place = np.unique(rows, return_inverse=True)
        times = np.concatenate([np.zeros((2, 0), dtype="S1"), *self._op_times], axis=1)
        self._op_times = []
        spans = [_span(begun, lasted) for begun, lasted in times[:, used[used >= 0]].T.tolist()]
        unknown = [(NO_TIME, NO_TIME)] if len(spans) < len(used) else []
        start, end = np.array([*unknown, *spans], dtype=np.int64).reshape(-1, 2)[place].T
        inside = (rows >= 0) & (start != NO_TIME) & (start <= launched) & (launched <= end)
        return Operations(
            *(
                np.where(inside, np.append(known[column], 0)[rows], 0)  # row -1 is the appended one
                for column in ("name", "dims", "types")
            )
        )


def _odd_names(part: list[Event], by_sort: dict[str, list[Event]]) -> bool:
    """Whether no event of a sort has what every such event has, or no event of a part a category or phase."""
    checks = (("gpu", _lacks_place), ("launch", _lacks_correlation), ("operation", _lacks_external_id))
    for sort, lacks in checks:
        events = by_sort[sort]
        if events and lacks(events[0]) and all(map(lacks, events)):
            return True
    return (
        bool(part)
        and not any(by_sort.values())
        and all(
            isinstance(event, AnyEvent) and (not event.ph or (event.ph == "X" and not event.cat))
            for event in part
        )
    )


def _lacks_place(event: Event) -> bool:
    args = event.args or _NO_ARGS
    return args.device is None and args.stream is None and args.correlation is None


def _lacks_correlation(event: Event) -> bool:
    return (event.args or _NO_ARGS).correlation is None


def _lacks_external_id(event: Event) -> bool:
    return (event.args or _NO_ARGS).external_id is None


def _shorter(text: bytes) -> bytes:
    """The same time in few characters, so that one odd text does not widen a whole column."""
    if len(text) <= _LONGEST_TIME:
        return text
    value = time_ns(text)
    return b"" if value is None else str(Decimal(value) / 1000).encode()


def _span(begun: bytes, lasted: bytes) -> tuple[int, int]:
    """Start and end of an operation in nanoseconds; ``NO_TIME`` for both when its start is unknown."""
    start = _stamp(begun)
    if start == NO_TIME:
        return NO_TIME, NO_TIME
    return start, min(start + (time_ns(lasted) or 0), 2**63 - 1)


def is_launch(name: str) -> bool:
    """Whether a runtime or driver call starts kernels: LaunchKernel, GraphLaunch and their variants."""
    lowered = name.lower()
    return "launch" in lowered and "hostfunc" not in lowered


def is_graph_launch(name: str) -> bool:
    """Whether a runtime or driver call replays a graph."""
    return "graphlaunch" in name.lower()
