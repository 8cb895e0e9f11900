"""Message buffers of the packed gather: made anew, shared as published, or owned and pinned.

A message is flat fp32: ``rows x (2 max_tiles + 1)`` numbers (maxima, sums, target) and, where asked
for, the 32 bytes of a digest; where each stands in it is told by ``packing``. ``SharedBuffers``
reproduces the cache of RL-Kernel #403 with the hazards its review found; ``OwnedBuffers`` is the safe form.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rcatools.errors import RunError
from rcatools.workload.vime.collectives import CountingCollectives
from rcatools.workload.vime.contract import DIGEST_BYTES

PUBLISHED_LIMIT = 32
MOST_OWNERS = 64
DIGEST_WORDS = DIGEST_BYTES // 4


@dataclass(frozen=True)
class MessageShape:
    """What a message holds; ``digest`` adds room for one digest, ``times`` makes it so many times as long."""

    rows: int
    max_tiles: int
    digest: bool = False
    times: int = 1

    @property
    def width(self) -> int:
        """fp32 numbers per row."""
        return 2 * self.max_tiles + 1

    @property
    def words(self) -> int:
        """fp32 numbers of the message."""
        return self.times * (self.rows * self.width + (DIGEST_WORDS if self.digest else 0))


@dataclass(frozen=True)
class Message:
    """Room for one rank's message, ``sent`` ``[words]``, and for every rank's, ``block`` ``[world, words]``.

    All fp32. ``gathered`` are the rows of ``block``.
    """

    shape: MessageShape
    sent: Any
    block: Any

    @property
    def gathered(self) -> list[Any]:
        """One flat view per rank."""
        return list(self.block.unbind(0))


@dataclass
class CacheCounts:
    """How often a cache had what was asked for."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0


class Buffers(Protocol):
    """Where a call gets its message from."""

    counts: CacheCounts

    def take(self, shape: MessageShape, comm: CountingCollectives, device: Any) -> Message:
        """A message of ``shape`` with room for every rank of ``comm``."""
        ...


class PerCallBuffers:
    """New tensors for every call."""

    def __init__(self) -> None:
        self.counts = CacheCounts()

    def take(self, shape: MessageShape, comm: CountingCollectives, device: Any) -> Message:
        """A message nobody else holds."""
        self.counts.misses += 1
        return _new_message(shape, comm.world, device)


class SharedBuffers:
    """The published cache: least recently used of ``limit`` entries, shared by all who ask.

    Unsafe three ways: the key names neither group, stream nor thread; an evicted entry is freed although
    a captured graph may hold its address; more row counts than entries never hit when visited in turn.
    """

    def __init__(self, limit: int = PUBLISHED_LIMIT) -> None:
        self.limit = limit
        self.counts = CacheCounts()
        self._entries: OrderedDict[tuple[Any, ...], Message] = OrderedDict()

    def take(self, shape: MessageShape, comm: CountingCollectives, device: Any) -> Message:
        """The entry of this device, world size, row count and width, made where missing."""
        key = (str(device), comm.world, shape)
        found = self._entries.get(key)
        if found is not None:
            self.counts.hits += 1
            self._entries.move_to_end(key)
            return found
        self.counts.misses += 1
        made = self._entries[key] = _new_message(shape, comm.world, device)
        while len(self._entries) > self.limit:
            self._entries.popitem(last=False)
            self.counts.evictions += 1
        return made


class OwnedBuffers:
    """One growing buffer per group, stream, thread and width; row counts share its front part.

    A call's results are copies, so calls in one stream's order may reuse the memory. Inside
    ``pinning()`` every message handed out is also kept by the returned list: keep that list as long as
    the captured graph. Any number of row counts needs one entry. Beyond ``limit`` owners the one that
    asked longest ago loses its buffer; whoever still holds a message of it keeps the memory alive.
    """

    def __init__(self, limit: int = MOST_OWNERS) -> None:
        self.limit = limit
        self.counts = CacheCounts()
        self._arenas: OrderedDict[tuple[Any, ...], Message] = OrderedDict()
        self._lock = threading.Lock()
        self._pins = threading.local()

    def take(self, shape: MessageShape, comm: CountingCollectives, device: Any) -> Message:
        """The front of this owner's buffer, grown first where too small.

        Raises:
            RunError: a graph is being captured and nobody pins its buffers.
        """
        pins = getattr(self._pins, "lists", None)
        if not pins and _capturing(device):
            raise RunError("a graph captures this call but nothing pins its buffers: capture in pinning()")
        key = (str(device), comm.ranks, comm.epoch, _stream(device), threading.get_ident(), shape.max_tiles)
        with self._lock:
            arena = self._arenas.get(key)
            if arena is None or arena.shape.words < shape.words:
                self.counts.misses += 1
                roomy = replace(shape, rows=1 << (shape.rows - 1).bit_length(), digest=True)
                arena = self._arenas[key] = _new_message(roomy, comm.world, device)
            else:
                self.counts.hits += 1
            self._arenas.move_to_end(key)
            while len(self._arenas) > self.limit:
                self._arenas.popitem(last=False)
                self.counts.evictions += 1
        room = arena.block.view(-1)[: comm.world * shape.words]
        message = Message(shape, arena.sent[: shape.words], room.view(comm.world, shape.words))
        for kept in pins or ():
            kept.append(message)
        return message

    @contextmanager
    def pinning(self) -> Iterator[list[Message]]:
        """Collect every message this thread takes, so that the caller can keep them with its graph."""
        kept: list[Message] = []
        lists = self._pins.__dict__.setdefault("lists", [])
        lists.append(kept)
        try:
            yield kept
        finally:
            lists.remove(kept)


def _new_message(shape: MessageShape, world: int, device: Any) -> Message:
    import torch

    return Message(
        shape,
        torch.empty((shape.words,), dtype=torch.float32, device=device),
        torch.empty((world, shape.words), dtype=torch.float32, device=device),
    )


def _capturing(device: Any) -> bool:
    import torch

    return torch.device(device).type == "cuda" and bool(torch.cuda.is_current_stream_capturing())


def _stream(device: Any) -> int:
    import torch

    return int(torch.cuda.current_stream(device).cuda_stream) if torch.device(device).type == "cuda" else 0
