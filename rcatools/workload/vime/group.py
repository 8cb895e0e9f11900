"""A group of worker processes that cannot outlive its watchdog.

``run_group`` starts one process per rank, joins them with a rendezvous file, calls one function in each
and collects what they return. A rank that raises, dies or hangs ends the group: the rest is killed by
process handle and the outcome says what happened. gloo on the CPU, NCCL or RCCL on GPUs (not run on ROCm).
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from rcatools.errors import InputError, RunError

CALLS_PACKAGE = "rcatools.workload.vime."
START_ALLOWANCE_S = 60.0
PRELOAD = ["torch", "torch.distributed", "rcatools.workload.vime.logprob"]


@dataclass(frozen=True)
class GroupOutcome:
    """How a group ended.

    ``state`` is "done" (every rank returned), "error" (a rank raised or died; ``errors`` by rank) or
    "hang" (the watchdog expired; ``silent`` ranks had not answered). ``results`` holds what ranks
    returned, by rank; ``seconds`` counts from the moment all ranks had joined; ``pids`` are the worker
    processes, all of them ended.
    """

    state: str
    results: dict[int, Any]
    errors: dict[int, str]
    silent: tuple[int, ...]
    seconds: float
    pids: tuple[int, ...] = ()

    def require(self) -> dict[int, Any]:
        """The results.

        Raises:
            RunError: the group did not end as "done".
        """
        if self.state != "done":
            what = "; ".join(f"rank {rank}: {text}" for rank, text in sorted(self.errors.items()))
            raise RunError(
                f"worker group ended as {self.state} after {self.seconds:.1f} s: "
                f"{what or f'ranks {self.silent} never answered'}"
            )
        return self.results


@dataclass(frozen=True)
class Seat:
    """One rank's place in its group; ``folder`` holds the rendezvous and what each rank printed as errors."""

    folder: str
    rank: int
    world: int
    device: str
    watchdog_s: float

    @property
    def log(self) -> Path:
        """Where this rank's error stream goes."""
        return Path(self.folder) / f"rank-{self.rank}.log"


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    log: Path
    joined: bool = False
    closed: bool = False


@dataclass
class _Progress:
    results: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)


def run_group(
    call: str,
    world: int,
    *,
    watchdog_s: float,
    device: str = "cpu",
    arguments: Mapping[str, Any] | None = None,
    grace_s: float = 1.0,
    start: str = "forkserver",
) -> GroupOutcome:
    """Call ``call`` ("module.function" below this package) in ``world`` joined processes.

    Each rank calls ``function(rank, world, device, **arguments)`` after the default group is up.

    Args:
        watchdog_s: seconds from joining until everything is killed; starting up has its own allowance.
        grace_s: after one rank failed, how long the others may still answer.
        start: "forkserver" (from anywhere), or "fork" from a process of one thread without a device
            context, which is faster when it has imported torch already.

    Raises:
        InputError: the world size is not positive or the name is not a module and a function.
        RunError: the processes could not be started or joined at all.
    """
    if world < 1 or call.count(".") != 1:
        raise InputError(f"cannot start {call!r} on {world} ranks: give 'module.function' and at least one")
    context: Any = multiprocessing.get_context(start)
    if start == "forkserver":
        context.set_forkserver_preload(PRELOAD)
    with tempfile.TemporaryDirectory(prefix="rcatools-group-") as folder:
        workers: dict[int, _Worker] = {}
        try:
            for rank in range(world):
                ours, theirs = context.Pipe(duplex=False)
                seat = Seat(folder, rank, world, device, watchdog_s)
                process = context.Process(
                    target=_rank_main,
                    args=(theirs, call, seat),
                    kwargs={"arguments": dict(arguments or {})},
                    daemon=True,
                )
                process.start()
                theirs.close()
                workers[rank] = _Worker(process, ours, seat.log)
            return _watch(workers, watchdog_s, grace_s)
        finally:
            for worker in workers.values():
                if worker.process.is_alive():
                    worker.process.kill()
                worker.process.join(10)
                worker.pipe.close()


def _watch(workers: dict[int, _Worker], watchdog_s: float, grace_s: float) -> GroupOutcome:
    progress = _Progress()
    deadline = time.monotonic() + START_ALLOWANCE_S
    joined_at: float | None = None
    while len(progress.results) + len(progress.errors) < len(workers):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        open_pipes = {worker.pipe: rank for rank, worker in workers.items() if not worker.closed}
        for pipe in wait(list(open_pipes), timeout=left):
            rank = open_pipes[pipe]  # type: ignore[index]
            _take_message(workers[rank], rank, progress)
        if joined_at is None and all(worker.joined for worker in workers.values()):
            joined_at = time.monotonic()
            deadline = joined_at + watchdog_s
        if progress.errors:
            deadline = min(deadline, time.monotonic() + grace_s)
    if joined_at is None and not progress.errors:
        raise RunError(f"{len(workers)} worker processes did not join within {START_ALLOWANCE_S:.0f} s")
    silent = tuple(rank for rank in workers if rank not in progress.results and rank not in progress.errors)
    state = "error" if progress.errors else "hang" if silent else "done"
    seconds = time.monotonic() - joined_at if joined_at is not None else 0.0
    pids = tuple(worker.process.pid for worker in workers.values())
    return GroupOutcome(state, progress.results, progress.errors, silent, seconds, pids)


def _take_message(worker: _Worker, rank: int, progress: _Progress) -> None:
    try:
        kind, body = worker.pipe.recv()
    except (EOFError, OSError):
        worker.closed = True
        if rank not in progress.results:
            worker.process.join(5)
            said = f": {last_line(worker.log)}" if last_line(worker.log) else ""
            progress.errors.setdefault(rank, f"process ended with code {worker.process.exitcode}{said}")
        return
    if kind == "joined":
        worker.joined = True
    elif kind == "result":
        progress.results[rank] = body
        worker.closed = True
    else:
        progress.errors[rank] = body
        worker.closed = True


def last_line(log: Path) -> str:
    """The last line of a log that is not empty, at most 300 characters."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((" ".join(line.split())[:300] for line in reversed(lines) if line.strip()), "")


def _rank_main(pipe: Connection, call: str, seat: Seat, *, arguments: dict[str, Any]) -> None:
    try:
        with seat.log.open("wb", buffering=0) as stream:
            os.dup2(stream.fileno(), 2)
        torch, dist = _join(seat)
        pipe.send(("joined", None))
        module, name = call.split(".")
        function = getattr(importlib.import_module(CALLS_PACKAGE + module), name)
        place = torch.device("cuda", seat.rank) if seat.device == "cuda" else torch.device("cpu")
        pipe.send(("result", function(seat.rank, seat.world, place, **arguments)))
        dist.destroy_process_group()
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split())[:500]
        pipe.send(("error", f"{type(error).__name__}: {text} ({Path(last.filename).name}:{last.lineno})"))
        pipe.close()
        os._exit(1)  # a rank whose peers are gone must not wait for them while it shuts down


def processors_of(rank: int, world: int, allowed: Collection[int]) -> list[int]:
    """This rank's equal share of the processors, or all of them where there are fewer than ranks.

    Ranks that happen to share a processor wait for each other's time slices instead of for data.
    """
    ordered = sorted(allowed)
    share = len(ordered) // world
    return ordered[rank * share : (rank + 1) * share] if share else ordered


def _join(seat: Seat) -> tuple[Any, Any]:
    if Path("/sys/class/net/lo").exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if seat.device == "cuda":
        torch.cuda.set_device(seat.rank)
    else:
        os.sched_setaffinity(0, processors_of(seat.rank, seat.world, os.sched_getaffinity(0)))
    dist.init_process_group(
        "nccl" if seat.device == "cuda" else "gloo",
        store=dist.FileStore(str(Path(seat.folder) / "store"), seat.world),
        rank=seat.rank,
        world_size=seat.world,
        timeout=timedelta(seconds=seat.watchdog_s + START_ALLOWANCE_S),
    )
    return torch, dist
