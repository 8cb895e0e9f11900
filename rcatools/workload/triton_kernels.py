"""Triton kernels of the decode step. Imported only where Triton is installed.

Compiled offline for gfx942 and gfx950 by the tests; not run on ROCm.
"""

from __future__ import annotations

import contextlib
from typing import Any

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, hidden, eps, BLOCK: tl.constexpr):
    """One row: x / sqrt(mean(x^2) + eps) * weight, in float32."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < hidden
    x = tl.load(x_ptr + row * hidden + cols, mask=mask, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / hidden + eps)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * hidden + cols, (x * scale * weight).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def cache_write_kernel(
    qkv_ptr,
    kv_ptr,
    slot_ptr,
    qkv_stride,
    q_width,
    KV_HEADS: tl.constexpr,
    PAGE: tl.constexpr,
    DIM: tl.constexpr,
):
    """Keys and values of one new token into its slot; one program per (sequence, KV head).

    The cache is laid out [page][key or value][head][token in page][dim].
    """
    seq = tl.program_id(0)
    head = tl.program_id(1)
    cols = tl.arange(0, DIM)
    slot = tl.load(slot_ptr + seq).to(tl.int64)
    base = ((slot // PAGE) * 2 * KV_HEADS + head) * PAGE * DIM + (slot % PAGE) * DIM
    source = qkv_ptr + seq * qkv_stride + q_width + head * DIM
    tl.store(kv_ptr + base + cols, tl.load(source + cols))
    tl.store(kv_ptr + base + KV_HEADS * PAGE * DIM + cols, tl.load(source + KV_HEADS * DIM + cols))


@triton.jit
def kv_gather_kernel(
    qkv_ptr,
    kv_ptr,
    table_ptr,
    partial_ptr,
    stat_ptr,
    qkv_stride,
    table_stride,
    valid_tokens,
    scale,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    PAGE: tl.constexpr,
    DIM: tl.constexpr,
    SPLIT: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Attention of one KV head's query group over one split of the paged context.

    Tokens at or beyond ``valid_tokens`` are read and given no weight. Writes an unnormalised
    float32 partial [sequence, query head, split, dim] and its (maximum, sum) pair.
    """
    seq = tl.program_id(0) // KV_HEADS
    head = tl.program_id(0) % KV_HEADS
    split = tl.program_id(1)
    rows = tl.arange(0, GROUP_PAD)
    cols = tl.arange(0, DIM)
    q_head = head * GROUP + rows
    q = tl.load(
        qkv_ptr + seq * qkv_stride + q_head[:, None] * DIM + cols[None, :],
        mask=rows[:, None] < GROUP,
        other=0.0,
    )
    running_max = tl.full((GROUP_PAD,), -1e30, tl.float32)
    running_sum = tl.zeros((GROUP_PAD,), tl.float32)
    acc = tl.zeros((GROUP_PAD, DIM), tl.float32)
    for start in range(0, SPLIT, BLOCK):
        token = split * SPLIT + start + tl.arange(0, BLOCK)
        page = tl.load(table_ptr + seq * table_stride + token // PAGE).to(tl.int64)
        base = (page * 2 * KV_HEADS + head) * PAGE * DIM + (token % PAGE) * DIM
        k = tl.load(kv_ptr + base[:, None] + cols[None, :])
        v = tl.load(kv_ptr + KV_HEADS * PAGE * DIM + base[:, None] + cols[None, :])
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where(token[None, :] < valid_tokens, scores, -1e30)
        block_max = tl.maximum(running_max, tl.max(scores, axis=1))
        weights = tl.where(token[None, :] < valid_tokens, tl.exp(scores - block_max[:, None]), 0.0)
        rescale = tl.exp(running_max - block_max)
        running_sum = running_sum * rescale + tl.sum(weights, axis=1)
        acc = acc * rescale[:, None] + tl.dot(weights.to(v.dtype), v)
        running_max = block_max
    out = (seq * KV_HEADS * GROUP + q_head) * SPLITS + split
    tl.store(partial_ptr + out[:, None] * DIM + cols[None, :], acc, mask=rows[:, None] < GROUP)
    tl.store(stat_ptr + out * 2, running_max, mask=rows < GROUP)
    tl.store(stat_ptr + out * 2 + 1, running_sum, mask=rows < GROUP)


@triton.jit
def kv_merge_kernel(
    partial_ptr, stat_ptr, out_ptr, SPLITS: tl.constexpr, SPLITS_PAD: tl.constexpr, DIM: tl.constexpr
):
    """Partials of one query head merged in split order; one program per (sequence, query head)."""
    row = tl.program_id(0)
    cols = tl.arange(0, DIM)
    parts = tl.arange(0, SPLITS_PAD)
    inside = parts < SPLITS
    maximum = tl.load(stat_ptr + (row * SPLITS + parts) * 2, mask=inside, other=-1e30)
    total = tl.load(stat_ptr + (row * SPLITS + parts) * 2 + 1, mask=inside, other=0.0)
    factor = tl.exp(maximum - tl.max(maximum, axis=0))
    values = tl.load(
        partial_ptr + (row * SPLITS + parts)[:, None] * DIM + cols[None, :], mask=inside[:, None], other=0.0
    )
    merged = tl.sum(values * factor[:, None], axis=0) / tl.sum(total * factor, axis=0)
    tl.store(out_ptr + row * DIM + cols, merged.to(out_ptr.dtype.element_ty))


@triton.jit
def add_kernel(a_ptr, b_ptr, out_ptr, size, BLOCK: tl.constexpr):
    """Elementwise sum."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < size
    a = tl.load(a_ptr + index, mask=mask)
    tl.store(out_ptr + index, a + tl.load(b_ptr + index, mask=mask), mask=mask)


@triton.jit
def expert_gemm_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Row-major product C[M, N] = A[M, K] B[N, K]^T with float32 accumulation.

    The sizes must be multiples of the blocks, which the launcher checks.
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * K + depth[None, :]
    b = b_ptr + cols[None, :] * K + depth[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc += tl.dot(tl.load(a), tl.load(b))
        a += BLOCK_K
        b += BLOCK_K
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def empty_kernel(x_ptr):
    """Nothing: the price of one more kernel."""


@triton.jit
def reduce_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """Sum of one block per program: the read ceiling."""
    program = tl.program_id(0).to(tl.int64)
    values = tl.load(x_ptr + program * BLOCK + tl.arange(0, BLOCK))
    tl.store(out_ptr + program, tl.sum(values, axis=0))


def power_of_two(value: int) -> int:
    """The smallest power of two that is not below the value."""
    return int(triton.next_power_of_2(value))


def warm() -> None:
    """Compute what Triton hashes before it can look into its own cache, once, so that forked processes inherit it.

    That is a read of the whole compiler library (Triton 3.6: some 0.3 s in each process) and of the kernels' sources.
    Touches no device. Does nothing where this Triton keeps these keys elsewhere.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from triton.runtime.cache import triton_key

        triton_key()
    for kernel, _, _ in OFFLINE.values():
        getattr(kernel, "cache_key", None)


# Signatures for compiling without a device: kernel, types of run-time arguments, constants.
OFFLINE: dict[str, tuple[Any, dict[str, str], dict[str, int]]] = {
    "rms_norm": (
        rms_norm_kernel,
        {"x_ptr": "*bf16", "weight_ptr": "*bf16", "out_ptr": "*bf16", "hidden": "i32", "eps": "fp32"},
        {"BLOCK": 4096},
    ),
    "cache_write": (
        cache_write_kernel,
        {"qkv_ptr": "*bf16", "kv_ptr": "*bf16", "slot_ptr": "*i64", "qkv_stride": "i32", "q_width": "i32"},
        {"KV_HEADS": 2, "PAGE": 16, "DIM": 128},
    ),
    "kv_gather": (
        kv_gather_kernel,
        {
            "qkv_ptr": "*bf16",
            "kv_ptr": "*bf16",
            "table_ptr": "*i32",
            "partial_ptr": "*fp32",
            "stat_ptr": "*fp32",
            "qkv_stride": "i32",
            "table_stride": "i32",
            "valid_tokens": "i32",
            "scale": "fp32",
        },
        {
            "KV_HEADS": 2,
            "GROUP": 4,
            "GROUP_PAD": 16,
            "PAGE": 16,
            "DIM": 128,
            "SPLIT": 128,
            "SPLITS": 128,
            "BLOCK": 64,
        },
    ),
    "kv_merge": (
        kv_merge_kernel,
        {"partial_ptr": "*fp32", "stat_ptr": "*fp32", "out_ptr": "*bf16"},
        {"SPLITS": 128, "SPLITS_PAD": 128, "DIM": 128},
    ),
    "add": (
        add_kernel,
        {"a_ptr": "*bf16", "b_ptr": "*bf16", "out_ptr": "*bf16", "size": "i32"},
        {"BLOCK": 1024},
    ),
    "expert_gemm": (
        expert_gemm_kernel,
        {"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*bf16", "M": "i32", "N": "i32", "K": "i32"},
        {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64},
    ),
    "reduce": (reduce_kernel, {"x_ptr": "*fp32", "out_ptr": "*fp32"}, {"BLOCK": 2048}),
}
