"""Turns the times of ``benchmarks/capture_hazards.py`` into a recording, so that they are judged like any other.

    python -m rcatools.experiment.graph_recording capture_hazards.json data/recordings/NAME

Every form becomes an arm, ``graph_m<rows>_us`` and ``eager_m<rows>_us`` are the metrics: one exchange inside a
replayed graph, and launched eagerly. A process of the benchmark is a block here, because the process is the unit
of replication; its own blocks are samples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from rcatools.errors import InputError
from rcatools.experiment.converting import convert
from rcatools.experiment.provenance import with_source_commit
from rcatools.files import write_bytes
from rcatools.recording.reader import file_sha256
from rcatools.recording.schema import RUN_COLUMNS, SAMPLE_COLUMNS
from rcatools.recording.writer import write_manifest, write_table
from rcatools.workload.vime.logprob import FORMS

FORMAT = "rcatools-capture-hazards-2"
RAW = "capture_hazards.json"
MAX_BYTES = 64 * 2**20
BASELINE, REPEAT = "packed_cached", "packed_cached_again"
METRIC, MARGIN = "graph_m8_us", 0.05
COMMAND = "python benchmarks/capture_hazards.py"


def load_graph_json(path: Path) -> dict[str, Any]:
    """Read and check the benchmark's JSON.

    Raises:
        InputError: the file is missing, too large, damaged, of another format, or holds no times.
    """
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise InputError(f"no usable file at {path}: give the JSON written by benchmarks/capture_hazards.py")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}): run the benchmark again") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{path} is not a result of benchmarks/capture_hazards.py ({FORMAT})")
    missing = [key for key in ("device", "environment", "scenarios", "unix_time") if key not in document]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}: run the benchmark again")
    if not processes(document):
        raise InputError(f"{path} holds no times of replays: run the benchmark again")
    return document


def processes(document: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """The table of times of each process that finished; rank 0 speaks for its group."""
    parts = [
        scenario["results"].get("0")
        for name, scenario in document["scenarios"].items()
        if name.startswith("timed_replays")
    ]
    return [part for part in parts if part]


def graph_tables(document: Mapping[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs and samples in the recording's columns.

    Facts of the runs: ``transport`` and ``ranks``.
    """
    parts = processes(document)
    names = list(dict.fromkeys(str(row["form"]) for part in parts for row in part))
    place = {form: order for order, form in enumerate(names)}
    runs = pd.DataFrame(
        [
            {
                "run": f"{block:03d}-{place[form]:02d}-{form}",
                "arm": form,
                "block": block,
                "order": place[form],
                "isolation": "spawn",
                "outcome": "ok",
                "reason": None,
                "started_utc": None,
                "wall_s": None,
                "transport": "nccl",
                "ranks": int(document["world"]),
            }
            for block in range(len(parts))
            for form in names
        ]
    )
    runs = runs[[*RUN_COLUMNS, *(name for name in runs.columns if name not in RUN_COLUMNS)]]
    samples = pd.DataFrame(
        [
            {
                "arm": row["form"],
                "block": block,
                "order": place[row["form"]],
                "run": f"{block:03d}-{place[row['form']]:02d}-{row['form']}",
                "metric": f"{row['how']}_m{row['rows']}_us",
                "sample": sample,
                "value": float(value),
            }
            for block, part in enumerate(parts)
            for row in part
            for sample, value in enumerate(row["us_per_call"])
        ],
        columns=list(SAMPLE_COLUMNS),
    )
    return runs, samples


def graph_manifest(document: Mapping[str, Any], arms: Sequence[str]) -> dict[str, Any]:
    """The manifest of the recording."""
    count = len(processes(document))
    made = datetime.fromtimestamp(document["unix_time"], UTC).isoformat(timespec="seconds")
    return {
        "investigation": "vime-decode",
        "state": "stopped" if document.get("not_run") else "complete",
        "created_utc": made,
        "finished_utc": made,
        "command": COMMAND,
        "device": document["device"],
        "environment": document["environment"],
        "workload": {
            "name": "logprob_exchange",
            "parameters": {"ranks": int(document["world"]), "vocab": 151936},
            "kernels": [],
        },
        "ceilings": {},
        "design": {
            "baseline": BASELINE,
            "metric": METRIC,
            "margin": MARGIN,
            "confidence": 0.95,
            "seed": 1,
            "blocks": count,
            "isolation": "the arms of a block share one process",
            "replicate": "process",
            "looks": 1,
            "arms": [_arm(name) for name in arms],
        },
        "counts": {"planned": count * len(arms), "ok": count * len(arms), "failed": 0},
        "not_run": list(document.get("not_run") or ()),
    }


def _arm(name: str) -> dict[str, str]:
    if name == REPEAT:
        return {"name": name, "role": "repeat", "summary": "the baseline once more"}
    role = "baseline" if name == BASELINE else "probe"
    return {"name": name, "role": role, "summary": FORMS[name].text if name in FORMS else name}


def write_graph_recording(source: Path, out: Path, source_commit: str = "") -> None:
    """Write the recording folder, with the benchmark's JSON beside it.

    ``source_commit``: the commit whose package source was measured; it is checked against the recorded hash.

    Raises:
        InputError: the source cannot be used, or the commit's source is another.
    """
    document = load_graph_json(source)
    if source_commit:
        environment = document["environment"]
        code = with_source_commit(environment.get("code") or {}, source_commit)
        document = document | {"environment": environment | {"code": code}}
    try:
        runs, samples = graph_tables(document)
        manifest = graph_manifest(document, list(dict.fromkeys(runs["arm"])))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{source} is damaged ({type(error).__name__}: {error}): run it again") from None
    write_table(out / "runs.parquet", runs)
    write_table(out / "samples.parquet", samples)
    if source.resolve() != (out / RAW).resolve():
        write_bytes(out / RAW, source.read_bytes())
    names = ("runs.parquet", "samples.parquet", RAW)
    write_manifest(out, manifest | {"files": {name: file_sha256(out / name) for name in names}})


def main(argv: Sequence[str] | None = None) -> int:
    """Convert one file."""
    module = "rcatools.experiment.graph_recording"
    return convert(argv, module, __doc__, write_graph_recording)


if __name__ == "__main__":
    raise SystemExit(main())
