"""Where every reserved byte is: per device, stream, pool and size class, reconciled with the segments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from rcatools.errors import InputError
from rcatools.memory.snapshot import ALLOCATED, DEFAULT_POOL, INACTIVE, PENDING, Note, PoolId, Snapshot
from rcatools.units import byte_count

GRANULE = {"small": 2 << 20, "large": 20 << 20}
"""Bytes that an expandable segment maps and unmaps at once, by size class."""

_SUMS = (
    "reserved",
    "allocated",
    "active",
    "awaiting_free",
    "stranded",
    "releasable",
    "rounding",
    "unlisted",
    "unmappable",
    "segments",
    "live_blocks",
)


@dataclass(frozen=True)
class Ledger:
    """The balance of a snapshot's state.

    ``reserved = allocated + awaiting_free + stranded + releasable + unlisted`` holds in every row of
    every table, to the byte.

    Attributes:
        rows: one row per (``device``, ``stream``, ``pool_id``, ``size_class``), with, in bytes:
            ``reserved`` (held from the driver), ``allocated`` (in use), ``awaiting_free`` (freed, but
            another stream may still read it), ``active`` (the two together), ``stranded`` (unused, in
            a segment that a live block pins), ``releasable`` (in wholly unused segments), ``rounding``
            (allocated minus requested), ``largest_free`` (largest unused block), ``unlisted`` (segment
            bytes that the file lists no block for), ``unmappable`` (the part of ``stranded`` that an
            expandable segment can still give back in whole granules); and counts ``segments``,
            ``live_blocks``.
        devices: the same sums per ``device``.
        segments: the same columns per segment, aligned with ``Snapshot.segments``.
        notes: what the reader must know.
    """

    rows: pd.DataFrame
    devices: pd.DataFrame
    segments: pd.DataFrame
    notes: tuple[Note, ...]


def ledger(snapshot: Snapshot) -> Ledger:
    """Balance a snapshot's state.

    Raises:
        InputError: a segment's blocks overlap it (they hold more bytes than the segment has).
    """
    per_segment, notes = _balance(snapshot)
    rows = _grouped(per_segment, ["device", "stream", "pool_id", "size_class"])
    devices = _grouped(per_segment, ["device"])
    idle_private = (
        int(rows.loc[[_private(p) for p in rows["pool_id"]], "releasable"].sum()) if len(rows) else 0
    )
    if idle_private:
        notes.append(
            Note(
                "private_pool_idle",
                f"{byte_count(idle_private)} of the releasable bytes lie in private pools: they return to the driver "
                "only after the graphs or MemPools that own the pool are gone",
            )
        )
    return Ledger(rows, devices, per_segment, (*snapshot.notes, *notes))


def _private(pool: PoolId | None) -> bool:
    return pool is not None and pool != DEFAULT_POOL


def _balance(snapshot: Snapshot) -> tuple[pd.DataFrame, list[Note]]:
    segments, blocks = snapshot.segments, snapshot.blocks
    n = len(segments)
    owner = blocks["segment"].to_numpy()
    size = blocks["size"].to_numpy()
    state = blocks["state"].to_numpy()

    def per_segment(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
        total = np.zeros(n, np.int64)
        np.add.at(total, owner[mask], values[mask])
        return total

    used, pending, idle = state == ALLOCATED, state == PENDING, state == INACTIVE
    total = segments["total_size"].to_numpy()
    listed = per_segment(np.ones(len(blocks), bool), size)
    allocated = per_segment(used, size)
    awaiting = per_segment(pending, size)
    free = per_segment(idle, size)
    largest = np.zeros(n, np.int64)
    np.maximum.at(largest, owner[idle], size[idle])
    live = per_segment(used | pending, np.ones(len(blocks), np.int64))
    notes: list[Note] = []

    over = listed > total
    if over.any():
        worst = int(np.flatnonzero(over)[0])
        raise InputError(
            f"{snapshot.source}: segment {worst} has {total[worst]} bytes but its blocks hold {listed[worst]}; "
            "the file is damaged, take the snapshot again"
        )
    short = listed < total
    if short.any():
        # the segment's own counters also cover blocks that the file does not list
        stated = segments["allocated_size"].to_numpy()
        stated_pending = segments["active_size"].to_numpy() - stated
        usable = (
            short
            & (stated >= allocated)
            & (stated_pending >= awaiting)
            & (stated + stated_pending + free <= total)
        )
        allocated = np.where(usable, stated, allocated)
        awaiting = np.where(usable, stated_pending, awaiting)
        notes.append(
            Note(
                "blocks_incomplete",
                f"the block lists of {int(short.sum())} segments do not cover them: "
                f"{byte_count(int((total - listed)[short].sum()))} have no block; allocated bytes are the segments' own counters",
                int(short.sum()),
            )
        )
    disagree = ~short & (segments["allocated_size"].to_numpy() != allocated)
    if disagree.any():
        notes.append(
            Note(
                "counters_disagree",
                f"{int(disagree.sum())} segments state another allocated size than their blocks add up to; the blocks are used",
                int(disagree.sum()),
            )
        )
    pinned = (live > 0) | (allocated + awaiting > 0)
    stranded = np.where(pinned, free, 0)
    rounding = per_segment(used, size - blocks["requested_size"].to_numpy())
    out = segments[["device", "stream", "pool_id", "size_class", "expandable"]].assign(
        reserved=total,
        allocated=allocated,
        active=allocated + awaiting,
        awaiting_free=awaiting,
        stranded=stranded,
        releasable=np.where(pinned, 0, free),
        rounding=rounding,
        unlisted=total - allocated - awaiting - free,
        unmappable=np.where(pinned, _whole_granules(snapshot), 0),
        largest_free=largest,
        segments=1,
        live_blocks=live,
    )
    return out, notes


def _whole_granules(snapshot: Snapshot) -> np.ndarray:
    """Unused bytes per expandable segment that lie in whole granules, counted from the segment's start."""
    segments, blocks = snapshot.segments, snapshot.blocks
    out = np.zeros(len(segments), np.int64)
    expandable = segments["expandable"].to_numpy()
    if not expandable.any():
        return out
    idle = (blocks["state"] == INACTIVE).to_numpy() & expandable[blocks["segment"].to_numpy()]
    rows = blocks.loc[idle]
    where = rows["segment"].to_numpy()
    granule = segments["size_class"].map(GRANULE).fillna(GRANULE["large"]).to_numpy(np.int64)[where]
    start = (rows["address"].to_numpy() - segments["address"].to_numpy()[where]).astype(np.int64)
    first = -(-start // granule)
    last = (start + rows["size"].to_numpy()) // granule
    np.add.at(out, where, np.maximum(last - first, 0) * granule)
    return out


def _grouped(per_segment: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    work = per_segment.copy()
    if "pool_id" in keys:  # a missing pool is a group of its own, and pairs sort only among themselves
        work["_pool"] = [(-1, -1) if p is None else p for p in work["pool_id"]]
        keys = ["_pool" if k == "pool_id" else k for k in keys]
    grouped = work.groupby(keys, sort=True)
    out = grouped[list(_SUMS)].sum()
    out["largest_free"] = grouped["largest_free"].max()
    out = out.reset_index()
    if "_pool" in out:
        pools = np.empty(len(out), object)
        pools[:] = [None if p == (-1, -1) else p for p in out.pop("_pool")]
        out.insert(2, "pool_id", pd.Series(pools, dtype=object))
    return out


def fitting_blocks(snapshot: Snapshot, nbytes: int) -> pd.DataFrame:
    """Unused blocks that would hold a request, and so which stream or pool kept it from being satisfied.

    Args:
        snapshot: the snapshot, such as one taken at an out-of-memory error.
        nbytes: the request in bytes.

    Returns:
        One row per block of at least that size, smallest first: ``device``, ``stream``, ``pool_id``,
        ``size_class``, ``address``, ``size``, ``state`` (unused or waiting for another stream).
    """
    blocks = snapshot.blocks
    large = blocks[(blocks["state"] != ALLOCATED) & (blocks["size"] >= nbytes)].sort_values(
        "size", kind="stable"
    )
    own = large["segment"].to_numpy()
    columns = {c: snapshot.segments[c].to_numpy()[own] for c in ("device", "stream", "pool_id", "size_class")}
    return pd.DataFrame({**columns, **{c: large[c].to_numpy() for c in ("address", "size", "state")}})


def pins(snapshot: Snapshot) -> pd.DataFrame:
    """The live blocks of every segment with stranded bytes: what keeps ``empty_cache`` from freeing it.

    Returns:
        One row per live block of such a segment, most stranded bytes first: ``device``, ``segment`` (row of
        ``snapshot.segments``), ``segment_address``, ``stream``, ``pool_id``, ``stranded`` (bytes of the whole segment),
        ``live_in_segment`` (how many blocks share the pinning), ``address``, ``size``, ``state``, ``stack``.
    """
    balance = ledger(snapshot).segments
    blocks = snapshot.blocks
    live = blocks[blocks["state"] != INACTIVE]
    own = live["segment"].to_numpy()
    table = pd.DataFrame(
        {
            "device": balance["device"].to_numpy()[own],
            "segment": own,
            "segment_address": snapshot.segments["address"].to_numpy()[own],
            "stream": balance["stream"].to_numpy()[own],
            "pool_id": balance["pool_id"].to_numpy()[own],
            "stranded": balance["stranded"].to_numpy()[own],
            "live_in_segment": balance["live_blocks"].to_numpy()[own],
            "address": live["address"].to_numpy(),
            "size": live["size"].to_numpy(),
            "state": live["state"].to_numpy(),
            "stack": live["stack"].to_numpy(),
        }
    )
    table = table[table["stranded"] > 0]
    return table.sort_values(
        ["stranded", "segment", "address"], ascending=[False, True, True], ignore_index=True
    )
