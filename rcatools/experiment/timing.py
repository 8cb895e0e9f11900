"""Clocks around repeated work: device events on GPUs; on the CPU the thread's own CPU time, or wall time.

A step on the CPU runs in one thread, so its CPU time leaves out the turns that other programs had. Where several
ranks wait for each other, only wall time says what a step costs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

WARMUP_WINDOW = 10
WARMUP_LIMIT = {True: 30, False: 8}  # windows, on a GPU and on the CPU
FLAT_WITHIN = 0.004


class Stopwatch:
    """Times calls on one device in microseconds."""

    def __init__(self, torch: Any, *, gpu: bool, wall: bool = False) -> None:
        self.torch = torch
        self.gpu = gpu
        self.clock = time.perf_counter if wall else time.thread_time

    @property
    def clock_name(self) -> str:
        """Which clock the readings come from, as recordings say it."""
        return "device_events" if self.gpu else "wall" if self.clock is time.perf_counter else "thread_cpu"

    def samples(self, function: Callable[[], Any], count: int, repeats: int) -> list[float]:
        """``count`` readings, each the time of ``repeats`` calls divided by ``repeats``, in us.

        On a GPU all readings are queued before the first is read, so that the host never starves it.
        """
        if not self.gpu:
            return [self._host_us(function, repeats) for _ in range(count)]
        cuda = self.torch.cuda
        marks = [cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            for _ in range(repeats):
                function()
            mark.record()
        marks[-1].synchronize()
        pairs = itertools.pairwise(marks)
        return [float(a.elapsed_time(b)) * 1e3 / repeats for a, b in pairs]

    def _host_us(self, function: Callable[[], Any], repeats: int) -> float:
        start = self.clock()
        for _ in range(repeats):
            function()
        return (self.clock() - start) * 1e6 / repeats

    def cold_samples(self, function: Callable[[], Any], flush: Callable[[], Any], count: int) -> list[float]:
        """``count`` readings of single calls in us, each after ``flush`` has emptied the cache.

        The flush is not part of the time. On a GPU the device is kept busy while the calls are queued.
        """
        if not self.gpu:
            values = []
            for _ in range(count):
                flush()
                values.append(self._host_us(function, 1))
            return values
        cuda = self.torch.cuda
        pairs = [tuple(cuda.Event(enable_timing=True) for _ in range(2)) for _ in range(count)]
        for start, end in pairs:
            flush()
            start.record()
            function()
            end.record()
        cuda.synchronize()
        return [float(start.elapsed_time(end)) * 1e3 for start, end in pairs]

    def warm_up(
        self, function: Callable[[], Any], *, repeats: int, agree: Callable[[bool], bool] = bool
    ) -> tuple[int, bool]:
        """Call until the times show no trend any more, or a limit is reached.

        Args:
            agree: turns this process's opinion into that of all ranks, which must stop together.

        Returns:
            The number of calls made, and whether the series became flat before the limit.
        """
        limit = WARMUP_LIMIT[self.gpu]
        medians: list[float] = []
        for window in range(1, limit + 1):
            medians.append(float(np.median(self.samples(function, WARMUP_WINDOW, repeats))))
            if agree(flat(medians)):
                return window * WARMUP_WINDOW * repeats, True
        return limit * WARMUP_WINDOW * repeats, False


def flat(medians: list[float], within: float = FLAT_WITHIN) -> bool:
    """Whether the last three of at least four windows agree within a share and show no steady fall.

    A fall in each of the last three steps counts as steady once it adds up to half the share.
    """
    if len(medians) < 4:
        return False
    last = medians[-3:]
    falls = [a > b for a, b in itertools.pairwise(medians[-4:])]
    if all(falls) and (medians[-4] - medians[-1]) / medians[-1] > within / 2:
        return False
    return (max(last) - min(last)) / min(last) <= within
