"""Small sweeps for tests: tables to compare, notebooks that end in every way, one call of the command."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def comparison(folder: Path, name: str, step: float, seed: int = 0) -> str:
    """A table of ten blocks; returns its name relative to the folder."""
    rng = random.Random(seed)
    lines = ["arm,block,value"]
    for block in range(10):
        lines.append(f"before,{block},{100 * rng.gauss(1, 0.002)}")
        lines.append(f"after,{block},{100 * step * rng.gauss(1, 0.002)}")
    (folder / name).write_text("\n".join(lines) + "\n")
    return name


def notebook(
    folder: Path,
    name: str,
    *cells: str,
    parameters: str | None = "x: int = 1  # a number",
    kernel: bool = True,
) -> str:
    """A notebook; returns its name relative to the folder."""
    made = [] if parameters is None else [new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    book = new_notebook(cells=[*made, *map(new_code_cell, cells)], metadata=KERNEL if kernel else {})
    nbformat.write(book, folder / f"{name}.ipynb")
    return f"{name}.ipynb"


def table(folder: Path, rows: Sequence[dict[str, Any]], name: str = "sweep.csv") -> Path:
    """A sweep table."""
    header = list(dict.fromkeys(key for row in rows for key in row))
    path = folder / name
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, header, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def sweep(
    path: Path, out: Path, *words: str, python: str = sys.executable, **options: Any
) -> subprocess.CompletedProcess[str]:
    """``rcatools sweep`` in a process of its own."""
    command = [python, "-m", "rcatools", "sweep", str(path), "--out", str(out), "--gpus", "none", *words]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,
    )


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The summary that ``--json`` printed."""
    return dict(json.loads(done.stdout, parse_constant=_refuse))


def _refuse(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")
