"""Sizes of the library workspaces that torch allocates by itself, by device family and environment.

Sources: torch's ``CUDABlas``/``CublasHandlePool`` defaults as described in pytorch PRs 139300, 156495,
194311 and 197201; the 33,554,432 and 1,048,576 byte pair and the 79,691,776 byte case were also seen on
an H200 with torch 2.11. The ROCm sizes were not run on ROCm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rcatools.errors import UnknownNameError

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
        platforms: where it occurs: "cuda", "rocm" or both.
        confidence: how far the size alone identifies the owner, 0 to 1: a size that other code also
            uses (a power of two) identifies little.
    """

    size: int
    owner: str
    where: str
    platforms: tuple[str, ...]
    confidence: float


PLATFORMS = ("cuda", "rocm")
DEFAULTS = (
    KnownSize(76 * 1024 * KIB, BLAS_LT, "hipBLASLt default on ROCm since torch 2.6", ("rocm",), 0.7),
    KnownSize(80 * 1024 * KIB, BLAS_LT, "hipBLASLt default on ROCm from September 2026", ("rocm",), 0.5),
    KnownSize(128 * 1024 * KIB, BLAS, "hipBLAS on gfx942, gfx950 and gfx1250", ("rocm",), 0.2),
    KnownSize(32 * 1024 * KIB, BLAS, "cuBLAS on sm90 and later, hipBLAS on other cards", PLATFORMS, 0.3),
    KnownSize(4096 * KIB * 2 + 16 * KIB * 8, BLAS, "cuBLAS before sm90 (:4096:2:16:8)", ("cuda",), 0.8),
    KnownSize(1024 * KIB, BLAS_LT, "cuBLASLt default", ("cuda",), 0.1),
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


def workspace_bytes(variable: str, value: str) -> int | None:
    """Bytes that a value of one of the workspace variables sets, or None where it sets none.

    Raises:
        UnknownNameError: no variable of that name sets a workspace.
    """
    if variable in BLAS_VARIABLES:
        return blas_config_bytes(value)
    if variable in LT_VARIABLES:
        return int(value) * KIB if value.isdecimal() and len(value) < 15 else None
    raise UnknownNameError("variable of a workspace", variable, (*BLAS_VARIABLES, *LT_VARIABLES))


def workspace_form(variable: str) -> str:
    """How a value of the variable is written."""
    return (
        "give KiB, such as 77824" if variable in LT_VARIABLES else "give KiB and count, such as :4096:2:16:8"
    )


def known_sizes(
    environment: Mapping[str, str] | None = None, platform: str | None = None
) -> tuple[KnownSize, ...]:
    """Sizes to look for: what the environment sets, then the defaults of what it does not set.

    Args:
        environment: variables that were in force where the snapshot was made, as far as they are known.
        platform: "cuda" or "rocm" if it is known: leaves out what only the other one has.
    """
    given = environment or {}
    out: list[KnownSize] = []
    replaced: set[str] = set()
    for name in BLAS_VARIABLES:
        size = blas_config_bytes(given.get(name, ""))
        if size is not None:
            replaced.add(BLAS)
            out.append(KnownSize(size, BLAS, f"set by {name}", PLATFORMS, 0.8))
    for name in LT_VARIABLES:
        text = given.get(name, "").strip()
        if text.isdigit():
            replaced.add(BLAS_LT)
            out.append(KnownSize(int(text) * KIB, BLAS_LT, f"set by {name}", PLATFORMS, 0.8))
    out += [k for k in DEFAULTS if k.owner not in replaced and (platform is None or platform in k.platforms)]
    return tuple(k for k in out if k.size > 0)
