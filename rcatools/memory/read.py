"""Read torch memory snapshots: pickle (protocols 0 to 5) or JSON, plain or gzip.

A pickle can run code when it is loaded. Snapshots need no code at all, only containers, text and numbers, so
the reader knows nothing else and names what it refuses.
"""

from __future__ import annotations

import gzip
import io
from collections import Counter
from pathlib import Path
from typing import IO, Any

from rcatools.errors import InputError, RcaError, UnsafeInputError
from rcatools.files import readable_file
from rcatools.memory.build import build_snapshot
from rcatools.memory.columns import StackTable, TraceColumns
from rcatools.memory.snapshot import Snapshot
from rcatools.memory.unpickle import Machine
from rcatools.units import byte_size

MAX_SNAPSHOT_BYTES = 4 << 30
TAKE_AGAIN = "give a file that torch.cuda.memory._dump_snapshot(path) wrote"
_CHUNK = 1 << 22


def load_snapshot(path: str | Path, *, max_bytes: int = MAX_SNAPSHOT_BYTES) -> Snapshot:
    """Read one snapshot file.

    Args:
        path: ``.pickle``, ``.pkl`` or ``.json``, plain or gzip; the content decides, not the name.
        max_bytes: refuse files that are larger once unpacked.

    Raises:
        InputError: unreadable, cut off, or not a snapshot.
        UnsafeInputError: the pickle asks for code, or the file is larger than ``max_bytes``.
    """
    source = readable_file(path, "a snapshot file").name
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            parts = _parse(_read_all(_unzip(file) if zipped else file, max_bytes, source), source)
        except (EOFError, gzip.BadGzipFile) as error:
            raise InputError(f"{source} is cut off or not valid gzip ({error}); copy it again") from error
        except OSError as error:
            if error.filename is None:
                raise InputError(f"{source} cannot be unpacked ({error}); copy it again") from error
            raise
        except RcaError:
            raise
        except Exception as error:
            if type(error).__module__.startswith(("isal", "zlib")):
                raise InputError(f"{source} is not valid gzip ({error}); copy it again") from error
            raise
    return build_snapshot(*parts, source)  # the file's bytes are gone by now


def _unzip(file: IO[bytes]) -> IO[bytes]:
    try:
        from isal import igzip
    except ModuleNotFoundError:  # a GPU container; slower, otherwise the same
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    return igzip.IGzipFile(fileobj=file)  # type: ignore[no-any-return]


def _read_all(stream: IO[bytes], max_bytes: int, source: str) -> bytes:
    out = io.BytesIO()
    while chunk := stream.read(_CHUNK):
        out.write(chunk)
        if out.tell() > max_bytes:
            raise UnsafeInputError(
                f"{source} holds more than {byte_size(max_bytes)} once unpacked; raise the limit if the file is yours"
            )
    return out.getvalue()


def parse_snapshot(data: bytes, source: str) -> Snapshot:
    """Read a snapshot from the bytes of an unpacked file; errors as in ``load_snapshot``."""
    return build_snapshot(*_parse(data, source), source)


def _parse(data: bytes, source: str) -> tuple[Any, list[TraceColumns], Counter[str]]:
    head = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not head:
        raise InputError(f"{source} is empty; {TAKE_AGAIN}")
    stacks = StackTable()
    damaged: Counter[str] = Counter()
    read = _parse_json if head[:1] in (b"{", b"[") and not _looks_pickled(data) else _parse_pickle
    try:
        top, traces = read(data, stacks, damaged)
    except UnsafeInputError as error:
        raise UnsafeInputError(f"{source}: {error}") from None
    except InputError as error:
        raise InputError(f"{source}: {error}; {TAKE_AGAIN}") from None
    stacks.forget_objects()
    return top, traces, damaged


def _looks_pickled(data: bytes) -> bool:
    """Protocol 2 and later start with a protocol byte; older ones with an opcode and end with a stop."""
    return data[:1] == b"\x80" or (data[-1:] == b"." and data[:1] not in (b"{", b"["))


def _parse_pickle(data: bytes, stacks: StackTable, damaged: Counter[str]) -> tuple[Any, list[TraceColumns]]:
    machine = Machine(data, stacks)
    top = machine.load()
    traces = top.get("device_traces", []) if isinstance(top, dict) else []
    if not isinstance(traces, (list, tuple)):
        damaged["trace_not_a_list"] += 1
        return top, []
    columns = []
    for trace in traces:
        found = machine.traces.get(id(trace))
        if found is None:
            found = TraceColumns(stacks)
            if isinstance(trace, (list, tuple)):
                found.extend(trace)
            else:
                damaged["trace_not_a_list"] += 1
        columns.append(found)
    machine.close()
    return top, columns


def _parse_json(data: bytes, stacks: StackTable, damaged: Counter[str]) -> tuple[Any, list[TraceColumns]]:
    """Events stay unparsed until each is turned into columns, so that they never exist all at once."""
    import msgspec

    try:
        top = msgspec.json.decode(data.lstrip(b"\xef\xbb\xbf"), type=dict[str, msgspec.Raw])
        raw_traces = top.pop("device_traces", None)
        parsed = {key: msgspec.json.decode(value) for key, value in top.items()}
        columns: list[TraceColumns] = []
        if raw_traces is not None:
            for raw in _raw_list(raw_traces, damaged):
                trace = TraceColumns(stacks)
                for entry in _raw_list(raw, damaged):
                    trace.add(msgspec.json.decode(entry))
                    stacks.forget_objects()
                columns.append(trace)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"not a snapshot in JSON ({str(error)[:200]})") from error
    return parsed, columns


def _raw_list(raw: Any, damaged: Counter[str]) -> list[Any]:
    import msgspec

    try:
        return msgspec.json.decode(raw, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        damaged["trace_not_a_list"] += 1
        return []
