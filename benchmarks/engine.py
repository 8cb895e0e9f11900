"""What the recorder costs and how well it sees.

    python benchmarks/engine.py [--runs 8] [--device auto] [--json FILE]

Isolated runs per minute with a forked and with a fresh interpreter, taken in turn; agreement of the timer with
triton.testing.do_bench_cudagraph; share of the measured ceiling that the streaming kernels reach; blocks that a
wanted effect needs; the price of one boundary between graph kernels. The last three also come from the embedded
recordings, which are named then.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rcatools.device.backend import import_torch
from rcatools.experiment.arms import load_plan
from rcatools.experiment.design import Run
from rcatools.experiment.pilot import assess
from rcatools.experiment.prepare import describe_workload, probe_device, task
from rcatools.experiment.process import run_worker
from rcatools.experiment.runner import warm_parent
from rcatools.recording.reader import Recording, open_recording
from rcatools.workload.config import preset

RECORDINGS = Path(__file__).resolve().parents[1] / "data" / "recordings"
SMALL = {"layers": 4, "context": 1024, "samples": 5, "kv_limit": 2**26}
STREAMING = ("kv_gather", "qkv_linear", "out_linear")
EFFECTS = (0.01, 0.005, 0.002)
TIMER_SIZES = (2**22, 2**24, 2**26, 2**28, 2**30, 5 * 2**31)  # bytes; about 5 us to 5 ms on an H200
LONG_CONTEXTS = ((2**18, 512), (2**20, 512), (2**20, 2048))  # tokens, tokens a program reads
Row = dict[str, Any]


def isolation_cost(device: dict[str, Any], runs: int) -> list[Row]:
    """Seconds of one small isolated run, forked and spawned in turn."""
    plan = load_plan("capture-stream")
    config = preset(device["backend"]).with_parameters(SMALL)
    manifest = {"device": device, "workload": describe_workload("decode", config, {}, device), "design": {}}
    warm_parent("fork")
    seconds: dict[str, list[float]] = {"fork": [], "spawn": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-1, runs):  # the first pair compiles and is not counted
            for how, times in seconds.items():
                run = Run(f"{number}-{how}", "off", 0, 0, how)
                started = time.perf_counter()
                part = run_worker(task(run, plan.arms[0], manifest, Path(folder)), timeout_s=120)
                if part["outcome"] != "ok":
                    raise SystemExit(f"a {how} run ended as {part['outcome']}: {part['reason']}")
                if number >= 0:
                    times.append(time.perf_counter() - started)
    median = {how: statistics.median(times) for how, times in seconds.items()}
    ratios = [spawn / fork for fork, spawn in zip(seconds["fork"], seconds["spawn"], strict=True)]
    rows = [{"what": f"runs per minute, {how}", "value": 60 / median[how], "unit": "1/min"} for how in median]
    return [
        *rows,
        {"what": "spawn over fork, median of pairs", "value": statistics.median(ratios), "unit": "x"},
    ]


def timer_agreement(torch: Any) -> list[Row]:
    """The recorder's timer against do_bench_cudagraph on copies from 5 us to 5 ms, measured in turn."""
    from triton.testing import do_bench_cudagraph

    from rcatools.experiment.timing import Stopwatch

    torch.cuda.set_stream(torch.cuda.Stream())
    watch, rows = Stopwatch(torch, gpu=True), []
    for _ in range(
        20
    ):  # do_bench_cudagraph makes a stream at each call: put the process past the limit of streams
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    for size in TIMER_SIZES:
        source = torch.randint(-(2**31), 2**31 - 1, (size // 4,), dtype=torch.int32, device="cuda")
        target = torch.empty_like(source)
        launches = max(int(2000 / (2 * size / 4e6 + 1)), 1)  # about 2 ms of work in one graph

        def copy(source: Any = source, target: Any = target) -> None:
            target.copy_(source)

        copy()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        for _ in range(launches):
            copy()
        graph.capture_end()
        found: dict[str, list[float]] = {"runtime stream": [], "a further stream": []}
        further = torch.cuda.Stream()
        for _ in range(5):
            theirs = do_bench_cudagraph(copy) * 1e3  # captures and replays on streams of its own
            for where, ratios in found.items():
                with torch.cuda.stream(
                    further if where == "a further stream" else torch.cuda.current_stream()
                ):
                    ours = statistics.median(watch.samples(graph.replay, 20, 1)) / launches
                torch.cuda.synchronize()
                ratios.append(ours / theirs)
        for where, ratios in found.items():
            rows.append(
                {
                    "what": f"timer over do_bench_cudagraph, copy of {size / 2**20:.0f} MiB, on {where}",
                    "value": statistics.median(ratios),
                    "unit": "x",
                    "range": [min(ratios), max(ratios)],
                    "us": ours,
                }
            )
        del source, target
    return rows


def ceiling_shares(recording: Recording) -> list[Row]:
    """Bytes per second of the streaming kernels in the baseline over the copy ceiling of the same session."""
    manifest = recording.manifest
    ceiling = manifest.ceilings.get("copy_bytes_per_s")
    if not ceiling or recording.kernels.empty:
        return []
    rows = []
    if manifest.ceilings.get("read_bytes_per_s"):
        share = manifest.ceilings["read_bytes_per_s"] / ceiling
        label = "share of the copy ceiling, Triton read of 1 GiB"
        rows.append({"what": label, "value": share, "unit": "x", "source": recording.name})
    declared = {kernel["name"]: kernel for kernel in manifest.workload["kernels"]}
    states = manifest.workload.get("timing_cache", {})
    for name in STREAMING:
        us = recording.kernels[
            (recording.kernels["kernel"] == name) & (recording.kernels["arm"] == manifest.baseline)
        ]["us"]
        if len(us):
            rate = declared[name]["bytes"] / us.median() * 1e6
            size = declared[name]["bytes"] / 2**20
            label = (
                f"share of the copy ceiling, {name} of {size:.0f} MiB ({states.get(name, 'layers in turn')})"
            )
            rows.append({"what": label, "value": rate / ceiling, "unit": "x", "source": recording.name})
    return rows


def long_gather(torch: Any, device: dict[str, Any]) -> list[Row]:
    """The paged gather over contexts so long that its start and end do not count, over a copy of 1 GiB timed in turn."""
    from rcatools.experiment.timing import Stopwatch
    from rcatools.workload.declared import declare
    from rcatools.workload.step import DecodeStep, Variation

    torch.cuda.set_stream(torch.cuda.Stream())
    watch, rows = Stopwatch(torch, gpu=True), []
    source = torch.randint(-(2**31), 2**31 - 1, (2**28,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    for context, split in LONG_CONTEXTS:
        sizes = {"layers": 4, "context": context, "split": split}
        config = preset(device["backend"]).with_parameters(sizes)
        step = DecodeStep(torch, "cuda", config, Variation())
        if not step.uses("kv_gather"):
            return [{"what": "share of the copy ceiling, long gather", "value": "no Triton", "unit": ""}]
        pages = step.least_pages
        step.attach(torch.empty(4 * pages * config.page_bytes // 2, device="cuda", dtype=step.dtype), pages)
        step.fill()
        qkv = step.qkv_linear(0)

        def body(step: Any = step, qkv: Any = qkv) -> None:
            for layer in range(4):
                step.kv_gather(layer, qkv)

        body()
        size = next(kernel.bytes for kernel in declare(config) if kernel.name == "kv_gather")
        shares = []
        for _ in range(5):
            copy_us = statistics.median(watch.samples(lambda: target.copy_(source), 12, 1)[2:])
            us = statistics.median(watch.samples(body, 12, 1)[2:]) / 4
            shares.append(size / us / (2 * source.nbytes / copy_us))
        label = f"share of the copy ceiling, kv_gather of {size / 2**20:.0f} MiB, {split} tokens a program"
        rows.append(
            {
                "what": label,
                "value": statistics.median(shares),
                "unit": "x",
                "range": [min(shares), max(shares)],
            }
        )
        del step, qkv
    return rows


def blocks_and_boundary(recording: Recording) -> list[Row]:
    """Blocks for wanted effects from the A/A arms, and the price of one boundary in the baseline."""
    rows = []
    for effect in EFFECTS:
        found = assess(recording, effect=effect, planned=14)
        label = f"blocks to see {100 * effect:g} % (A/A spread {100 * found.spread:.3f} %)"
        value = f"{found.blocks_needed} to {found.blocks_cautious}"
        rows.append({"what": label, "value": value, "unit": "blocks", "source": recording.name})
    for arm in (recording.manifest.baseline, "side"):
        prices = recording.samples[
            (recording.samples["metric"] == "boundary_us") & (recording.samples["arm"] == arm)
        ]
        if len(prices):
            label = f"one boundary between graph kernels, {arm}"
            rows.append(
                {
                    "what": label,
                    "value": float(prices["value"].median()),
                    "unit": "us",
                    "source": recording.name,
                }
            )
    return rows


def boundary_here(torch: Any) -> list[Row]:
    """The price of one boundary in a fresh process of this machine."""
    from rcatools.experiment.cliff import Condition, measure

    values = measure(torch, Condition(most=0))
    return [{"what": "one boundary between graph kernels, fresh process", "value": values[0], "unit": "us"}]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=8, help="pairs of a forked and a spawned run")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda", "rocm"])
    parser.add_argument("--json", type=Path, help="write the figures there too")
    args = parser.parse_args()
    torch = import_torch()
    device = probe_device(args.device)
    today = datetime.now(UTC).date().isoformat()
    print(f"{device['name']} ({device['backend']}), torch {torch.__version__}, {today}")
    rows = isolation_cost(device, args.runs)
    rows += boundary_here(torch) if device["backend"] != "cpu" else []
    for folder in sorted(RECORDINGS.glob("capture-stream-h200*")):
        recording = open_recording(folder)
        rows += ceiling_shares(recording)
        if (
            recording.manifest.counts.get("blocks_whole", 8) >= 3
            and len(recording.block_values("step_us")) >= 6
        ):
            rows += blocks_and_boundary(recording)
    if device["backend"] == "cpu":
        print("timer agreement: needs a GPU and Triton, not measured here")
    else:
        rows += timer_agreement(torch)
        rows += long_gather(torch, device)
    for row in rows:
        value = row["value"] if isinstance(row["value"], str) else f"{row['value']:.3f}"
        spread = " to ".join(f"{bound:.3f}" for bound in row.get("range", []))
        print(f"{row['what']:<78} {value:>10} {row['unit']:<7} {row.get('source', 'here')} {spread}")
    if args.json:
        args.json.write_text(json.dumps({"device": device, "date": today, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
