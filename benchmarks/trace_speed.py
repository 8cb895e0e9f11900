"""How fast traces are read, beside Python's json and HolisticTraceAnalysis on the same files.

    python benchmarks/trace_speed.py FILE.json.gz [FILE2.json.gz] [--gigabytes 1] [--hta-python PATH]

Every measurement runs in a process of its own: wall time, CPU time and peak memory of the work alone, after
imports. ``json.loads`` gets the text already unpacked; reading with rcatools starts from the file and includes
unpacking it and the summary. With two files their diff is measured too. ``--gigabytes`` repeats the first file's
events to that size, uncompressed. ``--hta-python`` names an interpreter that has HolisticTraceAnalysis.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

MEASURE = """
import json, resource, sys, time
{setup}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
wall, cpu = time.perf_counter(), time.process_time()
{work}
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu,
    resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, before / 1024]))
"""
JSON_SETUP = (
    "import gzip\npath = {path!r}\nraw = (gzip.open if path.endswith('.gz') else open)(path, 'rb').read()"
)
OURS_SETUP = """
from rcatools.trace.read import load_trace
from rcatools.trace.summary import summarize
"""
HTA_SETUP = "from hta.common.trace import parse_trace_file\n"
WORK = {
    "json.loads": "json.loads(raw)",
    "rcatools read": "load_trace({path!r})",
    "rcatools read + summary": "summarize(load_trace({path!r})).to_json()",
    "rcatools read from cache": "load_trace({path!r}, cache_folder={cache!r})",
    "HTA parse": "parse_trace_file({path!r})",
    "rcatools read both + diff": "from rcatools.trace.diff import diff\ndiff(load_trace({path!r}), load_trace({other!r})).to_json()",
}


def measure(python: str, setup: str, work: str) -> tuple[float, float, float] | str:
    """Wall seconds, CPU seconds and peak MB of a piece of work in a fresh process; the error's last line on failure."""
    done = subprocess.run(
        [python, "-c", MEASURE.format(setup=setup, work=work)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1][:100]
    wall, cpu, peak, _ = json.loads(done.stdout.strip().splitlines()[-1])
    return wall, cpu, peak


def best(python: str, setup: str, work: str, repeats: int) -> tuple[float, float, float] | str:
    """The run of some with the least CPU time, which other work on the machine disturbs least."""
    runs = [measure(python, setup, work) for _ in range(repeats)]
    good = [run for run in runs if not isinstance(run, str)]
    return min(good, key=lambda run: run[1]) if good else runs[0]


def repeated(source: Path, target: Path, size: int) -> None:
    """Write the events of a trace again and again, each time later and with new correlation numbers, to a size."""
    raw = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    document = json.loads(raw)
    events = document.pop("traceEvents")
    times = [entry["ts"] for entry in events if isinstance(entry.get("ts"), (int, float))]
    span = max(times) - min(times) + 1_000_000
    body = json.dumps(events, separators=(",", ":"))[1:-1]
    head = json.dumps(document)[:-1]
    pattern = re.compile(r'"(ts|correlation|External id)":(\d+)')
    with target.open("w") as file:
        file.write(head + (", " if len(head) > 1 else "") + '"traceEvents": [')
        turn = 0
        while file.tell() < size:
            file.write(("," if turn else "") + pattern.sub(partial(_shifted, turn, int(span)), body))
            turn += 1
        file.write("]}")


def _shifted(turn: int, span: int, match: re.Match[str]) -> str:
    step = span if match[1] == "ts" else 10_000_000
    return f'"{match[1]}":{int(match[2]) + turn * step}'


def table(path: Path, python: str, hta: str | None, repeats: int, other: Path | None = None) -> None:
    """Print one line per way of reading a file."""
    size = len(gzip.decompress(path.read_bytes())) if path.suffix == ".gz" else path.stat().st_size
    print(f"\n{path.name}: {path.stat().st_size / 1e6:.1f} MB, {size / 1e6:.1f} MB of JSON")
    print(f"{'':<28}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}{'peak/JSON':>10}{'CPU/json':>10}")
    base: float | None = None
    with tempfile.TemporaryDirectory() as cache:
        values = {"path": str(path), "cache": cache, "other": str(other)}
        for name, work in WORK.items():
            if (name == "HTA parse" and hta is None) or ("diff" in name and other is None):
                continue
            setup = {"json.loads": JSON_SETUP.format(**values), "HTA parse": HTA_SETUP}.get(name, OURS_SETUP)
            interpreter = hta if name == "HTA parse" and hta else python
            if "cache" in name:
                measure(interpreter, setup, work.format(**values))
            found = best(interpreter, setup, work.format(**values), repeats)
            if isinstance(found, str):
                print(f"{name:<28}{found}")
                continue
            wall, cpu, peak = found
            base = cpu if base is None else base
            print(
                f"{name:<28}{wall:>8.3f}{cpu:>8.3f}{peak:>9.0f}{peak * 1048576 / size:>10.2f}{cpu / base:>10.2f}"
            )


def main() -> None:
    """Measure the files that were given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--gigabytes", type=float, default=0)
    parser.add_argument("--hta-python")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    for index, path in enumerate(args.files):
        other = args.files[1] if index == 0 and len(args.files) > 1 else None
        table(path, sys.executable, args.hta_python, args.repeats, other)
    if args.gigabytes:
        with tempfile.TemporaryDirectory() as folder:
            for size in (args.gigabytes / 4, args.gigabytes):
                target = Path(folder) / f"repeated_{size:g}GB.json"
                repeated(args.files[0], target, int(size * 1e9))
                table(target, sys.executable, args.hta_python if size < args.gigabytes else None, 1)
                target.unlink()


if __name__ == "__main__":
    main()
