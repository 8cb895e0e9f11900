"""What the allocator gives back to the driver, and in which order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from rcatools.memory.expandable import free_expandable, unmap, whole_granules
from rcatools.memory.heap import MASK, SHIFT, Block, BlockPool, Heap
from rcatools.memory.rules import UNLIMITED
from rcatools.memory.snapshot import DEFAULT_POOL, PoolId

Released = tuple[str, int, int, int]
"""Event name ("segment_free" or "segment_unmap"), address, size, stream."""


def plan_pool(heap: Heap, pool: BlockPool) -> list[Released]:
    """What a release of a pool gives back: whole free segments, then whole free granules of expandable ones."""
    out: list[Released] = [("segment_free", b.address, b.size, b.stream) for b in heap.releasable(pool)]
    for block in free_expandable(heap, pool):
        range_ = whole_granules(block)
        if range_ is not None:
            out.append(("segment_unmap", *range_, block.stream))
    return out


def plan_default(heap: Heap) -> list[Released]:
    """What a release of the default pools gives back: the large pool first."""
    small, large = heap.pool(DEFAULT_POOL)
    return plan_pool(heap, large) + plan_pool(heap, small)


def plan_private(heap: Heap, owner: PoolId) -> list[Released]:
    """What a release of a private pool gives back: the small pool first."""
    small, large = heap.pool(owner)
    return plan_pool(heap, small) + plan_pool(heap, large)


def apply_release(heap: Heap, plan: Iterable[Released]) -> list[Released]:
    """Carry out a plan; returns it as a list."""
    done = list(plan)
    for action, address, size, _ in done:
        if action == "segment_free":
            heap.drop_segment(heap.blocks[address])
        else:
            block = heap.block_at(address)
            assert block is not None
            unmap(heap, block, address, size)
    return done


def drop(heap: Heap, block: Block) -> Released:
    """Give back one whole free segment."""
    heap.drop_segment(block)
    return ("segment_free", block.address, block.size, block.stream)


def oversize_plan(heap: Heap, pool: BlockPool, stream: int, size: int) -> tuple[list[Block], bool]:
    """Blocks that make room for a request when splitting is limited, and whether they are enough.

    One unsplittable block that is large enough, or several of the stream from the largest downwards.
    """
    limit = heap.rules.max_split_size
    if limit >= UNLIMITED:
        return [], False
    needed = max(size, limit)
    keys = pool.free.get(stream, [])
    index = bisect_left(keys, needed << SHIFT)
    if index < len(keys) and not heap.blocks[keys[index] & MASK].segment.expandable:
        return [heap.blocks[keys[index] & MASK]], True
    out: list[Block] = []
    total = 0
    for key in reversed(keys[:index]):
        block = heap.blocks[key & MASK]
        if total >= needed or block.size < limit:
            break
        if not block.segment.expandable:
            out.append(block)
            total += block.size
    return out, total >= needed


def collection_plan(heap: Heap, excess: int | None, rounds: int | None = None) -> list[Block]:
    """Old unsplit large blocks that garbage collection gives back.

    Args:
        heap: the allocator's state; it is not changed.
        excess: bytes to reclaim; None for no limit.
        rounds: stop after this many passes.
    """
    pool = heap.pool(DEFAULT_POOL)[1]
    blocks = heap.releasable(pool)
    ages = [pool.calls - b.born for b in blocks]
    out: list[Block] = []
    reclaimed, done = 0, 0
    while blocks and (excess is None or reclaimed < excess) and done != rounds:
        threshold = sum(ages) / len(ages)
        old, blocks_left, ages_left = [], [], []
        for block, age in zip(blocks, ages, strict=True):
            # the mean that decides is the one at the start of the pass
            if age >= threshold:
                old.append(block)
            else:
                blocks_left.append(block)
                ages_left.append(age)
        if not old:
            break
        out += old
        reclaimed += sum(b.size for b in old)
        blocks, ages = blocks_left, ages_left
        done += 1
    return out
