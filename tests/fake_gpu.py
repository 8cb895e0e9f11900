"""As much of torch.cuda as the cliff's curves use, on a modelled device whose answer is known.

The model: a process has ``PLACES``; each stream that runs anything takes one on its first use; once all are taken,
every kernel of a replayed graph costs ``HIGH`` instead of ``LOW``. A capture records and runs nothing. With
``LAUNCHES_COUNT`` each launch on any but the first stream takes a place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

PLACES, LOW, HIGH = 6, 0.967, 1.143
LAUNCHES_COUNT = False

bfloat16 = "bfloat16"


class State:
    """The modelled process."""

    def __init__(self) -> None:
        self.used: dict[object, None] = {}
        self.current: Stream | None = None
        self.capturing: CUDAGraph | None = None
        self.now_us = 0.0

    def run(self, stream: Stream) -> None:
        """One kernel or copy on a stream."""
        if self.capturing is not None:
            self.capturing.kernels += 1
        elif LAUNCHES_COUNT and self.used and id(stream) not in list(self.used)[:1]:
            self.used[object()] = None
        else:
            self.used[id(stream)] = None


class Stream:
    """A stream; keeps the legacy default one apart."""

    def __init__(self, priority: int = 0) -> None:
        self.priority = priority

    def record_event(self) -> str:
        """Takes no place."""
        return "event"

    def synchronize(self) -> None:
        """Takes no place."""
        assert state.capturing is None, "synchronized while capturing"

    def wait_stream(self, other: Stream) -> None:
        """Takes no place."""


class Event:
    """Marks the modelled time."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        """Remember the time."""
        self.at = state.now_us

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds."""
        return (other.at - self.at) / 1e3


class CUDAGraph:
    """Counts the kernels of its capture and replays them in modelled time."""

    kernels = 0

    def capture_begin(self) -> None:
        """Record from here on; the default stream refuses, as the real one does."""
        assert cuda.current_stream() is not default, "captured on the default stream"
        state.capturing = self

    def capture_end(self) -> None:
        """Record no more."""
        state.capturing = None

    def replay(self) -> None:
        """Take the time that the process's state asks for."""
        state.now_us += self.kernels * (HIGH if len(state.used) > PLACES else LOW)
        state.used.setdefault(id(cuda.current_stream()))


class Tensor:
    """Every operation is one kernel on the current stream."""

    dtype = "bfloat16"

    def _run(self, *args: Any, **kwargs: Any) -> Tensor:
        state.run(cuda.current_stream())
        return self

    add_ = copy_ = sum = _run

    def pin_memory(self) -> Tensor:
        """On the host: no kernel."""
        return self


class cuda:
    """The part of torch.cuda that is used."""

    Stream, Event, CUDAGraph = Stream, Event, CUDAGraph

    @staticmethod
    def is_initialized() -> bool:
        return False

    @staticmethod
    def synchronize() -> None:
        assert state.capturing is None, "synchronized while capturing"

    @staticmethod
    def set_stream(stream: Stream) -> None:
        state.current = stream

    @staticmethod
    def current_stream() -> Stream:
        return state.current or default

    @staticmethod
    def default_stream() -> Stream:
        return default

    @staticmethod
    @contextlib.contextmanager
    def stream(stream: Stream) -> Iterator[None]:
        before, state.current = state.current, stream
        yield
        state.current = before


class nn:
    """torch.nn.functional."""

    class functional:
        """One kernel each."""

        linear = rms_norm = staticmethod(lambda x, *rest: x._run())


def randn(*shape: int, device: str, dtype: str = "") -> Tensor:
    """Made on the current stream, which is one kernel."""
    return Tensor()._run()


def ones(*shape: int, dtype: str) -> Tensor:
    """On the host."""
    return Tensor()


def mm(a: Tensor, b: Tensor) -> Tensor:
    """One kernel."""
    return a._run()


state, default = State(), Stream()
