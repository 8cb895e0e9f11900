"""Imports only point left: each package may use only what stands before it in the architecture."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "rcatools"
BASE = {"errors", "units", "files"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "files": {"errors"},
    "device": BASE,
    "workload": BASE | {"device"},
    "recording": BASE,
    "stats": BASE,
    "experiment": BASE | {"workload", "device", "recording", "stats"},
    "trace": BASE | {"stats"},
    "memory": BASE,
    "diagnosis": BASE | {"stats", "trace", "memory", "recording"},
    "report": BASE
    | {"device", "workload", "recording", "experiment", "stats", "trace", "memory", "diagnosis"},
    "serving": BASE | {"experiment", "recording", "stats", "device"},
    "batch": BASE | {"report", "device", "workload", "recording", "experiment", "diagnosis", "stats"},
}
RECORDER = ("errors", "units", "files", "device", "workload", "recording", "experiment")
NOT_ON_A_GPU_CONTAINER = {
    "typer",
    "rich",
    "scipy_stubs",
    "msgspec",
    "plotly",
    "papermill",
    "nbconvert",
    "nbformat",
    "ipykernel",
    "jinja2",
    "isal",
    "yaml",
}


def imported_modules(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = path.relative_to(ROOT.parent).with_suffix("").parts
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level]) + "." if node.level else ""
            module = base + (node.module or "")
            names.add(module.rstrip("."))
            if module.rstrip(".") == "rcatools":  # a package, not the version string
                names.update(f"rcatools.{alias.name}" for alias in node.names if alias.name != "__version__")
    return names


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_package_imports_only_leftward(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py")) if (ROOT / room).is_dir() else [ROOT / f"{room}.py"]
    assert files
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imported_modules(file)
        if name.startswith("rcatools.") and name.split(".")[1] not in ALLOWED[room] | {room}
    ]
    assert not wrong


def test_recorder_needs_only_what_gpu_containers_have() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for room in RECORDER
        for file in (sorted((ROOT / room).rglob("*.py")) if (ROOT / room).is_dir() else [ROOT / f"{room}.py"])
        for name in imported_modules(file)
        if name.split(".")[0] in NOT_ON_A_GPU_CONTAINER
    ]
    assert not wrong


def test_modules_stay_readable() -> None:
    too_long = {
        str(f.relative_to(ROOT)): n
        for f in ROOT.rglob("*.py")
        if (n := len(f.read_text().splitlines())) > 420
    }
    assert not too_long
