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
        for pattern in self._patterns.values():
            if pattern.match(self.machine.data, self.machine.pos):
                self._run(columns, pattern)

    def _run(self, columns: TraceColumns, pattern: re.Pattern[bytes]) -> None:
        machine = self.machine
        data, remember, put = machine.data, machine.memo.append, self._put
        where = pattern.groupindex
        basic = ("put", "action", "size", "stream", "addr" if "addr" in where else "device_free")
        if not set(basic) <= set(where):
            return
        fields = tuple(where[name] for name in basic)
        time_at = where.get("time_us", 0)
        has_frames, has_pool = "frames" in where, "pool_get" in where
        match = pattern.match(data, machine.pos)
        while match is not None:
            code, action, size, stream, address = match.group(*fields)
            machine.pos = match.end()
            if code == b"\x94":
                remember(None)
            else:
                put(code, None)
            # what an event refers to comes in the order in which it was written
            if has_frames and has_pool and where["pool_get"] < where["frames"]:
                pool = self._pool(match)
                stack = self._stack(match)
            else:
                stack = self._stack(match) if has_frames else -1
                pool = self._pool(match) if has_pool else None
            columns.append(
                machine.get(int.from_bytes(action[1:], "little")),
                _int(address),
                _int(size),
                _int(stream),
                _int(match[time_at]) if time_at else -1,
                pool,
                stack,
            )
            match = pattern.match(data, machine.pos)

    def _put(self, code: bytes, value: Any) -> None:
        if code == b"\x94":
            self.machine.memo.append(value)
        elif code:
            self.machine.put(int.from_bytes(code[1:], "little"), value)

    def _stack(self, match: re.Match[bytes]) -> int:
        body = match["frames"]
        if body is None:
            return self.machine.stacks.intern(self.machine.get(_index(match["frames_get"])))
        known = self._stacks.get(body)
        if known is None:
            frames = [self.machine.get(i) for i in _indices(body)]
            known = self._stacks[body] = StackRef(self.machine.stacks.intern(frames))
        self._put(match["frames_put"], known)
        return known.index

    def _pool(self, match: re.Match[bytes]) -> Any:
        if match["pool_get"]:
            return self.machine.get(_index(match["pool_get"]))
        pool = (_int(match["pool_a"]), _int(match["pool_b"]))
        self._put(match["pool_put"], pool)
        return pool


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
