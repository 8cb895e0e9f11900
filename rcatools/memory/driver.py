"""Replay of events that concern the driver: new segments and mapped ranges."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rcatools.memory.expandable import find_room, map_front, reserve, trim
from rcatools.memory.heap import UNMAPPED, Block, BlockPool, ContradictionError, Segment
from rcatools.memory.repair import (
    describe,
    doubt,
    expected_block,
    hidden,
    move_segment,
    move_to_private,
    uncertain,
)
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
        engine.unsure(index, "request_unknown")
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
        engine.unsure(index + 1, "pool_not_recorded")
    if block.size < want:
        engine.lost.add(address)
        engine.unsure(index + 1, "state_lost")
    else:
        engine.heap.take(block, want, request)
    return index + 2


def _event(engine: Engine, index: int) -> tuple[int, int, int]:
    return int(engine.address[index]), int(engine.size[index]), int(engine.stream[index])


def _clear(engine: Engine, index: int, address: int, size: int, own: Segment | None = None) -> None:
    """Make room where new driver memory overlaps memory that should still be held (lost release events)."""
    if own is None:
        trim(engine.heap, address)
    old = [s for s in engine.heap.overlapping(address, size) if s is not own]
    if not old:
        return
    engine.segments_exact = False
    found = f"{size} bytes over {len(old)} segments that were not released"
    engine.mismatch(index, "addresses that are not in use", found)
    for segment in old:
        engine.lost.update(engine.heap.evict(segment))


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
        engine.unsure(index, "pool_not_recorded")
        return True
    choice, _ = expected_block(engine, pool, stream, want, None)
    if choice is None:
        engine.unsure(index, "pool_not_recorded")
    elif uncertain(engine, choice):
        engine.unsure(index, "size_before_recording")
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
    if request is None:
        _force_maps(engine, index, recorded)
        for number in range(index, end):
            engine.unsure(number, "request_unknown")
        return end
    want = engine.rounded(request)
    block, planned = _expand(engine, index, _range_pool(engine, index, want), want)
    if planned != recorded or block.address != int(engine.address[end]):
        engine.segments_exact = False
        engine.mismatch(index, f"maps {planned}", f"maps {recorded}", end - index)
    if block.segment.address in engine.inferred:
        engine.unsure(end, "pool_not_recorded")
    heap.take(block, want, request)
    return end + 1


def _range_pool(engine: Engine, index: int, want: int) -> BlockPool:
    """The pool that an expandable segment grows in, after checking that no cached block would have done."""
    heap, stream, base = engine.heap, int(engine.stream[index]), int(engine.address[index])
    small = want <= engine.rules.small_size
    known = engine.pools.get(index)
    pool = heap.pool(known or DEFAULT_POOL)[0 if small else 1]
    part = heap.blocks.get(base)
    if part is not None and (part.state != UNMAPPED or part.stream != stream or part.pool.small != small):
        part = None
    if known is None and part is not None:
        pool = part.pool  # the address tells which range it is
    elif part is not None and part.pool is not pool:  # the range began before the file tells its pool
        engine.unsure(index, "pool_not_recorded")
        move_segment(heap, part.segment, pool)
    if known is not None or part is not None:
        pool = _without_hidden_room(engine, index, pool, want, part)
        _check_miss(engine, index, pool, stream, want, may_be_private=False)
        return pool
    room = find_room(heap, pool, stream, want) is not None
    if _check_miss(engine, index, pool, stream, want, may_be_private=True) or room:
        engine.unsure(index, "pool_not_recorded")
        engine.inferred.add(base)
        return heap.pool(engine.new_pool())[0 if small else 1]
    engine.unknown.add(base)
    engine.inferred.discard(base)
    return pool


def _without_hidden_room(
    engine: Engine, index: int, pool: BlockPool, want: int, part: Block | None
) -> BlockPool:
    """Ranges of unknown pool that would have grown instead of the recorded one are in another pool."""
    stream = int(engine.stream[index])
    while True:
        room = find_room(engine.heap, pool, stream, want)
        if room is None or (part is not None and room.segment is part.segment):
            return pool
        if hidden(engine, room):
            segment = room.segment
        elif part is not None and hidden(engine, part):
            segment = part.segment
        else:
            return pool
        engine.unsure(index, "pool_not_recorded")
        move_to_private(engine, segment)
        pool = pool if part is None else part.pool


def _expand(engine: Engine, index: int, pool: BlockPool, want: int) -> tuple[Block, list[tuple[int, int]]]:
    heap, stream, base = engine.heap, int(engine.stream[index]), int(engine.address[index])
    block = find_room(heap, pool, stream, want)
    if block is None:
        _clear(engine, index, base, want)
        block = reserve(heap, pool, stream, base)
    planned: list[tuple[int, int]] = []
    grown = 0 if block.state == UNMAPPED else block.size
    while grown < want:
        target = block if block.state == UNMAPPED else block.next
        if target is None or target.state != UNMAPPED:
            raise ContradictionError(f"no room to map {want} bytes at {base:#x}")
        wanted = min(want - grown, target.size)
        _clear(engine, index, target.address, wanted, own=target.segment)
        block, address, mapped = map_front(heap, target, wanted)
        planned.append((address, mapped))
        grown = block.size
    return block, planned


def _force_maps(engine: Engine, index: int, recorded: list[tuple[int, int]]) -> None:
    """Follow mapped ranges whose request is not in the file."""
    small = recorded[0][1] % engine.rules.large_buffer != 0
    pool = engine.heap.pool(DEFAULT_POOL)[0 if small else 1]
    for address, size in recorded:
        block = engine.heap.blocks.get(address)
        if block is None or block.state != UNMAPPED:
            _clear(engine, index, address, size)
            block = reserve(engine.heap, pool, int(engine.stream[index]), address)
        _clear(engine, index, address, size, own=block.segment)
        map_front(engine.heap, block, max(size, 1))
