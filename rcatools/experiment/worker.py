"""One run in one process: reads its task, measures, writes its part, ends.

A forked worker is a child of a process that imported torch and never touched the device; a spawned one
is ``python -m rcatools.experiment.worker TASK.json``. Whatever goes wrong inside is an outcome of the
run, written like any other result.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcatools.device.backend import import_torch
from rcatools.errors import RcaError
from rcatools.experiment import ranks, workloads
from rcatools.experiment.arms import Action, Arm
from rcatools.files import StorageError, write_json
from rcatools.recording.writer import part_path
from rcatools.workload.config import DecodeConfig

PR_SET_PDEATHSIG = 1
EXIT_STORAGE = 74  # sysexits.h: EX_IOERR
EXIT_RANK_FAILED = 3


def execute(task: dict[str, Any]) -> dict[str, Any]:
    """Measure one task and return its part document; a failed measurement is an outcome, not an exception.

    Args:
        task: "run", "arm" (the arm's declaration), "block", "order", "isolation", "backend", "uuid",
            "config", "folder", "workload", "frames", and "rank", "ranks", "meeting" where several
            processes measure together.

    Raises:
        StorageError: the recording's disk is full, which says nothing about the arm.
    """
    started = time.monotonic()
    part: dict[str, Any] = {key: task[key] for key in ("run", "block", "order", "isolation")}
    part |= {"arm": task["arm"]["name"], "started_utc": datetime.now(UTC).isoformat(timespec="milliseconds")}
    part |= {"outcome": "ok", "reason": None, "samples": {}, "kernels": {}, "facts": {}}
    try:
        part |= _measure(task)
        part["outcome"], part["reason"] = judge_numbers(part["facts"])
    except StorageError:
        raise
    except Exception as error:
        part["outcome"], part["reason"] = classify(error)
        traceback.print_exc()
    part["facts"]["pid"] = os.getpid()
    part["facts"]["env_padding"] = task.get("env_padding", 0)
    part["wall_s"] = time.monotonic() - started
    return part


def _measure(task: dict[str, Any]) -> dict[str, Any]:
    name = task["workload"]
    if not workloads.needs_torch(name):
        return workloads.run_workload(None, task)
    torch = import_torch()
    backend, folder = task["backend"], Path(task["folder"])
    clean = prove_clean(torch, backend)
    if backend == "cpu":
        torch.set_num_threads(1)
    if name != "decode":
        result = workloads.run_workload(torch, task)
    else:
        from rcatools.experiment import decode

        config, arm = DecodeConfig(**task["config"]), arm_from_dict(task["arm"])
        with ranks.together(torch, task) as group:
            if task["block"] < 0:
                result = decode.inspection_run(
                    torch, backend, config, arm, folder, frames=task["frames"], write=group.rank == 0
                )
            else:
                result = decode.timed_run(torch, backend, config, arm, task.get("uuid"), group=group)
            result["facts"] |= group.facts(torch)
    result["facts"]["parent_had_context"] = not clean
    return result


def judge_numbers(facts: dict[str, Any]) -> tuple[str, str | None]:
    """The outcome a run deserves by its numbers: "mismatch" where the output leaves its tolerance."""
    error, tolerance = facts.get("output_rel_error"), facts.get("output_tolerance")
    if error is None or tolerance is None or error <= tolerance:
        return "ok", None
    return "mismatch", f"output differs from float64 by {error:.3g} (relative), {tolerance:.3g} is allowed"


def prove_clean(torch: Any, backend: str) -> bool:
    """True if this process holds no device context yet and did not inherit one.

    Raises:
        RcaError: it does; a measurement here would not be isolated.
    """
    if backend != "cpu" and (torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork()):
        raise RcaError("this worker inherited a device context: record with --isolation spawn")
    return True


def classify(error: Exception) -> tuple[str, str]:
    """Outcome and one-line reason of an exception raised by a measurement."""
    text = " ".join(str(error).split())[:500] or type(error).__name__
    lowered = text.lower()
    if (
        isinstance(error, MemoryError)
        or any(sign in lowered for sign in ("out of memory", "can't allocate memory", "not enough memory"))
        or type(error).__name__ == "OutOfMemoryError"
    ):
        return "out_of_memory", text
    if "captur" in lowered:
        return "capture_failed", text
    lost = (
        "illegal memory access",
        "device-side assert",
        "unspecified launch failure",
        "ecc error",
        "device lost",
    )
    if any(sign in lowered for sign in lost):
        return "device_lost", text
    return "error", f"{type(error).__name__}: {text}"


def arm_from_dict(document: dict[str, Any]) -> Arm:
    """The Arm of a manifest's or a task's declaration."""
    actions = {}
    for stage, texts in document.get("actions", {}).items():
        pairs = (text.partition(":") for text in texts)
        actions[stage] = tuple(Action(name, argument or None) for name, _, argument in pairs)
    plain = {key: value for key, value in document.items() if key not in {"actions", "backends"}}
    return Arm(**plain, actions=actions, backends=tuple(document.get("backends", ())))


def die_with_parent(parent: int) -> None:
    """Ask the kernel to end this process when its parent ends, and ignore the terminal's Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(EXIT_RANK_FAILED)


def run_and_write(task: dict[str, Any]) -> int:
    """Execute a task and write its part, whole or not at all; returns the exit code."""
    try:
        part = execute(task)
        write_json(result_path(task), part)
    except StorageError as error:
        print(error, file=sys.stderr, flush=True)
        return EXIT_STORAGE
    return EXIT_RANK_FAILED if task.get("ranks", 1) > 1 and part["outcome"] not in {"ok", "mismatch"} else 0


def result_path(task: dict[str, Any]) -> Path:
    """Where this process leaves its result: the run's part, or one file per rank."""
    if task.get("ranks", 1) == 1:
        return part_path(Path(task["folder"]), task["run"])
    return ranks.result_path(Path(task["folder"]), task["run"], task["rank"])


def main() -> int:
    """Entry point of a spawned worker."""
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    die_with_parent(task["parent"])
    code = run_and_write(task)
    sys.stdout.flush()
    os._exit(code)  # the part is written: tearing down a device context of tens of GB only costs time


if __name__ == "__main__":
    raise SystemExit(main())
