"""``rcatools bisect``: the first bad commit among recordings, or the commit to measure next."""

from __future__ import annotations

import argparse

from rcatools.cli.app import print_json
from rcatools.cli.values import nonempty_path, share
from rcatools.errors import InputError
from rcatools.files import readable_file

SUMMARY = "Name the first bad commit among noisy recordings, or say which commit to measure next."
EXAMPLE = "git rev-list --reverse good..bad > commits.txt && rcatools bisect recordings --commits commits.txt --arm side"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", type=nonempty_path, help="folder that holds the recordings of the commits")
    parser.add_argument(
        "--commits",
        type=nonempty_path,
        required=True,
        metavar="FILE",
        help="one commit per line, oldest first",
    )
    parser.add_argument("--arm", default="", help="judge this arm's ratio (default: the baseline's own time)")
    parser.add_argument("--investigation", default="", help="use recordings of this one only")
    parser.add_argument(
        "--by",
        action="append",
        default=[],
        choices=["machine", "host", "day"],
        help="take out its level (repeatable)",
    )
    parser.add_argument(
        "--skip", action="append", default=[], metavar="COMMIT", help="cannot be measured (repeatable)"
    )
    parser.add_argument("--margin", type=share, default=0.01, help="step that does not matter (default 0.01)")
    parser.add_argument(
        "--level", type=_level, default=0.99, help="probability to name a commit at, above 0.5 and below 1"
    )
    parser.add_argument("--either-way", action="store_true", help="also look for steps towards faster")
    parser.add_argument("--fail-on", choices=["found"], help="exit with 1 where a first bad commit is named")
    parser.add_argument(
        "--store", type=nonempty_path, help="folder of the index (default: .rcatools-index in the folder)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _level(text: str) -> float:
    value = share(text)
    if value <= 0.5:
        raise argparse.ArgumentTypeError(f"must be a number above 0.5 and below 1, got {text!r}")
    return value


def run(args: argparse.Namespace) -> int:
    """Update the index, judge, print."""
    from rcatools.batch import fleet, index
    from rcatools.batch.bisect import Settings
    from rcatools.batch.fleet_tables import bisect_sentences

    wanted = "a list of commits, as 'git rev-list --reverse good..bad' writes it"
    try:
        listed = readable_file(args.commits, wanted, piped=True).read_text(encoding="utf-8")
        commits = [line.split()[0] for line in listed.splitlines() if line.split()]
    except UnicodeDecodeError:
        raise InputError(f"{args.commits} is no text file; give {wanted}") from None
    if len(set(commits)) < 2:
        raise InputError(
            f"{args.commits} holds {len(set(commits))} commits, a bisect needs two or more; give {wanted}"
        )
    settings = Settings(level=args.level, margin=args.margin, either_way=args.either_way)
    place = args.store or args.folder / index.STORE
    index.update(args.folder, place)
    found = fleet.trend(
        index.open_store(place),
        commits,
        arm=args.arm,
        investigation=args.investigation,
        by=args.by,
        skip=args.skip,
        settings=settings,
    ).document()
    if args.json:
        print_json(found)
    else:
        print("\n".join(bisect_sentences(found)))
    return 1 if args.fail_on and found["state"] == "found" else 0
