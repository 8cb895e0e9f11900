"""Speed and memory of reading and replaying memory snapshots.

    python benchmarks/snapshot_speed.py [--events 600000]

Makes a simulated history, then measures in separate processes: reading it (events per second, and peak memory
over the file's size) beside Python's own unpickler, and replaying it (events per second, and how time and memory
grow when the history doubles). Times are CPU seconds of one core. Prints one table; nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

KINDS = {
    "training": {"streams": 1, "live": 900, "small": 0.3},
    "serving": {"streams": 4, "live": 300, "small": 0.6},
    "fragmented": {"streams": 2, "live": 4000, "small": 0.5},
}


def make(kind: str, events: int, path: Path, frames: int) -> None:
    """Write a simulated history of about ``events`` events as torch would pickle it."""
    from rcatools.memory.export import raw_snapshot
    from rcatools.memory.rules import Rules
    from rcatools.memory.simulator import Simulator

    shape, rng = KINDS[kind], random.Random(1)
    simulator, live = Simulator(Rules()), []
    sizes = [int(2 ** rng.uniform(9, 20 if rng.random() < shape["small"] else 25)) for _ in range(400)]
    while len(simulator.events) < events:
        if len(live) < shape["live"] * rng.uniform(0.7, 1.3):
            live.append(simulator.alloc(rng.choice(sizes), rng.randrange(int(shape["streams"]))))
        else:
            simulator.free(live.pop(rng.randrange(len(live))))
    raw = raw_snapshot(simulator)
    stack = [
        {"name": f"function_{i}", "filename": f"/site-packages/package/module_{i}.py", "line": i}
        for i in range(500)
    ]
    for entry in raw["device_traces"][0]:
        start = rng.randrange(100)
        if frames:
            entry["frames"] = [stack[(start + k) % 500] for k in range(frames)]
    with open(path, "wb") as file:
        pickle.dump(raw, file, protocol=4)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(what: str, path: str) -> dict[str, float]:
    """Run one measurement in this process."""
    size = Path(path).stat().st_size
    if what == "pickle":
        before, started = peak_bytes(), time.process_time()
        with open(path, "rb") as file:
            top = pickle.load(file)  # our own file, written a moment ago
        seconds = time.process_time() - started
        return {
            "events": len(top["device_traces"][0]),
            "seconds": seconds,
            "memory": (peak_bytes() - before) / size,
        }
    from rcatools.memory.read import load_snapshot
    from rcatools.memory.replay import replay

    before, started = peak_bytes(), time.process_time()
    snapshot = load_snapshot(path)
    seconds = time.process_time() - started
    out = {"events": len(snapshot.events), "seconds": seconds, "memory": (peak_bytes() - before) / size}
    if what == "replay":
        before, started = peak_bytes(), time.process_time()
        result = replay(snapshot)
        out["seconds"] = time.process_time() - started
        out["memory"] = (peak_bytes() - before) / result.events
        out["exact"] = result.exact / max(result.checked, 1)
    return out


def make_in_a_process(kind: str, events: int, path: Path, frames: int) -> None:
    """Peak memory is inherited by child processes, so this one must stay small."""
    what = f"make:{kind}:{frames}"
    command = [sys.executable, __file__, "--measure", what, "--events", str(events), "--file", str(path)]
    subprocess.run(command, check=True)


def in_a_process(what: str, path: Path, repeats: int) -> dict[str, float]:
    """The fastest of some runs, each in its own process; memory of the last."""
    runs = []
    for _ in range(repeats):
        command = [sys.executable, __file__, "--measure", what, "--file", str(path)]
        runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return min(runs, key=lambda r: r["seconds"])


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure and args.measure.startswith("make:"):
        _, kind, frames = args.measure.split(":")
        make(kind, args.events, Path(args.file), int(frames))
        return 0
    if args.measure:
        print(json.dumps(measure(args.measure, args.file)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        print(
            "reading                     MB   events/s  x file size   (Python's unpickler: events/s, x file size)"
        )
        for name, frames, events in (("no stacks", 0, args.events), ("50 frames", 50, args.events // 4)):
            path = Path(folder) / "read.pickle"
            make_in_a_process("training", events, path, frames)
            ours, theirs = (in_a_process(w, path, args.repeats) for w in ("read", "pickle"))
            print(
                f"{name:<20} {path.stat().st_size / 1e6:9.0f} {ours['events'] / ours['seconds']:10,.0f} "
                f"{ours['memory']:12.2f}   {theirs['events'] / theirs['seconds']:,.0f}, {theirs['memory']:.2f}"
            )
        print(
            "\nreplay                  events   events/s    bytes/event  exact   time for twice the events / time"
        )
        for kind in KINDS:
            runs = []
            for events in (args.events // 2, args.events):
                path = Path(folder) / "replay.pickle"
                make_in_a_process(kind, events, path, 0)
                runs.append(in_a_process("replay", path, args.repeats))
            half, full = runs
            print(
                f"{kind:<20} {full['events']:9,} {full['events'] / full['seconds']:10,.0f} {full['memory']:12.0f}  "
                f"{full['exact']:.4f}   {full['seconds'] / half['seconds']:.2f}"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
