"""``rcatools index``: gathers recordings, reports and jobs, and answers questions about all of them."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from rcatools.cli.app import print_json
from rcatools.cli.values import new_file, nonempty_path, share, whole
from rcatools.errors import InputError

SUMMARY = "Gather all recordings, reports and jobs below a folder into one store; overview, SQL, page."
EXAMPLE = 'rcatools index recordings --query "SELECT machine, avg(noise_floor) FROM recordings GROUP BY 1"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", type=nonempty_path, help="folder that holds recordings, reports or sweeps")
    parser.add_argument(
        "--query",
        metavar="SQL",
        help="ask the store as it is: tables recordings, effects, runs, reports, jobs, problems",
    )
    parser.add_argument(
        "--store", type=nonempty_path, help="folder of the store (default: .rcatools-index in the folder)"
    )
    parser.add_argument(
        "--page", type=nonempty_path, metavar="FILE.html", help="also write the overview as one page"
    )
    parser.add_argument(
        "--margin", type=share, default=0.01, help="deviation of a machine or day that does not matter"
    )
    parser.add_argument("--workers", type=whole(1, 4096), help="processes that read (default: one per core)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Update the store or ask it."""
    from rcatools.batch.index_query import STORE, query

    place = args.store or args.folder / STORE
    if args.page:
        if args.query is not None:
            raise InputError("--page shows the overview and --query asks the store: leave one of them out")
        new_file(args.page, "--page", ".html")
    if args.query is not None:
        names, rows = query(place, args.query)
        _print_rows(names, rows, as_json=args.json)
        return 0
    from rcatools.batch import index

    updated = index.update(args.folder, place, workers=args.workers, say=_say)
    from rcatools.batch.fleet import overview

    store = index.open_store(place)
    document = {"updated": vars(updated), **overview(store, args.margin)}
    if args.page:
        from rcatools.batch.fleet_page import render
        from rcatools.files import write_bytes

        page = render(document, store["jobs"].to_pylist(), args.margin)
        write_bytes(args.page, page.encode())
    if args.json:
        print_json(document)
    else:
        from rcatools.batch.fleet_tables import sentences

        print("\n".join(sentences(document)))
    return 0


def _print_rows(names: list[str], rows: list[tuple[Any, ...]], *, as_json: bool) -> None:
    if as_json:
        print_json({"columns": names, "rows": [[_plain(value) for value in row] for row in rows]})
        return
    print("\t".join(names))
    for row in rows:
        print("\t".join("" if value is None else str(value).replace("\t", " ") for value in row))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
