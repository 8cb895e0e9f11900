"""Compact columns for events and call stacks while a file is being read."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rcatools.memory.snapshot import ACTIONS, Frame, PoolId

U64 = 1 << 64
MAX_BYTES = 1 << 56
"""No device or address range holds more; a larger size in a file is damage."""

_CODES = {name: code for code, name in enumerate(ACTIONS)}
_OTHER = _CODES["other"]
_LARGEST_TIME = (1 << 63) - 1


def address_of(value: object) -> int | None:
    """An address or stream handle as an unsigned 64-bit number, or None if it cannot be one.

    Negative values down to -2**63 are the signed form of the same bits.
    """
    if type(value) is not int or not -(U64 >> 1) <= value < U64:
        return None
    return value % U64


def size_of(value: object) -> int | None:
    """A number of bytes, or None if no device could hold it."""
    return value if type(value) is int and 0 <= value <= MAX_BYTES else None


def pool_of(value: object) -> PoolId | None:
    """A pool id as a pair of integers, or None where the value is not one."""
    if isinstance(value, (list, tuple)) and len(value) == 2:
        first, second = value
        if type(first) is int and type(second) is int:
            return (first, second)
    return None


class StackRef:
    """A call stack that was interned already."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class StackTable:
    """Interns call stacks: each distinct frame and each distinct stack is kept once."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.stacks: list[tuple[int, ...]] = []
        self._frame_ids: dict[Frame, int] = {}
        self._stack_ids: dict[tuple[int, ...], int] = {}
        self._by_object: dict[int, int] = {}
        self._kept: list[object] = []

    def intern(self, frames: object) -> int:
        """The index of a stack given as a list of frame mappings (or a StackRef); -1 for none or an empty one."""
        if type(frames) is StackRef:
            return frames.index
        if not isinstance(frames, (list, tuple)) or not frames:
            return -1
        known = self._by_object
        key = tuple([known.get(id(f), -1) for f in frames])
        if -1 in key:
            key = tuple([self._frame(f) for f in frames])
        index = self._stack_ids.get(key)
        if index is None:
            index = self._stack_ids[key] = len(self.stacks)
            self.stacks.append(key)
        return index

    def forget_objects(self) -> None:
        """Drop the shortcut by object identity, for frames that will not be seen again."""
        self._by_object.clear()
        self._kept.clear()

    def _frame(self, entry: object) -> int:
        known = self._by_object.get(id(entry))
        if known is not None:
            return known
        if isinstance(entry, Mapping):
            line = entry.get("line", 0)
            frame = (
                str(entry.get("name", "")),
                str(entry.get("filename", "")),
                line if type(line) is int and abs(line) < 1 << 31 else 0,
            )
        else:
            frame = (str(entry)[:200], "", 0)
        index = self._frame_ids.get(frame)
        if index is None:
            index = self._frame_ids[frame] = len(self.frames)
            self.frames.append(frame)
        self._by_object[id(entry)] = index
        self._kept.append(entry)  # an id is only unique while its object lives
        return index


class TraceColumns:
    """The events of one device as growing arrays.

    Attributes:
        damaged: how many entries were left out, by reason.
        unknown_actions: kinds of events that this reader does not know, with their number.
    """

    def __init__(self, stacks: StackTable) -> None:
        self.stacks = stacks
        self.pools: list[PoolId] = []
        self.damaged: Counter[str] = Counter()
        self.unknown_actions: Counter[str] = Counter()
        self._pool_ids: dict[PoolId, int] = {}
        self._arrays = {
            "action": array("b"),
            "address": array("Q"),
            "size": array("q"),
            "stream": array("Q"),
            "time_us": array("q"),
            "pool": array("i"),
            "stack": array("i"),
        }
        self._append = tuple(a.append for a in self._arrays.values())

    def __len__(self) -> int:
        return len(self._arrays["action"])

    def add(self, entry: object) -> None:
        """Append one event given as a mapping; what cannot be an event is counted, not kept."""
        if not isinstance(entry, Mapping):
            self.damaged["event_not_a_mapping"] += 1
            return
        self.append(
            entry.get("action"),
            entry.get("addr", entry.get("device_free", 0)),
            entry.get("size", 0),
            entry.get("stream", 0),
            entry.get("time_us", -1),
            entry.get("pool_id"),
            self.stacks.intern(entry.get("frames")),
        )

    def append(
        self, action: Any, address: Any, size: Any, stream: Any, time: Any, pool: Any, stack: int
    ) -> None:
        """Append one event given by its fields."""
        code = _CODES.get(action, _OTHER) if type(action) is str else _OTHER
        if code == _OTHER:
            self.unknown_actions[str(action)[:40]] += 1
        add_action, add_address, add_size, add_stream, add_time, add_pool, add_stack = self._append
        try:
            plain = 0 <= address < U64 and 0 <= stream < U64 and 0 <= size <= MAX_BYTES
        except TypeError:
            plain = False
        if not plain or type(address) is not int or type(stream) is not int or type(size) is not int:
            address, size, stream = address_of(address), size_of(size), address_of(stream)
            if address is None or size is None or stream is None:
                self.damaged["event_number_out_of_range"] += 1
                return
        add_action(code)
        add_address(address)
        add_size(size)
        add_stream(stream)
        add_time(time if type(time) is int and -1 <= time <= _LARGEST_TIME else -1)
        add_pool(-1 if pool is None else self._pool_index(pool))
        add_stack(stack)

    def extend(self, entries: Sequence[Any]) -> None:
        """Append many events."""
        for entry in entries:
            self.add(entry)

    def _pool_index(self, value: object) -> int:
        pool = pool_of(value)
        if pool is None:
            return -1
        index = self._pool_ids.get(pool)
        if index is None:
            index = self._pool_ids[pool] = len(self.pools)
            self.pools.append(pool)
        return index

    def arrays(self) -> dict[str, np.ndarray]:
        """The columns as numpy arrays that share the memory."""
        return {
            name: np.frombuffer(values, dtype=values.typecode)
            if len(values)
            else np.empty(0, values.typecode)
            for name, values in self._arrays.items()
        }


def events_table(traces: Sequence[TraceColumns]) -> tuple[pd.DataFrame, list[PoolId]]:
    """The events of all devices (columns of ``Snapshot.events``) and the pools that their ``pool`` points to."""
    pools: list[PoolId] = []
    position: dict[PoolId, int] = {}
    frames = []
    for device, trace in enumerate(traces):
        for pool in trace.pools:
            if pool not in position:
                position[pool] = len(pools)
                pools.append(pool)
        columns = trace.arrays()
        if trace.pools and device:
            renumber = np.array([position[p] for p in trace.pools] + [-1], np.int32)
            columns["pool"] = renumber[columns["pool"]]
        if len(trace) or device == 0:
            frames.append(
                pd.DataFrame({"device": np.full(len(trace), device, np.int32), **columns}, copy=False)
            )
    if not frames:
        frames = [pd.DataFrame({"device": np.empty(0, np.int32), **TraceColumns(StackTable()).arrays()})]
    return (frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)), pools
