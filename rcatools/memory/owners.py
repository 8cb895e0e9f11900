"""Who holds a live block: by call stack, by pool, by size.

A stack that ends in a workspace function names the owner. A size alone only suggests it, so it comes with
a lower confidence. What decides is an intervention (``rcatools.memory.intervention``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rcatools.memory.ledger import ledger
from rcatools.memory.snapshot import DEFAULT_POOL, INACTIVE, Frame, PoolId, Snapshot
from rcatools.memory.workspaces import BLAS, BLAS_LT, KnownSize, known_sizes

GRAPH_POOL, NCCL, AITER, CONV, RAW, PYTHON, UNKNOWN = (
    "graph_pool",
    "nccl",
    "aiter",
    "convolution_workspace",
    "raw_allocation",
    "python",
    "unknown",
)

FRAME_RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (BLAS, re.compile(r"\b(setWorkspaceForHandle|getNewWorkspace)\b")),
    (BLAS_LT, re.compile(r"(?i)\bget(New)?(CUDA|HIP)?BlasLt\w*Workspace\b|CublasLtWorkspace")),
    (NCCL, re.compile(r"ProcessGroupNCCL|\bnccl\w*Alloc|\bc10d::nccl")),
    (
        CONV,
        re.compile(
            r"(?i)\b(raw_)?(cudnn|miopen)_convolution|\bWorkspace::Workspace\b|\bfindAlgorithm\b.*(cudnn|miopen)"
        ),
    ),
    (AITER, re.compile(r"(?i)(^|[/\\.:_\s])aiter([/\\.:_\s]|$)")),
    (
        BLAS_LT,
        re.compile(r"\bat::cuda::blas::(gemm_and_bias|scaled_gemm|gemm_internal_cublaslt|int8_gemm)\b"),
    ),
    (RAW, re.compile(r"\b(raw_alloc|raw_alloc_with_stream|caching_allocator_alloc)\b")),
    (PYTHON, re.compile(r"\bat::detail::_?empty_(strided_)?generic\b|\bTHP(Variable|Storage)")),
)
"""Frame patterns from the innermost frame outwards; the first frame that matches any of them decides."""

ALLOCATOR_FRAMES = re.compile(
    r"CUDACachingAllocator|HIPCachingAllocator|torch::unwind|CapturedTraceback|gather_with_cpp"
)


@dataclass(frozen=True)
class BlockOwner:
    """One live block and who holds it.

    Attributes:
        device, address, size, stream: the block; bytes.
        owner: "blas_workspace", "blas_lt_workspace", "graph_pool", "nccl", "aiter",
            "convolution_workspace", "raw_allocation", "python" (a tensor) or "unknown".
        basis: "frames", "size", "pool", "intervention" or "none".
        confidence: 0 to 1.
        pins_bytes: unused bytes of its segment that its being live strands.
        reason: the frame, size or pool that led to the answer.
        pool_id: pool of its segment, None where unknown.
        requested_size: bytes that were asked for.
        stack: index into ``Snapshot.stacks``.
    """

    device: int
    address: int
    size: int
    stream: int
    owner: str
    basis: str
    confidence: float
    pins_bytes: int
    reason: str
    pool_id: PoolId | None
    requested_size: int
    stack: int

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        out = asdict(self)
        del out["stack"]
        out["pool_id"] = list(self.pool_id) if self.pool_id else None
        return out


def owners(
    snapshot: Snapshot, environment: Mapping[str, str] | None = None, platform: str | None = None
) -> list[BlockOwner]:
    """Name the holder of every live block, largest blocks first.

    Args:
        snapshot: the snapshot.
        environment: variables in force where it was made (workspace sizes follow some of them).
        platform: "cuda" or "rocm" if it is known where it was made.
    """
    stranded = ledger(snapshot).segments["stranded"].to_numpy()
    sizes = known_sizes(environment, platform)
    by_stack: dict[int, tuple[str, str] | None] = {}
    segments = snapshot.segments
    device, stream, pool = (segments[c].tolist() for c in ("device", "stream", "pool_id"))
    live = snapshot.blocks[snapshot.blocks["state"] != INACTIVE]
    columns = ("segment", "address", "size", "requested_size", "stack")
    out = []
    for where, address, size, requested, stack in zip(*(live[c].tolist() for c in columns), strict=True):
        if stack not in by_stack:
            by_stack[stack] = owner_by_frames(snapshot.stack(stack))
        owner, basis, confidence, reason = _judge(by_stack[stack], requested or size, pool[where], sizes)
        out.append(
            BlockOwner(
                device=device[where],
                address=address,
                size=size,
                stream=stream[where],
                owner=owner,
                basis=basis,
                confidence=confidence,
                pins_bytes=int(stranded[where]),
                reason=reason,
                pool_id=pool[where],
                requested_size=requested,
                stack=stack,
            )
        )
    return sorted(out, key=lambda b: (-b.size, b.device, b.address))


def owner_by_frames(frames: Iterable[Frame]) -> tuple[str, str] | None:
    """The owner that a call stack names and the frame that names it, or None where no frame does."""
    for name, filename, _ in frames:
        if ALLOCATOR_FRAMES.search(name):
            continue
        text = f"{name} {filename}"
        for owner, pattern in FRAME_RULES:
            if pattern.search(text):
                return owner, name
    return None


def _judge(
    by_frames: tuple[str, str] | None, size: int, pool: PoolId | None, sizes: tuple[KnownSize, ...]
) -> tuple[str, str, float, str]:
    if by_frames is not None and by_frames[0] != PYTHON:
        return by_frames[0], "frames", 0.95, by_frames[1]
    if by_frames is not None:
        return PYTHON, "frames", 0.9, by_frames[1]
    if pool is not None and pool != DEFAULT_POOL:
        return GRAPH_POOL, "pool", 0.8, f"segment of private pool {pool}"
    for known in sizes:
        if size == known.size:
            return known.owner, "size", known.confidence, known.where
    return UNKNOWN, "none", 0.0, "no call stack, and no known workspace has this size"
