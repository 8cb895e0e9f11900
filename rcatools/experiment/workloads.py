"""Workloads other than the decode step: a name and the function that runs one task of it."""

from __future__ import annotations

import importlib
from typing import Any

from rcatools.errors import InputError, UnknownNameError

# name -> module with ``run(torch, task) -> {"samples", "kernels", "facts"}``. A module that says
# ``NEEDS_TORCH = False`` is given None and runs where torch is not installed.
WORKLOADS: dict[str, str] = {"drill": "rcatools.experiment.drill", "vime": "rcatools.workload.vime.bench"}

ELSEWHERE = {"vllm": "rcatools serving record --model MODEL --out DIR"}  # servers in processes of their own


def needs_torch(name: str) -> bool:
    """Whether a workload measures with torch.

    Raises:
        UnknownNameError: no such workload.
    """
    return name == "decode" or bool(getattr(_module(name), "NEEDS_TORCH", True))


def check_parameters(name: str, parameters: dict[str, Any]) -> None:
    """Refuse parameters that the workload does not take, where its module has a function of this name.

    Raises:
        InputError: a parameter is not known, or its value cannot be used.
    """
    check = getattr(_module(name), "check_parameters", None)
    if check is not None:
        check(parameters)


def several_ranks(name: str) -> bool:
    """Whether a workload can run as several processes (a module says ``SEVERAL_RANKS = True``)."""
    return name == "decode" or bool(getattr(_module(name), "SEVERAL_RANKS", False))


def run_workload(torch: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Run one task of a registered workload; the result has the form of ``decode.timed_run``."""
    return dict(_module(task["workload"]).run(torch, task))


def _module(name: str) -> Any:
    if name in ELSEWHERE:
        raise InputError(f"workload {name!r} is not measured by 'rcatools record': use {ELSEWHERE[name]!r}")
    if name not in WORKLOADS:
        raise UnknownNameError("workload", name, {"decode", *WORKLOADS})
    return importlib.import_module(WORKLOADS[name])
