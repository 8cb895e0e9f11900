"""The size of a decode step."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from rcatools.errors import InputError, UnknownNameError

TRITON_OPS = ("rms_norm", "cache_write", "kv_gather", "add_allreduce", "expert_gemm")
CACHES = ("hot", "cold")
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class DecodeConfig:
    """Shape of one decode step of one rank, as tensor-parallel serving runs it.

    Attributes:
        layers: transformer layers.
        hidden: width of the residual stream.
        q_heads, kv_heads, head_dim: attention of this rank.
        batch: sequences decoded together.
        context: tokens each sequence attends to.
        page: tokens in one KV page.
        split: tokens one program of the paged gather reads.
        expert_every: a layer in this many has an expert product.
        expert_tokens, expert_out: rows and columns of the expert product (its depth is hidden).
        dtype: "bfloat16", "float16" or "float32".
        kv_fraction: share of device memory that the process may use, KV cache included (GPU).
        kv_limit: upper limit of the KV cache in bytes; on the CPU also what is allocated.
        triton: operations that run as Triton kernels where Triton is installed ("none" for no one); the others
            are torch's own.
        steps_per_sample: steps between two readings of the clock.
        samples: readings per run.
        cache: what the isolated timing of a kernel finds: "hot" runs it over all layers in turn, back to back
            (see ``declared.cache_state`` for what is left in the cache then); "cold" empties the cache before
            each launch by writing twice its size.
    """

    layers: int = 40
    hidden: int = 4096
    q_heads: int = 8
    kv_heads: int = 2
    head_dim: int = 128
    batch: int = 1
    context: int = 16384
    page: int = 16
    split: int = 128
    expert_every: int = 4
    expert_tokens: int = 512
    expert_out: int = 4096
    dtype: str = "bfloat16"
    kv_fraction: float = 0.5
    kv_limit: int = 96 * 2**30
    triton: str = "cache_write,kv_gather,expert_gemm"
    steps_per_sample: int = 4
    samples: int = 40
    cache: str = "hot"

    def __post_init__(self) -> None:
        """Refuse sizes that cannot be run; InputError names the field."""
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "dtype":
                if value not in DTYPE_BYTES:
                    raise UnknownNameError("dtype", str(value), DTYPE_BYTES)
            elif item.name == "cache":
                if value not in CACHES:
                    raise UnknownNameError("cache mode", str(value), CACHES)
            elif item.name == "triton":
                for name in self.triton_ops - set(TRITON_OPS):
                    raise UnknownNameError("Triton operation", name, TRITON_OPS)
            elif isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise InputError(f"workload parameter {item.name} must be a positive number, got {value!r}")
        if self.q_heads % self.kv_heads:
            raise InputError(f"q_heads ({self.q_heads}) must be a multiple of kv_heads ({self.kv_heads})")
        for name in ("context", "split"):
            if getattr(self, name) % self.page:
                raise InputError(f"{name} ({getattr(self, name)}) must be a multiple of page ({self.page})")
        if not self.kv_fraction < 1:
            raise InputError(f"kv_fraction must be below 1, got {self.kv_fraction}")

    @property
    def triton_ops(self) -> frozenset[str]:
        """Operations that run as Triton kernels."""
        return frozenset(filter(None, self.triton.split(","))) - {"none"}

    @property
    def dtype_bytes(self) -> int:
        """Bytes of one element."""
        return DTYPE_BYTES[self.dtype]

    @property
    def qkv_out(self) -> int:
        """Columns of the fused QKV projection."""
        return (self.q_heads + 2 * self.kv_heads) * self.head_dim

    @property
    def page_bytes(self) -> int:
        """Bytes of one KV page of one layer (keys and values)."""
        return 2 * self.kv_heads * self.page * self.head_dim * self.dtype_bytes

    @property
    def pages_per_sequence(self) -> int:
        """Pages one sequence needs in one layer, with room for the longest planted read."""
        return -(-2 * self.context // self.page)

    @property
    def experts(self) -> int:
        """Number of layers with an expert product."""
        return len(range(self.expert_every - 1, self.layers, self.expert_every))

    def with_parameters(self, values: dict[str, Any]) -> DecodeConfig:
        """A copy with some fields replaced; text is converted to the field's type.

        Raises:
            UnknownNameError: a name is not a field.
            InputError: a value does not fit its field.
        """
        names = [item.name for item in fields(self)]
        changed: dict[str, Any] = {}
        for name, value in values.items():
            if name not in names:
                raise UnknownNameError("workload parameter", name, names)
            kind = type(getattr(self, name))
            try:
                changed[name] = kind(value)
            except (TypeError, ValueError):
                raise InputError(
                    f"workload parameter {name} must be {kind.__name__}, got {value!r}"
                ) from None
        return replace(self, **changed)

    def as_dict(self) -> dict[str, Any]:
        """All fields, for the manifest."""
        return asdict(self)


GPU = DecodeConfig()
CPU = DecodeConfig(
    layers=8,
    hidden=512,
    q_heads=4,
    kv_heads=2,
    head_dim=64,
    context=512,
    split=128,
    expert_tokens=64,
    expert_out=512,
    dtype="float32",
    kv_limit=64 * 2**20,
    steps_per_sample=2,
    samples=30,
)


def preset(backend: str) -> DecodeConfig:
    """The default size for a backend ("cuda", "rocm" or "cpu")."""
    return CPU if backend == "cpu" else GPU
