"""Reads a recording folder and refuses a damaged one with one clear line."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rcatools.errors import InputError, UnknownNameError
from rcatools.recording.schema import (
    KERNEL_COLUMNS,
    RUN_COLUMNS,
    SAMPLE_COLUMNS,
    SCHEMA,
    STATES,
    VERSION,
    Manifest,
)

MAX_MANIFEST_BYTES = 16 * 2**20
MAX_TABLE_BYTES = 512 * 2**20
LARGEST = 1e30  # no time, rate or size is larger, and sums of such numbers stay finite
_REQUIRED = (
    "investigation",
    "state",
    "created_utc",
    "command",
    "device",
    "environment",
    "workload",
    "design",
)
_KINDS = {
    **dict.fromkeys(("run", "arm", "outcome", "metric", "kernel"), "text"),
    **dict.fromkeys(("block", "sample"), "a whole number"),
    **dict.fromkeys(("value", "us"), "a number"),
}
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True)
class Recording:
    """One recording in memory.

    Attributes:
        path: its folder.
        manifest: what was planned and where.
        runs: one row per run, columns RUN_COLUMNS and the facts of the workload.
        samples: one row per timed repetition, columns SAMPLE_COLUMNS.
        kernels: one row per timed repetition of one kernel, columns KERNEL_COLUMNS (may be empty).
        snapshots: allocator snapshot file of each arm that has one.
        traces: profiler trace file of each arm that has one.
        warnings: what a reader of the verdict must know (stopped early, changed files, ...).
    """

    path: Path
    manifest: Manifest
    runs: pd.DataFrame
    samples: pd.DataFrame
    kernels: pd.DataFrame
    snapshots: dict[str, Path]
    traces: dict[str, Path]
    warnings: tuple[str, ...]

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    def timed_runs(self) -> pd.DataFrame:
        """Runs that were timed (block 0 and up), failed ones included."""
        return self.runs[self.runs["block"] >= 0]

    def block_values(self, metric: str) -> pd.DataFrame:
        """One value per block (rows) and arm (columns): the median of the run's samples.

        The median of times is also the median of their logarithms, which makes this the reduction the
        paired comparison wants. A missing run is NaN.
        """
        chosen = self.samples[(self.samples["metric"] == metric) & (self.samples["block"] >= 0)]
        table = chosen.groupby(["block", "arm"], sort=True)["value"].median().unstack("arm")
        names = [name for name in self.manifest.arm_names if name in table.columns]
        return table.reindex(columns=names)

    def require_arm(self, name: str) -> str:
        """The name itself if samples of that arm exist; UnknownNameError otherwise."""
        present = set(self.samples["arm"].unique())
        if name not in present:
            raise UnknownNameError(f"arm in recording {self.name}", name, present)
        return name


def open_recording(path: Path | str) -> Recording:
    """Read a recording folder.

    Raises:
        InputError: the folder or one of its files is missing, damaged, too large or inconsistent.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    warnings: list[str] = []
    if manifest.state != "complete":
        warnings.append(
            f"recording {folder.name} is {manifest.state}, not complete: judged on the runs it has"
        )
    for name, digest in manifest.files.items():
        file = folder / name
        if _is_inside(folder, file) and file.is_file() and file_sha256(file) != digest:
            warnings.append(f"{name} of recording {folder.name} differs from the hash in its manifest")
    runs = _table(folder, "runs.parquet", RUN_COLUMNS, required=True)
    samples = _table(folder, "samples.parquet", SAMPLE_COLUMNS, required=True)
    kernels = _table(folder, "kernels.parquet", KERNEL_COLUMNS, required=False)
    _check_samples(folder, samples)
    return Recording(
        path=folder,
        manifest=manifest,
        runs=runs,
        samples=samples,
        kernels=kernels,
        snapshots=_arm_files(folder / "snapshots", ".pickle.gz"),
        traces=_arm_files(folder / "traces", ".json.gz"),
        warnings=tuple(warnings),
    )


def read_manifest(folder: Path) -> Manifest:
    """Read and check manifest.json of a recording folder; InputError where it cannot be used."""
    file = folder / "manifest.json"
    if not folder.is_dir():
        raise InputError(f"no recording at {folder}: give a folder written by 'rcatools record'")
    if not file.is_file():
        raise InputError(f"{folder} has no manifest.json: give a folder written by 'rcatools record'")
    if file.stat().st_size > MAX_MANIFEST_BYTES:
        raise InputError(
            f"{file} is larger than {MAX_MANIFEST_BYTES} bytes: it is not a manifest, give a folder written by 'rcatools record'"
        )
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is damaged ({error}): restore it or record again") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(
            f"{file} is not a recording manifest (its 'schema' is not {SCHEMA!r}): give a folder written by 'rcatools record'"
        )
    if document.get("version") != VERSION:
        raise InputError(
            f"{file} has schema version {document.get('version')!r}, this library reads {VERSION}: update rcatools"
        )
    missing = [key for key in _REQUIRED if key not in document]
    if missing:
        raise InputError(f"{file} lacks {', '.join(missing)}: restore it or record again")
    _check_types(file, document)
    known = {item.name for item in fields(Manifest)} - {"extra"}
    values = {key: value for key, value in document.items() if key in known}
    extra = {key: value for key, value in document.items() if key not in known | {"schema", "version"}}
    return Manifest(**values, extra=extra)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file as hexadecimal text."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_types(file: Path, document: dict[str, Any]) -> None:
    for key in ("device", "environment", "workload", "design"):
        if not isinstance(document[key], dict):
            raise InputError(f"{file}: '{key}' is not a mapping; restore it or record again")
    for key in ("ceilings", "counts", "files"):
        if not isinstance(document.get(key, {}), dict):
            raise InputError(f"{file}: '{key}' is not a mapping; restore it or record again")
    if document["state"] not in STATES:
        raise InputError(
            f"{file}: state {document['state']!r} is none of {', '.join(STATES)}; restore it or record again"
        )
    design = document["design"]
    for key in ("baseline", "margin", "arms"):
        if key not in design:
            raise InputError(f"{file}: the design lacks '{key}'; restore it or record again")
    arms = design["arms"]
    if not isinstance(arms, list) or not all(
        isinstance(arm, dict) and isinstance(arm.get("name"), str) for arm in arms
    ):
        raise InputError(
            f"{file}: 'design.arms' must be a list of mappings with a name; restore it or record again"
        )
    if design["baseline"] not in {arm["name"] for arm in arms}:
        raise InputError(
            f"{file}: baseline {design['baseline']!r} is not among its arms; restore it or record again"
        )
    margin = design["margin"]
    if not isinstance(margin, int | float) or not 0 < margin < 1:
        raise InputError(f"{file}: margin {margin!r} is not between 0 and 1; restore it or record again")


def _table(folder: Path, name: str, columns: tuple[str, ...], *, required: bool) -> pd.DataFrame:
    file = folder / name
    if not file.is_file():
        if required:
            raise InputError(
                f"{folder} has no {name}: finish it with 'rcatools record ... --resume' or record again"
            )
        return pd.DataFrame(columns=list(columns))
    if file.stat().st_size > MAX_TABLE_BYTES:
        raise InputError(f"{file} is larger than {MAX_TABLE_BYTES} bytes: give a recording of fewer runs")
    try:
        frame = pd.read_parquet(file)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"{file} is damaged ({str(error).splitlines()[0]}): restore it or record again"
        ) from None
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InputError(f"{file} lacks the columns {', '.join(missing)}; restore it or record again")
    for column in frame.columns:
        if not _plain(frame[column]):
            raise InputError(f"{file}: column {column} holds nested values; restore it or record again")
    for column in columns:
        if not _fits(column, frame[column]):
            raise InputError(
                f"{file}: column {column} does not hold {_KINDS[column]} in every row; restore it or record again"
            )
    return frame


def _fits(column: str, values: pd.Series[Any]) -> bool:
    """Whether every value is of the column's kind; columns without a kind may hold anything."""
    kind = _KINDS.get(column)
    if kind == "text":
        return all(isinstance(value, str) for value in values.unique())
    if kind is None or values.empty:
        return True
    if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return False
    if kind == "a number":
        return not bool((values.abs() > LARGEST).any())
    return bool(
        np.isfinite(values.astype(float)).all() and (values % 1 == 0).all() and (values.abs() < 2**53).all()
    )


def _plain(values: pd.Series[Any]) -> bool:
    """Whether every value is a text, a number, a truth value or missing."""
    return values.dtype != object or all(
        v is None or isinstance(v, str | int | float | np.generic) for v in values
    )


def _check_samples(folder: Path, samples: pd.DataFrame) -> None:
    values = pd.to_numeric(samples["value"], errors="coerce")
    bad = int((~(values > 0)).sum() + (values == float("inf")).sum())
    if bad:
        raise InputError(
            f"{folder / 'samples.parquet'} holds {bad} values that are not positive finite numbers; restore it or record again"
        )
    if samples.empty:
        raise InputError(
            f"{folder / 'samples.parquet'} holds no sample: no run finished, see logs/ and record again"
        )
    if samples.duplicated(["run", "metric", "sample"]).any():
        raise InputError(
            f"{folder / 'samples.parquet'} holds the same sample twice: it was merged wrongly, record again"
        )


def _arm_files(folder: Path, suffix: str) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    found = {}
    for file in sorted(folder.iterdir()):
        arm = file.name.removesuffix(suffix)
        if (
            file.name.endswith(suffix)
            and _SAFE_NAME.fullmatch(arm)
            and file.is_file()
            and _is_inside(folder, file)
        ):
            found[arm] = file
    return found


def _is_inside(folder: Path, file: Path) -> bool:
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))
