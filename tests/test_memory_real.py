"""Facts about public snapshots and our own H200 files, computed elsewhere by other means.

The numbers come from ``shared/real/README.md`` beside the checkout (those files are not part of the project) and
from the notes that came with our own H200 measurements, where short independent scripts computed them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from rcatools.memory.ledger import ledger, pins
from rcatools.memory.owners import owners
from rcatools.memory.peak import peak
from rcatools.memory.read import load_snapshot
from rcatools.memory.replay import replay

SHARED = Path(__file__).resolve().parents[1].parent / "shared"
SNAPSHOTS = SHARED / "real" / "snapshots"

needs_real = pytest.mark.skipif(not SNAPSHOTS.is_dir(), reason="../shared/real is not beside this checkout")
needs_cases = pytest.mark.skipif(
    not (SHARED / "cases").is_dir(), reason="../shared/cases is not beside this checkout"
)
ARMS = Path(__file__).parent / "data" / "snapshots" / "arms"


class Facts(NamedTuple):
    path: str
    segments: int
    reserved: int
    allocated: int
    stranded: int
    releasable: int
    rounding: int
    live_blocks: int
    peak: int | None
    peak_event: int | None
    preexisting: int | None
    end: int | None
    events: int


FACTS = [
    Facts(
        "cs336_medium/medium_128_inference_memory_snapshot.pickle",
        98, 1763704832, 1703276544, 14290944, 46137344, 1966080, 223,
        1736962048, 197, 1701310464, 1701310464, 3840,
    ),
    Facts(
        "cs336_medium/medium_128_training_memory_snapshot.pickle",
        377, 7235174400, 6816891392, 74350080, 343932928, 8356348, 885,
        7013335044, 6719, 5095321600, 6808535044, 19136,
    ),
    Facts(
        "cs336_medium/medium_512_training_memory_snapshot.pickle",
        400, 12660506624, 6838108672, 1051377152, 4771020800, 8847868, 885,
        12426629128, 2584, 5095567360, 6829260804, 22332,
    ),
    Facts(
        "cs336_medium/medium_1024_inference_memory_snapshot.pickle",
        108, 3204448256, 1703677952, 13889536, 1486880768, 1966080, 223,
        2877435904, 164, 1701711872, 1701711872, 3840,
    ),
    Facts(
        "cs336_silmont/mem_snapshot.pickle",
        9, 3781165056, 31719936, 528219648, 3221225472, 508, 10,
        3249143816, 34, 0, 31719428, 97,
    ),
    Facts(
        "sketchkv2/my_snapshot.pickle",
        259, 17133731840, 16397578240, 249614336, 486539264, 17470072, 839,
        None, None, None, None, 1,
    ),
    Facts(
        "flexgen_old_format/1.3b_snapshot.pickle",
        257, 7608467456, 5683450880, 423455744, 1501560832, 1016, 785,
        None, None, None, None, 1,
    ),
    Facts(
        "mosaic_synthetic/output.pickle",
        5, 262144000, 174716640, 0, 0, 8238, 17,
        2255398598, 999, 466, 466, 1040,
    ),
]  # fmt: skip


@needs_real
@pytest.mark.parametrize("facts", FACTS, ids=lambda f: f.path.split("/")[1])
def test_totals_and_peak_of_public_files(facts: Facts) -> None:
    snapshot = load_snapshot(SNAPSHOTS / facts.path)
    total = ledger(snapshot).devices.iloc[0]
    found = [
        int(total[c]) for c in ("segments", "reserved", "allocated", "stranded", "releasable", "rounding")
    ]
    assert found == [
        facts.segments, facts.reserved, facts.allocated, facts.stranded, facts.releasable, facts.rounding
    ]  # fmt: skip
    assert int(total["live_blocks"]) == facts.live_blocks
    assert len(snapshot.events) == facts.events
    top = peak(snapshot, 0)
    if facts.peak is None:
        assert top is None
        assert not snapshot.history(0).recorded
    else:
        assert top is not None
        assert (top.requested_bytes, top.event_index) == (facts.peak, facts.peak_event)
        assert (top.preexisting_bytes, top.end_bytes) == (facts.preexisting, facts.end)
        assert top.consistent
        assert top.complete == (facts.path == "cs336_silmont/mem_snapshot.pickle")


@needs_real
@pytest.mark.parametrize("facts", FACTS, ids=lambda f: f.path.split("/")[1])
def test_public_histories_replay_exactly(facts: Facts) -> None:
    result = replay(load_snapshot(SNAPSHOTS / facts.path))
    assert result.exact == result.checked
    if facts.path.startswith("mosaic"):  # synthetic: its events lie outside its segments
        assert result.checked == 0
        assert sum(result.unverifiable.values()) == facts.events
        return
    assert result.unverifiable == {}
    assert result.end_state_exact
    assert result.peak_reserved == facts.reserved  # none of them released a segment


@needs_real
def test_old_format_gets_addresses_and_says_what_is_missing() -> None:
    snapshot = load_snapshot(SNAPSHOTS / "flexgen_old_format/1.3b_snapshot.pickle")
    assert {"pool_unknown", "block_addresses_computed", "no_times", "history_not_recorded"} <= {
        note.code for note in snapshot.notes
    }
    ends = (
        (snapshot.blocks["address"] + snapshot.blocks["size"].astype("uint64"))
        .groupby(snapshot.blocks["segment"])
        .max()
    )
    segment_ends = snapshot.segments["address"] + snapshot.segments["total_size"].astype("uint64")
    assert ends.tolist() == segment_ends.tolist()
    named = [frame for i in range(len(snapshot.stacks)) for frame in snapshot.stack(i)]
    assert any(name == "opt_output_embed" for name, _, _ in named)


@needs_cases
def test_damaged_files_say_what_still_holds() -> None:
    folder = SHARED / "cases" / "bad-snapshots-a"
    mib = 1 << 20
    newest = ledger(load_snapshot(folder / "proto5.pickle"))
    rows = newest.rows
    assert int(rows["allocated"].sum()) == 512 * mib
    side = rows[(rows["stream"] != 0) & (rows["pool_id"] == (0, 0))]
    private = rows[rows["pool_id"] == (0, 1)]
    assert int(side["releasable"].sum()) == 1024 * mib
    assert int(private["releasable"].sum()) == 256 * mib

    ghost = load_snapshot(folder / "ghost.json")
    assert ghost.history(0).overflowed
    assert ghost.history(0).orphan_frees == 1
    assert int(ledger(ghost).devices["allocated"].iloc[0]) == 512 * mib
    top = peak(ghost, 0)
    assert top is not None
    assert not top.complete
    assert top.preexisting_bytes >= 0
    assert "history_incomplete" in {n.code for n in ghost.notes}

    nopool = load_snapshot(folder / "nopool.json")
    rows = ledger(nopool).rows
    assert rows["pool_id"].isna().all()
    assert rows.set_index("stream")["reserved"].to_dict() == {
        0: 512 * mib,
        21889: 1024 * mib,
        21890: 256 * mib,
    }
    assert "pool_unknown" in {n.code for n in nopool.notes}


@pytest.mark.parametrize("arm", ["off", "side", "side_gc", "prewarm", "reset_ws", "current"])
def test_whose_stream_holds_the_76_mib_block(arm: str) -> None:
    """In ``side`` and ``side_gc`` it carries the side stream, in the other arms the runtime stream."""
    snapshot = load_snapshot(ARMS / f"snap_{arm}.pickle.gz")
    blocks = owners(snapshot)
    runtime = max(blocks, key=lambda b: b.size).stream  # the KV cache is on the runtime stream
    stranded = [b for b in blocks if b.size == 79_691_776]
    assert runtime != 0
    assert [b.owner for b in stranded] == ["raw_allocation"]
    for block in stranded:
        assert (block.stream != runtime) == (arm in ("side", "side_gc"))
        assert block.basis == "frames"
    workspaces = [b for b in blocks if b.owner == "blas_workspace"]
    assert {b.size for b in workspaces} == {33_554_432}
    assert len({b.stream for b in workspaces}) == len(workspaces)  # one on every stream that ran a product


def test_owner_of_the_block_by_call_stack() -> None:
    found = {}
    for name in ("default", "lt76", "zero"):
        blocks = owners(load_snapshot(ARMS / f"owner_{name}.pickle.gz"))
        found[name] = sorted((b.size, b.owner) for b in blocks if b.owner.startswith("blas"))
    assert found["lt76"] == [(33_554_432, "blas_workspace"), (79_691_776, "blas_lt_workspace")]
    assert found["default"] == [(1_048_576, "blas_lt_workspace"), (33_554_432, "blas_workspace")]
    assert found["zero"] == []


@needs_real
def test_pin_list_names_the_live_block_of_every_stranded_segment() -> None:
    snapshot = load_snapshot(SNAPSHOTS / "cs336_medium/medium_512_training_memory_snapshot.pickle")
    table = pins(snapshot)
    per_segment = table.drop_duplicates("segment")
    assert int(per_segment["stranded"].sum()) == 1_051_377_152
    assert (table["size"] > 0).all()
    assert table["stranded"].is_monotonic_decreasing
