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
OFFSETS = (0, *(2**p for p in range(8, 29, 2)))
REPEATS = 7
PASSES = 8
AHEAD_CYCLES = 100_000_000  # about 50 ms at 2 GHz: longer than the host needs to queue one pass of 256 reads


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


def windows(torch: Any, buffer: Any, window: int, *, most: int = 256, passes: int = PASSES) -> dict[str, Any]:
    """Read bandwidth of windows of a buffer, in bytes per second.

    Each pass reads every window once, one after the other, so that no window is read twice in a row and found in the
    cache; the device is kept busy until the host has queued a pass. A read of few MiB lasts about as long as its launch:
    compare windows with each other, not with the ceiling.

    Args:
        buffer: flat tensor of float32 on the GPU, filled with random values.
        window: bytes of one window.
        most: so many windows at most, evenly spread over the buffer.
        passes: passes over all windows; several tell a property of the place from noise.

    Returns:
        "window_bytes", "start" (offsets in bytes), "bytes_per_s" [passes][windows], "host_bound" (passes in which the
        device had begun before all was queued).
    """
    kernels = _kernels()
    starts = window_starts(buffer.numel() * 4, window)
    starts = starts[np.unique(np.linspace(0, starts.size - 1, min(most, starts.size)).astype(int))]
    programs = max(window // PROGRAM_BYTES, 1)
    out = torch.empty(programs, device=buffer.device)
    views = [buffer[int(start) // 4 : (int(start) + window) // 4] for start in starts]
    per_program = views[0].numel() // programs
    rates, host_bound = [], 0
    for number in range(-1, passes):  # the first pass compiles and is not counted
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(views) + 1)]
        torch.cuda._sleep(AHEAD_CYCLES)
        marks[0].record()
        for view, mark in zip(views, marks[1:], strict=True):
            kernels.window_read_kernel[(programs,)](view, out, per_program, BLOCK=BLOCK // 4, num_warps=8)
            mark.record()
        late = marks[0].query()
        torch.cuda.synchronize()
        if number >= 0:
            host_bound += int(late)
            rates.append([window / (a.elapsed_time(b) / 1e3) for a, b in itertools.pairwise(marks)])
    return {
        "window_bytes": window,
        "start": starts.tolist(),
        "bytes_per_s": rates,
        "host_bound": host_bound,
    }


def chase(torch: Any, buffer: Any, spans: Sequence[int], *, seed: int = 0) -> dict[str, Any]:
    """Nanoseconds of one dependent read, over chains that span more and more of a buffer.

    Every launch goes on where the last one ended, so a span beyond the cache is read from memory. The lines written last
    while a chain is laid may still be in the cache: of a span of n caches, up to 1/n of the reads hit.

    Returns:
        "span_bytes" and "ns" of the same length; steps in "ns" are the reach of caches and of the TLB.
    """
    kernels = _kernels()
    words = buffer.view(torch.int64)
    at = torch.empty(1, dtype=torch.int64, device=buffer.device)
    times = []
    for span in spans:
        elements = span // LINE
        index = torch.arange(elements, device=buffer.device) * (LINE // 8)
        targets = torch.from_numpy(chain(elements, seed)).to(buffer.device) * (LINE // 8)
        words[index] = targets
        at.zero_()

        def follow() -> None:
            kernels.chase_kernel[(1,)](words, at, CHASE_STEPS, num_warps=1)

        times.append(_seconds(torch, follow) / CHASE_STEPS * 1e9)
    return {"span_bytes": list(spans), "ns": times}


def distances(size: int, total: int, offsets: Sequence[int] = OFFSETS) -> list[int]:
    """Distances of two streams of ``size`` bytes in a buffer of ``total``: whole GiB beyond the first, plus an offset.

    The streams never overlap, so that no byte is read twice.
    """
    whole = -(-size // (1024 * MIB)) * 1024 * MIB
    return [whole + offset for offset in offsets if whole + offset + size <= total]


def offsets(torch: Any, buffer: Any, *, size: int = 256 * MIB) -> dict[str, Any]:
    """Bandwidth of reading two streams at once, by the distance of their starts.

    Returns:
        "distance_bytes" and "bytes_per_s" of the same length; distances that do not fit are left out.
    """
    kernels = _kernels()
    programs = size // PROGRAM_BYTES
    out = torch.empty(programs, device=buffer.device)
    fitting = distances(size, buffer.numel() * 4)
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
        "spread" (relative standard deviation of the windows' means over the passes), "correlation" of the means of the
        even passes with those of the odd ones: near 1 the place decides, near 0 it is noise; None where all windows are
        equal.
    """
    rates = np.asarray(bytes_per_s, dtype=float)
    means = rates.mean(axis=0)
    spread = float(means.std() / means.mean())
    if rates.shape[0] < 2 or rates.shape[1] < 3:
        return {"spread": spread, "correlation": None}
    halves = rates[0::2].mean(axis=0), rates[1::2].mean(axis=0)
    equal = any(half.std() == 0 for half in halves)
    return {"spread": spread, "correlation": None if equal else float(np.corrcoef(*halves)[0, 1])}


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
