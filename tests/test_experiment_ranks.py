"""Several processes per run: in step, ended together, and a real sum over ranks in the decode step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from engine_support import drill, ended, make, quiet, same_samples

from rcatools.device.backend import describe
from rcatools.experiment import prepare
from rcatools.experiment.arms import load_plan
from rcatools.experiment.process import run_worker
from rcatools.experiment.ranks import gather
from rcatools.experiment.runner import Options, record
from rcatools.recording.reader import open_recording

TINY = {"layers": 2, "hidden": 64, "context": 64, "split": 32, "expert_tokens": 8, "expert_out": 32}
SHORT = {"head_dim": 16, "samples": 3, "kv_limit": 2**20}


def test_two_ranks_give_one_run_each_and_leave_nothing_behind(tmp_path: Path) -> None:
    make(drill(blocks=2), tmp_path / "one")
    make(drill(blocks=2), tmp_path / "two", ranks=2)
    same_samples(tmp_path / "one", tmp_path / "two")
    assert not (tmp_path / "two" / "ranks").exists()


@pytest.mark.parametrize(
    ("fault", "outcome", "reason"),
    [
        ("crash", "killed", "SIGSEGV"),
        ("error", "error", "the drill failed"),
        ("leave", "killed", "exit code 7"),
    ],
)
def test_a_dead_rank_ends_the_run_with_its_reason_and_the_others_with_it(
    fault: str, outcome: str, reason: str, tmp_path: Path
) -> None:
    arm = ("bad", "probe", {"RCATOOLS_DRILL": fault, "RCATOOLS_DRILL_RANK": "1"})
    make(drill(arm, blocks=1), tmp_path / "r", ranks=3, timeout_s=60.0)
    runs = open_recording(tmp_path / "r").runs.set_index("arm")
    assert runs.loc["bad", "outcome"] == outcome
    assert runs.loc["bad", "reason"].startswith("rank 1: ")
    assert reason in runs.loc["bad", "reason"]
    assert runs.loc[["a", "a2"], "outcome"].eq("ok").all()
    assert runs.loc["bad", "wall_s"] < 60


def test_hanging_ranks_are_all_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    fork = os.fork

    def counted() -> int:
        pid = fork()
        if pid:
            started.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", counted)
    task = {"run": "000-00-a", "block": 0, "order": 0, "isolation": "fork", "workload": "drill"}
    task |= {"folder": str(tmp_path), "ranks": 3, "timeout_s": 0.3}
    part = run_worker(task | {"arm": {"name": "a", "env": {"RCATOOLS_DRILL": "hang"}}}, timeout_s=0.3)
    assert (part["outcome"], part["reason"]) == ("hung", "no answer for 0.3 s, ended")
    assert len(started) == 3
    assert all(ended(pid, 0) for pid in started)


def test_gathering_tells_spread_and_equality_of_the_ranks() -> None:
    def part(us: float, digest: str) -> dict:
        facts = {"output_sha256": digest, "pid": 7}
        return {
            "outcome": "ok",
            "reason": None,
            "samples": {"step_us": [us, us]},
            "facts": facts,
            "wall_s": us,
        }

    facts = gather([part(10.0, "x"), part(12.0, "x")])["facts"]
    assert facts["rank_spread"] == pytest.approx(0.2)
    assert facts["ranks_equal"] is True
    assert gather([part(10.0, "x"), part(12.0, "y")])["facts"]["ranks_equal"] is False
    bad = part(1.0, "x") | {"outcome": "error", "reason": "why"}
    assert gather([part(10.0, "x"), bad])["reason"] == "rank 1: why"


@pytest.mark.torch
def test_decode_on_two_ranks_sums_over_them_and_stays_in_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(prepare, "probe_device", lambda _: describe("cpu", None).as_dict())
    plan = load_plan("capture-stream")
    sums = {}
    for ranks in (1, 2):
        options = Options(
            out=tmp_path / str(ranks),
            device="cpu",
            arms=("off_again",),
            blocks=1,
            ranks=ranks,
            inspect=(),
            parameters=TINY | SHORT,
            spawn_share=0.0,
            timeout_s=60.0,
        )
        record(plan, options, quiet)
        runs = open_recording(options.out).runs
        assert runs["outcome"].eq("ok").all(), runs["reason"].tolist()
        assert runs["output_rel_error"].between(1e-9, 1e-5).all()  # float64 reference with the sum over ranks
        assert runs["output_sha256"].nunique() == 1
        sums[ranks] = runs["output_sha256"].iloc[0]
    assert sums[1] != sums[2]
    assert runs["ranks_equal"].all()
    assert runs["collectives"].eq("gloo").all()
