"""GPU activities, launches, operations and steps picked out of kineto's events."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, NamedTuple

from rcatools.trace.events import Event
from rcatools.trace.model import NO_ID, NO_TIME

GPU_CATEGORIES = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
LAUNCH_CATEGORIES = {"cuda_runtime", "cuda_driver", "runtime", "driver"}
OPERATION_CATEGORIES = {"cpu_op", "operator"}
STEP_NAME = re.compile(
    r"^(ProfilerStep#\d+|(?:.*\b)?(?:step|iter(?:ation)?)[\s_#:\[]*.*\d.*)$", re.IGNORECASE
)


def time_ns(text: bytes) -> int | None:
    """Microseconds as JSON text to whole nanoseconds, exactly; None when it is no finite number.

    Numbers written as strings are accepted.
    """
    whole, _, fraction = text.partition(b".")
    try:
        if not fraction:
            return int(whole) * 1000
        if len(fraction) <= 3 and fraction.isdigit():
            size = int(whole) * 1000
            part = int(fraction) * (1, 100, 10, 1)[len(fraction)]
            return size - part if whole.startswith(b"-") else size + part
    except ValueError:
        pass
    try:
        value = Decimal(text.strip().strip(b'"').decode())
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not value.is_finite() or abs(value) > Decimal(10) ** 15 * 9:
        return None
    return int((value * 1000).to_integral_value())


class Operation(NamedTuple):
    """A framework operation as the file wrote it: JSON texts of shapes, types, start and duration."""

    name: str
    shapes: bytes
    dtypes: bytes
    start: bytes
    duration: bytes


NO_OPERATION = ("", "", "")
HOST_SAMPLING = 64  # one of so many operations tells how far the host's activity reaches


@dataclass
class Collector:
    """Columns as they grow, one list per column."""

    kind: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    dur: list[int] = field(default_factory=list)
    correlation: list[int] = field(default_factory=list)
    external: list[int] = field(default_factory=list)
    grid: list[str] = field(default_factory=list)
    block: list[str] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    launches: dict[int, tuple[str, int]] = field(default_factory=dict)
    operations: dict[int, Operation] = field(default_factory=dict)
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    host_end: int = NO_TIME
    host_start: int = -NO_TIME - 1
    host_events: int = 0
    events: int = 0
    bad_time: int = 0
    texts: dict[bytes, str] = field(default_factory=dict)
    _taking: dict[str, Callable[[Event], None] | None] = field(default_factory=dict)

    def add(self, part: list[Event]) -> None:
        """Take what is of use from a part of the file."""
        self.events += len(part)
        taking = self._taking
        for event in part:
            if event.ph == "X":
                category = event.cat
                if category not in taking:
                    taking[category] = self._taker(category.lower())
                take = taking[category]
                if take is not None:
                    take(event)

    def _taker(self, category: str) -> Callable[[Event], None] | None:
        if category in GPU_CATEGORIES:
            return partial(self._gpu, kind=GPU_CATEGORIES[category])
        if category in LAUNCH_CATEGORIES:
            return self._launch
        if category in OPERATION_CATEGORIES:
            return self._operation
        return self._step if category == "user_annotation" else None

    def text(self, raw: bytes) -> str:
        """JSON text without blanks, each distinct one kept once."""
        known = self.texts.get(raw)
        if known is None:
            known = self.texts[raw] = b"".join(raw.split()).decode("utf-8", "replace")
        return known

    def _gpu(self, event: Event, kind: str) -> None:
        start, duration = time_ns(bytes(event.ts)), time_ns(bytes(event.dur))
        if start is None or duration is None:
            self.bad_time += 1
            return
        args = event.args
        self.kind.append(kind)
        self.name.append(event.name)
        self.start.append(start)
        self.dur.append(duration)
        device = _number(args.device) if args else NO_ID
        stream = _number(args.stream) if args else NO_ID
        self.device.append(_number(bytes(event.pid)) if device == NO_ID else device)
        self.stream.append(_number(bytes(event.tid)) if stream == NO_ID else stream)
        self.correlation.append(_number(args.correlation) if args else NO_ID)
        self.external.append(_number(args.external_id) if args else NO_ID)
        self.moved.append(_number(args.bytes) if args else NO_ID)
        self.grid.append(self.text(bytes(args.grid)).strip("[]") if args else "")
        self.block.append(self.text(bytes(args.block)).strip("[]") if args else "")

    def _launch(self, event: Event) -> None:
        start = time_ns(bytes(event.ts))
        number = _number(event.args.correlation) if event.args else NO_ID
        if number != NO_ID:
            self.launches[number] = (event.name, NO_TIME if start is None else start)
        if start is not None:
            self._host(start, start)

    def _operation(self, event: Event) -> None:
        """Keep the texts only: few operations launch something, and only those are looked at later."""
        start = bytes(event.ts)
        args = event.args
        if args is not None and type(args.external_id) is int:
            self.operations[args.external_id] = Operation(
                event.name, bytes(args.dims), bytes(args.types), start, bytes(event.dur)
            )
        if self.host_events == 0 or len(self.operations) % HOST_SAMPLING == 0:
            moment = time_ns(start)
            if moment is not None:
                self._host(moment, moment)

    def _step(self, event: Event) -> None:
        start, duration = time_ns(bytes(event.ts)), time_ns(bytes(event.dur))
        if start is None:
            return
        self._host(start, start + max(duration or 0, 0))
        if duration is not None and STEP_NAME.match(event.name):
            self.steps.append((event.name, start, duration))

    def _host(self, start: int, end: int) -> None:
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
        start, duration = time_ns(operation.start), time_ns(operation.duration)
        if start is None or not start <= launched <= start + (duration or 0):
            return NO_OPERATION
        return operation.name, self.text(operation.shapes), self.text(operation.dtypes)


def is_launch(name: str) -> bool:
    """Whether a runtime or driver call starts kernels: LaunchKernel, GraphLaunch and their variants."""
    lowered = name.lower()
    return "launch" in lowered and "hostfunc" not in lowered


def _number(value: Any) -> int:
    """A whole number from a number or its text; ``NO_ID`` otherwise."""
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else NO_ID
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bytes):
        value = value.strip(b'"').decode("utf-8", "replace")
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return NO_ID
    return NO_ID
