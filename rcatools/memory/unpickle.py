"""A pickle machine that knows data only, and hands events to columns while it reads.

It interprets the opcodes that containers, text and numbers need and has no others: a reference to a class or
function cannot run anything, because nothing here could. The events of a snapshot become columns as soon as
each is complete, so a file of a gigabyte never exists as a gigabyte of dictionaries.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from rcatools.errors import InputError, UnsafeInputError
from rcatools.memory.columns import StackTable, TraceColumns
from rcatools.memory.pickled_events import EventScanner

_REFUSED = {
    "c": "a global",
    "\x93": "a global",
    "i": "an instance",
    "o": "an instance",
    "R": "a call",
    "b": "object state",
    "\x81": "an instance",
    "\x92": "an instance",
    "\x82": "an extension object",
    "\x83": "an extension object",
    "\x84": "an extension object",
    "P": "a persistent object",
    "Q": "a persistent object",
    "\x96": "a byte array",
    "\x97": "an outside buffer",
    "\x98": "an outside buffer",
    "\x8f": "a set",
    "\x90": "a set",
    "\x91": "a set",
}
_MAX_INT_BYTES = 64
_ADVICE = "a memory snapshot holds plain data only; nothing was run, and do not load this file by other means"


class Machine:
    """Reads one pickle.

    Args:
        data: the whole pickle.
        stacks: where call stacks are interned.

    Attributes:
        traces: columns of the events of each list of events, by identity of the (otherwise empty) list.
    """

    def __init__(self, data: bytes, stacks: StackTable) -> None:
        self.data = data
        self.stacks = stacks
        self.pos = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []
        self.traces: dict[int, TraceColumns] = {}
        self.names: dict[str, int] = {}  # memo index of short texts
        self.scanner = EventScanner(self)
        self._kept: list[Any] = []
        self._handlers = self._table()

    def load(self) -> Any:
        """The outermost object.

        Raises:
            UnsafeInputError: the pickle asks for anything but data.
            InputError: cut off or damaged.
        """
        data, handlers = self.data, self._handlers
        try:
            while True:
                op = data[self.pos]
                self.pos += 1
                if op == 0x2E:  # STOP
                    return self.stack.pop()
                handler = handlers.get(op)
                if handler is None:
                    self._refuse(op)
                else:
                    handler()
        except (UnsafeInputError, InputError):
            raise
        except (IndexError, struct.error) as error:
            raise InputError(
                f"the pickle ends or breaks at byte {min(self.pos, len(data))} of {len(data)}"
            ) from error
        except (TypeError, ValueError, AttributeError, OverflowError, KeyError) as error:
            raise InputError(f"the pickle is damaged near byte {self.pos} ({error})") from error

    def close(self) -> None:
        """Drop the file's bytes and all objects that only the reading needed."""
        self.data = b""
        self.memo.clear()
        self._handlers.clear()

    def _refuse(self, op: int) -> None:
        what = _REFUSED.get(chr(op))
        if what is None:
            raise InputError(
                f"byte {self.pos - 1} is no pickle opcode (0x{op:02x}); the file is damaged or no pickle"
            )
        name = ""
        if op == 0x63 or op == 0x69:  # noqa: PLR1714 - GLOBAL and INST carry the name in the stream
            module, attribute = self._line(), self._line()
            name = f" {module}.{attribute}"
        elif op == 0x93 and len(self.stack) >= 2:
            name = f" {self.stack[-2]}.{self.stack[-1]}"
        elif op == 0x50:
            name = f" {self._line()}"
        raise UnsafeInputError(f"the pickle asks for {what}{name[:200]} at byte {self.pos}; {_ADVICE}")

    # reading

    def _take(self, count: int) -> bytes:
        end = self.pos + count
        if count < 0 or end > len(self.data):
            raise InputError(f"the pickle is cut off at byte {len(self.data)} (needs {end})")
        out = self.data[self.pos : end]
        self.pos = end
        return out

    def _number(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _line(self) -> str:
        return self._line_bytes().decode("utf-8", "replace")

    def _line_bytes(self) -> bytes:
        end = self.data.find(b"\n", self.pos)
        if end < 0:
            raise InputError(f"the pickle is cut off at byte {len(self.data)}")
        out = self.data[self.pos : end]
        self.pos = end + 1
        return out

    def _since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    # memo

    def put(self, index: int, value: Any) -> None:
        """Remember an object; an index cannot exceed the bytes that were read."""
        memo = self.memo
        if index == len(memo):
            memo.append(value)
        else:
            if index > self.pos:
                raise InputError(
                    f"the pickle numbers an object {index} after {self.pos} bytes; the file is damaged"
                )
            if index > len(memo):
                memo.extend([None] * (index + 1 - len(memo)))
            memo[index] = value
        if type(value) is str and len(value) < 40:
            self.names.setdefault(value, index)

    def get(self, index: int) -> Any:
        """A remembered object."""
        value = self.memo[index]
        if value is None:
            raise InputError("the pickle refers to an event again, which torch never writes")
        return value

    def _put(self, index: int) -> None:
        self.put(index, self.stack[-1])

    # lists and mappings

    def columns_of(self, target: Any) -> TraceColumns | None:
        """The columns of a list of events; None for a list that holds something else."""
        columns = self.traces.get(id(target))
        if columns is None and type(target) is list and not target:
            columns = self.traces[id(target)] = TraceColumns(self.stacks)
            self._kept.append(target)
        return columns

    def _set_items(self) -> None:
        items = self._since_mark()
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise InputError(f"the pickle fills something that is no mapping near byte {self.pos}")
        target.update(zip(items[::2], items[1::2], strict=True))
        if "action" in target:
            self._event(target)

    def _event(self, entry: dict[str, Any]) -> None:
        """A mapping with an action is an event if it stands in a list: move it into the list's columns."""
        if self.marks and self.marks[-1] == len(self.stack) - 1 and self.marks[-1] > 0:
            columns = self.columns_of(self.stack[self.marks[-1] - 1])
            if columns is not None:
                self.stack.pop()
                columns.add(entry)
                self.scanner.learn(entry)
                self.scanner.run(columns)

    def _appends(self) -> None:
        items = self._since_mark()
        self._extend(self.stack[-1], items)

    def _append(self) -> None:
        item = self.stack.pop()
        self._extend(self.stack[-1], [item])

    def _extend(self, target: Any, items: list[Any]) -> None:
        if type(target) is not list:
            raise InputError(f"the pickle extends something that is no list near byte {self.pos}")
        columns = self.traces.get(id(target))
        if columns is None and not target and items and type(items[0]) is dict and "action" in items[0]:
            columns = self.columns_of(target)
        if columns is None:
            target.extend(items)
        else:
            for item in items:
                columns.add(item)

    def _mark(self) -> None:
        self.marks.append(len(self.stack))
        if self.stack and id(self.stack[-1]) in self.traces:
            self.scanner.run(self.traces[id(self.stack[-1])])

    def _push_text(self, count: int) -> None:
        self.stack.append(self._take(count).decode("utf-8", "surrogatepass"))

    def _push_bytes(self, count: int) -> None:
        self.stack.append(self._take(count))

    def _float(self) -> None:
        self.stack.append(struct.unpack(">d", self._take(8))[0])

    def _long(self, count: int) -> None:
        if count > _MAX_INT_BYTES:
            raise InputError(
                f"the pickle holds a number of {count} bytes near byte {self.pos}; the file is damaged"
            )
        self.stack.append(int.from_bytes(self._take(count), "little", signed=True))

    def _text_int(self) -> None:
        text = self._line()
        self.stack.append({"00": False, "01": True}[text] if text in ("00", "01") else int(text.rstrip("L")))

    def _tuple(self, count: int) -> None:
        if len(self.stack) < count:
            raise InputError(f"the pickle is damaged near byte {self.pos}")
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.stack.append(items)

    def _pairs(self) -> None:
        items = self._since_mark()
        self.stack.append(dict(zip(items[::2], items[1::2], strict=True)))

    def _table(self) -> dict[int, Callable[[], Any]]:
        push = self.stack.append
        text, raw = self._push_text, self._push_bytes
        number = self._number
        by_char: dict[str, Callable[[], Any]] = {
            "\x80": lambda: number(1),
            "\x95": lambda: number(8),
            "(": self._mark,
            "0": self.stack.pop,
            "1": self._since_mark,
            "2": lambda: push(self.stack[-1]),
            "N": lambda: push(None),
            "\x88": lambda: push(True),
            "\x89": lambda: push(False),
            "K": lambda: push(number(1)),
            "M": lambda: push(number(2)),
            "J": lambda: push(int.from_bytes(self._take(4), "little", signed=True)),
            "\x8a": lambda: self._long(number(1)),
            "\x8b": lambda: self._long(number(4)),
            "I": self._text_int,
            "L": self._text_int,
            "F": lambda: push(float(self._line())),
            "G": self._float,
            "S": lambda: push(self._line_bytes()[1:-1].decode("unicode_escape")),
            "V": lambda: push(self._line_bytes().decode("raw-unicode-escape")),
            "T": lambda: text(number(4)),
            "U": lambda: text(number(1)),
            "X": lambda: text(number(4)),
            "\x8c": lambda: text(number(1)),
            "\x8d": lambda: text(number(8)),
            "B": lambda: raw(number(4)),
            "C": lambda: raw(number(1)),
            "\x8e": lambda: raw(number(8)),
            "}": lambda: push({}),
            "]": lambda: push([]),
            ")": lambda: push(()),
            "l": lambda: push(self._since_mark()),
            "d": self._pairs,
            "t": lambda: push(tuple(self._since_mark())),
            "\x85": lambda: self._tuple(1),
            "\x86": lambda: self._tuple(2),
            "\x87": lambda: self._tuple(3),
            "a": self._append,
            "e": self._appends,
            "s": lambda: self._set_item(self.stack.pop(), self.stack.pop()),
            "u": self._set_items,
            "p": lambda: self._put(int(self._line())),
            "q": lambda: self._put(number(1)),
            "r": lambda: self._put(number(4)),
            "\x94": lambda: self._put(len(self.memo)),
            "g": lambda: push(self.get(int(self._line()))),
            "h": lambda: push(self.get(number(1))),
            "j": lambda: push(self.get(number(4))),
        }
        return {ord(char): handler for char, handler in by_char.items()}

    def _set_item(self, value: Any, key: Any) -> None:
        self.stack[-1][key] = value
