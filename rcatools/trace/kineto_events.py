"""GPU activities, launches, operations and steps picked out of kineto's events."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from rcatools.trace.events import Args, Event
from rcatools.trace.model import NO_ID, NO_TIME, signed64, usable_stamp

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
STEP_NAME = re.compile(
    r"^(ProfilerStep#\d+|(?:.*\b)?(?:step|iter(?:ation)?)[\s_#:\[]*.*\d.*)$", re.IGNORECASE
)


def time_ns(text: bytes) -> int | None:
    """Microseconds as JSON text to whole nanoseconds, exactly; None when it is no finite number.

    Numbers written as strings are accepted.
    """
    whole, _, fraction = text.partition(b".")
    try:
        if len(fraction) == 3 and fraction.isdigit():
            return _in_64_bits(int(whole + fraction))
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


NO_OPERATION = ("", "", "")
_NO_ARGS = Args()


class Activity(NamedTuple):
    """A GPU event: times in nanoseconds, ``NO_ID`` where a number is not recorded."""

    kind: str
    name: str
    start: int
    duration: int
    device: int
    stream: int
    correlation: int
    external: int
    moved: int
    grid: str
    block: str


@dataclass
class Collector:
    """What is of use in the events, as it grows."""

    activities: list[Activity] = field(default_factory=list)
    launches: dict[int, tuple[str, int]] = field(default_factory=dict)
    operations: dict[int, tuple[str, bytes, bytes, bytes, bytes]] = field(default_factory=dict)
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    host_end: int = NO_TIME
    host_start: int = -NO_TIME - 1
    host_events: int = 0
    events: int = 0
    bad_time: int = 0
    texts: dict[bytes, str] = field(default_factory=dict)
    _sorts: dict[str, str] = field(default_factory=dict)

    def add(self, part: list[Event]) -> None:
        """Take what is of use from a part of the file."""
        self.events += len(part)
        sorts = self._sorts
        by_sort: dict[str, list[Event]] = {"gpu": [], "launch": [], "operation": [], "annotation": [], "": []}
        for event in part:
            if event.ph == "X":
                category = event.cat
                if category not in sorts:
                    sorts[category] = _SORTS.get(category.lower(), "")
                by_sort[sorts[category]].append(event)
        for event in by_sort["gpu"]:
            self._gpu(event)
        self._launches(by_sort["launch"])
        self._operations(by_sort["operation"])
        for event in by_sort["annotation"]:
            self._step(event)

    def text(self, raw: bytes) -> str:
        """JSON text without blanks, each distinct one kept once."""
        known = self.texts.get(raw)
        if known is None:
            known = self.texts[raw] = b"".join(raw.split()).decode("utf-8", "replace")
        return known

    def _gpu(self, event: Event) -> None:
        start, duration = time_ns(bytes(event.ts)), time_ns(bytes(event.dur))
        if start is None or duration is None or not usable_stamp(start):
            self.bad_time += 1
            return
        args = event.args or _NO_ARGS
        device, stream = _number(args.device), _number(args.stream)
        self.activities.append(
            Activity(
                GPU_CATEGORIES[event.cat.lower()],
                event.name,
                start,
                duration,
                _number(bytes(event.pid)) if device == NO_ID else device,
                _number(bytes(event.tid)) if stream == NO_ID else stream,
                _number(args.correlation),
                _number(args.external_id),
                _number(args.bytes),
                self.text(bytes(args.grid)).strip("[]"),
                self.text(bytes(args.block)).strip("[]"),
            )
        )

    def _launches(self, events: list[Event]) -> None:
        for event in events:
            start = time_ns(bytes(event.ts))
            number = _number((event.args or _NO_ARGS).correlation)
            if number != NO_ID:
                usable = start is not None and usable_stamp(start)
                self.launches[number] = (event.name, start if usable and start is not None else NO_TIME)
            if start is not None:
                self._host(start, start)

    def _operations(self, events: list[Event]) -> None:
        """Keep the texts only: few operations launch something, and only those are looked at later."""
        self.operations.update(
            {
                args.external_id: (
                    event.name,
                    bytes(args.dims),
                    bytes(args.types),
                    bytes(event.ts),
                    bytes(event.dur),
                )
                for event in events
                if (args := event.args) is not None and type(args.external_id) is int
            }
        )
        for event in events[:1] + events[-1:]:  # enough to tell how far the host's activity reaches
            moment = time_ns(bytes(event.ts))
            if moment is not None:
                self._host(moment, moment)

    def _step(self, event: Event) -> None:
        start, duration = time_ns(bytes(event.ts)), time_ns(bytes(event.dur))
        if start is None or not usable_stamp(start):
            return
        self._host(start, start + max(duration or 0, 0))
        if duration is not None and usable_stamp(duration) and STEP_NAME.match(event.name):
            self.steps.append((event.name, start, duration))

    def _host(self, start: int, end: int) -> None:
        if not (usable_stamp(start) and usable_stamp(end)):
            return
        self.host_events += 1
        self.host_start = min(self.host_start, start)
        self.host_end = max(self.host_end, end)

    def operation_of(self, number: int, launched: int) -> tuple[str, str, str]:
        """Name, shapes and types of the operation with a kernel's external id, if the launch lies inside it.

        Older files repeat the correlation number in "External id"; it may then hit an unrelated operation.
        """
        operation = self.operations.get(number)
        if operation is None or launched == NO_TIME:
            return NO_OPERATION
        name, shapes, dtypes, begun, lasted = operation
        start, duration = time_ns(begun), time_ns(lasted)
        if start is None or not start <= launched <= start + (duration or 0):
            return NO_OPERATION
        return name, self.text(shapes), self.text(dtypes)


def is_launch(name: str) -> bool:
    """Whether a runtime or driver call starts kernels: LaunchKernel, GraphLaunch and their variants."""
    lowered = name.lower()
    return "launch" in lowered and "hostfunc" not in lowered


def _number(value: Any) -> int:
    """A whole number from a number or its text; ``NO_ID`` otherwise."""
    if type(value) is int:
        return signed64(value)
    if isinstance(value, bytes):
        value = value.strip(b'"').decode("utf-8", "replace")
    if isinstance(value, str):
        try:
            return signed64(int(value))
        except ValueError:
            return NO_ID
    return signed64(int(value)) if isinstance(value, float) and value.is_integer() else NO_ID
