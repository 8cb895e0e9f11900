"""``status.json`` of a report folder: what is running, done or failed, written by the runner alone.

An executed notebook looks successful after a dead kernel or a time-out, so its own metadata is never
asked.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcatools.files import finite, write_json

STATES = ("pending", "running", "done", "failed")


@dataclass
class Entry:
    """One notebook: its state, the seconds it took, one line of error, the parameter values it ran with."""

    name: str
    state: str = "pending"
    seconds: float | None = None
    error: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class Status:
    """Keeps ``status.json`` true after every change; safe to use from several threads.

    Args:
        path: the file.
        names: the notebooks, in the order in which they are shown.
        extra: facts for the document's top level.
    """

    def __init__(self, path: Path, names: Iterable[str], extra: dict[str, Any] | None = None) -> None:
        self.path = path
        self.state = "running"
        self.entries = {name: Entry(name) for name in names}
        self.extra = dict(extra or {})
        self.errors: list[str] = []
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._started_utc = datetime.now(UTC).isoformat(timespec="seconds")
        self._write()

    def update(self, name: str, **changes: Any) -> None:
        """Change the entry of one notebook and write the file."""
        with self._lock:
            for key, value in changes.items():
                setattr(self.entries[name], key, value)
            self._write()

    def note_error(self, text: str) -> None:
        """Add a failure that belongs to no notebook; the whole then ends as failed."""
        with self._lock:
            self.errors.append(text)
            self._write()

    @property
    def failed(self) -> list[Entry]:
        """The notebooks that failed."""
        return [entry for entry in self.entries.values() if entry.state == "failed"]

    def finish(self) -> str:
        """Write the final state, "done" or "failed", and return it."""
        with self._lock:
            self.state = self._final_state()
            self._write()
            return self.state

    def final_bytes(self) -> bytes:
        """What the file will hold once finished, for a bundle that is written before."""
        with self._lock:
            return json.dumps(
                finite({**self._document(), "state": self._final_state()}), ensure_ascii=False, indent=1
            ).encode()

    def _final_state(self) -> str:
        unfinished = any(entry.state != "done" for entry in self.entries.values())
        return "failed" if unfinished or self.errors else "done"

    def _document(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "started_utc": self._started_utc,
            "seconds": round(time.monotonic() - self._started, 2),
            **self.extra,
            "errors": self.errors,
            "notebooks": [
                {**vars(entry), "parameters": _without_folders(entry.parameters)}
                for entry in self.entries.values()
            ],
        }

    def _write(self) -> None:
        write_json(self.path, self._document())


def _without_folders(value: Any) -> Any:
    """The value with absolute paths reduced to their last part: the file is passed on to others."""
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_folders(item) for item in value]
    if isinstance(value, Path) or (isinstance(value, str) and Path(value).is_absolute()):
        return Path(value).name
    return value
