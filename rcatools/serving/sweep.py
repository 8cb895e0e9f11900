"""The folder that ``vllm bench sweep serve`` leaves: one server process per combination, several runs on it.

    <experiment>/SERVE--<combination>-BENCH--<combination>/run=0.json, run=0.failure.json, warmup.json, summary.json

Either part of the folder's name is missing where nothing was varied there; summary.json holds the same runs again.

All repetitions of one serve combination are made on ONE server, so they say nothing about what a process draws at its
start: a combination is one run here, and its repetitions are samples of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rcatools.errors import InputError
from rcatools.serving.results import BenchResult, read_results

MAX_FILES = 20_000
_RUN = re.compile(r"run=(\d+)(\.failure)?\.json")
_FOLDER = re.compile(r"(?:SERVE--(?P<serve>.*?))?(?:(?:^|-)BENCH--(?P<bench>.*))?")


@dataclass(frozen=True)
class SweepServer:
    """Everything measured on one server of a sweep.

    Attributes:
        name: the serve combination, "" where none was varied.
        results: measured runs by bench combination, in order.
        failures: runs that the sweep could not make.
        notes: files that were left out, and why.
    """

    name: str
    results: Mapping[str, tuple[BenchResult, ...]]
    failures: tuple[BenchResult, ...]
    notes: tuple[str, ...]


def is_sweep(folder: Path) -> bool:
    """Whether a folder holds runs of a sweep, at most two levels down."""
    return any(True for depth in ("", "*/", "*/*/") for _ in folder.glob(f"{depth}run=*.json"))


def read_sweep(folder: Path) -> tuple[SweepServer, ...]:
    """The servers of a sweep, in the order of their names.

    Raises:
        InputError: the folder holds no run of a sweep, several experiments, or a damaged file.
    """
    places = sorted({file.parent for file in folder.rglob("run=*.json")})
    experiments = {place.parent if _combination(place) else place for place in places}
    if len(experiments) != 1:
        what = f"{len(experiments)} experiments" if experiments else "no run"
        raise InputError(
            f"{folder} holds {what} of 'vllm bench sweep serve': give the folder of one experiment"
        )
    results: dict[str, dict[str, tuple[BenchResult, ...]]] = {}
    failures: dict[str, list[BenchResult]] = {}
    notes: dict[str, list[str]] = {}
    for place in places:
        serve, bench = _combination(place) or ("", "")
        runs, failed = _read_combination(place)
        results.setdefault(serve, {})[bench] = runs
        failures.setdefault(serve, []).extend(failed)
        noted = notes.setdefault(serve, [])
        if (place / "warmup.json").is_file():
            noted.append(f"{place.name}: the warm-up run is left out")
        if not runs:
            noted.append(f"{place.name}: no run was measured")
    if not any(runs for server in results.values() for runs in server.values()):
        raise InputError(f"{folder} holds no measured run: every run of the sweep failed, run it again")
    return tuple(
        SweepServer(name, results[name], tuple(failures[name]), tuple(notes[name]))
        for name in sorted(results)
    )


def _combination(folder: Path) -> tuple[str, str] | None:
    """Serve and bench combination in a folder's name, None where it names neither."""
    found = _FOLDER.fullmatch(folder.name)
    if found is None or (found["serve"] is None and found["bench"] is None):
        return None
    return found["serve"] or "", found["bench"] or ""


def _read_combination(folder: Path) -> tuple[tuple[BenchResult, ...], list[BenchResult]]:
    numbered = []
    for file in folder.iterdir():
        found = _RUN.fullmatch(file.name)
        if found and file.is_file():
            numbered.append((int(found[1]), bool(found[2]), file))
    if len(numbered) > MAX_FILES:
        raise InputError(f"{folder} holds more than {MAX_FILES} runs: give the folder of one experiment")
    runs: list[BenchResult] = []
    failed: list[BenchResult] = []
    for _, failure, file in sorted(numbered):
        (failed if failure else runs).extend(read_results(file))
    return tuple(runs), failed
