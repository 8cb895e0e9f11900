"""Recordings of the drill workload for tests of the engine: quick, without a device, the same values every time."""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.testing import assert_frame_equal

from rcatools.experiment.arms import Plan, parse_plan
from rcatools.experiment.runner import Options, record
from rcatools.recording.reader import Recording, open_recording

BLOCKS = 3


def quiet(number: int, total: int, part: dict[str, Any]) -> None:
    """A progress function that says nothing."""


def drill(*arms: tuple[str, str, dict[str, str]], blocks: int = BLOCKS, **more: Any) -> Plan:
    """A plan of the drill workload: a baseline, its repeat, and arms of (name, role, environment)."""
    tables = [("a", "baseline", {}), ("a2", "repeat", {}), *arms]
    document = {"workload": "drill", "baseline": "a", "metric": "step_us", "margin": 0.02, "blocks": blocks}
    document |= {"spawn_share": 0.0, **more}
    document["arm"] = [{"name": n, "role": r, "summary": n, "env": e} for n, r, e in tables]
    return parse_plan("drill", document, "arms.toml")


def make(plan: Plan, out: Path, **options: Any) -> dict[str, Any]:
    """Record a plan without inspections."""
    return record(plan, Options(out=out, **{"inspect": (), "timeout_s": 20.0} | options), quiet)


def same_samples(left: Path | Recording, right: Path | Recording) -> None:
    """Assert that two recordings hold the same samples, each once, and the same runs."""
    one, two = (r if isinstance(r, Recording) else open_recording(r) for r in (left, right))
    columns = ["run", "arm", "block", "order", "metric", "sample", "value"]
    key = ["run", "metric", "sample"]
    assert not one.samples.duplicated(key).any()
    assert_frame_equal(
        one.samples[columns].sort_values(key, ignore_index=True),
        two.samples[columns].sort_values(key, ignore_index=True),
    )
    runs = ["run", "arm", "block", "order", "isolation", "outcome"]
    assert_frame_equal(
        one.runs[runs].sort_values("run", ignore_index=True),
        two.runs[runs].sort_values("run", ignore_index=True),
    )


def in_child(function: Callable[[], int], output: Path) -> int:
    """Run a function in a forked child whose output goes into a file; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        os.setpgid(0, 0)
        sys.stdout = sys.stderr = output.open("w", buffering=1)
        for descriptor in (1, 2):
            os.dup2(sys.stdout.fileno(), descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = function()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def read_pid(fifo: Path) -> int:
    """The process id that a drill run writes into its pipe; waits for it."""
    with fifo.open(encoding="ascii") as pipe:
        return int(pipe.readline())


def ended(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process (a child or not) has ended, waiting for it up to a time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def values(recording: Recording) -> pd.DataFrame:
    """Medians of step_us by block and arm."""
    return recording.block_values("step_us")
