"""The runner against a stand-in for the ``vllm`` command that fails in every way; nothing may be left running."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rcatools.cli import main
from rcatools.recording import open_recording
from rcatools.serving import commands, installation, variants
from rcatools.serving.commands import Workload, shown
from rcatools.serving.processes import Running, belonging_to, end_rest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A vLLM environment made of stand-ins: the command, its package metadata, torch and the plugin's entry point."""
    site = tmp_path / "site"
    for name, version in (("vllm", "0.33.0"), ("rcatools_plugin", "1")):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nrcatools = rcatools.serving.plugin:register\n"
    )
    (site / "torch.py").write_text(
        textwrap.dedent(
            """
            class version: hip = cuda = None
            class cuda:
                is_available = staticmethod(lambda: False)
                device_count = staticmethod(lambda: 0)
            """
        )
    )
    command = tmp_path / "bin" / "vllm"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\n" + (ROOT / "tests" / "fake_vllm.py").read_text())
    command.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{ROOT}")
    return command


def record(vllm: Path, out: Path, *words: str) -> int:
    fixed = ["--vllm", str(vllm), "--model", "m", "--out", str(out), "--ready-s", "10", "--timeout-s", "10"]
    return main(["serving", "record", *fixed, *words])


def parts(out: Path) -> pd.DataFrame:
    return pd.read_parquet(out / "runs.parquet").set_index("run")


def left_running(out: Path) -> list[int]:
    """Processes that carry the id of any run, and any that work below the recording's folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            text = (place / "environ").read_bytes()
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX" and f"{variants.MARKERS}={out.resolve()}".encode() in text:
            found.append(int(place.name))
    return found


def test_latency_arms_in_blocks_make_an_ordinary_recording(
    vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_SPEED_SIDE", "1.2")
    out = tmp_path / "rec"
    assert (
        record(vllm, out, "--arms", "off,off_again,side", "--blocks", "3", "--output-len", "10", "--json")
        == 0
    )
    recording = open_recording(out)
    assert recording.manifest.state == "complete"
    values = recording.block_values("token_us")
    assert values["side"].tolist() == pytest.approx([12_000.0] * 3)
    assert (values["side"] / values["off"]).tolist() == pytest.approx([1.2] * 3)
    orders = recording.runs.groupby("block")["arm"].apply(tuple)
    assert {tuple(sorted(arms)) for arms in orders} == {("off", "off_again", "side")}
    printed = json.loads(capsys.readouterr().out)
    assert [arm["runs"] for arm in printed["arms"]] == [3, 3, 3]
    assert printed["arms"][2]["output_tokens_per_s"] == pytest.approx(1e6 / 12_000)
    confounded = {(item["arm"], item["figure"]) for item in printed["confounds"]}
    assert confounded == {("side", "kv_blocks")}
    side = next(row for row in printed["estimates"] if row["arm"] == "side")
    assert (side["estimate_bytes"], side["actual_bytes"], side["exact"]) == (1000, 900, True)
    assert len(list((out / "logs").glob("*.log"))) == 9
    assert json.loads((out / "manifest.json").read_text())["serving"]["confounds"]


def test_serving_at_several_loads(vllm: Path, tmp_path: Path) -> None:
    out = tmp_path / "rec"
    words = ["--bench", "serve", "--concurrency", "4,1", "--prompts", "2", "--arms", "side", "--blocks", "2"]
    assert record(vllm, out, *words) == 0
    recording = open_recording(out)
    metrics = recording.samples.groupby("metric")["value"].median()
    assert metrics["token_us.c1"] == pytest.approx(10_000.0)
    assert metrics["token_us.c4"] == pytest.approx(2_500.0)
    assert metrics["token_us"] == metrics["token_us.c1"]  # the smallest load
    assert metrics["tpot_us.c4"] == pytest.approx(2_500.0)
    assert recording.runs["requests"].tolist() == [10.0] * 4
    assert left_running(out) == []


@pytest.mark.parametrize(
    ("bench", "mode", "outcome", "reason"),
    [
        ("latency", "dies", "error", "ValueError: the model has no weights"),
        ("latency", "oom", "out_of_memory", "Tried to allocate 12.00 GiB"),
        ("latency", "dies_by_signal", "killed", "SIGKILL"),
        ("latency", "no_marker", "mismatch", "no marker was written"),
        ("latency", "two_workers", "mismatch", "no marker of worker rank 1"),
        ("latency", "wrong_arm", "mismatch", "ran the arm 'off'"),
        ("latency", "garbage", "error", "is no JSON"),
        ("latency", "plan", "mismatch", "profiling was skipped"),
        ("serve", "dies", "error", "the server left with exit code 1"),
        ("serve", "oom", "out_of_memory", "HIP out of memory"),
        ("serve", "no_marker", "mismatch", "no marker was written"),
        ("serve", "client_fails", "error", "no such dataset"),
        ("serve", "refused_requests", "error", "1 of 2 requests failed"),
        ("serve", "dies_in_bench", "error", "at concurrency 2"),
    ],
)
def test_a_run_that_fails_is_recorded_and_the_rest_goes_on(
    bench: str,
    mode: str,
    outcome: str,
    reason: str,
    vllm: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_SIDE", mode)
    out = tmp_path / "rec"
    words = ["--bench", bench, "--concurrency", "2", "--prompts", "1", "--arms", "side", "--blocks", "1"]
    assert record(vllm, out, *words) == 0
    table = parts(out).set_index("arm")
    assert table.loc["off", "outcome"] == "ok"
    assert table.loc["side", "outcome"] == outcome
    assert reason in table.loc["side", "reason"]
    assert "\n" not in table.loc["side", "reason"]
    assert set(open_recording(out).samples["arm"]) == {"off"}
    assert list((out / "logs").glob("*-side.log"))
    assert left_running(out) == []


@pytest.mark.parametrize(
    ("bench", "mode"), [("serve", "hangs"), ("latency", "stubborn"), ("serve", "client_hangs")]
)
def test_what_hangs_is_ended_with_all_it_started(
    bench: str, mode: str, vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rcatools.serving import measure, runner

    monkeypatch.setenv("FAKE_SIDE", mode)
    limits = measure.Limits(ready_s=2.0, bench_s=2.0, grace_s=0.5)
    monkeypatch.setattr(runner, "make_run", lambda *a, **k: measure.make_run(*a, **{**k, "limits": limits}))
    out = tmp_path / "rec"
    words = ["--bench", bench, "--concurrency", "1", "--prompts", "1", "--arms", "side", "--blocks", "1"]
    assert record(vllm, out, *words) == 0
    table = parts(out).set_index("arm")
    assert (table.loc["side", "outcome"], table.loc["off", "outcome"]) == ("hung", "ok")
    assert left_running(out) == []


def test_children_outside_the_group_are_found_and_ended(
    vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SIDE", "leaves_a_child")
    out = tmp_path / "rec"
    assert record(vllm, out, "--arms", "side", "--blocks", "1") == 0
    table = parts(out).set_index("arm")
    assert table.loc["side", "killed_after_end"] == 1
    assert table.loc["off", "killed_after_end"] == 0
    assert left_running(out) == []


def test_a_baseline_without_a_result_is_a_failed_recording(
    vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_OFF", "dies")
    assert record(vllm, tmp_path / "rec", "--arms", "side", "--blocks", "1") == 3
    assert "no run of the baseline 'off' succeeded" in capsys.readouterr().err
    assert parts(tmp_path / "rec").set_index("arm").loc["side", "outcome"] == "ok"


def test_resume_makes_what_is_missing_and_retries_what_hung(
    vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rcatools.serving import measure, runner

    out = tmp_path / "rec"
    words = ["--arms", "side", "--blocks", "2"]
    calls: list[str] = []

    def interrupted(*args: Any, **kwargs: Any) -> dict[str, Any]:
        calls.append(args[0].run)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure.make_run(*args, **kwargs)

    monkeypatch.setenv("FAKE_SIDE", "dies_by_signal")
    monkeypatch.setattr(runner, "make_run", interrupted)
    assert record(vllm, out, *words) == 130
    assert json.loads((out / "manifest.json").read_text())["state"] == "stopped"
    assert record(vllm, out, *words) == 2
    assert "add --resume" in capsys.readouterr().err
    monkeypatch.delenv("FAKE_SIDE")
    monkeypatch.setattr(runner, "make_run", measure.make_run)
    assert record(vllm, out, *words, "--resume") == 0
    assert open_recording(out).manifest.counts["ok"] == 4
    assert len(list((out / "attempts").iterdir())) == 1
    assert record(vllm, out, *words, "--resume", "--output-len", "7") == 2
    assert "another workload" in capsys.readouterr().err


def test_ctrl_c_ends_the_server_and_leaves_a_resumable_recording(
    vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_OFF", "hangs")
    monkeypatch.setenv("FAKE_SIDE", "hangs")
    out = tmp_path / "rec"
    command = [sys.executable, "-m", "rcatools", "serving", "record", "--vllm", str(vllm), "--model", "m"]
    command += ["--out", str(out), "--arms", "side", "--blocks", "1", "--bench", "serve"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        while not left_running(out) and process.poll() is None:
            os.sched_yield()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "--resume" in said
    assert left_running(out) == []
    assert json.loads((out / "manifest.json").read_text())["state"] == "stopped"


def test_only_processes_with_the_runs_own_id_are_ended(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(3600)"]
    mine = Running(sleep, {**os.environ, variants.RUN: "id-1"}, tmp_path / "a.log")
    other = Running(sleep, {**os.environ, variants.RUN: "id-10"}, tmp_path / "b.log")
    try:
        while not (belonging_to("id-1") and belonging_to("id-10")):
            os.sched_yield()
        assert belonging_to("id-1") == [mine.process.pid]
        assert end_rest("id-1") == [mine.process.pid]
        assert other.code is None
    finally:
        for running in (mine, other):
            running.end(0.1)
    assert belonging_to("id-10") == []


def test_wrong_calls_are_one_line(vllm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        assert record(vllm, tmp_path / "rec", *words) == 2
        text = capsys.readouterr().err
        assert text.count("\n") == 1
        return text

    assert "whole numbers" in said("--concurrency", "1,x")
    assert "--iterations must be above 0" in said("--iterations", "0")
    assert "side" in said("--arms", "sid")
    assert "record it with 'rcatools record'" in said("capture-stream")
    assert "No closing quotation" in said("--engine-args", "'a")
    assert "no such command" in said("--vllm", "/nowhere/vllm")


def test_a_vllm_without_the_plugin_is_told_before_the_first_run(
    vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = dataclasses.replace(installation.inspect_vllm(str(vllm), {}), plugin=False)
    monkeypatch.setattr(installation, "inspect_vllm", lambda *_: answer)
    assert record(vllm, tmp_path / "rec", "--arms", "side", "--blocks", "1") == 0
    assert "the plugin is not installed" in capsys.readouterr().err
    assert open_recording(tmp_path / "rec").manifest.environment["plugin_installed"] is False


def test_commands_carry_what_was_asked_for(tmp_path: Path) -> None:
    workload = Workload(
        "m", kv_blocks=512, engine_args=("--tensor-parallel-size", "4"), input_len=7, output_len=9
    )
    latency = commands.latency_command("vllm", workload, tmp_path / "o.json")
    assert latency[:3] == ["vllm", "bench", "latency"]
    pairs = dict(pairwise(latency))
    assert (pairs["--num-gpu-blocks-override"], pairs["--tensor-parallel-size"]) == ("512", "4")
    assert (pairs["--input-len"], pairs["--output-len"]) == ("7", "9")
    server = commands.server_command("vllm", workload, 1234)
    assert server[:3] == ["vllm", "serve", "m"]
    assert "--num-gpu-blocks-override" in server
    client = commands.client_command("vllm", workload, 1234, 8, tmp_path / "o.json")
    assert "--num-gpu-blocks-override" not in client
    assert dict(pairwise(client))["--num-prompts"] == str(8 * workload.prompts)


def test_a_saved_plan_is_switched_off_and_the_arm_decides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VLLM_ENABLE_STARTUP_PLAN", "1")
    monkeypatch.setenv(variants.SNAPSHOTS, "/elsewhere")
    env = commands.run_environment(
        "r", {variants.ARM: "side", "A": "arm"}, tmp_path, None, {"A": "user", "B": "user"}
    )
    assert (env["VLLM_ENABLE_STARTUP_PLAN"], env["A"], env["B"], env[variants.RUN]) == (
        "0",
        "arm",
        "user",
        "r",
    )
    assert variants.SNAPSHOTS not in env
    assert variants.ARM not in commands.client_environment(env)
    assert commands.client_environment(env)[variants.RUN] == "r"


def test_secrets_and_private_paths_stay_out_of_the_manifest() -> None:
    words = [
        "--api-key",
        "abc",
        "--hf-token=def",
        "--max-num-batched-tokens",
        "8",
        "/home/me/model",
        "--dir=/home/x/y",
    ]
    assert shown(words) == [
        *(
            "--api-key",
            "(withheld)",
            "--hf-token=(withheld)",
            "--max-num-batched-tokens",
            "8",
            "model",
            "--dir=y",
        )
    ]
    plain: dict[str, Any] = Workload("m", engine_args=("--api-key", "abc")).parameters()
    assert "abc" not in json.dumps(plain)
