"""Runs the Triton kernels of the decode step on the CPU in Triton's interpreter and prints errors as JSON.

A process of its own, because the interpreter is chosen when Triton is imported.
"""

from __future__ import annotations

import json
import os
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
from triton.runtime import interpreter

from rcatools.workload import placement, placement_kernels, triton_kernels
from rcatools.workload.config import DecodeConfig
from rcatools.workload.step import DecodeStep, Variation, relative_error

CONFIG = DecodeConfig(
    layers=2,
    hidden=128,
    q_heads=4,
    kv_heads=2,
    head_dim=16,
    batch=2,
    context=96,
    split=32,
    expert_every=2,
    expert_tokens=128,
    expert_out=128,
    dtype="float32",
    triton="rms_norm,cache_write,kv_gather,add_allreduce,expert_gemm",
)


_patch_tensor = interpreter._patch_lang_tensor


def patch_tensor(tensor: Any, scope: Any) -> None:
    """Triton 3.6 turns one-element arrays into integers, which numpy 2.4 refuses: take the element first."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = patch_tensor


def step_error(kv_read: float) -> tuple[float, float, float]:
    """Relative error of a whole step against float64, of the expert product, and the written cache's difference."""
    steps = []
    for kernels in (triton_kernels, None):
        step = DecodeStep(torch, "cpu", CONFIG, Variation(empty_kernels=1, kv_read=kv_read))
        step.kernels = kernels
        pages = 2 * step.least_pages
        step.attach(torch.empty(CONFIG.layers * pages * CONFIG.page_bytes // 4), pages)
        step.fill()
        step.run()
        steps.append(step)
    triton_step, torch_step = steps
    expert = (triton_step.expert_result - torch_step.expert_result).norm() / torch_step.expert_result.norm()
    written = (triton_step.kv - torch_step.kv).abs().max()
    return relative_error(triton_step), float(expert), float(written)


def chase_lands(elements: int, steps: int) -> bool:
    """Whether two launches of the chase kernel, one after the other, end where following the chain by hand ends."""
    words = torch.zeros(elements * (placement.LINE // 8), dtype=torch.int64)
    chain = placement.chain(elements, 3)
    stride = placement.LINE // 8
    words[torch.arange(elements) * stride] = torch.from_numpy(chain) * stride
    place = torch.zeros(1, dtype=torch.int64)
    at = 0
    for _ in range(2):
        placement_kernels.chase_kernel[(1,)](words, place, steps)
    for _ in range(2 * steps):
        at = int(chain[at])
    return int(place) == at * stride


def read_sums() -> list[float]:
    """Relative errors of the sums of both bandwidth kernels."""
    x, y = torch.randn(4096), torch.randn(4096)
    out = torch.empty(4)
    errors = []
    placement_kernels.window_read_kernel[(4,)](x, out, 1024, BLOCK=256)
    errors.append(float((out.double() - x.double().view(4, -1).sum(1)).abs().max()))
    placement_kernels.pair_read_kernel[(4,)](x, y, out, 1024, BLOCK=256)
    errors.append(float((out.double() - (x.double() + y.double()).view(4, -1).sum(1)).abs().max()))
    return errors


def main() -> None:
    """Print all errors."""
    result: dict[str, Any] = {"plain": step_error(1.0), "planted": step_error(1.5)}
    result["chase"] = chase_lands(64, 100)
    result["sums"] = read_sums()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
