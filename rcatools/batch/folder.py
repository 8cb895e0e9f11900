"""The report folder: one writer at a time, earlier results set aside, never half a file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rcatools.errors import InputError
from rcatools.recording.writer import exclusive

PREVIOUS = "previous"
OURS = (
    "status.json",
    "verdict.json",
    "findings.md",
    "report.html",
    "report.zip",
    "notebooks",
    "evidence",
    "results",
    "logs",
    "live",
)
_KEPT = {PREVIOUS, "recordings", ".lock"}


@contextmanager
def report_folder(folder: Path) -> Iterator[Path]:
    """Hold a folder for one report; what an earlier report left is moved to ``previous``.

    Raises:
        InputError: the folder holds other files, or another report is writing it.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give a folder for --out")
    strangers = sorted(
        item.name
        for item in (folder.iterdir() if folder.is_dir() else ())
        if item.name not in {*OURS, *_KEPT}
    )
    if strangers and not (folder / "status.json").is_file():
        raise InputError(
            f"{folder} holds other files ({', '.join(strangers[:3])}): give an empty or new folder for --out"
        )
    with exclusive(folder):
        _set_aside(folder)
        yield folder


def _set_aside(folder: Path) -> None:
    found = [folder / name for name in OURS if (folder / name).exists()]
    if not found:
        return
    earlier = folder / PREVIOUS
    shutil.rmtree(earlier, ignore_errors=True)
    earlier.mkdir()
    for item in found:
        item.rename(earlier / item.name)


def recording_name(folder: Path, stem: str) -> Path:
    """A free folder below ``recordings`` for a new recording."""
    place = folder / "recordings"
    number = 1
    while (place / f"{stem}-{number}").exists():
        number += 1
    return place / f"{stem}-{number}"


def was_done(folder: Path) -> bool:
    """Whether the folder holds a finished report."""
    try:
        status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(status, dict) and status.get("state") == "done"
