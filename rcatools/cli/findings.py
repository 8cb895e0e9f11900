"""``rcatools findings``: renders findings.md again from a report folder."""

from __future__ import annotations

import argparse

from rcatools.cli.app import print_json
from rcatools.cli.values import nonempty_path, whole

SUMMARY = "Render findings.md again from the verdict.json of a report folder."
EXAMPLE = "rcatools findings report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", type=nonempty_path, help="report folder written by 'rcatools report'")
    parser.add_argument(
        "--limit", type=whole(2000, 60_000), default=60_000, help="most characters (default: 60000)"
    )
    parser.add_argument("--print", action="store_true", help="print the Markdown instead of writing the file")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Render and write."""
    from rcatools.files import write_bytes
    from rcatools.report import document, findings

    text = findings.render(document.read(args.folder), args.limit)
    if args.print:
        print(text, end="")
        return 0
    target = args.folder / "findings.md"
    write_bytes(target, text.encode())
    if args.json:
        print_json({"findings": str(target), "characters": len(text)})
    else:
        print(f"{target}: {len(text)} characters")
    return 0
