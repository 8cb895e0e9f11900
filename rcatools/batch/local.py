"""Runs groups of jobs on this machine: one supervisor process each, one loop, no threads, no daemon."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rcatools.batch.jobs import Job, Place
from rcatools.batch.slots import Need, Slots, lane
from rcatools.batch.supervise import LOST, start

Report = Callable[[Job], None]
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Group:
    """Jobs that run one after the other on one device.

    Attributes:
        jobs: in their order.
        device: what they need, see ``rows.DEVICES``, or "none".
        accelerator: type of card wanted on a cluster.
    """

    jobs: tuple[Job, ...]
    device: str
    accelerator: str = ""

    def earlier(self) -> tuple[str, str, str] | None:
        """The device on which jobs of this group are done, None where it does not matter or none is."""
        if self.device == "none" or len(self.jobs) < 2:
            return None
        for job in self.jobs:
            status = job.settled()
            if status["state"] == "done" and "place" in status:
                return Place(**status["place"]).identity()
        return None

    def keep_together(self, place: Place) -> list[Job]:
        """The jobs to run on a place; done ones are run again where they were done on another device."""
        if self.earlier() not in {None, place.identity()}:
            for job in self.jobs:
                if job.settled()["state"] == "done":
                    job.reopen("its group continues on another device")
        return [job for job in self.jobs if job.settled()["state"] not in {"done", "failed"}]


@dataclass
class _Running:
    group: Group
    place: Place
    lease: int
    left: list[Job]
    process: subprocess.Popen[bytes] | None = None
    handle: int = -1
    tries: dict[str, int] = field(default_factory=dict)


def run_local(groups: Sequence[Group], slots: Slots, report: Report, *, retries: int = 2) -> None:
    """Run all groups; returns when each of their jobs is done, failed, or lost too often.

    Args:
        groups: what to run, in order.
        slots: the places of this machine.
        report: called with each job that has ended.
        retries: how often a job that the machine broke off is begun again.

    Raises:
        KeyboardInterrupt: Ctrl-C; what was running is ended first and can be resumed.
    """
    waiting = list(groups)
    running: dict[int, _Running] = {}
    poll = select.poll()
    try:
        while waiting or running:
            for item in _begin(waiting, slots):
                _next_job(item, running, poll, slots)
            for handle, _ in poll.poll(500):
                item = running.pop(handle)
                poll.unregister(handle)
                os.close(handle)
                _ended(item, report, retries)
                _next_job(item, running, poll, slots)
    except BaseException:
        stop([item.process for item in running.values() if item.process])
        raise


def _begin(waiting: list[Group], slots: Slots) -> list[_Running]:
    """Give places to groups in order; one that must wait holds back the later ones of its lane."""
    begun, blocked = [], set()
    for group in list(waiting):
        if lane(group.device) in blocked:
            continue
        got = slots.take(Need(group.device, group.earlier()))
        if got is None:
            blocked.add(lane(group.device))
            continue
        waiting.remove(group)
        begun.append(_Running(group, got[1], got[0], group.keep_together(got[1])))
    return begun


def _next_job(item: _Running, running: dict[int, _Running], poll: select.poll, slots: Slots) -> None:
    if not item.left:
        slots.give_back(item.lease)
        return
    item.process = start(item.left[0].folder, item.place)
    item.handle = os.pidfd_open(item.process.pid)
    running[item.handle] = item
    poll.register(item.handle, select.POLLIN)


def _ended(item: _Running, report: Report, retries: int) -> None:
    from rcatools.batch.processes import end_tagged

    assert item.process is not None
    code = item.process.wait()
    if item.process.stdin:
        item.process.stdin.close()
    job = item.left[0]
    if code < 0 or (code == LOST and job.settled()["state"] == "running"):
        end_tagged(job.folder)  # the supervisor itself was killed
    state = job.settled()["state"]
    if state in {"done", "failed"}:
        item.left.pop(0)
    else:
        item.tries[job.name] = item.tries.get(job.name, 0) + 1
        if item.tries[job.name] <= retries:
            return
        if state != "lost":
            job.write_status("lost", attempt=job.attempts(), error=f"its supervisor ended with {code}")
        item.left.pop(0)
    report(job)


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End supervisors by closing their input, and wait until they have cleaned up."""
    for process in processes:
        if process.stdin:
            with contextlib.suppress(OSError):
                process.stdin.close()
    for process in processes:
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_one(folder: Path, place: Place, *, retries: int = 2) -> Job:
    """Run one job here and now, for a batch system that gives each row its own task."""
    job = Job(folder)
    for _ in range(retries + 1):
        process = start(folder, place)
        try:
            process.wait()
        except BaseException:
            stop([process])
            raise
        if job.settled()["state"] in {"done", "failed"}:
            break
    return job
