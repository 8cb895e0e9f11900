"""The log lines of vLLM: real ones of a CPU run, and the texts of 0.25 to 0.33 for a GPU."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rcatools.errors import UnsafeInputError
from rcatools.recording.capacity import confounds, estimates
from rcatools.serving import logs
from rcatools.serving.logs import GIB, parse_log, read_log

REAL = Path(__file__).parent / "data" / "serving" / "latency_0.32.log"
START = "(EngineCore_DP0 pid=10) INFO 09-16 12:00:00 [core.py:117] Initializing a V1 LLM engine (v0.26.0) with config: x"


def worker(rank: int, text: str) -> str:
    return f"(Worker_TP{rank} pid={20 + rank}) INFO 09-16 12:00:01 [gpu_worker.py:1] {text}"


GPU = [
    "INFO 09-16 12:00:00 [__init__.py:291] Automatically detected platform rocm.",
    START,
    worker(0, "Profiling CUDA graph memory: PIECEWISE=51 (largest=512), FULL=35 (largest=256)"),
    worker(0, "Estimated CUDA graph memory: 1.50 GiB total"),
    worker(1, "Estimated CUDA graph memory: 1.70 GiB total"),
    worker(0, "Available KV cache memory: 100.25 GiB"),
    worker(1, "Available KV cache memory: 100.05 GiB"),
    worker(
        0,
        "CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization=0.9000 "
        "is equivalent to --gpu-memory-utilization=0.8948 without CUDA graph memory profiling. To maintain",
    ),
    "(EngineCore_DP0 pid=10) INFO 09-16 12:00:02 [kv_cache_utils.py:2177] GPU KV cache size: 1,234,560 tokens",
    worker(0, "Graph capturing finished in 12 secs, took 1.25 GiB"),
    worker(1, "Graph capturing finished in 13 secs, took 1.35 GiB"),
    worker(
        0, "CUDA graph pool memory: 1.25 GiB (actual), 1.5 GiB (estimated), difference: 0.25 GiB (20.0%)."
    ),
]


def test_a_gpu_log_worker_by_worker() -> None:
    found = parse_log(GPU)
    assert (found.version, found.platform, found.starts) == ("0.26.0", "rocm", 1)
    assert found.profiled == {"PIECEWISE": (51, 512), "FULL": (35, 256)}
    assert found.estimate_bytes == {"Worker_TP0 20": round(1.5 * GIB), "Worker_TP1 21": round(1.7 * GIB)}
    assert found.estimate_applied is True
    assert (found.utilization, found.equivalent_utilization) == (0.9, 0.8948)
    facts = found.facts()
    assert facts["kv_bytes"] == round(100.05 * GIB)
    assert facts["kv_tokens"] == 1_234_560
    assert facts["estimate_bytes"] == round(1.6 * GIB)
    assert facts["graph_bytes"] == round(1.3 * GIB)
    assert facts["capture_s"] == 13
    assert found.notes == ("workers have different KV cache memory; the smallest decides",)


def test_colours_carriage_returns_and_json_lines_are_read() -> None:
    coloured = "\x1b[0;36m(Worker_TP0 pid=20)\x1b[0;0m INFO x Available KV cache memory: 10.00 GiB"
    bar = "Capturing:  50%|###|\rCapturing: 100%|####|\r" + worker(
        0, "Graph capturing finished in 2 secs, took -0.01 GiB"
    )
    as_json = '{"levelname": "INFO", "message": "Estimated CUDA graph memory: 0.50 GiB total"}'
    found = parse_log([coloured, bar, as_json])
    assert found.facts()["kv_bytes"] == 10 * GIB
    assert found.facts()["graph_bytes"] == round(-0.01 * GIB)
    assert found.facts()["estimate_bytes"] == GIB // 2


def test_a_startup_plan_means_that_profiling_was_skipped() -> None:
    line = (
        "Applying persisted startup plan (fingerprint abc): kv_cache_memory_bytes=1073741824 (1.00 GiB), recorded "
        "free-memory baseline 10.00 GiB, current 10.00 GiB. Memory profiling will be skipped."
    )
    found = parse_log([START, worker(0, line)])
    assert found.profiling_skipped
    assert "profiling was skipped" in found.notes[0]


def test_estimate_switched_off() -> None:
    text = (
        "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). Without it, CUDA graph "
        "memory is not accounted for. Consider re-enabling it and increasing --gpu-memory-utilization from 0.9000 to 0.9100."
    )
    found = parse_log([worker(0, text)])
    assert found.estimate_applied is False
    assert found.utilization == 0.9


def test_the_last_start_of_an_appended_log_counts() -> None:
    later = [START, worker(0, "Available KV cache memory: 90.00 GiB")]
    found = parse_log(GPU + later)
    assert found.facts()["kv_bytes"] == 90 * GIB
    assert found.estimate_bytes == {}
    assert "2 server starts" in found.notes[0]


def test_data_parallel_engines_start_once_each_and_belong_together() -> None:
    second = START.replace("DP0 pid=10", "DP1 pid=11")
    found = parse_log([START, second, worker(0, "Available KV cache memory: 9.00 GiB")])
    assert found.facts()["kv_bytes"] == 9 * GIB


def test_the_root_cause_is_named_not_what_follows_from_it() -> None:
    found = parse_log(
        [
            START,
            "(MainProcess pid=1) WARNING 12-01 15:17:52 [base.py:380] ValueError: Tokenizer not available",
            "(EngineCore_DP0 pid=10) ERROR 12-01 [core.py:9] ValueError: No available memory for the cache blocks.",
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        ]
    )
    assert found.error == "ValueError: No available memory for the cache blocks."


@pytest.mark.parametrize("prefix", ["", "(EngineCore_DP0 pid=10) ERROR 12-01 15:17:52 [core.py:9] "])
def test_an_error_that_only_counts_is_completed_by_the_next_line(prefix: str) -> None:
    lines = [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        "  Value error, max_model_len (4096) is greater than 2048. [type=value_error, input_value=ArgsKwargs(())]",
        "    For further information visit https://errors.pydantic.dev",
    ]
    found = parse_log([START, *(prefix + line for line in lines)])
    assert found.error == (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig: "
        "Value error, max_model_len (4096) is greater than 2048."
    )


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.95 GiB. GPU 0 has a total capacity of 127.00 GiB",
        "RuntimeError: CUDA out of memory. Tried to allocate 7.31 GiB (GPU 0; 11.92 GiB total capacity)",
    ],
)
def test_out_of_memory_lines_of_old_and_new_torch(line: str) -> None:
    assert parse_log([START, f"(Worker_TP0 pid=20) ERROR {line}"]).oom.endswith(line)


def test_blocks_where_a_log_tells_them() -> None:
    assert parse_log(["Overriding num_gpu_blocks=9000 with num_gpu_blocks_override=512"]).kv_blocks == 512
    assert parse_log(["# GPU blocks: 27,000, # CPU blocks: 0"]).kv_blocks == 27_000


def test_a_real_cpu_log() -> None:
    found = read_log(REAL)
    assert found.version == "0.32.0"
    assert found.eager
    assert found.facts()["kv_tokens"] == 524_288
    assert found.error == ""


def test_large_logs_are_refused_and_bad_bytes_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(b"\xff\xfe Available KV cache memory: 1.00 GiB\n")
    assert read_log(file).facts()["kv_bytes"] == GIB
    monkeypatch.setattr(logs, "MAX_LOG_BYTES", 5)
    with pytest.raises(UnsafeInputError, match="larger than 5"):
        read_log(file)


def runs(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame([{"outcome": "ok", "block": i, **row} for i, row in enumerate(rows)])


def test_estimate_against_actual() -> None:
    table = runs(
        {"arm": "off", "estimate_bytes": 0, "graph_bytes": 100, "memory_exact": True},
        {"arm": "side", "estimate_bytes": 150, "graph_bytes": 100, "memory_exact": True},
        {"arm": "side", "estimate_bytes": 170, "graph_bytes": 120, "memory_exact": True},
        {"arm": "side", "estimate_bytes": 900, "graph_bytes": None, "memory_exact": True},
        {"arm": "plan", "profiling_skipped": True},
        {"arm": "side", "outcome": "hung", "estimate_bytes": 10**9, "graph_bytes": 1},
    )
    off, side, plan = estimates(table)
    assert (side.n, side.difference_bytes, side.ratio) == (2, 110 - 160, 110 / 160)
    assert side.exact
    assert off.ratio is None
    assert off.note == "nothing was set aside for graphs"
    assert "start-up plan" in plan.note


def test_rounded_estimates_are_not_called_different() -> None:
    (row,) = estimates(runs({"arm": "a", "estimate_bytes": GIB, "graph_bytes": GIB + 1000}))
    assert not row.exact
    assert "as far as it tells" in row.note


def test_changed_kv_blocks_and_skipped_profiling_are_confounds() -> None:
    table = runs(
        {"arm": "off", "kv_blocks": 1000, "vllm_version": "0.26.0"},
        {"arm": "same", "kv_blocks": 1000, "vllm_version": "0.26.0"},
        {"arm": "side", "kv_blocks": 980, "vllm_version": "0.26.0"},
        {"arm": "other", "kv_blocks": 1000, "vllm_version": "0.33.0", "profiling_skipped": True},
    )
    found = {(item.arm, item.figure) for item in confounds(table, "off")}
    assert found == {("side", "kv_blocks"), ("other", "vllm_version"), ("other", "profiling_skipped")}
    text = next(item.text for item in confounds(table, "off") if item.arm == "side")
    assert "980 KV blocks, off 1,000 (-2.0 %)" in text


def test_without_blocks_the_tokens_decide_and_without_a_baseline_nothing() -> None:
    table = runs({"arm": "off", "kv_tokens": 100}, {"arm": "side", "kv_tokens": 90})
    assert [item.figure for item in confounds(table, "off")] == ["kv_tokens"]
    assert confounds(table, "absent") == ()
