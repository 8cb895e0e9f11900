"""Processes of a job: found again and ended, however their parents ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

JOB_TAG = "RCATOOLS_JOB"
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_PATIENCE_S = 5.0


def adopt_orphans() -> None:
    """Make this process the new parent of descendants whose parent ends (Linux; elsewhere without effect)."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Have this process killed when its parent ends (Linux; elsewhere without effect)."""
    parent = os.getppid()
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def end_descendants() -> int:
    """Kill everything this process has started, directly or not; returns how many were found."""
    found = 0
    for _ in range(50):  # a process may start another while it is being ended
        children = psutil.Process().children(recursive=True)
        if not children:
            break
        found += len(children)
        _kill(children)
    return found


def tag_of(folder: Path) -> str:
    """What marks the processes of a job folder in their environment."""
    return str(folder.resolve())


def end_tagged(folder: Path) -> int:
    """Kill processes that an earlier attempt at this job left on this machine; returns how many."""
    left = list(tagged(folder))
    _kill(left)
    return len(left)


def tagged(folder: Path) -> Iterable[psutil.Process]:
    """Running processes of a job folder on this machine, this one and its ancestors excepted."""
    tag, mine = tag_of(folder), {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid not in mine and process.environ().get(JOB_TAG) == tag:
                yield process


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=_PATIENCE_S)
