"""Reads one recording, report or job into flat rows for the index, as fast as a laptop can.

A verdict here is the one a report would give: the same reduction (median of a run), the same paired
comparison with the recording's own margin and A/A floor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rcatools.errors import InputError, RcaError
from rcatools.recording.reader import MAX_TABLE_BYTES, read_manifest
from rcatools.recording.schema import Manifest
from rcatools.stats.noise import noise_floor
from rcatools.stats.paired import compare_blocks

MAX_DOCUMENT_BYTES = 16 * 2**20
Floats = NDArray[np.float64]
_COLUMNS = ["arm", "block", "run", "metric", "value"]


@dataclass(frozen=True)
class Found:
    """One thing found on disk.

    Attributes:
        kind: "recording", "report", "job", or "folder" for one that cannot be listed.
        path: relative to the indexed folder.
        stamp: changes when its files do.
    """

    kind: str
    path: str
    stamp: str


@dataclass
class Rows:
    """Flat rows by table."""

    recordings: list[dict[str, Any]] = field(default_factory=list)
    effects: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)


def read_all(root: str, found: list[Found]) -> Rows:
    """Rows of many things; what cannot be read becomes a row of ``problems``."""
    rows = Rows()
    readers = {"recording": _recording, "report": _report, "job": _job, "folder": _folder}
    for item in found:
        part = Rows()
        try:
            readers[item.kind](Path(root), item, part)
        except (RcaError, OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            line = " ".join(str(error).split())[:400] or type(error).__name__
            rows.problems.append({"path": item.path, "kind": item.kind, "stamp": item.stamp, "reason": line})
            continue
        for name in vars(rows):
            getattr(rows, name).extend(getattr(part, name))
    return rows


def _folder(root: Path, item: Found, rows: Rows) -> None:
    raise InputError(f"the folder {root / item.path} cannot be listed: what it holds is not in the index")


# --- recordings ---------------------------------------------------------------------------------------


def _recording(root: Path, item: Found, rows: Rows) -> None:
    folder = root / item.path
    manifest = read_manifest(folder)
    job = _owning_job(folder)
    metric, table, total = _levels(folder, manifest)
    arms, blocks, values = table
    matrix = {arm: values[i] for i, arm in enumerate(arms)}
    baseline = manifest.baseline
    if baseline not in matrix:
        raise InputError(f"{folder} has no sample of its baseline {baseline!r}")
    roles = {arm["name"]: str(arm.get("role", "")) for arm in manifest.design["arms"]}
    repeats = [arm for arm in arms if roles.get(arm) == "repeat"]
    floors = [noise_floor(matrix[baseline], matrix[arm]) for arm in repeats]
    floor = max((f for f in floors if f), key=lambda f: f.floor, default=None)
    key = {"recording": item.path}
    rows.recordings.append(
        {
            **key,
            "stamp": item.stamp,
            **_facts(manifest, job),
            "metric": metric,
            "blocks": len(blocks),
            "samples": total,
            "baseline_us": _geometric(matrix[baseline]),
            "noise_floor": floor.floor if floor else None,
            "noise_sd": floor.sd_log if floor else None,
        }
    )
    for arm in arms:
        level = _geometric(matrix[arm])
        entry = {**key, "arm": arm, "role": roles.get(arm, ""), "metric": metric, "level_us": level}
        usable = np.isfinite(matrix[arm]) & np.isfinite(matrix[baseline])
        if arm != baseline and usable.any():
            c = compare_blocks(
                matrix[baseline],
                matrix[arm],
                margin=manifest.margin,
                confidence=float(manifest.design.get("confidence", 0.95)),
                noise_floor=floor.floor if floor and arm not in repeats else None,
                arm=arm,
                baseline_name=baseline,
            )
            entry |= {
                "n": c.estimate.n,
                "ratio": c.estimate.ratio,
                "ci_low": c.estimate.ci_low,
                "ci_high": c.estimate.ci_high,
                "p_value": c.p_value,
                "mde": c.mde,
                "verdict": str(c.verdict),
                "reasons": ",".join(str(reason) for reason in c.reasons),
            }
        rows.effects.append(entry)
        rows.runs.extend(
            {**key, "arm": arm, "block": int(block), "value_us": float(value)}
            for block, value in zip(blocks, matrix[arm], strict=True)
            if np.isfinite(value)
        )


def _levels(folder: Path, manifest: Manifest) -> tuple[str, tuple[list[str], NDArray[np.int64], Floats], int]:
    """Metric, (arms, blocks, median of each run as arms x blocks, NaN where missing), samples of the metric."""
    file = folder / "samples.parquet"
    if not file.is_file():
        raise InputError(f"{folder} has no samples.parquet")
    if file.stat().st_size > MAX_TABLE_BYTES:
        raise InputError(f"{file} is larger than {MAX_TABLE_BYTES} bytes")
    # Read from memory in this thread: handing a small file to Arrow's threads takes longer than reading it.
    source = pq.ParquetFile(pa.BufferReader(file.read_bytes()), pre_buffer=False)
    table = source.read(_COLUMNS, use_threads=False)
    if not table.num_rows:
        raise InputError(f"{file} holds no sample")
    metrics = set(pc.unique(table["metric"]).to_pylist())
    metric = str(manifest.design.get("metric") or "step_us")
    if metric not in metrics:
        raise InputError(f"{file} holds no sample of {metric!r}")
    values = table["value"].to_numpy().astype(float)
    if not (np.isfinite(values) & (values > 0)).all():
        raise InputError(f"{file} holds values that are not positive finite numbers")
    block = table["block"].to_numpy().astype(np.int64)
    chosen = (block >= 0) & pc.equal(table["metric"], metric).to_numpy(zero_copy_only=False)
    arm = pc.dictionary_encode(table["arm"]).combine_chunks()
    names, code = arm.dictionary.to_pylist(), arm.indices.to_numpy().astype(np.int64)
    blocks, place = np.unique(block[chosen], return_inverse=True)
    if not blocks.size:
        raise InputError(f"{file} holds no timed sample of {metric!r}")
    wanted = [name for name in manifest.arm_names if name in names]
    result = np.full((len(names), blocks.size), np.nan)
    cells, medians = _medians(code[chosen] * blocks.size + place, values[chosen])
    result.flat[cells] = medians
    rows = [names.index(name) for name in wanted if np.isfinite(result[names.index(name)]).any()]
    return metric, ([str(names[i]) for i in rows], blocks, result[rows]), int(chosen.sum())


def _medians(cell: NDArray[np.int64], values: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Cells that occur, and the median of the values in each."""
    order = np.lexsort((values, cell))
    cells, first, count = np.unique(cell[order], return_index=True, return_counts=True)
    ordered = values[order]
    return cells, (ordered[first + (count - 1) // 2] + ordered[first + count // 2]) / 2


def _geometric(values: Floats) -> float | None:
    usable = values[np.isfinite(values)]
    return float(np.exp(np.log(usable).mean())) if usable.size else None


def _facts(manifest: Manifest, job: Mapping[str, Any]) -> dict[str, Any]:
    device, environment = manifest.device, manifest.environment
    code, packages = _mapping(environment.get("code")), _mapping(environment.get("packages"))
    labels = {str(k): str(v) for k, v in dict(job.get("labels") or {}).items()}
    workload = {"name": manifest.workload.get("name"), "parameters": manifest.workload.get("parameters")}
    text = json.dumps(workload, sort_keys=True, default=str)
    place = job.get("place") or {}
    return {
        "investigation": manifest.investigation,
        "state": manifest.state,
        "created_utc": str(manifest.created_utc),
        "day": labels.get("day") or str(manifest.created_utc)[:10],
        "backend": _text(device.get("backend")),
        "device": _text(device.get("name")),
        "arch": _text(device.get("arch")),
        "machine": labels.get("machine") or _machine(device, place),
        "host": labels.get("host") or _text(place.get("host")),
        "driver": _text(device.get("driver")),
        "torch": _text(packages.get("torch")),
        "commit": labels.get("commit") or _text(code.get("commit")),
        "dirty": bool(code.get("dirty")),
        "workload": hashlib.sha256(text.encode()).hexdigest()[:12],
        "baseline": manifest.baseline,
        "margin": manifest.margin,
        "planned": _count(manifest.counts, "planned"),
        "ok": _count(manifest.counts, "ok"),
        "failed": _count(manifest.counts, "failed"),
        "job": _text(job.get("job")),
        "name": _text(job.get("name")),
        "labels": json.dumps(labels, sort_keys=True),
        "current": bool(job.get("current", True)),
    }


def _machine(device: Mapping[str, Any], place: Mapping[str, Any]) -> str:
    """Identity of the card; without one the host, or the name of the processor."""
    return _text(device.get("uuid")) or _text(place.get("host")) or _text(device.get("name")) or "unknown"


def _count(counts: Mapping[str, Any], name: str) -> int | None:
    value = counts.get(name)
    return int(value) if isinstance(value, int | float) else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return str(value)[:300] if value not in {None, ""} else None


def _owning_job(folder: Path) -> dict[str, Any]:
    """Labels and state of the sweep's job that made this recording or report, {} where none did."""
    for attempt in folder.parents[:3]:
        if attempt.parent.name == "attempts" and (attempt.parents[1] / "job.json").is_file():
            home = attempt.parents[1]
            document, status = _document(home / "job.json"), _document(home / "status.json", missing_ok=True)
            current = status.get("state") == "done" and str(status.get("attempt")) == attempt.name
            return {
                "job": home.name,
                "name": document.get("name"),
                "labels": document.get("labels"),
                "place": status.get("place"),
                "current": current,
            }
    return {}


# --- reports and jobs ---------------------------------------------------------------------------------


def _report(root: Path, item: Found, rows: Rows) -> None:
    document = _document(root / item.path / "verdict.json")
    effect = document.get("effect") or {}
    job = _owning_job(root / item.path)
    hypotheses = [h for h in document.get("hypotheses") or () if isinstance(h, dict)]
    rows.reports.append(
        {
            "report": item.path,
            "stamp": item.stamp,
            "investigation": _text(document.get("investigation")),
            "answer": str(document.get("answer") or "")[:2000],
            "verdict": _text(effect.get("verdict")),
            "arm": _text(effect.get("arm")),
            "ratio": _number(effect.get("ratio")),
            "ci_low": _number(effect.get("ci_low")),
            "ci_high": _number(effect.get("ci_high")),
            "supported": ",".join(str(h.get("id")) for h in hypotheses if h.get("status") == "supported"),
            "name": _text(job.get("name")),
            "labels": json.dumps(job.get("labels") or {}, sort_keys=True),
        }
    )


def _job(root: Path, item: Found, rows: Rows) -> None:
    home = root / item.path
    document, status = _document(home / "job.json"), _document(home / "status.json", missing_ok=True)
    attempt = status.get("attempt")
    result = _document(home / "attempts" / str(attempt) / "result.json", missing_ok=True) if attempt else {}
    place = status.get("place") or {}
    rows.jobs.append(
        {
            "job": item.path,
            "stamp": item.stamp,
            "row": document.get("row") if isinstance(document.get("row"), int) else None,
            "name": _text(document.get("name")),
            "kind": _text(document.get("kind")),
            "state": str(status.get("state") or "pending"),
            "verdict": _text(result.get("verdict")),
            "attempts": int(attempt) if isinstance(attempt, int) else 0,
            "seconds": _number(status.get("seconds")),
            "host": _text(place.get("host")),
            "backend": _text(place.get("backend")),
            "mask": _text(place.get("mask")),
            "error": _text(status.get("error")),
            "labels": json.dumps(document.get("labels") or {}, sort_keys=True),
        }
    )


def _document(path: Path, *, missing_ok: bool = False) -> dict[str, Any]:
    if missing_ok and not path.is_file():
        return {}
    if path.stat().st_size > MAX_DOCUMENT_BYTES:
        raise InputError(f"{path} is larger than {MAX_DOCUMENT_BYTES} bytes")
    document = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict):
        raise InputError(f"{path} holds no JSON object")
    return document


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and np.isfinite(value) else None
