"""Files written whole or not at all; only the standard library, so that small processes start at once."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from rcatools.errors import InputError, RunError

LONGEST_SHOWN = 200
SHELL_PIPES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")

FREE_SPACE = "free space, then run again with --resume"
ELSEWHERE = "choose a place that can be written"


class StorageError(RunError):
    """The disk is full or cannot be written."""

    def __init__(self, path: Path, why: str, advice: str = FREE_SPACE) -> None:
        super().__init__(f"cannot write {path}: {why}; {advice}")


def shown(path: str | Path) -> str:
    """A path for a message; of a very long one the end."""
    text = str(path)
    return text if len(text) <= LONGEST_SHOWN else "…" + text[-LONGEST_SHOWN:]


def readable_file(path: str | Path, wanted: str, *, piped: bool = False) -> Path:
    """The path, if a file can be read there to its end.

    Args:
        path: as given by the user.
        wanted: what to give instead, such as "a trace file".
        piped: a pipe that the shell made (``<(command)``, ``/dev/stdin``) will do as well.

    Raises:
        InputError: it is missing, a folder, a named pipe, a device, or cannot be looked at.
    """
    file = Path(path)
    if not str(path):
        raise InputError(f"an empty path was given; give {wanted}")
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        raise InputError(f"{shown(file)} does not exist; give {wanted}") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot use {shown(file)}: {why}; give {wanted}") from None
    if stat.S_ISDIR(mode):
        raise InputError(f"{file} is a folder; give {wanted}")
    if not stat.S_ISREG(mode) and not (piped and str(file).startswith(SHELL_PIPES)):
        raise InputError(f"{file} is a pipe or a device, not a file; give {wanted}")
    return file


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: temporary name, fsync, rename, fsync of the folder.

    Raises:
        StorageError: the disk is full or the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise StorageError(
            path, error.strerror or "write failed", FREE_SPACE if full else ELSEWHERE
        ) from error


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document whole or not at all; numbers that are not finite become null."""
    text = json.dumps(finite(document), allow_nan=False, ensure_ascii=False, indent=1)
    write_bytes(path, text.encode())


def finite(value: Any) -> Any:
    """The same JSON value with every number that is not finite replaced by None."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
