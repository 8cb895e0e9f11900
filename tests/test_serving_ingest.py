"""Results and logs made elsewhere become a recording that reports and verdicts read like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rcatools.cli import main
from rcatools.diagnosis import judge, load_investigation
from rcatools.recording import open_recording
from rcatools.report.measured import Facts
from rcatools.report.reading import measure_tables
from rcatools.report.serving_view import memory, speeds, tables

ROOT = Path(__file__).resolve().parents[1]
INVESTIGATION = ROOT / "data" / "investigations" / "vllm-capture-stream"
LOG = """INFO 09-16 [__init__.py:1] Automatically detected platform rocm.
(EngineCore_DP0 pid=10) INFO 09-16 [core.py:117] Initializing a V1 LLM engine (v0.26.0) with config: x
(Worker_TP0 pid=20) INFO 09-16 [gpu_model_runner.py:1] Estimated CUDA graph memory: {estimate} GiB total
(Worker_TP0 pid=20) INFO 09-16 [gpu_worker.py:1] Available KV cache memory: 100.25 GiB
(EngineCore_DP0 pid=10) INFO 09-16 [kv_cache_utils.py:2177] GPU KV cache size: {tokens} tokens
(Worker_TP0 pid=20) INFO 09-16 [gpu_model_runner.py:1] Graph capturing finished in 12 secs, took 1.25 GiB
"""
NOISE = (1.0, 1.002, 0.998, 1.001, 0.999, 1.0)


def result(concurrency: int, rate: float, **changes: object) -> str:
    document: dict[str, object] = {"model_id": "org/model", "num_prompts": 8, "completed": 8, "failed": 0}
    document |= {
        "max_concurrency": concurrency,
        "request_rate": "inf",
        "duration": 5.0,
        "output_throughput": rate,
    }
    document |= {"mean_ttft_ms": 30.0, "mean_tpot_ms": 1e3 * concurrency / rate, "mean_e2el_ms": 900.0}
    return json.dumps(document | changes)


def server(folder: Path, speed: float, *, tokens: str = "1,000,000", estimate: str = "1.50") -> Path:
    folder.mkdir(parents=True)
    for concurrency in (1, 32):
        (folder / f"c{concurrency}.json").write_text(result(concurrency, speed * concurrency))
    (folder / "c1.pytorch.json").write_text("[]")
    (folder / "server.log").write_text(LOG.format(tokens=tokens, estimate=estimate))
    return folder


@pytest.fixture
def ingested(tmp_path: Path) -> Path:
    """Six servers of each of two arms; side is 20 % slower and has fewer KV tokens."""
    words = []
    for block, factor in enumerate(NOISE):
        for arm, speed, tokens in (
            ("off", 83.4, "1,000,000"),
            ("side", 69.5, "990,000"),
            ("current", 83.4, "1,000,000"),
        ):
            folder = server(
                tmp_path / f"{arm}-{block}", speed * factor * (1 + 0.0005 * (block % 2)), tokens=tokens
            )
            words.append(f"{arm}={folder}")
    out = tmp_path / "recording"
    assert main(["serving", "ingest", *words, "--out", str(out), "--device", "MI355X"]) == 0
    return out


def test_ingested_results_are_an_ordinary_recording(ingested: Path) -> None:
    recording = open_recording(ingested)
    manifest = recording.manifest
    assert (manifest.state, manifest.counts["ok"], manifest.design["blocks"]) == ("complete", 18, 6)
    assert (manifest.device["backend"], manifest.device["name"]) == ("rocm", "MI355X")
    assert manifest.environment["packages"]["vllm"] == "0.26.0"
    assert manifest.workload["parameters"]["primary_load"] == "c1"
    values = recording.block_values("token_us")
    assert values["off"].iloc[0] == pytest.approx(1e6 / 83.4)
    assert (values["side"] / values["off"]).tolist() == pytest.approx([83.4 / 69.5] * 6)
    assert "PyTorch benchmark form" in recording.runs["notes"].iloc[0]


def test_the_verdict_and_the_confound_come_out(ingested: Path) -> None:
    found = judge(load_investigation(INVESTIGATION), [open_recording(ingested)])
    assert found.effect is not None
    assert found.effect.verdict == "slower"
    assert found.effect.ratio == pytest.approx(83.4 / 69.5)
    assert any("side has 990,000 KV tokens, off 1,000,000 (-1.0 %)" in text for text in found.warnings)
    kept = next(item for item in found.fixes if item.arm == "current")
    assert kept.verdict == "equivalent"


def test_tables_for_the_notebooks(ingested: Path) -> None:
    measured = measure_tables([open_recording(ingested)])
    facts = Facts(recording=ingested.name, metric="token_us", baseline="off", margin=0.02)
    table = speeds(measured, facts)
    frame = table.frame().set_index(["Load", "Arm"])
    assert list(frame.index.get_level_values("Load").unique()) == ["c1", "c32"]
    assert frame.loc[("c1", "off"), "Output tokens/s"] == "83.42"  # median of six: 83.4 x 1.00025
    assert frame.loc[("c1", "side"), "Time per token"] == "+20.0 %"
    assert frame.loc[("c32", "side"), "Verdict"] == "slower"
    assert frame.loc[("c1", "current"), "Verdict"] == "equivalent"
    assert frame.loc[("c1", "off"), "Each next token"] == "12.0 ms"
    assert frame.loc[("c1", "side"), "Each next token"] == "14.4 ms (+20.0 % [+20.0 %, +20.0 %])"
    assert frame.loc[("c1", "side"), "KV cache"] == "990,000 tokens (differs: confound)"
    assert frame.loc[("c1", "current"), "KV cache"] == "1,000,000 tokens"
    assert "repeat with a fixed number of KV blocks" in table.note
    rows = memory(measured, facts).frame().set_index("Arm")
    assert (rows.loc["side", "Estimate"], rows.loc["side", "Actual"]) == ("1.500 GiB", "1.250 GiB")
    assert rows.loc["side", "Actual against estimate"] == "-16.7 %"


def test_other_recordings_have_no_serving_tables() -> None:
    recording = open_recording(ROOT / "data" / "recordings" / "capture-stream-h200")
    measured = measure_tables([recording])
    assert (
        tables(measured, Facts(recording=recording.name, metric="step_us", baseline="off", margin=0.01)) == []
    )


def test_a_report_is_made_of_ingested_results(ingested: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    assert main(["report", "vllm-capture-stream", "--recording", str(ingested), "--out", str(out)]) == 0
    assert json.loads((out / "verdict.json").read_text())["effect"]["verdict"] == "slower"
    assert "KV tokens" in (out / "findings.md").read_text()


def test_servers_that_gave_nothing_are_runs_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = server(tmp_path / "good", 80.0)
    dead = tmp_path / "dead"
    dead.mkdir()
    (dead / "server.log").write_text(
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.00 GiB.\n"
    )
    refused = tmp_path / "refused.json"
    refused.write_text(result(1, 70.0, failed=2, completed=6))
    out = tmp_path / "rec"
    words = [f"off={good}", f"side={dead}", f"side={refused}"]
    assert main(["serving", "ingest", *words, "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [item["outcome"] for item in printed["failures"]] == ["out_of_memory", "error"]
    assert "2 of 8 requests failed" in printed["failures"][1]["reason"]
    assert {key: printed["counts"][key] for key in ("planned", "ok", "failed")} == {
        "planned": 3,
        "ok": 1,
        "failed": 2,
    }


def test_one_server_is_one_run_however_often_it_was_measured(tmp_path: Path) -> None:
    appended = tmp_path / "side.json"
    appended.write_text("\n".join(result(1, rate) for rate in (70.0, 71.0, 69.0)))
    single = tmp_path / "off.json"
    single.write_text(result(1, 83.0))
    (tmp_path / "off.log").write_text(LOG.format(tokens="5", estimate="1.00"))
    out = tmp_path / "rec"
    assert main(["serving", "ingest", f"side={appended}", f"off={single}", "--out", str(out)]) == 0
    recording = open_recording(out)
    assert recording.samples.query("metric == 'token_us'").groupby("arm").size().to_dict() == {
        "off": 1,
        "side": 3,
    }
    assert len(recording.runs) == 2
    found = judge(load_investigation(INVESTIGATION), [recording])
    assert found.effect is not None
    assert found.effect.verdict == "undecided"  # one process an arm decides nothing


def test_a_sweep_s_repetitions_are_samples_of_one_server(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    for name in ("", "b"):
        for bench in ("input_len=8", "input_len=64"):
            place = sweep / f"SERVE--mode{name}-BENCH--{bench}"
            place.mkdir(parents=True)
            for i in range(3):
                (place / f"run={i}.json").write_text(result(1, 50.0))
    out = tmp_path / "rec"
    assert main(["serving", "ingest", str(sweep), "--baseline", "mode", "--out", str(out)]) == 0
    recording = open_recording(out)
    assert recording.runs["arm"].tolist() == ["mode", "modeb"]
    assert recording.runs["block"].tolist() == [0, 0]
    assert set(recording.samples["metric"]) >= {"token_us.c1.input_len_8", "token_us.c1.input_len_64"}
    assert recording.samples.query("metric == 'token_us.c1.input_len_8' and arm == 'mode'")[
        "sample"
    ].tolist() == [0, 1, 2]


def test_latency_files_need_their_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "off.json"
    file.write_text(json.dumps({"avg_latency": 2.0, "latencies": [2.0, 2.2], "percentiles": {}}))
    out = tmp_path / "rec"
    assert main(["serving", "ingest", f"off={file}", "--out", str(out)]) == 2
    assert "--batch-size and --output-len" in capsys.readouterr().err
    assert (
        main(
            ["serving", "ingest", f"off={file}", "--out", str(out), "--batch-size", "2", "--output-len", "10"]
        )
        == 0
    )
    assert open_recording(out).block_values("token_us")["off"].tolist() == pytest.approx([105_000.0])


def test_mixed_loads_compare_at_the_smallest_they_share(tmp_path: Path) -> None:
    for arm, loads in (("off", (1, 8, 32)), ("side", (8, 32))):
        (tmp_path / f"{arm}.json").write_text("\n".join(result(n, 10.0 * n) for n in loads))
    words = [f"{arm}={tmp_path / f'{arm}.json'}" for arm in ("off", "side")]
    assert main(["serving", "ingest", *words, "--out", str(tmp_path / "rec")]) == 0
    values = open_recording(tmp_path / "rec").block_values("token_us")
    assert values.loc[0].tolist() == pytest.approx([12_500.0, 12_500.0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.json"], "give ARM=PATH"),
        (["off={log}"], "rcatools serving log"),
        (["off=/nowhere/x"], "there is no /nowhere/x"),
        (["o/f={file}"], "letters, digits and underscores"),
        (["off={bad}"], "is no JSON"),
        (["off={empty}"], "neither a result"),
        (["off={file}", "--baseline", "side"], "the baseline 'side' was not given"),
        (["off={file}", "--margin", "2"], "--margin must be between 0 and 1"),
        (["off={file}", "--investigation", "none"], "none"),
    ],
)
def test_wrong_calls_are_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.json").write_text(result(1, 80.0))
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "empty").mkdir()
    (tmp_path / "only.log").write_text(LOG.format(tokens="5", estimate="1.00"))
    names = {
        "log": tmp_path / "only.log",
        "file": tmp_path / "file.json",
        "bad": tmp_path / "bad.json",
        "empty": tmp_path / "empty",
    }
    code = main(
        ["serving", "ingest", *(word.format(**names) for word in words), "--out", str(tmp_path / "rec")]
    )
    said = capsys.readouterr().err
    assert code == 2
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "rec" / "runs.parquet").exists()


def test_paths_alone_name_their_arms(tmp_path: Path) -> None:
    names = ("off-1", "off-2", "side_run1", "side_run=2", "tp4.3")
    for name in names[:4]:
        server(tmp_path / name, 80.0)
    (tmp_path / "tp4.3.json").write_text(result(1, 80.0))
    words = [*(str(tmp_path / name) for name in names[:4]), str(tmp_path / "tp4.3.json")]
    assert main(["serving", "ingest", *words, "--out", str(tmp_path / "rec")]) == 0
    runs = open_recording(tmp_path / "rec").runs
    assert sorted(runs["run"]) == ["000-00-off", "000-01-side", "000-02-tp4", "001-00-off", "001-01-side"]


def test_a_recording_is_never_overwritten(
    ingested: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.json").write_text(result(1, 80.0))
    assert main(["serving", "ingest", f"off={tmp_path / 'file.json'}", "--out", str(ingested)]) == 2
    assert "already holds a recording" in capsys.readouterr().err


def test_log_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.log"
    file.write_text(LOG.format(tokens="5", estimate="1.50"))
    assert main(["serving", "log", str(file), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["logs"]
    memory = found["estimate_against_actual"]
    assert memory["difference_bytes"] == memory["actual_bytes"] - memory["estimate_bytes"] == -(2**28)
    assert main(["serving", "log", str(file)]) == 0
    assert "estimated 1.500 GiB, actual 1.250 GiB" in capsys.readouterr().out
