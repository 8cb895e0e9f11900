"""How far the event history of a snapshot can be trusted, device by device."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rcatools.memory.snapshot import ACTIONS, INACTIVE, DeviceHistory

MIN_EVENTS = 10
"""Files made with the recorder off can hold a stray event or two; with fewer than this and no allocation among
them, the history counts as not recorded."""

_CODE = {name: code for code, name in enumerate(ACTIONS)}


def summarize_histories(
    segments: pd.DataFrame, blocks: pd.DataFrame, events: pd.DataFrame, devices: int, overflow: list[bool]
) -> tuple[DeviceHistory, ...]:
    """One summary per device that holds a segment or an event, in device order.

    Args:
        segments, blocks, events: the tables of a Snapshot.
        devices: number of device histories in the file; idle devices have an empty one.
        overflow: the file's own overflow flags by device, where it has them.
    """
    present = sorted(set(segments["device"].tolist()) | set(events["device"].unique().tolist()))
    if not present and devices:
        present = [0]
    block_device = segments["device"].to_numpy()[blocks["segment"].to_numpy()] if len(blocks) else np.empty(0)
    live = blocks["state"].to_numpy() != INACTIVE if len(blocks) else np.empty(0, bool)
    out = []
    for device in present:
        mine = events[events["device"] == device] if len(present) > 1 else events
        flag = overflow[device] if device < len(overflow) else False
        held = blocks["address"].to_numpy()[(block_device == device) & live]
        owned = segments.loc[segments["device"] == device, "address"].to_numpy()
        out.append(_summary(device, mine, held, owned, flag))
    return tuple(out)


def _summary(
    device: int, events: pd.DataFrame, held: np.ndarray, owned: np.ndarray, flag: bool
) -> DeviceHistory:
    action = events["action"].to_numpy()
    address = events["address"].to_numpy()
    allocs = action == _CODE["alloc"]
    frees = action == _CODE["free_completed"]
    orphans = _orphan_frees(address, allocs, frees)
    made = (action == _CODE["segment_alloc"]) | (action == _CODE["segment_map"])
    unseen_blocks = int((~contained(held, address[allocs])).sum())
    unseen_segments = int((~contained(owned, address[made])).sum())
    return DeviceHistory(
        device=device,
        events=len(events),
        recorded=bool(allocs.any()) or len(events) >= MIN_EVENTS,
        overflowed=flag,
        complete=bool(allocs.any())
        and not flag
        and orphans == 0
        and unseen_blocks == 0
        and unseen_segments == 0,
        orphan_frees=orphans,
        unseen_blocks=unseen_blocks,
        unseen_segments=unseen_segments,
    )


def contained(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Which values occur among others; like ``numpy.isin`` with less memory for few values among many."""
    if not len(values) or not len(among):
        return np.zeros(len(values), bool)
    ordered = np.sort(among)
    position = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: np.ndarray = ordered[position] == values
    return found


def first_is_free(address: np.ndarray, is_free: np.ndarray) -> np.ndarray:
    """Positions of frees whose address no earlier allocation holds open.

    Args:
        address: addresses of allocations and completed frees in order.
        is_free: which of them are frees.
    """
    order = np.argsort(address, kind="stable").astype(np.int32 if len(address) < 1 << 31 else np.int64)
    orphan = np.ones(len(order), bool)
    ordered = address[order]
    orphan[1:] = ordered[1:] != ordered[:-1]
    del ordered
    freed = is_free[order]
    orphan[1:] |= freed[:-1]
    found: np.ndarray = order[freed & orphan]
    return found


def _orphan_frees(address: np.ndarray, allocs: np.ndarray, frees: np.ndarray) -> int:
    chosen = allocs | frees
    return len(first_is_free(address[chosen], frees[chosen]))
