"""What a torch memory snapshot says, as tables: segments, blocks, events, call stacks.

A snapshot holds a *state* (segments and their blocks, read under the allocator's lock) and a *history*
(a ring of events that may be empty, cut off or switched off). The two have separate trust levels, so
they are kept apart and each carries its own notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

ALLOCATED = "active_allocated"
PENDING = "active_pending_free"
INACTIVE = "inactive"

ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "annotate",
    "other",
)
"""Event kinds in the order of their codes in ``Snapshot.events['action']``."""

Frame = tuple[str, str, int]
"""One call-stack entry: function name, file name, line."""

PoolId = tuple[int, int]
"""``(0, 0)`` the default pools, ``(n, 0)`` made by a graph capture, ``(0, n)`` made by a MemPool."""

DEFAULT_POOL: PoolId = (0, 0)


@dataclass(frozen=True)
class Note:
    """Something a reader must know before trusting a number.

    Attributes:
        code: a stable identifier.
        text: one sentence: what was seen and what still holds.
        count: how many objects it concerns.
    """

    code: str
    text: str
    count: int = 1

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"code": self.code, "text": self.text, "count": self.count}


@dataclass(frozen=True)
class DeviceHistory:
    """What the event ring of one device can be used for.

    Attributes:
        device: device index.
        events: number of events read.
        recorded: whether the recorder was on (see ``history.MIN_EVENTS``).
        overflowed: whether older events were overwritten, as far as the file can tell.
        complete: whether every live block has its alloc event and no free lacks one, so that the
            history can be followed from an empty allocator.
        orphan_frees: completed frees of blocks that no earlier event allocated.
        unseen_blocks: live blocks at the end that no event allocated.
        unseen_segments: segments at the end that no event created.
    """

    device: int
    events: int
    recorded: bool
    overflowed: bool
    complete: bool
    orphan_frees: int
    unseen_blocks: int
    unseen_segments: int


@dataclass(frozen=True)
class Snapshot:
    """One memory snapshot.

    Attributes:
        source: where it came from.
        segments: one row per driver segment (or mapped range): ``device``, ``address`` (uint64, 0 when
            the file gives none), ``total_size``, ``allocated_size``, ``active_size``,
            ``requested_size`` (bytes, as the file states them), ``stream`` (uint64 handle),
            ``pool_id`` (a pair, or None where the file has none), ``size_class`` ("small", "large"),
            ``expandable``, ``stack`` (index into ``stacks``, -1 for none).
        blocks: one row per block in address order within its segment: ``segment`` (row of
            ``segments``), ``address`` (uint64), ``size``, ``requested_size`` (bytes), ``state``,
            ``stack``.
        events: one row per recorded event, oldest first, devices one after another: ``device``,
            ``action`` (code into ACTIONS), ``address`` (uint64), ``size`` (bytes), ``stream``
            (uint64), ``time_us`` (-1 where the file has none), ``pool`` (index into ``pools``, -1
            where the file has none), ``stack``.
        frames: distinct call-stack entries.
        stacks: each a tuple of indices into ``frames``, innermost first.
        pools: distinct pool ids of events.
        settings: allocator settings, as the file states them.
        annotations: user annotations with their times.
        host_segments: pinned host memory, same columns as ``segments``.
        host_events: number of recorded events of the pinned host allocator.
        histories: one entry per device that has segments or events.
        notes: what the file cannot tell, and what was wrong in it.
    """

    source: str
    segments: pd.DataFrame
    blocks: pd.DataFrame
    events: pd.DataFrame
    frames: list[Frame]
    stacks: list[tuple[int, ...]]
    pools: list[PoolId]
    settings: Mapping[str, Any]
    annotations: list[dict[str, Any]]
    host_segments: pd.DataFrame
    host_events: int
    histories: tuple[DeviceHistory, ...]
    notes: tuple[Note, ...] = field(default=())

    @property
    def devices(self) -> list[int]:
        """Devices that hold segments or events, in order."""
        return [history.device for history in self.histories]

    @property
    def has_pools(self) -> bool:
        """Whether every segment states its pool."""
        return bool(self.segments["pool_id"].notna().all())

    def stack(self, index: int) -> tuple[Frame, ...]:
        """The frames of one call stack, innermost first; empty for -1."""
        return tuple(self.frames[i] for i in self.stacks[index]) if index >= 0 else ()

    def history(self, device: int) -> DeviceHistory:
        """The history summary of one device."""
        return next(h for h in self.histories if h.device == device)
