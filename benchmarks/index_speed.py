"""Ten thousand synthetic recordings indexed and asked: seconds, memory and growth.

    python benchmarks/index_speed.py [--sizes 2500,5000,10000] [--folder FOLDER]

Each size is indexed by a process of its own, whose peak memory (with its workers') is taken from the system.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
ARMS = ("off", "off_again", "side")
BLOCKS, SAMPLES = 8, 5
QUESTIONS = (
    "SELECT machine, count(*), avg(noise_floor) FROM recordings GROUP BY machine ORDER BY 3 DESC",
    "SELECT r.commit, avg(ln(e.ratio)) FROM effects e JOIN recordings r USING (recording) "
    "WHERE e.arm = 'side' GROUP BY r.commit ORDER BY 1",
    "SELECT verdict, count(*) FROM effects GROUP BY verdict",
)


def write_recording(folder: Path, number: int) -> None:
    """One recording of three arms, eight blocks and five samples of two metrics."""
    rng = np.random.default_rng(number)
    machine, day, commit = number % 10, number // 10 % 28, number // 40
    folder.mkdir(parents=True)
    level = 1700 * (1.03 if machine == 7 else 1.0) * np.exp(rng.normal(0, 0.002))
    columns: dict[str, list[object]] = {
        name: [] for name in ("arm", "block", "order", "run", "metric", "sample", "value")
    }
    for i, arm in enumerate(ARMS):
        ratio = 1.05 if arm == "side" and commit > 120 else 1.0
        for block in range(BLOCKS):
            run = f"{block:03d}-{i:02d}-{arm}"
            for metric, base in (("step_us", level * ratio), ("boundary_us", 1.0)):
                values = base * np.exp(rng.normal(0, 0.004, SAMPLES))
                columns["arm"] += [arm] * SAMPLES
                columns["block"] += [block] * SAMPLES
                columns["order"] += [i] * SAMPLES
                columns["run"] += [run] * SAMPLES
                columns["metric"] += [metric] * SAMPLES
                columns["sample"] += list(range(SAMPLES))
                columns["value"] += values.tolist()
    pq.write_table(pa.table(columns), folder / "samples.parquet", compression="zstd")
    manifest = {
        "schema": "rcatools-recording",
        "version": 1,
        "investigation": "synthetic",
        "state": "complete",
        "created_utc": f"2026-11-{day + 1:02d}T02:00:00+00:00",
        "command": "synthetic",
        "device": {"backend": "cuda", "name": "Synthetic GPU", "arch": "none", "uuid": f"card-{machine}"},
        "environment": {
            "packages": {"torch": "2.11.0"},
            "code": {"commit": f"{commit:040x}", "dirty": False},
        },
        "workload": {"name": "decode", "parameters": {"batch": 1}},
        "design": {
            "baseline": "off",
            "metric": "step_us",
            "margin": 0.01,
            "confidence": 0.95,
            "arms": [
                {"name": arm, "role": role}
                for arm, role in zip(ARMS, ("baseline", "repeat", "suspect"), strict=True)
            ],
        },
        "counts": {"planned": BLOCKS * len(ARMS), "ok": BLOCKS * len(ARMS), "failed": 0},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def cpu_seconds() -> float:
    """CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(words: list[str]) -> tuple[float, float, float, str]:
    """Seconds, CPU seconds, peak resident bytes of the process with its children, and what it printed."""
    begun, cpu = time.monotonic(), cpu_seconds()
    process = subprocess.Popen(
        [sys.executable, "-m", "rcatools", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    peak = [0.0]

    def watch() -> None:
        me = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                family = [me, *me.children(recursive=True)]
                peak[0] = max(peak[0], sum(item.memory_info().rss for item in family))
            except psutil.Error:
                pass
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    said, _ = process.communicate()
    watcher.join()
    assert process.returncode == 0, said
    return time.monotonic() - begun, cpu_seconds() - cpu, peak[0], said


def main() -> None:
    """Make the recordings, index growing parts of them, ask."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="2500,5000,10000")
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    with tempfile.TemporaryDirectory() as place:
        root = args.folder or Path(place)
        for size in sizes:
            folder = root / f"size-{size}"
            begun = time.monotonic()
            for number in range(0 if folder.is_dir() else size):
                write_recording(folder / f"night-{number // 100:03d}" / f"run-{number:05d}", number)
            made = time.monotonic() - begun
            seconds, cpu, peak, said = measured(["index", str(folder), "--json"])
            again = measured(["index", str(folder), "--json"])
            asked = [measured(["index", str(folder), "--query", sql, "--json"]) for sql in QUESTIONS]
            print(
                json.dumps(
                    {
                        "recordings": size,
                        "made_s": round(made, 1),
                        "indexed_s": round(seconds, 1),
                        "indexed_cpu_s": round(cpu, 1),
                        "cpu_ms_per_recording": round(1000 * cpu / size, 2),
                        "unchanged_s": round(again[0], 2),
                        "unchanged_cpu_s": round(again[1], 2),
                        "asked_s": [round(item[0], 2) for item in asked],
                        "asked_cpu_s": [round(item[1], 2) for item in asked],
                        "load": round(os.getloadavg()[0], 1),
                        "peak_mb": round(peak / 1e6),
                        "found": json.loads(said)["updated"]["counts"],
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
