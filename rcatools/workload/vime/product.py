"""The decode product: shapes, tile configurations, the rule that picks one, and the launches.

``product`` computes ``x @ w.T`` for a few rows. Its number contract is in ``product_kernels``; tile,
warps, stages, schedule and row count are meant to leave every bit alone, which callers test.
Constants come from RL-Kernel #403 (``rl_engine/kernels/ops/triton/matmul/mfma_gemm.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BLOCK_K = 64
CHUNK_K = 1024
SPLIT_ROWS = 64
REDUCE_BLOCK = 1024
MAX_ELEMENTS = 2**31


@dataclass(frozen=True)
class ProductConfig:
    """One tile shape and how it is compiled; ``waves_per_eu`` reaches AMD compilers only."""

    name: str
    block_m: int
    block_n: int
    warps: int
    stages: int = 2
    group_m: int = 1
    waves_per_eu: int = 0


@dataclass(frozen=True)
class ProductShape:
    """One product of a decode step: ``depth`` numbers per row in, ``cols`` numbers per row out."""

    name: str
    depth: int
    cols: int

    @property
    def weight_bytes(self) -> int:
        """Bytes of the bf16 weight, read once by every product."""
        return 2 * self.depth * self.cols


DEFAULT = ProductConfig("default", 16, 32, 2)
WIDE = ProductConfig("wide", 32, 64, 4)
LM_HEAD = ProductConfig("lm_head", 16, 128, 4, waves_per_eu=2)
SMALL_M = ProductConfig("small_m", 64, 128, 4, group_m=8, waves_per_eu=2)
LARGE_M = ProductConfig("large_m", 128, 128, 4, group_m=8, waves_per_eu=2)
PUBLISHED = (DEFAULT, WIDE, LM_HEAD, SMALL_M, LARGE_M)

QWEN3_8B_TP4 = (
    ProductShape("qkv", 4096, 1536),
    ProductShape("o_proj", 1024, 4096),
    ProductShape("gate_up", 4096, 6144),
    ProductShape("down", 3072, 4096),
    ProductShape("lm_head", 4096, 37984),
)


def select_config(rows: int, shape: ProductShape) -> ProductConfig:
    """The configuration the published rule picks for ``rows`` rows."""
    if rows > 1024:
        return LARGE_M
    if rows > SPLIT_ROWS:
        return SMALL_M
    if shape.depth == 4096 and (shape.cols == 6144 or (shape.cols == 1536 and rows > 1)):
        return WIDE
    if shape.depth == 4096 and shape.cols >= 32768:
        return LM_HEAD
    return DEFAULT


def chunk_count(depth: int) -> int:
    """Chunks of ``CHUNK_K`` in a depth."""
    return -(-depth // CHUNK_K)


def splits(rows: int, depth: int) -> bool:
    """Whether the published schedule gives each chunk its own program."""
    return rows <= SPLIT_ROWS and chunk_count(depth) > 1


def tile_count(rows: int, cols: int, config: ProductConfig) -> int:
    """Output tiles, the programs of one chunk."""
    return -(-rows // config.block_m) * -(-cols // config.block_n)


@dataclass(frozen=True)
class Launch:
    """What one product launches and moves. Byte counts are what the programs ask for, not DRAM traffic."""

    kernels: int
    programs: int
    chunks: int
    weight_bytes: int
    x_bytes: int
    partial_bytes: int
    out_bytes: int


def describe_launch(rows: int, shape: ProductShape, config: ProductConfig, split: bool) -> Launch:
    """Count programs and requested bytes of one product (masked rows and columns are not loaded)."""
    tiles = tile_count(rows, shape.cols, config)
    chunks = chunk_count(shape.depth)
    row_tiles = -(-rows // config.block_m)
    col_tiles = -(-shape.cols // config.block_n)
    return Launch(
        kernels=2 if split else 1,
        programs=tiles * chunks if split else tiles,
        chunks=chunks,
        weight_bytes=row_tiles * shape.weight_bytes,
        x_bytes=col_tiles * 2 * rows * shape.depth,
        partial_bytes=2 * 4 * chunks * rows * shape.cols if split else 0,
        out_bytes=2 * rows * shape.cols,
    )


def compile_options(config: ProductConfig, backend: str) -> dict[str, int]:
    """Options for the compiler of ``backend`` ("cuda" or "hip")."""
    options = {"num_warps": config.warps, "num_stages": config.stages}
    if backend == "hip":
        options |= {"matrix_instr_nonkdim": 16, "kpack": 2, "waves_per_eu": config.waves_per_eu}
    return options


def constants(depth: int, config: ProductConfig) -> dict[str, int | bool]:
    """Compile-time constants of ``chunk_products`` and ``whole_product``."""
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": BLOCK_K,
        "CHUNK_K": CHUNK_K,
        "GROUP_M": config.group_m,
        "EVEN_K": depth % BLOCK_K == 0,
    }


def product(
    x: Any,
    w: Any,
    config: ProductConfig,
    *,
    split: bool | None = None,
    partial: Any = None,
    out: Any = None,
    backend: str = "cuda",
) -> Any:
    """``x[rows, depth] @ w[cols, depth].T`` as bf16 ``[rows, cols]``.

    Args:
        split: give each chunk its own program (None: the published rule).
        partial: fp32 ``[chunks, rows, cols]`` scratch, made here when None.
        out: bf16 result buffer, made here when None.

    Raises:
        ValueError: the operands are not contiguous bf16 matrices of one depth, or too large for
            32-bit offsets.
    """
    import torch

    rows, depth = x.shape
    cols = w.shape[0]
    check_operands(x, w)
    split = splits(rows, depth) if split is None else split
    if out is None:
        out = torch.empty((rows, cols), dtype=torch.bfloat16, device=x.device)
    if not split:
        whole(x, w, out, config, backend=backend)
        return out
    if partial is None:
        partial = torch.empty((chunk_count(depth), rows, cols), dtype=torch.float32, device=x.device)
    partial_only(x, w, partial, config, backend=backend)
    reduce_only(partial, out)
    return out


def check_operands(x: Any, w: Any) -> None:
    """Raise ValueError unless ``x`` and ``w`` are contiguous bf16 matrices of one depth."""
    import torch

    if x.dtype != torch.bfloat16 or w.dtype != torch.bfloat16:
        raise ValueError(f"the product takes bf16; got {x.dtype} and {w.dtype}")
    if x.dim() != 2 or w.dim() != 2 or x.shape[1] != w.shape[1]:
        raise ValueError(f"shapes must be [rows, depth] and [cols, depth]; got {x.shape} and {w.shape}")
    if not (x.is_contiguous() and w.is_contiguous()):
        raise ValueError("both operands must be contiguous")
    chunks = chunk_count(x.shape[1])
    if max(x.numel(), w.numel(), chunks * x.shape[0] * w.shape[0]) >= MAX_ELEMENTS:
        raise ValueError(f"an operand or the scratch has {MAX_ELEMENTS} elements or more")


def whole(x: Any, w: Any, out: Any, config: ProductConfig, *, backend: str = "cuda") -> Any:
    """Launch the one-kernel schedule; returns Triton's compiled kernel."""
    from rcatools.workload.vime import product_kernels as kernels

    rows, depth = x.shape
    grid = (tile_count(rows, w.shape[0], config),)
    return kernels.whole_product[grid](
        x, w, out, rows, w.shape[0], depth, **constants(depth, config), **compile_options(config, backend)
    )


def partial_only(x: Any, w: Any, partial: Any, config: ProductConfig, *, backend: str = "cuda") -> Any:
    """Launch the chunk products of the split schedule; returns Triton's compiled kernel."""
    from rcatools.workload.vime import product_kernels as kernels

    rows, depth = x.shape
    grid = (tile_count(rows, w.shape[0], config), chunk_count(depth))
    return kernels.chunk_products[grid](
        x, w, partial, rows, w.shape[0], depth, **constants(depth, config), **compile_options(config, backend)
    )


def reduce_only(partial: Any, out: Any) -> Any:
    """Launch the ordered sum of the split schedule; returns Triton's compiled kernel."""
    from rcatools.workload.vime import product_kernels as kernels

    count = out.numel()
    grid = (-(-count // REDUCE_BLOCK),)
    return kernels.add_chunks[grid](
        partial, out, count, CHUNKS=partial.shape[0], BLOCK=REDUCE_BLOCK, num_warps=4
    )
