"""Time the decode product on one GPU: configurations, schedules, torch, and the bandwidth floor.

    python benchmarks/decode_matmul.py [OUT_DIR] [--processes 8] [--blocks 6] [--budget-s 140]

Writes ``OUT_DIR/decode_matmul.json``: compiled resources, bit equality, one time per process, block and arm,
and a factor grid (tile, warps, stages) that says which property of a configuration moves the time. Every
process measures the whole table in fresh memory, arms in random order within each block; the process is
the unit of replication. Weights rotate through several copies so that the last-level cache cannot serve
them, as in a decode step. The budget is looked at before each process and each part.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rcatools.device import fingerprint  # noqa: E402
from rcatools.device.backend import describe  # noqa: E402

CHILD_TIMEOUT_S = 120.0
TOLERANCE = 8e-3


def has_gpu() -> bool:
    """Whether torch sees a GPU here and Triton is installed."""
    if not (find_spec("torch") and find_spec("triton")):
        return False
    import torch

    return bool(torch.cuda.is_available())


def surroundings(seed: int) -> dict[str, Any]:
    """Machine and code: enough to compare two recordings."""
    import torch

    backend = "rocm" if torch.version.hip else "cuda"
    return {
        "device": describe(backend, torch).as_dict(),
        "environment": fingerprint.environment(torch),
        "clocks": _clocks(),
        "seed": seed,
        "unix_time": time.time(),
    }


def _clocks() -> str | None:
    fields = "clocks.sm,clocks.mem,temperature.gpu,power.draw"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def child(job: dict[str, Any]) -> None:
    """Measure one part in this process and write it."""
    from rcatools.workload.vime import product_bench

    gc.freeze()  # every capture collects garbage first; imports need not be walked each time
    if job["part"] == "once":
        result = product_bench.measure_once(job["seed"], job["deadline"])
    else:
        result = product_bench.measure_table(job["seed"], job["blocks"])
    result |= surroundings(job["seed"])
    Path(job["out"]).write_text(json.dumps(result, allow_nan=False), encoding="utf-8")


def in_a_process(job: dict[str, Any]) -> dict[str, Any] | None:
    """Run one part in a fresh interpreter; None where it failed or took too long."""
    out = Path(job["out"])
    command = [sys.executable, str(Path(__file__).resolve()), "--child", json.dumps(job)]
    try:
        subprocess.run(command, timeout=CHILD_TIMEOUT_S, check=True)
        return dict(json.loads(out.read_text(encoding="utf-8")))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        print(f"a part was lost: {error}", flush=True)
        return None
    finally:
        out.unlink(missing_ok=True)


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The table with ``us_per_call`` as [process][block], and the ceilings as [process]."""
    table = [dict(row) for row in parts[0]["table"]]
    for index, row in enumerate(table):
        row["us_per_call"] = [part["table"][index]["us_per_call"] for part in parts]
    return {
        "table": table,
        "ceilings": [part["ceilings"] for part in parts],
        "processes": [{key: part[key] for key in ("seed", "clocks", "unix_time")} for part in parts],
        "device": parts[0]["device"],
        "environment": parts[0]["environment"],
    }


def main() -> int:
    """Measure, check and write; returns 1 where a part was lost or a product is outside the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out_dir", type=Path, nargs="?", default=ROOT / "build" / "decode_matmul")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--budget-s", type=float, default=140.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(json.loads(args.child))
        return 0
    if not has_gpu():
        print("needs a GPU that torch and Triton can use: nothing was measured")
        return 0
    args.out_dir.mkdir(parents=True, exist_ok=True)
    started = time.time()
    deadline = started + args.budget_s
    result: dict[str, Any] = {"format": "rcatools-decode-matmul-2", "not_run": [], "seconds": {}}
    parts: list[dict[str, Any]] = []

    def part(name: str, number: int) -> dict[str, Any] | None:
        job = {
            "part": name,
            "seed": args.seed + number,
            "blocks": args.blocks,
            "deadline": deadline,
            "out": str(args.out_dir / f"part_{name}_{number}.json"),
        }
        measured = in_a_process(job)
        if measured is None:
            result["not_run"].append(f"{name} {number}: failed")
        result["seconds"][f"{name} {number}"] = round(time.time() - started, 1)
        print(f"{time.time() - started:6.1f} s  {name} {number}", flush=True)
        return measured

    def save() -> None:
        text = json.dumps(result | (merged(parts) if parts else {}), allow_nan=False)
        target = args.out_dir / "decode_matmul.json"
        target.with_suffix(".tmp").write_text(text, encoding="utf-8")
        target.with_suffix(".tmp").replace(target)

    once = part("once", 0)
    if once is not None:
        result["not_run"] += once.pop("not_run")
        result |= {key: once[key] for key in ("compiled", "equality", "grid")}
    for number in range(args.processes):
        if time.time() > deadline:
            result["not_run"].append(f"table {number}")
            continue
        measured = part("table", number)
        if measured is not None:
            parts.append(measured)
            save()
    save()
    worst = max((row["relative_error"] for row in result.get("equality", [])), default=float("inf"))
    print(f"worst relative error {worst:.2e} (limit {TOLERANCE:.0e}); not run: {result['not_run']}")
    return 0 if worst <= TOLERANCE and not result["not_run"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
