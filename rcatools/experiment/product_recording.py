"""Turns the JSON of ``benchmarks/decode_matmul.py`` into a recording, so that it is judged like any other.

    python -m rcatools.experiment.product_recording decode_matmul.json... data/recordings/NAME

Every arm of the table becomes an arm, every shape and row count a metric ``<shape>_m<rows>_us``. A process of
the benchmark is a block here, because the process is the unit of replication; its own blocks are samples.
Results of the benchmark's first form hold one process: its blocks are the blocks here, and the design's
``replicate`` says so, because such intervals cover nothing that differs between processes. Results of several sessions
are joined, process by process; their files are kept as ``session-1.json`` and so on.
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
from rcatools.experiment.product_sessions import joined
from rcatools.experiment.provenance import with_source_commit
from rcatools.files import write_bytes
from rcatools.recording.reader import file_sha256
from rcatools.recording.schema import RUN_COLUMNS, SAMPLE_COLUMNS
from rcatools.recording.writer import write_manifest, write_table
from rcatools.workload.vime.product import BLOCK_K, CHUNK_K, QWEN3_8B_TP4

FORMAT = "rcatools-decode-matmul-2"
FIRST_FORMAT = "rcatools-decode-matmul-1"
RAW = "decode_matmul.json"
MAX_BYTES = 64 * 2**20
MARGIN = 0.02
COMMAND = "python benchmarks/decode_matmul.py"
ARMS: dict[str, tuple[str, str]] = {
    "default": ("baseline", "tiles 16 x 32, two warps, each chunk its own program"),
    "default_again": ("repeat", "the baseline once more"),
    "default_planted": ("plant_additive", "planted: one empty kernel more"),
    "default_whole": ("probe", "default tiles, one program walks all chunks"),
    "default_products": ("probe", "only the chunk products of the default"),
    "default_deeper": ("probe", "default tiles with four stages: more loads in flight"),
    "specialised_deeper": ("probe", "the published configuration with four stages"),
    "specialised": ("suspect", "the published configuration for this shape and row count"),
    "specialised_whole": ("probe", "the published configuration, one program walks all chunks"),
    "specialised_products": ("probe", "only the chunk products of the published configuration"),
    "chunk_sum": ("probe", "only the ordered sum of the chunks"),
    "torch": ("probe", "the vendor library's product through torch"),
}
READ_PREFIX = "read_"


def load_product_json(path: Path) -> dict[str, Any]:
    """Read and check the benchmark's JSON, in its present form whichever it was written in.

    Raises:
        InputError: the file is missing, too large, damaged or of another format.
    """
    if not path.is_file():
        raise InputError(f"no file at {path}: give the JSON written by benchmarks/decode_matmul.py")
    if path.stat().st_size > MAX_BYTES:
        raise InputError(
            f"{path} is larger than {MAX_BYTES} bytes: give the JSON written by benchmarks/decode_matmul.py"
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}): run the benchmark again") from None
    if isinstance(document, dict) and document.get("format") == FIRST_FORMAT:
        document = _from_first_form(path, document)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(
            f"{path} is not a result of benchmarks/decode_matmul.py ({FORMAT}): give the JSON it wrote"
        )
    missing = [key for key in ("environment", "table", "equality", "grid", "ceilings") if key not in document]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}: run the benchmark again")
    return document


def _from_first_form(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    try:
        old = document["environment"]
        blocks = len(document["table"][0]["us_per_call"])
        process = {"seed": old["seed"], "clocks": old["clocks"], "unix_time": old["unix_time"]}
        return document | {
            "format": FORMAT,
            "replicate": "block of one process",
            "table": [
                row | {"us_per_call": [[us] for us in row["us_per_call"]]} for row in document["table"]
            ],
            "ceilings": [document["ceilings"]],
            "processes": [process] * blocks,
            "device": {
                "backend": "cuda",
                "name": old["gpu"],
                "arch": f"sm_{old['capability'].replace('.', '')}",
                "memory_bytes": old["memory_bytes"],
                "driver": old["driver"],
                "runtime": old["cuda"],
                "uuid": None,
                "multiprocessors": old["multiprocessors"],
                "last_level_cache_bytes": old["l2_bytes"],
            },
            "environment": {
                "python": old["python"],
                "packages": {"torch": old["torch"], "triton": old["triton"]},
                "cuda": old["cuda"],
                "hip": old["hip"],
                "code": {"commit": old["commit"]},
            },
        }
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged ({type(error).__name__}: {error}): run the benchmark again"
        ) from None


def metric_of(row: Mapping[str, Any]) -> str:
    """Metric name of a table row."""
    return f"{row['shape']}_m{row['rows']}_us"


def product_tables(document: Mapping[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs and samples of the table, in the recording's columns.

    Facts of the runs: ``programs_<shape>_m<rows>`` of every arm of ours, and on the baseline's first run how many
    products one process checked for equal bits and how many were not equal (``products_checked``,
    ``products_unequal``).
    """
    facts = _facts(document)
    names = list(dict.fromkeys(str(row["arm"]) for row in document["table"]))
    order_of = {arm: order for order, arm in enumerate(names)}
    processes = range(len(document["processes"]))
    isolation = "none" if "replicate" in document else "spawn"
    measured = {
        (str(row["arm"]), block)
        for row in document["table"]
        for block, values in enumerate(row["us_per_call"])
        if values
    }
    runs = pd.DataFrame(
        [
            {
                "run": f"{block:03d}-{order:02d}-{arm}",
                "arm": arm,
                "block": block,
                "order": order,
                "isolation": isolation,
                "outcome": "ok",
                "reason": None,
                "started_utc": None,
                "wall_s": None,
            }
            | {
                name: value
                for name, value in facts[arm].items()
                if block == 0 or not name.startswith("products_")
            }
            for block in processes
            for order, arm in enumerate(names)
            if (arm, block) in measured
        ],
    )
    runs = runs[[*RUN_COLUMNS, *(name for name in runs.columns if name not in RUN_COLUMNS)]]
    samples = pd.DataFrame(
        [
            {
                "arm": row["arm"],
                "block": block,
                "order": order_of[row["arm"]],
                "run": f"{block:03d}-{order_of[row['arm']]:02d}-{row['arm']}",
                "metric": metric_of(row),
                "sample": sample,
                "value": float(value),
            }
            for row in document["table"]
            for block, values in enumerate(row["us_per_call"])
            for sample, value in enumerate(values)
        ],
        columns=list(SAMPLE_COLUMNS),
    )
    return runs, samples


def _facts(document: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    facts: dict[str, dict[str, int]] = {}
    for row in document["table"]:
        own = facts.setdefault(str(row["arm"]), {})
        if row["launch"] is not None:
            own[f"programs_{row['shape']}_m{row['rows']}"] = int(row["launch"]["programs"])
    checked = [row for row in document["equality"] if row["split"] is not None]
    facts["default"]["products_checked"] = len(checked)
    facts["default"]["products_unequal"] = sum(not row["equal_to_default"] for row in checked)
    return facts


def product_manifest(document: Mapping[str, Any], runs: pd.DataFrame) -> dict[str, Any]:
    """The manifest of the recording with these runs."""
    names = list(dict.fromkeys(str(row["arm"]) for row in document["table"]))
    processes = document["processes"]
    first = document["ceilings"][0]
    fastest = min(min(times) for part in document["ceilings"] for times in part["read_us"].values())
    count = len(runs)
    return {
        "investigation": "vime-decode",
        "state": "stopped" if document["not_run"] else "complete",
        "created_utc": _utc(processes[0]["unix_time"]),
        "finished_utc": _utc(processes[-1]["unix_time"]),
        "command": COMMAND,
        "device": document["device"],
        "environment": document["environment"],
        "workload": {
            "name": "decode_product",
            "parameters": {
                "block_k": BLOCK_K,
                "chunk_k": CHUNK_K,
                "shapes": {shape.name: [shape.depth, shape.cols] for shape in QWEN3_8B_TP4},
            },
            "kernels": [],
        },
        "ceilings": {"read_bytes_per_s": first["read_bytes"] / (fastest * 1e-6)},
        "design": {
            "baseline": "default",
            "metric": "lm_head_m16_us",
            "margin": MARGIN,
            "confidence": 0.95,
            "seed": processes[0]["seed"],
            "blocks": len(processes),
            "isolation": "the arms of a block share one process",
            "replicate": document.get("replicate", "process"),
            "sessions": list(document.get("sessions", ())),
            "looks": 1,
            "arms": [_arm(name) for name in names],
        },
        "counts": {"planned": count, "ok": count, "failed": 0},
        "not_run": list(document["not_run"]),
    }


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _arm(name: str) -> dict[str, str]:
    role, summary = ARMS.get(name, ("probe", "the weight read once and nothing else"))
    return {"name": name, "role": role, "summary": summary}


def write_product_recording(sources: Path | Sequence[Path], out: Path, source_commit: str = "") -> None:
    """Write the recording folder, with the benchmark's JSON of every session beside it.

    ``source_commit``: the commit whose package source was measured; it is checked against the recorded hash.

    Raises:
        InputError: a source cannot be used, or the commit's source is another.
    """
    given = [sources] if isinstance(sources, Path) else list(sources)
    documents = [load_product_json(path) for path in given]
    document = documents[0] if len(documents) == 1 else joined(documents)
    if source_commit:
        environment = document["environment"]
        code = with_source_commit(environment.get("code") or {}, source_commit)
        document = document | {"environment": environment | {"code": code}}
    runs, samples = product_tables(document)
    write_table(out / "runs.parquet", runs)
    write_table(out / "samples.parquet", samples)
    kept = [RAW]
    if len(given) == 1:
        raw = given[0].read_bytes()
    else:
        raw = json.dumps(document, allow_nan=False).encode()
        kept += [f"session-{number}.json" for number in range(1, len(given) + 1)]
        for name, content in zip(kept[1:], [path.read_bytes() for path in given], strict=True):
            write_bytes(out / name, content)
    write_bytes(out / RAW, raw)
    names = ("runs.parquet", "samples.parquet", *kept)
    files = {name: file_sha256(out / name) for name in names}
    write_manifest(out, product_manifest(document, runs) | {"files": files})


def main(argv: Sequence[str] | None = None) -> int:
    """Convert the files of one or several sessions."""
    module = "rcatools.experiment.product_recording"
    return convert(argv, module, __doc__, write_product_recording, several=True)


if __name__ == "__main__":
    raise SystemExit(main())
