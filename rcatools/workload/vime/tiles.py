"""Selected-token log-probability from tile statistics: the arithmetic, without any communication.

For row t and tile j: ``m_j = max x``, ``s_j = sum exp(x - m_j)``. Over all tiles in ascending order
``M = max m_j``, ``S = sum s_j exp(m_j - M)``, and the result is ``x[target] - (M + log S)``. A tile of
padding alone is the identity ``(-inf, 0)``. Everything is fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rcatools.errors import InputError
from rcatools.workload.vime.contract import VocabLayout


@dataclass(frozen=True)
class Partials:
    """One rank's share: ``maxima`` and ``sums`` are ``[rows, tiles of the rank]``, ``target`` ``[rows]``.

    ``target`` holds the target's logit on the rank that owns it and 0 elsewhere.
    """

    maxima: Any
    sums: Any
    target: Any


def local_partials(logits: Any, targets: Any, layout: VocabLayout, rank: int) -> Partials:
    """Tile statistics of one shard.

    Args:
        logits: ``[rows, columns of the shard]``, any float type; columns past the vocabulary are ignored.
        targets: ``[rows]`` int64 word numbers, each below ``layout.vocab``.

    Raises:
        InputError: the shard has the wrong width.
    """
    import torch

    start, end = layout.bounds(rank)
    rows = logits.shape[0]
    if logits.shape[1] != end - start:
        raise InputError(f"rank {rank} must hold {end - start} columns; got {logits.shape[1]}")
    values = logits.to(torch.float32).contiguous()
    if layout.vocab < end:
        values = values.clone()
        values[:, max(0, layout.vocab - start) :] = -torch.inf
    tiles = values.view(rows, layout.tile_counts[rank], layout.tile_size)
    maxima = tiles.amax(dim=-1)
    shift = torch.where(torch.isneginf(maxima), torch.zeros_like(maxima), maxima)
    sums = torch.exp(tiles - shift.unsqueeze(-1)).sum(dim=-1)
    mine = (targets >= start) & (targets < end)
    column = (targets - start).clamp(0, end - start - 1)
    picked = values.gather(1, column.unsqueeze(1)).squeeze(1)
    return Partials(maxima, sums, torch.where(mine, picked, torch.zeros_like(picked)))


def merge(maxima: Any, sums: Any, target_logit: Any) -> Any:
    """Log-probability ``[rows]`` from all tiles ``[rows, num_tiles]`` in global order."""
    import torch

    top = maxima.amax(dim=-1, keepdim=True)
    total = (sums * torch.exp(maxima - top)).sum(dim=-1)
    return target_logit - (top.squeeze(-1) + torch.log(total))


def check_targets(targets: Any, layout: VocabLayout) -> None:
    """Raise InputError where a target lies outside the vocabulary (reads the tensor back)."""
    if targets.numel() and (int(targets.min()) < 0 or int(targets.max()) >= layout.vocab):
        raise InputError(f"targets must lie in 0..{layout.vocab - 1}")


def owners(targets: Any, later_starts: Any) -> Any:
    """Rank that owns each target, ``[rows]`` int64, from the first columns of shards 1 and up."""
    import torch

    return torch.bucketize(targets, later_starts, right=True)
