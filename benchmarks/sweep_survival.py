"""A sweep of many small rows, its runner killed (SIGKILL) again and again, on this machine and on a local Ray.

    python benchmarks/sweep_survival.py [--rows 200] [--kills 3] [--executors local,ray] [--out FOLDER]

Each row compares a small table of its own. After every kill the same call goes on. At the end it is
checked, for each executor, that every row was done exactly once, that no process of a row is left and that
both executors say the same.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rcatools.batch.jobs import Job  # noqa: E402
from rcatools.batch.processes import JOB_TAG  # noqa: E402


def make_table(folder: Path, rows: int) -> Path:
    """A sweep over tables of ten blocks, every third with a candidate that is 4 % slower."""
    (folder / "tables").mkdir(parents=True)
    lines = ["kind,name,table,baseline,label.seed"]
    for seed in range(rows):
        rng = random.Random(seed)
        step = 1.04 if seed % 3 == 0 else 1.0
        cells = ["arm,block,value"]
        for block in range(10):
            cells.append(f"before,{block},{100 * rng.gauss(1, 0.01)}")
            cells.append(f"after,{block},{100 * step * rng.gauss(1, 0.01)}")
        (folder / "tables" / f"{seed}.csv").write_text("\n".join(cells) + "\n")
        lines.append(f"compare,seed-{seed},tables/{seed}.csv,before,{seed}")
    table = folder / "sweep.csv"
    table.write_text("\n".join(lines) + "\n")
    return table


def begin(table: Path, out: Path, executor: str) -> subprocess.Popen[bytes]:
    """Start the sweep as a user would."""
    words = ["sweep", str(table), "--out", str(out), "--executor", executor, "--gpus", "none"]
    words += ["--cpus", "2"]
    log = (out.parent / f"{executor}.log").open("ab")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", "rcatools", *words], stdout=log, stderr=log, env=env)


def done(out: Path) -> int:
    """Rows that are done."""
    return sum(Job(folder).settled()["state"] == "done" for folder in (out / "jobs").glob("*"))


def left_over(out: Path) -> list[psutil.Process]:
    """Processes of any row of this sweep."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(JOB_TAG, "").startswith(str(out.resolve())):
                found.append(process)
        except psutil.Error:
            continue
    return found


def survive(table: Path, out: Path, executor: str, rows: int, kills: int, seed: int) -> dict[str, Any]:
    """Run, kill, go on; returns what was found."""
    rng = random.Random(seed)
    targets = sorted(rng.sample(range(rows // 20, rows - rows // 20), kills))
    begun, after_kill = time.monotonic(), []
    for target in targets:
        process = begin(table, out, executor)
        while done(out) < target and process.poll() is None:
            time.sleep(rng.uniform(0.05, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + 20
        while left_over(out) and time.monotonic() < deadline:
            time.sleep(0.2)
        after_kill.append({"done": done(out), "processes_left": len(left_over(out))})
    process = begin(table, out, executor)
    code = process.wait()
    jobs = [Job(folder) for folder in sorted((out / "jobs").glob("*"))]
    finished = collections.Counter(sum(event["event"] == "done" for event in job.events()) for job in jobs)
    lost = sum(event["event"] == "lost" for job in jobs for event in job.events())
    return {
        "exit_code": code,
        "rows": len(jobs),
        "times_done": dict(finished),
        "attempts": sum(job.attempts() for job in jobs),
        "broken_off": lost,
        "after_kill": after_kill,
        "processes_left": len(left_over(out)),
        "seconds": round(time.monotonic() - begun, 1),
    }


def answers(out: Path) -> dict[str, Any]:
    """What each row says, by job."""
    said = {}
    for folder in (out / "jobs").glob("*"):
        job = Job(folder)
        result = job.result() or {}
        result.pop("masks", None)
        said[job.name] = (result, (job.attempt(job.attempts()) / "compare.json").read_text())
    return said


def main() -> None:
    """Run and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--executors", default="local")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = args.out or Path(place)
        table = make_table(folder / "input", args.rows)
        found: dict[str, Any] = {}
        for executor in args.executors.split(","):
            found[executor] = survive(table, folder / executor, executor, args.rows, args.kills, args.seed)
            print(json.dumps({executor: found[executor]}), flush=True)
        said = [answers(folder / executor) for executor in found]
        print(json.dumps({"same_answers": all(item == said[0] for item in said)}))


if __name__ == "__main__":
    main()
