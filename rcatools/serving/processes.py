"""Starts vLLM processes, waits for them, and ends them with everything they started.

A process is started as the leader of its own session, so its process group holds what it starts. What leaves the group
is found by the run's id in its environment. Nothing that does not carry that id is ever signalled.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rcatools.serving.variants import RUN

GRACE_S = 20.0
POLL_S = 0.2
_PR_SET_PDEATHSIG = 1


class Running:
    """One started command.

    Args:
        command: program and arguments.
        env: its whole environment; holds the run's id.
        log: file that takes what it prints, appended.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                list(command),
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - the runner has no threads
            )

    @property
    def code(self) -> int | None:
        """Exit code, None while it runs."""
        return self.process.poll()

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within the time."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self, grace_s: float = GRACE_S) -> None:
        """Ask the group to end, and kill it after the grace time; the group is gone when this returns."""
        if self.code is None:
            _signal_group(self.process.pid, signal.SIGTERM)
            if not self.wait(grace_s):
                _signal_group(self.process.pid, signal.SIGKILL)
                self.process.wait()
        _signal_group(self.process.pid, signal.SIGKILL)


def wait_ready(running: Running, port: int, timeout_s: float) -> str:
    """Wait until a server answers ``/health``; "" then, "ended" where it ended first, "hung" after the time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if running.code is not None:
            return "ended"
        if healthy(port):
            return ""
        time.sleep(POLL_S)
    return "hung"


def healthy(port: int) -> bool:
    """Whether the server on a local port answers ``/health`` with 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def free_port() -> int:
    """A local port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def belonging_to(run: str) -> list[int]:
    """Processes whose environment carries the run's id, this one excepted."""
    wanted = f"{RUN}={run}".encode()
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (place / "environ").read_bytes().split(b"\0") and _alive(place):
                found.append(int(place.name))
    return sorted(found)


def end_rest(run: str, timeout_s: float = GRACE_S) -> list[int]:
    """Kill what is left of a run outside its group; returns the processes that had to be killed."""
    deadline = time.monotonic() + timeout_s
    killed: set[int] = set()
    while rest := belonging_to(run):
        for pid in rest:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    return sorted(killed)


def _alive(place: Path) -> bool:
    """False for a process that ended and only waits for its parent."""
    status = (place / "stat").read_text(errors="replace")
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
