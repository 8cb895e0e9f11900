"""What lay unused when a request ran out of memory, and why the request could not have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rcatools.memory.heap import FREE, PENDING, Heap
from rcatools.memory.snapshot import DEFAULT_POOL, PoolId


@dataclass(frozen=True)
class UnusedBlock:
    """A block that was large enough.

    Attributes:
        address, size: the block; bytes.
        stream: its stream.
        pool: its pool.
        reason: "other_stream" (cached for another stream), "private_pool" (kept for a graph or MemPool) or
            "waiting" (freed, but another stream may still read it).
    """

    address: int
    size: int
    stream: int
    pool: PoolId
    reason: str


@dataclass(frozen=True)
class OomState:
    """The allocator at one out-of-memory event.

    Attributes:
        index: event number.
        requested: rounded size of the request in bytes.
        stream: stream of the request.
        reserved, allocated, waiting: bytes at that moment.
        largest_free: largest free block of the stream in the default pools.
        fitting: blocks that were large enough but out of reach, smallest first.
    """

    index: int
    requested: int
    stream: int
    reserved: int
    allocated: int
    waiting: int
    largest_free: int
    fitting: tuple[UnusedBlock, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            **{k: v for k, v in self.__dict__.items() if k != "fitting"},
            "fitting": [{**b.__dict__, "pool": list(b.pool)} for b in self.fitting],
        }


def oom_state(heap: Heap, index: int, requested: int, stream: int) -> OomState:
    """Look for blocks that would have satisfied a failed request."""
    fitting, largest = [], 0
    for block in heap.blocks.values():
        if block.state not in (FREE, PENDING):
            continue
        owner = block.pool.owner
        if block.state == FREE and block.stream == stream and owner == DEFAULT_POOL:
            largest = max(largest, block.size)
        elif block.size >= requested:
            reason = (
                "waiting"
                if block.state == PENDING
                else "private_pool"
                if owner != DEFAULT_POOL
                else "other_stream"
            )
            fitting.append(UnusedBlock(block.address, block.size, block.stream, owner, reason))
    fitting.sort(key=lambda b: (b.size, b.address))
    return OomState(
        index, requested, stream, heap.reserved, heap.allocated, heap.pending, largest, tuple(fitting)
    )
