"""Replay of memory given back: which of the allocator's reasons explains a run of releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rcatools.memory.heap import FREE, Block, BlockPool
from rcatools.memory.release import (
    Released,
    apply_release,
    collection_plan,
    oversize_plan,
    plan_default,
    plan_private,
)
from rcatools.memory.repair import hidden, move_to_private
from rcatools.memory.snapshot import DEFAULT_POOL
from rcatools.memory.start import CODE

if TYPE_CHECKING:
    from rcatools.memory.engine import Engine

_ALLOC, _DONE, _OOM = CODE["alloc"], CODE["free_completed"], CODE["oom"]
_SEGMENT, _MAP = CODE["segment_alloc"], CODE["segment_map"]
_NAMES = {CODE["segment_free"]: "segment_free", CODE["segment_unmap"]: "segment_unmap"}


def release_run(engine: Engine, index: int) -> int:
    """Consecutive releases, explained as a whole; returns the next event to look at.

    The reasons are: garbage collection, oversize blocks for one request, everything that is cached
    (``empty_cache`` or the last try before running out of memory), and the end of a private pool.
    """
    end = index
    while end < engine.n and engine.action[end] in _NAMES:
        end += 1
    recorded: list[Released] = [
        (_NAMES[int(engine.action[i])], int(engine.address[i]), int(engine.size[i]), int(engine.stream[i]))
        for i in range(index, end)
    ]
    prefixes = _prefixes(engine, _request_after(engine, end))
    for may_move in (False, True):  # a reading without assumptions about pools comes first
        for prefix in prefixes:
            moved = _explain(engine, recorded, prefix, may_move)
            if moved is not None:
                _accept(engine, index, recorded, moved)
                return end
    engine.segments_exact = False
    planned = [f"{action} {address:#x}" for action, address, _, _ in plan_default(engine.heap)[:5]]
    found = f"{len(recorded)} releases from {recorded[0][1]:#x}"
    engine.mismatch(index, ", ".join(planned) or "nothing to release", found, len(recorded))
    _follow(engine, recorded)
    return end


def _request_after(engine: Engine, index: int) -> tuple[BlockPool, int, int] | None:
    """Pool, stream and rounded size of the request during which a release before ``index`` may have happened."""
    while index < engine.n and (engine.action[index] == _DONE or engine.action[index] in _NAMES):
        index += 1
    if index >= engine.n:
        return None
    first, action = index, int(engine.action[index])
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
    owner = engine.pools.get(first) or DEFAULT_POOL
    return (
        engine.heap.pool(owner)[0 if want <= engine.rules.small_size else 1],
        int(engine.stream[first]),
        want,
    )


def _prefixes(engine: Engine, request: tuple[BlockPool, int, int] | None) -> list[list[Block]]:
    """What a request may release before everything else: old blocks, then oversize blocks."""
    out: list[list[Block]] = [[]]
    if request is None:
        return out
    pool, stream, want = request
    if engine.count_calls:
        pool.calls += 1  # the request has looked for a block before it collects
        for rounds in range(1, 64):
            plan = collection_plan(engine.heap, None, rounds)
            if len(plan) == len(out[-1]):
                break
            out.append(plan)
        pool.calls -= 1
    oversize, _ = oversize_plan(engine.heap, pool, stream, want)
    if oversize:
        out += [[*plan, *(b for b in oversize if b not in plan)] for plan in out]
    return out


def _explain(
    engine: Engine, recorded: list[Released], prefix: list[Block], may_move: bool
) -> list[int] | None:
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
        consumed = _consume_default(engine, plan, rest, may_move)
        if consumed is not None and _are_private(engine, rest[consumed[0] :], set(consumed[1])):
            return consumed[1]
    return None


def _consume_default(
    engine: Engine, plan: list[Released], recorded: list[Released], may_move: bool
) -> tuple[int, list[int]] | None:
    """How many releases the plan of the default pools accounts for, and which segments it must lose for that."""
    position, moved = 0, []
    for entry in plan:
        if position < len(recorded) and recorded[position] == entry:
            position += 1
            continue
        block = engine.heap.blocks.get(entry[1])
        if not may_move or entry[0] != "segment_free" or block is None or not hidden(engine, block):
            return None
        moved.append(entry[1])
    return position, moved


def _are_private(engine: Engine, recorded: list[Released], moved: set[int]) -> bool:
    """Whether the releases are all that private pools have to give, pool by pool."""
    position = 0
    while position < len(recorded):
        address = recorded[position][1]
        if address in moved:
            position += 1
            continue
        block = engine.heap.block_at(address)
        if block is None or block.state != FREE or block.pool.owner == DEFAULT_POOL:
            return False
        plan = plan_private(engine.heap, block.pool.owner)
        if not plan or recorded[position : position + len(plan)] != plan:
            return False
        position += len(plan)
    return True


def _accept(engine: Engine, index: int, recorded: list[Released], moved: list[int]) -> None:
    for address in moved:
        move_to_private(engine, engine.heap.blocks[address].segment)
    for number, entry in enumerate(recorded, index):
        if entry[1] in engine.inferred:
            engine.unsure(number, "pool_not_recorded")
    _follow(engine, recorded)


def _follow(engine: Engine, recorded: list[Released]) -> None:
    """Follow the file where the model can."""
    for entry in recorded:
        block = engine.heap.block_at(entry[1])
        if block is None or block.state != FREE:
            continue
        if entry[0] == "segment_free":
            possible = block.whole and block.address == entry[1] and not block.segment.expandable
        else:
            possible = block.segment.expandable and entry[1] + entry[2] <= block.address + block.size
        if possible:
            apply_release(engine.heap, [entry])
