"""Memory over a history: bytes per stream after each event, and when each segment lived."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rcatools.memory.diff import stream_labels, stream_order
from rcatools.memory.ledger import ledger
from rcatools.memory.snapshot import ACTIONS, INACTIVE, Snapshot

_CODE = {name: code for code, name in enumerate(ACTIONS)}
_GROWS = (_CODE["segment_alloc"], _CODE["segment_map"])
_SHRINKS = (_CODE["segment_free"], _CODE["segment_unmap"])


def stream_timeline(snapshot: Snapshot, device: int, points: int = 2000) -> pd.DataFrame:
    """Reserved and requested bytes per stream over a device's history, anchored on the state at its end.

    Args:
        snapshot: the snapshot.
        device: device index.
        points: at most about this many rows per stream; each stretch of events keeps its largest and its last
            value, so peaks survive.

    Returns:
        Columns ``stream`` (label), ``event`` (number; -1 before the first), ``time_us`` (-1 where unknown),
        ``reserved``, ``requested`` (bytes in use as requested, until a free is complete).
    """
    events = snapshot.events[snapshot.events["device"] == device]
    action, size, stream, time = (events[c].to_numpy() for c in ("action", "size", "stream", "time_us"))
    driver = np.where(np.isin(action, _GROWS), size, np.where(np.isin(action, _SHRINKS), -size, 0))
    use = np.where(action == _CODE["alloc"], size, np.where(action == _CODE["free_completed"], -size, 0))
    labels = stream_labels(stream_order(snapshot))
    end_reserved, end_requested = _end_bytes(snapshot, device)
    parts = []
    for handle in sorted(set(end_reserved) | set(np.unique(stream).tolist()), key=list(labels).index):
        mine = np.flatnonzero((stream == handle) & ((driver != 0) | (use != 0)))
        reserved, requested = (np.concatenate(([0], np.cumsum(c[mine]))) for c in (driver, use))
        reserved += end_reserved.get(handle, 0) - reserved[-1]
        requested += end_requested.get(handle, 0) - requested[-1]
        keep = _kept(reserved, requested, points)
        number = np.concatenate(([-1], mine))[keep]
        parts.append(
            pd.DataFrame(
                {
                    "stream": labels[handle],
                    "event": number,
                    "time_us": np.where(number >= 0, time[number], -1) if len(time) else -1,
                    "reserved": reserved[keep],
                    "requested": requested[keep],
                }
            )
        )
    columns = ["stream", "event", "time_us", "reserved", "requested"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _end_bytes(snapshot: Snapshot, device: int) -> tuple[dict[int, int], dict[int, int]]:
    segments = ledger(snapshot).segments
    mine = segments[segments["device"] == device]
    reserved = mine.groupby("stream")["reserved"].sum()
    live = snapshot.blocks[
        (snapshot.blocks["state"] != INACTIVE) & snapshot.blocks["segment"].isin(mine.index)
    ]
    owner = snapshot.segments["stream"].to_numpy()[live["segment"].to_numpy()]
    requested = live.groupby(owner)["requested_size"].sum()
    return (
        {int(k): int(v) for k, v in reserved.items()},  # type: ignore[call-overload]
        {int(k): int(v) for k, v in requested.items()},  # type: ignore[call-overload]
    )


def _kept(reserved: np.ndarray, requested: np.ndarray, points: int) -> np.ndarray:
    """Positions to keep: in each of ``points`` / 3 stretches the two largest values and the last one."""
    count = len(reserved)
    if count <= points:
        return np.arange(count)
    edges = np.linspace(0, count, max(points // 3, 1) + 1).astype(int)
    chosen = {0}
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if high > low:
            chosen |= {
                low + int(np.argmax(reserved[low:high])),
                low + int(np.argmax(requested[low:high])),
                high - 1,
            }
    return np.array(sorted(chosen))


def segment_lifetimes(snapshot: Snapshot, device: int) -> pd.DataFrame:
    """When each driver segment was held.

    Returns:
        One row per segment that the history or the end state knows (mapped ranges of expandable segments are
        left out): ``address``, ``size``, ``stream`` (label), ``created`` (event number, -1 before the
        recording), ``released`` (event number, or the number of events if it is still held), ``held``.
    """
    events = snapshot.events[snapshot.events["device"] == device]
    labels = stream_labels(stream_order(snapshot))
    action = events["action"].to_numpy()
    chosen = np.flatnonzero((action == _CODE["segment_alloc"]) | (action == _CODE["segment_free"]))
    columns = (events[c].to_numpy()[chosen].tolist() for c in ("action", "address", "size", "stream"))
    open_since: dict[int, tuple[int, int, int]] = {}
    rows = []
    for number, (code, address, size, stream) in zip(
        chosen.tolist(), zip(*columns, strict=True), strict=True
    ):
        if code == _CODE["segment_alloc"]:
            open_since[address] = (number, size, stream)
        else:
            created = open_since.pop(address, (-1, size, stream))[0]
            rows.append((address, size, labels[stream], created, number, False))
    held = snapshot.segments[
        (snapshot.segments["device"] == device) & ~snapshot.segments["expandable"].to_numpy(bool)
    ]
    for address, size, stream in zip(
        *(held[c].tolist() for c in ("address", "total_size", "stream")), strict=True
    ):
        created = open_since.pop(address, (-1, 0, 0))[0]
        rows.append((address, size, labels[stream], created, len(events), True))
    table = pd.DataFrame(rows, columns=["address", "size", "stream", "created", "released", "held"])
    return table.sort_values(["stream", "created", "address"], ignore_index=True)
