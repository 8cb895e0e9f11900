"""The largest number of requested bytes in use, by replay anchored on the snapshot's end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rcatools.memory.history import contained, first_is_free
from rcatools.memory.snapshot import ACTIONS, INACTIVE, Snapshot

_CODE = {name: code for code, name in enumerate(ACTIONS)}


@dataclass(frozen=True)
class Peak:
    """The peak of one device.

    Attributes:
        device: device index.
        requested_bytes: largest sum of requested bytes of blocks not yet completely freed.
        event_index: which event reached it, counted among allocations and completed frees only.
        history_index: the same event, counted among all events of the device.
        complete: whether the history reaches back to an empty allocator; if not, a higher peak may lie
            before the first event.
        preexisting_bytes: requested bytes in use before the first event.
        end_bytes: requested bytes in use after the last event.
        consistent: whether ``end_bytes`` equals what the snapshot's blocks hold.
    """

    device: int
    requested_bytes: int
    event_index: int
    history_index: int
    complete: bool
    preexisting_bytes: int
    end_bytes: int
    consistent: bool

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Timeline:
    """Requested bytes in use after each allocation and completed free of one device.

    Attributes:
        index: event numbers in the device's history.
        requested_bytes: bytes after each of them.
        start: bytes before the first.
    """

    index: np.ndarray
    requested_bytes: np.ndarray
    start: int


def timeline(snapshot: Snapshot, device: int) -> Timeline:
    """Requested bytes in use over a device's history, with blocks from before the recording counted."""
    events = snapshot.events[snapshot.events["device"] == device]
    action = events["action"].to_numpy()
    frees = action == _CODE["free_completed"]
    index = np.flatnonzero((action == _CODE["alloc"]) | frees)
    size = events["size"].to_numpy()[index]
    address = events["address"].to_numpy()[index]
    is_free = frees[index]
    start = int(size[first_is_free(address, is_free)].sum()) + _untouched_bytes(snapshot, device, address)
    return Timeline(index, start + np.cumsum(np.where(is_free, -size, size)), start)


def _untouched_bytes(snapshot: Snapshot, device: int, touched: np.ndarray) -> int:
    """Requested bytes of live blocks that no event mentions."""
    rows = np.flatnonzero((snapshot.segments["device"] == device).to_numpy())
    blocks = snapshot.blocks
    live = (blocks["state"] != INACTIVE).to_numpy() & np.isin(blocks["segment"].to_numpy(), rows)
    unseen = live & ~contained(blocks["address"].to_numpy(), touched)
    return int(blocks["requested_size"].to_numpy()[unseen].sum())


def peak(snapshot: Snapshot, device: int) -> Peak | None:
    """The peak of one device, or None where the history was not recorded: no number is better than a wrong one."""
    history = snapshot.history(device)
    if not history.recorded:
        return None
    line = timeline(snapshot, device)
    blocks = snapshot.blocks
    rows = np.flatnonzero((snapshot.segments["device"] == device).to_numpy())
    live = (blocks["state"] != INACTIVE).to_numpy() & np.isin(blocks["segment"].to_numpy(), rows)
    held = int(blocks["requested_size"].to_numpy()[live].sum())
    end = int(line.requested_bytes[-1]) if len(line.index) else line.start
    best = int(np.argmax(line.requested_bytes)) if len(line.index) else -1
    above = best >= 0 and int(line.requested_bytes[best]) > line.start
    return Peak(
        device=device,
        requested_bytes=int(line.requested_bytes[best]) if above else line.start,
        event_index=best if above else -1,
        history_index=int(line.index[best]) if above else -1,
        complete=history.complete,
        preexisting_bytes=line.start,
        end_bytes=end,
        consistent=end == held,
    )
