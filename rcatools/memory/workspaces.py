"""Sizes of the library workspaces that torch allocates by itself, by device family and environment.

Sources: torch's ``CUDABlas``/``CublasHandlePool`` defaults as described in pytorch PRs 139300, 156495,
194311 and 197201; the 33,554,432 and 1,048,576 byte pair and the 79,691,776 byte case were also seen on
an H200 with torch 2.11. The ROCm sizes were not run on ROCm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KIB = 1024
BLAS = "blas_workspace"
BLAS_LT = "blas_lt_workspace"


@dataclass(frozen=True)
class KnownSize:
    """A workspace size.

    Attributes:
        size: bytes of one allocation.
        owner: which library workspace it is.
        where: device family or setting it belongs to.
        confidence: how far the size alone identifies the owner, 0 to 1: a size that other code also
            uses (a power of two) identifies little.
    """

    size: int
    owner: str
    where: str
    confidence: float


DEFAULTS = (
    KnownSize(76 * 1024 * KIB, BLAS_LT, "hipBLASLt default on ROCm since torch 2.6", 0.7),
    KnownSize(80 * 1024 * KIB, BLAS_LT, "hipBLASLt default on ROCm from September 2026", 0.5),
    KnownSize(128 * 1024 * KIB, BLAS, "hipBLAS on gfx942, gfx950 and gfx1250", 0.2),
    KnownSize(32 * 1024 * KIB, BLAS, "cuBLAS on sm90 and later, hipBLAS on other cards", 0.3),
    KnownSize(4096 * KIB * 2 + 16 * KIB * 8, BLAS, "cuBLAS before sm90 (:4096:2:16:8)", 0.8),
    KnownSize(1024 * KIB, BLAS_LT, "cuBLASLt default on CUDA", 0.1),
)

BLAS_VARIABLES = ("CUBLAS_WORKSPACE_CONFIG", "HIPBLAS_WORKSPACE_CONFIG", "ROCBLAS_WORKSPACE_CONFIG")
LT_VARIABLES = ("CUBLASLT_WORKSPACE_SIZE", "HIPBLASLT_WORKSPACE_SIZE")


def blas_config_bytes(text: str) -> int | None:
    """Total bytes of a ``:SIZE:COUNT[:SIZE:COUNT...]`` setting (SIZE in KiB), or None if it is not one."""
    parts = text.strip().split(":")
    if len(parts) < 3 or parts[0] or len(parts) % 2 == 0:
        return None
    try:
        numbers = [int(p) for p in parts[1:]]
    except ValueError:
        return None
    if any(n < 0 for n in numbers):
        return None
    return sum(size * KIB * count for size, count in zip(numbers[::2], numbers[1::2], strict=True))


def known_sizes(environment: Mapping[str, str] | None = None) -> tuple[KnownSize, ...]:
    """Sizes to look for: what the environment sets first, then the defaults.

    Args:
        environment: variables that were in force where the snapshot was made, if they are known.
    """
    out: list[KnownSize] = []
    for name in BLAS_VARIABLES:
        size = blas_config_bytes((environment or {}).get(name, ""))
        if size:
            out.append(KnownSize(size, BLAS, f"set by {name}", 0.8))
    for name in LT_VARIABLES:
        text = (environment or {}).get(name, "").strip()
        if text.isdigit() and int(text):
            out.append(KnownSize(int(text) * KIB, BLAS_LT, f"set by {name}", 0.8))
    return (*out, *DEFAULTS)
