"""The allocator's state when the recording began, worked out backwards from the snapshot's end.

A block that is freed in the history without having been allocated there existed before; so did a live block
that no event allocated. Only the size of the former is not in the file: between its request and what the
split rule would have left unsplit.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rcatools.memory.expandable import granule_of, reach, remember_unmapped
from rcatools.memory.heap import FREE, PENDING, UNMAPPED, USED, Block, Heap, Segment
from rcatools.memory.rules import Rules
from rcatools.memory.snapshot import ACTIONS, ALLOCATED, INACTIVE, PoolId, Snapshot

CODE = {name: code for code, name in enumerate(ACTIONS)}
_ALLOC, _FREE, _DONE = CODE["alloc"], CODE["free_requested"], CODE["free_completed"]
_SEG, _SEG_FREE = CODE["segment_alloc"], CODE["segment_free"]
_MAP, _UNMAP = CODE["segment_map"], CODE["segment_unmap"]


@dataclass(frozen=True)
class StartSegment:
    """Driver memory held when the recording began.

    Attributes:
        address, size, stream: as in a snapshot.
        pool: None where the file does not say.
        small: size class.
        expandable: one contiguous mapped range of an expandable segment.
        base: lowest address that its expandable segment is known to reach, mapped or not.
    """

    address: int
    size: int
    stream: int
    pool: PoolId | None
    small: bool
    expandable: bool
    base: int | None = None


@dataclass(frozen=True)
class StartBlock:
    """A block in use when the recording began.

    Attributes:
        size: bytes, or None where only the request is known.
        pending: it was waiting for other streams.
    """

    address: int
    size: int | None
    requested: int
    pending: bool


@dataclass(frozen=True)
class StartState:
    """What existed before the first event."""

    segments: list[StartSegment]
    blocks: list[StartBlock]

    @property
    def empty(self) -> bool:
        """Whether nothing was reserved."""
        return not self.segments


def start_state(snapshot: Snapshot, device: int, rules: Rules) -> StartState:
    """Work out what existed before the first event of a device."""
    events = snapshot.events[snapshot.events["device"] == device]
    segments = snapshot.segments[snapshot.segments["device"] == device]
    return StartState(_segments(events, segments, snapshot.pools, rules), _blocks(events, snapshot, segments))


def _firsts(events: pd.DataFrame, codes: tuple[int, ...]) -> pd.DataFrame:
    """The first event of some kinds at each address."""
    chosen = events[np.isin(events["action"].to_numpy(), codes)]
    return chosen.drop_duplicates("address", keep="first")


def _blocks(events: pd.DataFrame, snapshot: Snapshot, segments: pd.DataFrame) -> list[StartBlock]:
    first = _firsts(events, (_ALLOC, _FREE, _DONE))
    requests_recorded = bool((events["action"] == _FREE).any())
    freed = first[first["action"] != _ALLOC]
    out = [
        StartBlock(int(address), None, int(size), action == _DONE and requests_recorded)
        for address, size, action in zip(
            freed["address"].tolist(), freed["size"].tolist(), freed["action"].tolist(), strict=True
        )
    ]
    rows = snapshot.blocks[
        snapshot.blocks["segment"].isin(segments.index) & (snapshot.blocks["state"] != INACTIVE)
    ]
    unseen = rows[~np.isin(rows["address"].to_numpy(), first["address"].to_numpy())]
    out += [
        StartBlock(address, size, requested, state != ALLOCATED)
        for address, size, requested, state in zip(
            *(unseen[c].tolist() for c in ("address", "size", "requested_size", "state")), strict=True
        )
    ]
    return sorted(out, key=lambda b: b.address)


def _segments(
    events: pd.DataFrame, segments: pd.DataFrame, pools: list[PoolId], rules: Rules
) -> list[StartSegment]:
    first = _firsts(events, (_SEG, _SEG_FREE))
    created = set(first.loc[first["action"] == _SEG, "address"].tolist())
    fixed = segments[~segments["expandable"].to_numpy(bool)]
    dropped = first[first["action"] == _SEG_FREE]
    dropped_addresses = set(dropped["address"].tolist())
    out = [
        StartSegment(address, size, stream, None, size <= rules.small_buffer, False)
        for address, size, stream in zip(
            *(dropped[c].tolist() for c in ("address", "size", "stream")), strict=True
        )
    ]
    for row in zip(
        *(fixed[c].tolist() for c in ("address", "total_size", "stream", "pool_id", "size_class")),
        strict=True,
    ):
        if row[0] not in created and row[0] not in dropped_addresses:
            out.append(StartSegment(row[0], row[1], row[2], row[3], row[4] == "small", False))
    out += _mapped_ranges(events, segments[segments["expandable"].to_numpy(bool)], pools, rules)
    return sorted(out, key=lambda s: s.address)


_MAX_HOLE = 16 << 30
"""Unmapped memory inside one expandable segment is less than this; two segments of a stream are further apart,
because each reserves more addresses than the device has memory."""


@dataclass
class _Reservation:
    """An expandable segment while the history is undone: its addresses so far and what of it is mapped."""

    stream: int
    pool: PoolId | None
    small: bool
    low: int
    high: int
    mapped: list[tuple[int, int]]

    def distance(self, low: int, high: int) -> int:
        return max(low - self.high, self.low - high, 0)

    def widen(self, low: int, high: int) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)


def _mapped_ranges(
    events: pd.DataFrame, segments: pd.DataFrame, pools: list[PoolId], rules: Rules
) -> list[StartSegment]:
    """Ranges of expandable segments that were mapped at the start: undo the map events from the end."""
    held = _final_reservations(segments)
    chosen = events[np.isin(events["action"].to_numpy(), (_MAP, _UNMAP))]
    columns = (chosen[c].tolist() for c in ("action", "address", "size", "stream", "pool"))
    for action, address, size, stream, pool in reversed(list(zip(*columns, strict=True))):
        end = address + size
        owner = pools[pool] if pool >= 0 else None
        near = [r for r in held if r.stream == stream and r.distance(address, end) < _MAX_HOLE]
        mine = min(near, key=lambda r: r.distance(address, end), default=None)
        if mine is None or mine.distance(address, end) > 0:
            small = _holds_small_blocks(events, rules, address, end)
            alike = [r for r in near if r.small == small and owner in (None, r.pool)]
            mine = min(alike, key=lambda r: r.distance(address, end), default=None)
            if mine is None:
                mine = _Reservation(stream, owner, small, address, end, [])
                held.append(mine)
        mine.widen(address, end)
        if action == _UNMAP:
            mine.mapped.append((address, end))
        else:
            mine.mapped = [part for r in mine.mapped for part in _without(r, address, end)]
            if not mine.mapped:  # its first range: before this event it did not exist
                held.remove(mine)
    return [
        StartSegment(low, high - low, r.stream, r.pool, r.small, True, r.low)
        for r in held
        for low, high in _joined(r.mapped)
    ]


def _final_reservations(segments: pd.DataFrame) -> list[_Reservation]:
    """Ranges of one stream, pool and size class are parts of one expandable segment."""
    held: dict[tuple[int, PoolId | None, bool], _Reservation] = {}
    columns = ("address", "total_size", "stream", "pool_id", "size_class")
    for address, size, stream, pool, kind in zip(*(segments[c].tolist() for c in columns), strict=True):
        key = (stream, pool, kind == "small")
        mine = held.setdefault(key, _Reservation(*key, address, address + size, []))
        mine.widen(address, address + size)
        mine.mapped.append((address, address + size))
    return list(held.values())


def _holds_small_blocks(events: pd.DataFrame, rules: Rules, low: int, high: int) -> bool:
    """Whether a range belongs to the small class, by a block that was allocated or freed in it."""
    address = events["address"].to_numpy()
    inside = (
        (address >= low) & (address < high) & np.isin(events["action"].to_numpy(), (_ALLOC, _FREE, _DONE))
    )
    sizes = events["size"].to_numpy()[inside]
    if len(sizes):
        return rules.round_size(max(int(sizes[0]), 1)) <= rules.small_size
    return (high - low) % rules.large_buffer != 0


def _without(span: tuple[int, int], low: int, high: int) -> list[tuple[int, int]]:
    out = [(span[0], min(span[1], low)), (max(span[0], high), span[1])]
    return [(a, b) for a, b in out if a < b]


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and out[-1][1] == low:
            out[-1] = (out[-1][0], high)
        else:
            out.append((low, high))
    return out


def build_heap(state: StartState, rules: Rules, unknown_pool: PoolId) -> tuple[Heap, set[int]]:
    """A heap in a start state.

    Args:
        state: segments and blocks.
        rules: rules of the allocator.
        unknown_pool: pool given to segments whose pool the file does not state.

    Returns:
        The heap, and the addresses of blocks whose size is an assumption. Blocks outside all segments are left out.

    Raises:
        ContradictionError: the segments cannot have existed together.
    """
    heap = Heap(rules)
    assumed: set[int] = set()
    starts = [b.address for b in state.blocks]
    ranges: dict[int, Block] = {}  # last block of each expandable segment, by its lowest address
    reached = 0
    for start in state.segments:
        if start.address < reached or start.size == 0:
            continue  # overlaps the segment before: a file that contradicts itself
        reached = start.address + start.size
        owner = start.pool if start.pool is not None else unknown_pool
        pool = heap.pool(owner)[0 if start.small else 1]
        inside = state.blocks[
            bisect_left(starts, start.address) : bisect_left(starts, start.address + start.size)
        ]
        base = start.address if start.base is None else start.base
        previous = ranges.get(base)
        if previous is None:
            granule = granule_of(heap, pool) if start.expandable else 0
            segment = Segment(base, start.size, start.stream, pool, granule)
            heap.register(segment)
            if base < start.address:
                previous = _unmapped(heap, segment, None, base, start.address)
        else:
            segment = previous.segment
            previous = _unmapped(heap, segment, previous, previous.address + previous.size, start.address)
        heap.grow(start.size)
        last = _fill(
            heap, segment, (start.address, start.address + start.size), inside, assumed, previous=previous
        )
        if start.expandable:
            ranges[base] = last
    for last in ranges.values():
        end = last.address + last.size
        tail = reach(heap, end - 1) - 1
        if tail:
            _unmapped(heap, last.segment, last, end, end + tail)
    heap.peak_allocated, heap.peak_requested = heap.allocated, heap.requested
    heap.peak_active = heap.allocated + heap.pending
    return heap, assumed


def _unmapped(heap: Heap, segment: Segment, previous: Block | None, address: int, end: int) -> Block:
    """A stretch of an expandable segment that is reserved but not mapped."""
    block = _append(heap, segment, previous, (address, end - address), UNMAPPED)
    remember_unmapped(block)
    return block


def _append(heap: Heap, segment: Segment, previous: Block | None, span: tuple[int, int], state: int) -> Block:
    address, size = span
    block = heap.enter(Block(address, size, segment))
    block.state = state
    block.prev = previous
    if previous is not None:
        previous.next = block
    return block


def _fill(
    heap: Heap,
    segment: Segment,
    span: tuple[int, int],
    inside: list[StartBlock],
    assumed: set[int],
    *,
    previous: Block | None,
) -> Block:
    position, end = span
    for i, start in enumerate(inside):
        if start.address < position:
            continue  # overlaps the block before: a file that contradicts itself
        if start.address > position:
            previous = _append(heap, segment, previous, (position, start.address - position), FREE)
            heap.insert(previous)
        limit = (inside[i + 1].address if i + 1 < len(inside) else end) - start.address
        size = start.size if start.size is not None else heap.rules.round_size(max(start.requested, 1))
        size = min(size, limit)
        rest = limit - size
        if start.size is None and rest:
            if not heap.rules.splits(segment.pool.small, size, rest):
                size = limit
            elif not segment.pool.small and not segment.expandable:
                assumed.add(start.address)
        previous = _append(heap, segment, previous, (start.address, size), PENDING if start.pending else USED)
        previous.requested = start.requested
        if start.pending:
            heap.pending += size
        else:
            heap.allocated += size
        heap.requested += start.requested
        position = start.address + size
    if position < end or previous is None:
        previous = _append(heap, segment, previous, (position, end - position), FREE)
        heap.insert(previous)
    return previous
