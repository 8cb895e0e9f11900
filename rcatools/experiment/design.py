"""The schedule: which run comes when, fixed by the seed before the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rcatools.errors import InputError

INSPECTION_BLOCK = -1
MOST_BLOCKS = 100_000  # the schedule is planned whole before the first run


@dataclass(frozen=True)
class Run:
    """One planned run.

    Attributes:
        run: its id.
        arm, block, order: what runs where; block -1 is an untimed inspection.
        isolation: "fork" or "spawn".
        env_padding: bytes of environment added, varied over spawned runs.
    """

    run: str
    arm: str
    block: int
    order: int
    isolation: str
    env_padding: int = 0

    def as_dict(self) -> dict[str, Any]:
        """All fields, for the task of a worker."""
        return asdict(self)


def schedule(
    arms: Sequence[str],
    *,
    blocks: int,
    seed: int,
    isolation: str,
    spawn_share: float = 0.0,
    spawn_only: frozenset[str] = frozenset(),
    inspect: Sequence[str] = (),
) -> list[Run]:
    """All runs in order: inspections first, then blocks with the arms in a random order each.

    The schedule depends on its arguments alone, so that a resumed recording continues the same one.
    A block is spawned or forked as a whole (arms that must be spawned excepted), because arms are
    compared inside blocks.

    Raises:
        InputError: more blocks than a schedule can hold.
    """
    if blocks > MOST_BLOCKS:
        raise InputError(f"a recording holds at most {MOST_BLOCKS} blocks, got {blocks}: ask for fewer")
    rng = np.random.default_rng(seed)
    runs = []
    for order, arm in enumerate(inspect):
        how = "spawn" if arm in spawn_only else isolation
        runs.append(Run(f"inspect-{order:02d}-{arm}", arm, INSPECTION_BLOCK, order, how))
    for block in range(blocks):
        permuted = rng.permutation(len(arms))
        spawned = isolation == "spawn" or bool(rng.random() < spawn_share)
        paddings = rng.integers(0, 4096, size=len(arms))
        for order, index in enumerate(permuted):
            arm = arms[int(index)]
            how = "spawn" if spawned or arm in spawn_only else "fork"
            padding = int(paddings[order]) if how == "spawn" else 0
            runs.append(Run(f"{block:03d}-{order:02d}-{arm}", arm, block, order, how, padding))
    return runs
