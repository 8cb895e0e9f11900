"""Clocks around repeated work: device events on GPUs, the monotonic clock on the CPU."""

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

    def __init__(self, torch: Any, *, gpu: bool) -> None:
        self.torch = torch
        self.gpu = gpu

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

    @staticmethod
    def _host_us(function: Callable[[], Any], repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            function()
        return (time.perf_counter() - start) * 1e6 / repeats

    def warm_up(self, function: Callable[[], Any], *, repeats: int) -> tuple[int, bool]:
        """Call until the last three windows agree within 0.4 percent.

        Returns:
            The number of calls made, and whether the series became flat before the limit.
        """
        limit = WARMUP_LIMIT[self.gpu]
        medians: list[float] = []
        for window in range(1, limit + 1):
            medians.append(float(np.median(self.samples(function, WARMUP_WINDOW, repeats))))
            if flat(medians):
                return window * WARMUP_WINDOW * repeats, True
        return limit * WARMUP_WINDOW * repeats, False


def flat(medians: list[float], within: float = FLAT_WITHIN) -> bool:
    """Whether the last three of at least four windows agree within a share and do not fall steadily."""
    if len(medians) < 4:
        return False
    last = medians[-3:]
    return (max(last) - min(last)) / min(last) <= within
