"""One run of the decode workload in this process: start-up in the arm's way, then timing."""

from __future__ import annotations

import gzip
import json
import pickle
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rcatools.device import clocks
from rcatools.device.backend import describe
from rcatools.experiment.arms import Arm
from rcatools.experiment.ranks import ALONE, Group
from rcatools.experiment.scenario import Scenario
from rcatools.experiment.timing import Stopwatch
from rcatools.files import write_bytes
from rcatools.workload.config import DecodeConfig
from rcatools.workload.declared import flush_bytes
from rcatools.workload.step import relative_error

KERNEL_SAMPLES = 10
BOUNDARY_KERNELS = 400
TRACED_STEPS = 5
HISTORY_ENTRIES = 400_000
# Relative error against float64 that the number format explains over the layers of a step.
TOLERANCE = {"bfloat16": 0.05, "float16": 0.01, "float32": 1e-4}


def timed_run(
    torch: Any, backend: str, config: DecodeConfig, arm: Arm, uuid: str | None, *, group: Group = ALONE
) -> dict[str, Any]:
    """Time one arm; the numbers of the last timed step are compared with float64 afterwards.

    Returns:
        {"samples": {"step_us": [...]}, "kernels": {name: [us, ...]}, "facts": {...}}; "boundary_us" (GPU only)
        is the price of one kernel boundary; "kernels" are times per launch of each kernel alone.
    """
    begun = time.perf_counter()
    scenario = Scenario(torch, backend, config, arm)
    scenario.start()
    started = time.perf_counter()
    watch = Stopwatch(torch, gpu=scenario.on_gpu, wall=group.size > 1)
    monitor = clocks.DeviceMonitor(backend, uuid)
    warmed, flat = watch.warm_up(scenario.replay, repeats=1, agree=lambda flag: group.all_agree(torch, flag))
    apart = {"start_s": started - begun, "warmup_s": time.perf_counter() - started}
    readings = [monitor.read()]
    timing = time.perf_counter()
    hold_wait(scenario)
    if arm.capture == "eager" and scenario.on_gpu:
        values = eager_samples(torch, scenario, config)
    else:
        values = watch.samples(scenario.replay, config.samples, config.steps_per_sample)
    readings.append(monitor.read())
    facts = clocks.summarize(readings) | apart | {"clock": watch.clock_name, "flush_bytes": None}
    facts |= {"warmup_steps": warmed, "warmup_flat": flat, "load_1m": clocks.host_load()}
    scenario.synchronize()
    samples = {"step_us": values}
    if scenario.on_gpu:
        samples["boundary_us"] = boundary_samples(scenario, watch)
    checking = time.perf_counter()
    facts |= output_facts(scenario)
    isolating = time.perf_counter()
    kernels = kernel_samples(scenario, watch)
    facts |= {"timing_s": checking - timing, "check_s": isolating - checking}
    facts["kernels_s"] = time.perf_counter() - isolating
    return {"samples": samples, "kernels": kernels, "facts": facts | scenario.facts}


def output_facts(scenario: Scenario) -> dict[str, Any]:
    """Hash of the last step's output, its relative error against float64 and what the number format allows."""
    return {
        "output_sha256": scenario.step.output_hash(),
        "output_rel_error": relative_error(scenario.step),
        "output_tolerance": TOLERANCE[scenario.config.dtype],
    }


def boundary_samples(scenario: Scenario, watch: Stopwatch) -> list[float]:
    """Microseconds per kernel of a graph of tiny kernels: what one kernel boundary costs in this process."""

    def body() -> None:
        for _ in range(BOUNDARY_KERNELS):
            scenario.tiny.add_(1)

    replay = isolated_graph(scenario, body)
    watch.samples(replay, 3, 1)
    return [value / BOUNDARY_KERNELS for value in watch.samples(replay, KERNEL_SAMPLES, 1)]


def eager_samples(torch: Any, scenario: Scenario, config: DecodeConfig) -> list[float]:
    """Step times without a graph, in us; the device is kept busy until all launches are queued."""
    cycles = 60_000_000  # about 30 ms at 2 GHz, longer than the host needs to launch one step
    values = []
    for _ in range(config.samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(cycles)
        start.record()
        scenario.step.run()
        end.record()
        ahead = not start.query()
        end.synchronize()
        if ahead:
            values.append(float(start.elapsed_time(end)) * 1e3)
        else:
            scenario.facts["host_bound_samples"] = scenario.facts.get("host_bound_samples", 0) + 1
    return values


def hold_wait(scenario: Scenario) -> None:
    """Start the arm's pending cross-stream wait, if it has one, right before the timed steps."""
    if not scenario.pending_milliseconds:
        return
    cuda = scenario.torch.cuda
    busy, waiting = scenario.new_stream(), scenario.new_stream()
    scenario.used_streams |= {busy.cuda_stream, waiting.cuda_stream}
    with cuda.stream(busy):
        cuda._sleep(scenario.pending_milliseconds * 1_900_000)
        event = cuda.Event()
        event.record()
    waiting.wait_event(event)
    with cuda.stream(waiting):
        scenario.tiny.mul_(1)


def kernel_samples(scenario: Scenario, watch: Stopwatch) -> dict[str, list[float]]:
    """Microseconds per launch of each kernel: over all layers back to back, or each after a cache flush."""
    step, layers = scenario.step, scenario.config.layers
    qkv = step.qkv_linear(0)
    update = step.out_linear(0)
    every = range(layers)
    experts = range(scenario.config.experts)
    cases: dict[str, tuple[Callable[[int], Any], range]] = {
        "rms_norm": (lambda i: step.rms_norm(i, step.hidden_in), every),
        "qkv_linear": (step.qkv_linear, every),
        "cache_write": (lambda i: step.cache_write(i, qkv), every),
        "kv_gather": (lambda i: step.kv_gather(i, qkv), every),
        "out_linear": (step.out_linear, every),
        "add_allreduce": (lambda _: step.add_allreduce(step.hidden_in, update), every),
    }
    if experts:
        cases["expert_gemm"] = (step.expert_gemm, experts)
    if scenario.on_gpu:
        cases["kv_merge"] = (lambda _: step.kv_merge(), every)
    result = {}
    flush = cache_flush(scenario) if scenario.config.cache == "cold" else None
    for name, (launch, indices) in cases.items():

        def body(launch: Callable[[int], Any] = launch, indices: range = indices) -> None:
            for index in indices:
                launch(index)

        if flush is not None:
            launch(0)
            result[name] = watch.cold_samples(partial(launch, 0), flush, KERNEL_SAMPLES)
            continue
        run = isolated_graph(scenario, body) if scenario.on_gpu else body
        watch.samples(run, 3, 1)
        result[name] = [value / len(indices) for value in watch.samples(run, KERNEL_SAMPLES, 1)]
    return result


def cache_flush(scenario: Scenario) -> Callable[[], Any]:
    """A function that writes random-valued memory of at least twice the last-level cache."""
    size = flush_bytes(describe(scenario.backend, scenario.torch).last_level_cache_bytes)
    buffer = scenario.torch.randint(-128, 127, (size,), dtype=scenario.torch.int8, device=scenario.device)
    scenario.facts["flush_bytes"] = size
    return lambda: buffer.add_(1)


def isolated_graph(scenario: Scenario, body: Any) -> Any:
    """A replayable graph of one launch sequence, captured on the runtime stream so that no stream is added."""
    body()
    graph = scenario.capture_on(scenario.runtime_stream, body)
    scenario.kept.append(graph)
    return graph.replay


def inspection_run(
    torch: Any,
    backend: str,
    config: DecodeConfig,
    arm: Arm,
    folder: Path,
    *,
    frames: str = "python",
    write: bool = True,
) -> dict[str, Any]:
    """Go through the start-up once more, untimed, and keep what was seen.

    Writes ``snapshots/<arm>.pickle.gz`` (allocator state and its complete history) and
    ``traces/<arm>.json.gz`` (five steps under the profiler) unless ``write`` is off, and compares the output
    with float64.
    """
    on_gpu = backend != "cpu"
    if on_gpu:
        torch.cuda.memory._record_memory_history(
            enabled="all", context="all", stacks=frames, max_entries=HISTORY_ENTRIES
        )
    scenario = Scenario(torch, backend, config, arm)
    scenario.start()
    if on_gpu:
        snapshot = gzip.compress(pickle.dumps(torch.cuda.memory._snapshot(), protocol=4), 6, mtime=0)
        torch.cuda.memory._record_memory_history(enabled=None)
        if write:
            write_bytes(folder / "snapshots" / f"{arm.name}.pickle.gz", snapshot)
    for _ in range(10):
        scenario.replay()
    scenario.synchronize()
    facts = dict(scenario.facts)
    trace = traced_steps(torch, scenario)
    if write:
        write_bytes(folder / "traces" / f"{arm.name}.json.gz", trace)
    return {"samples": {}, "kernels": {}, "facts": facts | output_facts(scenario)}


def traced_steps(torch: Any, scenario: Scenario) -> bytes:
    """A gzipped profiler trace of five steps, without host names and paths."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if scenario.on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(TRACED_STEPS):
            scenario.replay()
        scenario.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        document = json.loads(file.read_text(encoding="utf-8"))
    for key in ("traceName", "host_name", "hostname"):
        document.pop(key, None)
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 6, mtime=0)
