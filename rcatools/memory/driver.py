"""Replay of events that concern the driver: new segments, mapped ranges, and what is given back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rcatools.memory.expandable import find_room, map_front, reserve
from rcatools.memory.heap import FREE, UNMAPPED, Block, BlockPool
from rcatools.memory.release import (
    Released,
    apply_release,
    collection_plan,
    oversize_plan,
    plan_default,
    plan_private,
)
from rcatools.memory.repair import containing, describe, expected_block, hidden, move_to_private, uncertain
from rcatools.memory.snapshot import DEFAULT_POOL
from rcatools.memory.start import CODE

if TYPE_CHECKING:
    from rcatools.memory.engine import Engine

_ALLOC, _DONE = CODE["alloc"], CODE["free_completed"]
_SEGMENT, _SEGMENT_FREE = CODE["segment_alloc"], CODE["segment_free"]
_MAP, _UNMAP, _OOM = CODE["segment_map"], CODE["segment_unmap"], CODE["oom"]
_NAMES = {_SEGMENT_FREE: "segment_free", _UNMAP: "segment_unmap"}


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
    private = _check_miss(engine, index, pool, stream, want, known is None)
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
    engine: Engine, index: int, pool: BlockPool, stream: int, want: int, may_be_private: bool
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
    _check_miss(engine, index, pool, stream, want, False)
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


def release_run(engine: Engine, index: int) -> int:
    """Consecutive releases, explained as a whole: empty_cache, retry ladder, garbage collection, pool death."""
    end = index
    while end < engine.n and engine.action[end] in _NAMES:
        end += 1
    recorded: list[Released] = [
        (_NAMES[int(engine.action[i])], *_event(engine, i)) for i in range(index, end)
    ]
    request = _request_after(engine, end)
    for prefix in _prefixes(engine, request):
        moved = _matches(engine, recorded, prefix)
        if moved is not None:
            for address in moved:
                move_to_private(engine, engine.heap.blocks[address].segment)
            private = sum(1 for r in recorded if r[1] in engine.inferred)
            engine.unverifiable["pool_not_recorded"] += private
            apply_release(engine.heap, recorded)
            return end
    engine.segments_exact = False
    expected = (
        ", ".join(f"{a} {hex(b)}" for a, b, _, _ in plan_default(engine.heap)[:5]) or "nothing to release"
    )
    engine.mismatch(index, expected, f"{len(recorded)} releases from {recorded[0][1]:#x}", len(recorded))
    _force_releases(engine, recorded)
    return end


def _request_after(engine: Engine, index: int) -> tuple[BlockPool, int, int] | None:
    """Pool, stream and rounded size of the request during which a release at ``index`` may have happened."""
    while index < engine.n and engine.action[index] in (_DONE, _SEGMENT_FREE, _UNMAP):
        index += 1
    if index >= engine.n:
        return None
    action, known = int(engine.action[index]), engine.pools.get(index)
    if action == _OOM:
        want = int(engine.size[index])
    elif action in (_SEGMENT, _MAP):
        while index < engine.n and engine.action[index] == action:
            index += 1
        if index >= engine.n or engine.action[index] != _ALLOC:
            return None
        want = engine.rounded(int(engine.size[index]))
    else:
        return None
    pool = engine.heap.pool(known or DEFAULT_POOL)[0 if want <= engine.rules.small_size else 1]
    return pool, int(engine.stream[index]), want


def _prefixes(engine: Engine, request: tuple[BlockPool, int, int] | None) -> list[list[Block]]:
    """What a request may release before everything else: old blocks, then oversize blocks."""
    out: list[list[Block]] = [[]]
    if request is None:
        return out
    pool, stream, want = request
    if engine.count_calls:
        pool.calls += 1  # the request has looked for a block before it collects
        rounds = 1
        while True:
            plan = collection_plan(engine.heap, None, rounds)
            if len(plan) == len(out[-1]):
                break
            out.append(plan)
            rounds += 1
        pool.calls -= 1
    oversize, _ = oversize_plan(engine.heap, pool, stream, want)
    if oversize:
        out += [[*p, *(b for b in oversize if b not in p)] for p in out]
    return out


def _matches(engine: Engine, recorded: list[Released], prefix: list[Block]) -> list[int] | None:
    """Whether the releases are a prefix, then all default pools or none, then whole private pools.

    Returns:
        Addresses of segments that this shows to be in a private pool; None if the releases are not that.
    """
    head = [("segment_free", b.address, b.size, b.stream) for b in prefix]
    if recorded[: len(head)] != head:
        return None
    rest = recorded[len(head) :]
    gone = {b.address for b in prefix}
    default = [r for r in plan_default(engine.heap) if r[1] not in gone]
    for plan in (default, []):
        consumed = _consume_default(engine, plan, rest)
        if consumed is None:
            continue
        used, moved = consumed
        if _consume_private(engine, rest[used:], set(moved)):
            return moved
    return None


def _consume_default(
    engine: Engine, plan: list[Released], recorded: list[Released]
) -> tuple[int, list[int]] | None:
    position, moved = 0, []
    for entry in plan:
        if position < len(recorded) and recorded[position] == entry:
            position += 1
            continue
        block = engine.heap.blocks.get(entry[1])
        if entry[0] == "segment_free" and block is not None and hidden(engine, block):
            moved.append(entry[1])
        else:
            return None
    return position, moved


def _consume_private(engine: Engine, recorded: list[Released], moved: set[int]) -> bool:
    position = 0
    while position < len(recorded):
        address = recorded[position][1]
        if address in moved:
            position += 1
            continue
        block = containing(engine.heap, address)
        if block is None or block.state != FREE or block.pool.owner == DEFAULT_POOL:
            return False
        plan = plan_private(engine.heap, block.pool.owner)
        if not plan or recorded[position : position + len(plan)] != plan:
            return False
        position += len(plan)
    return True


def _force_releases(engine: Engine, recorded: list[Released]) -> None:
    for entry in recorded:
        block = containing(engine.heap, entry[1])
        if block is None or block.state != FREE:
            continue
        whole = (
            entry[0] == "segment_free"
            and block.whole
            and block.address == entry[1]
            and not block.segment.expandable
        )
        inside = (
            entry[0] == "segment_unmap"
            and block.segment.expandable
            and entry[1] + entry[2] <= block.address + block.size
        )
        if whole or inside:
            apply_release(engine.heap, [entry])
