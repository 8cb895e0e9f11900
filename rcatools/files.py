"""Files written whole or not at all; only the standard library, so that small processes start at once."""

from __future__ import annotations

import contextlib
import json
import math
import os
from pathlib import Path
from typing import Any

from rcatools.errors import RunError


class StorageError(RunError):
    """The disk is full or cannot be written."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot write {path}: {why}; free space, then run again with --resume")


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
        raise StorageError(path, error.strerror or "write failed") from error


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
