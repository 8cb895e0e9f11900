"""``rcatools compare``: a verdict for any table of repeated measurements."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rcatools.cli.app import print_json
from rcatools.cli.values import new_file, nonempty_path, share

if TYPE_CHECKING:
    from rcatools.report.compare_run import Judged

SUMMARY = "Give a verdict for a table of repeated measurements: slower, faster, equivalent or undecided, with reasons."
EXAMPLE = "rcatools compare runs.csv --baseline before --margin 0.02 --fail-on slower"
VERDICTS = ("slower", "faster", "equivalent", "undecided")
INDENT_UP_TO = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "tables",
        nargs="+",
        metavar="[ARM=]TABLE",
        help="CSV, TSV, Markdown, JSON, JSON Lines, Parquet, or a result file of pytest-benchmark, hyperfine, nvbench, "
        "google-benchmark, vllm bench or Go; several files are one arm each by name",
    )
    parser.add_argument(
        "--baseline", required=True, metavar="ARM", help="arm (or column of a wide table) to compare with"
    )
    parser.add_argument(
        "--arm", action="append", default=[], metavar="NAME", help="judge this arm only (repeatable)"
    )
    parser.add_argument("--value", metavar="COL", help="column of the values")
    parser.add_argument(
        "--metric", action="append", default=[], metavar="NAME", help="judge this metric only (repeatable)"
    )
    direction = parser.add_mutually_exclusive_group()
    direction.add_argument("--higher-is-better", action="store_true", help="values are rates, not times")
    direction.add_argument(
        "--lower-is-better", action="store_true", help="values are times, whatever their name says"
    )
    parser.add_argument(
        "--margin", type=share, default=0.02, help="change that does not matter (default 0.02 = 2 %%)"
    )
    parser.add_argument(
        "--confidence", type=share, default=0.95, help="level of the intervals (default 0.95)"
    )
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        choices=VERDICTS,
        help="exit 1 when an arm gets this verdict (repeatable)",
    )
    columns = parser.add_argument_group("columns")
    columns.add_argument("--arm-column", metavar="COL", help="column that names the arm")
    columns.add_argument("--run-column", metavar="COL", help="column that names the run (process)")
    columns.add_argument("--block-column", metavar="COL", help="column that pairs arms")
    columns.add_argument(
        "--by",
        action="append",
        default=[],
        metavar="COL",
        help="column that tells workloads apart (repeatable)",
    )
    columns.add_argument(
        "--ignore", action="append", default=[], metavar="COL", help="column to leave out (repeatable)"
    )
    columns.add_argument(
        "--unit", choices=("auto", "block", "run", "row"), default="auto", help="what is one replicate"
    )
    columns.add_argument("--any-scale", action="store_true", help="accept values a factor of 1,000 apart")
    noise = parser.add_argument_group("A/A data")
    noise.add_argument(
        "--aa",
        action="append",
        default=[],
        metavar="ARM",
        help="this arm is the baseline measured again (repeatable)",
    )
    noise.add_argument(
        "--not-aa",
        action="append",
        default=[],
        metavar="ARM",
        help="this arm is no repeat, whatever its name says",
    )
    noise.add_argument(
        "--aa-table",
        action="append",
        default=[],
        metavar="TABLE",
        type=nonempty_path,
        help="runs of one build; two tables, or two arms in one, are compared with each other",
    )
    output = parser.add_argument_group("output")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document")
    form.add_argument("--markdown", action="store_true", help="print Markdown for an issue")
    output.add_argument(
        "--figure", metavar="FILE.svg", type=nonempty_path, help="also write the dot-and-interval figure"
    )


def run(args: argparse.Namespace) -> int:
    """Read, judge, print; 1 when --fail-on matches."""
    from rcatools.recording.tables import Request
    from rcatools.report.compare_json import to_json
    from rcatools.report.compare_run import judge_tables
    from rcatools.report.compare_text import to_markdown, to_text

    if args.figure is not None:
        new_file(args.figure, "--figure", ".svg")
    request = Request(
        baseline=args.baseline,
        arms=tuple(args.arm),
        value=args.value,
        arm_column=args.arm_column,
        run_column=args.run_column,
        block_column=args.block_column,
        by=tuple(args.by),
        ignore=tuple(args.ignore),
        higher_is_better=True if args.higher_is_better else False if args.lower_is_better else None,
        metrics=tuple(args.metric),
        any_scale=args.any_scale,
    )
    judged = judge_tables(
        [_source(text) for text in args.tables],
        request,
        margin=args.margin,
        confidence=args.confidence,
        unit=args.unit,
        repeats=args.aa,
        not_repeats=args.not_aa,
        repeat_tables=args.aa_table,
    )
    if args.figure is not None:
        _write_figure(args.figure, judged)
    if args.json:
        document = to_json(judged.verdict, judged.shown)
        _print_document(document | {"unknown_columns": list(judged.table.unknown), "form": judged.table.form})
    else:
        sys.stdout.write((to_markdown if args.markdown else to_text)(judged.verdict, judged.shown))
    found = {str(c.verdict) for result in judged.verdict.results for c in result.comparisons}
    return 1 if found & set(args.fail_on) else 0


def _print_document(document: dict[str, Any]) -> None:
    """Indented for a few results; on one line for thousands, which the fast encoder writes ten times sooner."""
    if len(document.get("results", ())) <= INDENT_UP_TO:
        print_json(document)
    else:
        sys.stdout.write(json.dumps(document, allow_nan=False, ensure_ascii=False) + "\n")


def _source(text: str) -> tuple[str | None, Path]:
    """``ARM=PATH`` or ``PATH``; a path that exists is taken whole."""
    path = Path(text)
    arm, sign, rest = text.partition("=")
    if path.exists() or not sign or not arm or not rest:
        return None, path
    return arm, Path(rest)


def _write_figure(path: Path, judged: Judged) -> None:
    from rcatools.report.compare_figure import interval_figure

    verdict = judged.verdict
    title = f"{verdict.verdict}: compared with {verdict.baseline}"
    path.write_text(interval_figure(judged.lines(), title), encoding="utf-8")
