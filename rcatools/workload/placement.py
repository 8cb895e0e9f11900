"""Does it matter where in memory the KV cache lies? Three probes of a buffer.

``windows``: read bandwidth of each window of a buffer. ``chase``: latency of dependent reads from one wave, which
grows where address translations run out. ``offsets``: bandwidth of two streams against the distance between them,
which falls where both meet in the same channels. They need a GPU with Triton; not run on ROCm.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rcatools.errors import InputError, UnavailableError

MIB = 2**20
WINDOWS = (2 * MIB, 64 * MIB, 1024 * MIB)
BLOCK = 4096  # bytes one program reads in a step
PROGRAM_BYTES = 64 * 1024
LINE = 128  # bytes between two elements of the chase, one cache line
CHASE_STEPS = 4096
OFFSETS = tuple(2**p for p in range(8, 31, 2))
REPEATS = 7


def window_starts(total: int, window: int) -> NDArray[np.int64]:
    """Byte offsets of the whole windows of a buffer, back to back.

    Raises:
        InputError: the buffer holds no whole window.
    """
    if window <= 0 or window > total:
        raise InputError(f"a window of {window} bytes does not fit into a buffer of {total}")
    return np.arange(total // window, dtype=np.int64) * window


def chain(elements: int, seed: int) -> NDArray[np.int64]:
    """Successors that visit every element once and come back: one cycle in random order (Sattolo 1986).

    Returns:
        int64 of shape (elements,); following it from 0 returns to 0 after exactly ``elements`` steps.
    """
    order = np.random.default_rng(seed).permutation(elements)
    successors = np.empty(elements, dtype=np.int64)
    successors[order] = np.roll(order, -1)
    return successors


def windows(torch: Any, buffer: Any, window: int, *, most: int = 256, passes: int = 2) -> dict[str, Any]:
    """Read bandwidth of windows of a buffer, in bytes per second.

    Args:
        buffer: flat tensor of float32 on the GPU, filled with random values.
        window: bytes of one window.
        most: so many windows at most, evenly spread over the buffer.
        passes: passes over all windows; two tell a property of the place from noise.

    Returns:
        "window_bytes", "start" (offsets in bytes), "bytes_per_s" [passes][windows].
    """
    kernels = _kernels()
    starts = window_starts(buffer.numel() * 4, window)
    starts = starts[np.unique(np.linspace(0, starts.size - 1, min(most, starts.size)).astype(int))]
    programs = max(window // PROGRAM_BYTES, 1)
    out = torch.empty(programs, device=buffer.device)
    rates = []
    for _ in range(passes):
        row = []
        for start in starts:
            view = buffer[int(start) // 4 : (int(start) + window) // 4]

            def read(view: Any = view) -> None:
                kernels.window_read_kernel[(programs,)](
                    view, out, view.numel() // programs, BLOCK=BLOCK // 4, num_warps=8
                )

            row.append(window / _seconds(torch, read))
        rates.append(row)
    return {"window_bytes": window, "start": starts.tolist(), "bytes_per_s": rates}


def chase(torch: Any, buffer: Any, spans: Sequence[int], *, seed: int = 0) -> dict[str, Any]:
    """Nanoseconds of one dependent read, over chains that span more and more of a buffer.

    Returns:
        "span_bytes" and "ns" of the same length; steps in "ns" are the reach of caches and of the TLB.
    """
    kernels = _kernels()
    words = buffer.view(torch.int64)
    result = torch.empty(1, dtype=torch.int64, device=buffer.device)
    times = []
    for span in spans:
        elements = span // LINE
        index = torch.arange(elements, device=buffer.device) * (LINE // 8)
        targets = torch.from_numpy(chain(elements, seed)).to(buffer.device) * (LINE // 8)
        words[index] = targets

        def follow() -> None:
            kernels.chase_kernel[(1,)](words, result, CHASE_STEPS, num_warps=1)

        times.append(_seconds(torch, follow) / CHASE_STEPS * 1e9)
    return {"span_bytes": list(spans), "ns": times}


def offsets(
    torch: Any, buffer: Any, distances: Sequence[int] = OFFSETS, *, size: int = 256 * MIB
) -> dict[str, Any]:
    """Bandwidth of reading two streams at once, by the distance of their starts.

    Returns:
        "distance_bytes" and "bytes_per_s" of the same length; distances that do not fit are left out.
    """
    kernels = _kernels()
    programs = size // PROGRAM_BYTES
    out = torch.empty(programs, device=buffer.device)
    fitting = [d for d in distances if size + d <= buffer.numel() * 4]
    rates = []
    for distance in fitting:
        second = buffer[distance // 4 :]

        def read(second: Any = second) -> None:
            kernels.pair_read_kernel[(programs,)](
                buffer, second, out, PROGRAM_BYTES // 4, BLOCK=BLOCK // 4, num_warps=8
            )

        rates.append(2 * size / _seconds(torch, read))
    return {"distance_bytes": fitting, "bytes_per_s": rates}


def position_effect(bytes_per_s: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """Whether windows keep their rank from one pass to the next.

    Returns:
        "spread" (relative standard deviation of the windows' means), "correlation" of the first two passes: near 1
        the place decides, near 0 it is noise; None where all windows are equal.
    """
    rates = np.asarray(bytes_per_s, dtype=float)
    means = rates.mean(axis=0)
    steady = rates.shape[0] < 2 or rates.shape[1] < 3 or bool((rates[:2].std(axis=1) == 0).any())
    correlation = None if steady else float(np.corrcoef(rates[0], rates[1])[0, 1])
    return {"spread": float(means.std() / means.mean()), "correlation": correlation}


def _seconds(torch: Any, function: Callable[[], Any]) -> float:
    for _ in range(2):
        function()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        function()
        mark.record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(marks)]
    return float(statistics.median(times))


def _kernels() -> Any:
    try:
        from rcatools.workload import placement_kernels
    except ImportError:
        raise UnavailableError(
            "the placement probes need Triton, which comes with torch on a GPU machine"
        ) from None
    return placement_kernels
