"""Real vLLM on the CPU: arms through ``rcatools serving record``, a real server, and ways in which one fails."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rcatools.cli import main
from rcatools.diagnosis import judge, load_investigation
from rcatools.recording import open_recording
from rcatools.serving import variants

pytestmark = pytest.mark.serving
ROOT = Path(__file__).resolve().parents[2]
ENGINE = "--load-format dummy --enforce-eager --max-model-len 256"
INVESTIGATION = ROOT / "data" / "investigations" / "vllm-capture-stream"


def record(vllm: Path, model: Path, out: Path, *words: str, engine: str = ENGINE) -> int:
    fixed = ["--vllm", str(vllm), "--model", str(model), "--out", str(out), f"--engine-args={engine}"]
    return main(["serving", "record", *fixed, "--input-len", "16", "--output-len", "16", *words])


def is_no_difference(verdict: str, p_value: float | None) -> bool:
    """On the CPU both arms are plain vLLM; by chance one of twenty such comparisons calls them different."""
    return verdict in ("equivalent", "undecided") or (p_value is not None and p_value > 0.001)


def left_running(out: Path) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            carries = f"{variants.MARKERS}={out.resolve()}".encode() in (place / "environ").read_bytes()
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if carries and state not in "ZX":
            found.append((place / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.fixture(scope="module")
def latency(vllm: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arms, three blocks of ``vllm bench latency``."""
    out = tmp_path_factory.mktemp("latency") / "recording"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        assert record(vllm, model, out, "--arms", "side", "--blocks", "3", "--iterations", "20") == 0
    return out


def test_two_arms_three_blocks(latency: Path) -> None:
    recording = open_recording(latency)
    assert recording.manifest.state == "complete"
    counts = recording.manifest.counts
    assert (counts["planned"], counts["ok"], counts["failed"]) == (6, 6, 0)
    assert recording.manifest.device["backend"] == "cpu"
    assert recording.block_values("token_us").shape == (3, 2)
    assert recording.samples.groupby("run")["sample"].nunique().min() == 20
    assert set(recording.runs["arm_effect"]) == {
        f"{variants.NOTHING_TO_PATCH} (cpu): graph memory is not profiled here"
    }
    assert recording.runs["patched"].isna().all()
    assert recording.runs["kv_blocks"].nunique() == 1
    assert recording.manifest.extra["serving"]["confounds"] == []
    assert left_running(latency) == []


def test_its_verdict_is_no_difference_or_none_with_a_detection_limit(latency: Path) -> None:
    effect = judge(load_investigation(INVESTIGATION), [open_recording(latency)]).effect
    assert effect is not None
    assert is_no_difference(effect.verdict, effect.p_value)
    assert effect.n == 3
    assert effect.mde is not None
    assert effect.mde > 0


def test_a_report_is_made_of_it(latency: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    assert main(["report", "vllm-capture-stream", "--recording", str(latency), "--out", str(out)]) == 0
    verdict = json.loads((out / "verdict.json").read_text())
    assert is_no_difference(verdict["effect"]["verdict"], verdict["effect"]["p_value"])
    assert json.loads((out / "status.json").read_text())["state"] == "done"
    assert "token" in (out / "findings.md").read_text()


def test_a_real_server_under_bench_serve(vllm: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "recording"
    words = ["--bench", "serve", "--concurrency", "2,1", "--prompts", "4", "--warmup", "1"]
    assert record(vllm, model, out, *words, "--arms", "off", "--blocks", "1", "--kv-blocks", "512") == 0
    recording = open_recording(out)
    metrics = recording.samples.groupby("metric")["value"].median()
    assert {
        f"{name}_us.{load}" for name in ("ttft", "tpot", "itl", "e2el", "token") for load in ("c1", "c2")
    } <= set(metrics.index)
    assert metrics["token_us"] == metrics["token_us.c1"]
    assert metrics["tpot_us.c1"] < metrics["e2el_us.c1"]
    (run,) = recording.runs.to_dict("records")
    assert (run["outcome"], run["kv_blocks"], run["requests"], run["requests_failed"]) == ("ok", 512, 12, 0)
    assert run["output_tokens"] == 12 * 16
    assert left_running(out) == []
    files = sorted((out / "serving").rglob("serve.*.json"))
    assert main(["serving", "ingest", f"off={files[0]}", "--out", str(tmp_path / "again"), "--json"]) == 0


@pytest.mark.parametrize(
    ("words", "engine", "env", "outcome", "reason"),
    [
        ([], f"{ENGINE} --max-model-len 4096", {}, "error", "max_model_len"),
        (["--ready-s", "1"], ENGINE, {}, "hung", "not ready within 1 s"),
        ([], ENGINE, {"VLLM_PLUGINS": ""}, "mismatch", "no marker was written"),
    ],
    ids=["dies", "hangs", "without the plugin"],
)
def test_servers_that_fail_are_recorded_and_gone(
    words: list[str],
    engine: str,
    env: dict[str, str],
    outcome: str,
    reason: str,
    vllm: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    out = tmp_path / "recording"
    assert (
        record(vllm, model, out, "--bench", "serve", "--arms", "off", "--blocks", "1", *words, engine=engine)
        == 3
    )
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["counts"]["failed"] == 1
    import pandas as pd

    (run,) = pd.read_parquet(out / "runs.parquet").to_dict("records")
    assert run["outcome"] == outcome
    assert reason in run["reason"]
    assert left_running(out) == []


INSIDE = """
import sys, types
from contextlib import contextmanager
import vllm.distributed.parallel_state as state
import vllm.v1.worker.gpu_model_runner as v1
from rcatools.serving import layouts
from rcatools.serving.capture import on_stream

found = layouts.recognise_v1(v1)
assert found.captures and not found.hands_context, found
import vllm.v1.worker.gpu.model_runner as v2
import vllm.v1.worker.gpu.cudagraph_utils as utils
found = layouts.recognise_v2(v2, utils)
assert found.captures and found.capture_module == utils.__name__, found
entered = []

class Group:
    @contextmanager
    def graph_capture(self, context):
        entered.append(context.stream)
        yield context

for name in ("get_tp_group", "get_pp_group", "get_dp_group"):
    setattr(state, name, Group)
with on_stream(state.graph_capture, lambda: "the runtime stream")(device="cpu") as context:
    assert context.stream == "the runtime stream"
assert entered == ["the runtime stream"] * 3, entered
print("recognised")
"""


def test_the_plugin_knows_the_installed_modules_and_steers_their_own_code(vllm_environment: Path) -> None:
    done = subprocess.run(
        [str(vllm_environment / "bin" / "python"), "-c", INSIDE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("recognised")
