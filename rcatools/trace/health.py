"""What a trace does not allow one to conclude, found before any table is read.

A check yields at most one finding with how many events it concerns, their time, and what it blocks:

``everything``    no GPU activity to speak about
``totals``        sums over the trace (the file is cut off)
``durations``     kernel durations
``idle``          idle and busy shares of the span
``gaps``          times between consecutive kernels
``per_step``      anything per step or per replay
``launch_links``  which call or operation launched a kernel
``launch_delay``  time from launch to start
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rcatools.trace.intervals import merged
from rcatools.trace.model import NO_TIME, Trace, lanes
from rcatools.units import counted

DOMINANT_NOTED, DOMINANT_BLOCKS = 0.5, 0.8  # share of the GPU time carried by one event of at least MANY
MANY = 20
LATE_SHARE = 0.9  # this part of the events starts in the last tenth of the trace
ZERO_SHARE = 0.05
OVERLAP_SHARE = 0.05
EMPTY_STEPS_SHARE = 0.1
UNLINKED_SHARE = 0.05
JUMP_NS = 10 * 1_000_000_000  # a gap above this and above JUMP_RATIO times all other time is a clock jump
JUMP_RATIO = 100


@dataclass(frozen=True)
class Finding:
    """One defect: how many events it concerns, their time in microseconds, what it blocks."""

    code: str
    text: str
    count: int
    us: float
    blocks: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The form of the command line."""
        return {**vars(self), "blocks": list(self.blocks)}


@dataclass(frozen=True)
class Health:
    """``blocks`` names what may not be concluded from the trace: "idle", "per_step", "durations", ..."""

    blocks: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Nothing is blocked."""
        return not self.blocks

    def to_json(self) -> dict[str, Any]:
        """The form of the command line."""
        return {
            "ok": self.ok,
            "blocks": list(self.blocks),
            "findings": [finding.to_json() for finding in self.findings],
        }


def health(trace: Trace) -> Health:
    """Check one trace; the findings in order of the checks, the blocks without repetition."""
    findings = [_from_reader(trace, warning.code, warning.text, warning.count) for warning in trace.warnings]
    if len(trace.kernels):
        findings += [found for check in _CHECKS if (found := check(trace)) is not None]
    blocks = dict.fromkeys(block for finding in findings for block in finding.blocks)
    return Health(blocks=tuple(blocks), findings=tuple(findings))


_READER_BLOCKS = {
    "no_gpu_events": ("everything",),
    "truncated": ("totals", "per_step"),
    "dropped_events": ("totals",),
    "bad_time": ("totals", "gaps"),
    "impossible_duration": ("idle", "gaps"),
    "negative_duration": ("idle", "gaps"),
    "no_launch_events": ("launch_links", "launch_delay"),
}


def _from_reader(trace: Trace, code: str, text: str, count: int) -> Finding:
    excluded = trace.excluded
    time = int(excluded.loc[excluded["reason"] == code, "dur_ns"].sum()) if len(excluded) else 0
    if time:
        with_all = int(trace.kernels["dur_ns"].sum()) + time
        text += f"; GPU time is {_us(with_all - time):.3f} us without and {_us(with_all):.3f} us with them"
    return Finding(code, text, count, _us(time), _READER_BLOCKS.get(code, ()))


def _dominant_event(trace: Trace) -> Finding | None:
    duration = trace.kernels["dur_ns"].to_numpy()
    total = int(duration.sum())
    if duration.size < MANY or total == 0 or duration.max() < DOMINANT_NOTED * total:
        return None
    row = int(duration.argmax())
    name = str(trace.kernels["name"].iloc[row])[:80]
    return Finding(
        "dominant_event",
        f"one event carries {100 * duration[row] / total:.1f} % of the GPU time ({name}): shares, idle and "
        "per-step figures describe that event",
        1,
        _us(duration[row]),
        ("idle", "per_step", "durations") if duration[row] >= DOMINANT_BLOCKS * total else (),
    )


def _empty_steps(trace: Trace) -> Finding | None:
    steps = trace.steps
    if len(steps) < 2:
        return None
    begin = steps["start_ns"].to_numpy()
    end = begin + steps["dur_ns"].to_numpy()
    table = trace.kernels
    linked = table["launch_ns"].to_numpy() != NO_TIME
    if linked.mean() > 0.5:  # by launch, because GPU work lags behind its step
        moments = np.sort(table["launch_ns"].to_numpy()[linked])
        held = np.searchsorted(moments, end, "left") - np.searchsorted(moments, begin, "left")
    else:
        starts, ends = merged(table["start_ns"], table["dur_ns"])
        held = np.searchsorted(starts, end, "left") - np.searchsorted(ends, begin, "right")
    empty = int((held <= 0).sum())
    starting = np.searchsorted(np.sort(table["start_ns"].to_numpy()), [begin, end], "left")
    without_start = int((starting[1] == starting[0]).sum()) if linked.mean() <= 0.5 else empty
    empty = max(empty, without_start)
    if empty == 0:
        return None
    many = empty > 1 and empty >= EMPTY_STEPS_SHARE * len(steps)
    return Finding(
        "missing_steps",
        f"{empty} of {len(steps)} annotated steps have no GPU event: nothing can be said per step"
        + (", and the idle share is not that of the workload" if many else ""),
        empty,
        _us(int(steps["dur_ns"].to_numpy()[held <= 0].sum())),
        ("per_step", "idle") if many else ("per_step",),
    )


def _late_burst(trace: Trace) -> Finding | None:
    start = trace.kernels["start_ns"].to_numpy()
    end = start + trace.kernels["dur_ns"].to_numpy()
    host = trace.meta.get("host_extent_ns")
    edges = [int(start.min()), int(end.max()), *(host or ())]
    low, high = min(edges), max(edges)
    late = start >= high - (high - low) // 10
    if start.size < MANY or late.mean() < LATE_SHARE:
        return None
    return Finding(
        "late_burst",
        f"{100 * late.mean():.0f} % of the GPU events start in the last tenth of the trace: its idle time is that "
        "of the profiling window, not of the workload",
        int(late.sum()),
        _us(int((end - start)[late].sum())),
        ("idle",),
    )


def _before_first_launch(trace: Trace) -> Finding | None:
    kernels = trace.only_kernels()
    linked = kernels["linked"].to_numpy()
    if not linked.any():
        return None
    first = int(kernels["launch_ns"].to_numpy()[linked].min())
    early = ~linked & (kernels["start_ns"].to_numpy() < first)
    if not early.any():
        return None
    return _unlinked(
        kernels,
        early,
        "before_first_launch",
        "kernels ran before the first recorded launch (the profiler started with work in the queue)",
    )


def _unlinked_kernels(trace: Trace) -> Finding | None:
    kernels = trace.only_kernels()
    linked = kernels["linked"].to_numpy()
    if linked.all() or any(warning.code == "no_launch_events" for warning in trace.warnings):
        return None
    if not linked.any():
        return _unlinked(kernels, ~linked, "no_launch_events", "kernels have no launch event in the file")
    first = int(kernels["launch_ns"].to_numpy()[linked].min())
    lost = ~linked & (kernels["start_ns"].to_numpy() >= first)
    if not lost.any():
        return None
    return _unlinked(
        kernels,
        lost,
        "missing_launches",
        "kernels have no launch event in the file although others before do",
    )


def _unlinked(kernels: pd.DataFrame, mask: np.ndarray[Any, Any], code: str, what: str) -> Finding:
    duration = kernels["dur_ns"].to_numpy()
    share = duration[mask].sum() / max(int(duration.sum()), 1)
    blocks = ("launch_links",) if share > UNLINKED_SHARE else ()
    text = f"{int(mask.sum())} {what}: {100 * share:.1f} % of the kernel time has no operation and no shapes"
    return Finding(code, text, int(mask.sum()), _us(int(duration[mask].sum())), blocks)


def _launches_without_kernel(trace: Trace) -> Finding | None:
    lost = int(trace.meta.get("launches_without_activity") or 0)
    if not lost:
        return None
    graphs = int(trace.meta.get("graph_launches_without_activity") or 0)
    share = lost / max(int(trace.meta.get("launch_events") or 0), 1)
    blocks: tuple[str, ...] = ("totals", "idle") if share > UNLINKED_SHARE else ()
    if graphs:
        blocks = (*blocks, "per_step")
    text = f"no GPU event for {counted(lost, 'launch', 'launches')} ({counted(graphs, 'graph replay')} among them): the profiler lost their kernels"
    return Finding("launches_without_kernel", text, lost, 0.0, blocks)


def _short_replays(trace: Trace) -> Finding | None:
    """Replays whose kernels are a proper beginning or end of another replay's."""
    graph = trace.only_kernels()
    graph = graph[graph["graph"]]
    if graph.empty:
        return None
    replays: dict[tuple[Any, ...], list[int]] = {}
    codes = graph["full_name"].cat.codes.to_numpy()
    for number, rows in pd.Series(codes).groupby(graph["correlation"].to_numpy(), sort=False):
        replays.setdefault(tuple(rows.to_numpy().tolist()), []).append(int(str(number)))
    whole = sorted(replays, key=len, reverse=True)
    short = [
        sequence
        for sequence in whole
        if any(len(other) > len(sequence) and _is_part(sequence, other) for other in whole)
    ]
    count = sum(len(replays[sequence]) for sequence in short)
    if not count:
        return None
    numbers = {number for sequence in short for number in replays[sequence]}
    time = int(graph.loc[graph["correlation"].isin(numbers), "dur_ns"].sum())
    return Finding(
        "short_replays",
        f"{count} graph replays hold fewer kernels than another replay of the same graph: they were recorded short",
        count,
        _us(time),
        ("per_step",),
    )


def _is_part(part: tuple[Any, ...], whole: tuple[Any, ...]) -> bool:
    return whole[: len(part)] == part or whole[-len(part) :] == part


def _overlap(trace: Trace) -> Finding | None:
    table = trace.kernels
    lane = lanes(table)
    order = np.lexsort((table["start_ns"], lane))
    lane, start = lane[order], table["start_ns"].to_numpy()[order]
    end = start + table["dur_ns"].to_numpy()[order]
    over = np.maximum(end[:-1] - start[1:], 0) * (lane[1:] == lane[:-1])
    over = np.minimum(over, (end - start)[1:])
    count, time = int((over > 0).sum()), int(over.sum())
    if not count:
        return None
    heavy = time > OVERLAP_SHARE * int(table["dur_ns"].sum())
    return Finding(
        "overlap_on_stream",
        f"{counted(count, 'event starts', 'events start')} before the one before on the same stream has ended: durations do not add up to "
        "busy time",
        count,
        _us(time),
        ("durations", "gaps") if heavy else (),
    )


def _clock_jump(trace: Trace) -> Finding | None:
    starts, ends = merged(trace.kernels["start_ns"], trace.kernels["dur_ns"])
    if starts.size < 2:
        return None
    gap = starts[1:] - ends[:-1]
    widest = int(gap.max())
    rest = int(ends[-1] - starts[0]) - widest
    if widest < JUMP_NS or widest < JUMP_RATIO * max(rest, 1):
        return None
    return Finding(
        "clock_jump",
        f"the GPU clock jumps by {widest / 1e9:.0f} s between two events, {widest / max(rest, 1):.0f} times all other "
        "time: span, idle and gaps are not those of the workload",
        1,
        _us(widest),
        ("idle", "gaps", "per_step"),
    )


def _starts_before_launch(trace: Trace) -> Finding | None:
    table = trace.kernels
    launched = table["launch_ns"].to_numpy()
    early = (launched != NO_TIME) & (launched > table["start_ns"].to_numpy())
    if not early.any():
        return None
    lead = (launched - table["start_ns"].to_numpy())[early]
    return Finding(
        "starts_before_launch",
        f"{counted(int(early.sum()), 'GPU event starts', 'GPU events start')} before the call that launched it, by up to {_us(lead.max()):.3f} us: "
        "host and GPU clocks disagree",
        int(early.sum()),
        _us(int(lead.sum())),
        ("launch_delay", "per_step"),
    )


def _out_of_order(trace: Trace) -> Finding | None:
    """Kernels of one lane that start in another order than they were launched in."""
    launch, starts = trace.kernels["launch_ns"].to_numpy(), trace.kernels["start_ns"].to_numpy()
    linked = launch != NO_TIME
    lane, starts = lanes(trace.kernels)[linked], starts[linked]
    order = np.lexsort((starts, launch[linked], lane))
    start, lane = starts[order], lane[order]
    back = (start[1:] < start[:-1]) & (lane[1:] == lane[:-1])
    if not back.any():
        return None
    lead = (start[:-1] - start[1:])[back]
    return Finding(
        "out_of_launch_order",
        f"{counted(int(back.sum()), 'GPU event starts', 'GPU events start')} before one launched earlier on the same stream, by up to "
        f"{_us(lead.max()):.3f} us: a clock went back or streams are mixed up",
        int(back.sum()),
        _us(int(lead.sum())),
        ("gaps", "per_step"),
    )


def _zero_durations(trace: Trace) -> Finding | None:
    kernels = trace.only_kernels()
    zero = int((kernels["dur_ns"] == 0).sum())
    if not zero:
        return None
    blocks = ("durations",) if zero > ZERO_SHARE * len(kernels) else ()
    return Finding(
        "zero_duration",
        f"{counted(zero, 'kernel lasts', 'kernels last')} 0 us by the profiler's clock",
        zero,
        0.0,
        blocks,
    )


def _coarse_clock(trace: Trace) -> Finding | None:
    table = trace.kernels
    if len(table) < MANY or (table["start_ns"] % 1000).any() or (table["dur_ns"] % 1000).any():
        return None
    text = "all times are whole microseconds: durations and gaps below a few microseconds are not resolved"
    return Finding("microsecond_clock", text, len(table), 0.0)


_CHECKS: tuple[Callable[[Trace], Finding | None], ...] = (
    _dominant_event,
    _empty_steps,
    _late_burst,
    _before_first_launch,
    _unlinked_kernels,
    _launches_without_kernel,
    _short_replays,
    _overlap,
    _clock_jump,
    _starts_before_launch,
    _out_of_order,
    _zero_durations,
    _coarse_clock,
)


def _us(nanoseconds: int) -> float:
    return int(nanoseconds) / 1000
