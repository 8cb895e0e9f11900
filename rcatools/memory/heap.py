# ruff: noqa: PLR1730 - a call of max costs more than the comparison, and these are the hot paths
"""The allocator's state and its elementary moves: find, take, give back, add and drop driver memory.

Policy (when to release, when to give up) is in ``simulator`` and ``replay``; this module only keeps blocks,
free lists and byte counts consistent.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from rcatools.memory.rules import Rules
from rcatools.memory.snapshot import DEFAULT_POOL, PoolId

FREE, USED, PENDING, UNMAPPED = 0, 1, 2, 3

SHIFT = 64
MASK = (1 << SHIFT) - 1
"""A free list orders blocks by size, then address, as one integer: ``size << SHIFT | address``."""


class ContradictionError(Exception):
    """A history asks for memory that is in use: it cannot have happened as it is written."""


class BlockPool:
    """The free blocks of one pool and size class, kept apart per stream."""

    __slots__ = ("calls", "free", "no_split", "owner", "small", "unmapped")

    def __init__(self, owner: PoolId, small: bool) -> None:
        self.owner = owner
        self.small = small
        self.no_split = False
        self.free: dict[int, list[int]] = {}
        self.unmapped: dict[int, list[int]] = {}
        self.calls = 0

    def ordered(self) -> Iterator[int]:
        """All free blocks in the order of the allocator's set: stream, size, address."""
        for stream in sorted(self.free):
            yield from self.free[stream]


class Segment:
    """Memory held from the driver: an allocation, or the address range of an expandable segment."""

    __slots__ = ("address", "expandable", "granule", "pool", "size", "stream")

    def __init__(self, address: int, size: int, stream: int, pool: BlockPool, granule: int = 0) -> None:
        self.address = address
        self.size = size
        self.stream = stream
        self.pool = pool
        self.granule = granule
        self.expandable = granule > 0


class Block:
    """A stretch of a segment. ``requested`` is what its last user asked for."""

    __slots__ = ("address", "born", "next", "pool", "prev", "requested", "segment", "size", "state", "stream")

    def __init__(self, address: int, size: int, segment: Segment) -> None:
        self.address = address
        self.size = size
        self.requested = 0
        self.stream = segment.stream
        self.pool = segment.pool
        self.segment = segment
        self.prev: Block | None = None
        self.next: Block | None = None
        self.state = FREE
        self.born = 0

    @property
    def whole(self) -> bool:
        """Whether it is its segment's only block."""
        return self.prev is None and self.next is None


class Heap:
    """Segments, blocks and free lists of one device.

    Attributes:
        reserved, allocated, pending, requested: bytes now; ``requested`` counts until a free completes.
        peak_reserved, peak_allocated, peak_active, peak_requested: largest values so far.
        ties: how often several blocks fitted equally well and only their addresses decided.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.blocks: dict[int, Block] = {}
        self.segments: dict[int, Segment] = {}
        self._bases: list[int] = []
        self.pools: dict[PoolId, tuple[BlockPool, BlockPool]] = {}
        self.pool(DEFAULT_POOL)
        self.reserved = self.allocated = self.pending = self.requested = 0
        self.peak_reserved = self.peak_allocated = self.peak_active = self.peak_requested = 0
        self.ties = 0
        self.count_ties = False

    def pool(self, owner: PoolId) -> tuple[BlockPool, BlockPool]:
        """The small and the large pool of an owner, created on first use."""
        pair = self.pools.get(owner)
        if pair is None:
            pair = self.pools[owner] = (BlockPool(owner, True), BlockPool(owner, False))
        return pair

    # finding and taking

    def find(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """The free block that a request of a rounded size would get, left in place; None is a miss."""
        keys = pool.free.get(stream)
        if not keys:
            return None
        index = bisect_left(keys, size << SHIFT)
        if index == len(keys):
            return None
        block = self.blocks[keys[index] & MASK]
        if block.segment.expandable:
            found = (
                self._best_expandable(keys, index)
                if self.rules.expandable
                else self._skip_expandable(keys, index)
            )
            if found is None:
                return None
            block = found
        elif self.count_ties and index + 1 < len(keys) and keys[index + 1] >> SHIFT == block.size:
            self.ties += 1
        limit = self.rules.max_split_size
        if size < limit:
            return None if block.size >= limit else block
        return None if block.size >= size + self.rules.max_non_split_rounding else block

    def _best_expandable(self, keys: list[int], index: int) -> Block | None:
        best = self.blocks[keys[index] & MASK]
        for key in keys[index + 1 :]:
            if not best.segment.expandable:
                break
            candidate = self.blocks[key & MASK]
            if _growth(candidate) >= _growth(best):
                break
            best = candidate
        return best

    def _skip_expandable(self, keys: list[int], index: int) -> Block | None:
        for key in keys[index:]:
            block = self.blocks[key & MASK]
            if not block.segment.expandable:
                return block
        return None

    def take(self, block: Block, size: int, requested: int) -> Block:
        """Hand out the front of a free block; the rest stays free if the rules split it."""
        pool = block.pool
        keys = pool.free[block.stream]
        del keys[bisect_left(keys, block.size << SHIFT | block.address)]
        remaining = block.size - size
        if remaining and not pool.no_split and self.rules.splits(pool.small, size, remaining):
            self.cut(block, size)
            assert block.next is not None
            self.insert(block.next)
        block.state = USED
        block.requested = requested
        self.allocated += block.size
        self.requested += requested
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        if self.allocated + self.pending > self.peak_active:
            self.peak_active = self.allocated + self.pending
        if self.requested > self.peak_requested:
            self.peak_requested = self.requested
        return block

    def cut(self, block: Block, size: int) -> Block:
        """Shorten a block to ``size`` and return the new block behind it (in no free list yet)."""
        rest = Block(block.address + size, block.size - size, block.segment)
        rest.state = FREE
        rest.prev, rest.next = block, block.next
        if rest.next is not None:
            rest.next.prev = rest
        block.next = rest
        block.size = size
        self.enter(rest)
        return rest

    def enter(self, block: Block) -> Block:
        """Make a block known by its address.

        Raises:
            ContradictionError: another block starts there, which only a damaged history can ask for.
        """
        if block.address in self.blocks:
            raise ContradictionError(f"two blocks start at {block.address:#x}")
        self.blocks[block.address] = block
        return block

    # giving back

    def request_free(self, block: Block) -> None:
        """A used block is no longer needed; it becomes free once ``complete`` is called."""
        block.state = PENDING
        self.allocated -= block.size
        self.pending += block.size

    def complete(self, block: Block) -> Block:
        """Merge a pending block with its free neighbours and put the result into the free list."""
        self.pending -= block.size
        self.requested -= block.requested
        return self.release_block(block)

    def release_block(self, block: Block) -> Block:
        """Make a block free: merge with the neighbour before, then behind; return the merged block."""
        before, behind = block.prev, block.next
        if before is not None and before.state == FREE:
            self.remove(before)
            before.size += block.size
            before.next = behind
            if behind is not None:
                behind.prev = before
            del self.blocks[block.address]
            before.requested = block.requested
            block = before
        if behind is not None and behind.state == FREE:
            self.remove(behind)
            block.size += behind.size
            block.next = behind.next
            if behind.next is not None:
                behind.next.prev = block
            del self.blocks[behind.address]
        block.state = FREE
        self.insert(block)
        return block

    def insert(self, block: Block) -> None:
        """Put a free block into its free list."""
        pool = block.pool
        block.born = pool.calls
        keys = pool.free.get(block.stream)
        if keys is None:
            keys = pool.free[block.stream] = []
        insort(keys, block.size << SHIFT | block.address)

    def remove(self, block: Block) -> None:
        """Take a free block out of its free list."""
        keys = block.pool.free[block.stream]
        del keys[bisect_left(keys, block.size << SHIFT | block.address)]

    # driver memory

    def add_segment(self, address: int, size: int, stream: int, pool: BlockPool) -> Block:
        """New driver memory as one free block."""
        segment = Segment(address, size, stream, pool)
        self.register(segment)
        block = self.enter(Block(address, size, segment))
        self.insert(block)
        self.grow(size)
        return block

    def grow(self, size: int) -> None:
        """Count bytes that came from the driver."""
        self.reserved += size
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved

    def drop_segment(self, block: Block) -> None:
        """Return a wholly free segment to the driver."""
        assert block.whole
        assert block.state == FREE
        assert not block.segment.expandable
        self.remove(block)
        del self.blocks[block.address]
        self.unregister(block.segment)
        self.reserved -= block.size

    def register(self, segment: Segment) -> None:
        """Enter a segment into the index by address."""
        self.segments[segment.address] = segment
        insort(self._bases, segment.address)

    def unregister(self, segment: Segment) -> None:
        """Take a segment out of the index."""
        del self.segments[segment.address]
        del self._bases[bisect_left(self._bases, segment.address)]

    def evict(self, segment: Segment) -> list[int]:
        """Forget a segment whatever is in it; returns the addresses of blocks that were not free."""
        held = []
        for block in list(self.chain(segment)):
            if block.state == FREE:
                self.remove(block)
            elif block.state == UNMAPPED:
                block.pool.unmapped[block.stream].remove(block.address)
            else:
                held.append(block.address)
                self.requested -= block.requested
                if block.state == USED:
                    self.allocated -= block.size
                else:
                    self.pending -= block.size
            if block.state != UNMAPPED:
                self.reserved -= block.size
            del self.blocks[block.address]
        self.unregister(segment)
        return held

    # views

    def chain(self, segment: Segment) -> Iterator[Block]:
        """The blocks of a segment in address order, unmapped ranges included."""
        block = self.blocks.get(segment.address)
        while block is not None:
            yield block
            block = block.next

    def block_at(self, address: int) -> Block | None:
        """The mapped block that an address lies in, None outside all segments."""
        for segment in self.reaching(address):
            for block in self.chain(segment):
                if block.address <= address < block.address + block.size and block.state != UNMAPPED:
                    return block
        return None

    def next_base(self, address: int) -> int | None:
        """The lowest address above another one at which a segment starts."""
        index = bisect_right(self._bases, address)
        return self._bases[index] if index < len(self._bases) else None

    def overlapping(self, address: int, size: int) -> list[Segment]:
        """Segments with mapped memory in a range of addresses."""
        out = [s for s in self.reaching(address) if self._mapped_end(s) > address]
        index = bisect_right(self._bases, address)
        while index < len(self._bases) and self._bases[index] < address + size:
            out.append(self.segments[self._bases[index]])
            index += 1
        return out

    def reaching(self, address: int) -> Iterator[Segment]:
        """Segments that start at or before an address, nearest first, up to one that cannot reach further."""
        index = bisect_right(self._bases, address) - 1
        while index >= 0:
            segment = self.segments[self._bases[index]]
            yield segment
            if not segment.expandable:
                return
            index -= 1

    def _mapped_end(self, segment: Segment) -> int:
        if not segment.expandable:
            return segment.address + segment.size
        ends = [b.address + b.size for b in self.chain(segment) if b.state != UNMAPPED]
        return ends[-1] if ends else segment.address

    def releasable(self, pool: BlockPool) -> list[Block]:
        """Wholly free, non-expandable segments of a pool in the order in which they are released."""
        out = []
        for key in pool.ordered():
            block = self.blocks[key & MASK]
            if block.prev is None and block.next is None and not block.segment.expandable:
                out.append(block)
        return out


def _growth(block: Block) -> int:
    """Size for best fit in an expandable segment: the block and the unmapped range behind it."""
    behind = block.next
    return block.size + behind.size if behind is not None and behind.state == UNMAPPED else block.size
