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
        """The index of a stack given as a list of frame mappings; -1 for none or an empty one."""
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

    def _frame(self, entry: object) -> int:
        known = self._by_object.get(id(entry))
        if known is not None:
            return known
        if isinstance(entry, Mapping):
            line = entry.get("line", 0)
            frame = (
                str(entry.get("name", "")),
                str(entry.get("filename", "")),
                line if type(line) is int else 0,
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


class EventColumns:
    """The events of all devices as growing arrays.

    Attributes:
        damaged: how many entries were left out, by reason.
    """

    def __init__(self, stacks: StackTable) -> None:
        self.stacks = stacks
        self.pools: list[PoolId] = []
        self.damaged: Counter[str] = Counter()
        self.unknown_actions: Counter[str] = Counter()
        self._pool_ids: dict[PoolId, int] = {}
        self._device = array("i")
        self._action = array("b")
        self._address = array("Q")
        self._size = array("q")
        self._stream = array("Q")
        self._time = array("q")
        self._pool = array("i")
        self._stack = array("i")

    def __len__(self) -> int:
        return len(self._action)

    def add(self, device: int, entry: object) -> None:
        """Append one event given as a mapping; what cannot be an event is counted, not kept."""
        if not isinstance(entry, Mapping):
            self.damaged["event_not_a_mapping"] += 1
            return
        action = entry.get("action")
        code = _CODES.get(action, _OTHER) if isinstance(action, str) else _OTHER
        if code == _OTHER:
            self.unknown_actions[str(action)[:40]] += 1
        address = address_of(entry.get("addr", entry.get("device_free", 0)))
        size = size_of(entry.get("size", 0))
        stream = address_of(entry.get("stream", 0))
        if address is None or size is None or stream is None:
            self.damaged["event_number_out_of_range"] += 1
            return
        time = entry.get("time_us", -1)
        self._device.append(device)
        self._action.append(code)
        self._address.append(address)
        self._size.append(size)
        self._stream.append(stream)
        self._time.append(time if type(time) is int and -1 <= time < U64 >> 1 else -1)
        self._pool.append(self._pool_index(entry.get("pool_id")))
        self._stack.append(self.stacks.intern(entry.get("frames")))

    def extend(self, device: int, entries: Sequence[Any]) -> None:
        """Append many events of one device."""
        for entry in entries:
            self.add(device, entry)

    def _pool_index(self, value: object) -> int:
        pool = pool_of(value)
        if pool is None:
            return -1
        index = self._pool_ids.get(pool)
        if index is None:
            index = self._pool_ids[pool] = len(self.pools)
            self.pools.append(pool)
        return index

    def frame(self) -> pd.DataFrame:
        """The events as a table (columns of ``Snapshot.events``); the arrays are shared, not copied."""
        columns = {
            "device": (self._device, np.int32),
            "action": (self._action, np.int8),
            "address": (self._address, np.uint64),
            "size": (self._size, np.int64),
            "stream": (self._stream, np.uint64),
            "time_us": (self._time, np.int64),
            "pool": (self._pool, np.int32),
            "stack": (self._stack, np.int32),
        }
        return pd.DataFrame(
            {
                name: np.frombuffer(a, dtype=t) if len(a) else np.empty(0, t)
                for name, (a, t) in columns.items()
            },
            copy=False,
        )
