"""Trace events as typed records, and the decoder that makes only those that are asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Union

import msgspec

_NOTHING = msgspec.Raw(b"")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Args(msgspec.Struct, gc=False):
    """The event arguments that are read; everything else is skipped undecoded.

    Traces of 2021 and before write "external id" on kernels and "Input dims".
    """

    device: Any = None
    stream: Any = None
    correlation: Any = None
    external_id: Any = msgspec.field(name="External id", default=None)
    bytes: Any = None
    grid: msgspec.Raw = _NOTHING
    block: msgspec.Raw = _NOTHING
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)
    older_external_id: Any = msgspec.field(name="external id", default=None)
    older_dims: msgspec.Raw = msgspec.field(name="Input dims", default=_NOTHING)


class Event(msgspec.Struct, gc=False):
    """One trace event; times stay text so that nanoseconds survive large microsecond stamps."""

    cat: ClassVar[str]
    ph: str = ""
    name: str = ""
    pid: msgspec.Raw = _NOTHING
    tid: msgspec.Raw = _NOTHING
    ts: msgspec.Raw = _NOTHING
    dur: msgspec.Raw = _NOTHING
    args: Args | None = None


class CallArgs(msgspec.Struct, gc=False):
    """What is read of a runtime or driver call's arguments."""

    correlation: Any = None


class Call(msgspec.Struct, gc=False):
    """A runtime or driver call: an event with fewer fields, because there are many of them."""

    cat: ClassVar[str]
    ph: str = ""
    name: str = ""
    ts: msgspec.Raw = _NOTHING
    args: CallArgs | None = None


class OperationArgs(msgspec.Struct, gc=False):
    """What is read of an operation's arguments."""

    external_id: Any = msgspec.field(name="External id", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)
    older_dims: msgspec.Raw = msgspec.field(name="Input dims", default=_NOTHING)


class Operation(msgspec.Struct, gc=False):
    """A framework operation: an event with fewer fields, because there are many of them."""

    cat: ClassVar[str]
    ph: str = ""
    name: str = ""
    ts: msgspec.Raw = _NOTHING
    dur: msgspec.Raw = _NOTHING
    args: OperationArgs | None = None


class AnyEvent(Event, gc=False):
    """An event whose category is part of the record."""

    cat: str = ""  # type: ignore[misc]


class UnreadEvent(msgspec.Struct, gc=False):
    """An event of a category that nobody asked for: only its name is looked at, to see that it is text."""

    cat: ClassVar[str]
    name: str = ""


Wanted = Mapping[str, type[Event] | type[Call] | type[Operation]]
"""Categories, lower case, and the record that their events become."""
_EVENTS = msgspec.json.Decoder(list[AnyEvent])
# Spellings that profilers write; those that a file has besides are learnt from it.
_CATEGORIES = (
    "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cpu_op", "user_annotation",
    "gpu_user_annotation", "python_function", "cpu_instant_event", "ac2g", "fwdbwd", "async_cpu", "async_gpu", "Trace",
    "overhead", "cuda_sync", "cuda_event", "privateuse1_runtime",
)  # fmt: skip
_MOST_CATEGORIES = 64
_MOST_REFUSALS = 4


class EventDecoder:
    """Decodes lists of events, those of wanted categories as the records given and of the others little more than the number.

    A list with a category that is not known yet, or an event without one, takes the slower way of decoding
    all its events whole; a file of which many lists do stays on that way.
    """

    def __init__(self, wanted: Wanted | None) -> None:
        self._wanted = wanted
        self._known = set(_CATEGORIES)
        self._refusals = 0
        self._typed = None if wanted is None else _typed_decoder(wanted, self._known)

    def __call__(self, text: bytes | memoryview) -> list[Event]:
        if self._typed is not None:
            try:
                return self._typed.decode(text)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                pass
        events: list[Event] = list(_EVENTS.decode(text))
        if self._typed is not None and self._wanted is not None:
            new = {event.cat for event in events} - self._known - {""}
            self._known |= new
            self._refusals += not new
            usable = self._refusals <= _MOST_REFUSALS and len(self._known) <= _MOST_CATEGORIES
            self._typed = _typed_decoder(self._wanted, self._known) if usable else None
        return events


def _typed_decoder(wanted: Wanted, known: Iterable[str]) -> msgspec.json.Decoder[list[Event]]:
    """A decoder of lists of events that tells their class by their category."""
    classes = [
        msgspec.defstruct(
            "Tagged",
            [],
            bases=(wanted.get(category.lower(), UnreadEvent),),
            namespace={"cat": category},
            tag_field="cat",
            tag=category,
            gc=False,
        )
        for category in known
    ]
    return msgspec.json.Decoder(list[Union[tuple(classes)]])  # type: ignore[misc]  # noqa: UP007


def has_surrogates(text: str) -> bool:
    """Whether half a character stands in a text, which no file can hold as UTF-8."""
    return _SURROGATE.search(text) is not None


def without_surrogates(text: str) -> str:
    """The text with the replacement character where half a character stands."""
    return _SURROGATE.sub("\ufffd", text)


class FloatText(str):
    """A number with a fraction as the file writes it, because doubles do not hold nanoseconds of a date."""


def load_exact(text: str | bytes, strict: bool = True) -> Any:
    """JSON with fractions kept as they are written; ``ValueError`` for NaN and Infinity too."""
    return json.loads(text, strict=strict, parse_float=FloatText, parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def folded_events(text: bytes | memoryview) -> list[Event]:
    """Events of a list whatever the case of their keys; slower, for files that spell them in their own way.

    Raises:
        ValueError: not a list of objects.
    """
    values = load_exact(bytes(text))
    if not all(isinstance(value, dict) for value in values):
        raise ValueError("not a list of objects")
    return [lax_event(value) for value in values]


def lax_event(value: dict[str, Any]) -> Event:
    """An event from a dict of ``load_exact``: keys in any case, what cannot be used left at "unknown"."""
    value = {key.lower(): item for key, item in value.items()}

    def text(key: str) -> str:
        found = value.get(key)
        return "" if found is None else without_surrogates(str(found))

    args = value.get("args")
    return AnyEvent(
        ph=text("ph"),
        cat=text("cat"),
        name=text("name"),
        pid=_raw(value.get("pid")),
        tid=_raw(value.get("tid")),
        ts=_raw(value.get("ts")),
        dur=_raw(value.get("dur")),
        args=_lax_args(args) if isinstance(args, dict) else None,
    )


def _lax_args(args: dict[str, Any]) -> Args:
    found = {key.lower(): item for key, item in args.items()}
    number = {
        key: float(item) if isinstance(item, FloatText) else item
        for key, item in found.items()
        if key in ("device", "stream", "correlation", "external id", "bytes")
    }
    return Args(
        device=number.get("device"),
        stream=number.get("stream"),
        correlation=number.get("correlation"),
        external_id=number.get("external id"),
        bytes=number.get("bytes"),
        grid=_raw(found.get("grid")),
        block=_raw(found.get("block")),
        dims=_raw(found.get("input dims")),
        types=_raw(found.get("input type")),
    )


def _raw(found: Any) -> msgspec.Raw:
    if found is None:
        return _NOTHING
    return msgspec.Raw(found.encode() if isinstance(found, FloatText) else json.dumps(found).encode())
