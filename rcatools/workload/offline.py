"""Compiles the Triton kernels for a card that is not there.

    python -m rcatools.workload.offline [kernel] [target]

prints the assembly text of one kernel, or without arguments the names of all kernels and targets.
"""

from __future__ import annotations

import sys
from typing import Any

from rcatools.errors import UnknownNameError

TARGETS = {"gfx942": ("hip", "gfx942", 64), "gfx950": ("hip", "gfx950", 64), "sm_90": ("cuda", 90, 32)}


def kernels() -> dict[str, tuple[Any, dict[str, str], dict[str, int]]]:
    """Every kernel that can be compiled offline: the function, the types of its arguments, its constants."""
    from rcatools.workload import placement_kernels, triton_kernels

    return {**triton_kernels.OFFLINE, **placement_kernels.OFFLINE}


def compile_kernel(name: str, target: str, *, num_warps: int = 4) -> dict[str, Any]:
    """Compile one kernel of the decode step offline.

    Args:
        name: a name in ``kernels()``.
        target: a name in TARGETS.

    Returns:
        The compiler's outputs by stage; "amdgcn" or "ptx" is the assembly text.

    Raises:
        UnknownNameError: the kernel or the target is not known.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    known = kernels()
    if name not in known:
        raise UnknownNameError("kernel", name, known)
    if target not in TARGETS:
        raise UnknownNameError("target", target, TARGETS)
    kernel, types, constants = known[name]
    signature = types | dict.fromkeys(constants, "constexpr")
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, kind in enumerate(signature.values())
        if kind.startswith("*") or kind in {"i32", "i64"}
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget(*TARGETS[target]), options={"num_warps": num_warps})
    return dict(compiled.asm)


def main(words: list[str]) -> int:
    """Print one kernel's assembly text, or what there is to compile."""
    if len(words) != 2:
        print("kernels:", *kernels())
        print("targets:", *TARGETS)
        return 0 if not words else 2
    asm = compile_kernel(*words)
    print(asm.get("amdgcn", asm.get("ptx")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
