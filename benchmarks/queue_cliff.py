"""Where the price of a boundary between graph kernels goes up, and what moves that place.

    python benchmarks/queue_cliff.py --out FOLDER [--processes 5] [--budget-s 120] [--only add,none]

Every curve comes from a process of its own: a graph of 400 tiny kernels is timed after 0, 1, ... 16 further streams
each ran one tiny kernel, after the process did something first. Conditions are taken in turn, round after round, so
that drift meets all of them. Writes curves.jsonl (one line per process) and summary.json (per condition: where the step
lies, what it costs, how many places the act used, with ranges and 95 % intervals). CUDA and ROCm; not run on ROCm.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rcatools.device.backend import device_count, import_torch
from rcatools.errors import InputError, RcaError, UnavailableError
from rcatools.experiment.cliff import ACTS, SPECIAL, Condition, places_used, summarize, sweep
from rcatools.experiment.prepare import probe_device
from rcatools.files import write_json

WARM = ("linear_bias", "product", "norm")


def conditions(backend: str) -> list[Condition]:
    """Everything that is compared; "none" comes first and is the reference, "none" of warm processes theirs."""
    acts = [name for name in (*ACTS, *SPECIAL) if name not in {"none", "linear_bias40"}]
    found = [Condition(), *(Condition(act=name) for name in acts)]
    found += [Condition(act="add+add"), Condition(act="add+add+add+add"), Condition(act="add", late=True)]
    found += [Condition(capture="fresh"), Condition(warm=WARM)]
    found += [
        Condition(act=name, warm=WARM)
        for name in ("add", "linear_bias", "linear_bias40", "capture", "unused")
    ]
    settings = (
        [
            {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
            {"CUDA_DEVICE_MAX_CONNECTIONS": "32"},
            {"CUDA_MODULE_LOADING": "EAGER"},
        ]
        if backend == "cuda"
        else [{"GPU_MAX_HW_QUEUES": "1"}, {"GPU_MAX_HW_QUEUES": "8"}]
    )
    return [*found, *(Condition(env=env) for env in settings)]


def summary(rows: list[dict[str, Any]], wanted: list[Condition]) -> list[dict[str, Any]]:
    """One row per condition, with the places its act used against the same process without the act."""
    found = {}
    for condition in wanted:
        curves = [row["curve"] for row in rows if row["condition"] == condition.name and "curve" in row]
        errors = [row["error"] for row in rows if row["condition"] == condition.name and "error" in row]
        found[condition.name] = {"condition": condition.name, **summarize(curves), "errors": errors}
    for condition in wanted:
        reference = found.get(Condition(warm=condition.warm).name)
        one = found[condition.name]
        one["places_used"] = places_used(reference, one) if reference and one["processes"] else None
    return list(found.values())


def main() -> int:
    """Measure, write, and print one line per condition."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=5, help="per condition")
    parser.add_argument(
        "--budget-s", type=float, default=float("inf"), help="begin no further round after so long"
    )
    parser.add_argument("--only", help="comma-separated acts; 'none' is always measured")
    args = parser.parse_args()
    torch = import_torch()
    if device_count(torch) == 0:
        raise UnavailableError("queue_cliff needs a GPU, and this torch sees none")
    device = probe_device("auto")
    wanted = conditions(str(device["backend"]))
    if args.only:
        names = set(args.only.split(","))
        unknown = names - {condition.act for condition in wanted}
        if unknown:
            raise InputError(f"unknown act {sorted(unknown)[0]!r}: known: {', '.join([*ACTS, *SPECIAL])}")
        wanted = [condition for condition in wanted if condition.act in names | {"none"}]
    args.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    begun = time.monotonic()
    with (args.out / "curves.jsonl").open("w", encoding="utf-8") as lines:

        def keep(row: dict[str, Any]) -> None:
            lines.write(json.dumps(row) + "\n")
            lines.flush()

        for process in range(args.processes):
            if time.monotonic() - begun >= args.budget_s:
                break
            rows += sweep(torch, wanted, 1, lambda row, number=process: keep(row | {"process": number}))
    table = summary(rows, wanted)
    document = {"device": device, "torch": torch.__version__, "date": datetime.now(UTC).date().isoformat()}
    write_json(args.out / "summary.json", document | {"conditions": table})
    for row in table:
        cost = "" if row["cost_us"] is None else f"+{row['cost_us']:.3f} us {row['cost_ci'] or ''}"
        print(
            f"{row['condition']:<44} n {row['processes']:>2}  step at {row['at_low']}..{row['at_high']}  "
            f"places {row['places_used']}  {cost}  {'; '.join(row['errors'][:1])}"
        )
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except RcaError as error:
        print(f"queue_cliff: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
