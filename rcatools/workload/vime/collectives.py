"""Collectives of one process group, counted as they are issued.

Works with whatever backend the group has (gloo on the CPU, NCCL or RCCL on GPUs) and adds nothing to a
call but two counters. Not run on ROCm.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Any

_EPOCHS = count(1)


@dataclass(frozen=True)
class Totals:
    """Counts so far: collectives issued here, by the backend (None where it does not count), bytes sent."""

    calls: int
    backend: int | None
    bytes_sent: int


class CountingCollectives:
    """Issues collectives on ``group`` and counts calls and bytes this rank sends.

    ``epoch`` is unique for each instance in this process, and the instance keeps the group alive: the
    pair (ranks, epoch) therefore never names two different groups, which ``id(group)`` may.
    """

    def __init__(self, group: Any = None) -> None:
        import torch.distributed as dist

        self.group = dist.group.WORLD if group is None else group
        self.rank = dist.get_rank(self.group)
        self.world = dist.get_world_size(self.group)
        self.ranks = tuple(dist.get_process_group_ranks(self.group))
        self.epoch = next(_EPOCHS)
        self.calls: Counter[str] = Counter()
        self.bytes_sent = 0

    def all_gather(self, gathered: list[Any], tensor: Any) -> None:
        """List form: ``gathered[r]`` becomes rank r's tensor."""
        import torch.distributed as dist

        self._count("all_gather", tensor)
        dist.all_gather(gathered, tensor, group=self.group)

    def all_gather_into_tensor(self, gathered: Any, tensor: Any) -> None:
        """Flat form: ``gathered`` is all ranks' tensors one after the other."""
        import torch.distributed as dist

        self._count("all_gather_into_tensor", tensor)
        issue = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        issue(gathered, tensor, group=self.group)

    def all_gather_object(self, gathered: list[Any], value: Any) -> None:
        """Python objects, pickled; the backend sees two collectives (sizes, then payloads)."""
        import torch.distributed as dist

        self.calls["all_gather_object"] += 1
        dist.all_gather_object(gathered, value, group=self.group)

    def all_agree(self, flag: bool, device: Any) -> bool:
        """Whether ``flag`` is true on every rank (one minimum over a byte, read back)."""
        import torch
        import torch.distributed as dist

        value = torch.tensor([1 if flag else 0], dtype=torch.uint8, device=device)
        self._count("all_reduce", value)
        dist.all_reduce(value, op=dist.ReduceOp.MIN, group=self.group)
        return bool(value.item())

    def totals(self) -> Totals:
        """All counts so far; every backend collective of the group counts, whoever issued it."""
        return Totals(sum(self.calls.values()), self.backend_sequence(), self.bytes_sent)

    def backend_sequence(self) -> int | None:
        """Collectives the backend itself has counted on this group, or None where it does not count."""
        try:
            return int(self.group._get_sequence_number_for_group())
        except (AttributeError, RuntimeError):
            return None

    def _count(self, name: str, tensor: Any) -> None:
        self.calls[name] += 1
        self.bytes_sent += tensor.numel() * tensor.element_size()
