"""What one boundary between graph kernels costs after further streams have run something.

The cost belongs to the process and does not go away, so every curve is measured in a process of its own, forked
before the device is touched. ROCm goes the same way through torch; not run on ROCm.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from rcatools.errors import RcaError, RunError, UnavailableError
from rcatools.experiment.process import end_process, wait_for
from rcatools.experiment.worker import die_with_parent

KERNELS = 400
READINGS = 7
MOST_STREAMS = 16
LEAST_STEP = 1.08  # a second level that is this much above the first counts as a step
TIMEOUT_S = 60.0
IN_FLIGHT = (4, 8, 16, 24, 32, 40, 80)  # launches in a row on one further stream


@dataclass(frozen=True)
class Condition:
    """What a process does before its curve is taken.

    Attributes:
        act: done on one further stream (a name in ACTS, or several joined by "+").
        warm: acts done on the runtime stream first.
        capture: "runtime" captures the measured graph on the runtime stream, "fresh" on a further one.
        late: True does the act after the measured graph was captured.
        env: environment of the process.
        most: further streams used one after the other while the curve is taken.
    """

    act: str = "none"
    warm: tuple[str, ...] = ()
    capture: str = "runtime"
    late: bool = False
    env: dict[str, str] = field(default_factory=dict)
    most: int = MOST_STREAMS

    @property
    def name(self) -> str:
        """One word for tables."""
        parts = [self.act, *(f"warm:{name}" for name in self.warm)]
        parts += [f"capture:{self.capture}"] if self.capture != "runtime" else []
        parts += ["late"] if self.late else []
        return " ".join([*parts, *(f"{k}={v}" for k, v in self.env.items())])


@dataclass(frozen=True)
class Step:
    """Where a curve goes from its first level to its second.

    Attributes:
        at: number of further used streams from which on the second level holds, None where there is one level.
        low, high: medians of the two levels in us per kernel; high is None without a step.
    """

    at: int | None
    low: float
    high: float | None


class Bench:
    """One process's device, its runtime stream and a few operands."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.runtime = torch.cuda.Stream()
        torch.cuda.set_stream(self.runtime)
        self.x = torch.randn(4096, device="cuda")
        self.row = torch.randn(1, 4096, device="cuda", dtype=torch.bfloat16)
        self.matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self.bias = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
        self.kept: list[Any] = []
        self.x.add_(1)
        torch.cuda.synchronize()

    def further_stream(self, priority: int = 0) -> Any:
        """A stream kept to the end."""
        self.kept.append(self.torch.cuda.Stream(priority=priority))
        return self.kept[-1]

    def touch(self) -> None:
        """One tiny kernel on one further stream."""
        self.on(self.further_stream(), lambda: self.x.add_(1))

    def on(self, stream: Any, work: Callable[[], Any]) -> None:
        """Run something on a stream and wait for it."""
        with self.torch.cuda.stream(stream):
            self.kept.append(work())
        self.torch.cuda.synchronize()

    def graph(self, where: str) -> Callable[[], None]:
        """A replayable graph of KERNELS tiny kernels; replays go to the runtime stream."""
        stream = self.runtime if where == "runtime" else self.further_stream()
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.stream(stream):
            graph.capture_begin()
            for _ in range(KERNELS):
                self.x.add_(1)
            graph.capture_end()
        self.kept.append(graph)
        replay: Callable[[], None] = graph.replay
        return replay

    def us_per_kernel(self, replay: Callable[[], None]) -> float:
        """Median over a few replays, by device events."""
        marks = [self.torch.cuda.Event(enable_timing=True) for _ in range(READINGS + 3)]
        for mark in marks[:-1]:
            mark.record()
            replay()
        marks[-1].record()
        self.torch.cuda.synchronize()
        times = [a.elapsed_time(b) * 1e3 / KERNELS for a, b in itertools.pairwise(marks)]
        return float(statistics.median(times[2:]))


def in_flight(bench: Bench, launches: int) -> None:
    """Tiny kernels on the current stream, queued one after the other without a wait."""
    for _ in range(launches):
        bench.x.add_(1)


def waited(bench: Bench, launches: int) -> None:
    """Tiny kernels on the current stream, each waited for before the next is launched."""
    for _ in range(launches):
        bench.x.add_(1)
        bench.torch.cuda.current_stream().synchronize()


ACTS: dict[str, Callable[[Bench], Any]] = {
    "none": lambda b: None,
    "add": lambda b: b.x.add_(1),
    **{f"add{n}": partial(lambda n, b: in_flight(b, n), n) for n in IN_FLIGHT},
    "add40_waited": lambda b: waited(b, 40),
    "product": lambda b: b.torch.mm(b.row, b.matrix),
    "product_big": lambda b: b.torch.mm(b.matrix, b.matrix),
    "linear_bias": lambda b: b.torch.nn.functional.linear(b.row, b.matrix, b.bias),
    "linear_bias40": lambda b: [b.torch.nn.functional.linear(b.row, b.matrix, b.bias) for _ in range(40)][-1],
    "norm": lambda b: b.torch.nn.functional.rms_norm(b.row, (4096,), b.bias, 1e-6),
    "sum": lambda b: b.matrix.sum(),
    "copy": lambda b: b.row.copy_(b.torch.ones(1, 4096, dtype=b.row.dtype).pin_memory(), non_blocking=True),
    "event": lambda b: b.torch.cuda.current_stream().record_event(),
    "wait": lambda b: b.torch.cuda.current_stream().wait_stream(b.runtime),
}
SPECIAL = ("unused", "high", "legacy", "capture")  # acts that choose their stream themselves


def act(bench: Bench, name: str) -> None:
    """Do one act on one further stream (or the stream it is about).

    Raises:
        KeyError: no such act.
    """
    if name == "none":
        return
    if name == "unused":
        bench.further_stream()
    elif name == "high":
        bench.on(bench.further_stream(priority=-1), lambda: bench.x.add_(1))
    elif name == "legacy":
        bench.on(bench.torch.cuda.default_stream(), lambda: bench.x.add_(1))
    elif name == "capture":
        ACTS["linear_bias"](bench)  # a handle cannot be made while capturing
        stream, graph = bench.further_stream(), bench.torch.cuda.CUDAGraph()
        bench.torch.cuda.synchronize()
        with bench.torch.cuda.stream(stream):
            graph.capture_begin()
            bench.kept.append(ACTS["linear_bias"](bench))
            graph.capture_end()
        bench.kept.append(graph)
    else:
        bench.on(bench.further_stream(), lambda: ACTS[name](bench))


def curve(torch: Any, condition: Condition) -> list[float]:
    """us per kernel after 0, 1, ... further streams each ran one tiny kernel; of this process."""
    bench = Bench(torch)
    for name in condition.warm:
        ACTS[name](bench)
    torch.cuda.synchronize()
    if condition.late:
        replay = bench.graph(condition.capture)
    for name in condition.act.split("+"):
        act(bench, name)
    if not condition.late:
        replay = bench.graph(condition.capture)
    values = [bench.us_per_kernel(replay) for _ in range(2)][1:]
    for _ in range(condition.most):
        bench.touch()
        values.append(bench.us_per_kernel(replay))
    return values


def measure(torch: Any, condition: Condition, *, timeout_s: float = TIMEOUT_S) -> list[float]:
    """One curve from a process of its own.

    Raises:
        UnavailableError: this process already holds a device context.
        RunError: the process failed or gave no answer; the message says how.
    """
    if torch.cuda.is_initialized():
        raise UnavailableError("this process holds a device context already: measure from a fresh one")
    reader, writer = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        _child(torch, condition, parent, writer)
    os.close(writer)
    statuses: dict[int, int] = {}
    try:
        with os.fdopen(reader, "rb") as stream:  # at most a few kB: fits the pipe, so waiting first is safe
            wait_for({0: pid}, timeout_s, statuses)
            answer = stream.read() if statuses else b""
    finally:
        if not statuses:
            end_process(pid)
    if not statuses:
        raise RunError(f"{condition.name}: no answer for {timeout_s:g} s, ended")
    document = json.loads(answer) if answer else {"error": f"ended with status {statuses[0]}"}
    if "error" in document:
        raise RunError(f"{condition.name}: {document['error']}")
    return [float(value) for value in document["curve"]]


def _child(torch: Any, condition: Condition, parent: int, writer: int) -> None:
    document: dict[str, Any] = {"error": "the process failed"}
    try:
        with contextlib.suppress(ProcessLookupError):
            os.setpgid(0, 0)
        die_with_parent(parent)
        os.environ.update(condition.env)
        document = {"curve": curve(torch, condition)}
    except Exception as error:
        document = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
    finally:
        os.write(writer, json.dumps(document).encode())
        os._exit(0)


def find_step(values: Sequence[float]) -> Step:
    """The split of a curve into two levels with the least squared error, if the second is clearly higher."""
    y = np.asarray(values, dtype=float)
    best = min(
        range(1, y.size),
        key=lambda k: float(((y[:k] - y[:k].mean()) ** 2).sum() + ((y[k:] - y[k:].mean()) ** 2).sum()),
        default=0,
    )
    if best and float(np.median(y[best:])) >= LEAST_STEP * float(np.median(y[:best])):
        return Step(best, float(np.median(y[:best])), float(np.median(y[best:])))
    return Step(None, float(np.median(y)), None)


def summarize(curves: Sequence[Sequence[float]]) -> dict[str, Any]:
    """What several processes under one condition say.

    Returns:
        "processes"; "at" (step of each process, None without one), "at_low", "at_high" (range), "at_median";
        "low_us", "high_us" (means over processes of the levels), "cost_us" with "cost_ci" (95 % t interval of the
        difference, None below two processes with a step).
    """
    steps = [find_step(values) for values in curves]
    places = sorted(step.at for step in steps if step.at is not None)
    costs = [step.high - step.low for step in steps if step.high is not None]
    highs = [step.high for step in steps if step.high is not None]
    ci = None
    if len(costs) > 1:
        half = float(stats.t.ppf(0.975, len(costs) - 1)) * float(np.std(costs, ddof=1)) / len(costs) ** 0.5
        ci = [float(np.mean(costs)) - half, float(np.mean(costs)) + half]
    return {
        "processes": len(curves),
        "at": [step.at for step in steps],
        "at_low": places[0] if places else None,
        "at_high": places[-1] if places else None,
        "at_median": float(statistics.median(places)) if places else None,
        "low_us": float(np.mean([step.low for step in steps])) if steps else None,
        "high_us": float(np.mean(highs)) if highs else None,
        "cost_us": float(np.mean(costs)) if costs else None,
        "cost_ci": ci,
    }


def places_used(reference: dict[str, Any], found: dict[str, Any]) -> float | None:
    """How many further streams earlier the step comes than in the reference condition, from two summaries."""
    if reference["at_median"] is None or found["at_median"] is None:
        return None
    return float(reference["at_median"] - found["at_median"])


def sweep(
    torch: Any, conditions: Sequence[Condition], processes: int, report: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Measure conditions in turn, ``processes`` times over, so that drift meets all of them alike.

    Returns:
        One row per process: "condition", "process", "curve" or "error"; ``report`` gets each as it comes.
    """
    rows = []
    for process in range(processes):
        for condition in conditions:
            row: dict[str, Any] = {"condition": condition.name, "process": process}
            try:
                row["curve"] = [round(value, 4) for value in measure(torch, condition)]
            except RcaError as error:
                row["error"] = str(error)
            report(row)
            rows.append(row)
    return rows
