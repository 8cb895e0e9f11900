"""Runs ``rcatools compare`` in this process and reads its JSON."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rcatools.cli.app import main


def compare(*args: object) -> dict[str, Any]:
    """The document of a successful call."""
    code, out, err = run(*args, "--json")
    assert code in (0, 1), err
    return json.loads(out, parse_constant=lambda text: 1 / 0)


def run(*args: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a call."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["compare", *map(str, args)])
    return code, out.getvalue(), err.getvalue()


def write(path: Path, columns: str, rows: Iterable[Sequence[object]]) -> Path:
    """A CSV file."""
    lines = [columns, *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def arm(document: dict[str, Any], name: str | None = None) -> dict[str, Any]:
    """An arm's entry, the first one without a name."""
    return next(entry for entry in document["arms"] if name in (None, entry["arm"]))


def result(document: dict[str, Any], workload: str) -> dict[str, Any]:
    """The entry of a workload."""
    return next(entry for entry in document["results"] if entry["workload"] == workload)
