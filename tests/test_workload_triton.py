"""The Triton kernels without a GPU: compiled for gfx942 and gfx950, and run in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rcatools.errors import InputError, UnknownNameError
from rcatools.workload import placement
from rcatools.workload.offline import compile_kernel

ROOT = Path(__file__).resolve().parents[1]
CDNA = ("gfx942", "gfx950")
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed: pip install triton"
)


def assembly(kernel: str, target: str) -> str:
    return str(compile_kernel(kernel, target)["amdgcn"])


@needs_triton
@pytest.mark.parametrize("target", CDNA)
@pytest.mark.parametrize("kernel", ["kv_gather", "reduce", "window_read", "pair_read"])
def test_bandwidth_bound_kernels_load_sixteen_bytes_at_once(kernel: str, target: str) -> None:
    text = assembly(kernel, target)
    assert target in text
    assert re.search(r"\b(global|buffer)_load_dwordx4\b", text)
    narrow = re.findall(r"\b(?:global|buffer)_load_(?:ushort|ubyte|short_d16)\b", text)
    assert not narrow


@needs_triton
@pytest.mark.parametrize("target", CDNA)
@pytest.mark.parametrize("kernel", ["expert_gemm", "kv_gather"])
def test_matrix_kernels_use_the_matrix_cores(kernel: str, target: str) -> None:
    assert re.search(r"\bv_mfma_f32_\w*bf16", assembly(kernel, target))


@needs_triton
@pytest.mark.parametrize("target", CDNA)
@pytest.mark.parametrize("kernel", ["rms_norm", "cache_write", "kv_merge", "add", "chase"])
def test_the_other_kernels_compile_without_spilling(kernel: str, target: str) -> None:
    text = assembly(kernel, target)
    assert re.search(r"s_endpgm", text)
    assert not re.search(r"scratch_(load|store)", text)


@needs_triton
def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'kv_gather'"):
        compile_kernel("kv_gathr", "gfx942")
    with pytest.raises(UnknownNameError, match="did you mean 'gfx942'"):
        compile_kernel("kv_gather", "gfx941")


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    """Errors of the kernels in Triton's interpreter, from a process of its own."""
    for name in ("triton", "torch"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "interpreted_kernels.py")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


@pytest.mark.torch
@pytest.mark.parametrize("which", ["plain", "planted"])
def test_a_step_of_triton_kernels_agrees_with_float64(which: str, interpreted: dict[str, Any]) -> None:
    step, expert, written = interpreted[which]
    assert step < 1e-5
    assert expert < 1e-5
    assert written < 1e-4


@pytest.mark.torch
def test_probe_kernels_compute_what_they_read(interpreted: dict[str, Any]) -> None:
    assert interpreted["chase"] is True


@needs_triton
def test_what_the_compiler_hashes_is_computed_once_before_a_fork() -> None:
    from triton.runtime import cache

    from rcatools.workload import triton_kernels

    triton_kernels.warm()
    misses = cache.triton_key.cache_info().misses
    cache.triton_key()
    assert cache.triton_key.cache_info().misses == misses == 1
    assert all(kernel.hash is not None for kernel, _, _ in triton_kernels.OFFLINE.values())


@pytest.mark.torch
def test_probe_kernels_sum_what_they_read(interpreted: dict[str, Any]) -> None:
    assert max(interpreted["sums"]) < 1e-3


@pytest.mark.parametrize("elements", [1, 2, 3, 64, 1000])
def test_the_chain_is_one_cycle_through_everything(elements: int) -> None:
    successors = placement.chain(elements, 1)
    seen, at = set(), 0
    for _ in range(elements):
        seen.add(at)
        at = int(successors[at])
    assert at == 0
    assert seen == set(range(elements))


def test_windows_cover_the_buffer_without_overlap() -> None:
    starts = placement.window_starts(10 * 2**30 + 5, 2**30)
    assert starts.tolist() == [i * 2**30 for i in range(10)]
    with pytest.raises(InputError, match="does not fit"):
        placement.window_starts(100, 101)


@pytest.mark.parametrize("size", [2**20, 256 * 2**20, 2**30, 3 * 2**29])
def test_two_streams_never_overlap_and_stay_in_the_buffer(size: int) -> None:
    total = 5 * 2**30
    found = placement.distances(size, total)
    assert all(distance >= size and distance + size <= total for distance in found)
    whole = found[0]
    assert whole % 2**30 == 0
    assert [distance - whole for distance in found] == list(placement.OFFSETS)
    assert placement.distances(size, size) == []


def test_position_effect_tells_places_from_noise() -> None:
    rng = np.random.default_rng(0)
    place = rng.normal(4000, 40, 125)
    noisy = [place + rng.normal(0, 4, 125) for _ in range(2)]
    assert placement.position_effect(noisy)["correlation"] > 0.9
    steady = [place + rng.normal(0, 40, 125) for _ in range(8)]  # as much noise as place, over eight passes
    assert placement.position_effect(steady)["correlation"] > 0.6
    assert abs(placement.position_effect(rng.normal(4000, 40, (2, 125)))["correlation"]) < 0.3
    assert placement.position_effect([[1.0] * 5] * 2) == {"spread": 0.0, "correlation": None}
