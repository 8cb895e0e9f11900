"""Values of options that more than one command takes, checked where they are read."""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from rcatools.errors import InputError

MOST = 10**15  # no count or size in seconds, rows or bytes is larger


def whole(least: int, most: int = MOST) -> Callable[[str], int]:
    """A type for ``add_argument``: a whole number between two bounds."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number {_between(least, most)}, got {text!r}")
        return value

    return read


def number(above: float, most: float = MOST) -> Callable[[str], float]:
    """A type for ``add_argument``: a finite number above a bound."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not above < value <= most:
            raise argparse.ArgumentTypeError(
                f"must be a number above {above:g} and up to {most:g}, got {text!r}"
            )
        return value

    return read


def share(text: str) -> float:
    """A type for ``add_argument``: a number between 0 and 1, both excluded."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1 (0.02 is 2 %), got {text!r}")
    return value


def nonempty_path(text: str) -> Path:
    """A type for ``add_argument``: a path; an empty text, as of an unset variable, would mean this folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty: give a path")
    return Path(text)


def _between(least: int, most: int) -> str:
    return f"of {least} or more" if most == MOST else f"from {least} to {most}"


def writable_folder(folder: Path, option: str) -> Path:
    """The folder, made where it is missing.

    Raises:
        InputError: it is a file, or cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file" if folder.is_file() else error.strerror
        raise InputError(f"{option} {folder}: {why}; give a folder that can be written") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{option} {folder} cannot be written; give another folder")
    return folder


def new_file(path: Path, option: str, suffix: str) -> Path:
    """The path of a file that can be written there, checked before any work is done for it.

    Raises:
        InputError: another suffix, a folder, or a place that cannot be written.
    """
    if path.suffix.lower() != suffix:
        raise InputError(
            f"{option} is written as {suffix[1:].upper()}; give a name that ends in {suffix}, not {path.name!r}"
        )
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.parent}; make it first")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(
            f"{option} {path} cannot be written ({error.strerror}); give a name in another folder"
        ) from None
    return path
