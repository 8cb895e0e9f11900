"""What each kernel of the decode step moves and computes, counted before anything is timed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rcatools.workload.config import DecodeConfig

UNKNOWN_FLUSH_BYTES = 512 * 2**20


@dataclass(frozen=True)
class KernelDeclaration:
    """One kernel of the step.

    Attributes:
        name: its name in recordings.
        bound: "bandwidth", "compute" or "latency" (too small to reach either ceiling).
        per_step: launches in one step.
        bytes: bytes one launch must move to and from device memory (each operand once).
        flops: floating-point operations of one launch (a multiply-add counts two).
        what: one line for people.
    """

    name: str
    bound: str
    per_step: int
    bytes: int
    flops: int
    what: str

    def as_dict(self) -> dict[str, Any]:
        """All fields, for the manifest."""
        return asdict(self)


def declare(config: DecodeConfig, *, kv_read: float = 1.0) -> tuple[KernelDeclaration, ...]:
    """The kernels of one step in launch order.

    Args:
        config: sizes.
        kv_read: factor on the tokens the gather reads (a planted arm reads more).
    """
    e, b, h = config.dtype_bytes, config.batch, config.hidden
    q_width = config.q_heads * config.head_dim
    kv_width = config.kv_heads * config.head_dim
    tokens = read_tokens(config, kv_read)
    splits = -(-tokens // config.split)
    partial = b * config.q_heads * splits * (config.head_dim + 2) * 4
    gather_bytes = b * tokens * 2 * kv_width * e
    return (
        KernelDeclaration(
            "rms_norm", "latency", config.layers, (2 * b * h + h) * e, 4 * b * h, "norm of the residual"
        ),
        KernelDeclaration(
            "qkv_linear",
            "bandwidth",
            config.layers,
            (config.qkv_out * h + config.qkv_out + b * (h + config.qkv_out)) * e,
            2 * b * h * config.qkv_out,
            "QKV matrix-vector product with bias (BLAS)",
        ),
        KernelDeclaration(
            "cache_write",
            "latency",
            config.layers,
            4 * b * kv_width * e,
            0,
            "new keys and values into their page",
        ),
        KernelDeclaration(
            "kv_gather",
            "bandwidth",
            config.layers,
            gather_bytes + b * q_width * e + partial + b * tokens // config.page * 4,
            4 * b * config.q_heads * config.head_dim * tokens,
            "attention over paged keys and values, one partial result per split",
        ),
        KernelDeclaration(
            "kv_merge",
            "latency",
            config.layers,
            partial + b * q_width * e,
            3 * b * q_width * splits,
            "partials merged",
        ),
        KernelDeclaration(
            "out_linear",
            "bandwidth",
            config.layers,
            (q_width * h + b * (q_width + h)) * e,
            2 * b * h * q_width,
            "output projection, matrix-vector (BLAS)",
        ),
        KernelDeclaration(
            "add_allreduce",
            "latency",
            config.layers,
            3 * b * h * e,
            b * h,
            "residual add where an all-reduce stands",
        ),
        KernelDeclaration(
            "expert_gemm",
            "compute",
            config.experts,
            (config.expert_tokens * h + h * config.expert_out + config.expert_tokens * config.expert_out) * e,
            2 * config.expert_tokens * h * config.expert_out,
            "expert-sized matrix product",
        ),
    )


def flush_bytes(last_level_cache: int | None) -> int:
    """Bytes to write for an empty cache: twice the last level, 512 MiB where its size is not known."""
    return 2 * last_level_cache if last_level_cache else UNKNOWN_FLUSH_BYTES


def cache_state(kernel: KernelDeclaration, config: DecodeConfig, last_level_cache: int | None) -> str:
    """What the isolated timing of a kernel finds in the last-level cache.

    "cold": flushed before each launch. "rotating": hot mode, but its launches go through operands of at least
    twice the cache, so that each launch finds its own evicted. "hot": they fit, or the cache size is not known.
    """
    if config.cache == "cold":
        return "cold"
    if last_level_cache and kernel.bytes * kernel.per_step >= 2 * last_level_cache:
        return "rotating"
    return "hot"


def read_tokens(config: DecodeConfig, kv_read: float) -> int:
    """Tokens the gather reads: the context times a factor, in whole splits beyond it."""
    if kv_read <= 1:
        return config.context
    extra = -(-int(config.context * (kv_read - 1)) // config.split) * config.split
    return config.context + extra


def step_totals(kernels: tuple[KernelDeclaration, ...]) -> dict[str, int]:
    """Launches, bytes and FLOPs of one whole step."""
    return {
        "kernels": sum(k.per_step for k in kernels),
        "bytes": sum(k.per_step * k.bytes for k in kernels),
        "flops": sum(k.per_step * k.flops for k in kernels),
    }
