"""Time the decode product on one GPU: configurations, schedules, torch, and the bandwidth floor.

    python benchmarks/decode_matmul.py [OUT_DIR] [--processes 8] [--blocks 6] [--budget-s 140]

Writes ``OUT_DIR/decode_matmul.json``: compiled resources, bit equality, one time per process, block and arm,
and a factor grid (tile, warps, stages) that says which property of a configuration moves the time. Every
process measures the whole table in fresh memory, arms in random order within each block; the process is
the unit of replication. Weights rotate through several copies so that the last-level cache cannot serve
them, as in a decode step. The factor grid comes from one process and may use half of the budget; no process
starts that would end after the budget. What was measured is written after every process, whole or not at all.
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
from rcatools.files import finite, write_bytes  # noqa: E402

CHILD_TIMEOUT_S = 120.0
ONCE_SHARE = 0.5
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


def write(path: Path, document: dict[str, Any]) -> None:
    """Write JSON whole or not at all; a number that is not finite becomes null."""
    write_bytes(path, json.dumps(finite(document), allow_nan=False).encode())


def child(job: dict[str, Any]) -> None:
    """Measure one part in this process and write it; of "once" also every stage it has finished."""
    from rcatools.workload.vime import product_bench

    gc.freeze()  # every capture collects garbage first; imports need not be walked each time
    out = Path(job["out"])
    if job["part"] == "once":
        for result in product_bench.measure_once(job["seed"], job["deadline"]):
            write(out, result | surroundings(job["seed"]))
    else:
        write(out, product_bench.measure_table(job["seed"], job["blocks"]) | surroundings(job["seed"]))


def in_a_process(job: dict[str, Any], timeout_s: float = CHILD_TIMEOUT_S) -> dict[str, Any] | None:
    """Run one part in a fresh interpreter.

    Returns what it had written, with ``"lost"`` (the reason) where it failed or took too long, or None where
    it had written nothing.
    """
    out = Path(job["out"])
    command = [sys.executable, str(Path(__file__).resolve()), "--child", json.dumps(job)]
    lost = None
    try:
        subprocess.run(command, timeout=timeout_s, check=True)
    except subprocess.TimeoutExpired:
        lost = f"took longer than {timeout_s:.0f} s"
    except subprocess.CalledProcessError as error:
        lost = f"ended with code {error.returncode}"
    except OSError as error:
        lost = f"did not start: {error}"
    try:
        found = dict(json.loads(out.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        print(f"{job['part']}: {lost or 'wrote nothing'}", flush=True)
        return None
    finally:
        out.unlink(missing_ok=True)
    return found | {"lost": lost} if lost else found


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
    return session(args.out_dir, args.processes, args.blocks, args.budget_s, args.seed)


def session(out_dir: Path, processes: int, blocks: int, budget_s: float, seed: int) -> int:
    """All parts, one process each; the exit code."""
    started = time.monotonic()
    result: dict[str, Any] = {
        "format": "rcatools-decode-matmul-2",
        "planned": {"processes": processes, "blocks": blocks, "budget_s": budget_s},
        "not_run": [],
        "seconds": {},
        "compiled": [],
        "equality": [],
        "grid": [],
    }
    tables: list[dict[str, Any]] = []

    def spent() -> float:
        return time.monotonic() - started

    def part(name: str, number: int) -> dict[str, Any] | None:
        job = {
            "part": name,
            "seed": seed + number,
            "blocks": blocks,
            "deadline": time.time() + ONCE_SHARE * budget_s,
            "out": str(out_dir / f"part_{name}_{number}.json"),
        }
        begun = spent()
        measured = in_a_process(job)
        result["seconds"][f"{name} {number}"] = round(spent() - begun, 1)
        if measured is None or "lost" in measured:
            result["not_run"].append(f"{name} {number}: {(measured or {}).get('lost', 'failed')}")
        print(f"{spent():6.1f} s  {name} {number}", flush=True)
        return measured

    def save() -> None:
        write(out_dir / "decode_matmul.json", result | (merged(tables) if tables else {}))

    once = part("once", 0)
    if once is not None:
        result["not_run"] += once["not_run"]
        result |= {key: once[key] for key in ("compiled", "equality", "grid", "environment", "device")}
    save()
    longest = 0.0
    for number in range(processes):
        begun = spent()
        if begun + longest > budget_s:
            result["not_run"].append(f"table {number}: no time left in the budget")
            continue
        measured = part("table", number)
        longest = max(longest, spent() - begun)
        if measured is not None and "lost" not in measured:
            tables.append(measured)
        save()
    save()
    errors = [row["relative_error"] for row in result["equality"]]
    worst = max((float("inf") if error is None else error for error in errors), default=float("inf"))
    print(f"worst relative error {worst:.2e} (limit {TOLERANCE:.0e}); not run: {result['not_run']}")
    return 0 if worst <= TOLERANCE and not result["not_run"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
