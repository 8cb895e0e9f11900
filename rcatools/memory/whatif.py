"""Write a sequence of allocations in a few lines and see the segments the allocator would hold.

    w = Scenario()
    w.alloc("workspace", "76 MiB", stream="side")
    w.empty_cache()
    w.alloc("kv", "2 GiB")
    w.segments()

Stream and block names are free text; the stream "default" is torch's default stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd

from rcatools.errors import InputError, UnknownNameError
from rcatools.memory.build import pool_label
from rcatools.memory.export import snapshot_of
from rcatools.memory.rules import rules_from_settings
from rcatools.memory.simulator import Event, Simulator
from rcatools.memory.snapshot import PoolId, Snapshot

DEFAULT_STREAM = "default"
RNG_STATE_BYTES = (8, 8)
"""What the first graph capture of a process allocates for the random-number state, on the capture stream in
the default pool (recorded with torch 2.11 on an H200)."""

_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_size(value: int | str) -> int:
    """Bytes of 1048576, "1048576", "76 MiB" or "1.5 GB".

    Raises:
        InputError: not a size.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    unit = _UNITS.get((match[2] or "b").lower()) if match else None
    if match is None or unit is None:
        raise InputError(f"{value!r} is not a size; write a number of bytes or a text such as '76 MiB'")
    size = float(match[1]) * unit
    if size > 1 << 50:
        raise InputError(f"{value!r} is more than any device holds; give at most 1024 TiB")
    return int(match[1]) * unit if "." not in match[1] else round(size)


class Scenario:
    """A program's allocations on one device.

    Args:
        settings: allocator settings, as in ``PYTORCH_CUDA_ALLOC_CONF``.
        torch: torch version whose rules apply.
        limit: bytes the process may hold (device memory or memory fraction); None for no limit.

    Attributes:
        simulator: the allocator behind it, with totals, peaks and events.
        failed: names of requests that ran out of memory.
    """

    def __init__(self, settings: str = "", torch: str = "2.11", limit: int | str | None = None) -> None:
        self.simulator = Simulator(
            rules_from_settings(settings, torch), limit=None if limit is None else parse_size(limit)
        )
        self.failed: list[str] = []
        self._blocks: dict[str, int] = {}
        self._streams: dict[str, int] = {DEFAULT_STREAM: 0}
        self._pools: dict[str, PoolId] = {}
        self._current = [DEFAULT_STREAM]
        self._captured = False

    # operations

    def alloc(self, name: str, size: int | str, stream: str | None = None) -> bool:
        """Allocate a named block; False when out of memory.

        Args:
            name: a name not in use.
            size: bytes, or a text with a unit.
            stream: default: the stream of the surrounding capture, else the default stream.
        """
        if name in self._blocks:
            raise InputError(f"block {name!r} is already in use; free it first or use another name")
        address = self.simulator.alloc(parse_size(size), self._stream(stream or self._current[-1]))
        if address is None:
            self.failed.append(name)
            return False
        self._blocks[name] = address
        return True

    def free(self, *names: str) -> None:
        """Free blocks by name."""
        for name in names:
            self.simulator.free(self._address(name))
            del self._blocks[name]

    def record_stream(self, name: str, stream: str) -> None:
        """Note that another stream uses a block: its free then waits for ``sync``."""
        self.simulator.record_stream(self._address(name), self._stream(stream))

    def sync(self, stream: str | None = None) -> None:
        """All work queued so far (on one stream) is done."""
        self.simulator.sync(None if stream is None else self._stream(stream))

    def empty_cache(self) -> None:
        """``torch.cuda.empty_cache()``."""
        self.simulator.empty_cache()

    @contextmanager
    def capture(self, pool: str, stream: str, *, rng_state: bool = True) -> Iterator[None]:
        """Capture a graph on a stream into a named pool; several captures may share one.

        Entering empties the cache, as ``torch.cuda.graph`` does. The pool lives until ``release`` was called
        once per capture.

        Args:
            pool: the pool's name.
            stream: the capture stream; not the default one.
            rng_state: allocate the random-number state at the first capture (see ``RNG_STATE_BYTES``).
        """
        if stream == DEFAULT_STREAM:
            raise InputError("a graph cannot be captured on the default stream; name another one")
        self.sync()
        self.empty_cache()
        handle = self._stream(stream)
        if rng_state and not self._captured:
            for size in RNG_STATE_BYTES:
                self.simulator.alloc(size, handle)
        self._captured = True
        with self._inside(self._pool(pool, graph=True), frozenset({handle}), stream, capture=True):
            yield

    @contextmanager
    def mempool(self, pool: str, *, use_on_oom: bool = False, no_split: bool = False) -> Iterator[None]:
        """``torch.cuda.use_mem_pool``: requests of all streams go into a named MemPool."""
        identity = self._pool(pool, graph=False)
        self.simulator.set_pool(identity, use_on_oom=use_on_oom, no_split=no_split)
        with self._inside(identity, None, self._current[-1], capture=False):
            yield

    def release(self, pool: str) -> None:
        """One graph of a pool is reset, or its MemPool deleted; a MemPool gives its memory back at once."""
        identity = self._pools.get(pool)
        if identity is None:
            raise UnknownNameError("pool", pool, self._pools)
        self.simulator.release_private(identity, at_once=identity[0] == 0)

    @contextmanager
    def _inside(
        self, pool: PoolId, streams: frozenset[int] | None, stream: str, *, capture: bool
    ) -> Iterator[None]:
        self.simulator.begin_pool(pool, streams, capture=capture)
        self._current.append(stream)
        try:
            yield
        finally:
            self._current.pop()
            self.simulator.end_pool(pool, capture=capture)

    # names

    def _address(self, name: str) -> int:
        if name not in self._blocks:
            raise UnknownNameError("block", name, self._blocks)
        return self._blocks[name]

    def _stream(self, name: str) -> int:
        return self._streams.setdefault(name, len(self._streams))

    def _pool(self, name: str, *, graph: bool) -> PoolId:
        known = self._pools.get(name)
        if known is None:
            number = len(self._pools) + 1
            known = self._pools[name] = (number, 0) if graph else (0, number)
        if (known[1] == 0) != graph:
            raise InputError(
                f"pool {name!r} belongs to {'a graph' if known[1] == 0 else 'a MemPool'}; use another name"
            )
        return known

    # results

    def segments(self) -> pd.DataFrame:
        """What is held now: one row per block with ``segment`` (number), ``stream``, ``pool``, ``size_class``,
        ``segment_size``, ``offset``, ``size``, ``state`` ("free", "used", "waiting") and ``name``."""
        names = {address: name for name, address in self._blocks.items()}
        streams = {handle: name for name, handle in self._streams.items()}
        pools = {identity: name for name, identity in self._pools.items()}
        states = {0: "free", 1: "used", 2: "waiting", 3: "unmapped"}
        rows = []
        for number, segment in enumerate(self.simulator.heap.segments.values()):
            for block in self.simulator.heap.chain(segment):
                if states[block.state] == "unmapped":
                    continue
                rows.append(
                    (
                        number,
                        streams[segment.stream],
                        pools.get(segment.pool.owner, pool_label(segment.pool.owner)),
                        "small" if segment.pool.small else "large",
                        None if segment.expandable else segment.size,
                        block.address - segment.address,
                        block.size,
                        states[block.state],
                        names.get(block.address, ""),
                    )
                )
        columns = [
            "segment",
            "stream",
            "pool",
            "size_class",
            "segment_size",
            "offset",
            "size",
            "state",
            "name",
        ]
        return pd.DataFrame(rows, columns=columns)

    def events(self) -> pd.DataFrame:
        """What the allocator would have recorded: ``action``, ``address``, ``size``, ``stream``, ``pool``."""
        streams = {handle: name for name, handle in self._streams.items()}
        return pd.DataFrame(
            [
                (e.action, e.address, e.size, streams[e.stream], pool_label(e.pool))
                for e in self.simulator.events
            ],
            columns=list(Event._fields),
        )

    def snapshot(self, source: str = "scenario") -> Snapshot:
        """The same as a snapshot, for the ledger, the pin list and the figures."""
        return snapshot_of(self.simulator, source)

    def summary(self) -> dict[str, Any]:
        """Totals, failures, and how far the answer depends on addresses."""
        heap = self.simulator.heap
        return {
            "reserved": heap.reserved,
            "peak_reserved": heap.peak_reserved,
            "allocated": heap.allocated,
            "peak_allocated": heap.peak_allocated,
            "retries": self.simulator.retries,
            "ooms": self.simulator.ooms,
            "failed": list(self.failed),
            "address_ties": heap.ties,
            "streams": dict(self._streams),
        }
