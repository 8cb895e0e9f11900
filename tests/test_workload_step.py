"""The decode step against float64 and against attention written another way; sizes and declarations by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rcatools.errors import InputError, UnknownNameError
from rcatools.workload.config import CPU, GPU, DecodeConfig
from rcatools.workload.declared import cache_state, declare, flush_bytes, read_tokens, step_totals

TINY = DecodeConfig(
    layers=3,
    hidden=64,
    q_heads=4,
    kv_heads=2,
    head_dim=16,
    batch=2,
    context=80,
    page=16,
    split=32,
    expert_every=2,
    expert_tokens=8,
    expert_out=32,
    dtype="float32",
    kv_limit=2**22,
)


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def step_of(torch: Any, config: DecodeConfig = TINY, **variation: Any) -> Any:
    from rcatools.workload.step import DecodeStep, Variation

    step = DecodeStep(torch, "cpu", config, Variation(**variation))
    pages = 2 * step.least_pages
    cache = torch.empty(config.layers * pages * config.page_bytes // config.dtype_bytes, dtype=step.dtype)
    step.attach(cache, pages)
    step.fill()
    return step


def attention_by_hand(step: Any, layer: int, qkv: np.ndarray) -> np.ndarray:
    """Attention of one layer in float64, one sequence, head and token at a time."""
    c = step.config
    kv, table = step.kv[layer].double().numpy(), step.table[layer].numpy()
    out = np.zeros((c.batch, c.q_heads, c.head_dim))
    for sequence in range(c.batch):
        for head in range(c.q_heads):
            group = head // (c.q_heads // c.kv_heads)
            q = qkv[sequence, head * c.head_dim : (head + 1) * c.head_dim]
            keys = [kv[table[sequence, t // c.page], 0, group, t % c.page] for t in range(c.context)]
            vals = [kv[table[sequence, t // c.page], 1, group, t % c.page] for t in range(c.context)]
            scores = np.array([q @ k for k in keys]) / math.sqrt(c.head_dim)
            weights = np.exp(scores - scores.max())
            out[sequence, head] = (weights / weights.sum()) @ np.array(vals)
    return out.reshape(c.batch, -1)


@pytest.mark.torch
def test_step_agrees_with_a_float64_step_written_out_in_numpy(torch: Any) -> None:
    from rcatools.workload.step import relative_error

    step = step_of(torch)
    c = step.config
    hidden_out = step.run().clone().numpy()
    h = step.hidden_in.double().numpy()
    for layer in range(c.layers):
        normed = h / np.sqrt((h**2).mean(-1, keepdims=True) + 1e-6) * step.norm_weight[layer].double().numpy()
        qkv = normed @ step.qkv_weight[layer].double().numpy().T + step.qkv_bias[layer].double().numpy()
        # the step has written the new keys and values, which attention must see
        h = h + attention_by_hand(step, layer, qkv) @ step.out_weight[layer].double().numpy().T
    error = np.linalg.norm(hidden_out - h) / np.linalg.norm(h)
    assert 1e-9 < error < 1e-5
    assert relative_error(step) == pytest.approx(error, rel=0.2)
    product = step.expert_in.double() @ step.expert_weight[c.experts - 1].double().t()
    assert torch.allclose(step.expert_result.double(), product, atol=1e-4)


@pytest.mark.torch
def test_reference_notices_a_wrong_page(torch: Any) -> None:
    from rcatools.workload.step import relative_error

    step = step_of(torch)
    step.run()
    step.table[1, 0, 0] = step.table[1, 0, 1]
    assert relative_error(step) > 1e-3


@pytest.mark.torch
def test_output_is_the_same_bits_whatever_the_cache_size_and_the_planted_read(torch: Any) -> None:
    from rcatools.workload.step import DecodeStep, Variation

    plain = step_of(torch)
    plain.run()
    more = DecodeStep(torch, "cpu", TINY, Variation(empty_kernels=2))
    pages = 5 * more.least_pages
    more.attach(torch.empty(TINY.layers * pages * TINY.page_bytes // 4), pages)
    assert not torch.equal(more.table, plain.table)
    more.fill()
    more.run()
    assert more.output_hash() == plain.output_hash()
    planted = step_of(torch, kv_read=1.5)
    planted.run()
    assert planted.tokens == 80 + 64  # half of 80 in whole splits of 32
    assert torch.allclose(planted.hidden_out, plain.hidden_out, atol=1e-5)


@pytest.mark.torch
def test_hash_covers_what_is_computed_and_nothing_else(torch: Any) -> None:
    one, two = step_of(torch, replace(TINY, layers=1)), step_of(torch, replace(TINY, layers=1))
    for step, junk in ((one, 1.0), (two, 2.0)):  # one layer, no expert product: this memory means nothing
        step.expert_result.fill_(junk)
        step.run()
    assert one.output_hash() == two.output_hash()
    two.hidden_out[0, 0] += 1e-6
    assert one.output_hash() != two.output_hash()


@pytest.mark.torch
def test_values_are_random_never_zero(torch: Any) -> None:
    step = step_of(torch)
    for tensor in (
        step.qkv_weight,
        step.out_weight,
        step.expert_weight,
        step.hidden_in,
        step.expert_in,
        step.kv,
    ):
        assert tensor.double().std() > 0
        assert (tensor == 0).double().mean() < 1e-3


def test_declared_bytes_and_flops_by_hand() -> None:
    config = replace(CPU, batch=2, context=512)  # float32, 4 query and 2 KV heads of 64, hidden 512
    kernels = {kernel.name: kernel for kernel in declare(config)}
    assert kernels["rms_norm"].bytes == (2 * 512 + 2 * 512 + 512) * 4
    assert kernels["qkv_linear"].bytes == 4 * (
        512 * 512 + 512 + 2 * 512 + 2 * 512
    )  # (4 + 2 + 2) * 64 = 512 columns
    assert kernels["qkv_linear"].flops == 2 * 2 * 512 * 512
    assert kernels["cache_write"].bytes == 2 * 2 * 2 * (2 * 64) * 4  # K and V, read and written
    partial = 2 * 4 * 4 * (64 + 2) * 4  # sequences x heads x splits x (values and two numbers) in float32
    read = 2 * 512 * 2 * (2 * 64) * 4
    assert kernels["kv_gather"].bytes == read + 2 * 256 * 4 + partial + 2 * 512 // 16 * 4
    assert kernels["kv_gather"].flops == 2 * 4 * 512 * 64 * 4  # two products, a multiply-add counts two
    assert kernels["out_linear"].bytes == 4 * (256 * 512 + 2 * (256 + 512))
    assert kernels["add_allreduce"].bytes == 3 * 2 * 512 * 4
    assert kernels["expert_gemm"].flops == 2 * 64 * 512 * 512
    assert kernels["expert_gemm"].per_step == 2
    totals = step_totals(tuple(kernels.values()))
    assert totals["kernels"] == 8 * 7 + 2
    assert totals["bytes"] == sum(k.per_step * k.bytes for k in kernels.values())


def test_gpu_preset_is_a_step_of_many_short_kernels() -> None:
    totals = step_totals(declare(GPU))
    assert totals["kernels"] == 290
    assert declare(GPU)[3].bytes == pytest.approx(16384 * 2 * 256 * 2, rel=0.05)


@pytest.mark.parametrize(("factor", "tokens"), [(1.0, 512), (0.5, 512), (1.2, 640), (1.5, 768), (1.51, 896)])
def test_planted_read_is_whole_splits(factor: float, tokens: int) -> None:
    assert read_tokens(CPU, factor) == tokens


def test_cache_state_is_named_for_every_kernel() -> None:
    h200 = 60 * 2**20
    states = {k.name: cache_state(k, GPU, h200) for k in declare(GPU)}
    assert states["kv_gather"] == states["qkv_linear"] == states["expert_gemm"] == "rotating"
    assert states["rms_norm"] == states["add_allreduce"] == "hot"
    assert {cache_state(k, GPU, None) for k in declare(GPU)} == {"hot"}
    cold = replace(GPU, cache="cold")
    assert {cache_state(k, cold, h200) for k in declare(cold)} == {"cold"}
    assert flush_bytes(256 * 2**20) >= 2 * 256 * 2**20
    assert flush_bytes(None) >= 2 * 256 * 2**20


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"layer": "3"}, "did you mean 'layers'"),
        ({"layers": "three"}, "must be int"),
        ({"layers": "0"}, "positive"),
        ({"dtype": "float8"}, "did you mean 'float"),
        ({"q_heads": "5"}, "multiple of kv_heads"),
        ({"context": "100"}, "multiple of page"),
        ({"kv_fraction": "1.5"}, "below 1"),
        ({"triton": "kv_gathr"}, "did you mean 'kv_gather'"),
        ({"cache": "warm"}, "cache mode"),
    ],
)
def test_parameters_that_cannot_be_run_are_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=said):
        CPU.with_parameters(values)
