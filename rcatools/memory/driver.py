"""Replay of events that concern the driver: new segments and mapped ranges."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rcatools.memory.expandable import find_room, map_front, reserve
from rcatools.memory.heap import FREE, UNMAPPED, Block, BlockPool
from rcatools.memory.repair import describe, doubt, expected_block, move_to_private, uncertain
from rcatools.memory.snapshot import DEFAULT_POOL
from rcatools.memory.start import CODE

if TYPE_CHECKING:
    from rcatools.memory.engine import Engine

_ALLOC, _MAP = CODE["alloc"], CODE["segment_map"]


def driver_alloc(engine: Engine, index: int) -> int:
    """A new segment and the allocation that caused it; returns the next event to look at."""
    address, size, stream = _event(engine, index)
    known = engine.pools.get(index)
    follows = (
        index + 1 < engine.n
        and engine.action[index + 1] == _ALLOC
        and int(engine.address[index + 1]) == address
    )
    request = int(engine.size[index + 1]) if follows else None
    small = (
        engine.rounded(request) <= engine.rules.small_size
        if request is not None
        else size <= engine.rules.small_buffer
    )
    pool = engine.heap.pool(known or DEFAULT_POOL)[0 if small else 1]
    if known is None:
        engine.unknown.add(address)
        engine.inferred.discard(address)
    _clear(engine, index, address, size)
    if request is None:
        engine.heap.add_segment(address, size, stream, pool)
        engine.unverifiable["request_unknown"] += 1
        return index + 1
    want = engine.rounded(request)
    private = _check_miss(engine, index, pool, stream, want, may_be_private=known is None)
    expected = engine.rules.driver_size(want)
    if expected != size:
        engine.segments_exact = False
        engine.mismatch(index, f"a segment of {expected} bytes", f"{size} bytes")
    block = engine.heap.add_segment(address, size, stream, pool)
    if private:
        move_to_private(engine, block.segment)
        engine.unverifiable["pool_not_recorded"] += 1
    if block.size < want:
        engine.lost.add(address)
        engine.unverifiable["state_lost"] += 1
    else:
        engine.heap.take(block, want, request)
    return index + 2


def _event(engine: Engine, index: int) -> tuple[int, int, int]:
    return int(engine.address[index]), int(engine.size[index]), int(engine.stream[index])


def _clear(engine: Engine, index: int, address: int, size: int) -> None:
    """Make room where new driver memory overlaps memory that should still be held (lost release events)."""
    heap = engine.heap
    old = heap.segments.get(address)
    if old is None or old.expandable:
        return
    engine.segments_exact = False
    engine.mismatch(
        index, "an address that is not in use", f"{size} bytes at a segment that was not released"
    )
    for block in list(heap.chain(old)):
        if block.state == FREE:
            heap.remove(block)
        del heap.blocks[block.address]
    del heap.segments[address]
    heap.reserved -= old.size


def _check_miss(
    engine: Engine, index: int, pool: BlockPool, stream: int, want: int, *, may_be_private: bool
) -> bool:
    """No cached block may have fitted. Returns whether the new memory must be in a private pool."""
    if engine.count_calls:
        pool.calls += 1
    choice = engine.heap.find(pool, stream, want)
    if choice is None:
        return False
    if may_be_private:
        engine.unverifiable["pool_not_recorded"] += 1
        return True
    choice, _ = expected_block(engine, pool, stream, want, None)
    if choice is None:
        engine.unverifiable["pool_not_recorded"] += 1
    elif uncertain(engine, choice):
        engine.unverifiable["size_before_recording"] += 1
    else:
        engine.segments_exact = False
        doubt(engine, pool)
        engine.mismatch(index, describe(choice), "new driver memory")
    return False


def map_run(engine: Engine, index: int) -> int:
    """Mapped ranges of an expandable segment and the allocation that caused them."""
    end = index
    while end < engine.n and engine.action[end] == _MAP:
        end += 1
    heap = engine.heap
    if not engine.rules.expandable:  # switched on during the recording
        engine.rules = heap.rules = replace(engine.rules, expandable=True)
    stream = int(engine.stream[index])
    recorded = [(int(engine.address[i]), int(engine.size[i])) for i in range(index, end)]
    follows = end < engine.n and engine.action[end] == _ALLOC and int(engine.stream[end]) == stream
    request = int(engine.size[end]) if follows else None
    known = engine.pools.get(index)
    if request is None:
        _force_maps(engine, recorded, stream, recorded[0][1] % engine.rules.large_buffer != 0)
        engine.unverifiable["request_unknown"] += end - index
        return end
    want = engine.rounded(request)
    pool = heap.pool(known or DEFAULT_POOL)[0 if want <= engine.rules.small_size else 1]
    _check_miss(engine, index, pool, stream, want, may_be_private=False)
    block, planned = _expand(engine, pool, stream, want, recorded[0][0])
    if planned != recorded or block.address != int(engine.address[end]):
        engine.segments_exact = False
        engine.mismatch(index, f"maps {planned}", f"maps {recorded}", end - index)
    heap.take(block, want, request)
    return end + 1


def _expand(
    engine: Engine, pool: BlockPool, stream: int, want: int, base: int
) -> tuple[Block, list[tuple[int, int]]]:
    heap = engine.heap
    block = find_room(heap, pool, stream, want) or reserve(heap, pool, stream, base)
    planned: list[tuple[int, int]] = []
    grown = 0 if block.state == UNMAPPED else block.size
    while grown < want:
        target = block if block.state == UNMAPPED else block.next
        assert target is not None
        block, address, mapped = map_front(heap, target, min(want - grown, target.size))
        planned.append((address, mapped))
        grown = block.size
    return block, planned


def _force_maps(engine: Engine, recorded: list[tuple[int, int]], stream: int, small: bool) -> None:
    pool = engine.heap.pool(DEFAULT_POOL)[0 if small else 1]
    for address, size in recorded:
        block = engine.heap.blocks.get(address)
        if block is None or block.state != UNMAPPED:
            block = reserve(engine.heap, pool, stream, address)
        map_front(engine.heap, block, size)
