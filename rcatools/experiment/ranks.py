"""One run of several processes, one per GPU (or per CPU process): how they meet, agree and leave.

They meet through a file, so that no port has to be free, and use NCCL or RCCL on GPUs, gloo on the CPU.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Group:
    """This process among the processes of its run.

    Attributes:
        rank, size: its number and how many there are.
        backend: "cuda", "rocm" or "cpu".
    """

    rank: int = 0
    size: int = 1
    backend: str = "cpu"

    def all_agree(self, torch: Any, flag: bool) -> bool:
        """Whether every rank says yes; each must call it equally often."""
        if self.size == 1:
            return flag
        device = "cpu" if self.backend == "cpu" else "cuda"
        vote = torch.tensor([int(flag)], device=device)
        torch.distributed.all_reduce(vote, op=torch.distributed.ReduceOp.MIN)
        return bool(vote.item())

    def barrier(self, torch: Any) -> None:
        """Wait for the others."""
        if self.size > 1:
            torch.distributed.barrier()

    def facts(self, torch: Any) -> dict[str, Any]:
        """What the recording says about the ranks; nothing for a run of one process."""
        if self.size == 1:
            return {}
        version = None
        if self.backend != "cpu":
            version = ".".join(str(part) for part in torch.cuda.nccl.version())
        return {
            "ranks": self.size,
            "collectives": {"cuda": "nccl", "rocm": "rccl", "cpu": "gloo"}[self.backend],
            "collectives_version": version,
            "peer_access": _peer_access(torch, self) if self.backend != "cpu" else None,
        }


ALONE = Group()


@contextlib.contextmanager
def together(torch: Any, task: dict[str, Any]) -> Iterator[Group]:
    """Join the processes of this run for its duration; ``ALONE`` where there is only one.

    Raises:
        RuntimeError: the others did not come within the run's time limit.
    """
    size, backend = int(task.get("ranks", 1)), str(task["backend"])
    if size == 1:
        yield Group(backend=backend)
        return
    rank = int(task["rank"])
    if backend == "cpu":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    else:
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "gloo" if backend == "cpu" else "nccl",
        init_method=f"file://{task['meeting']}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=float(task["timeout_s"])),
    )
    group = Group(rank, size, backend)
    yield group
    group.barrier(torch)
    torch.distributed.destroy_process_group()


def result_path(folder: Path, run: str, rank: int) -> Path:
    """Where one rank leaves its result until all are gathered."""
    return folder / "ranks" / f"{run}.{rank}.json"


def gather(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One part of a run from the parts of its ranks, in rank order.

    Times are rank 0's. "rank_spread" is the largest distance between the ranks' median step times over the
    smallest of them; "ranks_equal" says whether all outputs are the same bit for bit.
    """
    first = {**parts[0], "facts": dict(parts[0]["facts"])}
    for rank, part in enumerate(parts):
        if part["outcome"] != "ok":
            first["outcome"], first["reason"] = part["outcome"], f"rank {rank}: {part['reason']}"
            break
    medians = [float(np.median(p["samples"]["step_us"])) for p in parts if p["samples"].get("step_us")]
    hashes = {part["facts"].get("output_sha256") for part in parts}
    first["facts"] |= {
        "rank_spread": (max(medians) - min(medians)) / min(medians) if len(medians) == len(parts) else None,
        "ranks_equal": len(hashes) == 1,
        "rank_pids": " ".join(str(part["facts"]["pid"]) for part in parts),
    }
    first["wall_s"] = max(part["wall_s"] for part in parts)
    return first


def _peer_access(torch: Any, group: Group) -> bool:
    """Whether this GPU reaches every other one's memory directly."""
    others = [index for index in range(group.size) if index != group.rank]
    return all(torch.cuda.can_device_access_peer(group.rank, other) for other in others)
