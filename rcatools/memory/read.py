"""Read torch memory snapshots: pickle (protocols 2 to 5) or JSON, plain or gzip.

A pickle can run code when it is loaded. Snapshots need no code at all, only containers, text and
numbers, so the reader refuses every reference to a class or function and names it.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
from pathlib import Path
from typing import IO, Any

from rcatools.errors import InputError, UnsafeInputError
from rcatools.memory.build import build_snapshot
from rcatools.memory.columns import EventColumns, StackTable
from rcatools.memory.snapshot import Snapshot
from rcatools.units import byte_size

MAX_SNAPSHOT_BYTES = 4 << 30


class _DataOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise UnsafeInputError(
            f"the pickle asks for {module}.{name}; a memory snapshot holds plain data only, "
            "so nothing was run: do not load this file by other means"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise UnsafeInputError(
            "the pickle asks for a persistent object; a memory snapshot holds plain data only"
        )


class _Limited(io.RawIOBase):
    """A stream that stops at a number of bytes."""

    def __init__(self, stream: IO[bytes], limit: int, source: str) -> None:
        self._stream, self._left, self._limit, self._source = stream, limit, limit, source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._left + 1))
        if len(data) > self._left:
            raise UnsafeInputError(
                f"{self._source} unpacks to more than {byte_size(self._limit)}; raise the limit if it is yours"
            )
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)


def load_snapshot(path: str | Path, *, max_bytes: int = MAX_SNAPSHOT_BYTES) -> Snapshot:
    """Read one snapshot file.

    Args:
        path: ``.pickle``, ``.pkl`` or ``.json``, plain or gzip; the content decides, not the name.
        max_bytes: refuse files that are larger once unpacked.

    Raises:
        InputError: unreadable, cut off, or not a snapshot.
        UnsafeInputError: the pickle asks for code, or the file is larger than ``max_bytes``.
    """
    source = Path(path).name
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        inner: IO[bytes] = gzip.GzipFile(fileobj=file) if zipped else file  # type: ignore[assignment]
        stream = io.BufferedReader(_Limited(inner, max_bytes, source), 1 << 20)
        try:
            return read_snapshot(stream, source)
        except (EOFError, gzip.BadGzipFile) as error:
            raise InputError(f"{source} is cut off or not valid gzip ({error}); copy it again") from error
        except OSError as error:
            if error.filename is None:
                raise InputError(f"{source} cannot be unpacked ({error}); copy it again") from error
            raise


def read_snapshot(stream: io.BufferedReader, source: str) -> Snapshot:
    """Read a snapshot from an unpacked stream; errors as in ``load_snapshot``."""
    head = stream.peek(64)[:64].lstrip()
    if not head:
        raise InputError(f"{source} is empty")
    top = (
        _read_json(stream, source)
        if head[:1] in (b"{", b"[") and head[:2] != b"\x80"
        else _read_pickle(stream, source)
    )
    events = EventColumns(StackTable())
    traces = top.pop("device_traces", []) if isinstance(top, dict) else []
    if not isinstance(traces, (list, tuple)):
        events.damaged["trace_not_a_list"] += 1
        traces = []
    for device, entries in enumerate(traces):
        if isinstance(entries, (list, tuple)):
            events.extend(device, entries)
        else:
            events.damaged["trace_not_a_list"] += 1
    return build_snapshot(top, events, len(traces), source)


def _read_json(stream: IO[bytes], source: str) -> Any:
    try:
        return json.load(stream)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not valid JSON ({error})") from error


def _read_pickle(stream: IO[bytes], source: str) -> Any:
    try:
        return _DataOnly(stream).load()
    except UnsafeInputError as error:
        raise UnsafeInputError(f"{source}: {error}") from None
    except (pickle.UnpicklingError, EOFError) as error:
        raise InputError(f"{source} is cut off or not a pickle ({error}); copy it again") from error
    except Exception as error:  # a damaged pickle can raise almost anything
        raise InputError(f"{source} is not a readable pickle ({type(error).__name__}: {error})") from error
