"""Writes a recording so that a crash at any moment loses no finished run and never leaves half a file."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from rcatools.errors import InputError
from rcatools.files import write_bytes, write_json
from rcatools.recording.reader import file_sha256
from rcatools.recording.schema import KERNEL_COLUMNS, QUIET, RUN_COLUMNS, SAMPLE_COLUMNS, SCHEMA, VERSION

TABLES = ("runs.parquet", "samples.parquet", "kernels.parquet")
_PART_KEYS = {"run": str, "arm": str, "block": int, "order": int, "outcome": str, "samples": dict}


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a recording folder for one runner; InputError where another runner holds it.

    The lock belongs to the open file, so it ends with the process however that ends.
    """
    fresh = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / ".lock").open("w")
    except OSError as error:
        why = "it is a file" if folder.is_file() else error.strerror
        raise InputError(f"cannot write into {folder}: {why}; choose another folder") from None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"another runner is writing {folder}: wait for it or choose another --out"
            ) from None
        os.set_inheritable(stream.fileno(), False)
        try:
            yield
        except BaseException:  # refused before anything was made: leave nothing behind
            if fresh and [item.name for item in folder.iterdir()] == [".lock"]:
                (folder / ".lock").unlink()
                folder.rmdir()
            raise


def write_manifest(folder: Path, document: dict[str, Any]) -> None:
    """Write manifest.json of a recording."""
    write_json(folder / "manifest.json", {"schema": SCHEMA, "version": VERSION, **document})


def part_path(folder: Path, run: str) -> Path:
    """Where the result of one run is kept while the recording is being made."""
    return folder / "parts" / f"{run}.json"


def read_parts(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """All results of single runs, and the names of part files that cannot be read.

    A damaged part is moved to ``parts/damaged`` so that its run is made again; nothing is deleted.
    """
    parts: dict[str, dict[str, Any]] = {}
    damaged: list[str] = []
    place = folder / "parts"
    for file in sorted(place.glob("*.json")) if place.is_dir() else []:
        try:
            part = json.loads(file.read_text(encoding="utf-8"))
            _check_part(part, file.stem)
            parts[file.stem] = part
        except ValueError:
            (place / "damaged").mkdir(exist_ok=True)
            file.replace(place / "damaged" / file.name)
            damaged.append(file.stem)
    return parts, damaged


def _check_part(part: Any, run: str) -> None:
    """ValueError unless the document is the whole result of this run."""
    if not isinstance(part, dict) or part.get("run") != run:
        raise ValueError("not the result of this run")
    for key, kind in _PART_KEYS.items():
        if not isinstance(part.get(key), kind):
            raise ValueError(f"'{key}' is missing or wrong")
    series = [*part["samples"].values(), *part.get("kernels", {}).values()]
    if not all(isinstance(v, int | float) and v > 0 for values in series for v in values):
        raise ValueError("a sample is no positive number")


def read_tabled(folder: Path) -> pd.DataFrame:
    """The runs that earlier calls gathered into runs.parquet; without a file no rows.

    Raises:
        InputError: the table is damaged.
    """
    return _read_table(folder / "runs.parquet", RUN_COLUMNS)


def samples_of(folder: Path, metric: str) -> pd.DataFrame:
    """All samples of a metric so far, from the tables and the parts beside them; columns SAMPLE_COLUMNS."""
    parts, _ = read_parts(folder)
    fresh = tables(list(parts.values()))[1]
    earlier = _read_table(folder / "samples.parquet", SAMPLE_COLUMNS)
    frames = [frame for frame in (earlier[~earlier["run"].isin(set(parts))], fresh) if len(frame)]
    found = pd.concat(frames, ignore_index=True) if frames else fresh
    return found[(found["metric"] == metric) & (found["block"] >= 0)]


def _read_table(file: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    if not file.is_file():
        return pd.DataFrame(columns=list(columns))
    try:
        return pd.read_parquet(file)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"{file} is damaged ({str(error).splitlines()[0]}): restore it or record into another --out"
        ) from None


def clean_leftovers(folder: Path) -> None:
    """Remove temporary files that an interrupted write left; the caller holds the folder."""
    for file in [*folder.glob(".*.tmp"), *folder.glob("*/.*.tmp")]:
        file.unlink(missing_ok=True)


def tables(parts: list[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The runs, samples and kernels tables of a list of part documents."""
    runs, samples, kernels = [], [], []
    for part in parts:
        key = {name: part.get(name) for name in ("arm", "block", "order", "run")}
        runs.append({**{name: part.get(name) for name in RUN_COLUMNS}, **part.get("facts", {})})
        suffix = "" if part["outcome"] == "ok" else f"_{part['outcome']}"  # kept, and never judged as a time
        for metric, values in part.get("samples", {}).items():
            name = metric + suffix
            samples += [{**key, "metric": name, "sample": i, "value": v} for i, v in enumerate(values)]
        for kernel, values in part.get("kernels", {}).items():
            kernels += [
                {
                    "arm": part["arm"],
                    "block": part["block"],
                    "run": part["run"],
                    "kernel": kernel,
                    "sample": i,
                    "us": v,
                }
                for i, v in enumerate(values)
            ]
    run_table = pd.DataFrame(runs, columns=None if runs else list(RUN_COLUMNS))
    sample_table = pd.DataFrame(samples, columns=list(SAMPLE_COLUMNS))
    kernel_table = pd.DataFrame(kernels, columns=list(KERNEL_COLUMNS))
    order = ["block", "order", "run"]
    return run_table.sort_values(order, ignore_index=True), sample_table, kernel_table


def finish(folder: Path, document: dict[str, Any], *, state: str) -> dict[str, Any]:
    """Gather the parts into the three tables and write the manifest with counts and hashes.

    Parts are removed only when the state is "complete" and the tables hold every one of them.
    Returns the manifest as written.
    """
    parts, damaged = read_parts(folder)
    if parts:
        for name, frame in zip(TABLES, tables(list(parts.values())), strict=True):
            whole = _with_earlier(folder / name, frame, set(parts))
            if not (name == "kernels.parquet" and whole.empty):
                write_table(folder / name, whole)
    runs = read_tabled(folder)
    ok = int((runs["outcome"] == "ok").sum()) if len(runs) else 0
    files = [
        file for file in folder.rglob("*") if file.suffix in {".parquet", ".gz"} and "parts" not in file.parts
    ]
    document = {
        **document,
        "state": state,
        "counts": {
            **document.get("counts", {}),
            "ok": ok,
            "failed": len(runs) - ok,
            "damaged_parts": len(damaged),
            "throttled": _count(runs, "throttle", lambda v: isinstance(v, str) and v not in QUIET),
            "shared_device": _count(runs, "other_processes", lambda v: bool(v and v > 0)),
            **count_blocks(runs, [arm["name"] for arm in document.get("design", {}).get("arms", [])]),
        },
        "files": {str(file.relative_to(folder)): file_sha256(file) for file in sorted(files)},
    }
    write_manifest(folder, document)
    if state == "complete" and set(parts) <= set(runs.get("run", ())):
        for name in ("parts", "ranks"):
            shutil.rmtree(folder / name, ignore_errors=True)
    return document


def _count(runs: pd.DataFrame, fact: str, seen: Callable[[Any], bool]) -> int:
    return sum(seen(value) for value in runs.get(fact, ()))


def count_blocks(runs: pd.DataFrame, arms: list[str]) -> dict[str, int]:
    """Blocks begun, blocks in which every arm has a result, and those in which every result is good."""
    timed = runs[runs["block"] >= 0]
    good = timed[timed["outcome"] == "ok"]

    def whole(frame: pd.DataFrame) -> int:
        seen = frame.groupby("block")["arm"].agg(set)
        return int(sum(found >= set(arms) for found in seen)) if arms else 0

    return {
        "blocks_begun": int(timed["block"].nunique()),
        "blocks_whole": whole(timed),
        "blocks_good": whole(good),
    }


def _with_earlier(file: Path, frame: pd.DataFrame, replaced: set[str]) -> pd.DataFrame:
    """The new rows after those of an earlier table whose runs have no part any more."""
    if not file.is_file():
        return frame
    earlier = pd.read_parquet(file)
    kept = earlier[~earlier["run"].isin(replaced)]
    return frame if kept.empty else pd.concat([kept, frame], ignore_index=True)


def write_table(path: Path, frame: pd.DataFrame) -> None:
    """Write a Parquet file (zstd) whole or not at all."""
    write_bytes(path, frame.to_parquet(index=False, compression="zstd"))
