"""Turn the raw mapping of a snapshot file into tables, counting what had to be left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from rcatools.errors import InputError
from rcatools.memory.columns import StackTable, TraceColumns, address_of, events_table, pool_of, size_of
from rcatools.memory.history import summarize_histories
from rcatools.memory.snapshot import ALLOCATED, INACTIVE, PENDING, Note, PoolId, Snapshot

_STATES = {
    ALLOCATED: ALLOCATED,
    PENDING: PENDING,
    "active_awaiting_free": PENDING,  # named so by torch's documentation, never written by a release
    INACTIVE: INACTIVE,
}
_DAMAGE_TEXT = {
    "segment_not_a_mapping": "entries of the segment list are not mappings and were left out",
    "segment_number_out_of_range": "segments hold numbers no device can have and were left out; totals speak about the rest",
    "block_not_a_mapping": "block entries are not mappings and were left out",
    "block_number_out_of_range": "blocks hold numbers no device can have and were left out",
    "block_state_unknown": "blocks have a state this reader does not know; they are counted as allocated",
    "event_not_a_mapping": "history entries are not mappings and were left out",
    "event_number_out_of_range": "history entries hold numbers no device can have and were left out",
    "trace_not_a_list": "device histories are not lists and were left out",
}


class _SegmentRows:
    """Segments and blocks as growing columns."""

    def __init__(self, stacks: StackTable, damaged: Counter[str]) -> None:
        self.stacks = stacks
        self.damaged = damaged
        self.segments: list[tuple[Any, ...]] = []
        self.blocks: list[tuple[Any, ...]] = []
        self.without_pool = 0
        self.without_block_addresses = 0

    def add(self, entry: object) -> None:
        if not isinstance(entry, Mapping):
            self.damaged["segment_not_a_mapping"] += 1
            return
        address = address_of(entry.get("address", 0))
        stream = address_of(entry.get("stream", 0))
        sizes = [
            size_of(entry.get(k, 0))
            for k in ("total_size", "allocated_size", "active_size", "requested_size")
        ]
        device = entry.get("device", 0)
        if address is None or stream is None or None in sizes or type(device) is not int or device < 0:
            self.damaged["segment_number_out_of_range"] += 1
            return
        pool = pool_of(entry.get("segment_pool_id"))
        self.without_pool += pool is None
        kind = entry.get("segment_type")
        row = len(self.segments)
        self.segments.append(
            (
                device,
                address,
                *sizes,
                stream,
                pool,
                kind if kind in ("small", "large") else "unknown",
                bool(entry.get("is_expandable", False)),
                self.stacks.intern(entry.get("frames")),
            )
        )
        blocks = entry.get("blocks", [])
        self._add_blocks(row, address, blocks if isinstance(blocks, (list, tuple)) else [])

    def _add_blocks(self, row: int, base: int, blocks: list[Any] | tuple[Any, ...]) -> None:
        position = base
        for entry in blocks:
            if not isinstance(entry, Mapping):
                self.damaged["block_not_a_mapping"] += 1
                continue
            size = size_of(entry.get("size"))
            requested = size_of(entry.get("requested_size", 0))
            address = address_of(entry.get("address", position))
            if size is None or requested is None or address is None:
                self.damaged["block_number_out_of_range"] += 1
                continue
            self.without_block_addresses += "address" not in entry
            state = _STATES.get(str(entry.get("state")))
            self.damaged["block_state_unknown"] += state is None
            self.blocks.append(
                (row, address, size, requested, state or ALLOCATED, self.stacks.intern(_block_frames(entry)))
            )
            position = address + size

    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        names = (
            "device",
            "address",
            "total_size",
            "allocated_size",
            "active_size",
            "requested_size",
            "stream",
            "pool_id",
            "size_class",
            "expandable",
            "stack",
        )
        return _table(self.segments, names), _table(
            self.blocks, ("segment", "address", "size", "requested_size", "state", "stack")
        )


_TYPES: dict[str, Any] = {
    "device": np.int64,
    "address": np.uint64,
    "stream": np.uint64,
    "pool_id": object,
    "size_class": object,
    "state": object,
    "expandable": bool,
    "stack": np.int64,
}


def _table(rows: list[tuple[Any, ...]], names: tuple[str, ...]) -> pd.DataFrame:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    data: dict[str, pd.Series[Any]] = {}
    for name, values in zip(names, columns, strict=True):
        kind = _TYPES.get(name, np.int64)
        if kind is object:
            cells = np.empty(len(values), object)
            cells[:] = values
            data[name] = pd.Series(cells, dtype=object)
        else:
            data[name] = pd.Series(np.array(values, dtype=kind))
    return pd.DataFrame(data)


def _block_frames(entry: Mapping[str, Any]) -> object:
    if "frames" in entry:
        return entry["frames"]
    history = entry.get("history")  # torch up to 2.0: newest user of the block first
    if isinstance(history, (list, tuple)) and history and isinstance(history[0], Mapping):
        return history[0].get("frames")
    return None


def build_snapshot(top: object, traces: list[TraceColumns], damaged: Counter[str], source: str) -> Snapshot:
    """Assemble the tables.

    Args:
        top: the file's outermost object, without its device histories.
        traces: the events that were read, one entry per device.
        damaged: what was left out so far, by reason.
        source: name for messages.

    Raises:
        InputError: the object is not a snapshot.
    """
    if not isinstance(top, Mapping) or not isinstance(top.get("segments"), (list, tuple)):
        found = f"keys {sorted(map(str, top))[:6]}" if isinstance(top, Mapping) else type(top).__name__
        raise InputError(
            f"{source} is not a torch memory snapshot: it needs a 'segments' list, found {found}; "
            "write one with torch.cuda.memory._dump_snapshot(path)"
        )
    for trace in traces:
        damaged += trace.damaged
    stacks = traces[0].stacks if traces else StackTable()
    rows = _SegmentRows(stacks, damaged)
    for entry in top["segments"]:
        rows.add(entry)
    segments, blocks = rows.tables()
    host = _SegmentRows(stacks, damaged)
    for entry in _list(top.get("host_segments")):
        host.add(entry)
    host_events = sum(len(_list(t)) for t in _list(top.get("host_traces")))
    frame, pools = events_table(traces)
    overflow = [bool(flag) for flag in _list(top.get("trace_alloc_overflowed"))]
    histories = summarize_histories(segments, blocks, frame, len(traces), overflow)
    settings = top.get("allocator_settings")
    snapshot = Snapshot(
        source=source,
        segments=segments,
        blocks=blocks,
        events=frame,
        frames=stacks.frames,
        stacks=stacks.stacks,
        pools=pools,
        settings=dict(settings) if isinstance(settings, Mapping) else {},
        annotations=[dict(a) for a in _list(top.get("external_annotations")) if isinstance(a, Mapping)],
        host_segments=host.tables()[0],
        host_events=host_events,
        histories=histories,
    )
    notes = [
        Note(code, f"{count} {_DAMAGE_TEXT[code]}", count) for code, count in sorted(damaged.items()) if count
    ]
    unknown = sum((trace.unknown_actions for trace in traces), Counter())
    notes += _limits(snapshot, rows, unknown)
    return Snapshot(**{**snapshot.__dict__, "notes": tuple(notes)})


def _list(value: object) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, (list, tuple)) else ()


def _limits(snapshot: Snapshot, rows: _SegmentRows, unknown: Counter[str]) -> list[Note]:
    """What this version of the file cannot tell."""
    notes = []
    if len(snapshot.segments) == 0:
        notes.append(
            Note("no_segments", "the snapshot holds no segment: nothing was reserved when it was made")
        )
    if len(snapshot.segments) and not snapshot.settings:
        notes.append(
            Note(
                "settings_unknown",
                "the file does not state the allocator's settings: a replay assumes the default ones",
            )
        )
    if rows.without_pool:
        notes.append(
            Note(
                "pool_unknown",
                f"{rows.without_pool} segments carry no pool id: the split by stream holds, private pools cannot "
                "be told from the default pool, their pool is unknown",
                rows.without_pool,
            )
        )
    if rows.without_block_addresses:
        notes.append(
            Note(
                "block_addresses_computed",
                f"{rows.without_block_addresses} blocks carry no address (torch 2.0 and older): computed from "
                "the order of the blocks in their segment",
                rows.without_block_addresses,
            )
        )
    if unknown:
        names = ", ".join(sorted(unknown)[:5])
        notes.append(
            Note(
                "unknown_actions",
                f"history entries of unknown kind were kept but not interpreted: {names}",
                sum(unknown.values()),
            )
        )
    traced = len(snapshot.events)
    if traced and bool((snapshot.events["time_us"] < 0).all()):
        notes.append(Note("no_times", "events carry no time: order holds, durations are unknown", traced))
    for history in snapshot.histories:
        notes += _history_notes(history)
    return notes


def _history_notes(history: Any) -> list[Note]:
    where = f"device {history.device}"
    if not history.recorded:
        return [
            Note(
                "history_not_recorded",
                f"{where}: the history was not recorded ({history.events} events); totals of the state hold, "
                "peak and timeline cannot be given",
            )
        ]
    if history.complete:
        return []
    why = (
        "the event ring overflowed and older events are lost"
        if history.overflowed
        else "the history does not reach back to an empty allocator: it began later or its ring overflowed"
    )
    return [
        Note(
            "history_incomplete",
            f"{where}: {why}: {history.orphan_frees} frees without their allocation, {history.unseen_blocks} "
            "live blocks that no event mentions; totals of the state hold, call stacks and the timeline before "
            "the first event are unknown",
            history.orphan_frees + history.unseen_blocks,
        )
    ]


def pool_label(pool: PoolId | None) -> str:
    """A pool's name in tables: "default", "graph 7" or "mempool 3", "unknown" where the file has none."""
    if pool is None:
        return "unknown"
    if pool == (0, 0):
        return "default"
    return (
        f"graph {pool[0]}"
        if pool[1] == 0
        else f"mempool {pool[1]}"
        if pool[0] == 0
        else f"{pool[0]},{pool[1]}"
    )
