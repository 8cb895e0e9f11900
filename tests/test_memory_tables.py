"""Ledger, owners, interventions, peak, streams and differences on snapshots small enough to check by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rcatools.errors import InputError
from rcatools.memory.diff import diff
from rcatools.memory.intervention import agreement, apply_intervention, intervene, parse_change
from rcatools.memory.ledger import fitting_blocks, ledger, pins
from rcatools.memory.owners import owner_by_frames, owners
from rcatools.memory.peak import peak, timeline
from rcatools.memory.read import load_snapshot, parse_snapshot
from rcatools.memory.sites import site
from rcatools.memory.snapshot import Snapshot
from rcatools.memory.streams import idle_under_unused_streams, stream_activity
from rcatools.memory.workspaces import blas_config_bytes, known_sizes

DATA = Path(__file__).parent / "data" / "snapshots"
MIB = 1 << 20
LINE = [{"name": "step", "filename": "/home/someone/train.py", "line": 7}]


def block(
    at: int, size: int, state: str = "active_allocated", asked: int | None = None, frames: Any = ()
) -> dict[str, Any]:
    return {
        "address": at,
        "size": size,
        "requested_size": size if asked is None else asked,
        "state": state,
        "frames": list(frames),
    }


def segment(at: int, blocks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    used = sum(b["size"] for b in blocks if b["state"] == "active_allocated")
    active = sum(b["size"] for b in blocks if b["state"] != "inactive")
    return {
        "device": 0,
        "address": at,
        "total_size": sum(b["size"] for b in blocks),
        "allocated_size": used,
        "active_size": active,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "blocks": blocks,
        **more,
    }


def made(*segments: dict[str, Any], trace: Any = ()) -> Snapshot:
    return parse_snapshot(json.dumps({"segments": segments, "device_traces": [list(trace)]}).encode(), "made")


TWO_STREAMS = (
    segment(
        0 * MIB,
        [
            block(0, 4 * MIB, asked=4 * MIB - 100, frames=LINE),
            block(4 * MIB, 6 * MIB, "inactive"),
            block(10 * MIB, 2 * MIB, "active_pending_free"),
            block(12 * MIB, 8 * MIB, "inactive"),
        ],
    ),
    segment(100 * MIB, [block(100 * MIB, 32 * MIB, "inactive")], stream=77),
    segment(200 * MIB, [block(200 * MIB, 30 * MIB)], stream=77, segment_pool_id=(3, 0)),
    segment(
        300 * MIB,
        [block(300 * MIB, 2 * MIB, "inactive")],
        stream=77,
        segment_pool_id=(3, 0),
        segment_type="small",
    ),
)


def test_ledger_by_hand() -> None:
    balance = ledger(made(*TWO_STREAMS))
    rows = balance.rows.set_index(["stream", "pool_id", "size_class"])
    first = rows.loc[(0, (0, 0), "large")]
    assert [
        int(first[c]) // MIB
        for c in ("reserved", "allocated", "active", "awaiting_free", "stranded", "releasable")
    ] == [20, 4, 6, 2, 14, 0]
    assert int(first["rounding"]) == 100
    assert int(first["largest_free"]) == 8 * MIB
    assert int(rows.loc[(77, (0, 0), "large"), "releasable"]) == 32 * MIB
    assert int(rows.loc[(77, (3, 0), "large"), "stranded"]) == 0
    total = balance.devices.iloc[0]
    assert int(total["reserved"]) == 84 * MIB
    assert (
        int(total["allocated"] + total["awaiting_free"] + total["stranded"] + total["releasable"]) == 84 * MIB
    )
    private = next(n for n in balance.notes if n.code == "private_pool_idle")
    assert "2,097,152 B" in private.text


def test_pins_name_the_blocks_that_strand() -> None:
    table = pins(made(*TWO_STREAMS))
    assert table["address"].tolist() == [0, 10 * MIB]
    assert table["stranded"].tolist() == [14 * MIB, 14 * MIB]
    assert table["live_in_segment"].tolist() == [2, 2]


def test_expandable_granules_can_be_unmapped_around_a_live_block() -> None:
    base = 1 << 40
    snapshot = made(
        segment(
            base,
            [
                block(base, 1 * MIB, "inactive"),
                block(base + 1 * MIB, 1 * MIB),
                block(base + 2 * MIB, 58 * MIB, "inactive"),
            ],
            is_expandable=True,
        )
    )
    row = ledger(snapshot).devices.iloc[0]
    assert int(row["stranded"]) == 59 * MIB
    assert int(row["unmappable"]) == 40 * MIB  # granules 1 and 2 of 20 MiB each


def test_counters_that_disagree_are_noted() -> None:
    wrong = {**TWO_STREAMS[0], "allocated_size": 5}
    assert "counters_disagree" in {n.code for n in ledger(made(wrong)).notes}


def test_blocks_that_would_hold_a_request_are_named_with_their_stream() -> None:
    table = fitting_blocks(made(*TWO_STREAMS), 8 * MIB)
    assert list(zip(table["stream"].tolist(), table["size"].tolist(), strict=True)) == [
        (0, 8 * MIB),
        (77, 32 * MIB),
    ]
    assert table["pool_id"].tolist() == [(0, 0), (0, 0)]
    assert fitting_blocks(made(*TWO_STREAMS), 33 * MIB).empty


# owners


def test_frames_name_the_innermost_workspace_function() -> None:
    lt = ("at::cuda::getCUDABlasLtWorkspace()", "??", 0)
    handle = ("at::cuda::setWorkspaceForHandle(cublasContext*, c10::cuda::CUDAStream)", "", 0)
    allocate = (
        "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)",
        "",
        0,
    )
    tensor = ("at::detail::empty_generic(c10::ArrayRef<long>)", "??", 0)

    def owner(*frames: tuple[str, str, int]) -> str | None:
        found = owner_by_frames(frames)
        return found[0] if found else None

    assert owner(allocate, lt) == "blas_lt_workspace"
    assert owner(allocate, handle, lt) == "blas_workspace"
    assert owner(allocate, ("at::cuda::getNewWorkspace()", "", 0)) == "blas_workspace"
    assert owner(tensor, ("forward", "/opt/aiter/ops.py", 3)) == "python"
    assert owner(("gemm", "/opt/site-packages/aiter/ops/gemm.py", 3)) == "aiter"
    assert owner(("maintainer", "/x/waiter.py", 1)) is None
    assert owner(("c10d::ProcessGroupNCCL::broadcast()", "", 0)) == "nccl"
    assert owner(allocate) is None


def test_size_alone_is_a_weak_hint_and_follows_the_environment() -> None:
    snapshot = made(segment(0, [block(0, 79_691_776)]), segment(1 << 40, [block(1 << 40, 123 * MIB)]))
    by_size, unknown = sorted(owners(snapshot), key=lambda b: b.size)
    assert (by_size.owner, by_size.basis) == ("blas_lt_workspace", "size")
    assert by_size.confidence < 0.95
    assert (unknown.owner, unknown.basis, unknown.confidence) == ("unknown", "none", 0.0)
    told = owners(snapshot, {"CUBLAS_WORKSPACE_CONFIG": ":77824:1"})
    assert next(b for b in told if b.size == 79_691_776).owner == "blas_workspace"
    assert {b.basis for b in owners(snapshot, platform="cuda")} == {"none"}  # 76 MiB is ROCm's default only
    other = owners(snapshot, {"HIPBLASLT_WORKSPACE_SIZE": "40960"}, "rocm")
    assert {b.basis for b in other} == {"none"}  # the default was not in force


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (":4096:2:16:8", 8_519_680),
        (":77824:1", 79_691_776),
        (":0:0", 0),
        ("", None),
        ("4096:2", None),
        (":a:1", None),
        (":1:-2", None),
    ],
)
def test_workspace_settings(text: str, size: int | None) -> None:
    assert blas_config_bytes(text) == size


def test_known_sizes_have_no_zero() -> None:
    assert all(
        k.size > 0 for k in known_sizes({"CUBLAS_WORKSPACE_CONFIG": ":0:0", "CUBLASLT_WORKSPACE_SIZE": "0"})
    )


def test_private_pools_own_what_nothing_else_names() -> None:
    snapshot = made(segment(0, [block(0, 30 * MIB)], segment_pool_id=(4, 0)))
    assert [(b.owner, b.basis) for b in owners(snapshot)] == [("graph_pool", "pool")]


def sample(name: str) -> Snapshot:
    return load_snapshot(DATA / f"{name}.pickle.gz")


INTERVENTIONS = [
    ("lt", "CUBLASLT_WORKSPACE_SIZE=77824->40960", "blas_lt_workspace"),
    ("blas", "CUBLAS_WORKSPACE_CONFIG=:77824:1->:40960:1", "blas_workspace"),
]


@pytest.mark.parametrize(("kind", "change", "owner"), INTERVENTIONS)
def test_frames_size_and_intervention_agree_on_the_76_mib_block(kind: str, change: str, owner: str) -> None:
    """Recorded on an H200: the block of 79,691,776 bytes under the side stream, made in two ways."""
    base = sample(f"owner_{kind}_76")
    outcome = intervene(
        base, sample(f"owner_{kind}_40"), sample(f"owner_{kind}_76_cleared"), parse_change(change)
    )
    assert outcome.follows is True
    assert outcome.cleared is True
    assert outcome.streams == ("stream 1",)
    answers = agreement(base, outcome)
    assert (answers.by_frames, answers.by_size, answers.by_intervention) == (owner, owner, owner)
    assert answers.agreed == owner
    assert "owner_intervention.py" in answers.text
    decided = next(b for b in apply_intervention(owners(base), outcome) if b.size == 79_691_776)
    assert (decided.owner, decided.basis) == (owner, "intervention")
    assert decided.stream != 0


def test_an_intervention_that_the_block_does_not_follow_proves_nothing() -> None:
    """The block follows cuBLAS's variable, so changing cuBLASLt's excludes that library."""
    base = sample("owner_blas_76")
    outcome = intervene(base, base, None, parse_change("CUBLASLT_WORKSPACE_SIZE=77824->40960"))
    assert outcome.follows is False
    assert outcome.owner is None
    assert "do not take" in outcome.text
    assert agreement(base, outcome).agreed is None
    frameless = made(segment(0, [block(0, 79_691_776)]))
    outcome = intervene(frameless, frameless, None, parse_change("HIPBLASLT_WORKSPACE_SIZE=77824->40960"))
    excluded = apply_intervention(owners(frameless), outcome)
    assert [(b.owner, b.confidence) for b in excluded] == [("unknown", 0.0)]
    nothing = intervene(sample("streams4"), base, None, parse_change("CUBLASLT_WORKSPACE_SIZE=77824->40960"))
    assert nothing.follows is None
    stays = intervene(
        sample("owner_lt_76"), sample("owner_lt_40"), sample("owner_lt_76"), parse_change(INTERVENTIONS[0][1])
    )
    assert stays.cleared is False
    assert stays.owner is None


@pytest.mark.parametrize(
    "text",
    ["A=1->2", "CUBLASLT_WORKSPACE_SIZE=1", "CUBLASLT_WORKSPACE_SIZE=5->5", "CUBLAS_WORKSPACE_CONFIG=1->2"],
)
def test_changes_that_are_none(text: str) -> None:
    with pytest.raises(InputError):
        parse_change(text)


def test_sites_hide_folders() -> None:
    frames = (
        ("at::native::empty()", "??", 0),
        ("zeros", "/x/site-packages/torch/utils.py", 3),
        ("step", "/home/someone/train.py", 7),
    )
    assert site(frames) == "step (train.py:7)"
    assert site((("step", "C:\\Users\\someone\\train.py", 7),)) == "step (train.py:7)"
    assert site(()) == ""


# history


def ev(action: str, at: int, size: int, stream: int = 0) -> dict[str, Any]:
    return {"action": action, "addr": at, "size": size, "stream": stream}


def test_peak_counts_blocks_from_before_the_recording() -> None:
    """Two blocks existed before: one is freed (60), one never mentioned (40)."""
    trace = [
        ev("alloc", 5 * MIB, 10),
        ev("free_requested", 9 * MIB, 60),
        ev("free_completed", 9 * MIB, 60),
        ev("alloc", 6 * MIB, 30),
    ]
    state = segment(
        0,
        [block(0, 5 * MIB, asked=40), block(5 * MIB, 1 * MIB, asked=10), block(6 * MIB, 14 * MIB, asked=30)],
    )
    snapshot = made(state, trace=trace)
    top = peak(snapshot, 0)
    assert top is not None
    assert (top.preexisting_bytes, top.requested_bytes, top.event_index, top.history_index) == (
        100,
        110,
        0,
        0,
    )
    assert (top.end_bytes, top.consistent, top.complete) == (80, True, False)
    line = timeline(snapshot, 0)
    assert line.requested_bytes.tolist() == [110, 50, 80]
    assert line.index.tolist() == [0, 2, 3]


def test_no_number_without_a_history() -> None:
    assert peak(made(TWO_STREAMS[0]), 0) is None


def test_activity_of_streams() -> None:
    trace = [
        ev("segment_alloc", 0, 20 * MIB),
        ev("alloc", 0, 4 * MIB),
        ev("segment_alloc", 100 * MIB, 32 * MIB, 77),
        ev("alloc", 100 * MIB, 32 * MIB, 77),
        ev("free_requested", 100 * MIB, 32 * MIB, 77),
        ev("free_completed", 100 * MIB, 32 * MIB, 77),
        ev("alloc", 4 * MIB, 1 * MIB),
    ]
    table = stream_activity(made(*TWO_STREAMS, trace=trace)).set_index("stream")
    assert table.loc[0, ["allocations", "first_event", "last_event", "unused_tail"]].tolist() == [2, 1, 6, 0]
    assert table.loc[77, ["allocations", "first_event", "last_event", "unused_tail"]].tolist() == [1, 3, 4, 2]
    assert int(table.loc[77, "idle"]) == 34 * MIB
    snapshot = made(*TWO_STREAMS, trace=trace)
    assert idle_under_unused_streams(snapshot, since_event=5) == 34 * MIB
    assert idle_under_unused_streams(snapshot, since_event=4) == 0


# differences


def test_diff_of_one_process_matches_streams_by_handle() -> None:
    result = diff(sample("streams4_before"), sample("streams4"))
    assert result.matched_by == "handle"
    changed = {(r.stream, r.size): (r.count_a, r.count_b, r.change) for r in result.blocks.itertuples()}
    # after the first snapshot the program emptied the cache and took 48 MiB on stream b and on the default one
    assert changed == {("stream 2", 48 * MIB): (0, 1, "new"), ("default", 48 * MIB): (1, 2, "grown")}
    before, after = (ledger(sample(n)).devices.iloc[0] for n in ("streams4_before", "streams4"))
    for column in ("reserved", "allocated", "stranded", "releasable"):
        assert int(result.ledger[f"{column}_delta"].sum()) == int(after[column] - before[column])


def test_diff_of_two_processes_matches_streams_by_order() -> None:
    side = load_snapshot(DATA / "arms" / "snap_side.pickle.gz")
    current = load_snapshot(DATA / "arms" / "snap_current.pickle.gz")
    result = diff(side, current)
    assert result.matched_by == "order"
    assert "streams_by_order" in {n.code for n in result.notes}
    moved = result.blocks[result.blocks["size"] == 79_691_776].set_index("stream")["change"].to_dict()
    assert moved == {"stream 2": "gone", "stream 1": "new"}
    grown = result.sites[result.sites["change"] == "grown"]
    assert grown["bytes_delta"].tolist() == [2 * MIB]  # the KV cache: the same line, a larger block
    same = diff(side, side)
    assert same.blocks.empty
    assert same.sites.empty
    assert same.unchanged_blocks == len(owners(side))
    assert not same.ledger.filter(like="_delta").any().any()
