"""Where the checkout's data lie: investigations, embedded recordings, notebooks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from rcatools.errors import InputError, UnavailableError, UnknownNameError

_HOME = "RCATOOLS_HOME"


def checkout() -> Path:
    """The folder that holds ``data`` and ``notebooks``: RCATOOLS_HOME, or the checkout of this package.

    Raises:
        UnavailableError: neither holds ``data/investigations``.
    """
    named = os.environ.get(_HOME)
    folder = Path(named) if named else Path(__file__).resolve().parents[2]
    if not (folder / "data" / "investigations").is_dir():
        raise UnavailableError(
            f"no data/investigations in {folder}: install from a checkout with 'pip install -e .' "
            f"or set {_HOME} to one"
        )
    return folder


def investigation_folder(name: str) -> Path:
    """The folder of an investigation by name or path.

    Raises:
        UnknownNameError: no such investigation.
    """
    if "/" in name or name in {".", ".."}:
        folder = Path(name)
        if not (folder / "investigation.yaml").is_file():
            raise InputError(f"{folder} holds no investigation.yaml: give a folder that has one")
        return folder
    known = {
        path.parent.name: path.parent for path in checkout().glob("data/investigations/*/investigation.yaml")
    }
    if name not in known:
        raise UnknownNameError("investigation", name, known)
    return known[name]


def names_declared(investigation: str, key: str) -> tuple[str, ...]:
    """The names under a key of investigation.yaml, read without checking the rest of it.

    Empty where the file or the key is not as it should be: what judges the file says so in words.
    """
    file = investigation_folder(investigation) / "investigation.yaml"
    try:
        read = yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return tuple(str(name) for name in read.get(key) or ())
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, TypeError, RecursionError):
        return ()


def embedded_recordings(investigation: str | None = None) -> dict[str, Path]:
    """Embedded recordings by name; of one investigation those whose name begins with it, GPUs first."""
    folder = checkout() / "data" / "recordings"
    found = {path.parent.name: path.parent for path in folder.glob("*/manifest.json")}
    names = [name for name in found if investigation is None or name.startswith(f"{investigation}-")]
    return {name: found[name] for name in sorted(names, key=lambda name: (name.endswith("-cpu"), name))}


def recording_folder(name: str | Path) -> Path:
    """The folder of a recording given as a path or as the name of an embedded one.

    Raises:
        InputError: there is neither such a folder nor such an embedded recording.
    """
    if not str(name).strip():
        raise InputError("--recording is empty: give a folder, or the name of an embedded recording")
    path = Path(name)
    if path.is_dir():
        return path
    embedded = embedded_recordings()
    if str(name) in embedded:
        return embedded[str(name)]
    if "/" in str(name) or not embedded:
        raise InputError(f"no recording at {path}: give a folder written by 'rcatools record'")
    raise UnknownNameError("recording", str(name), embedded)


def companion_folders(names: Iterable[str]) -> list[Path]:
    """The embedded recordings among these names, in their order."""
    embedded = embedded_recordings()
    return [embedded[name] for name in names if name in embedded]


def recording_folders(investigation: str, given: Sequence[str | Path]) -> list[Path]:
    """The recordings to judge: those given, else the embedded ones of the investigation.

    Raises:
        InputError: none is given and none is embedded, or one cannot be found.
    """
    if given:
        return [recording_folder(name) for name in given]
    found = list(embedded_recordings(investigation).values())
    if not found:
        raise InputError(
            f"no recording of {investigation} is embedded: give one with --recording or measure with --live"
        )
    return found
