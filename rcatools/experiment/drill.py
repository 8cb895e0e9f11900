"""A workload without a device: times are drawn, and arms fail on purpose.

It proves on the machine where a recording will run that the engine survives what can happen there. An arm
asks for its failure through its environment:

    RCATOOLS_DRILL         none, error, out_of_memory, capture_failed, device_lost, mismatch (outcomes of the run);
                           crash (ends by SIGSEGV), leave (exit code 7), hang (never answers), large (a result of 256 KiB)
    RCATOOLS_DRILL_RANK    the failure is this rank's; the others wait for it for ever, as in a collective
    RCATOOLS_DRILL_EFFECT  factor on the drawn times, such as 1.02
    RCATOOLS_DRILL_FIFO    a named pipe; while it exists, a run writes its process id into it and then hangs
"""

from __future__ import annotations

import os
import signal
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from rcatools.errors import RunError

NEEDS_TORCH = False
SEVERAL_RANKS = True
STEP_US = 1000.0
RUN_SPREAD = 0.003
SAMPLE_SPREAD = 0.002
_MESSAGES = {
    "error": "the drill failed",
    "out_of_memory": "drill: out of memory",
    "capture_failed": "drill: operation not permitted when stream is capturing",
    "device_lost": "drill: an illegal memory access was encountered",
}


def run(torch: Any, task: dict[str, Any]) -> dict[str, Any]:
    """One run of the drill: 20 drawn step times, or the failure its environment asks for.

    The times depend on the run's id and the arm's effect alone, so that a run made again gives the same.
    """
    _wait_if_asked(os.environ.get("RCATOOLS_DRILL_FIFO"))
    fault = os.environ.get("RCATOOLS_DRILL", "none")
    if os.environ.get("RCATOOLS_DRILL_RANK", str(task.get("rank", 0))) != str(task.get("rank", 0)):
        fault = "hang"
    if fault in _MESSAGES:
        raise RunError(_MESSAGES[fault])
    if fault == "crash":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "leave":
        os._exit(7)
    if fault == "hang":
        _hang()
    rng = np.random.default_rng(zlib.crc32(task["run"].encode()))
    effect = float(os.environ.get("RCATOOLS_DRILL_EFFECT", "1"))
    level = STEP_US * effect * np.exp(rng.normal(0, RUN_SPREAD))
    values = level * np.exp(rng.normal(0, SAMPLE_SPREAD, 20))
    facts: dict[str, Any] = {"padding_seen": len(os.environ.get("RCATOOLS_PADDING", ""))}
    facts |= {"output_sha256": "0" * 64, "output_rel_error": 1.0 if fault == "mismatch" else 0.0}
    facts["output_tolerance"] = 0.01
    if fault == "large":
        facts["ballast"] = "x" * 2**18
    return {"samples": {"step_us": values.tolist()}, "kernels": {}, "facts": facts}


def _wait_if_asked(fifo: str | None) -> None:
    if fifo and Path(fifo).exists():
        with open(fifo, "w", encoding="ascii") as pipe:
            pipe.write(f"{os.getpid()}\n")
        _hang()


def _hang() -> None:
    while True:
        signal.pause()
