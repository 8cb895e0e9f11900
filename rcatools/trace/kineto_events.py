"""GPU activities, launches, operations and steps picked out of kineto's events."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
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
    """A framework operation: shapes and types as JSON text, interval in nanoseconds."""

    name: str
    shapes: str
    dtypes: str
    start: int
    end: int


NO_OPERATION = Operation("", "", "", 0, 0)


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
    bytes: list[int] = field(default_factory=list)
    launches: dict[int, tuple[str, int]] = field(default_factory=dict)
    operations: dict[int, Operation] = field(default_factory=dict)
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    host_end: int = NO_TIME
    host_start: int = -NO_TIME - 1
    host_events: int = 0
    events: int = 0
    bad_time: int = 0
    texts: dict[Any, str] = field(default_factory=dict)

    def add(self, part: list[Event]) -> None:
        self.events += len(part)
        for event in part:
            if event.ph != "X":
                continue
            category = event.cat.lower()
            if category in GPU_CATEGORIES:
                self._gpu(event, GPU_CATEGORIES[category])
            elif category in LAUNCH_CATEGORIES:
                self._launch(event)
            elif category in OPERATION_CATEGORIES:
                self._operation(event)
            elif category == "user_annotation":
                self._step(event)

    def text(self, raw: Any) -> str:
        """The text of a raw value, each distinct one kept once."""
        key = bytes(raw)
        if key not in self.texts:
            self.texts[key] = b"".join(key.split()).decode("utf-8", "replace").strip("[]") if key else ""
        return self.texts[key]

    def raw_text(self, raw: Any) -> str:
        key = ("raw", bytes(raw))
        if key not in self.texts:
            self.texts[key] = b"".join(key[1].split()).decode("utf-8", "replace")
        return self.texts[key]

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
        self.bytes.append(_number(args.bytes) if args else NO_ID)
        self.grid.append(self.text(args.grid) if args else "")
        self.block.append(self.text(args.block) if args else "")

    def _launch(self, event: Event) -> None:
        start = time_ns(bytes(event.ts))
        self._host(start, time_ns(bytes(event.dur)))
        number = _number(event.args.correlation) if event.args else NO_ID
        if number != NO_ID:
            self.launches[number] = (event.name, NO_TIME if start is None else start)

    def _operation(self, event: Event) -> None:
        start, duration = time_ns(bytes(event.ts)), time_ns(bytes(event.dur))
        self._host(start, duration)
        args = event.args
        number = _number(args.external_id) if args else NO_ID
        if number != NO_ID and args is not None and start is not None:
            self.operations[number] = Operation(
                event.name,
                self.raw_text(args.dims),
                self.raw_text(args.types),
                start,
                start + (duration or 0),
            )

    def _step(self, event: Event) -> None:
        start, duration = time_ns(bytes(event.ts)), time_ns(bytes(event.dur))
        self._host(start, duration)
        if start is not None and duration is not None and STEP_NAME.match(event.name):
            self.steps.append((event.name, start, duration))

    def _host(self, start: int | None, duration: int | None) -> None:
        if start is None:
            return
        self.host_events += 1
        self.host_start = min(self.host_start, start)
        self.host_end = max(self.host_end, start + max(duration or 0, 0))

    def operation_of(self, number: int, launched: int) -> Operation:
        """The operation with a kernel's external id, if the launch lies inside it.

        Older files repeat the correlation number in "External id"; it may then hit an unrelated operation.
        """
        operation = self.operations.get(number, NO_OPERATION)
        return operation if operation.start <= launched <= operation.end else NO_OPERATION


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
