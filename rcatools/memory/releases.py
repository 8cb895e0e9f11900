"""Replay of memory given back: which of the allocator's reasons explains a run of releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rcatools.memory.heap import FREE, Block, BlockPool, Segment
from rcatools.memory.release import (
    Released,
    apply_release,
    collection_plan,
    oversize_plan,
    plan_default,
    plan_private,
)
from rcatools.memory.repair import hidden, move_to_private
from rcatools.memory.snapshot import DEFAULT_POOL, PoolId
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
    for explain in (_explain, _explain_with_moves):  # a reading without assumptions about pools comes first
        for prefix in prefixes:
            head = [("segment_free", b.address, b.size, b.stream) for b in prefix]
            if recorded[: len(head)] != head:
                continue
            gone = {b.address for b in prefix}
            default = [r for r in plan_default(engine.heap) if r[1] not in gone]
            moved = explain(engine, recorded[len(head) :], default)
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


def _explain(engine: Engine, recorded: list[Released], default: list[Released]) -> list[Segment] | None:
    """Whether the releases are all default pools have (or none of it), then whole private pools.

    Returns:
        An empty list if they are, else None.
    """
    for plan in (default, []):
        if recorded[: len(plan)] == plan and _are_private(engine, recorded[len(plan) :]):
            return []
    return None


def _are_private(engine: Engine, recorded: list[Released]) -> bool:
    """Whether the releases are all that private pools have to give, pool by pool."""
    position = 0
    while position < len(recorded):
        block = engine.heap.block_at(recorded[position][1])
        if block is None or block.state != FREE or block.pool.owner == DEFAULT_POOL:
            return False
        plan = plan_private(engine.heap, block.pool.owner)
        if not plan or recorded[position : position + len(plan)] != plan:
            return False
        position += len(plan)
    return True


def _explain_with_moves(
    engine: Engine, recorded: list[Released], default: list[Released]
) -> list[Segment] | None:
    """The same where the pool of some segments is not in the file: those may be anywhere.

    Releases of the default pools are complete and in order, or absent; so are those of each pool that the
    file does name. A segment of unknown pool that is released out of order, or is not released with the
    default pools, must be in a private pool.

    Returns:
        The segments that this shows to be in a private pool; None if it cannot be.
    """
    blocks = [engine.heap.block_at(entry[1]) for entry in recorded]
    if any(b is None or b.state != FREE for b in blocks):
        return None
    found = [b for b in blocks if b is not None]
    named: dict[PoolId, list[Released]] = {}
    for entry, block in zip(recorded, found, strict=True):
        if block.pool.owner != DEFAULT_POOL and block.segment.address not in engine.inferred:
            named.setdefault(block.pool.owner, []).append(entry)
    if any(part != plan_private(engine.heap, owner) for owner, part in named.items()):
        return None
    place = {entry: number for number, entry in enumerate(default)}
    open_ = {entry for entry in default if _hidden_at(engine, entry)}
    sure = [entry for entry in default if entry not in open_]
    released = [entry for entry in recorded if entry in place and entry not in open_]
    if released not in ([], sure):
        return None
    moved: dict[int, Segment] = {}
    reached = -1
    for number, (entry, block) in enumerate(zip(recorded, found, strict=True)):
        if entry not in place:
            if block.pool.owner == DEFAULT_POOL:
                return None
            continue
        following = next(
            (place[e] for e in recorded[number + 1 :] if e in place and e not in open_), len(default)
        )
        if entry in open_ and not (released and reached < place[entry] < following):
            moved[block.segment.address] = block.segment
        else:
            reached = place[entry]
    if released:
        for entry in open_ - set(recorded):
            kept = engine.heap.block_at(entry[1])
            if kept is not None:
                moved[kept.segment.address] = kept.segment
    return list(moved.values())


def _hidden_at(engine: Engine, entry: Released) -> bool:
    block = engine.heap.block_at(entry[1])
    return block is not None and hidden(engine, block)


def _accept(engine: Engine, index: int, recorded: list[Released], moved: list[Segment]) -> None:
    for segment in moved:
        move_to_private(engine, segment)
    for number, entry in enumerate(recorded, index):
        block = engine.heap.block_at(entry[1])
        if block is not None and block.segment.address in engine.inferred:
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
