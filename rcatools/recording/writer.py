"""Writes a recording so that a crash at any moment loses no finished run and never leaves half a file."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from rcatools.errors import InputError
from rcatools.files import finite, sync_folder, write_bytes, write_json
from rcatools.recording.reader import file_sha256
from rcatools.recording.schema import KERNEL_COLUMNS, RUN_COLUMNS, SAMPLE_COLUMNS, SCHEMA, VERSION

__all__ = [
    "TABLES",
    "exclusive",
    "finish",
    "finite",
    "part_path",
    "read_parts",
    "sync_folder",
    "tables",
    "write_bytes",
    "write_json",
    "write_manifest",
    "write_table",
]

TABLES = ("runs.parquet", "samples.parquet", "kernels.parquet")


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a recording folder for one runner; InputError where another runner holds it.

    The lock belongs to the open file, so it ends with the process however that ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"another runner is writing {folder}: wait for it or choose another --out"
            ) from None
        os.set_inheritable(stream.fileno(), False)
        yield


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
            if (
                not isinstance(part, dict)
                or part.get("run") != file.stem
                or not isinstance(part.get("outcome"), str)
            ):
                raise ValueError("not the result of this run")
            parts[file.stem] = part
        except ValueError:
            (place / "damaged").mkdir(exist_ok=True)
            file.replace(place / "damaged" / file.name)
            damaged.append(file.stem)
    return parts, damaged


def tables(parts: list[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The runs, samples and kernels tables of a list of part documents."""
    runs, samples, kernels = [], [], []
    for part in parts:
        key = {name: part.get(name) for name in ("arm", "block", "order", "run")}
        runs.append({**{name: part.get(name) for name in RUN_COLUMNS}, **part.get("facts", {})})
        for metric, values in part.get("samples", {}).items():
            samples += [{**key, "metric": metric, "sample": i, "value": v} for i, v in enumerate(values)]
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
    runs = pd.read_parquet(folder / "runs.parquet") if (folder / "runs.parquet").is_file() else pd.DataFrame()
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
        },
        "files": {str(file.relative_to(folder)): file_sha256(file) for file in sorted(files)},
    }
    write_manifest(folder, document)
    if state == "complete" and set(parts) <= set(runs.get("run", ())):
        shutil.rmtree(folder / "parts", ignore_errors=True)
    return document


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
