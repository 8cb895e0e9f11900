"""How long `rcatools compare` takes on large tables, beside what reading and grouping them costs by itself.

    python benchmarks/compare_speed.py [--rows 1000000] [--kernels 10000] [--repeats 3]

Each program runs in a fresh process, in alternating order; the table shows the median wall time, the processor
time and the largest resident size. "read and group" is pandas reading the same file and taking the median of
each run: what any tool must do before it can judge.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

READ_AND_GROUP = """
import sys
import pandas as pd
frame = pd.read_csv(sys.argv[1], engine="pyarrow")
keys = [c for c in frame.columns if c not in ("value", "sample")]
print(len(frame.groupby(keys, sort=False)["value"].median()))
"""


def samples_table(path: Path, rows: int) -> None:
    """Two arms in 500 blocks, the rest of the rows being samples inside the runs."""
    rng = np.random.default_rng(0)
    per_run = rows // 1000
    with path.open("w") as file:
        file.write("arm,block,run,sample,value\n")
        for block in range(500):
            level = 0.02 * rng.normal()
            for arm, effect in (("off", 0.0), ("on", 0.01)):
                values = 2500 * np.exp(
                    level + effect + 0.005 * rng.normal() + 0.003 * rng.normal(size=per_run)
                )
                run = 2 * block + (arm == "on")
                file.writelines(f"{arm},{block},{run},{i},{v:.3f}\n" for i, v in enumerate(values))


def kernels_table(path: Path, kernels: int) -> None:
    """Two arms in 12 blocks for each kernel; one kernel in twenty is 5 % slower."""
    rng = np.random.default_rng(1)
    with path.open("w") as file:
        file.write("kernel,arm,block,value\n")
        for kernel in range(kernels):
            base = 10 ** rng.uniform(0, 3)
            level = 0.02 * rng.normal(size=12)
            for arm, effect in (("off", 0.0), ("on", 0.05 if kernel % 20 == 0 else 0.0)):
                values = base * np.exp(level + effect + 0.01 * rng.normal(size=12))
                file.writelines(f"kernel_{kernel},{arm},{b},{v:.4f}\n" for b, v in enumerate(values))


def measure(command: list[str]) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and MiB of resident memory of a command."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kernels", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'table':28} {'program':16} {'wall s':>8} {'cpu s':>8} {'MiB':>6}")
    with tempfile.TemporaryDirectory() as folder:
        samples, kernels = Path(folder) / "samples.csv", Path(folder) / "kernels.csv"
        samples_table(samples, args.rows)
        kernels_table(kernels, args.kernels)
        for name, path in ((f"{args.rows:,} rows", samples), (f"{args.kernels:,} kernels x 2 x 12", kernels)):
            programs = {
                "read and group": [sys.executable, "-c", READ_AND_GROUP, str(path)],
                "compare --json": [
                    sys.executable,
                    "-m",
                    "rcatools",
                    "compare",
                    str(path),
                    "--baseline",
                    "off",
                    "--json",
                ],
            }
            found: dict[str, list[tuple[float, float, float]]] = {label: [] for label in programs}
            for _ in range(args.repeats):
                for label, command in programs.items():
                    found[label].append(measure(command))
            for label, results in found.items():
                wall, cpu, memory = (statistics.median(values) for values in zip(*results, strict=True))
                print(f"{name:28} {label:16} {wall:8.2f} {cpu:8.2f} {memory:6.0f}")
            ratio = statistics.median(w[0] for w in found["compare --json"]) / statistics.median(
                w[0] for w in found["read and group"]
            )
            print(f"{name:28} {'ratio of walls':16} {ratio:8.2f}")


if __name__ == "__main__":
    main()
