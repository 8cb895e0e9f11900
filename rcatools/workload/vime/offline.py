"""Compile the decode product for a card that is not here, and read what the compiler chose.

    python -m rcatools.workload.vime.offline --out offline.csv

Nothing is run: the assembly says which matrix instruction a configuration uses, how many registers it
takes and whether it spills. Needs Triton, no device.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rcatools.errors import InputError, UnavailableError
from rcatools.workload.offline import TARGETS
from rcatools.workload.vime.product import (
    PUBLISHED,
    ProductConfig,
    compile_options,
    constants,
)

MATRIX_INSTRUCTION = {
    "hip": re.compile(r"^\s*(v_mfma_\w+)", re.MULTILINE),
    "cuda": re.compile(r"^\s*((?:mma\.sync|wgmma\.mma_async)[\w.]*)", re.MULTILINE),
}


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel compiled for one target; counts are of the assembly text, not of executions.

    ``vgprs``, ``agprs`` and ``spills`` are null where the assembly does not state them (PTX).
    """

    target: str
    kernel: str
    config: str
    matrix_instructions: dict[str, int]
    shared_bytes: int
    vgprs: int | None
    agprs: int | None
    spills: int | None

    def to_dict(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return asdict(self)


def compile_product(
    target: str, kernel: str, config: ProductConfig, depth: int = 4096
) -> tuple[CompiledKernel, str]:
    """Compile "chunk_products" or "whole_product" for ``target``; returns the record and the assembly.

    Raises:
        InputError: ``target`` or ``kernel`` is not known.
        UnavailableError: Triton is not installed.
    """
    if target not in TARGETS:
        raise InputError(f"unknown compile target {target!r}: known are {', '.join(TARGETS)}")
    if kernel not in {"chunk_products", "whole_product"}:
        raise InputError(f"unknown kernel {kernel!r}: known are chunk_products, whole_product")
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as error:
        raise UnavailableError("compiling needs the package triton; run 'pip install triton'") from error
    from rcatools.workload.vime import product_kernels

    backend, arch, warp = TARGETS[target]
    result = "fp32" if kernel == "chunk_products" else "bf16"
    signature = {
        "x": "*bf16",
        "w": "*bf16",
        ("partial" if kernel == "chunk_products" else "out"): f"*{result}",
        "rows": "i32",
        "cols": "i32",
        "depth": "i32",
    }
    chosen = constants(depth, config)
    signature |= dict.fromkeys(chosen, "constexpr")
    names = list(signature)
    aligned = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name in names
        if name not in chosen and name != "rows"
    }
    source = ASTSource(
        fn=getattr(product_kernels, kernel), signature=signature, constexprs=chosen, attrs=aligned
    )
    built = triton.compile(
        source, target=GPUTarget(backend, arch, warp), options=compile_options(config, backend)
    )
    assembly = str(built.asm["amdgcn" if backend == "hip" else "ptx"])
    return describe(target, kernel, config.name, assembly, int(built.metadata.shared)), assembly


def describe(target: str, kernel: str, config: str, assembly: str, shared_bytes: int) -> CompiledKernel:
    """Read matrix instructions, registers and spills from assembly text."""
    backend = TARGETS[target][0]
    found = Counter(MATRIX_INSTRUCTION[backend].findall(assembly))
    return CompiledKernel(
        target=target,
        kernel=kernel,
        config=config,
        matrix_instructions=dict(sorted(found.items())),
        shared_bytes=shared_bytes,
        vgprs=_stated(assembly, r"\.vgpr_count:\s*(\d+)"),
        agprs=_stated(assembly, r"\.agpr_count:\s*(\d+)"),
        spills=_stated(assembly, r"\.vgpr_spill_count:\s*(\d+)"),
    )


def _stated(assembly: str, pattern: str) -> int | None:
    match = re.search(pattern, assembly)
    return int(match.group(1)) if match else None


def compile_published(targets: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Every published configuration and both kernels for ``targets`` (default: the AMD ones)."""
    chosen = list(targets) if targets else [name for name, spec in TARGETS.items() if spec[0] == "hip"]
    return [
        compile_product(target, kernel, config)[0].to_dict()
        for target in chosen
        for kernel in ("chunk_products", "whole_product")
        for config in PUBLISHED
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Write what the compiler chose for the AMD targets as CSV."""
    import triton

    parser = argparse.ArgumentParser(prog="python -m rcatools.workload.vime.offline", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    with args.out.open("w", newline="", encoding="utf-8") as stream:
        names = ["target", "kernel", "config", "matrix_instruction", "count", "shared_bytes"]
        names += ["vgprs", "agprs", "spills", "triton"]
        writer = csv.DictWriter(stream, names, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for record in compile_published():
            for instruction, count in record["matrix_instructions"].items():
                row = {"matrix_instruction": instruction, "count": count, "triton": triton.__version__}
                writer.writerow(record | row)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
