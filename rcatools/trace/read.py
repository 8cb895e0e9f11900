"""One entry for every trace format."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

from rcatools.errors import InputError
from rcatools.trace.kineto import read_kineto
from rcatools.trace.model import Trace
from rcatools.trace.rocprof_csv import read_rocprof_csv
from rcatools.trace.rocprof_json import read_rocprof_json
from rcatools.trace.sqlite import SQLITE_MAGIC, read_sqlite
from rcatools.trace.stream import DEFAULT_LIMITS, ByteSource, Limits, existing_file

_ROCPROF_KEY = re.compile(rb'"rocprofiler-sdk-tool"\s*:')
_SNIFF_BYTES = 1 << 16


def load_trace(
    path: str | Path, limits: Limits = DEFAULT_LIMITS, cache_folder: str | Path | None = None
) -> Trace:
    """Read a profile of any known format; the content decides, not the file's name.

    Args:
        path: torch.profiler Chrome JSON, rocprofv3 CSV or JSON (each plain or gzip), or the SQLite database
            of rocprofv3 (rocpd) or Nsight Systems.
        limits: what the file may cost.
        cache_folder: where to keep the read trace as Parquet, and to look for it first; None keeps nothing.

    Returns:
        The trace as one table of GPU activities; a file without GPU activity gives an empty table and a
        warning.

    Raises:
        InputError: missing, empty or not a trace.
        UnsafeInputError: beyond the limits.
    """
    file = existing_file(path)
    if cache_folder is None:
        return _reader(file, limits)(file, limits)
    from rcatools.trace import cache  # pyarrow is only needed here

    cached = cache.cache_path(file, Path(cache_folder))
    trace = cache.load(cached)
    if trace is None:
        trace = _reader(file, limits)(file, limits)
        with contextlib.suppress(OSError):  # a cache that cannot be written is only slower
            cache.store(trace, cached)
    return trace


def _reader(path: Path, limits: Limits) -> Callable[[Path, Limits], Trace]:
    with path.open("rb") as raw:
        if raw.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC:
            return read_sqlite
    source = ByteSource(path, limits)
    start = next(source.blocks(), b"")[:_SNIFF_BYTES]
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        why = f" ({source.truncated})" if source.truncated else ""
        raise InputError(f"{path.name}: nothing can be read from it{why}; record or copy the trace again")
    if text[:1] in (b"{", b"["):
        return read_rocprof_json if _ROCPROF_KEY.search(start) else read_kineto
    first_line = text.split(b"\n", 1)[0]
    if b"," in first_line and first_line.isascii() and b"\0" not in first_line:
        return read_rocprof_csv
    raise InputError(
        f"{path.name}: not a known trace format; give torch.profiler JSON, rocprofv3 CSV or JSON, rocpd or nsys SQLite"
    )
