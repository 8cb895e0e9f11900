"""Whatever ends a worker or a runner: --resume gives the recording an undisturbed run would have given."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from engine_support import drill, ended, in_child, make, read_pid, same_samples

from rcatools.cli.app import main
from rcatools.errors import InputError, RunError
from rcatools.experiment.design import schedule
from rcatools.experiment.runner import is_hopeless
from rcatools.recording.reader import open_recording
from rcatools.recording.writer import exclusive, part_path, read_tabled

STALL = ("stall", "probe", {"RCATOOLS_DRILL_FIFO": ""})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording that nothing interrupts."""
    out = tmp_path_factory.mktemp("undisturbed") / "r"
    make(drill(STALL), out)
    return out


@pytest.fixture
def fifo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipe at which the arm 'stall' waits for as long as the file exists."""
    place = tmp_path / "fifo"
    os.mkfifo(place)
    monkeypatch.setitem(STALL[2], "RCATOOLS_DRILL_FIFO", str(place))
    return place


def outcomes(out: Path) -> dict[str, str]:
    runs = read_tabled(out)
    return dict(zip(runs["run"], runs["outcome"], strict=True))


def test_killed_worker_is_recorded_and_made_again_on_resume(
    tmp_path: Path, fifo: Path, undisturbed: Path
) -> None:
    out = tmp_path / "r"

    def runner() -> int:
        make(drill(STALL, blocks=1), out)
        return 0

    pid = in_child(runner, tmp_path / "log")
    os.kill(read_pid(fifo), signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == 0, (tmp_path / "log").read_text()
    lost = [run for run, outcome in outcomes(out).items() if outcome == "killed"]
    runs = open_recording(out).runs
    assert [run.split("-")[-1] for run in lost] == ["stall"]
    assert "SIGKILL" in runs.loc[runs["run"] == lost[0], "reason"].item()
    fifo.unlink()
    make(drill(STALL), out, resume=True, blocks=3)
    same_samples(out, undisturbed)
    assert json.loads((out / "attempts" / f"{lost[0]}.0.json").read_text())["outcome"] == "killed"


def test_killed_runner_takes_its_worker_along_and_resume_completes(
    tmp_path: Path, fifo: Path, undisturbed: Path
) -> None:
    out = tmp_path / "r"
    pid = in_child(lambda: len(make(drill(STALL), out)), tmp_path / "log")
    worker = read_pid(fifo)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert ended(worker)
    fifo.unlink()
    (out / "parts" / ".half.json.1.tmp").write_text("{")
    make(drill(STALL), out, resume=True)
    same_samples(out, undisturbed)
    assert not list(out.rglob("*.tmp"))
    assert json.loads((out / "manifest.json").read_text())["state"] == "complete"


@pytest.mark.parametrize(
    ("which", "in_background"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)]
)
def test_ctrl_c_and_sigterm_stop_cleanly_and_say_how_to_go_on(
    which: signal.Signals,
    in_background: bool,
    tmp_path: Path,
    fifo: Path,
    undisturbed: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, data = tmp_path / "r", tmp_path / "data" / "investigations" / "drill"
    data.mkdir(parents=True)
    arms = "".join(
        f'[[arm]]\nname="{n}"\nrole="{r}"\nsummary="{n}"\n' for n, r in (("a", "baseline"), ("a2", "repeat"))
    )
    arms += f'[[arm]]\nname="stall"\nrole="probe"\nsummary="stall"\nenv={{RCATOOLS_DRILL_FIFO="{fifo}"}}\n'
    head = 'workload="drill"\nbaseline="a"\nmetric="step_us"\nmargin=0.02\nblocks=3\nspawn_share=0.0\n'
    (data / "arms.toml").write_text(head + arms)
    monkeypatch.setenv("RCATOOLS_DATA", str(tmp_path / "data"))
    words = ["record", "drill", "--out", str(out), "--inspect", "none"]

    def child() -> int:
        if in_background:  # as a shell starts it with "&" in a script
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return main(words)

    pid = in_child(child, tmp_path / "log")
    worker = read_pid(fifo)
    os.kill(pid, which)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    said = (tmp_path / "log").read_text()
    assert "--resume" in said
    assert "Traceback" not in said
    assert ended(worker)
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["state"], manifest["stopped_by"]) == ("stopped", "interrupt")
    fifo.unlink()
    assert main([*words, "--resume"]) == 0
    same_samples(out, undisturbed)


def test_hung_worker_is_ended_after_the_stated_time_and_tried_once_more(tmp_path: Path) -> None:
    plan = drill(("stuck", "probe", {"RCATOOLS_DRILL": "hang"}), blocks=1)
    make(plan, tmp_path / "r", timeout_s=0.3)
    runs = open_recording(tmp_path / "r").runs.set_index("arm")
    assert runs.loc["stuck", "outcome"] == "hung"
    assert "0.3 s" in runs.loc["stuck", "reason"]
    assert runs.drop("stuck")["outcome"].eq("ok").all()
    for _ in range(2):
        make(plan, tmp_path / "r", timeout_s=0.3, resume=True)
    assert len(list((tmp_path / "r" / "attempts").iterdir())) == 1


@pytest.mark.parametrize(
    ("fault", "outcome", "reason"),
    [
        ("error", "error", "the drill failed"),
        ("out_of_memory", "out_of_memory", "out of memory"),
        ("capture_failed", "capture_failed", "captur"),
        ("device_lost", "device_lost", "illegal memory access"),
        ("crash", "killed", "SIGSEGV"),
        ("leave", "killed", "exit code 7"),
        ("mismatch", "mismatch", "float64"),
    ],
)
def test_failures_are_outcomes_of_their_run_only(
    fault: str, outcome: str, reason: str, tmp_path: Path
) -> None:
    manifest = make(drill(("bad", "probe", {"RCATOOLS_DRILL": fault}), blocks=1), tmp_path / "r")
    recording = open_recording(tmp_path / "r")
    runs = recording.runs.set_index("arm")
    assert runs.loc["bad", "outcome"] == outcome
    assert reason in runs.loc["bad", "reason"]
    assert runs.loc[["a", "a2"], "outcome"].eq("ok").all()
    assert "bad" not in recording.block_values("step_us")
    assert {k: manifest["counts"][k] for k in ("ok", "failed", "blocks_whole", "blocks_good")} == {
        "ok": 2,
        "failed": 1,
        "blocks_whole": 1,
        "blocks_good": 0,
    }


OOM, BROKEN = {"RCATOOLS_DRILL": "out_of_memory"}, {"RCATOOLS_DRILL": "error"}


def test_a_recording_in_which_everything_fails_alike_stops_after_one_block(tmp_path: Path) -> None:
    out = tmp_path / "r"
    with pytest.raises(
        RunError, match=r"all 3 runs so far failed \(out_of_memory.*--resume --keep-going"
    ) as stop:
        make(drill(("b", "suspect", {})), out, env=OOM)
    assert stop.value.exit_code == 3
    assert "\n" not in str(stop.value)
    kept = json.loads((out / "manifest.json").read_text())
    assert (kept["state"], kept["stopped_by"]) == ("stopped", "all_failed")
    assert outcomes(out) == {
        run.run: "out_of_memory" for run in schedule(["a", "a2", "b"], blocks=1, seed=1, isolation="fork")
    }
    with pytest.raises(RunError, match="all 3 runs so far failed"):  # going on is asked for, never assumed
        make(drill(("b", "suspect", {})), out, env=OOM, resume=True)
    with pytest.raises(RunError, match="no run of the baseline 'a' succeeded \\(out_of_memory"):
        make(drill(("b", "suspect", {})), out, env=OOM, resume=True, keep_going=True)
    assert len(outcomes(out)) == 9


@pytest.mark.parametrize(
    ("env", "arms", "runs"),
    [
        (
            {},
            [("b", "suspect", OOM), ("c", "suspect", OOM), ("d", "suspect", OOM)],
            15,
        ),  # bad arms, not a bad machine
        (OOM, [("b", "suspect", {"RCATOOLS_DRILL": "none"})], 9),  # one arm that succeeds is a success
        (OOM, [], 4),  # two runs are too few, the second block decides
        (OOM, [("b", "suspect", BROKEN)], 6),  # several ways of failing: two blocks
    ],
)
def test_it_takes_more_than_one_bad_arm_or_one_bad_block_to_give_up(
    tmp_path: Path, env: dict[str, str], arms: list[tuple[str, str, dict[str, str]]], runs: int
) -> None:
    out = tmp_path / "r"
    with contextlib.suppress(RunError):
        make(drill(*arms), out, env=env)
    assert len(outcomes(out)) == runs


def test_an_inspection_that_succeeded_is_a_success() -> None:
    frame = pd.DataFrame({"block": [-1, 0, 0, 0], "outcome": ["ok", "error", "error", "error"]})
    assert not is_hopeless(frame, blocks=1)
    assert is_hopeless(frame.iloc[1:], blocks=1)
    assert not is_hopeless(frame.iloc[1:], blocks=0)


def test_samples_of_a_mismatch_are_kept_under_a_name_of_their_own(tmp_path: Path) -> None:
    make(drill(("bad", "probe", {"RCATOOLS_DRILL": "mismatch"}), blocks=1), tmp_path / "r")
    samples = open_recording(tmp_path / "r").samples
    assert set(samples.loc[samples["arm"] == "bad", "metric"]) == {"step_us_mismatch"}
    assert (samples["arm"] == "bad").sum() == 20


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"run": "000',
        "[]",
        '{"run": "RUN", "outcome": "ok"}',
        '{"run": "OTHER", "arm": "a", "block": 0, "order": 0, "outcome": "ok", "samples": {}}',
        '{"run": "RUN", "arm": "a", "block": 0, "order": 0, "outcome": "ok", "samples": {"step_us": [-1]}}',
        "\x00" * 40,
    ],
)
def test_corrupt_part_is_set_aside_and_its_run_made_again(
    text: str, tmp_path: Path, undisturbed: Path
) -> None:
    out = tmp_path / "r"
    with pytest.MonkeyPatch.context() as patch:  # a manifest and not one run
        patch.setattr("rcatools.experiment.runner._measure", lambda *_: "budget")
        with pytest.raises(RunError, match="no run of the baseline"):
            make(drill(STALL), out)
    victim = schedule(["a", "a2", "stall"], blocks=3, seed=1, isolation="fork")[1].run
    part = part_path(out, victim)
    part.parent.mkdir()
    part.write_text(text.replace("RUN", victim))
    make(drill(STALL), out, resume=True)
    same_samples(out, undisturbed)


def test_second_runner_refuses_and_harms_nothing(tmp_path: Path, undisturbed: Path) -> None:
    out = tmp_path / "r"
    with exclusive(out), pytest.raises(InputError, match="another runner"):
        make(drill(STALL), out)
    make(drill(STALL), out)
    same_samples(out, undisturbed)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB; needs root."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=False).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_full_disk_stops_the_recording_and_resume_completes_it(small_disk: Path, tmp_path: Path) -> None:
    plan = drill(("large", "probe", {"RCATOOLS_DRILL": "large"}))
    out = small_disk / "r"
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 600 * 1024)
    with pytest.raises(RunError, match="--resume"):
        make(plan, out)
    left = [file.name for file in (out / "parts").iterdir()]
    assert sum("large" in name for name in left) == 1  # the second of 256 KiB did not fit
    assert all(json.loads((out / "parts" / name).read_text())["outcome"] == "ok" for name in left)
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    make(plan, out, resume=True)
    make(plan, tmp_path / "undisturbed")
    same_samples(out, tmp_path / "undisturbed")


def test_results_without_a_manifest_are_not_taken_for_a_new_recording(tmp_path: Path) -> None:
    (tmp_path / "r" / "parts").mkdir(parents=True)
    with pytest.raises(InputError, match=r"without a manifest\.json"):
        make(drill(), tmp_path / "r", resume=True)


def test_damaged_tables_are_refused_on_resume_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "r"
    make(drill(blocks=1), out)
    (out / "runs.parquet").write_bytes(b"PAR1 broken")
    with pytest.raises(InputError, match="damaged"):
        make(drill(), out, resume=True, blocks=3)
    assert (out / "runs.parquet").read_bytes() == b"PAR1 broken"


def test_only_resume_touches_a_recording_and_only_the_same_one(tmp_path: Path) -> None:
    out = tmp_path / "r"
    make(drill(blocks=1), out)
    with pytest.raises(InputError, match="--resume"):
        make(drill(blocks=1), out)
    with pytest.raises(InputError, match="'a2' has changed"):
        make(
            replace(drill(blocks=1), arms=(drill().arms[0], replace(drill().arms[1], kv="first"))),
            out,
            resume=True,
        )
    with pytest.raises(InputError, match="seed 1, not 5"):
        make(drill(blocks=1), out, resume=True, seed=5)
    with pytest.raises(InputError, match="arms"):
        make(drill(blocks=1), out, resume=True, arms=("a",))
    with pytest.raises(InputError, match="env"):
        make(drill(blocks=1), out, resume=True, env={"RCATOOLS_DRILL_EFFECT": "2"})
    with pytest.raises(InputError, match="layers"):
        make(drill(blocks=1), out, resume=True, parameters={"layers": "3"})


def test_resumed_runs_get_the_environment_of_the_first_ones(tmp_path: Path) -> None:
    env = {"RCATOOLS_DRILL_EFFECT": "1.5"}
    make(drill(blocks=2), tmp_path / "whole", env=env)
    make(drill(blocks=1), tmp_path / "r", env=env)
    make(drill(), tmp_path / "r", resume=True, blocks=2)
    same_samples(tmp_path / "r", tmp_path / "whole")
    assert "RCATOOLS_DRILL_EFFECT" not in os.environ
