"""Readers of ``vllm bench`` files: written by the real tool (tests/data/serving) and made by hand for every variant."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rcatools.errors import InputError, UnsafeInputError
from rcatools.serving import results
from rcatools.serving.metrics import Lengths, common_load, loads, run_samples, set_primary
from rcatools.serving.results import parse_results, read_results
from rcatools.serving.sweep import is_sweep, read_sweep

REAL = Path(__file__).parent / "data" / "serving"


def serve(**changes: object) -> dict[str, object]:
    document: dict[str, object] = {
        "date": "20260801-120000",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "m",
        "tokenizer_id": "m",
        "num_prompts": 10,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 8,
        "duration": 5.0,
        "completed": 10,
        "failed": 0,
        "total_input_tokens": 1000,
        "total_output_tokens": 500,
        "request_throughput": 2.0,
        "request_goodput": None,
        "output_throughput": 100.0,
        "total_token_throughput": 300.0,
        "mean_ttft_ms": 40.0,
        "median_ttft_ms": 38.0,
        "std_ttft_ms": 3.0,
        "p99_ttft_ms": 55.0,
        "mean_tpot_ms": 20.0,
        "median_tpot_ms": 19.0,
        "p99.9_tpot_ms": 31.0,
    }
    document.update(changes)
    return {key: value for key, value in document.items() if value is not ...}


def one(document: object) -> results.BenchResult:
    (found,) = parse_results(json.dumps(document), "file.json")
    return found


def test_latency_written_by_vllm() -> None:
    (found,) = read_results(REAL / "latency_0.32.json")
    raw = json.loads((REAL / "latency_0.32.json").read_text())
    assert found.kind == "latency"
    assert list(found.series["latencies"]) == raw["latencies"]
    assert found.values["p50_latency"] == raw["percentiles"]["50"] == sorted(raw["latencies"])[2]
    run = run_samples([found], Lengths(batch=1, output=16))
    assert run.samples["token_us"] == pytest.approx([1e6 * v / 16 for v in raw["latencies"]])
    assert not run.notes


def test_appended_serving_results_written_by_vllm() -> None:
    detailed, rate = read_results(REAL / "serve_0.32_appended.json")
    first, second = ((REAL / "serve_0.32_appended.json").read_text()).split("\n")
    raw = json.loads(first)
    assert (detailed.load, rate.load) == ("c2", "r8")
    assert detailed.values["output_throughput"] == raw["total_output_tokens"] / raw["duration"]
    run = run_samples([detailed, rate])
    assert run.samples["token_us.c2"] == pytest.approx([1e6 * raw["duration"] / raw["total_output_tokens"]])
    assert run.samples["ttft_us.c2"] == pytest.approx([1e6 * sum(raw["ttfts"]) / len(raw["ttfts"])])
    assert run.samples["ttft_p99.9_us.r8"] == pytest.approx([1e3 * json.loads(second)["p99.9_ttft_ms"]])
    assert (run.facts["requests"], run.facts["requests_failed"], run.notes) == (8, 0, [])


def test_throughput_written_by_vllm() -> None:
    (found,) = read_results(REAL / "throughput_0.32.json")
    values = found.values
    assert found.kind == "throughput"
    assert values["tokens_per_second"] == pytest.approx(values["total_num_tokens"] / values["elapsed_time"])
    run = run_samples([found], Lengths(output=4))
    assert run.samples["token_us"] == pytest.approx([1e6 * values["elapsed_time"] / (4 * 4)])


def test_a_sweep_written_by_vllm_varies_only_the_benchmark() -> None:
    (server,) = read_sweep(REAL / "sweep_0.32")
    assert server.name == ""
    assert {name: [run.load for run in runs] for name, runs in server.results.items()} == {
        "max_concurrency=1-num_prompts=2": ["c1", "c1"],
        "max_concurrency=2-num_prompts=4": ["c2", "c2"],
    }
    assert server.failures == server.notes == ()


def test_latency_of_0_26_has_no_model_and_percentiles_may_be_text() -> None:
    found = one(
        {"avg_latency": 2.0, "latencies": [1.0, 3.0], "percentiles": {"10": "1.2", "99.9": 3.0, "x": 1}}
    )
    assert found.values == {"avg_latency": 2.0, "p10_latency": 1.2, "p99.9_latency": 3.0}
    assert "model_id" not in found.setup
    assert found.notes == ("the percentile 'x' is no number",)


def test_latency_without_single_values_counts_its_mean_and_says_so() -> None:
    found = one({"avg_latency": 2.0, "percentiles": {}})
    assert "only their mean" in found.notes[0]
    assert run_samples([found], Lengths(4, 10)).samples["latency_us"] == [2e6]


def test_latency_drops_no_value_silently() -> None:
    found = one({"avg_latency": 2.0, "latencies": [1.0, None, -1, "2.5"], "percentiles": {}})
    assert found.series["latencies"] == (1.0, 2.5)
    assert found.notes == ("2 of 4 latencies are no positive numbers",)


def test_latency_needs_lengths_for_a_time_per_token() -> None:
    with pytest.raises(InputError, match="--batch-size and --output-len"):
        run_samples([one({"avg_latency": 2.0, "latencies": [2.0], "percentiles": {}})])


def test_throughput_counts_prompt_and_output_together() -> None:
    document = {"elapsed_time": 4.0, "num_requests": 8, "total_num_tokens": 800}
    found = one(document | {"requests_per_second": 2.0, "tokens_per_second": 200.0})
    assert found.kind == "throughput"
    run = run_samples([found])
    assert run.samples == {"total_token_us": [5000.0], "request_us": [500000.0]}
    assert "prompt and output tokens together" in run.notes[0]
    assert run_samples([found], Lengths(output=50)).samples["token_us"] == [1e6 / (2 * 50)]
    without_rates = one(document)
    assert without_rates.values["tokens_per_second"] == 200.0


def test_serve_scalars_and_load() -> None:
    found = one(serve())
    assert (found.kind, found.load, found.failed) == ("serve", "c8", 0)
    assert math.isinf(float(found.setup["request_rate"]))
    run = run_samples([found])
    assert run.samples["token_us.c8"] == [10000.0]
    assert run.samples["ttft_us.c8"] == [40000.0]
    assert run.samples["ttft_median_us.c8"] == [38000.0]
    assert run.samples["tpot_p99.9_us.c8"] == [31000.0]
    assert run.facts["output_tokens"] == 500
    assert not found.notes


@pytest.mark.parametrize(
    ("changes", "load"),
    [
        ({"max_concurrency": None}, "all"),
        ({"max_concurrency": None, "request_rate": 4}, "r4"),
        ({"max_concurrency": 16, "request_rate": 2.5}, "c16r2.5"),
        ({"max_concurrency": "32", "request_rate": "inf"}, "c32"),
    ],
)
def test_loads_have_names(changes: dict[str, object], load: str) -> None:
    assert one(serve(**changes)).load == load


def test_metadata_and_detail_of_any_version_is_tolerated() -> None:
    detail = {"ttfts": [0.1], "itls": [[0.01, 0.02]], "generated_texts": ["<script>"], "errors": [""]}
    newer = {
        "latencies": [1.0],
        "queue_times": [0.0],
        "server_ttfts": [0.1],
        "spec_decode_acceptance_rate": 0.5,
    }
    found = one(serve(arm="side", num_prompts="10", **detail, **newer))
    assert found.values["spec_decode_acceptance_rate"] == 0.5
    assert not found.series
    assert "<script>" not in repr(found)


def test_missing_failed_key_is_worked_out_from_the_counts() -> None:
    assert one(serve(failed=..., completed=7)).failed == 3
    assert one(serve(failed=..., num_prompts=...)).failed is None


def test_failed_requests_leave_no_samples() -> None:
    run = run_samples([one(serve(failed=3, completed=7))])
    assert run.samples == {}
    assert run.reason.startswith("3 of 10 requests failed")
    assert run.facts["requests_failed"] == 3


def test_nothing_completed_is_a_reason_not_a_division() -> None:
    document = serve(
        completed=0, failed=0, output_throughput=0.0, request_throughput=0, total_token_throughput=0
    )
    for key in list(document):
        if key.endswith("_ms"):
            document[key] = 0.0
    assert run_samples([one(document)]).reason == "no request was completed"


def test_numbers_that_are_none_are_told() -> None:
    found = parse_results(json.dumps(serve()).replace("40.0", "NaN").replace("20.0", "Infinity"), "f")[0]
    assert "mean_ttft_ms" not in found.values
    assert set(found.notes) == {"mean_ttft_ms is not a finite number", "mean_tpot_ms is not a finite number"}


def test_append_result_files_hold_several_objects() -> None:
    text = json.dumps(serve(max_concurrency=1)) + "\n" + json.dumps(serve(), indent=2) + json.dumps(serve())
    found = parse_results(text, "a.json")
    assert [item.source for item in found] == ["a.json [0]", "a.json [1]", "a.json [2]"]
    run = run_samples(found)
    assert len(run.samples["token_us.c8"]) == 2
    cut = parse_results(text[:-20], "a.json")
    assert len(cut) == 2
    assert "cut off" in cut[-1].notes[0]


def test_pooling_results_have_their_own_keys() -> None:
    found = one(
        {"duration": 2.0, "completed": 4, "total_input_sequences": 8, "input_sequence_throughput": 4.0}
        | {"total_input_tokens": 80, "request_throughput": 2.0, "total_token_throughput": 40.0}
    )
    assert found.kind == "pooling"
    assert run_samples([found]).samples["sequence_us.all"] == [250000.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no result"),
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[1, 2]", "not a JSON object"),
        ('{"a": 1}', "its keys: a"),
        ("{}", "its keys: none"),
        ('{"output_throughput": "x"}', "neither a duration nor a rate"),
        ('{"latencies": [], "percentiles": {}}', "neither latencies nor their mean"),
        ('{"elapsed_time": 0, "total_num_tokens": 5}', "has no rate"),
    ],
)
def test_what_is_no_result_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_results(text, "f.json")
    assert "\n" not in str(caught.value)


def test_large_and_binary_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f.json"
    file.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match="not UTF-8"):
        read_results(file)
    monkeypatch.setattr(results, "MAX_FILE_BYTES", 3)
    with pytest.raises(UnsafeInputError, match="larger than 3"):
        read_results(file)


def test_the_common_load_is_the_smallest_that_all_runs_have() -> None:
    a = run_samples([one(serve(max_concurrency=n)) for n in (32, 1, 8)])
    b = run_samples([one(serve(max_concurrency=n, output_throughput=50.0)) for n in (8, 32)])
    assert loads(a) == ["c32", "c1", "c8"]
    assert common_load([a, b]) == "c8"
    set_primary(b, "c8")
    assert b.samples["token_us"] == [20000.0]
    assert common_load([a, run_samples([one(serve(max_concurrency=2))])]) == ""


def sweep_folder(root: Path, *, serve_names: tuple[str, ...] = ("a=1", "a=2")) -> Path:
    experiment = root / "out" / "exp"
    for name in serve_names:
        for bench in ("max_concurrency=1", "max_concurrency=8"):
            place = experiment / f"SERVE--{name}-BENCH--{bench}"
            place.mkdir(parents=True)
            runs = [serve(run_number=i, max_concurrency=int(bench[-1])) for i in range(3)]
            for i, run in enumerate(runs):
                (place / f"run={i}.json").write_text(json.dumps(run))
            (place / "summary.json").write_text(json.dumps(runs))
            (place / "warmup.json").write_text(json.dumps(serve(run_number=-1)))
    (experiment / "summary.csv").write_text("a\n1\n")
    return root / "out"


def test_a_sweep_is_one_server_per_serve_combination(tmp_path: Path) -> None:
    folder = sweep_folder(tmp_path)
    failure = {"run_number": 3, "error_type": "TimeoutError", "error": "no\nanswer"}
    failure |= {"serve_overrides": {}, "bench_overrides": {}}
    place = folder / "exp" / "SERVE--a=2-BENCH--max_concurrency=8"
    (place / "run=3.failure.json").write_text(json.dumps(failure))
    assert is_sweep(folder)
    first, second = read_sweep(folder)
    assert (first.name, second.name) == ("a=1", "a=2")
    assert {name: len(runs) for name, runs in first.results.items()} == {
        "max_concurrency=1": 3,
        "max_concurrency=8": 3,
    }
    assert [item.notes for item in second.failures] == [("TimeoutError: no answer",)]
    assert sum("warm-up" in note for note in first.notes) == 2


@pytest.mark.parametrize("name", ["SERVE--tp=2", "BENCH--c=1", ""])
def test_sweeps_that_vary_only_one_side_or_nothing(tmp_path: Path, name: str) -> None:
    place = tmp_path / "exp" / name
    place.mkdir(parents=True)
    (place / "run=0.json").write_text(json.dumps(serve()))
    (server,) = read_sweep(tmp_path)
    assert server.name == ("tp=2" if name.startswith("SERVE") else "")


def test_two_experiments_or_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run"):
        read_sweep(tmp_path)
    sweep_folder(tmp_path / "x")
    sweep_folder(tmp_path / "y")
    with pytest.raises(InputError, match="2 experiments"):
        read_sweep(tmp_path)
