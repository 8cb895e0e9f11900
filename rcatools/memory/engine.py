"""The loop that walks through a history and compares each event with the model's answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from rcatools.memory.driver import driver_alloc, map_run
from rcatools.memory.heap import FREE, PENDING, USED, ContradictionError, Heap
from rcatools.memory.oom_state import OomState
from rcatools.memory.releases import release_run
from rcatools.memory.repair import odd_alloc, odd_completion, odd_request, out_of_memory
from rcatools.memory.rules import Rules
from rcatools.memory.snapshot import ACTIONS, DEFAULT_POOL, PoolId, Snapshot
from rcatools.memory.start import CODE, build_heap, start_state

UNVERIFIABLE = {
    "pool_not_recorded": "the pool of a segment that was freed before the snapshot is not in the file",
    "size_before_recording": "the exact size of a block from before the recording is not in the file",
    "outside_segments": "the address lies in no segment the file speaks about",
    "not_an_allocator_event": "a marker, not an allocator decision",
    "state_lost": "follows an event that the rules could not reproduce",
    "began_before_recording": "the request began before the first event",
    "request_unknown": "the request that led to it is not in the file",
}
"""Why an event cannot be checked."""

ALLOC, REQUEST, DONE = CODE["alloc"], CODE["free_requested"], CODE["free_completed"]
SEGMENT, SEGMENT_FREE = CODE["segment_alloc"], CODE["segment_free"]
MAP, UNMAP, OOM = CODE["segment_map"], CODE["segment_unmap"], CODE["oom"]
MARK = CODE["snapshot"]
_CHUNK = 1 << 16
_KEPT_MISMATCHES = 20


@dataclass(frozen=True)
class Mismatch:
    """An event that the rules do not reproduce."""

    index: int
    action: str
    expected: str
    recorded: str

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "index": self.index,
            "action": self.action,
            "expected": self.expected,
            "recorded": self.recorded,
        }


class Engine:
    """State of a replay: the heap, the event columns and the counts.

    Attributes:
        walked: number of events that were looked at.
        unknown: segments whose pool the file does not state; they are taken for the default pool until an
            event contradicts that.
        inferred: segments for which an event did.
        assumed: blocks from before the recording whose size is the smallest possible one.
        doubted: private pools in which an event was not reproduced.
        ooms: what was cached at each out-of-memory event.
        position: number of the event that is being looked at.
        contradiction: why the walk ended before the last event, None if it did not.
        lost: addresses of blocks that could not be placed after a mismatch.
    """

    def __init__(
        self, snapshot: Snapshot, device: int, rules: Rules, unsplit_pools: frozenset[PoolId] = frozenset()
    ) -> None:
        self.rules = rules
        self.start = start_state(snapshot, device, rules)
        self.contradiction: ContradictionError | None = None
        try:
            self.heap, self.assumed = build_heap(self.start, rules, DEFAULT_POOL)
        except ContradictionError as error:
            self.heap, self.assumed, self.contradiction = Heap(rules), set(), error
        for pool in unsplit_pools:
            for part in self.heap.pool(pool):
                part.no_split = True
        events = snapshot.events
        if len(snapshot.devices) > 1:
            events = events[events["device"] == device]
        self.n = len(events)
        self.action, self.address, self.size, self.stream = (
            events[c].to_numpy() for c in ("action", "address", "size", "stream")
        )
        self.pools = _pool_hints(snapshot, device, events)
        self.mismatches: list[Mismatch] = []
        self.walked = self.n
        self._wrong: set[int] = set()
        self._new_pools = 0
        self._unsure: dict[int, str] = {}
        self.position = 0
        self.doubted: set[PoolId] = set()
        self.segments_exact = True
        self.unknown = {s.base or s.address for s in self.start.segments if s.pool is None}
        self.inferred: set[int] = set()
        self.lost: set[int] = set()
        self.ooms: list[OomState] = []
        self.requests_recorded = bool((self.action == REQUEST).any())
        self.count_calls = rules.gc_threshold > 0
        self._rounded: dict[int, int] = {}

    def rounded(self, size: int) -> int:
        """The rounded size of a request."""
        want = self._rounded.get(size)
        if want is None:
            want = self._rounded[size] = self.rules.round_size(max(size, 1))
        return want

    def new_pool(self) -> PoolId:
        """An id for a private pool that the file does not name."""
        self._new_pools += 1
        return (-1, self._new_pools)

    def mismatch(self, index: int, expected: str, recorded: str, count: int = 1) -> None:
        """Note that events from ``index`` on are not reproduced."""
        self._wrong.update(range(index, index + count))
        if len(self.mismatches) < _KEPT_MISMATCHES:
            self.mismatches.append(Mismatch(index, ACTIONS[self.action[index]], expected, recorded))

    def unsure(self, index: int, reason: str) -> None:
        """Note that an event cannot be checked; ``reason`` is a key of UNVERIFIABLE."""
        self._unsure.setdefault(index, reason)

    @property
    def wrong(self) -> int:
        """Number of events that are not reproduced."""
        return len(self._wrong)

    @property
    def unverifiable(self) -> dict[str, int]:
        """Number of events that cannot be checked, by reason; an event that is wrong is not among them."""
        counts = Counter(r for i, r in self._unsure.items() if i not in self._wrong and i < self.walked)
        counts["state_lost"] += sum(1 for i in range(self.walked, self.n) if i not in self._wrong)
        return dict(sorted((+counts).items()))

    def run(self) -> None:
        """Walk through the history, up to an event that contradicts what came before."""
        if self.contradiction is None:
            try:
                self._walk()
                return
            except ContradictionError as error:
                self.contradiction = error
        self.segments_exact = False
        if self.n:
            at = min(self.position, self.n - 1)
            self.mismatch(at, "an event that can follow the ones before it", str(self.contradiction))
            self.walked = at + 1

    def _walk(self) -> None:
        heap, blocks, rounded = self.heap, self.heap.blocks, self._rounded
        find, take, complete, request_free = heap.find, heap.take, heap.complete, heap.request_free
        small_size, inferred, count_calls = self.rules.small_size, self.inferred, self.count_calls
        resume = 0
        for base in range(0, self.n, _CHUNK):
            part = slice(base, base + _CHUNK)
            columns = (c[part].tolist() for c in (self.action, self.address, self.size, self.stream))
            for index, (action, address, size, stream) in enumerate(zip(*columns, strict=True), base):
                if index < resume:
                    continue
                self.position = index
                if action == ALLOC:
                    want = rounded.get(size) or self.rounded(size)
                    block = blocks.get(address)
                    if block is not None and block.state == FREE and block.stream == stream:
                        pool = block.pool
                        if count_calls:
                            pool.calls += 1
                        if pool.small is (want <= small_size) and find(pool, stream, want) is block:
                            take(block, want, size)
                            if inferred and block.segment.address in inferred:
                                self.unsure(index, "pool_not_recorded")
                            continue
                    odd_alloc(self, index, address, size, stream)
                elif action == DONE:
                    block = blocks.get(address)
                    if block is not None and block.state == PENDING:
                        complete(block)
                    else:
                        odd_completion(self, index, address, size)
                elif action == REQUEST:
                    block = blocks.get(address)
                    if block is not None and block.state == USED and block.requested == size:
                        request_free(block)
                    else:
                        odd_request(self, index, address, size)
                elif action == SEGMENT:
                    resume = driver_alloc(self, index)
                elif action in (SEGMENT_FREE, UNMAP):
                    resume = release_run(self, index)
                elif action == MAP:
                    resume = map_run(self, index)
                elif action == OOM:
                    out_of_memory(self, index, size, stream)
                elif action == MARK:
                    if size != heap.allocated + heap.pending:
                        self.mismatch(index, f"{heap.allocated + heap.pending} bytes active", f"{size} bytes")
                else:
                    self.unsure(index, "not_an_allocator_event")


def _pool_hints(snapshot: Snapshot, device: int, events: Any) -> dict[int, PoolId]:
    """The pool of the driver memory made by an event, by event number, where the file tells it."""
    action, address, pool = (events[c].to_numpy() for c in ("action", "address", "pool"))
    mine = snapshot.segments[snapshot.segments["device"] == device]
    last = dict(zip(mine["address"].tolist(), mine["pool_id"].tolist(), strict=True))
    begin = mine["address"].to_numpy()
    end = begin + mine["total_size"].to_numpy().astype(np.uint64)
    hints: dict[int, PoolId] = {}
    for index in np.flatnonzero((action == SEGMENT) | (action == MAP))[::-1].tolist():
        found: PoolId | None = None
        if pool[index] >= 0:
            found = snapshot.pools[pool[index]]
        elif action[index] == SEGMENT:
            # only the last segment at an address is in the snapshot
            found = last.pop(int(address[index]), None)
        else:
            inside = np.flatnonzero((begin <= address[index]) & (address[index] < end))
            found = mine["pool_id"].iloc[inside[0]] if len(inside) else None
        if found is not None:
            hints[index] = found
    return hints
