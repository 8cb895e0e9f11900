"""Bounded reading of trace files: plain or gzip, in blocks, never more than the limits allow."""

from __future__ import annotations

import gc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from isal import igzip_lib, isal_zlib

from rcatools.errors import InputError, UnsafeInputError
from rcatools.files import readable_file

GZIP_MAGIC = b"\x1f\x8b"
BLOCK_BYTES = 1 << 19
_DAMAGE = cast("tuple[type[Exception], ...]", (zlib.error, igzip_lib.IsalError))


@dataclass(frozen=True)
class Limits:
    """What a trace file may cost.

    Attributes:
        max_bytes: uncompressed bytes read at most.
        max_ratio: uncompressed over compressed bytes; deflate reaches 1030 on constant input, profiler
            traces 10 to 40. Checked once ``ratio_from`` bytes are out.
        ratio_from: uncompressed bytes below which the ratio is not looked at.
        max_event_bytes: the longest single JSON event.
    """

    max_bytes: int = 16 << 30
    max_ratio: float = 250.0
    ratio_from: int = 64 << 20
    max_event_bytes: int = 64 << 20


DEFAULT_LIMITS = Limits()


@dataclass
class ByteSource:
    """Blocks of a file's uncompressed content; ``truncated`` tells after reading what was wrong."""

    path: Path
    limits: Limits = DEFAULT_LIMITS
    truncated: str | None = field(default=None, init=False)
    bytes_out: int = field(default=0, init=False)
    bytes_in: int = field(default=0, init=False)

    def blocks(self) -> Iterator[bytes]:
        """Yield uncompressed blocks of about ``BLOCK_BYTES``.

        A gzip stream that ends early or is damaged yields what came before and sets ``truncated``.

        Raises:
            UnsafeInputError: the content is larger than the limits allow.
        """
        with self.path.open("rb") as file:
            first = file.read(BLOCK_BYTES)
            file.seek(0)
            pieces = self._inflate(file) if first.startswith(GZIP_MAGIC) else self._plain(file)
            for piece in pieces:
                self.bytes_out += len(piece)
                if self.bytes_out > self.limits.max_bytes:
                    raise UnsafeInputError(
                        f"{self.path.name}: more than {self.limits.max_bytes:,} bytes uncompressed "
                        "(limit max_bytes); cut the trace or raise the limit"
                    )
                yield piece

    def read_all(self, max_bytes: int) -> bytearray:
        """The whole content, for formats that cannot be read in blocks.

        Raises:
            UnsafeInputError: larger than ``max_bytes`` or than the limits.
        """
        whole = bytearray()
        for block in self.blocks():
            whole += block
            if self.bytes_out > max_bytes:
                raise UnsafeInputError(
                    f"{self.path.name}: more than {max_bytes:,} bytes uncompressed in a format that is read "
                    "at once; profile a shorter window"
                )
        return whole

    def _plain(self, file: object) -> Iterator[bytes]:
        read = file.read  # type: ignore[attr-defined]
        while block := read(BLOCK_BYTES):
            self.bytes_in += len(block)
            yield block

    def _inflate(self, file: object) -> Iterator[bytes]:
        read = file.read  # type: ignore[attr-defined]
        decoder = isal_zlib.decompressobj(wbits=31)
        pending = b""
        while True:
            if not pending:
                pending = read(1 << 20)
                self.bytes_in += len(pending)
                if not pending:
                    if not decoder.eof:
                        self.truncated = "the gzip stream ends early"
                    return
            try:
                block = decoder.decompress(pending, BLOCK_BYTES)
            except _DAMAGE as error:
                self.truncated = f"the gzip stream is damaged ({error})"
                yield from self._salvage()
                return
            pending = decoder.unconsumed_tail
            if block:
                self._check_ratio(len(block), len(pending))
                yield block
            if decoder.eof:
                pending = decoder.unused_data or read(1 << 20)
                if not pending.startswith(GZIP_MAGIC):  # padding after the last member
                    return
                decoder = isal_zlib.decompressobj(wbits=31)

    def _salvage(self) -> Iterator[bytes]:
        """What a damaged stream still yields after what was already read, in small steps up to the damage."""
        skip = self.bytes_out
        decoder = zlib.decompressobj(wbits=31)
        with self.path.open("rb") as file:
            while pending := file.read(1 << 16):
                while pending:
                    try:
                        block = decoder.decompress(pending, 1 << 12)
                    except zlib.error:
                        return
                    pending = decoder.unconsumed_tail
                    if skip < len(block):
                        yield block[skip:]
                    skip = max(skip - len(block), 0)
                    if decoder.eof:
                        return

    def _check_ratio(self, new: int, unread: int) -> None:
        total = self.bytes_out + new
        used = max(self.bytes_in - unread, 1)
        if total > self.limits.ratio_from and total / used > self.limits.max_ratio:
            raise UnsafeInputError(
                f"{self.path.name}: expands {total / used:.0f} times (limit max_ratio {self.limits.max_ratio:g}); "
                "this looks like a decompression bomb, not a trace"
            )


@contextmanager
def collection_paused() -> Iterator[None]:
    """Hold the cyclic garbage collector: a reader makes millions of objects and no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def existing_file(path: str | Path, wanted: str = "a trace file") -> Path:
    """The path of a readable, non-empty regular file.

    Raises:
        InputError: it is missing, a folder, a pipe, or empty.
    """
    file = readable_file(path, wanted)
    if file.stat().st_size == 0:
        raise InputError(f"{file.name} is empty; give {wanted}")
    return file
