"""Real profiler files against figures that were computed apart from this code."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from typing import NamedTuple

import pytest
from trace_support import DATA, shared

from rcatools.trace.intervals import extent, union_length
from rcatools.trace.read import load_trace
from rcatools.trace.summary import summarize


class Truth(NamedTuple):
    """Figures of one file: microseconds, counts; busy per device as floats computed in doubles."""

    path: str
    events: int
    kernels: int
    names: int
    memcpy: int
    memset: int
    kernel_us: float
    busy_us: dict[int, float]
    span_us: float
    unlinked: int
    unlinked_us: float
    graph: int
    graph_us: float
    top_count: int
    top_us: float


TRUTHS = [
    Truth("tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", 18090, 1516, 28, 1, 0, 43062.042, {2: 43062.792}, 47085.8, 463, 13318.864, 0, 0, 172, 9097.741),
    Truth("tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", 18221, 1465, 26, 1, 241, 45432.698, {0: 45647.311}, 49652.832, 436, 13672.64, 0, 0, 241, 12789.918),
    Truth("tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz", 2653, 60, 11, 1, 0, 388.344, {2: 390.749}, 3495.976, 0, 0, 0, 0, 4, 113.656),
    Truth("tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz", 2551, 60, 11, 1, 0, 307.197, {0: 309.438}, 3907.825, 0, 0, 0, 0, 17, 98.718),
    Truth("tracelens/mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz", 130780, 4255, 52, 85, 0, 327419.87, {2: 331816.338}, 908338.155, 0, 0, 0, 0, 120, 153698.475),
    Truth("tracelens/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz", 132152, 4330, 54, 85, 750, 551451.628, {0: 566759.473}, 1078288.379, 0, 0, 0, 0, 120, 262422.467),
    Truth("tracelens/mi210/gpu_only_trace.json.gz", 2443, 562, 45, 0, 0, 5343.422, {1: 5343.37}, 5979.503, 0, 0, 0, 0, 20, 844.938),
    Truth("tracelens/mi300/resnet_act_checkpoint.json.gz", 56451, 2995, 55, 550, 108, 97255.826, {2: 84002.069}, 86567.708, 757, 30821.422, 0, 0, 17, 71516.523),
    Truth("tracelens/torch_compile_triton/trace.json.gz", 246, 12, 8, 0, 0, 12549.021, {2: 12549.021}, 12549.032, 0, 0, 0, 0, 2, 3749.165),
    Truth("tracelens/inference/sglang_Qwen3-8B_decode.json.gz", 2058, 555, 27, 3, 0, 9765.437, {9: 9772.929}, 473749.943, 0, 0, 544, 9656.404, 36, 2417.659),
    Truth("tracelens/inference/sglang_Qwen3-8B_prefilldecode.json.gz", 60315, 527, 27, 7, 0, 492773.592, {9: 492806.864}, 987288.887, 0, 0, 0, 0, 36, 243643.021),
    Truth("tracelens/inference/xdit_flux.1_aiter_sage/profile_trace_rank_0.json.gz", 229459, 7830, 135, 36, 0, 201151.639, {2: 201351.756}, 226595.684, 0, 0, 6264, 170998.308, 152, 27961.935),
    Truth("hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz", 220, 14, 12, 2, 0, 110.881, {2: 149.042}, 8911.887, 0, 0, 0, 0, 1, 17.6),
    Truth("hta/critical_path_alexnet/benchmark_result_2869224_1695835535_trace.json.gz", 1408, 79, 16, 16, 3, 10692, {0: 66141}, 12920244, 0, 0, 0, 0, 6, 2621),
    Truth("hta/event_sync_multi_stream/event_sync_trace.json.gz", 149, 3, 1, 0, 3, 369, {0: 372}, 19506, 0, 0, 0, 0, 3, 369),
    Truth("hta/nccl/nccl_data.json.gz", 40573, 2700, 70, 960, 114, 162532.34, {0: 157500.078}, 660551.006, 0, 0, 0, 0, 15, 46762.159),
    Truth("hta/trace_diff/control.json.gz", 109123, 8568, 170, 228, 654, 446813, {3: 388587}, 464594, 0, 0, 0, 0, 42, 130655),
    Truth("hta/trace_diff/test.json.gz", 105167, 9876, 131, 4856, 900, 801858, {1: 717943}, 745239, 546, 56071, 4464, 265747, 43, 159259),
    Truth("hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 30, 0, 0, 0, 0, 0, {}, 0, 0, 0, 0, 0, 0, 0),
    Truth("hta/sampled/sampled_rank-0.json.gz", 4855, 1154, 194, 40, 10, 606519, {0: 547656}, 1222847, 0, 0, 0, 0, 10, 396199),
    Truth("hpctraining/merged_nccl_only.json.gz", 176, 84, 1, 0, 0, 164892.54, {2: 64471.378, 3: 46984.875, 4: 49845.198, 5: 3591.089}, 132099.857, 84, 164892.54, 0, 0, 84, 164892.54),
]  # fmt: skip


IN_DOUBLES = 0.065
"""Microseconds by which the known busy times may differ: they were added up in doubles, ours in whole nanoseconds.

At the stamps of these files (2e12 us and more) doubles lie 0.0005 us and more apart, and a union adds up thousands of them. The two tests
after the next show that nothing else is in the difference: the same events added up in doubles give the known figure to
the last digit, and added up as decimal fractions give ours.
"""


@pytest.mark.parametrize("truth", TRUTHS, ids=[truth.path.split("/")[-1][:32] for truth in TRUTHS])
def test_kineto_file_gives_its_known_figures(truth: Truth) -> None:
    trace = load_trace(shared(f"real/{truth.path}"))
    table, kernels = trace.kernels, trace.only_kernels()
    kinds = table["kind"].astype(str)
    assert trace.counts.events == truth.events
    assert trace.counts.dropped == trace.counts.excluded == 0
    assert (len(kernels), kernels["name"].nunique()) == (truth.kernels, truth.names)
    assert ((kinds == "memcpy").sum(), (kinds == "memset").sum()) == (truth.memcpy, truth.memset)
    assert kernels["dur_ns"].sum() == round(1000 * truth.kernel_us)
    assert extent(table["start_ns"], table["dur_ns"]) == pytest.approx(1000 * truth.span_us, abs=1.01)
    summary = summarize(trace)
    held = summary.coverage
    assert (held.unlinked, held.graph) == (truth.unlinked, truth.graph)
    assert held.unlinked_us == truth.unlinked_us
    assert held.graph_us == truth.graph_us
    busy = {device.device: device.busy_us for device in summary.devices}
    assert busy == pytest.approx(truth.busy_us, abs=IN_DOUBLES)
    if truth.kernels:
        top = summary.kernels.groupby("name")[["count", "total_us"]].sum().sort_values("total_us").iloc[-1]
        assert (top["count"], top["total_us"]) == (truth.top_count, pytest.approx(truth.top_us))
        assert summary.kernels["total_us"].sum() == pytest.approx(truth.kernel_us)
        assert summary.kernels["share"].sum() == pytest.approx(1)


@pytest.mark.parametrize("truth", [truth for truth in TRUTHS if truth.events < 60_000 and truth.busy_us], ids=lambda truth: truth.path.split("/")[-1][:32])  # fmt: skip
def test_known_busy_times_come_out_when_added_up_in_doubles(truth: Truth) -> None:
    document = json.loads(gzip.decompress(shared(f"real/{truth.path}").read_bytes()))
    per_device = defaultdict(list)
    for entry in document if isinstance(document, list) else document["traceEvents"]:
        sort = str(entry.get("cat")).lower()
        if entry.get("ph") == "X" and sort in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"):
            per_device[entry["args"]["device"]].append((entry["ts"], entry["ts"] + entry["dur"]))
    found = {}
    for device, intervals in per_device.items():
        total, begin, reach = 0.0, None, None
        for start, end in sorted(intervals):
            if reach is None or start > reach:
                total += reach - begin if reach is not None else 0.0
                begin, reach = start, end
            else:
                reach = max(reach, end)
        found[device] = round(total + reach - begin, 3)
    assert found == truth.busy_us


@pytest.mark.parametrize(
    "path",
    ["tracelens/mi210/gpu_only_trace.json.gz", "tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", "hta/nccl/nccl_data.json.gz"],
)  # fmt: skip
def test_busy_time_is_exact_in_decimal_arithmetic(path: str) -> None:
    file = shared(f"real/{path}")
    document = json.loads(gzip.decompress(file.read_bytes()), parse_float=Decimal)
    per_device = defaultdict(list)
    for entry in document["traceEvents"]:
        if entry.get("ph") == "X" and entry.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            start = Decimal(entry["ts"])
            per_device[entry["args"]["device"]].append((start, start + Decimal(entry["dur"])))
    exact = {device: _union(intervals) for device, intervals in per_device.items()}
    assert {d.device: Decimal(str(d.busy_us)) for d in summarize(load_trace(file)).devices} == exact


def _union(intervals: list[tuple[Decimal, Decimal]]) -> Decimal:
    """Union length by a plain sweep."""
    total, reach = Decimal(0), None
    for start, end in sorted(intervals):
        if reach is None or start > reach:
            total, reach = total + end - start, end
        elif end > reach:
            total, reach = total + end - reach, end
    return total.normalize() + 0


@pytest.mark.parametrize(
    ("path", "kernels", "names", "kernel_us", "device", "busy_us", "top", "count", "total"),
    [
        ("flydsl/flash_attn_func/discover_kernel_trace.csv", 45, 19, 1995.814, 2, 1995.681, "flash_attn_func_kernel_0", 9, 839.765),
        ("rocprofiler-sdk-docs/kernel_trace.csv", 9, 4, 96.16, 4, 96.16, "void addition_kernel<float>", 3, 34.04),
        ("tracelens/rocprof/908_results.json.gz", 43915, 44, 4441741.378, 2, 4233112.334, "ncclDevKernel_Generic_1", 1310, 4158756.678),
    ],
)  # fmt: skip
def test_rocprof_file_gives_its_known_figures(
    path: str, kernels: int, names: int, kernel_us: float, device: int, busy_us: float, top: str, count: int, total: float
) -> None:  # fmt: skip
    trace = load_trace(shared(f"real/{path}"))
    summary = summarize(trace)
    assert len(trace.only_kernels()) == kernels
    assert trace.only_kernels()["name"].nunique() == names
    assert summary.coverage.kernel_us == kernel_us
    assert [(d.device, d.busy_us) for d in summary.devices] == [(device, busy_us)]
    first = summary.kernels.iloc[0]
    assert first["name"].startswith(top)
    assert (first["count"], first["total_us"]) == (count, total)
    assert "no_launch_events" in {warning.code for warning in trace.warnings}


def test_agent_names_come_from_the_file_beside_and_queues_tell_streams_apart() -> None:
    trace = load_trace(shared("real/flydsl/flash_attn_func/discover_kernel_trace.csv"))
    assert trace.devices == {2: "AMD Instinct MI350X"}
    streams = summarize(load_trace(shared("real/rocprofiler-sdk-docs/kernel_trace.csv"))).streams
    assert streams["stream"].tolist() == [1, 2, 3, 4]


def test_rocm_device_number_gets_a_name_only_when_it_is_certain() -> None:
    trace = load_trace(shared("real/tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"))
    assert trace.devices == {2: "AMD Instinct MI300X VF"}  # the file lists it as id 0
    assert trace.meta["backend"] == "rocm"
    assert set(trace.kernels["stream"]) == {0}


def test_h200_decode_replays_are_kept_and_named() -> None:
    trace = load_trace(DATA / "trace_off.json.gz")
    kernels = trace.only_kernels()
    assert kernels.groupby("correlation").size().tolist() == [330] * 5
    assert kernels["graph"].all()
    assert set(kernels["launch"].astype(str)) == {"cudaGraphLaunch"}
    per_replay = kernels.groupby("correlation")["dur_ns"].sum().median() / 1000
    assert per_replay == pytest.approx(2445, abs=1)
    assert union_length(kernels["start_ns"], kernels["dur_ns"]) <= kernels["dur_ns"].sum()


def test_a_database_without_kernels_says_so_with_the_profilers_own_words() -> None:
    trace = load_trace(shared("real/nsys/profile.sqlite"))
    assert len(trace.kernels) == 0
    assert [warning.code for warning in trace.warnings] == ["no_gpu_events", "profiler_diagnostics"]
    assert "driver version" in trace.warnings[1].text


@pytest.mark.parametrize(
    "path",
    ["hta/memory_timeline/memory_timeline.raw.gz", "rocprofiler-sdk-docs/counter_collection.csv", "rocprofiler-sdk-docs/hip_trace.csv",
     "rocprofiler-sdk-docs/memory_allocation_trace.csv", "rocprofiler-sdk-docs/scratch_memory_trace.csv", "rocprof-compute/dispatch_0_MI200/sysinfo.csv",
     "snapshots/sketchkv2/my_snapshot.pickle"],
)  # fmt: skip
def test_real_files_that_are_no_traces_are_refused_in_one_line(path: str) -> None:
    from rcatools.errors import InputError

    with pytest.raises(InputError, match="give") as caught:
        load_trace(shared(f"real/{path}"))
    assert "\n" not in str(caught.value)
