"""What one decode step looks like in a profiler trace: kernels, their time, and the gaps between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rcatools.trace.model import Trace

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StepFigures:
    """A trace reduced to its steps (graph replays); arrays hold one entry per step.

    Attributes:
        kernel_us: time of all kernels.
        gap_us: start of each kernel minus end of the one before, inside the step, over all streams; overlap
            counts negative, so that kernels and gaps add up to the step's span.
        kernels: kernels per step.
        boundaries: boundaries per step.
        median_gap_us: median gap over all boundaries of all steps.
        by_name: kernel name to (launches, microseconds) per step.
        left_out: steps with another number of kernels than most, not used.
        order: kernel names of the first step used, in order of their start.
    """

    kernel_us: Floats
    gap_us: Floats
    kernels: float
    boundaries: float
    median_gap_us: float
    by_name: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    left_out: int = 0
    order: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Number of steps."""
        return int(self.kernel_us.size)

    @property
    def span_us(self) -> Floats:
        """Kernels and gaps together, per step."""
        return self.kernel_us + self.gap_us


def step_figures(trace: Trace) -> StepFigures | None:
    """Reduce a trace to its graph replays; without replays the whole trace is one step. None if it is empty."""
    table = trace.kernels
    kernel = (table["kind"] == "kernel").to_numpy()
    if not kernel.any():
        return None
    launch = np.where(table["graph"].to_numpy(), table["correlation"].to_numpy(), -1)
    replayed = bool((launch[kernel] != -1).any())
    step = launch if replayed else np.zeros(len(table), dtype=np.int64)
    used = kernel & (step != -1)
    names, counts = np.unique(step[used], return_counts=True)
    usual = np.bincount(counts).argmax()
    chosen = names[counts == usual]
    used &= np.isin(step, chosen)
    index = np.searchsorted(chosen, step)
    duration = table["dur_ns"].to_numpy() / 1000.0
    kernel_us = np.bincount(index[used], weights=duration[used], minlength=chosen.size)
    order = np.lexsort((table["start_ns"].to_numpy(), index, ~used))[: int(used.sum())]
    start = table["start_ns"].to_numpy()[order]
    end = start + table["dur_ns"].to_numpy()[order]
    inside = index[order][1:] == index[order][:-1]
    gap = (start[1:] - end[:-1])[inside] / 1000.0
    gap_us = np.bincount(index[order][1:][inside], weights=gap, minlength=chosen.size)
    per_name = (
        table.loc[used, ["name"]]
        .assign(us=duration[used])
        .groupby("name", observed=True)["us"]
        .agg(["size", "sum"])
    )
    return StepFigures(
        kernel_us=np.asarray(kernel_us, dtype=np.float64),
        gap_us=np.asarray(gap_us, dtype=np.float64),
        kernels=float(usual),
        boundaries=gap.size / chosen.size,
        median_gap_us=float(np.median(gap)) if gap.size else 0.0,
        by_name={
            str(name): (row["size"] / chosen.size, row["sum"] / chosen.size)
            for name, row in per_name.to_dict("index").items()
        },
        left_out=int(names.size - chosen.size),
        order=tuple(str(name) for name in table["name"].iloc[order[index[order] == 0]]),
    )
