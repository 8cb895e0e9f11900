"""``rcatools sweep``: many reports, recordings, comparisons or notebooks, one per table row."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import Any

from rcatools.cli.app import print_json
from rcatools.cli.values import nonempty_path, whole
from rcatools.errors import InputError

SUMMARY = "Run one job for each row of a table; what is done already is skipped, so the same call resumes."
EXAMPLE = "rcatools sweep nightly.csv --out sweeps/tonight"
VERDICTS = ("slower", "faster", "equivalent", "undecided")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "table", type=nonempty_path, help="CSV or TSV; its columns are explained in docs/batch.md"
    )
    parser.add_argument("--out", type=nonempty_path, required=True, help="folder of the jobs")
    parser.add_argument("--executor", choices=["local", "ray"], default="local", help="where rows run")
    parser.add_argument("--address", default="", help="with ray: address of a running cluster, or 'auto'")
    parser.add_argument(
        "--row", type=whole(1), help="run this row only; the first is 1 (for --row $SLURM_ARRAY_TASK_ID)"
    )
    parser.add_argument(
        "--gpus", default="auto", help="auto, none, or mask entries such as rocm:0,rocm:1 (default: auto)"
    )
    parser.add_argument(
        "--cpus", type=whole(1, 4096), help="rows that measure nothing at a time (default: by cores)"
    )
    parser.add_argument(
        "--retries",
        type=whole(0, 1000),
        default=2,
        help="begin a row again that the machine broke off (default: 2)",
    )
    parser.add_argument("--retry-failed", action="store_true", help="also rows that failed by themselves")
    parser.add_argument("--fail-on", choices=VERDICTS, help="exit with 1 where a row's verdict is this")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the sweep and print how it went."""
    from rcatools.batch.slots import parse_cards
    from rcatools.batch.sweep import SweepOptions, run_sweep

    if args.address and args.executor != "ray":
        raise InputError("--address needs --executor ray: add it, or leave --address out")
    options = SweepOptions(
        table=args.table,
        out=args.out,
        executor=args.executor,
        row=args.row,
        cards=parse_cards(args.gpus),
        cpus=args.cpus,
        retries=args.retries,
        retry_failed=args.retry_failed,
        address=args.address,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        summary = run_sweep(options, _say)
    except KeyboardInterrupt:
        print("rcatools: stopped; the same call goes on where it was", file=sys.stderr)
        return 130
    if args.json:
        print_json(summary)
    else:
        counts = summary["counts"]
        told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        print(f"{args.out}: {told}")
    return exit_code(summary, args.fail_on)


def exit_code(summary: dict[str, Any], fail_on: str | None) -> int:
    """0 all done, 1 a wanted verdict, 2 a wrong input seen only in the row, 3 a row failed or was lost."""
    rows = summary["rows"]
    if summary["state"] != "done":
        wrong = [row for row in rows if row["state"] != "done"]
        return 2 if all(row["exit_code"] == 2 for row in wrong) else 3
    return 1 if fail_on and any(row["verdict"] == fail_on for row in rows) else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
