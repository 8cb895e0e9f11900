"""Starts the process or processes of one run, watches them, and ends them by their own process groups."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rcatools.experiment import ranks, worker
from rcatools.files import StorageError, write_json
from rcatools.recording.writer import part_path

Statuses = dict[int, int]


def run_worker(task: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """Run one task, alone or with its ranks, and return its part.

    Where a process left no result (killed, hung, crashed), a part that says so is written in its place.
    A rank that ends badly ends the others at once.

    Raises:
        StorageError: the recording's disk is full; the run stays open.
        KeyboardInterrupt: Ctrl-C; the processes are ended first, the run stays open.
    """
    folder, size = Path(task["folder"]), int(task.get("ranks", 1))
    started = time.monotonic()
    tasks = [task] if size == 1 else _rank_tasks(task, folder, size)
    pids: dict[int, int] = {}
    statuses: Statuses = {}
    try:
        for rank, one in enumerate(tasks):
            pids[rank] = _start({**one, "parent": os.getpid()}, _log(folder, one))
        wait_for(pids, timeout_s, statuses)
    finally:
        for rank, pid in pids.items():
            if rank not in statuses:
                end_process(pid)
    try:
        part = _result(task, tasks, statuses, timeout_s)
    finally:
        for one in tasks:
            Path(one["meeting"]).unlink(missing_ok=True) if size > 1 else None
    if part is None:
        return dict(json.loads(part_path(folder, task["run"]).read_text(encoding="utf-8")))
    part.setdefault("wall_s", time.monotonic() - started)
    write_json(part_path(folder, task["run"]), part)
    for one in tasks if size > 1 else []:
        worker.result_path(one).unlink(missing_ok=True)
    return part


def wait_for(pids: dict[int, int], timeout_s: float, statuses: Statuses) -> None:
    """Fill in wait statuses by rank until all have ended, one has ended badly, or time is up.

    What a process left running in its group is ended with it, before its id can be used again.
    """
    handles = {os.pidfd_open(pid): rank for rank, pid in pids.items()}
    end = time.monotonic() + timeout_s
    try:
        while handles and not any(statuses.values()):
            ready = select.select(list(handles), [], [], max(end - time.monotonic(), 0))[0]
            for handle in ready:
                rank = handles.pop(handle)
                os.close(handle)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pids[rank], signal.SIGKILL)
                statuses[rank] = os.waitpid(pids[rank], 0)[1]
            if not ready:
                return
    finally:
        for handle in handles:
            os.close(handle)


def _rank_tasks(task: dict[str, Any], folder: Path, size: int) -> list[dict[str, Any]]:
    meeting = ranks.result_path(folder, task["run"], 0).with_suffix(".meeting")
    try:
        meeting.parent.mkdir(parents=True, exist_ok=True)
        meeting.unlink(missing_ok=True)
        for rank in range(size):
            ranks.result_path(folder, task["run"], rank).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(meeting, error.strerror or "cannot be made") from error
    return [{**task, "rank": rank, "meeting": str(meeting)} for rank in range(size)]


def _log(folder: Path, task: dict[str, Any]) -> Path:
    suffix = f".{task['rank']}" if task.get("ranks", 1) > 1 else ""
    log = folder / "logs" / f"{task['run']}{suffix}.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(log, error.strerror or "cannot be made") from error
    return log


def _start(task: dict[str, Any], log: Path) -> int:
    return _fork(task, log) if task["isolation"] == "fork" else _spawn(task, log)


def _result(
    task: dict[str, Any], tasks: list[dict[str, Any]], statuses: Statuses, timeout_s: float
) -> dict[str, Any] | None:
    """The part to write, or None where the worker wrote it itself.

    Raises:
        StorageError: a process could not write its result.
    """
    folder = Path(task["folder"])
    for one in tasks:
        log, status = _log(folder, one), statuses.get(one.get("rank", 0))
        if status is not None and os.waitstatus_to_exitcode(status) == worker.EXIT_STORAGE:
            raise StorageError(worker.result_path(one), "no space left or not writable")
        if log.is_file() and log.stat().st_size == 0:
            log.unlink()
    results = [_read_json(worker.result_path(one)) for one in tasks]
    if len(tasks) == 1 and results[0] is not None:
        return None
    whole = [result for result in results if result is not None]
    if len(whole) == len(tasks):
        return ranks.gather(whole)
    return _lost(task, tasks, statuses, results, timeout_s)


def _lost(
    task: dict[str, Any],
    tasks: list[dict[str, Any]],
    statuses: Statuses,
    results: list[dict[str, Any] | None],
    timeout_s: float,
) -> dict[str, Any]:
    """A part for a run of which at least one process left no result."""
    part = {key: task[key] for key in ("run", "block", "order", "isolation")}
    part |= {"arm": task["arm"]["name"], "samples": {}, "kernels": {}, "facts": {}}
    several = len(tasks) > 1
    failed = [(i, r) for i, r in enumerate(results) if r is not None and r["outcome"] != "ok"]
    if failed:  # its own words say more than how the others were ended
        rank, result = failed[0]
        return part | {"outcome": result["outcome"], "reason": f"rank {rank}: {result['reason']}"}
    ended = {i: status for i, status in statuses.items() if results[i] is None}
    if not ended:
        return part | {"outcome": "hung", "reason": f"no answer for {timeout_s:g} s, ended"}
    rank, status = next(iter(ended.items()))
    where = f"rank {rank}: " if several else ""
    return part | {
        "outcome": "killed",
        "reason": where + _explain(status, _log(Path(task["folder"]), tasks[rank])),
    }


def _read_json(file: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def _fork(task: dict[str, Any], log: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        worker.die_with_parent(task["parent"])
        with contextlib.suppress(OSError), log.open("wb", buffering=0) as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        os.environ.update(task["arm"]["env"])
        code = worker.run_and_write(task)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _spawn(task: dict[str, Any], log: Path) -> int:
    place = log.with_suffix(".task.json")
    write_json(place, task)
    env = os.environ | task["arm"]["env"]
    if task.get("env_padding"):
        env["RCATOOLS_PADDING"] = "x" * int(task["env_padding"])
    root = str(Path(__file__).resolve().parents[2])
    env["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [env.get("PYTHONPATH")])])
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, "-m", "rcatools.experiment.worker", str(place)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=env,
            process_group=0,
        )
    child.returncode = 0  # waited for by pid, not by this object
    return child.pid


def end_process(pid: int) -> None:
    """End a process group whose leader was not reaped yet, and reap the leader."""
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
            break
        except (ProcessLookupError, PermissionError):
            continue
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _explain(status: int, log: Path) -> str:
    code = os.waitstatus_to_exitcode(status)
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"
    tail = (
        log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:] if log.is_file() else []
    )
    return f"{how} before its result was written" + (f": {tail[0][:200]}" if tail else "")
