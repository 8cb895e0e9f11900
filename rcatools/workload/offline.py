"""Compiles the Triton kernels for a card that is not there."""

from __future__ import annotations

from typing import Any

from rcatools.errors import UnknownNameError

TARGETS = {"gfx942": ("hip", "gfx942", 64), "gfx950": ("hip", "gfx950", 64), "sm_90": ("cuda", 90, 32)}


def compile_kernel(name: str, target: str, *, num_warps: int = 4) -> dict[str, Any]:
    """Compile one kernel of the decode step offline.

    Args:
        name: a name in ``triton_kernels.OFFLINE``.
        target: a name in TARGETS.

    Returns:
        The compiler's outputs by stage; "amdgcn" or "ptx" is the assembly text.

    Raises:
        UnknownNameError: the kernel or the target is not known.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from rcatools.workload.triton_kernels import OFFLINE

    if name not in OFFLINE:
        raise UnknownNameError("kernel", name, OFFLINE)
    if target not in TARGETS:
        raise UnknownNameError("target", target, TARGETS)
    kernel, types, constants = OFFLINE[name]
    signature = types | dict.fromkeys(constants, "constexpr")
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, kind in enumerate(signature.values())
        if kind.startswith("*") or kind in {"i32", "i64"}
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget(*TARGETS[target]), options={"num_warps": num_warps})
    return dict(compiled.asm)
