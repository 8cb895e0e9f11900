"""The command line of what turns a benchmark's JSON into a recording."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def convert(
    argv: Sequence[str] | None,
    module: str,
    description: str | None,
    write: Callable[[Any, Path, str], Any],
    *,
    several: bool = False,
) -> int:
    """Read "source out [--source-commit COMMIT]" and hand it to ``write``; ``several``: a list of sources."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    count: dict[str, Any] = {"nargs": "+"} if several else {}
    parser.add_argument("source", type=Path, **count)
    parser.add_argument("out", type=Path)
    parser.add_argument("--source-commit", default="", help="commit of the measured package source")
    args = parser.parse_args(argv)
    write(args.source, args.out, args.source_commit)
    return 0
