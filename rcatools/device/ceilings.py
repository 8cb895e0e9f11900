"""What the device can do at most, measured in the same session as everything else."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

COPY_BYTES = 2**30
MATMUL_SIZE = {"cpu": 512, "cuda": 8192, "rocm": 8192}

# Data-sheet figures, dense, with their source; shown beside what was measured, never instead of it.
DATASHEET: dict[str, dict[str, Any]] = {
    "NVIDIA H200": {
        "bytes_per_s": 4.8e12,
        "bf16_flops": 989e12,
        "source": "NVIDIA H200 Tensor Core GPU datasheet (SXM, BF16 without sparsity)",
    },
    "AMD Instinct MI300X": {
        "bytes_per_s": 5.3e12,
        "bf16_flops": 1307.4e12,
        "source": "AMD Instinct MI300X data sheet (peak BF16 without sparsity)",
    },
    "AMD Instinct MI355X": {
        "bytes_per_s": 8.0e12,
        "bf16_flops": 2516.6e12,
        "source": "AMD Instinct MI355X data sheet (peak BF16 matrix without sparsity)",
    },
}


def datasheet(name: str) -> dict[str, Any] | None:
    """Data-sheet entry whose name begins the device name, or None."""
    for key, entry in DATASHEET.items():
        if name.startswith(key):
            return entry
    return None


def measure(
    torch: Any, backend: str, *, read_kernel: Callable[[Any, Any], None] | None = None
) -> dict[str, float]:
    """Copy, read and matrix-product rates of the device on random data.

    Args:
        read_kernel: a kernel that reads its first tensor wholly and writes little; None leaves it out.

    Returns:
        "copy_bytes_per_s" (read plus write), "read_bytes_per_s" where a kernel was given, and
        "matmul_flops" with "matmul_dtype_bits"; each the median of repetitions.
    """
    device = "cpu" if backend == "cpu" else "cuda"
    size = 64 * 2**20 if backend == "cpu" else COPY_BYTES
    timer = _cpu_seconds if backend == "cpu" else _gpu_seconds(torch)
    source = torch.randint(-(2**31), 2**31 - 1, (size // 4,), dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    result = {"copy_bytes_per_s": 2 * size / timer(lambda: target.copy_(source))}
    if read_kernel is not None:
        result["read_bytes_per_s"] = size / timer(lambda: read_kernel(source, target))
    n = MATMUL_SIZE[backend]
    dtype = torch.float32 if backend == "cpu" else torch.bfloat16
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    result["matmul_flops"] = 2 * n**3 / timer(lambda: torch.mm(a, b))
    result["matmul_dtype_bits"] = 32.0 if backend == "cpu" else 16.0
    return result


def _cpu_seconds(function: Callable[[], Any]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def _gpu_seconds(torch: Any) -> Callable[[Callable[[], Any]], float]:
    def seconds(function: Callable[[], Any]) -> float:
        for _ in range(3):
            function()
        times = []
        for _ in range(15):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return float(statistics.median(times))

    return seconds
