"""Compare a heap with the segments and blocks of a snapshot."""

from __future__ import annotations

from rcatools.memory.heap import FREE, PENDING, UNMAPPED, USED, Heap
from rcatools.memory.snapshot import ALLOCATED, INACTIVE, Snapshot
from rcatools.memory.snapshot import PENDING as PENDING_STATE

_STATE = {FREE: INACTIVE, USED: ALLOCATED, PENDING: PENDING_STATE}

Part = tuple[int, int, str]
"""Address, size and state of a block."""


def heap_layout(heap: Heap) -> dict[int, list[Part]]:
    """Blocks by the address of their segment (for expandable ones: of each contiguous mapped range)."""
    out: dict[int, list[Part]] = {}
    for segment in heap.segments.values():
        current: list[Part] | None = None
        for block in heap.chain(segment):
            if block.state == UNMAPPED:
                current = None
                continue
            if current is None:
                current = out[block.address] = []
            current.append((block.address, block.size, _STATE[block.state]))
    return out


def snapshot_layout(snapshot: Snapshot, device: int) -> dict[int, list[Part]]:
    """The same from a snapshot."""
    mine = snapshot.segments[snapshot.segments["device"] == device]
    out: dict[int, list[Part]] = {address: [] for address in mine["address"].tolist()}
    base = dict(zip(mine.index.tolist(), mine["address"].tolist(), strict=True))
    rows = snapshot.blocks[snapshot.blocks["segment"].isin(mine.index)]
    for segment, *part in zip(
        *(rows[c].tolist() for c in ("segment", "address", "size", "state")), strict=True
    ):
        out[base[segment]].append(tuple(part))
    return out


def end_state_difference(heap: Heap, snapshot: Snapshot, device: int) -> str | None:
    """The first difference between the two in words, None if they are equal."""
    ours, theirs = heap_layout(heap), snapshot_layout(snapshot, device)
    for address in sorted(ours.keys() | theirs.keys()):
        mine, given = ours.get(address), theirs.get(address)
        if mine is None or given is None:
            where = "only the snapshot has" if mine is None else "only the replay has"
            return f"{where} the segment at {address:#x}"
        if mine != given:
            for a, b in zip(mine, given, strict=False):
                if a != b:
                    return f"segment {address:#x}: replay has block {a}, the snapshot {b}"
            return f"segment {address:#x}: replay has {len(mine)} blocks, the snapshot {len(given)}"
    return None
