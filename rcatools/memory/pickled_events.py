"""A fast path for the events of a pickled snapshot: one regular expression per set of keys.

Pickle writes each event as the same opcodes with other numbers, because keys and action names were written
before and are referred to. Once one event was read step by step, its neighbours match a pattern; any that does
not is read step by step again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rcatools.memory.columns import StackRef, TraceColumns

if TYPE_CHECKING:
    from rcatools.memory.unpickle import Machine

_GET = rb"h.|j.{4}"
_PUT = rb"\x94|q.|r.{4}|"
_INT = rb"K.|M..|J.{4}|\x8a(?:\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}|\x09.{9}|\x04.{4}|\x03.{3})"
_LIST = rb"\](?P<frames_put>" + _PUT + rb")(?P<frames>\((?:" + _GET + rb")++e|(?:" + _GET + rb")a|)"
_INT_KEYS = ("addr", "device_free", "size", "stream", "time_us")
_MAX_PATTERNS = 16


class EventScanner:
    """Reads runs of events of known shape."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._patterns: dict[tuple[str, ...], re.Pattern[bytes]] = {}
        self._stacks: dict[bytes, StackRef] = {}

    def learn(self, entry: dict[str, Any]) -> None:
        """Make a pattern from an event's keys, if all of them can be referred to."""
        keys = tuple(entry)
        if keys in self._patterns or len(self._patterns) >= _MAX_PATTERNS:
            return
        names = self.machine.names
        if not {"action", "size", "stream"} <= set(keys) or any(
            type(k) is not str or k not in names for k in keys
        ):
            return
        parts = [rb"\}(?P<put>" + _PUT + rb")\("]
        for key in keys:
            index = names[key]
            parts.append(
                re.escape(b"h" + bytes([index]) if index < 256 else b"j" + index.to_bytes(4, "little"))
            )
            parts.append(_value(key))
        parts.append(b"u")
        self._patterns[keys] = re.compile(b"".join(parts), re.DOTALL)

    def run(self, columns: TraceColumns) -> None:
        """Read events from the machine's position into columns until one does not match."""
        machine = self.machine
        data, memo, position = machine.data, machine.memo, machine.pos
        patterns = list(self._patterns.values())
        current = 0
        tried = 0
        while tried < len(patterns):
            match = patterns[current].match(data, position)
            if match is None:
                current = (current + 1) % len(patterns)
                tried += 1
                continue
            tried = 0
            position = match.end()
            group = match.groupdict()
            machine.pos = position
            self._put(group["put"], None)
            action = memo[_index(group["action"])]
            stack = self._stack(group)
            pool = self._pool(group)
            address = group.get("addr") or group.get("device_free")
            time = group.get("time_us")
            columns.append(
                action,
                0 if address is None else _int(address),
                _int(group["size"]),
                _int(group["stream"]),
                -1 if time is None else _int(time),
                pool,
                stack,
            )

    def _put(self, code: bytes, value: Any) -> None:
        if code == b"\x94":
            self.machine.memo.append(value)
        elif code:
            self.machine.put(int.from_bytes(code[1:], "little"), value)

    def _stack(self, group: dict[str, bytes]) -> int:
        body = group.get("frames")
        if body is None:
            reference = group.get("frames_get")
            return (
                -1 if reference is None else self.machine.stacks.intern(self.machine.get(_index(reference)))
            )
        known = self._stacks.get(body)
        if known is None:
            frames = [self.machine.get(i) for i in _indices(body)]
            known = self._stacks[body] = StackRef(self.machine.stacks.intern(frames))
        self._put(group["frames_put"], known)
        return known.index

    def _pool(self, group: dict[str, bytes]) -> Any:
        if group.get("pool_get"):
            return self.machine.get(_index(group["pool_get"]))
        if group.get("pool_a"):
            pool = (_int(group["pool_a"]), _int(group["pool_b"]))
            self._put(group["pool_put"], pool)
            return pool
        return None


def _value(key: str) -> bytes:
    if key in _INT_KEYS:
        return b"(?P<" + key.encode() + b">" + _INT + b")"
    if key == "frames":
        return b"(?:" + _LIST + b"|(?P<frames_get>" + _GET + b"))"
    if key == "pool_id":
        return (
            rb"(?:(?P<pool_a>"
            + _INT
            + rb")(?P<pool_b>"
            + _INT
            + rb")\x86(?P<pool_put>"
            + _PUT
            + rb")|(?P<pool_get>"
            + _GET
            + rb"))"
        )
    if key == "action":
        return b"(?P<action>" + _GET + b")"
    return b"(?:" + _GET + b")"


def _int(code: bytes) -> int:
    first = code[0]
    if first == 0x8A:
        return int.from_bytes(code[2:], "little", signed=True)
    return int.from_bytes(code[1:], "little", signed=first == 0x4A)


def _index(code: bytes) -> int:
    return int.from_bytes(code[1:], "little")


def _indices(body: bytes) -> list[int]:
    out, position = [], 1 if body[:1] == b"(" else 0
    while position < len(body) - 1:
        width = 2 if body[position] == 0x68 else 5
        out.append(int.from_bytes(body[position + 1 : position + width], "little"))
        position += width
    return out
