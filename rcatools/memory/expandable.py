"""Expandable segments: one address range per stream and pool that is mapped and unmapped in granules."""

from __future__ import annotations

from bisect import insort

from rcatools.memory.heap import FREE, MASK, UNMAPPED, Block, BlockPool, Heap, Segment

RANGE = 1 << 43
"""Length given to a reserved range: the real one (9/8 of the device's memory) is never exhausted."""


def granule_of(heap: Heap, pool: BlockPool) -> int:
    """Bytes mapped at once."""
    return heap.rules.small_buffer if pool.small else heap.rules.large_buffer


def find_room(heap: Heap, pool: BlockPool, stream: int, size: int) -> Block | None:
    """The first block of a run of free and unmapped neighbours with room for ``size``, lowest address first."""
    for address in pool.unmapped.get(stream, ()):
        block = heap.blocks[address]
        if block.prev is not None and block.prev.state == FREE:
            block = block.prev
        room, at = 0, block
        while at is not None and at.state in (FREE, UNMAPPED) and room < size:
            room += at.size
            at = at.next  # type: ignore[assignment]
        if room >= size:
            return block
    return None


def reserve(heap: Heap, pool: BlockPool, stream: int, address: int) -> Block:
    """A new, wholly unmapped address range."""
    segment = Segment(address, reach(heap, address), stream, pool, granule_of(heap, pool))
    heap.register(segment)
    block = heap.enter(Block(address, segment.size, segment))
    block.state = UNMAPPED
    remember_unmapped(block)
    return block


def reach(heap: Heap, address: int) -> int:
    """How far a range that starts at an address can go: to the next segment."""
    above = heap.next_base(address)
    return RANGE if above is None else min(RANGE, above - address)


def trim(heap: Heap, address: int) -> None:
    """Shorten reserved ranges that were assumed to reach over an address where other memory now starts."""
    for segment in list(heap.reaching(address)):
        if not segment.expandable:
            return
        last = next((b for b in heap.chain(segment) if b.next is None), None)
        if last is None or last.state != UNMAPPED or last.address + last.size <= address:
            continue
        if address > last.address:
            last.size = address - last.address
        elif last.address == address and last.prev is not None:
            forget_unmapped(last)
            last.prev.next = None
            del heap.blocks[address]


def map_front(heap: Heap, block: Block, size: int) -> tuple[Block, int, int]:
    """Map the front of an unmapped block.

    Returns:
        The free block it became part of, and the address and size that were mapped.
    """
    granule = block.segment.granule
    address, mapped = block.address, min(-(-size // granule) * granule, block.size)
    forget_unmapped(block)
    if mapped < block.size:
        rest = heap.cut(block, mapped)
        rest.state = UNMAPPED
        remember_unmapped(rest)
    heap.grow(mapped)
    return heap.release_block(block), address, mapped


def whole_granules(block: Block) -> tuple[int, int] | None:
    """Address and size of the whole granules inside a free block; None if it spans none."""
    segment = block.segment
    granule, base = segment.granule, segment.address
    begin = base + -(-(block.address - base) // granule) * granule
    end = base + (block.address + block.size - base) // granule * granule
    return (begin, end - begin) if begin < end else None


def unmap(heap: Heap, block: Block, begin: int, size: int) -> None:
    """Unmap a range inside a free block; what is left of the block before and behind stays free."""
    end = begin + size
    heap.remove(block)
    if block.address + block.size > end:
        heap.insert(heap.cut(block, end - block.address))
    if begin > block.address:
        middle = heap.cut(block, begin - block.address)
        heap.insert(block)
        block = middle
    block.state = UNMAPPED
    heap.reserved -= size
    _merge_unmapped(heap, block)


def _merge_unmapped(heap: Heap, block: Block) -> None:
    before, behind = block.prev, block.next
    if before is not None and before.state == UNMAPPED:
        before.size += block.size
        before.next = behind
        if behind is not None:
            behind.prev = before
        del heap.blocks[block.address]
        forget_unmapped(before)
        block = before
    if behind is not None and behind.state == UNMAPPED:
        forget_unmapped(behind)
        block.size += behind.size
        block.next = behind.next
        if behind.next is not None:
            behind.next.prev = block
        del heap.blocks[behind.address]
    if block.whole:  # the whole range is unmapped: it is given up
        del heap.blocks[block.address]
        heap.unregister(block.segment)
    else:
        remember_unmapped(block)


def remember_unmapped(block: Block) -> None:
    """Put an unmapped block into its pool's list."""
    insort(block.pool.unmapped.setdefault(block.stream, []), block.address)


def forget_unmapped(block: Block) -> None:
    """Take an unmapped block out of its pool's list."""
    block.pool.unmapped[block.stream].remove(block.address)


def free_expandable(heap: Heap, pool: BlockPool) -> list[Block]:
    """Free blocks of expandable segments in the order in which a release visits them."""
    blocks = (heap.blocks[key & MASK] for key in pool.ordered())
    return [b for b in blocks if b.segment.expandable]
