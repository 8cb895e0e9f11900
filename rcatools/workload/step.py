"""One decode step: weights, paged KV cache and the launches, on a GPU or on the CPU."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from rcatools.workload.config import DecodeConfig
from rcatools.workload.declared import read_tokens

EPS = 1e-6


@dataclass(frozen=True)
class Variation:
    """What a planted or probing arm changes in the step.

    Attributes:
        empty_kernels: kernels without work added per layer.
        kv_read: factor on the tokens the gather reads; the additional ones get no weight.
    """

    empty_kernels: int = 0
    kv_read: float = 1.0


class DecodeStep:
    """The weights and the launches of one rank's decode step.

    Every tensor is created on the stream that is current when it is made. ``attach`` gives it a KV
    cache; ``run`` launches one step on the current stream. Values are random, never zero.
    """

    def __init__(
        self, torch: Any, device: str, config: DecodeConfig, variation: Variation, *, seed: int = 0
    ) -> None:
        self.torch = torch
        self.device = device
        self.config = config
        self.variation = variation
        self.dtype = getattr(torch, config.dtype)
        self.kernels: Any = _triton_kernels() if device != "cpu" else None
        self.world = _world_size(torch)
        generator = torch.Generator(device=device).manual_seed(seed)
        self._make_weights(generator)
        self._make_buffers(generator)
        self.kv: Any = None
        self.table: Any = None

    def _make_weights(self, generator: Any) -> None:
        c = self.config
        width = c.q_heads * c.head_dim
        self.norm_weight = self._random(generator, c.layers, c.hidden, scale=0.1) + 1
        self.qkv_weight = self._random(generator, c.layers, c.qkv_out, c.hidden, scale=c.hidden**-0.5)
        self.qkv_bias = self._random(generator, c.layers, c.qkv_out, scale=0.1)
        self.out_weight = self._random(generator, c.layers, c.hidden, width, scale=width**-0.5)
        self.expert_weight = self._random(
            generator, max(c.experts, 1), c.expert_out, c.hidden, scale=c.hidden**-0.5
        )

    def _make_buffers(self, generator: Any) -> None:
        torch, c = self.torch, self.config
        self.tokens = read_tokens(c, self.variation.kv_read)
        self.splits = -(-self.tokens // c.split)
        self.hidden_in = self._random(generator, c.batch, c.hidden)
        self.expert_in = self._random(generator, c.expert_tokens, c.hidden)
        empty = {"device": self.device, "dtype": self.dtype}
        self.normed = torch.empty(c.batch, c.hidden, **empty)
        self.attended = torch.empty(c.batch, c.q_heads * c.head_dim, **empty)
        self.expert_result = torch.empty(c.expert_tokens, c.expert_out, **empty)
        self.hidden_out = torch.empty(c.batch, c.hidden, **empty)
        rows = c.batch * c.q_heads * self.splits
        self.partial = torch.empty(rows, c.head_dim, device=self.device, dtype=torch.float32)
        self.stat = torch.empty(rows, 2, device=self.device, dtype=torch.float32)

    def _random(self, generator: Any, *shape: int, scale: float = 1.0) -> Any:
        values = self.torch.randn(*shape, generator=generator, device=self.device, dtype=self.dtype)
        return values.mul_(scale)

    def uses(self, operation: str) -> bool:
        """Whether an operation runs as a Triton kernel."""
        return self.kernels is not None and operation in self.config.triton_ops

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        tensors = (self.norm_weight, self.qkv_weight, self.qkv_bias, self.out_weight, self.expert_weight)
        return sum(int(t.numel()) * int(t.element_size()) for t in tensors)

    def pages_for(self, kv_bytes: int) -> int:
        """KV pages per layer that fit into a number of bytes."""
        return kv_bytes // (self.config.page_bytes * self.config.layers)

    @property
    def least_pages(self) -> int:
        """KV pages per layer without which the step cannot run."""
        c = self.config
        return c.batch * max(-(-self.tokens // c.page), 1)

    def attach(self, kv: Any, pages: int, *, seed: int = 0) -> None:
        """Use a flat KV buffer of ``layers * pages`` pages with random page tables.

        The tables are drawn on the CPU so that every device and arm reads the same pages. Pages
        repeat only when there are fewer than one sequence set needs (the throwaway profile).
        """
        torch, c = self.torch, self.config
        elements = c.layers * pages * c.page_bytes // c.dtype_bytes
        self.kv = kv[:elements].view(c.layers, pages, 2, c.kv_heads, c.page, c.head_dim)
        need = self.least_pages
        generator = torch.Generator().manual_seed(seed)
        order = torch.stack([torch.randperm(pages, generator=generator)[:need] for _ in range(c.layers)])
        if pages < need:
            order = torch.arange(need).remainder(pages).expand(c.layers, need)
        table = order.reshape(c.layers, c.batch, -1).to(torch.int32).contiguous()
        self.table = table.to(self.device)
        last = (c.context - 1) // c.page
        self.slots = (table[:, :, last].long() * c.page + (c.context - 1) % c.page).to(self.device)

    def fill(self, *, seed: int = 1) -> None:
        """Fill the attached cache with random values.

        The pages that are read get values that depend on the seed and their place in the sequence only,
        so that the output is the same bit for bit whatever the size of the cache.
        """
        generator = self.torch.Generator(device=self.device).manual_seed(seed)
        self.kv.normal_(generator=generator)
        context = -(-self.config.context // self.config.page)
        for layer in range(self.config.layers):
            generator.manual_seed(seed + layer + 1)
            index = self.table[layer][:, :context].long()
            shape = (*index.shape, *self.kv.shape[2:])
            values = self.torch.randn(shape, generator=generator, device=self.device, dtype=self.dtype)
            self.kv[layer][index] = values

    def detach(self) -> None:
        """Drop the KV cache and its tables."""
        self.kv = self.table = self.slots = None

    def run(self) -> Any:
        """Launch one step on the current stream; returns ``hidden_out`` (written in place)."""
        hidden = self.hidden_in
        expert = 0
        for layer in range(self.config.layers):
            self.rms_norm(layer, hidden)
            qkv = self.qkv_linear(layer)
            if self.kv is not None:
                self.cache_write(layer, qkv)
                self.kv_gather(layer, qkv)
                self.kv_merge()
            else:
                self.attended.copy_(qkv[:, : self.attended.shape[1]])
            update = self.out_linear(layer)
            hidden = self.add_allreduce(hidden, update)
            if (layer + 1) % self.config.expert_every == 0:
                self.expert_gemm(expert)
                expert += 1
            self.empty_launches(self.variation.empty_kernels)
        return self.hidden_out

    def rms_norm(self, layer: int, hidden: Any) -> None:
        """Norm of the residual into ``normed``."""
        c = self.config
        if self.uses("rms_norm"):
            block = self.kernels.power_of_two(c.hidden)
            self.kernels.rms_norm_kernel[(c.batch,)](
                hidden, self.norm_weight[layer], self.normed, c.hidden, EPS, BLOCK=block, num_warps=8
            )
            return
        self.normed = self.torch.nn.functional.rms_norm(hidden, (c.hidden,), self.norm_weight[layer], EPS)

    def qkv_linear(self, layer: int) -> Any:
        """QKV projection with bias; the BLAS-Lt path on GPUs."""
        return self.torch.nn.functional.linear(self.normed, self.qkv_weight[layer], self.qkv_bias[layer])

    def cache_write(self, layer: int, qkv: Any) -> None:
        """New keys and values into their page."""
        c = self.config
        if self.uses("cache_write"):
            self.kernels.cache_write_kernel[(c.batch, c.kv_heads)](
                qkv,
                self.kv[layer],
                self.slots[layer],
                c.qkv_out,
                c.q_heads * c.head_dim,
                KV_HEADS=c.kv_heads,
                PAGE=c.page,
                DIM=c.head_dim,
                num_warps=1,
            )
            return
        new = qkv[:, c.q_heads * c.head_dim :].view(c.batch, 2, c.kv_heads, c.head_dim)
        slot = self.slots[layer]
        self.kv[layer][slot // c.page, :, :, slot % c.page] = new

    def kv_gather(self, layer: int, qkv: Any) -> None:
        """Attention over the paged cache: one partial per split (GPU), all of it on the CPU."""
        c = self.config
        if self.uses("kv_gather"):
            self.kernels.kv_gather_kernel[(c.batch * c.kv_heads, self.splits)](
                qkv,
                self.kv[layer],
                self.table[layer],
                self.partial,
                self.stat,
                c.qkv_out,
                self.table.shape[2],
                c.context,
                c.head_dim**-0.5,
                KV_HEADS=c.kv_heads,
                GROUP=c.q_heads // c.kv_heads,
                GROUP_PAD=max(16, self.kernels.power_of_two(c.q_heads // c.kv_heads)),
                PAGE=c.page,
                DIM=c.head_dim,
                SPLIT=c.split,
                SPLITS=self.splits,
                BLOCK=min(64, c.split),
                num_warps=4,
            )
            return
        self.attended.copy_(attend(self.torch, c, qkv, self.kv[layer], self.table[layer], self.tokens))

    def kv_merge(self) -> None:
        """Partials merged into ``attended`` (nothing to do on the CPU)."""
        c = self.config
        if self.uses("kv_gather"):
            self.kernels.kv_merge_kernel[(c.batch * c.q_heads,)](
                self.partial,
                self.stat,
                self.attended,
                SPLITS=self.splits,
                SPLITS_PAD=self.kernels.power_of_two(self.splits),
                DIM=c.head_dim,
                num_warps=8,
            )

    def out_linear(self, layer: int) -> Any:
        """Output projection."""
        return self.torch.nn.functional.linear(self.attended, self.out_weight[layer])

    def add_allreduce(self, hidden: Any, update: Any) -> Any:
        """Sum over ranks where several run, then the residual add into ``hidden_out``."""
        if self.world > 1:
            self.torch.distributed.all_reduce(update)
        if self.uses("add_allreduce"):
            size = update.numel()
            self.kernels.add_kernel[(-(-size // 1024),)](hidden, update, self.hidden_out, size, BLOCK=1024)
        else:
            self.torch.add(hidden, update, out=self.hidden_out)
        return self.hidden_out

    def expert_gemm(self, expert: int) -> None:
        """Expert-sized product of ``expert_in`` with one expert's weights."""
        c = self.config
        blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
        sizes = {"BLOCK_M": c.expert_tokens, "BLOCK_N": c.expert_out, "BLOCK_K": c.hidden}
        if self.uses("expert_gemm") and all(sizes[name] % block == 0 for name, block in blocks.items()):
            grid = (c.expert_tokens // blocks["BLOCK_M"], c.expert_out // blocks["BLOCK_N"])
            self.kernels.expert_gemm_kernel[grid](
                self.expert_in,
                self.expert_weight[expert],
                self.expert_result,
                c.expert_tokens,
                c.expert_out,
                c.hidden,
                **blocks,
                num_warps=8,
                num_stages=3,
            )
            return
        self.torch.mm(self.expert_in, self.expert_weight[expert].t(), out=self.expert_result)

    def empty_launches(self, count: int) -> None:
        """Kernels without work; on the CPU one small operation each."""
        for _ in range(count):
            if self.kernels:
                self.kernels.empty_kernel[(1,)](self.stat, num_warps=1)
            else:
                self.torch.mul(self.normed, 1.0)

    def output_hash(self) -> str:
        """SHA-256 over the decode output and, where there are experts, the expert result of the last step."""
        digest = hashlib.sha256()
        for tensor in (self.hidden_out, self.expert_result)[: 1 + bool(self.config.experts)]:
            digest.update(tensor.detach().cpu().view(self.torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def attend(torch: Any, c: DecodeConfig, qkv: Any, kv: Any, table: Any, tokens: int) -> Any:
    """Paged attention with torch operations in the dtype of its inputs; [batch, q_heads * dim].

    Reads ``tokens`` tokens and gives weight to the first ``context`` of them.
    """
    pages = kv[table[:, : -(-tokens // c.page)].long()]
    keys_values = pages.permute(2, 0, 3, 1, 4, 5).reshape(2, c.batch, c.kv_heads, -1, c.head_dim)
    group = c.q_heads // c.kv_heads
    q = qkv[:, : c.q_heads * c.head_dim].reshape(c.batch, c.kv_heads, group, c.head_dim)
    scores = q @ keys_values[0].transpose(-1, -2) * c.head_dim**-0.5
    scores[..., c.context :] = float("-inf")
    result = torch.softmax(scores, dim=-1) @ keys_values[1]
    return result.reshape(c.batch, -1)


def reference_output(step: DecodeStep) -> Any:
    """The step's output computed in float64 from its weights and cache; [batch, hidden].

    Only the pages a layer reads are converted, so this fits beside a cache of any size.
    """
    torch, c = step.torch, step.config
    hidden = step.hidden_in.double()
    for layer in range(c.layers):
        scale = (hidden.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()
        normed = hidden * scale * step.norm_weight[layer].double()
        qkv = normed @ step.qkv_weight[layer].double().t() + step.qkv_bias[layer].double()
        used = -(-c.context // c.page)
        index = step.table[layer][:, :used].long()
        compact = step.kv[layer][index].reshape(-1, 2, c.kv_heads, c.page, c.head_dim).double()
        own = torch.arange(compact.shape[0], device=compact.device).reshape(c.batch, used)
        new = qkv[:, c.q_heads * c.head_dim :].reshape(c.batch, 2, c.kv_heads, c.head_dim)
        compact[own[:, -1], :, :, (c.context - 1) % c.page] = new
        attended = attend(torch, c, qkv, compact, own, c.context)
        hidden = hidden + attended @ step.out_weight[layer].double().t() * step.world
    return hidden


def relative_error(step: DecodeStep) -> float:
    """Norm of the last output's difference from float64, over the norm of the float64 output."""
    reference = reference_output(step)
    return float((step.hidden_out.double() - reference).norm() / reference.norm())


def _triton_kernels() -> Any:
    try:
        from rcatools.workload import triton_kernels
    except ImportError:
        return None
    return triton_kernels


def _world_size(torch: Any) -> int:
    distributed = torch.distributed
    return (
        int(distributed.get_world_size())
        if distributed.is_available() and distributed.is_initialized()
        else 1
    )
