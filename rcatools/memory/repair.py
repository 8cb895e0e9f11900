"""Events that are not simply what the model expects: limits of the file, or a rule that does not hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rcatools.memory.expandable import forget_unmapped, remember_unmapped
from rcatools.memory.heap import FREE, PENDING, UNMAPPED, USED, Block, BlockPool, Heap, Segment
from rcatools.memory.oom_state import oom_state
from rcatools.memory.snapshot import DEFAULT_POOL

if TYPE_CHECKING:
    from rcatools.memory.engine import Engine


def describe(block: Block | None) -> str:
    """A block in a few words."""
    if block is None:
        return "new driver memory"
    return f"block {block.address:#x} of {block.size} bytes"


def move_to_private(engine: Engine, segment: Segment) -> None:
    """An event shows that a segment of unrecorded pool is not in the default pool: give it one of its own."""
    move_segment(engine.heap, segment, engine.heap.pool(engine.new_pool())[0 if segment.pool.small else 1])
    engine.inferred.add(segment.address)


def move_segment(heap: Heap, segment: Segment, pool: BlockPool) -> None:
    """Put a segment and its blocks into another pool."""
    segment.pool = pool
    for block in heap.chain(segment):
        if block.state == FREE:
            heap.remove(block)
            block.pool = pool
            heap.insert(block)
        elif block.state == UNMAPPED:
            forget_unmapped(block)
            block.pool = pool
            remember_unmapped(block)
        block.pool = pool


def hidden(engine: Engine, block: Block) -> bool:
    """Whether the block's segment may belong to another pool than assumed."""
    return block.segment.address in engine.unknown and block.segment.address not in engine.inferred


def expected_block(
    engine: Engine, pool: BlockPool, stream: int, want: int, recorded: Block | None
) -> tuple[Block | None, bool]:
    """The model's choice, after moving segments of unrecorded pool out of the way.

    Returns:
        The choice, and whether it needed such a move.
    """
    choice = engine.heap.find(pool, stream, want)
    moved = False
    while choice is not None and choice is not recorded and hidden(engine, choice):
        move_to_private(engine, choice.segment)
        moved = True
        choice = engine.heap.find(pool, stream, want)
    return choice, moved


def doubt(engine: Engine, pool: BlockPool) -> None:
    """Note that a private pool does not behave as the rules say."""
    if pool.owner != DEFAULT_POOL:
        engine.doubted.add(pool.owner)


def uncertain(engine: Engine, block: Block | None) -> bool:
    """Whether a free block's start depends on an assumed size."""
    return block is not None and block.prev is not None and block.prev.address in engine.assumed


def odd_alloc(engine: Engine, index: int, address: int, size: int, stream: int) -> None:
    """An allocation from a cached block that is not the model's first choice, or from no known block."""
    heap, want = engine.heap, engine.rounded(size)
    block = heap.blocks.get(address)
    if block is None:
        block = _shift_start(engine, address)
    if block is None or block.state != FREE or block.stream != stream or block.size < want:
        _unplaced(engine, index, address, size, want)
        return
    choice, moved = expected_block(engine, block.pool, stream, want, block)
    if choice is not block and hidden(engine, block):
        move_to_private(engine, block.segment)
        choice, moved = heap.find(block.pool, stream, want), True
    if choice is block and block.pool.small is (want <= engine.rules.small_size):
        if moved:
            engine.unsure(index, "pool_not_recorded")
    elif index == 0 and block.whole and block.size == engine.rules.driver_size(want):
        engine.unsure(index, "began_before_recording")  # its driver request was the event before
    elif uncertain(engine, choice) or uncertain(engine, block):
        engine.unsure(index, "size_before_recording")
    else:
        doubt(engine, block.pool)
        engine.mismatch(index, describe(choice), describe(block))
    heap.take(block, want, size)


def _shift_start(engine: Engine, address: int) -> Block | None:
    """If a free block's start was an assumption that an allocation corrects, correct it."""
    around = engine.heap.block_at(address)
    if around is None or around.state != FREE or not uncertain(engine, around):
        return None
    before, heap = around.prev, engine.heap
    assert before is not None
    step = address - around.address
    if step > engine.rules.small_size and before.size < engine.rules.max_split_size:
        return None
    heap.remove(around)
    del heap.blocks[around.address]
    around.address += step
    around.size -= step
    heap.enter(around)
    heap.insert(around)
    before.size += step
    if before.state == USED:
        heap.allocated += step
    else:
        heap.pending += step
    engine.assumed.discard(before.address)
    return around


def _unplaced(engine: Engine, index: int, address: int, size: int, want: int) -> None:
    around = engine.heap.block_at(address)
    engine.lost.add(address)
    if around is None:
        engine.unsure(index, "outside_segments")
        return
    engine.mismatch(
        index, "a free block of the stream at this address", f"{size} bytes inside {describe(around)}"
    )
    if around.state != FREE or address + want > around.address + around.size:
        return
    heap = engine.heap
    if around.address < address:
        heap.remove(around)
        rest = heap.cut(around, address - around.address)
        heap.insert(around)
        heap.insert(rest)
        around = rest
    heap.take(around, want, size)
    engine.lost.discard(address)


def odd_request(engine: Engine, index: int, address: int, size: int) -> None:
    """A free request for a block that is not in use, or of another size than it was asked for."""
    block = engine.heap.blocks.get(address)
    if block is not None and block.state == USED:
        engine.mismatch(index, f"{block.requested} bytes", f"{size} bytes")
        engine.heap.request_free(block)
        return
    _unknown_free(engine, index, address, "a block in use")


def odd_completion(engine: Engine, index: int, address: int, size: int) -> None:
    """A completed free of a block that nobody asked to free."""
    block = engine.heap.blocks.get(address)
    if block is not None and block.state == USED:
        if engine.requests_recorded and block.requested != size:
            engine.mismatch(index, f"{block.requested} bytes", f"{size} bytes")
        engine.heap.request_free(block)
        engine.heap.complete(block)
        return
    _unknown_free(engine, index, address, "a block that was asked to be freed")


def _unknown_free(engine: Engine, index: int, address: int, expected: str) -> None:
    if address in engine.lost:
        engine.unsure(index, "state_lost")
    elif engine.heap.block_at(address) is None:
        engine.unsure(index, "outside_segments")
    else:
        block = engine.heap.blocks.get(address)
        state = {FREE: "free", PENDING: "waiting", None: "unknown"}.get(
            block.state if block else None, "in use"
        )
        engine.mismatch(index, expected, f"a block that is {state}")


def out_of_memory(engine: Engine, index: int, want: int, stream: int) -> None:
    """An out-of-memory event: no cached block of the stream may fit."""
    pool = engine.heap.pool(DEFAULT_POOL)[0 if want <= engine.rules.small_size else 1]
    if engine.count_calls:
        pool.calls += 1
    engine.ooms.append(oom_state(engine.heap, index, want, stream))
    choice, moved = expected_block(engine, pool, stream, want, None)
    if choice is None and not moved:
        return
    if moved or len(engine.heap.pools) > 1:
        engine.unsure(index, "pool_not_recorded")
    elif uncertain(engine, choice):
        engine.unsure(index, "size_before_recording")
    else:
        engine.mismatch(index, describe(choice), "out of memory")
