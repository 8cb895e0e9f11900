"""Runs one attempt of one job in a process of its own and leaves nothing behind.

    python -m rcatools.batch.supervise JOB_FOLDER PLACE_JSON [--watch-stdin]

The supervisor starts the worker, holds the job's lock, becomes the parent of whatever the worker leaves, and
ends all of it when the worker ends, its time is up, or whoever started the supervisor goes away: the
standard input is a pipe then, and its end is the sign. Exit code: 0 done, 3 failed, 2 wrong input, 75 lost.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rcatools.batch.jobs import Job, Place, host, now
from rcatools.errors import InputError, RcaError

GRACE_S = 15.0  # a kind that watches its own time gets so long to say what happened
DONE, FAILED, WRONG, LOST = 0, 3, 2, 75
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MASKS = {
    "rocm": ("HIP_VISIBLE_DEVICES", ("CUDA_VISIBLE_DEVICES",)),
    "cuda": ("CUDA_VISIBLE_DEVICES", ()),
}


def start(folder: Path, place: Place) -> subprocess.Popen[bytes]:
    """Start a supervisor; it ends with the caller, and by closing its ``stdin``."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "rcatools.batch.supervise",
            str(folder),
            json.dumps(place.document()),
            "--watch-stdin",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": _python_path()},
        start_new_session=True,
    )


def worker_environment(place: Place, own: Mapping[str, str], job: Path) -> dict[str, str]:
    """The environment of a worker: the row's own settings, and a mask that shows its one card.

    HIP counts inside what ROCR_VISIBLE_DEVICES leaves, so that mask stays as it is. HIP also reads
    CUDA_VISIBLE_DEVICES, which is removed so that two masks cannot disagree. A row without a card keeps
    the masks: an empty one does not hide cards on every release.
    """
    from rcatools.batch.processes import JOB_TAG, tag_of

    env = {**os.environ, **own, "PYTHONPATH": _python_path(), JOB_TAG: tag_of(job)}
    if place.mask:
        name, removed = MASKS[place.backend]
        env[name] = place.mask
        for other in removed:
            env.pop(other, None)
    return env


def run_job(job: Job, place: Place, *, watch: int | None = None) -> int:
    """Make one attempt, unless the job is done already; returns the exit code.

    Args:
        job: the job.
        place: where it runs; the host is filled in where it is missing.
        watch: file descriptor whose end means that nobody waits any more.
    """
    from rcatools.batch.processes import end_tagged

    place = replace(place, host=place.host or host())
    with job.hold():
        settled = job.settled()
        if settled["state"] in {"done", "failed"}:
            if settled != job.status():
                job.write_status(**settled)
            return DONE if settled["state"] == "done" else FAILED
        if settled["state"] == "running":
            job.note("lost", attempt=settled.get("attempt"))
        end_tagged(job.folder)
        number = job.begin_attempt()
        facts = {"attempt": number, "started_utc": now(), "place": place.document()}
        job.write_status("running", **facts)
        begun = time.monotonic()
        state, error, code = _attempt(job, number, place, watch)
        seconds = round(time.monotonic() - begun, 3)
        job.write_status(state, **facts, ended_utc=now(), seconds=seconds, error=error, exit_code=code)
        return {"done": DONE, "failed": WRONG if code == WRONG else FAILED, "lost": LOST}[state]


def _attempt(job: Job, number: int, place: Place, watch: int | None) -> tuple[str, str | None, int | None]:
    """State, error and exit code of the worker."""
    from rcatools.batch.processes import adopt_orphans, end_descendants

    document = job.document()
    folder = job.attempt(number)
    adopt_orphans()
    with (folder / "log.txt").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "rcatools.batch.execute", str(job.folder), str(number)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=worker_environment(place, document["env"], job.folder),
            start_new_session=True,
        )
        try:
            why = _wait(worker.pid, float(document["timeout_s"]) + GRACE_S, watch)
        finally:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
            end_descendants()
    code = worker.returncode
    if job.result() is not None:
        return "done", None, 0
    if why == "left":
        return "lost", "stopped: whoever started it went away", None
    if why == "time":
        return "failed", f"ended after its limit of {document['timeout_s']:g} s", None
    if code < 0:
        name = signal.Signals(-code).name
        if -code in FROM_OUTSIDE:
            return "lost", f"ended from outside by {name}", code
        return "failed", f"crashed with {name}{_last_words(folder)}", code
    return "failed", _last_line(folder) or f"left with exit code {code} and without a result", code


def _wait(pid: int, timeout_s: float, watch: int | None) -> str:
    """Why waiting ended: "ended", "time" or "left"."""
    handle = os.pidfd_open(pid)
    signals_read, signals_write = os.pipe()

    def stop(number: int, frame: Any) -> None:
        os.write(signals_write, b"x")

    previous = {name: signal.signal(name, stop) for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(signals_read, select.POLLIN)
        if watch is not None:
            poll.register(watch, select.POLLHUP | select.POLLERR)
        found = {descriptor for descriptor, _ in poll.poll(min(timeout_s * 1000, 2**31 - 1))}
        if handle in found:
            return "ended"
        return "left" if found else "time"
    finally:
        for name, action in previous.items():
            signal.signal(name, action)
        for descriptor in (handle, signals_read, signals_write):
            os.close(descriptor)


def _last_line(folder: Path) -> str:
    text = (folder / "log.txt").read_bytes()[-4000:].decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("rcatools: ")[:400] if lines else ""


def _last_words(folder: Path) -> str:
    line = _last_line(folder)
    return f": {line}" if line else ""


def _python_path() -> str:
    package = str(Path(__file__).resolve().parents[2])
    others = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != package]
    return os.pathsep.join([package, *others])


def main(words: list[str]) -> int:
    """Entry of the supervisor's process."""
    folder, place = Path(words[0]), Place(**json.loads(words[1]))
    watch = 0 if "--watch-stdin" in words[2:] else None
    try:
        return run_job(Job(folder), place, watch=watch)
    except RcaError as error:
        print(f"rcatools: {error}", file=sys.stderr)
        return WRONG if isinstance(error, InputError) else LOST


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
