"""Bytes and floating-point operations of a launch, from the operation and its recorded shapes.

Every operand is counted as moved once (compulsory traffic): no cache re-reads, no write-allocate. The models are
the usual ones: 2 m n k for a matrix product, 4 b h s_q s_k d for attention without a mask.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

Shape = tuple[int, ...]

_SIZES = {
    "c10::BFloat16": 2, "c10::Half": 2, "float": 4, "double": 8, "int": 4, "long": 8, "long int": 8, "short": 2,
    "signed char": 1, "unsigned char": 1, "char": 1, "bool": 1, "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1, "c10::Float8_e5m2fnuz": 1, "c10::complex<float>": 8, "c10::complex<double>": 16,
}  # fmt: skip
_TYPES = {
    "c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32", "double": "fp64", "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8", "c10::Float8_e4m3fnuz": "fp8", "c10::Float8_e5m2fnuz": "fp8",
}  # fmt: skip


@dataclass(frozen=True)
class Work:
    """What one launch must move and compute; ``dtype`` names the compute ceiling it meets."""

    bytes: float
    flops: float
    dtype: str | None


def work_of(op: str, shapes: str, dtypes: str, role: str, name: str = "") -> Work | None:
    """The work of a kernel launched by an operation; None when no model fits.

    Args:
        op: operation name such as "aten::addmm".
        shapes: JSON text of the input shapes, as in ``Trace.kernels``.
        dtypes: JSON text of the input types.
        role: role of the kernel: helper kernels of an operation (split-K sums, sets) get no work.
        name: kernel name, to tell those helpers.
    """
    lowered = name.lower()
    if role == "matmul" and ("splitk" in lowered or "reduce" in lowered):
        return None
    return _work(op, shapes, dtypes, role)


@cache
def _work(op: str, shapes: str, dtypes: str, role: str) -> Work | None:
    model = _MODELS.get(op.removeprefix("aten::").removesuffix("_"))
    if model is None or model[0] != role:
        return None
    try:
        entries, kinds = json.loads(shapes), json.loads(dtypes)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entries, list) or not isinstance(kinds, list):
        return None
    sizes, types = [_shape(entry) for entry in entries], [str(kind) for kind in kinds]
    tensors = [(size, kind) for size, kind in zip(sizes, types, strict=False) if kind in _SIZES]
    if not tensors:
        return None
    try:
        return model[1]([size for size, _ in tensors], [kind for _, kind in tensors])
    except (IndexError, ValueError, ZeroDivisionError):
        return None


def _shape(entry: object) -> Shape:
    if not isinstance(entry, list):
        return ()
    return tuple(int(size) for size in entry if isinstance(size, int))


def _numel(shape: Shape) -> int:
    return math.prod(shape)


def _moved(shapes: Sequence[Shape], types: Sequence[str]) -> float:
    return float(sum(_numel(shape) * _SIZES[kind] for shape, kind in zip(shapes, types, strict=True)))


def _product(skip: int) -> Callable[[list[Shape], list[str]], Work]:
    """Model of (batched) a @ b whose factors stand after ``skip`` other tensors."""

    def model(shapes: list[Shape], types: list[str]) -> Work:
        a, b = shapes[skip], shapes[skip + 1]
        if len(a) != len(b) or len(a) < 2 or a[-1] != b[-2]:
            raise ValueError("not a matrix product")
        out = _numel(a[:-1]) * b[-1]
        moved = _moved(shapes[: skip + 2], types[: skip + 2]) + out * _SIZES[types[skip]]
        return Work(moved, 2.0 * out * a[-1], _TYPES.get(types[skip]))

    return model


def _linear(shapes: list[Shape], types: list[str]) -> Work:
    x, weight = shapes[0], shapes[1]
    if len(weight) != 2 or x[-1] != weight[1]:
        raise ValueError("not a linear layer")
    out = _numel(x[:-1]) * weight[0]
    return Work(_moved(shapes, types) + out * _SIZES[types[0]], 2.0 * out * x[-1], _TYPES.get(types[0]))


def _attention(heads_first: bool) -> Callable[[list[Shape], list[str]], Work]:
    def model(shapes: list[Shape], types: list[str]) -> Work:
        q, k, v = shapes[:3]
        if len(q) != 4 or len(k) != 4 or len(v) != 4:
            raise ValueError("not attention over four dimensions")
        batch, d = q[0], q[3]
        heads, s_q, s_k = (q[1], q[2], k[2]) if heads_first else (q[2], q[1], k[1])
        out = _numel(q[:-1]) * v[-1]
        moved = _moved(shapes[:3], types[:3]) + out * _SIZES[types[0]]
        return Work(moved, 2.0 * batch * heads * s_q * s_k * (d + v[-1]), _TYPES.get(types[0]))

    return model


def _pointwise(shapes: list[Shape], types: list[str]) -> Work:
    """Each input once, and an output as large as the largest input."""
    largest = max(range(len(shapes)), key=lambda index: _numel(shapes[index]))
    out = _numel(shapes[largest])
    return Work(_moved(shapes, types) + out * _SIZES[types[largest]], float(out), _TYPES.get(types[0]))


def _copy(shapes: list[Shape], types: list[str]) -> Work:
    """Source and destination once; ``copy_`` records both."""
    pair = (
        shapes[:2] if len(shapes) > 1 and _numel(shapes[1]) == _numel(shapes[0]) else [shapes[0], shapes[0]]
    )
    kinds = types[:2] if len(types) > 1 and pair[1] is not pair[0] else [types[0], types[0]]
    return Work(_moved(pair, kinds), 0.0, _TYPES.get(types[0]))


def _row_wise(shapes: list[Shape], types: list[str]) -> Work:
    """Norms and softmax: the first input in and out, parameters once."""
    size = _numel(shapes[0])
    return Work(_moved(shapes, types) + size * _SIZES[types[0]], 5.0 * size, _TYPES.get(types[0]))


def _reduction(shapes: list[Shape], types: list[str]) -> Work:
    size = _numel(shapes[0])
    return Work(float(size * _SIZES[types[0]]), float(size), _TYPES.get(types[0]))


_Model = tuple[str, Callable[[list[Shape], list[str]], Work]]
_MODELS: dict[str, _Model] = {
    "mm": ("matmul", _product(0)),
    "bmm": ("matmul", _product(0)),
    "_scaled_mm": ("matmul", _product(0)),
    "addmm": ("matmul", _product(1)),
    "baddbmm": ("matmul", _product(1)),
    "linear": ("matmul", _linear),
    "_flash_attention_forward": ("attention", _attention(False)),
    "_efficient_attention_forward": ("attention", _attention(False)),
    "_scaled_dot_product_flash_attention": ("attention", _attention(True)),
    "_scaled_dot_product_efficient_attention": ("attention", _attention(True)),
    "_scaled_dot_product_cudnn_attention": ("attention", _attention(True)),
    "copy": ("copy", _copy),
    "clone": ("copy", _copy),
    "contiguous": ("copy", _copy),
    "native_layer_norm": ("norm", _row_wise),
    "_fused_rms_norm": ("norm", _row_wise),
    "_softmax": ("softmax", _row_wise),
    "_log_softmax": ("softmax", _row_wise),
    "sum": ("reduction", _reduction),
    "mean": ("reduction", _reduction),
    "amax": ("reduction", _reduction),
    **dict.fromkeys(("add", "sub", "mul", "div", "silu", "gelu", "relu", "sigmoid", "tanh", "exp", "pow", "rsqrt", "sqrt", "neg", "sin", "cos", "addcmul", "where", "clamp", "masked_fill"), ("elementwise", _pointwise)),
}  # fmt: skip
