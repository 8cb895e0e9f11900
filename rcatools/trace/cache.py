"""A read trace as one Parquet file, so that reading it again takes no parsing."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rcatools.trace.model import CATEGORICAL, COLUMNS, EventCounts, Trace, TraceWarning, steps_table

VERSION = 2  # raised whenever a reader reads more or differently
_KEY = b"rcatools.trace"


def cache_path(source: Path, folder: Path) -> Path:
    """Where the cache of a trace file lies: one name per path, size, time of change and reader version."""
    stat = source.stat()
    what = f"{source.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{VERSION}"
    return folder / f"{hashlib.sha256(what.encode()).hexdigest()[:32]}.trace.parquet"


def store(trace: Trace, path: Path) -> None:
    """Write a trace; other readers see the old file or the whole new one."""
    kept = trace.kernels.assign(reason="")
    rows = pd.concat([kept, trace.excluded[kept.columns]], ignore_index=True) if len(trace.excluded) else kept
    described = {
        "label": trace.label,
        "format": trace.format,
        "devices": {str(number): name for number, name in trace.devices.items()},
        "meta": dict(trace.meta),
        "counts": asdict(trace.counts),
        "warnings": [warning.to_json() for warning in trace.warnings],
        "steps": {
            "name": [str(name) for name in trace.steps["name"]],
            "start_ns": trace.steps["start_ns"].tolist(),
            "dur_ns": trace.steps["dur_ns"].tolist(),
        },
    }
    table = pa.Table.from_pandas(rows.drop(columns=["start_us", "dur_us"]), preserve_index=False)
    table = table.replace_schema_metadata(
        {**(table.schema.metadata or {}), _KEY: json.dumps(described).encode()}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    pq.write_table(table, part, compression="zstd")
    os.replace(part, path)


def load(path: Path) -> Trace | None:
    """The trace of a cache file; None when there is none or it cannot be used."""
    try:
        table = pq.ParquetFile(path, pre_buffer=False).read(use_threads=False)
        described = json.loads((table.schema.metadata or {})[_KEY])
        return _trace(table.to_pandas(), described)
    except (OSError, KeyError, ValueError, TypeError, pa.ArrowException):
        return None


def _trace(rows: pd.DataFrame, described: dict[str, Any]) -> Trace:
    for column in ("start", "dur"):
        rows[f"{column}_us"] = rows[f"{column}_ns"] / 1000.0
    for column in CATEGORICAL:
        values = pd.Categorical(rows[column])
        texts = pd.Index([str(text) for text in values.categories], dtype=object)
        rows[column] = pd.Categorical.from_codes(values.codes, categories=texts)
    good = (rows["reason"].astype(object) == "").to_numpy()
    steps = described["steps"]
    return Trace(
        label=str(described["label"]),
        format=str(described["format"]),
        kernels=rows.loc[good, list(COLUMNS)].reset_index(drop=True),
        excluded=rows.loc[~good, [*COLUMNS, "reason"]].reset_index(drop=True),
        steps=steps_table(list(zip(steps["name"], steps["start_ns"], steps["dur_ns"], strict=True))),
        devices={int(number): name for number, name in described["devices"].items()},
        meta=described["meta"],
        counts=EventCounts(**described["counts"]),
        warnings=tuple(TraceWarning(**warning) for warning in described["warnings"]),
    )
