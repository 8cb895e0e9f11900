"""Timelines and figures: their numbers against slow counting, and that they stay readable for long histories."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

from rcatools.memory.diff import stream_labels, stream_order
from rcatools.memory.export import snapshot_of
from rcatools.memory.ledger import ledger
from rcatools.memory.read import load_snapshot
from rcatools.memory.simulator import Simulator
from rcatools.memory.snapshot import ACTIONS, Snapshot
from rcatools.memory.timeline import segment_lifetimes, stream_timeline
from rcatools.report.memory_figures import ledger_figure, lifetime_figure, segment_map, timeline_figure

DATA = Path(__file__).parent / "data" / "snapshots"


def counted_by_hand(snapshot: Snapshot) -> dict[str, list[tuple[int, int, int]]]:
    """Bytes per stream after each event, by plain counting from an empty allocator."""
    labels = stream_labels(stream_order(snapshot))
    reserved: dict[str, int] = defaultdict(int)
    requested: dict[str, int] = defaultdict(int)
    out: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    columns = (snapshot.events[c].tolist() for c in ("action", "size", "stream"))
    for number, (code, size, handle) in enumerate(zip(*columns, strict=True)):
        name, stream = ACTIONS[code], labels[handle]
        if name in ("segment_alloc", "segment_map"):
            reserved[stream] += size
        elif name in ("segment_free", "segment_unmap"):
            reserved[stream] -= size
        elif name == "alloc":
            requested[stream] += size
        elif name == "free_completed":
            requested[stream] -= size
        else:
            continue
        out[stream].append((number, reserved[stream], requested[stream]))
    return out


@pytest.mark.parametrize(
    "name", ["streams4", "random_streams", "expandable", "graph_pools", "record_stream_pending"]
)
def test_timeline_equals_plain_counting(name: str) -> None:
    snapshot = load_snapshot(DATA / f"{name}.pickle.gz")
    line = stream_timeline(snapshot, 0, points=10**6)
    truth = counted_by_hand(snapshot)
    for stream, part in line.groupby("stream"):
        rows = list(
            zip(part["event"].tolist(), part["reserved"].tolist(), part["requested"].tolist(), strict=True)
        )
        assert rows[0] == (-1, 0, 0)
        assert rows[1:] == truth[str(stream)]
    peak = {s: max(r for _, r, _ in rows) for s, rows in truth.items()}
    short = stream_timeline(snapshot, 0, points=60)
    assert short.groupby("stream")["reserved"].max().to_dict() == peak


def test_timeline_from_the_middle_ends_at_the_state() -> None:
    snapshot = load_snapshot(DATA / "from_middle.pickle.gz")
    line = stream_timeline(snapshot, 0)
    last = line.groupby("stream").last()
    rows = ledger(snapshot).rows.groupby("stream")["reserved"].sum()
    assert last["reserved"].sum() == rows.sum()
    assert (line["reserved"] >= line["requested"]).all()
    assert (line["requested"] >= 0).all()


def test_lifetimes_account_for_every_segment_event() -> None:
    snapshot = load_snapshot(DATA / "random_oom.pickle.gz")
    lives = segment_lifetimes(snapshot, 0)
    made = int((snapshot.events["action"] == ACTIONS.index("segment_alloc")).sum())
    freed = int((snapshot.events["action"] == ACTIONS.index("segment_free")).sum())
    assert (len(lives), int((~lives["held"]).sum())) == (made, freed)
    assert int(lives["held"].sum()) == len(snapshot.segments)
    assert (lives["created"] < lives["released"]).all()


def long_history(events: int) -> Snapshot:
    simulator, rng, live = Simulator(), random.Random(3), []
    while len(simulator.events) < events:
        if len(live) < 200:
            live.append(simulator.alloc(int(2 ** rng.uniform(9, 26)), rng.randrange(4)))
        else:
            simulator.free(live.pop(rng.randrange(len(live))))
        if rng.random() < 0.001:
            simulator.empty_cache()
    return snapshot_of(simulator, "long")


def test_figures_stay_small_for_a_hundred_thousand_events() -> None:
    snapshot = long_history(100_000)
    line = stream_timeline(snapshot, 0)
    assert line.groupby("stream").size().max() <= 2100
    lives = segment_lifetimes(snapshot, 0)
    labels = stream_labels(stream_order(snapshot))
    figures = [
        timeline_figure(line),
        lifetime_figure(lives),
        segment_map([("a", snapshot), ("b", snapshot)]),
        ledger_figure(ledger(snapshot), labels),
    ]
    for figure in figures:
        assert len(figure.to_json()) < 1_500_000
    drawn = sum(len(trace.y) for trace in figures[1].data)
    assert drawn == min(300, len(lives))
    assert f"{len(lives) - 300} smaller ones" in figures[1].layout.title.text


def test_ledger_bars_add_up_to_the_reserved_bytes() -> None:
    snapshot = load_snapshot(DATA / "streams4.pickle.gz")
    figure = ledger_figure(ledger(snapshot), stream_labels(stream_order(snapshot)))
    total = sum(sum(trace.x) for trace in figure.data) * (1 << 30)
    assert total == pytest.approx(int(ledger(snapshot).devices["reserved"].iloc[0]))


def test_segment_map_covers_every_drawn_segment() -> None:
    snapshot = load_snapshot(DATA / "streams4.pickle.gz")
    figure = segment_map([("streams4", snapshot)], largest=10)
    share: dict[str, float] = defaultdict(float)
    for trace in figure.data:
        for label, width in zip(trace.y, trace.x, strict=True):
            share[label] += width
    assert len(share) == 10
    assert all(total == pytest.approx(1.0) for total in share.values())
    assert "smaller segments not drawn" in figure.layout.title.text
