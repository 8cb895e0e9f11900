"""Workloads other than the decode step: a name and the function that runs one task of it."""

from __future__ import annotations

import importlib
from typing import Any

from rcatools.errors import UnknownNameError

# name -> module with ``run(torch, task) -> {"samples", "kernels", "facts"}``
WORKLOADS: dict[str, str] = {"vime": "rcatools.workload.vime.bench"}


def run_workload(torch: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Run one task of a registered workload; the result has the form of ``decode.timed_run``."""
    name = task["workload"]
    if name not in WORKLOADS:
        raise UnknownNameError("workload", name, {"decode", *WORKLOADS})
    return dict(importlib.import_module(WORKLOADS[name]).run(torch, task))
