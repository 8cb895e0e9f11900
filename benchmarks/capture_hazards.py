"""Graph capture of the log-probability forms, and the hazards that need a GPU.

    python benchmarks/capture_hazards.py [OUT_DIR] [--world 1] [--processes 6] [--blocks 8] [--budget-s 150]

Writes ``OUT_DIR/capture_hazards.json`` after every scenario, whole or not at all. Each scenario runs in its own
group of worker processes, under a watchdog, because a failed capture leaves its process unusable. Times come from
several groups, because the process is the unit of replication. No scenario starts after the budget; one takes at
most two minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rcatools.device import fingerprint  # noqa: E402
from rcatools.device.backend import describe  # noqa: E402
from rcatools.errors import RunError  # noqa: E402
from rcatools.files import finite, write_bytes  # noqa: E402
from rcatools.workload.vime.group import run_group  # noqa: E402

QWEN3_VOCAB = 151_936
CAPTURABLE = (
    "two_gathers",
    "packed",
    "packed_once",
    "packed_cached",
    "packed_cached_column",
    "packed_in_three",
    "packed_owned",
    "packed_keyed",
    "safe_carried",
    "safe_carried_flat",
)
REFUSED = ("reference", "packed_readback", "safe_agreed")
WATCHDOG_S = 60.0


def scenarios(processes: int, blocks: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name to the function of ``rcatools.workload.vime.capture`` and its arguments."""
    base: dict[str, Any] = {"vocab": QWEN3_VOCAB, "seed": 1}
    timed = {"forms": (*CAPTURABLE, "packed_cached_again"), "eager_only": REFUSED, "rows": (1, 8, 64)}
    return {
        "gather_list": ("gather_capture", {"form": "list"}),
        "gather_flat": ("gather_capture", {"form": "flat"}),
        "capture_forms": ("capture_forms", base | {"forms": CAPTURABLE}),
        **{f"capture_{form}": ("capture_forms", base | {"forms": (form,)}) for form in REFUSED},
        "evicted_unsafe": ("evicted_buffer", base | {"form": "packed_cached_column"}),
        "evicted_safe": ("evicted_buffer", base | {"form": "safe_carried"}),
        "streams_unsafe": ("shared_by_streams", base | {"form": "packed_cached_column"}),
        "streams_safe": ("shared_by_streams", base | {"form": "safe_carried"}),
        **{
            f"timed_replays_{number}": (
                "timed_replays",
                base | timed | {"blocks": blocks, "seed": 1 + number},
            )
            for number in range(processes)
        },
    }


def main() -> int:
    """Run every scenario; a failed one is part of the result, not of the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out_dir", type=Path, nargs="?", default=ROOT / "build" / "capture_hazards")
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--budget-s", type=float, default=150.0)
    args = parser.parse_args()
    if not find_spec("torch"):
        print("needs torch: nothing was measured")
        return 0
    import torch

    if torch.cuda.device_count() < args.world:
        print(f"needs {args.world} GPUs that torch can use: nothing was measured")
        return 0
    args.out_dir.mkdir(parents=True, exist_ok=True)
    target = args.out_dir / "capture_hazards.json"
    result: dict[str, Any] = {
        "format": "rcatools-capture-hazards-2",
        "world": args.world,
        "device": describe("rocm" if torch.version.hip else "cuda", torch).as_dict(),
        "environment": fingerprint.environment(torch),
        "unix_time": time.time(),
        "scenarios": {},
        "not_run": [],
    }
    deadline = time.monotonic() + args.budget_s
    for name, (function, arguments) in scenarios(args.processes, args.blocks).items():
        if time.monotonic() > deadline:
            result["not_run"].append(name)
            continue
        result["scenarios"][name] = tried(function, arguments, args.world)
        write_bytes(target, json.dumps(finite(result), allow_nan=False).encode())
        shown = result["scenarios"][name]
        what = shown["results"].get("0") if not name.startswith("timed_replays") else "..."
        print(f"{name:<20} {shown['state']:<6} {shown['errors'] or what}", flush=True)
    write_bytes(target, json.dumps(finite(result), allow_nan=False).encode())
    return 0


def tried(function: str, arguments: dict[str, Any], world: int) -> dict[str, Any]:
    """How one scenario ended, what its ranks returned and how long it took."""
    started = time.monotonic()
    found: dict[str, Any] = {"function": function}
    try:
        outcome = run_group(
            f"capture.{function}", world, watchdog_s=WATCHDOG_S, device="cuda", arguments=arguments
        )
    except RunError as error:
        found |= {"state": "not started", "errors": {"all": str(error)}, "results": {}}
    else:
        found |= {
            "state": outcome.state,
            "errors": {str(rank): text for rank, text in outcome.errors.items()},
            "results": {str(rank): value for rank, value in outcome.results.items()},
        }
    return found | {"seconds": time.monotonic() - started}


if __name__ == "__main__":
    raise SystemExit(main())
