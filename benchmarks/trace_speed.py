"""How fast traces are read, beside Python's json and HolisticTraceAnalysis on the same files.

    python benchmarks/trace_speed.py [FILE.json.gz [FILE2.json.gz]] [--gigabytes 1] [--hta-python PATH]

Every measurement runs in a process of its own; the ways take turns, and of ``--repeats`` turns the one with the least
CPU time is shown, which other work on the machine disturbs least. Time is that of the work alone, after imports,
but for the line of the command. Peak memory is the process's, imports included. ``json.loads`` gets the text already
unpacked; reading with rcatools starts from the packed file. With two files their diff is measured too.
``--gigabytes`` repeats the events to a quarter of that size and to that size, uncompressed.

Without files: the pair of 61 MB that TraceLens publishes, where it lies beside the checkout, else the traces of the
H200 recording. HolisticTraceAnalysis is installed from PyPI into .venv-hta at the first call, unless ``--hta-python``
names an interpreter that has it, or ``none``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
HTA = "HolisticTraceAnalysis==0.5.0"
PAIR = "google_owlv2-large-patch14-ensemble__1016001.json.gz"
MEASURE = """
import json, re, resource, sys, time
{setup}
wall, cpu = time.perf_counter(), time.process_time()
{work}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
with open("/proc/self/status") as status:
    peak = int(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1]) * 1024
print(json.dumps([wall, cpu, peak]))
"""
JSON_SETUP = (
    "import gzip\npath = {path!r}\nraw = (gzip.open if path.endswith('.gz') else open)(path, 'rb').read()"
)
OURS_SETUP = "from rcatools.trace.read import load_trace\nfrom rcatools.trace.summary import summarize\n"
DIFF_SETUP = OURS_SETUP + "from rcatools.trace.diff import diff\n"
HTA_SETUP = "from hta.common.trace import parse_trace_file\n"
WORK = {
    "json.loads": (JSON_SETUP, "json.loads(raw)"),
    "rcatools read": (OURS_SETUP, "load_trace({path!r})"),
    "rcatools read + summary": (OURS_SETUP, "summarize(load_trace({path!r})).to_json()"),
    "rcatools read from its cache": (OURS_SETUP, "load_trace({path!r}, cache_folder={cache!r})"),
    "HTA parse": (HTA_SETUP, "parse_trace_file({path!r})"),
    "both files read and compared": (DIFF_SETUP, "diff(load_trace({path!r}), load_trace({other!r})).to_json()"),
}  # fmt: skip
COMMAND = "command 'trace summary'"


class Cost(NamedTuple):
    """Wall and CPU seconds, peak bytes."""

    wall: float
    cpu: float
    peak: int


def measure(python: str, setup: str, work: str) -> Cost | str:
    """The cost of a piece of work in a fresh process; the error's last line on failure."""
    done = subprocess.run(
        [python, "-c", MEASURE.format(setup=setup, work=work)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1][:100]
    return Cost(*json.loads(done.stdout.strip().splitlines()[-1]))


def measure_command(path: Path) -> Cost | str:
    """The cost of the whole command, from the start of the interpreter to its end."""
    work = (
        "import subprocess\n"
        f"subprocess.run([sys.executable, '-m', 'rcatools', 'trace', 'summary', '--json', {str(path)!r}], "
        "stdout=subprocess.DEVNULL, check=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(setup="", work=work).replace(
            "print(json.dumps([wall, cpu, peak]))",
            "print(json.dumps([wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024]))")],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1][:100]
    return Cost(*json.loads(done.stdout.strip().splitlines()[-1]))


def repeated(source: Path, target: Path, size: int) -> None:
    """Write the events of a trace again and again, each time later and with new correlation numbers, to a size."""
    raw = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    document = json.loads(raw)
    del raw
    events = document.pop("traceEvents")
    times = [entry["ts"] for entry in events if isinstance(entry.get("ts"), (int, float))]
    span = max(times) - min(times) + 1_000_000
    body = json.dumps(events, separators=(",", ":"))[1:-1]
    head = json.dumps(document)[:-1]
    del events, document
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


def json_bytes(path: Path) -> int:
    """Size of a file's text."""
    if path.suffix != ".gz":
        return path.stat().st_size
    with gzip.open(path) as file:
        return sum(len(block) for block in iter(lambda: file.read(1 << 20), b""))


def table(path: Path, hta: str | None, repeats: int, other: Path | None = None) -> dict[str, Cost]:
    """Measure every way of reading a file and print a line for each."""
    size = json_bytes(path)
    found: dict[str, list[Cost | str]] = {}
    with tempfile.TemporaryDirectory() as cache:
        values = {"path": str(path), "cache": cache, "other": str(other)}
        for turn in range(repeats):
            for name, (setup, work) in WORK.items():
                if (name == "HTA parse" and hta is None) or (name.startswith("both") and other is None):
                    continue
                python = hta if name == "HTA parse" and hta else sys.executable
                call = partial(measure, python, setup.format(**values), work.format(**values))
                if "cache" in name and turn == 0:
                    call()
                found.setdefault(name, []).append(call())
            found.setdefault(COMMAND, []).append(measure_command(path))
    costs = {
        name: min(good, key=lambda cost: cost.cpu)
        for name, runs in found.items()
        if (good := [run for run in runs if not isinstance(run, str)])
    }
    print(
        f"\n{path.name}: {path.stat().st_size / 1e6:.1f} MB, {size / 1e6:.1f} MB of JSON, best of {repeats}"
    )
    print(f"{'':<30}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}{'peak/JSON':>10}{'CPU/json':>10}{'HTA/CPU':>9}")
    for name, runs in found.items():
        if name not in costs:
            print(f"{name:<30}{runs[0]}")
            continue
        cost = costs[name]
        versus = [
            f"{cost.cpu / costs['json.loads'].cpu:>10.2f}",
            f"{costs['HTA parse'].cpu / cost.cpu:>9.1f}" if "HTA parse" in costs else "",
        ]
        print(
            f"{name:<30}{cost.wall:>8.3f}{cost.cpu:>8.3f}{cost.peak / 1e6:>9.0f}{cost.peak / size:>10.2f}"
            + "".join(versus)
        )
    sys.stdout.flush()
    return costs


def hta_python(given: str | None) -> str | None:
    """An interpreter with HolisticTraceAnalysis, in an environment of its own; None where there is none."""
    if given:
        return None if given == "none" else given
    folder = ROOT / ".venv-hta"
    python = folder / "bin" / "python"
    if not python.is_file():
        print(f"installing {HTA} into {folder.name}", flush=True)
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "-q", "install", HTA],
        ):
            if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
                print("it cannot be installed here: measured without it")
                return None
    return (
        str(python)
        if subprocess.run([str(python), "-c", "import hta"], check=False).returncode == 0
        else None
    )


def default_files() -> list[Path]:
    """The large published pair where it lies beside the checkout, else two traces of the H200 recording."""
    published = [ROOT.parent / "shared" / "real" / "tracelens" / card / PAIR for card in ("mi300", "h100")]
    own = [ROOT / "data/recordings/capture-stream-h200/traces" / f"{arm}.json.gz" for arm in ("off", "side")]
    return published if all(path.is_file() for path in published) else own


def main() -> None:
    """Measure the files that were given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--gigabytes", type=float, default=None)
    parser.add_argument("--hta-python")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    files = args.files or default_files()
    gigabytes = args.gigabytes if args.gigabytes is not None else (0 if args.files else 1)
    hta = hta_python(args.hta_python)
    for index, path in enumerate(files):
        table(path, hta, args.repeats, files[1] if index == 0 and len(files) > 1 else None)
    if gigabytes:
        with tempfile.TemporaryDirectory() as folder:
            for size in (gigabytes / 4, gigabytes):
                targets = [
                    Path(folder) / f"{source.name.split('_')[0]}_{number}_{size:g}GB.json"
                    for number, source in enumerate(files[:2])
                ]
                for source, target in zip(files, targets, strict=False):
                    repeated(source, target, int(size * 1e9))
                small = size < gigabytes
                table(targets[0], hta if small else None, 2 if small else 1, targets[-1])
                for target in targets:
                    target.unlink()


if __name__ == "__main__":
    main()
