"""The decode product: published rule, launches counted by hand, kernels against float64, offline assembly."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rcatools.errors import InputError
from rcatools.workload.vime import product as pr
from rcatools.workload.vime.offline import describe

ROOT = Path(__file__).resolve().parents[1]
SHAPES = {shape.name: shape for shape in pr.QWEN3_8B_TP4}
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


@pytest.mark.parametrize(
    ("shape", "rows", "chosen"),
    [
        ("qkv", 1, "default"),
        ("qkv", 2, "wide"),
        ("qkv", 64, "wide"),
        ("o_proj", 16, "default"),
        ("gate_up", 1, "wide"),
        ("gate_up", 64, "wide"),
        ("down", 8, "default"),
        ("lm_head", 1, "lm_head"),
        ("lm_head", 64, "lm_head"),
        ("lm_head", 65, "small_m"),
        ("qkv", 1024, "small_m"),
        ("qkv", 1025, "large_m"),
    ],
)
def test_the_published_rule(shape: str, rows: int, chosen: str) -> None:
    assert pr.select_config(rows, SHAPES[shape]).name == chosen


@pytest.mark.parametrize(
    ("shape", "config", "programs"),
    [
        ("qkv", pr.DEFAULT, 192),
        ("qkv", pr.WIDE, 96),
        ("gate_up", pr.DEFAULT, 768),
        ("gate_up", pr.WIDE, 384),
        ("lm_head", pr.DEFAULT, 4748),
        ("lm_head", pr.LM_HEAD, 1188),
    ],
)
def test_specialised_configurations_launch_fewer_programs(
    shape: str, config: pr.ProductConfig, programs: int
) -> None:
    assert pr.describe_launch(16, SHAPES[shape], config, split=True).programs == programs


def test_launch_bytes_by_hand() -> None:
    launch = pr.describe_launch(17, pr.ProductShape("toy", 2048, 96), pr.DEFAULT, split=True)
    assert (launch.kernels, launch.chunks, launch.programs) == (2, 2, 2 * 3 * 2)
    assert launch.weight_bytes == 2 * (2 * 2048 * 96)  # two row tiles read the weight twice
    assert launch.x_bytes == 3 * (2 * 17 * 2048)  # three column tiles read x three times
    assert launch.partial_bytes == 2 * (4 * 2 * 17 * 96)  # written, then read
    whole = pr.describe_launch(17, pr.ProductShape("toy", 2048, 96), pr.DEFAULT, split=False)
    assert (whole.kernels, whole.programs, whole.partial_bytes) == (1, 6, 0)


@pytest.mark.torch
def test_operands_that_break_the_contract_are_refused() -> None:
    torch = pytest.importorskip("torch")
    good = torch.zeros(4, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="bf16"):
        pr.check_operands(good.float(), good)
    with pytest.raises(ValueError, match="rows, depth"):
        pr.check_operands(good, torch.zeros(4, 32, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="contiguous"):
        pr.check_operands(good, torch.zeros(64, 4, dtype=torch.bfloat16).t())


def test_assembly_is_read_for_what_it_states() -> None:
    text = """
        v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]
        v_mfma_f32_16x16x16_bf16 a[0:3], v[4:5], v[6:7], a[0:3]
        ; v_mfma in a comment
        .agpr_count:     4
        .vgpr_count:     48
        .vgpr_spill_count: 0
    """
    found = describe("gfx942", "chunk_products", "default", text, 6144)
    assert found.matrix_instructions == {"v_mfma_f32_16x16x16_bf16": 2}
    assert (found.vgprs, found.agprs, found.spills) == (48, 4, 0)
    assert describe("sm_90", "chunk_products", "default", "ret;", 0).vgprs is None


def run_with_triton(code: str, **env: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@needs_triton
def test_amd_assembly_multiplies_with_mfma_and_keeps_its_scratch_small(tmp_path: Path) -> None:
    code = """
import json
from rcatools.workload.vime.offline import compile_published
print(json.dumps(compile_published()))
"""
    records = run_with_triton(code, TRITON_CACHE_DIR=str(tmp_path))
    assert len(records) == 2 * 2 * 5
    for record in records:
        (name,) = record["matrix_instructions"]
        k = {"gfx942": 16, "gfx950": 32}[record["target"]]
        assert name == f"v_mfma_f32_16x16x{k}_bf16"
        assert record["shared_bytes"] <= 65536
        if record["config"] in {"default", "wide", "lm_head"}:
            assert record["spills"] == 0


@needs_triton
def test_kernels_in_the_interpreter_against_float64() -> None:
    """The interpreter has no bf16 arithmetic, so the kernels run on fp32 here; masks and order are the same."""
    code = """
import json, itertools, torch
from rcatools.workload.vime import product as pr
pr.check_operands = lambda x, w: None
torch.manual_seed(0)
report = []
for rows, depth, cols in [(1, 2112, 96), (17, 1032, 64), (5, 1024, 100)]:
    x, w = torch.randn(rows, depth), torch.randn(cols, depth)
    exact = x.double() @ w.double().t()
    for config, split in itertools.product((pr.DEFAULT, pr.WIDE), (True, False)):
        out = torch.full((rows, cols), float("nan"))
        pr.product(x, w, config, split=split, out=out)
        report.append(float((out.double() - exact).abs().max() / exact.abs().max()))
print(json.dumps(report))
"""
    try:
        errors = run_with_triton(code, TRITON_INTERPRET="1")
    except AssertionError as error:
        if "0-dimensional" in str(error):
            pytest.skip("this Triton's interpreter does not work with this numpy")
        raise
    assert len(errors) == 12
    assert max(errors) < 1e-5


def test_unknown_targets_are_refused() -> None:
    from rcatools.workload.vime.offline import compile_product

    with pytest.raises(InputError, match="gfx941"):
        compile_product("gfx941", "chunk_products", pr.DEFAULT)
    with pytest.raises(InputError, match="product_of_sums"):
        compile_product("gfx942", "product_of_sums", pr.DEFAULT)
