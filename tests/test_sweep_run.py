"""Whole sweeps: every ending told as what it is, resumed after any death, done exactly once, nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from sweep_support import ROOT, comparison, notebook, summary, sweep, table

from rcatools.batch.jobs import Job, Place
from rcatools.batch.processes import tagged
from rcatools.batch.supervise import DONE, FAILED, run_job

CASES = ROOT.parent / "shared" / "cases" / "bad-notebooks-a"

# What a notebook does, the state and exit code of its row, what the error says.
ENDINGS: dict[str, tuple[tuple[str, ...], str, int | None, str]] = {
    "done": (("assert x == 7",), "done", 0, ""),
    "raises": (("1 / 0", "2"), "failed", 3, "ZeroDivisionError in cell"),
    "crashes": (("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",), "failed", 3, "kernel died"),
    "hangs": (("import threading; threading.Event().wait()",), "failed", 3, "limit of 5 s"),
    "exits": (("import sys; sys.exit(3)", "2"), "failed", 3, "SystemExit"),
    "exits_well": (("import sys; sys.exit(0)", "2"), "failed", 3, "never ran"),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One sweep with every ending and two comparisons, run twice."""
    folder = tmp_path_factory.mktemp("sweep")
    rows: list[dict[str, Any]] = []
    for name, (cells, *_) in ENDINGS.items():
        limit = 5 if name == "hangs" else 120
        book = notebook(folder, name, *cells)
        rows.append({"kind": "notebook", "name": name, "notebook": book, "p.x": 7, "timeout_s": limit})
    nameless = notebook(folder, "nameless", "x", kernel=False)
    rows.append({"kind": "notebook", "name": "nameless", "notebook": nameless, "p.x": 2})
    for name, step in (("same", 1.0), ("slow", 1.05)):
        rows.append(
            {
                "kind": "compare",
                "name": name,
                "table": comparison(folder, f"{name}.csv", step),
                "baseline": "before",
            }
        )
    path, out = table(folder, rows), folder / "out"
    first = sweep(path, out, "--cpus", "2", "--json")
    second = sweep(path, out, "--json", "--fail-on", "slower")
    return {"folder": folder, "out": out, "first": first, "second": second, "rows": rows}


def by_name(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in summary(done)["rows"]}


@pytest.mark.parametrize("name", ENDINGS)
def test_every_ending_of_a_notebook_has_its_state_and_exit_code(ended: dict[str, Any], name: str) -> None:
    _, state, code, says = ENDINGS[name]
    row = by_name(ended["first"])[name]
    assert (row["state"], row["exit_code"], row["attempts"]) == (state, code, 1)
    assert says in (row["error"] or "")
    executed = ended["out"] / row["folder"] / f"{name}.ipynb"
    assert "injected-parameters" in str(nbformat.read(executed, as_version=4).cells)


def test_a_notebook_that_names_no_kernel_runs_and_says_so(ended: dict[str, Any]) -> None:
    row = by_name(ended["first"])["nameless"]
    result = json.loads((ended["out"] / row["folder"] / "result.json").read_text())
    assert row["state"] == "done"
    assert "names no kernel" in result["warnings"][0]
    assert result["parameters"] == {"x": 2}


def test_comparisons_give_their_verdict_and_the_sweep_its_exit_code(ended: dict[str, Any]) -> None:
    rows = by_name(ended["first"])
    assert (rows["same"]["verdict"], rows["slow"]["verdict"]) == ("equivalent", "slower")
    assert ended["first"].returncode == 3
    assert "Traceback" not in ended["first"].stderr
    assert summary(ended["first"])["counts"] == {
        "done": 4,
        "failed": 5,
        "lost": 0,
        "pending": 0,
        "running": 0,
    }


def test_a_second_call_runs_nothing_again(ended: dict[str, Any]) -> None:
    assert summary(ended["second"]) == summary(ended["first"])
    assert "9 of 9 rows are done already" in ended["second"].stderr
    written = json.loads((ended["out"] / "sweep.json").read_text())
    assert written == summary(ended["second"])


def test_progress_tells_rows_and_time_left(ended: dict[str, Any]) -> None:
    lines = [line for line in ended["first"].stderr.splitlines() if line.startswith("[")]
    assert len(lines) == 9
    assert "s left" in lines[0]
    assert lines[-1].startswith("[9/9]")


def test_only_the_changed_row_runs_again_and_failed_ones_on_request(
    ended: dict[str, Any], tmp_path: Path
) -> None:
    rows = [row for row in ended["rows"] if row["name"] in {"same", "slow"}]
    out = tmp_path / "out"
    before = by_name(sweep(table(ended["folder"], rows, "two.csv"), out, "--json"))
    changed = [{**rows[0], "margin": 0.5}, rows[1]]
    done = sweep(table(ended["folder"], changed, "two.csv"), out, "--json", "--fail-on", "slower")
    after = by_name(done)
    assert done.returncode == 1
    assert after["slow"] == before["slow"]
    assert after["same"]["job"] != before["same"]["job"]
    assert (out / "jobs" / before["same"]["job"] / "attempts" / "1" / "result.json").is_file()
    broken = table(ended["folder"], [r for r in ended["rows"] if r["name"] == "raises"], "one.csv")
    again = sweep(broken, ended["out"], "--json", "--retry-failed")
    assert (again.returncode, summary(again)["rows"][0]["attempts"]) == (3, 2)


@pytest.mark.skipif(not CASES.is_dir(), reason="the reference cases are not beside the checkout")
def test_bad_notebooks_of_other_projects_end_before_anything_runs(tmp_path: Path) -> None:
    values = json.loads((CASES / "nan_param.json").read_text())
    notebook(tmp_path, "limits", "x", parameters="threshold: float = 1.0\nupper: float = 2.0")
    wrong = [
        (
            {"notebook": str(CASES / "no_params_tag.ipynb"), "p.trace_path": "mine.json"},
            "no cell tagged 'parameters'",
        ),
        ({"notebook": "limits.ipynb", "p.threshold": values["threshold"]}, "JSON cannot hold it"),
        ({"notebook": "limits.ipynb", "p.upper": values["upper"]}, "JSON cannot hold it"),
    ]
    for row, says in wrong:
        done = sweep(table(tmp_path, [{"kind": "notebook", **row}]), tmp_path / "out", "--json")
        assert done.returncode == 2
        assert says in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
        assert not (tmp_path / "out").exists()


# --- deaths -------------------------------------------------------------------------------------------

BLOCKS_ONCE = """\
import os, pathlib, subprocess, threading
flag = pathlib.Path(flag)
if not flag.exists():
    child = subprocess.Popen(["sleep", "1234"], start_new_session=True)
    flag.with_suffix(".tmp").write_text(f"{os.getpid()} {child.pid}")
    flag.with_suffix(".tmp").rename(flag)
    threading.Event().wait()
"""

# A job that a shell put in the background ignores Ctrl-C, and so do its children: this one shall heed it.
HEEDING = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class Blocking:
    """A sweep whose only row blocks in its first attempt, with a child in a session of its own."""

    def __init__(self, folder: Path) -> None:
        self.out, self.flag = folder / "out", folder / "flag"
        book = notebook(folder, "blocks", BLOCKS_ONCE, parameters='flag: str = ""  # a path')
        self.table = table(folder, [{"kind": "notebook", "notebook": book, "p.flag": str(self.flag)}])

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-c",
            HEEDING,
            "-m",
            "rcatools",
            "sweep",
            str(self.table),
            "--out",
            str(self.out),
            *words,
        ]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def blocked(self, runner: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """The kernel and its child, once they are there."""
        wait_until(lambda: self.flag.exists() or runner.poll() is not None)
        assert runner.poll() is None
        return [psutil.Process(int(pid)) for pid in self.flag.read_text().split()]

    @property
    def job(self) -> Job:
        return Job(next((self.out / "jobs").iterdir()))


def wait_until(check: Callable[[], bool], limit: float = 60.0) -> None:
    """Wait for another process, a twentieth of a second at a time."""
    me = psutil.Process()
    for _ in range(int(limit * 20)):
        if check():
            return
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(["sleep", "9"], timeout=0.05, check=False)
    raise AssertionError(f"nothing happened for {limit} s in {me.pid}")


def finish(blocking: Blocking, *, attempts: int) -> None:
    done = sweep(blocking.table, blocking.out, "--json")
    assert done.returncode == 0, done.stderr
    events = [event["event"] for event in blocking.job.events()]
    assert events.count("done") == 1
    assert blocking.job.attempts() == attempts
    assert not list(tagged(blocking.job.folder))


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT], ids=lambda sign: sign.name)
def test_a_sweep_that_is_ended_leaves_no_process_and_goes_on(tmp_path: Path, sign: signal.Signals) -> None:
    blocking = Blocking(tmp_path)
    runner = blocking.start()
    processes = blocking.blocked(runner)
    runner.send_signal(sign)
    assert runner.wait(60) == (-signal.SIGKILL if sign == signal.SIGKILL else 130)
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not alive
    wait_until(lambda: blocking.job.status()["state"] == "lost")
    finish(blocking, attempts=2)


def test_a_supervisor_that_is_killed_is_cleaned_up_after_and_its_row_made_again(tmp_path: Path) -> None:
    blocking = Blocking(tmp_path)
    runner = blocking.start()
    processes = blocking.blocked(runner)
    supervisor = psutil.Process(runner.pid).children()[0]
    assert "rcatools.batch.supervise" in supervisor.cmdline()
    supervisor.kill()
    assert runner.wait(90) == 0
    assert not [process for process in processes if process.is_running()]
    assert [event["event"] for event in blocking.job.events()] == ["running", "lost", "running", "done"]
    finish(blocking, attempts=2)


def test_everything_killed_at_once_is_found_and_ended_by_the_next_call(tmp_path: Path) -> None:
    blocking = Blocking(tmp_path)
    runner = blocking.start()
    kernel, child = blocking.blocked(runner)
    family = [psutil.Process(runner.pid), *psutil.Process(runner.pid).children(recursive=True)]
    for process in family:
        if process.pid != child.pid:
            process.kill()
    runner.wait()
    assert child.is_running()
    finish(blocking, attempts=2)
    assert not child.is_running()
    assert not kernel.is_running()


# --- single rows and single jobs ----------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> Path:
    rows = [
        {
            "kind": "compare",
            "name": name,
            "table": comparison(tmp_path, f"{name}.csv", step),
            "baseline": "before",
        }
        for name, step in (("same", 1.0), ("slow", 1.05))
    ]
    return table(tmp_path, rows)


def test_rows_one_by_one_are_the_sweep(two: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    codes = [sweep(two, out, "--row", str(number), "--fail-on", "slower").returncode for number in (1, 2)]
    assert codes == [0, 1]
    whole = sweep(two, out, "--json")
    assert "2 of 2 rows are done already" in whole.stderr
    assert [row["attempts"] for row in summary(whole)["rows"]] == [1, 1]


def test_one_row_in_two_tasks_at_once_is_done_once(two: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "rcatools", "sweep", str(two), "--out", str(out), "--row", "1"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    tasks = [
        subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in "ab"
    ]
    assert [task.wait(60) for task in tasks] == [0, 0]
    job = Job(next((out / "jobs").iterdir()))
    assert [event["event"] for event in job.events()] == ["running", "done"]


@pytest.mark.parametrize("words", [["--row", "0"], ["--row", "3"], ["--cpus", "0"], ["--retries", "-1"],
                                   ["--address", "auto"], ["--gpus", "tpu:1"]])  # fmt: skip
def test_wrong_calls_are_one_line(two: Path, tmp_path: Path, words: list[str]) -> None:
    done = sweep(two, tmp_path / "out", *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_row_of_a_group_cannot_run_alone(tmp_path: Path) -> None:
    rows = [{"kind": "compare", "table": comparison(tmp_path, f"{i}.csv", 1.0, i), "baseline": "before", "group": "g"}
            for i in range(2)]  # fmt: skip
    done = sweep(table(tmp_path, rows), tmp_path / "out", "--row", "1")
    assert done.returncode == 2
    assert "belongs to the group 'g'" in done.stderr


def test_two_sweeps_of_one_folder_exclude_each_other(two: Path, tmp_path: Path) -> None:
    from rcatools.recording.writer import exclusive

    out = tmp_path / "out"
    with exclusive(out):
        done = sweep(two, out)
    assert done.returncode == 2
    assert "another runner is writing" in done.stderr


def make_job(folder: Path) -> Job:
    job = Job(folder / "0123456789abcdef")
    document = {"kind": "compare", "parameters": {"table": "/absent"}, "settings": {}, "env": {}, "labels": {},
                "timeout_s": 60}  # fmt: skip
    job.create(document, {"row": 1, "name": "x"})
    return job


def test_a_result_whose_status_was_never_written_counts(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    number = job.begin_attempt()
    job.write_status("running", attempt=number, place={})
    (job.attempt(number) / "result.json").write_text(json.dumps({"job": job.name, "verdict": "slower"}))
    assert job.settled()["state"] == "done"
    assert run_job(job, Place()) == DONE
    assert job.status()["state"] == "done"
    assert job.attempts() == 1


@pytest.mark.parametrize("content", ["", "{", '{"job": "another"}', "[]"])
def test_half_a_result_does_not_count(tmp_path: Path, content: str) -> None:
    job = make_job(tmp_path)
    number = job.begin_attempt()
    job.write_status("running", attempt=number, place={})
    (job.attempt(number) / "result.json").write_text(content)
    assert job.settled()["state"] == "running"


def test_a_failed_job_stays_failed_and_a_half_written_status_is_pending(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    job.write_status("failed", attempt=1, error="a")
    assert run_job(job, Place()) == FAILED
    assert job.attempts() == 0
    (job.folder / "status.json").write_text('{"state": "do')
    assert job.status() == {"state": "pending"}
    with (job.folder / "events.jsonl").open("a") as stream:
        stream.write('{"event": "ru')
    assert [event["event"] for event in job.events()] == ["failed"]
