"""A sweep: a checked table, one folder for each row, and a summary that is always whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rcatools.batch.jobs import Job
from rcatools.batch.local import Group, run_local, run_one
from rcatools.batch.rows import Row, read_rows
from rcatools.batch.slots import Card, Need, Slots, default_cpus, find_cards
from rcatools.errors import InputError, RunError
from rcatools.files import write_json
from rcatools.recording.writer import exclusive

SUMMARY = "sweep.json"
EXECUTORS = ("local", "ray")
Say = Callable[[str], None]


@dataclass(frozen=True)
class SweepOptions:
    """What ``rcatools sweep`` was asked for.

    Attributes:
        table: the table.
        out: folder of the jobs.
        executor: "local" or "ray".
        row: run this row only (the first is 1); None: all.
        cards: cards of this machine; None: look.
        cpus: rows that measure nothing at a time; None: by the cores.
        retries: how often a job that the machine broke off is begun again.
        retry_failed: begin jobs again that failed by themselves.
        address: of a running Ray cluster; "": start one here.
    """

    table: Path
    out: Path
    executor: str = "local"
    row: int | None = None
    cards: Sequence[Card] | None = None
    cpus: int | None = None
    retries: int = 2
    retry_failed: bool = False
    address: str = ""


def run_sweep(options: SweepOptions, say: Say = lambda text: None) -> dict[str, Any]:
    """Run what is not done yet and return the summary.

    Raises:
        InputError: the table is wrong (nothing was run), or another sweep uses the folder.
        UnavailableError: a row needs a device that is not here.
        KeyboardInterrupt: Ctrl-C; the same call goes on later.
    """
    rows = read_rows(options.table)
    if options.row is not None:
        if not 1 <= options.row <= len(rows):
            raise InputError(f"--row must be between 1 and {len(rows)}, got {options.row}")
        return _single(options, rows[options.row - 1], say)
    with exclusive(options.out):
        jobs = {row.number: _job(options, row) for row in rows}
        _reopen(options, jobs.values())
        groups = group_jobs(rows, jobs)
        try:
            _execute(options, groups, _Progress(rows, jobs, say))
        finally:
            summary = summarise(options.table, rows, jobs)
            write_json(options.out / SUMMARY, summary)
        return summary


def _job(options: SweepOptions, row: Row) -> Job:
    job = Job(options.out / "jobs" / row.job)
    job.create(row.document(), {"row": row.number, "name": row.name})
    return job


def _reopen(options: SweepOptions, jobs: Iterable[Job]) -> None:
    if options.retry_failed:
        for job in jobs:
            if job.status()["state"] == "failed":
                job.reopen("--retry-failed")


def group_jobs(rows: Sequence[Row], jobs: dict[int, Job]) -> list[Group]:
    """Rows of one group together at the place of its first row; groups that are settled are left out."""
    members: dict[str, list[Row]] = {}
    for row in rows:
        members.setdefault(row.group or f"\0{row.number}", []).append(row)
    groups = [
        Group(tuple(jobs[row.number] for row in found), found[0].device, found[0].accelerator)
        for found in members.values()
    ]
    return [
        group
        for group in groups
        if any(job.settled()["state"] not in {"done", "failed"} for job in group.jobs)
    ]


def _execute(options: SweepOptions, groups: list[Group], progress: _Progress) -> None:
    if not groups:
        return
    if options.executor == "ray":
        from rcatools.batch.ray_executor import run_ray

        run_ray(groups, progress, address=options.address, cpus=options.cpus, retries=options.retries)
        return
    measuring = any(group.device not in {"none", "cpu"} for group in groups)
    cards = options.cards if options.cards is not None else find_cards() if measuring else []
    slots = Slots(cards, options.cpus or default_cpus(len(cards)))
    for group in groups:
        slots.check(group.device)
    run_local(groups, slots, progress, retries=options.retries)


def _single(options: SweepOptions, row: Row, say: Say) -> dict[str, Any]:
    """One row, without the lock on the folder: the tasks of a batch system run side by side."""
    if row.group:
        raise InputError(
            f"row {row.number} belongs to the group {row.group!r}, whose rows must follow each other on one "
            "device: run the whole table in one task, or leave 'group' empty"
        )
    job = _job(options, row)
    _reopen(options, [job])
    if job.settled()["state"] not in {"done", "failed"}:
        cards = options.cards if options.cards is not None else []
        if row.device not in {"none", "cpu"} and options.cards is None:
            cards = find_cards()
        slots = Slots(cards, 1)
        slots.check(row.device)
        got = slots.take(Need(row.device))
        if got is None:
            raise RunError(f"no place for row {row.number} on this machine")
        run_one(job.folder, got[1], retries=options.retries)
    say(f"row {row.number} {row.name}: {job.settled()['state']}")
    return summarise(options.table, [row], {row.number: job})


class _Progress:
    """Says after each row how it ended and how long the rest may take."""

    def __init__(self, rows: Sequence[Row], jobs: dict[int, Job], say: Say) -> None:
        self.rows = {jobs[row.number].name: row for row in rows}
        self.say, self.begun, self.made = say, time.monotonic(), 0
        self.ended = {job.name for job in jobs.values() if job.settled()["state"] in {"done", "failed"}}
        if self.ended:
            say(f"{len(self.ended)} of {len(rows)} rows are done already")

    def __call__(self, job: Job) -> None:
        """Report a job that has ended."""
        self.ended.add(job.name)
        self.made += 1
        row, status = self.rows[job.name], job.settled()
        left = len(self.rows) - len(self.ended)
        seconds = (time.monotonic() - self.begun) / self.made * left
        error = f": {status['error']}" if status.get("error") else ""
        self.say(
            f"[{len(self.ended)}/{len(self.rows)}] row {row.number} {row.name} {status['state']}{error}"
            + (f", about {seconds:.0f} s left" if left else "")
        )


def summarise(table: Path, rows: Sequence[Row], jobs: dict[int, Job]) -> dict[str, Any]:
    """What became of every row: state, verdict, attempts, device, error."""
    entries = []
    for row in rows:
        job = jobs[row.number]
        status, result = job.settled(), job.result()
        done = status["state"] == "done"
        entries.append(
            {
                "row": row.number,
                "name": row.name,
                "kind": row.kind,
                "job": job.name,
                "state": status["state"],
                "verdict": result.get("verdict") if done and result else None,
                "attempts": job.attempts(),
                "seconds": status.get("seconds"),
                "place": status.get("place"),
                "error": status.get("error"),
                "exit_code": status.get("exit_code"),
                "labels": dict(row.labels),
                "folder": f"jobs/{job.name}/attempts/{job.attempts()}" if job.attempts() else None,
            }
        )
    counts = {
        state: sum(entry["state"] == state for entry in entries)
        for state in ("done", "failed", "lost", "pending", "running")
    }
    whole = counts["done"] == len(entries)
    open_rows = counts["pending"] + counts["running"]
    return {
        "table": table.name,
        "state": "done" if whole else "stopped" if open_rows else "failed",
        "counts": counts,
        "rows": entries,
    }
