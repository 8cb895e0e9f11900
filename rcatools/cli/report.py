"""``rcatools report``: runs the notebooks headless and writes the findings."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rcatools.cli.app import print_json
from rcatools.cli.values import nonempty_path, number, whole
from rcatools.errors import InputError

SUMMARY = "Judge recordings (or measure now with --live), run the notebooks, write the report folder."
EXAMPLE = "rcatools report capture-stream --out report"
VERDICTS = ("slower", "faster", "equivalent", "undecided")
BUDGET_S = {"cpu": 45, "gpu": 900}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("investigation", help="name of a folder in data/investigations")
    parser.add_argument(
        "--recording",
        action="append",
        default=[],
        metavar="DIR_OR_NAME",
        help="recording to judge, may be repeated; the first decides the device (default: the embedded ones)",
    )
    parser.add_argument("--live", action="store_true", help="measure all arms on this machine and judge that")
    parser.add_argument(
        "--no-live-check", action="store_true", help="leave out the short run on this machine"
    )
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda", "rocm"])
    parser.add_argument(
        "--out", type=nonempty_path, default=Path("report"), help="report folder (default: report)"
    )
    parser.add_argument(
        "-p",
        action="append",
        default=[],
        metavar="name=value",
        help="notebook parameter, such as margin=0.02",
    )
    parser.add_argument("--arms", help="with --live: comma-separated arms to measure")
    parser.add_argument("--blocks", type=whole(1, 100_000), help="with --live: number of blocks")
    parser.add_argument(
        "--budget-s",
        type=number(0, 10**7),
        help="with --live: begin no further block after this many seconds, one is always made (default: 45 on a CPU, 900 on a GPU)",
    )
    parser.add_argument("--workers", type=whole(1, 4096), help="notebooks at a time (default: one per core)")
    parser.add_argument("--fail-on", choices=VERDICTS, help="exit with 1 where the suspect's verdict is this")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Make the report and print where it is and what it answers."""
    from rcatools.batch.parameters import parse_assignments
    from rcatools.batch.pipeline import ReportOptions, result_json, run_report

    if not args.live and any(value is not None for value in (args.arms, args.blocks, args.budget_s)):
        raise InputError("--arms, --blocks and --budget-s need --live: add it, or leave them out")
    options = ReportOptions(
        investigation=args.investigation,
        out=args.out,
        recordings=args.recording,
        live=args.live,
        check_live=not args.no_live_check,
        device=args.device,
        record_options=_record_options(args) if args.live else (),
        parameters=parse_assignments(args.p),
        workers=args.workers,
    )
    with progress() as say:
        result = run_report(options, say)
    if args.json:
        print_json(result_json(result))
    else:
        print(f"{result.folder}/report.html\n{result.answer}")
    if result.state != "done":
        for text in result.failures:
            print(f"rcatools: notebook {text}", file=sys.stderr)
        return 3
    return 1 if args.fail_on and result.verdict == args.fail_on else 0


def _record_options(args: argparse.Namespace) -> list[str]:
    from rcatools.cli.record import named_arms
    from rcatools.device.backend import choose_backend, import_torch
    from rcatools.experiment.arms import load_plan
    from rcatools.experiment.workloads import needs_torch

    plan = load_plan(args.investigation)
    arms = named_arms(args.arms)
    device = choose_backend(args.device, import_torch()) if needs_torch(plan.workload) else "cpu"
    plan.choose(arms, device)
    budget = args.budget_s or BUDGET_S["cpu" if device == "cpu" else "gpu"]
    words = ["--budget-s", f"{budget:g}"]
    if arms:
        words += ["--arms", ",".join(arms)]
    if args.blocks:
        words += ["--blocks", str(args.blocks)]
    return words


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Tells what is going on: a live line with rich on a terminal, plain lines in a log."""
    started = time.monotonic()

    def line(text: str) -> str:
        return f"[{time.monotonic() - started:5.1f} s] {text}"

    if not sys.stderr.isatty():
        yield lambda text: print(line(text), file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    with console.status("starting") as status:

        def say(text: str) -> None:
            console.print(line(text), markup=False, highlight=False)
            status.update(escape(text))

        yield say
