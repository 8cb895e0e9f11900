"""A deterministic model of torch's native caching allocator for one device. Needs no GPU.

It takes the operations a program performs and answers with the events the allocator would record and the
segments it would hold. What it cannot know is where the driver places a segment: addresses are symbolic
unless they are given, and ``Heap.ties`` counts the choices that only a real address would decide.

Not modelled: other backends and pluggable allocators, memory shared between processes, the driver lock being
released during a request, reuse of recorded streams inside a capture (``graph_capture_record_stream_reuse``),
and storage resized in place (torch 2.14 and later). Frees that become complete at one moment do so in the order
in which their streams were first waited for; torch's order depends on addresses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rcatools.errors import InputError
from rcatools.memory.expandable import find_room, map_front, reserve
from rcatools.memory.heap import UNMAPPED, USED, Block, BlockPool, Heap
from rcatools.memory.release import (
    Released,
    apply_release,
    collection_plan,
    drop,
    oversize_plan,
    plan_default,
    plan_private,
)
from rcatools.memory.rules import Rules
from rcatools.memory.snapshot import DEFAULT_POOL, PoolId

SYMBOLIC_STEP = 1 << 44


class Event(NamedTuple):
    """One recorded event; sizes in bytes as torch records them (requested for blocks, driver for segments)."""

    action: str
    address: int
    size: int
    stream: int
    pool: PoolId


class _Pool:
    """Life of a private pool."""

    def __init__(self, streams: frozenset[int] | None) -> None:
        self.uses = 1
        self.active = False
        self.streams = streams
        self.use_on_oom = False


class _Wait:
    """A freed block's place in the queue of a stream that still uses it."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.done = False


class Simulator:
    """The allocator of one device.

    Args:
        rules: constants and settings.
        limit: bytes the process may hold from the driver; None for no limit. Exceeding it starts the retry
            ladder, as a real driver failure does.
        place: gives the address of each new driver segment or address range from its size and stream;
            default: symbolic addresses in order of creation.

    Attributes:
        heap: segments, blocks, totals and peaks.
        events: what was recorded so far.
        retries: how often everything cached was released to satisfy a request.
        ooms: how many requests failed.
    """

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        limit: int | None = None,
        place: Callable[[int, int], int] | None = None,
    ) -> None:
        self.rules = rules or Rules()
        self.heap = Heap(self.rules)
        self.heap.count_ties = place is None
        self.limit = limit
        self.events: list[Event] = []
        self.retries = 0
        self.ooms = 0
        self.place = place or self._symbolic
        self._placed = 0
        self._private: dict[PoolId, _Pool] = {}
        self._active: list[PoolId] = []
        self._capturing = 0
        self._uses: dict[int, list[int]] = {}  # block address: other streams that use it
        self._waiting: dict[int, deque[_Wait]] = {}
        self._outstanding: dict[int, int] = {}  # block address: streams it still waits for
        self._deferred: list[Block] = []

    # requests

    def alloc(self, nbytes: int, stream: int = 0) -> int | None:
        """Request memory on a stream: its address, or None when out of memory.

        Raises:
            InputError: the size is not positive (torch gives such requests no memory at all).
        """
        if nbytes <= 0:
            raise InputError(f"an allocation needs a positive size, got {nbytes}")
        if not self._capturing:
            self._process_events()
        size = self.rules.round_size(nbytes)
        pool = self._pool_for(size, stream)
        block = self._lookup(pool, stream, size) or self._miss(pool, stream, size)
        if block is None:
            self.ooms += 1
            self._emit("oom", 0, size, stream, pool)
            return None
        self.heap.take(block, size, nbytes)
        self._emit("alloc", block.address, nbytes, stream, pool)
        return block.address

    def free(self, address: int) -> None:
        """Give a block back; it waits if other streams were recorded on it.

        Raises:
            InputError: there is no block in use at the address.
        """
        block = self._used(address)
        self._emit("free_requested", address, block.requested, block.stream, block.pool)
        self.heap.request_free(block)
        streams = self._uses.pop(address, [])
        if not streams:
            self._complete(block)
        elif self._capturing:
            self._uses[address] = streams
            self._deferred.append(block)
        else:
            self._wait_for(block, streams)

    def record_stream(self, address: int, stream: int) -> None:
        """Note that another stream uses a block."""
        block = self._used(address)
        if stream != block.stream and stream not in self._uses.setdefault(address, []):
            self._uses[address].append(stream)

    def sync(self, stream: int | None = None) -> None:
        """All work queued so far (on one stream) is done: frees that wait for it complete at the next request."""
        for key, queue in self._waiting.items():
            if stream is None or key == stream:
                for entry in queue:
                    entry.done = True

    def empty_cache(self) -> None:
        """Give all unused segments back to the driver."""
        if not self._capturing:
            self._complete_everything()
        self._release_cached()

    # private pools

    def begin_pool(
        self, pool: PoolId, streams: frozenset[int] | None = None, *, capture: bool = False
    ) -> None:
        """Direct requests (of some streams, or of all) into a private pool until ``end_pool``.

        Args:
            pool: the pool's id; a new one is created.
            streams: the streams concerned; None for all.
            capture: a graph capture rather than a MemPool: default pools are then not released.

        Raises:
            InputError: the pool was released before.
        """
        state = self._private.get(pool)
        if state is None:
            state = self._private[pool] = _Pool(streams)
        elif state.uses == 0:
            raise InputError(f"pool {pool} was released and cannot be used again; use a new pool id")
        elif capture:
            state.uses += 1
        state.streams = streams
        self._active.append(pool)
        self._capturing += capture or self.rules.mempool_is_capture

    def end_pool(self, pool: PoolId, *, capture: bool = False) -> None:
        """Stop directing requests into a pool."""
        self._active.remove(pool)
        self._capturing -= capture or self.rules.mempool_is_capture

    def release_private(self, pool: PoolId, *, at_once: bool = False) -> None:
        """One owner of a pool is gone; with the last one its memory becomes releasable.

        Args:
            pool: the pool.
            at_once: give its unused segments back now, as the end of a MemPool does.
        """
        state = self._private.get(pool)
        if state is None or state.uses == 0:
            raise InputError(f"pool {pool} has no owner left to release")
        state.uses -= 1
        if at_once and state.uses == 0:
            self._complete_everything()
            self._record(apply_release(self.heap, plan_private(self.heap, pool)), pool)

    def set_pool(self, pool: PoolId, *, use_on_oom: bool = False, no_split: bool = False) -> None:
        """Create a pool with MemPool options."""
        state = self._private.setdefault(pool, _Pool(None))
        state.use_on_oom = use_on_oom
        for part in self.heap.pool(pool):
            part.no_split = no_split

    # inside

    def _symbolic(self, size: int, stream: int) -> int:
        del size, stream
        self._placed += 1
        return self._placed * SYMBOLIC_STEP

    def _emit(self, action: str, address: int, size: int, stream: int, pool: BlockPool) -> None:
        self.events.append(Event(action, address, size, stream, pool.owner))

    def _record(self, released: list[Released], owner: PoolId = DEFAULT_POOL) -> None:
        self.events += [Event(*entry, owner) for entry in released]

    def _release_cached(self) -> None:
        if not self._capturing:
            self._record(apply_release(self.heap, plan_default(self.heap)))
        for owner, state in self._private.items():
            if state.uses == 0:
                self._record(apply_release(self.heap, plan_private(self.heap, owner)), owner)

    def _used(self, address: int) -> Block:
        block = self.heap.blocks.get(address)
        if block is None or block.state != USED:
            raise InputError(f"no block in use at address {address}")
        return block

    def _pool_for(self, size: int, stream: int) -> BlockPool:
        owner = DEFAULT_POOL
        for candidate in self._active:
            streams = self._private[candidate].streams
            if streams is None or stream in streams:
                owner = candidate
                break
        return self.heap.pool(owner)[0 if size <= self.rules.small_size else 1]

    def _lookup(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        if self.limit is not None and self.rules.gc_threshold > 0:
            pool.calls += 1
        return self.heap.find(pool, stream, size)

    def _miss(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        if self.limit is not None and self.rules.gc_threshold > 0:
            self._collect()
        block = self._from_driver(pool, stream, size)
        if block is None and self.rules.overflow_first:
            block = self._from_overflow(stream, size)
        if block is None:
            plan, enough = oversize_plan(self.heap, pool, stream, size)
            self._record([drop(self.heap, b) for b in plan], pool.owner)
            if enough:
                block = self._from_driver(pool, stream, size)
        if block is None and not self._capturing:
            self._complete_everything()
            self._release_cached()
            self.retries += 1
            block = self._from_driver(pool, stream, size)
        if block is None and not self.rules.overflow_first:
            block = self._from_overflow(stream, size)
        return block

    def _collect(self) -> None:
        assert self.limit is not None
        threshold = int(self.rules.gc_threshold * self.limit)
        excess = self.heap.reserved - threshold
        if excess > 0:
            self._record([drop(self.heap, b) for b in collection_plan(self.heap, excess)])

    def _from_driver(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        wanted = self.rules.driver_size(size)
        if self.limit is not None and self.heap.reserved + wanted > self.limit:
            return None
        if self.rules.expandable:
            return self._expand(pool, stream, size)
        block = self.heap.add_segment(self.place(wanted, stream), wanted, stream, pool)
        self._emit("segment_alloc", block.address, wanted, stream, pool)
        return block

    def _expand(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        block = find_room(self.heap, pool, stream, size)
        if block is None:
            block = reserve(self.heap, pool, stream, self.place(size, stream))
        grown = 0 if block.state == UNMAPPED else block.size
        while grown < size:
            target = block if block.state == UNMAPPED else block.next
            assert target is not None
            assert target.state == UNMAPPED
            block, address, mapped = map_front(self.heap, target, min(size - grown, target.size))
            self._emit("segment_map", address, mapped, stream, pool)
            grown = block.size
        return block

    def _from_overflow(self, stream: int, size: int) -> Block | None:
        for owner, state in self._private.items():
            if state.use_on_oom:
                pool = self.heap.pool(owner)[0 if size <= self.rules.small_size else 1]
                block = self.heap.find(pool, stream, size)
                if block is not None:
                    return block
        return None

    def _complete(self, block: Block) -> None:
        self._emit("free_completed", block.address, block.requested, block.stream, block.pool)
        self.heap.complete(block)

    def _wait_for(self, block: Block, streams: list[int]) -> None:
        self._outstanding[block.address] = len(streams)
        for stream in streams:
            self._waiting.setdefault(stream, deque()).append(_Wait(block))

    def _process_events(self, *, all_done: bool = False) -> None:
        for block in self._deferred:
            self._wait_for(block, self._uses.pop(block.address, []))
        self._deferred = []
        for queue in self._waiting.values():
            while queue and (all_done or queue[0].done):
                block = queue.popleft().block
                self._outstanding[block.address] -= 1
                if self._outstanding[block.address] == 0:
                    del self._outstanding[block.address]
                    self._complete(block)

    def _complete_everything(self) -> None:
        self._process_events(all_done=True)
