"""One run in its process: outcomes, clean parents, warm-up by trend, cold readings, dose of every arm on the CPU."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rcatools.errors import RcaError, UnavailableError
from rcatools.experiment import timing, worker
from rcatools.experiment.arms import load_plan
from rcatools.experiment.runner import warm_parent
from rcatools.workload.config import CPU


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (MemoryError("hipMalloc of 5 bytes returned 2"), "out_of_memory"),
        (OutOfMemoryError("tried to allocate"), "out_of_memory"),
        (RuntimeError("CUDA error: out of memory"), "out_of_memory"),
        (RuntimeError("CUDA graphs must be captured on a non-default stream."), "capture_failed"),
        (RuntimeError("Offset increment outside graph capture encountered unexpectedly"), "capture_failed"),
        (RuntimeError("HIP error: an illegal memory access was encountered"), "device_lost"),
        (RuntimeError("CUDA error: unspecified launch failure"), "device_lost"),
        (ValueError(""), "error"),
    ],
)
def test_errors_of_a_measurement_are_sorted(error: Exception, outcome: str) -> None:
    found, reason = worker.classify(error)
    assert found == outcome
    assert reason
    assert "\n" not in reason


def test_numbers_outside_their_tolerance_are_a_mismatch() -> None:
    assert worker.judge_numbers({}) == ("ok", None)
    assert worker.judge_numbers({"output_rel_error": 0.05, "output_tolerance": 0.05})[0] == "ok"
    outcome, reason = worker.judge_numbers({"output_rel_error": 0.06, "output_tolerance": 0.05})
    assert outcome == "mismatch"
    assert reason is not None
    assert "0.06" in reason


def torch_with(*, initialized: bool, bad_fork: bool = False) -> Any:
    cuda = types.SimpleNamespace(is_initialized=lambda: initialized, _is_in_bad_fork=lambda: bad_fork)
    return types.SimpleNamespace(cuda=cuda)


def test_a_worker_proves_that_it_inherited_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker.prove_clean(torch_with(initialized=False), "cuda")
    for dirty in (torch_with(initialized=True), torch_with(initialized=False, bad_fork=True)):
        with pytest.raises(RcaError, match="spawn"):
            worker.prove_clean(dirty, "cuda")
    monkeypatch.setattr("rcatools.experiment.runner.import_torch", lambda: torch_with(initialized=True))
    with pytest.raises(UnavailableError, match="spawn"):
        warm_parent("fork")


def test_warm_up_ends_on_a_flat_series_and_not_on_a_falling_one() -> None:
    assert timing.flat([100, 90, 80, 80.1, 80.0])
    assert not timing.flat([80, 80, 80])
    assert not timing.flat([100, 80.6, 80.4, 80.2, 80.0])  # within 0.4 % at each look, and still falling
    assert not timing.flat([80, 81, 80, 81])
    rng = np.random.default_rng(0)
    hits = [timing.flat(list(100 + rng.normal(0, 0.05, 5))) for _ in range(200)]
    assert np.mean(hits) > 0.95


def test_warm_up_counts_calls_and_asks_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = timing.Stopwatch(None, gpu=False)
    fall = iter([*np.linspace(200, 101, 40), *[100.0] * 1000])
    monkeypatch.setattr(watch, "samples", lambda f, n, r: [next(fall) for _ in range(n)])
    assert watch.warm_up(lambda: None, repeats=2) == (7 * 10 * 2, True)
    opinions: list[bool] = []

    def nobody(flag: bool) -> bool:
        opinions.append(flag)
        return False

    assert watch.warm_up(lambda: None, repeats=1, agree=nobody) == (80, False)
    assert opinions == [False] * 3 + [True] * 5


def test_cold_readings_flush_before_each_call() -> None:
    calls: list[str] = []
    watch = timing.Stopwatch(None, gpu=False)
    values = watch.cold_samples(lambda: calls.append("work"), lambda: calls.append("flush"), 4)
    assert calls == ["flush", "work"] * 4
    assert len(values) == 4
    assert min(values) > 0


def test_waiting_for_others_is_no_time_of_a_step_on_the_cpu() -> None:
    import select

    def wait() -> None:
        select.select([], [], [], 0.02)

    assert min(timing.Stopwatch(None, gpu=False, wall=True).samples(wait, 2, 1)) > 15_000
    watch = timing.Stopwatch(None, gpu=False)
    assert max(watch.samples(wait, 2, 1)) < 10_000
    assert (watch.clock_name, timing.Stopwatch(None, gpu=True).clock_name) == ("thread_cpu", "device_events")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch as a worker has it on the CPU, with a short warm-up."""
    module = pytest.importorskip("torch")
    threads = module.get_num_threads()
    module.set_num_threads(1)
    monkeypatch.setattr(timing, "WARMUP_WINDOW", 1)
    yield module
    module.set_num_threads(threads)


SHORT = {
    "layers": 2,
    "expert_out": 64,
    "samples": 3,
    "kv_limit": 2**21,
    "context": 128,
    "hidden": 128,
    "expert_every": 2,
}


@pytest.mark.torch
def test_every_arm_of_the_investigation_that_runs_on_a_cpu_does(torch: Any) -> None:
    from rcatools.experiment import decode

    config = CPU.with_parameters(SHORT)
    outputs = {}
    for arm in load_plan("capture-stream").choose(None, "cpu"):
        result = decode.timed_run(torch, "cpu", config, arm, None)
        facts = result["facts"]
        assert len(result["samples"]["step_us"]) == 3
        assert all(
            len(times) == decode.KERNEL_SAMPLES and min(times) > 0 for times in result["kernels"].values()
        )
        assert facts["output_rel_error"] < facts["output_tolerance"]
        outputs[arm.name] = facts["output_sha256"]
    assert set(outputs) >= {"off", "side", "plant_additive", "plant_multiplicative"}
    assert outputs["off"] == outputs["off_again"] == outputs["side"] == outputs["plant_additive"]


@pytest.mark.torch
def test_cold_mode_names_its_flush_and_times_every_kernel(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rcatools.experiment import decode

    monkeypatch.setattr(decode, "flush_bytes", lambda _: 2**16)
    off = load_plan("capture-stream").arms[0]
    monkeypatch.setattr(decode, "KERNEL_SAMPLES", 2)
    config = CPU.with_parameters(SHORT | {"cache": "cold"})
    result = decode.timed_run(torch, "cpu", config, off, None)
    assert result["facts"]["flush_bytes"] == 2**16
    hot = decode.timed_run(torch, "cpu", CPU.with_parameters(SHORT), off, None)
    assert hot["facts"]["flush_bytes"] is None
    assert set(result["kernels"]) == set(hot["kernels"])


@pytest.mark.torch
def test_inspection_leaves_a_readable_trace_without_the_machine(torch: Any, tmp_path: Path) -> None:
    import gzip
    import json
    import socket

    from rcatools.experiment import decode

    off = load_plan("capture-stream").arms[0]
    result = decode.inspection_run(torch, "cpu", CPU.with_parameters(SHORT), off, tmp_path)
    text = gzip.decompress((tmp_path / "traces" / "off.json.gz").read_bytes()).decode()
    names = {event.get("name") for event in json.loads(text)["traceEvents"]}
    assert "aten::linear" in names
    assert socket.gethostname() not in text
    assert result["facts"]["output_rel_error"] < 1e-4
