"""What this machine has and what is missing, found without changing anything."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rcatools.device import clocks
from rcatools.device.backend import choose_backend, describe, device_count
from rcatools.device.fingerprint import MASKS, environment

STAMP = "torch-version"
RECORDER = ("torch", "numpy", "pandas", "pyarrow", "scipy")
REPORTER = ("statsmodels", "msgspec", "plotly", "papermill", "nbconvert", "jinja2", "rich")
OPTIONAL = {
    "triton": "the Triton kernels of the decode step (torch's own are used instead)",
    "pynvml": "clocks, temperature and neighbours on NVIDIA (package nvidia-ml-py)",
    "amdsmi": "clocks, temperature and neighbours on AMD (comes with ROCm)",
    "ray": "sweeps over several machines (extra 'cluster')",
    "jupyterlab": "the notebooks by hand (extra 'lab')",
}


@dataclass(frozen=True)
class Finding:
    """One thing a person should know.

    Attributes:
        level: "problem" (the doctor fails), "warning" or "note".
        text: what, and what to do.
    """

    level: str
    text: str


def stamp_problem(prefix: Path | None = None) -> Finding | None:
    """Whether installing this project changed torch: the version written at set-up against the one there is now.

    Args:
        prefix: the environment, ``sys.prefix`` by default; without a stamp there is nothing to compare.
    """
    file = (prefix or Path(sys.prefix)) / STAMP
    try:
        written = file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    found = version("torch")
    if written == found:
        return None
    return Finding(
        "problem",
        f"set-up found torch {written}, now it is {found or 'absent'}: something replaced it; "
        f"install torch {written} again, or run 'make distclean setup'",
    )


def version(package: str) -> str | None:
    """Installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def present(modules: tuple[str, ...]) -> dict[str, bool]:
    """Whether each module can be imported, without importing it."""
    return {name: importlib.util.find_spec(name) is not None for name in modules}


def examine(torch: Any | None) -> dict[str, Any]:
    """Everything the doctor tells, plain JSON.

    Args:
        torch: the module, or None where it is not installed. A GPU context is created if there is a GPU.

    Returns:
        "python", "executable_prefix_is_venv", "environment", "masks", "torch" (version, build, devices) or None,
        "device", "clocks" (readable, reading, cost in us), "packages", "findings" (level and text) and "ok".
    """
    packages = present(RECORDER + REPORTER) | present(tuple(OPTIONAL))
    report: dict[str, Any] = {
        "environment": environment(torch),
        "virtual_environment": sys.prefix != sys.base_prefix,
        "masks": {name: os.environ[name] for name in MASKS if name in os.environ},
        "packages": packages,
        "tools": {name: shutil.which(name) is not None for name in ("nvidia-smi", "rocm-smi", "amd-smi")},
        "torch": None,
        "device": None,
        "clocks": {"readable": False, "reading": None, "cost_us": None},
    }
    if torch is not None:
        build = "rocm" if torch.version.hip else ("cuda" if torch.version.cuda else "cpu")
        report["torch"] = {"version": torch.__version__, "build": build, "devices": device_count(torch)}
        backend = choose_backend("auto", torch)
        device = describe(backend, torch)
        report["device"] = device.as_dict()
        report["clocks"] = read_clocks(backend, device.uuid)
    found = findings(report)
    stamp = stamp_problem()
    found = [stamp, *found] if stamp else found
    report["findings"] = [asdict(item) for item in found]
    report["ok"] = all(item.level != "problem" for item in found)
    return report


def read_clocks(backend: str, uuid: str | None) -> dict[str, Any]:
    """Whether clocks can be read, one reading, and what a reading costs."""
    monitor = clocks.DeviceMonitor(backend, uuid)
    reading = monitor.read()
    readable = reading.sm_clock_mhz is not None
    cost = clocks.read_cost_us(monitor) if readable else None
    return {"readable": readable, "reading": reading.as_dict(), "cost_us": cost}


def findings(report: dict[str, Any]) -> list[Finding]:
    """What follows from an examination, problems first."""
    found = [
        *_about_packages(report["packages"]),
        *_about_torch(report),
        *_about_masks(report["masks"], report["torch"]),
        *_about_neighbours(report["clocks"], report["device"]),
    ]
    return sorted(found, key=lambda item: ("problem", "warning", "note").index(item.level))


def _about_packages(packages: dict[str, bool]) -> list[Finding]:
    found = []
    missing = [name for name in RECORDER if name != "torch" and not packages.get(name, False)]
    if missing:
        text = f"missing: {', '.join(missing)}; 'rcatools record' needs them: pip install {' '.join(missing)}"
        found.append(Finding("problem", text))
    missing = [name for name in REPORTER if not packages.get(name, False)]
    if missing:
        text = f"missing: {', '.join(missing)}; recording works, reports need them: pip install -e ."
        found.append(Finding("note", text))
    return found


def _about_torch(report: dict[str, Any]) -> list[Finding]:
    torch, tools = report["torch"], report["tools"]
    if torch is None:
        return [
            Finding(
                "note",
                "no torch: reports, comparisons, traces and snapshots work; to measure, use your card's container "
                "(it brings its build) or 'pip install torch' for the CPU",
            )
        ]
    vendor = "NVIDIA" if tools["nvidia-smi"] else "AMD" if tools["rocm-smi"] or tools["amd-smi"] else None
    wanted = {"NVIDIA": "cuda", "AMD": "rocm"}
    if vendor and torch["build"] != wanted[vendor]:
        text = f"an {vendor} tool is installed, but this torch is a {torch['build']} build: install the {wanted[vendor]} one"
        return [Finding("warning", text)]
    if torch["devices"] == 0:
        why = "hidden by a mask, or the driver does not answer" if torch["build"] != "cpu" else "a CPU build"
        return [Finding("note" if torch["build"] == "cpu" else "warning", f"torch sees no GPU ({why})")]
    return []


def _about_masks(masks: dict[str, str], torch: dict[str, Any] | None) -> list[Finding]:
    found = []
    if "ROCR_VISIBLE_DEVICES" in masks and "HIP_VISIBLE_DEVICES" in masks:
        text = (
            "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES are both set: HIP's numbers count inside what ROCR leaves, "
            "so both together can hide every GPU"
        )
        found.append(Finding("warning", text))
    if torch and torch["build"] == "rocm" and "CUDA_VISIBLE_DEVICES" in masks:
        text = "CUDA_VISIBLE_DEVICES is set on ROCm: use HIP_VISIBLE_DEVICES"
        found.append(Finding("warning", text))
    return found


def _about_neighbours(read: dict[str, Any], device: dict[str, Any] | None) -> list[Finding]:
    if device is None or device["backend"] == "cpu":
        return []
    found = []
    reading = read["reading"] or {}
    if not read["readable"]:
        text = (
            "clocks are not readable: runs under a throttle cannot be told apart (install pynvml or amdsmi)"
        )
        found.append(Finding("warning", text))
    if reading.get("other_processes"):
        text = f"{reading['other_processes']} other processes use this GPU: measure on a free one"
        found.append(Finding("warning", text))
    if reading.get("throttle") not in {None, "none", "not readable"}:
        text = f"the device runs at reduced clocks now ({reading['throttle']})"
        found.append(Finding("warning", text))
    return found
