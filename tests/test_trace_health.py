"""Each check of a trace's health against a trace made to have that defect and one made not to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trace_support import DATA, chain, event, launch, shared, write

from rcatools.trace.health import Finding, health
from rcatools.trace.read import load_trace
from rcatools.trace.summary import summarize


def found(tmp_path: Path, events: list[dict[str, Any]]) -> dict[str, Finding]:
    return {f.code: f for f in health(load_trace(write(tmp_path / "t.json", events))).findings}


def step(number: int, start: float, duration: float) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1, "ts": start,
        "dur": duration, "args": {},
    }  # fmt: skip


GOOD = chain([5.001 + i % 7 for i in range(60)], [f"k{i % 7}" for i in range(60)])


def test_a_sound_trace_has_no_finding(tmp_path: Path) -> None:
    assert found(tmp_path, GOOD) == {}
    assert health(load_trace(tmp_path / "t.json")).ok


@pytest.mark.parametrize("arm", ["off", "side", "current"])
def test_sound_measured_traces_block_nothing(arm: str) -> None:
    assert health(load_trace(DATA / f"trace_{arm}.json.gz")).ok


@pytest.mark.parametrize(
    ("path", "blocks"),
    [("h100/google_owlv2-large-patch14-ensemble__1016001", set()), ("mi300/google_owlv2-large-patch14-ensemble__1016001", set()),
     ("mi300/Qwen_Qwen1.5-0.5B-Chat__1016005", {"launch_links"}), ("inference/sglang_Qwen3-8B_decode", {"idle"}), ("mi210/gpu_only_trace", set())],
)  # fmt: skip
def test_real_traces_block_only_what_they_lack(path: str, blocks: set[str]) -> None:
    assert set(health(load_trace(shared(f"real/tracelens/{path}.json.gz"))).blocks) == blocks


def test_kernels_before_the_first_launch(tmp_path: Path) -> None:
    early = [event(f"old{i}", 100 + 20 * i, 10, correlation=9000 + i) for i in range(8)]
    finding = found(tmp_path, [*early, *GOOD])["before_first_launch"]
    assert (finding.count, finding.us) == (8, 80.0)
    assert finding.blocks == ("launch_links",)


def test_real_share_before_the_first_launch_is_told() -> None:
    checked = health(load_trace(shared("real/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")))
    assert "436 kernels" in checked.findings[0].text
    assert "30.1 %" in checked.findings[0].text


def test_launches_lost_in_the_middle(tmp_path: Path) -> None:
    events = [e for e in GOOD if not (e["cat"] == "cuda_runtime" and 20 <= e["args"]["correlation"] < 30)]
    finding = found(tmp_path, events)["missing_launches"]
    assert finding.count == 10
    assert "launch_links" in finding.blocks


def test_kernels_lost_after_their_launch(tmp_path: Path) -> None:
    events = [e for e in GOOD if not (e["cat"] == "kernel" and e["args"]["correlation"] > 50)]
    finding = found(tmp_path, events)["launches_without_kernel"]
    assert finding.count == 10
    assert {"totals", "idle"} <= set(finding.blocks)


def test_a_graph_replay_without_kernels(tmp_path: Path) -> None:
    finding = found(tmp_path, [*GOOD, launch(777, 990.0, "cudaGraphLaunch")])["launches_without_kernel"]
    assert "1 graph replay among them" in finding.text
    assert "per_step" in finding.blocks


def replays(lengths: list[int]) -> list[dict[str, Any]]:
    events, start = [], 1000.0
    for number, length in enumerate(lengths, start=1):
        events.append(launch(number, start - 3, "hipGraphLaunch"))
        for index in range(length):
            events.append(event(f"node{index}", round(start, 3), 2.125, correlation=number))
            start += 3
        start += 20
    return events


def test_replays_recorded_short(tmp_path: Path) -> None:
    assert "short_replays" not in found(tmp_path, replays([12, 12, 12]))
    finding = found(tmp_path, replays([12, 7, 12, 9]))["short_replays"]
    assert finding.count == 2
    assert finding.us == pytest.approx(16 * 2.125)
    assert finding.blocks == ("per_step",)


def test_different_graphs_are_not_short_replays(tmp_path: Path) -> None:
    other = [event(f"other{i}", 5000 + 3 * i, 2.5, correlation=50) for i in range(5)]
    assert "short_replays" not in found(
        tmp_path, [*replays([12, 12]), launch(50, 4990, "cudaGraphLaunch"), *other]
    )


def test_steps_without_gpu_work(tmp_path: Path) -> None:
    steps = [step(i, 990.0 + 100 * i, 95) for i in range(5)]  # the work of GOOD lasts about 540 us
    assert "missing_steps" not in found(tmp_path, [*GOOD, *steps])
    finding = found(tmp_path, [*GOOD, *steps, step(5, 3000, 50), step(6, 3100, 50), step(7, 3200, 50)])[
        "missing_steps"
    ]
    assert finding.count == 3
    assert set(finding.blocks) == {"per_step", "idle"}


def test_one_event_with_most_of_the_time(tmp_path: Path) -> None:
    finding = found(
        tmp_path,
        [*GOOD, launch(900, 1900), event("giant", 2000, 60_000, correlation=900), event("end", 70_000, 1.5)],
    )
    assert finding["dominant_event"].us == 60_000
    assert {"idle", "per_step", "durations"} <= set(finding["dominant_event"].blocks)


def test_work_only_at_the_end(tmp_path: Path) -> None:
    early = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mm",
            "pid": 1,
            "tid": 1,
            "ts": -20000,
            "dur": 5,
            "args": {},
        }
    ]
    assert found(tmp_path, [*early, *GOOD])["late_burst"].blocks == ("idle",)


def test_overlap_on_one_stream_and_not_between_streams(tmp_path: Path) -> None:
    beside = [event(f"s{i}", 1000.5 + 9 * i, 4.25, stream=8, correlation=500 + i) for i in range(30)]
    calls = [launch(500 + i, 990.0 + i) for i in range(30)]
    assert "overlap_on_stream" not in found(tmp_path, [*GOOD, *beside, *calls])
    finding = found(tmp_path, [*GOOD, launch(800, 1001.0), event("over", 1003.0, 1.5, correlation=800)])[
        "overlap_on_stream"
    ]
    assert finding.count == 1
    assert finding.us == 1.5
    heavy = [event(f"o{i}", 5000 + i, 9.5, correlation=600 + i) for i in range(40)]
    assert {"durations", "gaps"} <= set(found(tmp_path, [*GOOD, *heavy])["overlap_on_stream"].blocks)


def test_clock_jump_and_plain_waiting(tmp_path: Path) -> None:
    waiting = [event("late", 400_000.5, 5, correlation=901), launch(901, 399_990.0)]
    assert "clock_jump" not in found(tmp_path, [*GOOD, *waiting])
    jumped = [event("late", 9e9 + 0.5, 5, correlation=901), launch(901, 9e9)]
    assert {"idle", "gaps"} <= set(found(tmp_path, [*GOOD, *jumped])["clock_jump"].blocks)


def test_kernels_that_start_before_their_launch(tmp_path: Path) -> None:
    shifted = [{**e, "ts": e["ts"] + 40} if e["cat"] == "cuda_runtime" else e for e in GOOD]
    finding = found(tmp_path, shifted)["starts_before_launch"]
    assert finding.count == 60
    assert "launch_delay" in finding.blocks


def test_a_clock_that_goes_back_shows_as_order(tmp_path: Path) -> None:
    back = [
        {**e, "ts": round(e["ts"] - 300, 3)} if e["cat"] == "kernel" and e["args"]["correlation"] > 40 else e
        for e in GOOD
    ]
    assert "gaps" in found(tmp_path, back)["out_of_launch_order"].blocks


def test_negative_and_zero_durations(tmp_path: Path) -> None:
    both = found(
        tmp_path, [*GOOD, event("minus", 1500, -4, correlation=1), event("zero", 1501.5, 0, correlation=2)]
    )
    assert both["negative_duration"].count == 1
    assert both["zero_duration"].blocks == ()
    many = [event(f"z{i}", 3000 + i, 0, correlation=1) for i in range(20)]
    assert found(tmp_path, [*GOOD, *many])["zero_duration"].blocks == ("durations",)


def test_whole_microseconds_are_noted(tmp_path: Path) -> None:
    assert "microsecond_clock" in found(tmp_path, chain([5] * 30, ["k"] * 30))


def test_a_single_long_kernel_is_no_impossible_one(tmp_path: Path) -> None:
    trace = load_trace(
        write(tmp_path / "t.json", [event("warm", 10, 2), event("long", 100, 5000), event("end", 5200, 2)])
    )
    assert len(trace.excluded) == 0
    assert summarize(trace).coverage.kernel_us == 5004


@pytest.mark.parametrize("duration", [1e6 + 1, 7.4e15, 9e14])
def test_durations_beyond_the_trace_are_impossible(tmp_path: Path, duration: float) -> None:
    trace = load_trace(write(tmp_path / "t.json", [*GOOD, event("broken", 1100, duration)]))
    assert trace.excluded["name"].astype(str).tolist() == ["broken"]
    assert trace.counts.excluded == 1
    assert len(trace.kernels) == 60
