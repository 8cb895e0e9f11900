"""Starts one worker, watches it, and ends it by its own process group when it hangs."""

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

from rcatools.experiment import worker
from rcatools.recording.writer import part_path, write_json


def run_worker(task: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """Run one task in a process of its own and return its part.

    Where the worker left none (killed, hung, crashed), a part that says so is written in its place.

    Raises:
        KeyboardInterrupt: Ctrl-C; the worker is ended first, its run stays open.
    """
    folder = Path(task["folder"])
    log = folder / "logs" / f"{task['run']}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    pid = _fork(task, log) if task["isolation"] == "fork" else _spawn(task, log)
    try:
        status = wait_for(pid, timeout_s)
    except BaseException:
        _kill(pid)
        raise
    if status is None:
        _kill(pid)
    part = part_path(folder, task["run"])
    if not part.is_file():
        reason = f"no answer for {timeout_s:.0f} s, ended" if status is None else _explain(status, log)
        document = {key: task[key] for key in ("run", "block", "order", "isolation")}
        document |= {
            "arm": task["arm"]["name"],
            "outcome": "hung" if status is None else "killed",
            "reason": reason,
        }
        document |= {"samples": {}, "kernels": {}, "facts": {}, "wall_s": time.monotonic() - started}
        write_json(part, document)
    else:
        log.unlink(missing_ok=True) if log.stat().st_size == 0 else None
    return dict(json.loads(part.read_text(encoding="utf-8")))


def wait_for(pid: int, timeout_s: float) -> int | None:
    """Wait status of a child, or None when it is still running after the time."""
    handle = os.pidfd_open(pid)
    try:
        if not select.select([handle], [], [], timeout_s)[0]:
            return None
        return os.waitpid(pid, 0)[1]
    finally:
        os.close(handle)


def _fork(task: dict[str, Any], log: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        worker.die_with_parent()
        with log.open("wb", buffering=0) as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        os.environ.update(task["arm"]["env"])
        worker.run_and_write(task)
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # never return into the runner's code, whatever happened


def _spawn(task: dict[str, Any], log: Path) -> int:
    folder = Path(task["folder"])
    place = folder / "parts" / f"{task['run']}.task"
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
    child.returncode = 0  # waited for by pid below, not by this object
    return child.pid


def _kill(pid: int) -> None:
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
