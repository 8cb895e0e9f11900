"""A short measurement on this machine's own device, made by the recorder in its own process."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rcatools.experiment.arms import load_plan

SHORT = ("--blocks", "4", "--budget-s", "12", "--spawn-share", "0", "--inspect", "none")
LIMIT_S = 120.0


@dataclass(frozen=True)
class LiveRun:
    """How a live measurement went: the recording's folder, or the reason and exit code why there is none."""

    folder: Path | None
    reason: str = ""
    code: int | None = None


def short(investigation: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Arms and recorder options of a short check: the A/A arms and the suspects, a few blocks.

    Raises:
        InputError: the investigation declares no arms for the recorder.
    """
    plan = load_plan(investigation)
    arms = tuple(arm.name for arm in plan.arms if arm.role in {"repeat", "suspect"})
    given = [word for name, value in plan.short.items() for word in ("-p", f"{name}={value}")]
    return arms, (*SHORT, *given)


def command(
    investigation: str,
    folder: Path,
    *,
    device: str,
    arms: Sequence[str] = (),
    options: Sequence[str] = (),
) -> list[str]:
    """The recorder's command line."""
    chosen = ["--arms", ",".join(arms)] if arms else []
    return [
        sys.executable,
        "-m",
        "rcatools",
        "record",
        investigation,
        "--out",
        str(folder),
        "--device",
        device,
        *chosen,
        *options,
    ]


def measure(
    investigation: str,
    folder: Path,
    *,
    device: str = "auto",
    arms: Sequence[str] = (),
    options: Sequence[str] = (),
    limit_s: float | None = LIMIT_S,
    log: Path | None = None,
    quiet: bool = True,
) -> LiveRun:
    """Run the recorder; never raises for what the measurement itself does wrong.

    Args:
        investigation: its name.
        folder: where the recording goes.
        device: "auto", "cpu", "cuda" or "rocm".
        arms: arms beside the baseline; none: all.
        options: further options of ``rcatools record``.
        limit_s: the recorder and all its runs are ended after so many seconds; None: never.
        log: file for what the recorder prints.
        quiet: False lets the recorder's progress through to the terminal.
    """
    if importlib.util.find_spec("torch") is None:
        return LiveRun(None, "no torch is installed, so nothing could be measured on this machine")
    words = command(investigation, folder, device=device, arms=arms, options=options)
    with contextlib.ExitStack() as stack:
        target: Any = None if not quiet else subprocess.DEVNULL
        if quiet and log:
            log.parent.mkdir(parents=True, exist_ok=True)
            target = stack.enter_context(log.open("wb"))
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=target if quiet else sys.stderr,
            stderr=target,
            start_new_session=quiet,
            env={**os.environ, "PYTHONPATH": with_package(os.environ.get("PYTHONPATH", ""))},
        )
        try:
            code = process.wait(limit_s)
        except BaseException as error:
            _end(process, group=quiet)
            if isinstance(error, subprocess.TimeoutExpired):
                return LiveRun(None, f"the live run did not end within {limit_s:g} s")
            raise
    if code == 0:
        return LiveRun(folder)
    said = _last_line(log) if log and quiet else ""
    return LiveRun(None, f"the live run failed (exit code {code}){': ' + said if said else ''}", code)


def with_package(path: str) -> str:
    """A PYTHONPATH on which child processes find this package."""
    package = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([package, *(part for part in path.split(os.pathsep) if part and part != package)])


def _end(process: subprocess.Popen[bytes], *, group: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.terminate()
    process.wait()


def _last_line(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("rcatools: ")[:300] if lines else ""
