"""How often planted changes of traces are read correctly: 100 seeds of each, in several sorts of traces.

    python benchmarks/trace_planted.py [--seeds 100] [--sort NAME ...]

Two traces of the same kernels, the second with a fixed cost of 1 us a launch, a fifth more of each duration, both, or
neither; 5 % noise on every launch of both, and a tenth replaced by kernels of other names. The sorts differ in the
number of launches and kernels, their durations, what is replaced, and whether the traces hold launches or replays.
Prints the share read as planted, and how often the intervals hold the planted values.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

WORLDS = {"additive": (1.0, 0.0), "multiplicative": (0.0, 0.2), "both": (1.0, 0.2), "neither": (0.0, 0.0)}
ROLES = ("gemm", "attention", "rms_norm", "elementwise", "strange")


@dataclass(frozen=True)
class Sort:
    """One sort of traces.

    Attributes:
        launches, kernels: how many, and of how many names.
        shortest, longest: durations in microseconds, spread evenly on a logarithmic scale.
        replaced: "launches" (a tenth of them), "names" (every launch of a tenth of the names), "like" (a tenth of the
            launches by a kernel of the same role and time).
        links: "launches", "replays" (graphs of 50 launches) or "none".
    """

    launches: int = 600
    kernels: int = 40
    shortest: float = 2.0
    longest: float = 200.0
    replaced: str = "launches"
    links: str = "launches"


SORTS = {
    "plain": Sort(),
    "few launches": Sort(launches=120, kernels=12, shortest=3, longest=90),
    "many launches": Sort(launches=3000, kernels=60),
    "decode": Sort(launches=1000, kernels=12, shortest=2, longest=40),
    "no name twice": Sort(launches=400, kernels=400),
    "names replaced": Sort(replaced="names"),
    "replaced by the like": Sort(replaced="like"),
    "graph replays": Sort(links="replays"),
    "no launch events": Sort(links="none"),
}


def write_pair(folder: Path, sort: Sort, seed: int, cost: float, share: float) -> tuple[Path, Path]:
    """Write the two traces of a seed."""
    generator = np.random.default_rng(seed)
    base = np.exp(generator.uniform(np.log(sort.shortest), np.log(sort.longest), sort.kernels))
    kind = np.arange(sort.launches) % sort.kernels
    names = [f"{ROLES[number % 5]}_{number}" for number in kind]
    noise = 1 + 0.05 * generator.standard_normal((2, sort.launches))
    left, right = base[kind] * noise[0], (base[kind] * (1 + share) + cost) * noise[1]
    others = list(names)
    if sort.replaced == "names":
        gone = generator.choice(sort.kernels, max(sort.kernels // 10, 1), replace=False)
        rows = np.flatnonzero(np.isin(kind, gone))
    else:
        rows = generator.choice(sort.launches, sort.launches // 10, replace=False)
    for row in rows:
        others[row] = f"{ROLES[kind[row] % 5]}_new_{kind[row]}" if sort.replaced == "like" else f"replacement_of_{names[row]}"  # fmt: skip
        right[row] *= 1.0 if sort.replaced == "like" else generator.uniform(0.5, 1.5)
    paths = folder / "a.json", folder / "b.json"
    for path, durations, labels in zip(paths, (left, right), (names, others), strict=True):
        gaps = 0.5 + 0.1 * generator.random(sort.launches)
        path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Card"}], "traceEvents": events(sort, durations, labels, gaps)}))  # fmt: skip
    return paths


def events(sort: Sort, durations: Any, names: list[str], gaps: Any) -> list[dict[str, Any]]:
    """Kernels one after another on one stream, as kineto writes them."""
    starts = 1000 + np.concatenate([[0.0], np.cumsum(durations + gaps)[:-1]])
    out: list[dict[str, Any]] = []
    for row, (start, duration, name) in enumerate(zip(starts, durations, names, strict=True)):
        number = row // 50 + 1 if sort.links == "replays" else row + 1
        if sort.links == "launches" or (sort.links == "replays" and row % 50 == 0):
            call = "cudaGraphLaunch" if sort.links == "replays" else "cudaLaunchKernel"
            out.append({"ph": "X", "cat": "cuda_runtime", "name": call, "pid": 1, "tid": 1, "ts": round(start - 5, 3), "dur": 1.5, "args": {"correlation": number}})  # fmt: skip
        out.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": round(start, 3), "dur": round(max(duration, 0.01), 3), "args": {"device": 0, "stream": 7, "correlation": number}})  # fmt: skip
    return out


def main() -> None:
    """Print one line per sort and world."""
    from rcatools.trace.diff import diff
    from rcatools.trace.read import load_trace

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--sort", action="append", choices=SORTS)
    args = parser.parse_args()
    print(
        f"{'sort':<22}{'planted':<16}{'read so':>8}{'fixed in ci':>12}{'share in ci':>12}  other readings of {args.seeds}"
    )
    for name in args.sort or SORTS:
        for world, (cost, share) in WORLDS.items():
            readings: Counter[str] = Counter()
            held = [0, 0]
            for seed in range(args.seeds):
                with tempfile.TemporaryDirectory() as folder:
                    pair = write_pair(Path(folder), SORTS[name], seed, cost, share)
                    found = diff(*(load_trace(path) for path in pair))
                readings[found.reading] += 1
                held[0] += found.fit.us_ci[0] <= cost <= found.fit.us_ci[1]
                held[1] += found.fit.ratio_ci[0] <= 1 + share <= found.fit.ratio_ci[1]
            others = {reading: count for reading, count in readings.items() if reading != world}
            print(f"{name:<22}{world:<16}{readings[world]:>8}{held[0]:>12}{held[1]:>12}  {others or ''}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
