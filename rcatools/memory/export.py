"""A simulator's state and events as a snapshot, in torch's own layout."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rcatools.memory.build import build_snapshot
from rcatools.memory.columns import StackTable, TraceColumns
from rcatools.memory.heap import FREE, PENDING, UNMAPPED, USED, Block
from rcatools.memory.simulator import Simulator
from rcatools.memory.snapshot import ALLOCATED, INACTIVE, Snapshot
from rcatools.memory.snapshot import PENDING as PENDING_STATE

_STATES = {FREE: INACTIVE, USED: ALLOCATED, PENDING: PENDING_STATE}


def segments_of(simulator: Simulator) -> list[dict[str, Any]]:
    """The ``segments`` list that torch would write: sorted by address, one entry per mapped range."""
    out: list[dict[str, Any]] = []
    for segment in simulator.heap.segments.values():
        current: list[Block] = []
        for block in [*simulator.heap.chain(segment), None]:
            if block is not None and block.state != UNMAPPED:
                current.append(block)
            elif current:
                out.append(_entry(current))
                current = []
    return sorted(out, key=lambda entry: int(entry["address"]))


def _entry(blocks: list[Block]) -> dict[str, Any]:
    first = blocks[0]
    used = [b for b in blocks if b.state == USED]
    allocated = sum(b.size for b in used)
    return {
        "device": 0,
        "address": first.address,
        "total_size": sum(b.size for b in blocks),
        "allocated_size": allocated,
        "active_size": allocated + sum(b.size for b in blocks if b.state == PENDING),
        "requested_size": sum(b.requested for b in used),
        "stream": first.stream,
        "segment_type": "small" if first.pool.small else "large",
        "segment_pool_id": first.segment.pool.owner,
        "is_expandable": first.segment.expandable,
        "frames": [],
        "blocks": [
            {
                "address": b.address,
                "size": b.size,
                "requested_size": b.requested,
                "state": _STATES[b.state],
                "frames": [],
            }
            for b in blocks
        ],
    }


def raw_snapshot(simulator: Simulator, *, pool_ids: bool = True) -> dict[str, Any]:
    """The whole snapshot as plain data; ``pool_ids`` as torch 2.13 and later record them with events."""
    rules = simulator.rules
    events: list[dict[str, Any]] = []
    for event in simulator.events:
        entry: dict[str, Any] = {
            "action": event.action,
            "device_free" if event.action == "oom" else "addr": event.address,
            "size": event.size,
            "stream": event.stream,
            "time_us": len(events),
        }
        if pool_ids:
            entry["pool_id"] = event.pool
        events.append(entry)
    return {
        "segments": segments_of(simulator),
        "device_traces": [events],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": (
                f"large_segment_size_mb:{rules.large_buffer >> 20},"
                f"max_non_split_rounding_mb:{rules.max_non_split_rounding >> 20}"
            ),
            "max_split_size": rules.max_split_size,
            "garbage_collection_threshold": rules.gc_threshold,
            "expandable_segments": rules.expandable,
            "roundup_power2_divisions": {str(1 << i): d for i, d in enumerate(rules.roundup_divisions)},
            "graph_capture_record_stream_reuse": False,
        },
        "external_annotations": [],
    }


def snapshot_of(simulator: Simulator, source: str) -> Snapshot:
    """The simulator's state and events as a Snapshot."""
    raw = raw_snapshot(simulator)
    trace = TraceColumns(StackTable())
    trace.extend(raw.pop("device_traces")[0])
    return build_snapshot(raw, [trace], Counter(), source)
