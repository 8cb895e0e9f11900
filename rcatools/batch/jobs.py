"""The folder of one job: inputs, status, events and every attempt that was made.

    job.json       kind, parameters and the hashes of what they name
    status.json    {"state": "pending"/"running"/"done"/"failed"/"lost", ...}, always whole
    events.jsonl   one line for each change, only ever appended
    attempts/N/    result.json (what the row says), log.txt, and the row's own files

A result file that is there and whole is what makes an attempt done, so a machine that stops between the
result and the status loses nothing. An attempt that the machine broke off is "lost" and is made again; one
that failed by itself is "failed" and is not.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcatools.errors import InputError
from rcatools.files import sync_folder, write_json

STATES = ("pending", "running", "done", "failed", "lost")
RESULT = "result.json"
LOCK_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Place:
    """Where an attempt runs.

    Attributes:
        backend: "cuda", "rocm" or "cpu" for a row that measures, else "none".
        mask: the entry of the visibility mask that shows one card only, "" without a card.
        uuid: identity of the card where it is known.
        host: name of the machine.
        node: the cluster's name for its part of the machine, "" outside a cluster.
    """

    backend: str = "none"
    mask: str = ""
    uuid: str = ""
    host: str = ""
    node: str = ""

    def identity(self) -> tuple[str, str, str]:
        """What must stay the same inside one comparison."""
        return self.host, self.backend, self.uuid or self.mask

    def document(self) -> dict[str, Any]:
        """Plain JSON."""
        return dict(vars(self))


class Job:
    """A job folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        """The hash that names it."""
        return self.folder.name

    def create(self, document: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Write what the job is; ``facts`` are the row number and name, which may change between tables."""
        self.folder.mkdir(parents=True, exist_ok=True)
        wanted = {**document, **facts}
        if self.document(missing_ok=True) != wanted:
            write_json(self.folder / "job.json", wanted)

    def document(self, *, missing_ok: bool = False) -> dict[str, Any]:
        """What the job is.

        Raises:
            InputError: there is no such job, or its file is damaged.
        """
        found = _read_json(self.folder / "job.json")
        if found is None and not missing_ok:
            raise InputError(f"{self.folder} holds no readable job.json: run 'rcatools sweep' again")
        return found or {}

    def status(self) -> dict[str, Any]:
        """The status; a job that was never begun is pending."""
        found = _read_json(self.folder / "status.json")
        return found if found and found.get("state") in STATES else {"state": "pending"}

    def settled(self) -> dict[str, Any]:
        """The status, with an attempt that ended in a whole result counted as done."""
        status = self.status()
        if status["state"] == "running" and self.result() is not None:
            return {**status, "state": "done", "error": None}
        return status

    def result(self) -> dict[str, Any] | None:
        """What the last attempt says, None where it has no whole result."""
        number = self.attempts()
        found = _read_json(self.attempt(number) / RESULT) if number else None
        return found if found and found.get("job") == self.name else None

    def attempts(self) -> int:
        """Number of attempts that were begun."""
        place = self.folder / "attempts"
        numbers = (
            [int(item.name) for item in place.iterdir() if item.name.isdigit()] if place.is_dir() else []
        )
        return max(numbers, default=0)

    def attempt(self, number: int) -> Path:
        """Folder of an attempt."""
        return self.folder / "attempts" / str(number)

    def write_status(self, state: str, **facts: Any) -> dict[str, Any]:
        """Write the status whole, then note the change."""
        assert state in STATES, state
        status = {"state": state, "job": self.name, **facts}
        write_json(self.folder / "status.json", status)
        self.note(state, attempt=facts.get("attempt"))
        return status

    def note(self, event: str, **facts: Any) -> None:
        """Append one line to the events."""
        line = json.dumps({"utc": now(), "event": event, **facts}) + "\n"
        with (self.folder / "events.jsonl").open("ab") as stream:
            stream.write(line.encode())
            stream.flush()
            os.fsync(stream.fileno())

    def events(self) -> list[dict[str, Any]]:
        """All events that can be read."""
        try:
            lines = (self.folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # the machine stopped while it was written
        return found

    def reopen(self, reason: str) -> None:
        """Have a finished job made again; its attempts stay."""
        self.write_status("pending", reason=reason)

    @contextmanager
    def hold(self, patience_s: float = LOCK_PATIENCE_S) -> Iterator[None]:
        """Hold the job for one runner; ends with the process however that ends.

        Raises:
            InputError: another runner holds it for longer than the patience.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + patience_s
        with (self.folder / ".lock").open("w") as stream:
            while True:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise InputError(
                            f"another runner holds {self.folder}: wait for it, or end it"
                        ) from None
                    time.sleep(0.1)
            yield

    def begin_attempt(self) -> int:
        """Make the folder of a new attempt and return its number."""
        number = self.attempts() + 1
        self.attempt(number).mkdir(parents=True)
        sync_folder(self.folder / "attempts")
        return number


def now() -> str:
    """The time in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def host() -> str:
    """Name of this machine."""
    return socket.gethostname()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
