"""Histories that contradict themselves: every command still answers, and says what it could not follow."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rcatools.memory.document import ledger_document, owners_document, replay_document
from rcatools.memory.owners import owners
from rcatools.memory.read import parse_snapshot
from rcatools.memory.replay import replay, replay_all
from rcatools.memory.timeline import segment_lifetimes, stream_timeline

DATA = Path(__file__).parent / "data" / "snapshots"
FILES = sorted(p.name for p in DATA.glob("*.pickle.gz"))
ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
)
STATES = ("inactive", "active_allocated", "active_pending_free")


def load(name: str) -> dict[str, Any]:
    return pickle.loads(gzip.decompress((DATA / name).read_bytes()))  # our own file


def damage(top: dict[str, Any], rng: random.Random) -> None:
    trace = top["device_traces"][0]
    at = rng.randrange(len(trace))
    other = rng.randrange(len(trace))
    entry = trace[at]
    kind = rng.randrange(8)
    if kind == 0 and len(trace) > 1:
        del trace[at]
    elif kind == 1:
        trace.insert(at, dict(trace[other]))
    elif kind == 2:
        entry["size"] = rng.choice((0, 1, 512, 1 << 20, 1 << 30, entry["size"] + 512))
    elif kind == 3:
        key = "addr" if "addr" in entry else "device_free"
        entry[key] = max(0, entry[key] + rng.choice((512, -512, 1 << 21, 1 << 40)))
    elif kind == 4:
        entry["stream"] = rng.choice((0, 5, trace[other]["stream"]))
    elif kind == 5:
        entry["action"] = rng.choice(ACTIONS)
    elif kind == 6:
        trace[at], trace[other] = trace[other], trace[at]
    elif top["segments"]:
        block = rng.choice(rng.choice(top["segments"])["blocks"])
        block["state"] = rng.choice(STATES)


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(FILES), seed=st.integers(0, 2**32), times=st.sampled_from([1, 3, 20]))
def test_damaged_histories_are_answered(name: str, seed: int, times: int) -> None:
    top, rng = load(name), random.Random(seed)
    for _ in range(times):
        damage(top, rng)
    snapshot = parse_snapshot(pickle.dumps(top, 4), "damaged")
    results = replay_all(snapshot)
    for document in (
        replay_document(snapshot, results),
        ledger_document(snapshot),
        owners_document(snapshot, owners(snapshot)),
    ):
        assert json.loads(json.dumps(document, allow_nan=False)) == document
    for result in results:
        assert result.checked + sum(result.unverifiable.values()) == result.events
        assert 0 <= result.exact <= result.checked
        assert bool(result.mismatches) == (result.exact < result.checked)
        stream_timeline(snapshot, result.device, points=50)
        segment_lifetimes(snapshot, result.device)


def test_one_wrong_address_is_found_where_it_is() -> None:
    top = load("random_streams.pickle.gz")
    trace = top["device_traces"][0]
    at = next(i for i, e in enumerate(trace) if i > 1000 and e["action"] == "alloc" and e["size"] > 4096)
    trace[at]["addr"] += 512
    result = replay(parse_snapshot(pickle.dumps(top, 4), "one"))
    assert result.mismatches[0].index == at
    assert result.mismatches[0].action == "alloc"


def test_two_segments_at_one_place_stop_the_replay_with_a_reason() -> None:
    top = load("streams4.pickle.gz")
    first = top["segments"][0]
    top["segments"].append({**first, "address": first["address"] + 512, "stream": 9})
    result = replay(parse_snapshot(pickle.dumps(top, 4), "twice"))
    assert not result.end_state_exact
    assert result.end_difference is not None
