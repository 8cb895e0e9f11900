"""Triton kernels of the placement probes. Compiled offline by the tests; not run on ROCm."""

# mypy: ignore-errors
from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def window_read_kernel(x_ptr, out_ptr, per_program, BLOCK: tl.constexpr):
    """Sum of ``per_program`` floats per program."""
    program = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, per_program, BLOCK):
        total += tl.load(x_ptr + program * per_program + start + cols)
    tl.store(out_ptr + program, tl.sum(total, axis=0))


@triton.jit
def pair_read_kernel(x_ptr, y_ptr, out_ptr, per_program, BLOCK: tl.constexpr):
    """Sum over two streams of ``per_program`` floats per program, read side by side."""
    program = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, per_program, BLOCK):
        place = program * per_program + start + cols
        total += tl.load(x_ptr + place) + tl.load(y_ptr + place)
    tl.store(out_ptr + program, tl.sum(total, axis=0))


@triton.jit
def chase_kernel(next_ptr, at_ptr, steps):
    """Follow a chain of indices from the place that ``at_ptr`` holds, and leave the last one there.

    Each read needs the one before; the next launch goes on where this one ended.
    """
    at = tl.load(at_ptr)
    for _ in range(0, steps):
        at = tl.load(next_ptr + at)
    tl.store(at_ptr, at)


# Signatures for compiling without a device, as in triton_kernels.OFFLINE.
OFFLINE: dict[str, tuple[Any, dict[str, str], dict[str, int]]] = {
    "window_read": (
        window_read_kernel,
        {"x_ptr": "*fp32", "out_ptr": "*fp32", "per_program": "i32"},
        {"BLOCK": 1024},
    ),
    "pair_read": (
        pair_read_kernel,
        {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "per_program": "i32"},
        {"BLOCK": 1024},
    ),
    "chase": (chase_kernel, {"next_ptr": "*i64", "at_ptr": "*i64", "steps": "i32"}, {}),
}
