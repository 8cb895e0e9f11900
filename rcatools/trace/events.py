"""Chrome-trace JSON as a stream of typed events: fast on good files, tolerant and counting on bad ones.

A file is cut at event borders into parts of half a megabyte, so memory does not grow with the file.
Each part goes through a typed decoder that skips what is not read, whole events of categories that nobody
asked for included. A part it refuses is taken apart event by event: repairable ones are repaired and
counted, the others dropped and counted.

A border is ``}``, ``,``, ``{"key"`` with the first key of the first event. Inside a JSON string the quote
after ``{`` would end the string, and a name cannot follow it, so a border is never inside a string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rcatools.errors import InputError, UnsafeInputError
from rcatools.trace.event_records import (
    AnyEvent,
    Event,
    EventDecoder,
    Wanted,
    folded_events,
    has_surrogates,
    lax_event,
    load_exact,
    without_surrogates,
)
from rcatools.trace.stream import ByteSource

PART_BYTES = 1 << 19
_EVENT = msgspec.json.Decoder(AnyEvent)
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[', re.IGNORECASE)
_FIRST_KEY = re.compile(rb'\s*\{\s*"([^"\\]{1,64})"')
_NON_FINITE = re.compile(
    r'(?<=")(\s*:\s*)[+-]?(?:inf(?:inity)?|nan(?:\([^)"]*\))?)(?=\s*[,}\]])', re.IGNORECASE
)
_LONGEST_JOIN = 8
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


@dataclass
class EventStream:
    """Events of one file, and after reading what was around and wrong with them.

    Attributes:
        wanted: the categories to read and the record each becomes; None reads all as whole events. An event has the
            fields of its record; of events of other categories only ``cat`` is sure to be there.
        fold_case: take keys in any case, which is slower.
        header: the document's other keys (``deviceProperties``, versions, ...), as far as readable.
        dropped: events that could not be read, ``dropped_bytes`` their size.
        repaired: repairs by kind: "non_finite", "control_character", "bad_utf8", "wrong_type".
        complete: the event list was closed.
        trailing_bytes: bytes after the document that are not part of it.
    """

    source: ByteSource
    wanted: Wanted | None = None
    fold_case: bool = False
    header: dict[str, Any] = field(default_factory=dict)
    dropped: int = 0
    dropped_bytes: int = 0
    repaired: dict[str, int] = field(default_factory=dict)
    complete: bool = False
    trailing_bytes: int = 0

    def __post_init__(self) -> None:
        self._decoder = folded_events if self.fold_case else EventDecoder(self.wanted)

    def parts(self) -> Iterator[list[Event]]:
        """Yield lists of events in file order.

        Raises:
            InputError: there is no list of events.
            UnsafeInputError: one event is larger than the limits allow.
        """
        blocks = self.source.blocks()
        head, buffer = self._find_list(blocks)
        self._read_head(head)
        border: re.Pattern[bytes] | None = None
        pending = [buffer]
        size, enough = len(buffer), PART_BYTES
        for block in blocks:
            pending.append(block)
            size += len(block)
            if size < enough and size <= self.source.limits.max_event_bytes:
                continue
            part = bytearray().join([b"[", *pending])
            if border is None and (first := _FIRST_KEY.match(part, 1)):
                border = _border(first[1])
            cut = _last_border(part, border) if border is not None else None
            if cut is None:
                if size > self.source.limits.max_event_bytes:
                    raise UnsafeInputError(
                        f"{self.source.path.name}: one event is longer than "
                        f"{self.source.limits.max_event_bytes:,} bytes; this is not a profiler trace"
                    )
                enough = 2 * size  # so that a long event is not searched again for every block
                continue
            rest = bytes(part[cut[2] :])
            yield self._decode_in_place(part, cut, border)
            pending, size, enough = [rest], len(rest), PART_BYTES
        yield from self._finish(b"".join(pending), border)

    def _decode_in_place(
        self, part: bytearray, cut: tuple[int, int, int], border: re.Pattern[bytes] | None
    ) -> list[Event]:
        """Decode what stands before a border; ``part`` begins with the bracket of a list."""
        comma = part[cut[1]]
        part[cut[1]] = ord("]")
        try:
            return self._decoder(memoryview(part)[: cut[1] + 1])
        except _REFUSED:
            part[cut[1]] = comma
            return self._decode_one_by_one(bytes(part[1 : cut[0]]), border)

    def _find_list(self, blocks: Iterator[bytes]) -> tuple[bytes, bytes]:
        buffer = b""
        for block in blocks:
            buffer += block
            start = buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
            if start.startswith(b"["):
                return b"", start[1:]
            if start and not start.startswith(b"{"):
                raise InputError(
                    f"{self.source.path.name}: not JSON (starts with {start[:12]!r}); give a profiler trace"
                )
            if found := _EVENTS_KEY.search(buffer):
                return buffer[: found.start()], buffer[found.end() :]
            if len(buffer) > self.source.limits.max_event_bytes:
                break
        raise InputError(
            f'{self.source.path.name}: no "traceEvents" list'
            + (f" ({self.source.truncated})" if self.source.truncated else "")
            + "; give a trace written by torch.profiler's export_chrome_trace or by rocprofv3"
        )

    def _read_head(self, head: bytes) -> None:
        text = head.decode("utf-8", "replace").strip().rstrip(",")
        if text:
            self._merge_header(text + "}")

    def _merge_header(self, text: str) -> None:
        for attempt in (text, _NON_FINITE.sub(r"\1null", text)):
            try:
                document = json.loads(attempt, strict=False)
            except (ValueError, RecursionError):
                continue
            if isinstance(document, dict):
                self._take_header(document)
            return

    def _take_header(self, document: dict[str, Any]) -> None:
        written = json.dumps(document, ensure_ascii=False)
        self.header.update(json.loads(without_surrogates(written)) if has_surrogates(written) else document)

    def _finish(self, buffer: bytes, border: re.Pattern[bytes] | None) -> Iterator[list[Event]]:
        if border is None:
            first = _FIRST_KEY.match(buffer)
            border = _border(first[1]) if first else None
        last = _last_border(buffer, border) if border is not None else None
        if last is not None and border is not None:
            yield self._decode(buffer[: last[0]], border)
            buffer = buffer[last[2] :]
        tail = self._last_event(buffer)
        if tail:
            yield tail

    def _last_event(self, buffer: bytes) -> list[Event]:
        """Decode the last event and what follows the list; a cut-off event is dropped."""
        text = buffer.decode("utf-8", "replace").strip()
        events: list[Event] = []
        decoder = json.JSONDecoder(strict=False)
        while text and not text.startswith("]"):
            try:
                value, end = decoder.raw_decode(text)
            except (ValueError, RecursionError):
                repaired = _NON_FINITE.sub(r"\1null", text)
                if repaired != text:
                    text = repaired
                    self._repair("non_finite")
                    continue
                self._drop(text.encode())
                return events
            events += (
                self._decode(text[:end].encode(), None)
                if isinstance(value, dict)
                else self._drop(text[:end].encode())
            )
            text = text[end:].lstrip().removeprefix(",").lstrip()
        self.complete = text.startswith("]")
        rest = text[1:].strip()
        if rest.startswith(","):
            try:
                value, end = decoder.raw_decode("{" + rest[1:].lstrip())
            except (ValueError, RecursionError):
                self.trailing_bytes = len(rest)
                return events
            self._take_header(value)
            self.trailing_bytes = len("{" + rest[1:].lstrip()) - end
        elif rest not in ("", "}"):
            self.trailing_bytes = len(rest)
        return events

    def _decode(self, part: bytes, border: re.Pattern[bytes] | None) -> list[Event]:
        try:
            return self._decoder(b"[" + part + b"]")
        except _REFUSED:
            return self._decode_one_by_one(part, border)

    def _decode_one_by_one(self, part: bytes, border: re.Pattern[bytes] | None) -> list[Event]:
        pieces = _split(part, border)
        events: list[Event] = []
        at = 0
        while at < len(pieces):
            for width in range(1, min(_LONGEST_JOIN, len(pieces) - at) + 1):
                event = self._decode_piece(b",".join(pieces[at : at + width]))
                if event is not None:
                    events.append(event)
                    at += width
                    break
            else:
                self._drop(pieces[at])
                at += 1
        return events

    def _decode_piece(self, piece: bytes) -> Event | None:
        try:
            return folded_events(b"[" + piece + b"]")[0] if self.fold_case else _EVENT.decode(piece)
        except _REFUSED:
            pass
        kinds: list[str] = []
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError:
            text = piece.decode("utf-8", "replace")
            kinds.append("bad_utf8")
        finite = _NON_FINITE.sub(r"\1null", text)
        if finite != text:
            kinds.append("non_finite")
        try:
            value = load_exact(finite, strict=False)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        if re.search(r"[\x00-\x1f]", finite.translate(_BLANKS)):
            kinds.append("control_character")
        if has_surrogates(json.dumps(value, ensure_ascii=False)):
            kinds.append("bad_utf8")
        event = lax_event(value)
        for kind in dict.fromkeys(kinds or ["wrong_type"]):
            self._repair(kind)
        return event

    def _repair(self, kind: str) -> None:
        self.repaired[kind] = self.repaired.get(kind, 0) + 1

    def _drop(self, piece: bytes) -> list[Event]:
        self.dropped += 1
        self.dropped_bytes += len(piece)
        return []


_BLANKS = {ord(blank): None for blank in " \t\r\n"}


def _border(first_key: bytes) -> re.Pattern[bytes]:
    return re.compile(rb'(\}\s*)(,)\s*(\{\s*"' + re.escape(first_key) + rb'"\s*:)', re.IGNORECASE)


def _last_border(buffer: bytes | bytearray, border: re.Pattern[bytes]) -> tuple[int, int, int] | None:
    """(end of the event before, its comma, start of the event after) of the last border, or None."""
    window = 64 << 10
    while True:
        low = max(len(buffer) - window, 0)
        found = None
        for found in border.finditer(buffer, low):  # noqa: B007  the last one is wanted
            pass
        if found is not None:
            return found.end(1), found.start(2), found.start(3)
        if low == 0:
            return None
        window *= 8


def _split(part: bytes, border: re.Pattern[bytes] | None) -> list[bytes]:
    if border is None:
        return [part]
    pieces: list[bytes] = []
    begin = 0
    for found in border.finditer(part):
        pieces.append(part[begin : found.end(1)])
        begin = found.start(3)
    return [*pieces, part[begin:]]
