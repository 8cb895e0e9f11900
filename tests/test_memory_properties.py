"""Properties of the allocator model, and its agreement with a slow model written separately."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from allocator_reference import Reference
from hypothesis import given, settings
from hypothesis import strategies as st

from rcatools.memory.export import raw_snapshot, snapshot_of
from rcatools.memory.ledger import ledger
from rcatools.memory.read import parse_snapshot
from rcatools.memory.replay import replay
from rcatools.memory.rules import rules_from_settings
from rcatools.memory.simulator import Simulator

KIB, MIB = 1 << 10, 1 << 20
EDGES = [
    1,
    511,
    512,
    513,
    MIB - 1,
    MIB,
    MIB + 1,
    2 * MIB,
    10 * MIB - 1,
    10 * MIB,
    10 * MIB + 1,
    20 * MIB,
    21 * MIB,
]
STREAMS = (0, 7, 3)

VARIANTS = {
    "default": ("", {}),
    "max_split": ("max_split_size_mb:21", {"max_split": 21 * MIB}),
    "roundup": ("roundup_power2_divisions:8", {"divisions": 8}),
    "limit": ("", {"limit": 700 * MIB}),
    "max_split_limit": ("max_split_size_mb:24", {"max_split": 24 * MIB, "limit": 600 * MIB}),
    "collection": ("garbage_collection_threshold:0.4", {"limit": 900 * MIB, "collect": 0.4}),
}


def size_from(rng: random.Random) -> int:
    if rng.random() < 0.3:
        return max(1, rng.choice(EDGES) + rng.choice((0, 0, -512, 512)))
    return int(2 ** rng.uniform(0, 26))


def first_difference(left: list[object], right: list[object]) -> object:
    """Position and both items: comparing lists of 10,000 in an assertion takes minutes to print."""
    pairs = itertools.zip_longest(left, right)
    return next(((i, a, b) for i, (a, b) in enumerate(pairs) if a != b), None)


class Pair:
    """The model and the slow model, fed with the same operations."""

    def __init__(self, variant: str) -> None:
        conf, options = VARIANTS[variant]
        self.fast = Simulator(rules_from_settings(conf, "2.13"), limit=options.get("limit"))
        self.slow = Reference(**options)
        self.live: dict[str, int] = {}
        self.count = 0
        self.pools = 0
        self.open: tuple[int, int] | None = None

    def alloc(self, size: int, stream: int) -> None:
        name = f"b{self.count}"
        self.count += 1
        address = self.fast.alloc(size, stream)
        assert self.slow.alloc(name, size, stream) == (address is not None)
        if address is not None:
            self.live[name] = address

    def free(self, choice: int) -> None:
        if self.live:
            name = sorted(self.live)[choice % len(self.live)]
            self.fast.free(self.live.pop(name))
            self.slow.free(name)

    def record(self, choice: int, stream: int) -> None:
        if self.live:
            name = sorted(self.live)[choice % len(self.live)]
            self.fast.record_stream(self.live[name], stream)
            self.slow.record_stream(name, stream)

    def empty_cache(self) -> None:
        self.fast.empty_cache()
        self.slow.empty_cache()

    def sync(self) -> None:
        self.fast.sync()
        self.slow.sync()

    def pool(self) -> None:
        """Open a private pool for one stream, or close and release the open one."""
        if self.open is None:
            self.pools += 1
            self.open = (0, self.pools)
            self.fast.begin_pool(self.open, frozenset({STREAMS[1]}))
            self.slow.pool_for.append((str(self.open), {STREAMS[1]}))
        else:
            self.fast.end_pool(self.open)
            self.fast.release_private(self.open)
            self.slow.pool_for.pop()
            self.slow.dead_pools.append(str(self.open))
            self.open = None

    def check(self) -> None:
        events = [
            (e.action, e.address, 0 if e.action.startswith("free_") else e.size) for e in self.fast.events
        ]
        assert first_difference(events, self.slow.log) is None
        layout = [
            (s["address"], s["stream"], [(b["address"], b["size"], b["state"]) for b in s["blocks"]])
            for s in raw_snapshot(self.fast)["segments"]
        ]
        assert first_difference(layout, self.slow.layout()) is None
        assert self.fast.heap.reserved == self.slow.reserved


def step(pair: Pair, rng: random.Random) -> None:
    roll = rng.random()
    if roll < 0.47 and len(pair.live) < 150:
        pair.alloc(size_from(rng), rng.choice(STREAMS))
    elif roll < 0.93:
        pair.free(rng.randrange(1 << 30))
    elif roll < 0.96:
        pair.record(rng.randrange(1 << 30), rng.choice(STREAMS))
    elif roll < 0.98:
        pair.sync()
    elif roll < 0.99:
        pair.empty_cache()
    else:
        pair.pool()


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_ten_thousand_operations_agree_with_the_slow_model(variant: str, seed: int) -> None:
    pair, rng = Pair(variant), random.Random(seed)
    for _ in range(10_000):
        step(pair, rng)
    pair.check()


operation = st.one_of(
    st.tuples(
        st.just("alloc"),
        st.one_of(st.sampled_from(EDGES), st.integers(1, 40 * MIB)),
        st.sampled_from(STREAMS),
    ),
    st.tuples(st.just("free"), st.integers(0, 100)),
    st.tuples(st.just("record"), st.integers(0, 100), st.sampled_from(STREAMS)),
    st.tuples(st.sampled_from(["empty_cache", "sync", "pool"])),
)


@settings(max_examples=60, deadline=None)
@given(variant=st.sampled_from(sorted(VARIANTS)), operations=st.lists(operation, max_size=60))
def test_any_short_sequence_agrees_with_the_slow_model(
    variant: str, operations: list[tuple[object, ...]]
) -> None:
    pair = Pair(variant)
    for name, *arguments in operations:
        getattr(pair, str(name))(*arguments)
        pair.check()


CONFS = ["", "expandable_segments:True", "max_split_size_mb:21", "roundup_power2_divisions:4"]


def run_random(conf: str, seed: int, count: int, limit: int | None = None) -> Simulator:
    simulator, rng, live = Simulator(rules_from_settings(conf), limit=limit), random.Random(seed), []
    for _ in range(count):
        roll = rng.random()
        if roll < 0.5 and len(live) < 200:
            address = simulator.alloc(size_from(rng), rng.choice(STREAMS))
            if address is not None:
                live.append(address)
        elif roll < 0.97 and live:
            address = live.pop(rng.randrange(len(live)))
            if rng.random() < 0.1:
                simulator.record_stream(address, rng.choice(STREAMS))
            simulator.free(address)
        elif roll < 0.985:
            simulator.sync()
        else:
            simulator.empty_cache()
    return simulator


@settings(max_examples=12, deadline=None)
@given(
    conf=st.sampled_from(CONFS),
    seed=st.integers(0, 2**32),
    limit=st.sampled_from([None, 300 * MIB, 900 * MIB]),
)
def test_bytes_are_conserved_and_the_ledger_reconciles(conf: str, seed: int, limit: int | None) -> None:
    simulator = run_random(conf, seed, 400, limit)
    heap = simulator.heap
    spans = []
    for segment in raw_snapshot(simulator)["segments"]:
        position = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == position  # no gap and no overlap inside a segment
            position += block["size"]
        assert position == segment["address"] + segment["total_size"]
        states = [b["state"] for b in segment["blocks"]]
        assert ("inactive", "inactive") not in itertools.pairwise(states)  # neighbours are merged
        spans.append((segment["address"], position))
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    balance = ledger(snapshot_of(simulator, "random"))
    for table in (balance.rows, balance.devices, balance.segments):
        parts = table[["allocated", "awaiting_free", "stranded", "releasable", "unlisted"]].sum(axis=1)
        assert parts.tolist() == table["reserved"].tolist()
        assert (table["active"] == table["allocated"] + table["awaiting_free"]).all()
        assert (table["unlisted"] == 0).all()
    assert int(balance.rows["reserved"].sum()) == heap.reserved
    assert int(balance.rows["allocated"].sum()) == heap.allocated
    assert int(balance.rows["awaiting_free"].sum()) == heap.pending
    if limit is not None and not conf.startswith("expandable"):  # whose granules may go beyond the request
        assert heap.peak_reserved <= limit


@settings(max_examples=12, deadline=None)
@given(conf=st.sampled_from(CONFS), seed=st.integers(0, 2**32))
def test_empty_cache_is_idempotent_and_frees_what_the_ledger_says(conf: str, seed: int) -> None:
    simulator = run_random(conf, seed, 300)
    simulator.sync()
    simulator.alloc(1, 99)  # completes the frees that were waiting
    before = ledger(snapshot_of(simulator, "before")).devices.iloc[0]
    reserved = simulator.heap.reserved
    simulator.empty_cache()
    assert reserved - simulator.heap.reserved == int(before["releasable"] + before["unmappable"])
    events = len(simulator.events)
    simulator.empty_cache()
    assert len(simulator.events) == events
    after = ledger(snapshot_of(simulator, "after")).devices
    assert int(after["releasable"].sum()) == 0
    assert int(after["unmappable"].sum()) == 0


@settings(max_examples=12, deadline=None)
@given(conf=st.sampled_from(CONFS), seed=st.integers(0, 2**32), keep=st.floats(0.2, 1.0))
def test_a_simulated_history_replays_from_its_start_and_from_its_middle(
    conf: str, seed: int, keep: float
) -> None:
    """Whatever part of the ring is left, the state before it is found and everything after it is exact."""
    simulator = run_random(conf, seed, 500)
    raw = raw_snapshot(simulator)
    snapshot = snapshot_of(simulator, "whole")
    whole = replay(snapshot)
    assert (whole.exact, whole.checked) == (len(simulator.events), len(simulator.events))
    assert whole.end_state_exact
    assert whole.peak_reserved == simulator.heap.peak_reserved
    trace = raw["device_traces"][0]
    raw["device_traces"][0] = trace[len(trace) - int(keep * len(trace)) :]
    tail = replay(parse_snapshot(json.dumps(raw).encode(), "tail"))
    assert tail.exact == tail.checked
    assert tail.end_state_exact


def run_with_pools(conf: str, seed: int, count: int) -> Simulator:
    """Random requests while private pools open, close and die."""
    rng = random.Random(seed)
    simulator = Simulator(rules_from_settings(conf), limit=rng.choice((None, 800 * MIB)))
    live: list[int] = []
    pools, current = 0, None
    for _ in range(count):
        roll = rng.random()
        if roll < 0.5 and len(live) < 120:
            address = simulator.alloc(size_from(rng), rng.choice(STREAMS))
            if address is not None:
                live.append(address)
        elif roll < 0.94 and live:
            simulator.free(live.pop(rng.randrange(len(live))))
        elif roll < 0.96:
            simulator.empty_cache()
        elif current is None:
            pools += 1
            graph = rng.random() < 0.5
            current = (pools, 0) if graph else (0, pools)
            simulator.begin_pool(current, frozenset({STREAMS[1]}) if graph else None, capture=graph)
        else:
            graph = current[1] == 0
            simulator.end_pool(current, capture=graph)
            if rng.random() < 0.7:
                simulator.release_private(current, at_once=not graph)
            current = None
    return simulator


@settings(max_examples=20, deadline=None)
@given(conf=st.sampled_from(CONFS), seed=st.integers(0, 2**32))
def test_private_pools_replay_exactly_with_and_without_pool_ids(conf: str, seed: int) -> None:
    """With pool ids (torch 2.13 and later) every event is checked; without, lost pools are counted, not guessed."""
    simulator = run_with_pools(conf, seed, 400)
    for pool_ids in (True, False):
        raw = raw_snapshot(simulator, pool_ids=pool_ids)
        result = replay(parse_snapshot(json.dumps(raw).encode(), "pools"))
        assert result.exact == result.checked
        assert result.end_state_exact
        assert result.peak_reserved == simulator.heap.peak_reserved
        assert set(result.unverifiable) <= (set() if pool_ids else {"pool_not_recorded"})
        assert result.checked >= 0.5 * result.events
