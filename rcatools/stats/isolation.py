"""Does forking a run change what it measures? Forked blocks against blocks run in fresh interpreters.

A declared share of the blocks of a recording runs in fresh interpreters. Blocks are drawn for it by the seed, so the
two kinds are independent groups of replicates: Welch's test on logs, forked over spawned. Asked twice, since a cause
may sit in either: of the baseline's own time, and of an arm's ratio to the baseline inside its block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rcatools import units
from rcatools.stats.assemble import Context
from rcatools.stats.decide import MIN_REPLICATES
from rcatools.stats.records import DEFAULT_CONFIDENCE, DEFAULT_MARGIN, Comparison
from rcatools.stats.unpaired import compare_log_runs

FORKED, SPAWNED = "fork", "spawn"
NOT_TESTED = "not_tested"
READING = {
    "slower": "fork makes it larger",
    "faster": "fork makes it smaller",
    "equivalent": "no difference within the margin",
    "undecided": "undecided",
}


@dataclass(frozen=True)
class ForkEffect:
    """What forking does to one quantity.

    Attributes:
        of: the quantity: an arm's name, or "arm / baseline".
        forked, spawned: blocks of each kind that hold it.
        comparison: forked (candidate) against spawned (baseline); None where a kind has fewer than three blocks.
    """

    of: str
    forked: int
    spawned: int
    comparison: Comparison | None

    @property
    def verdict(self) -> str:
        """The comparison's verdict, or "not_tested"."""
        return NOT_TESTED if self.comparison is None else str(self.comparison.verdict)

    @property
    def text(self) -> str:
        """The result in words, with both counts."""
        if self.comparison is None:
            lacking = self.spawned < MIN_REPLICATES
            few, kind = (self.spawned, "spawned") if lacking else (self.forked, "forked")
            return f"{self.of}: not tested: {few} {kind} block{'' if few == 1 else 's'}, {MIN_REPLICATES} are needed"
        found = self.comparison.estimate
        return (
            f"{self.of}: forked {units.change(found.ratio)} {units.interval(found.ci_low, found.ci_high)} against "
            f"spawned ({self.forked} and {self.spawned} blocks, detection limit {units.percent(self.comparison.mde)}): "
            f"{READING[self.verdict]}"
        )


def fork_effect(
    of: str,
    logs: ArrayLike,
    isolation: ArrayLike,
    *,
    margin: float = DEFAULT_MARGIN,
    confidence: float = DEFAULT_CONFIDENCE,
) -> ForkEffect:
    """Compare one quantity between forked and spawned blocks.

    Args:
        of: what it is called.
        logs: natural log per block, shape (n,): of a time, or of a ratio of times; NaN where the block lacks it.
        isolation: "fork" or "spawn" per block; blocks with anything else are left out.
        margin: largest |ratio - 1| declared not to matter.
        confidence: level of the interval.

    Raises:
        ValueError: the shapes differ.
    """
    values, kinds = np.asarray(logs, dtype=float), np.asarray(isolation, dtype=object)
    if values.shape != kinds.shape or values.ndim != 1:
        raise ValueError(f"need two vectors of one length, got {values.shape} and {kinds.shape}")
    forked, spawned = _of_kind(values, kinds, FORKED), _of_kind(values, kinds, SPAWNED)
    comparison = None
    if min(forked.size, spawned.size) >= MIN_REPLICATES:
        context = Context(arm=FORKED, baseline=SPAWNED, margin=margin, confidence=confidence)
        comparison = compare_log_runs(spawned, forked, context)
    return ForkEffect(of, int(forked.size), int(spawned.size), comparison)


def _of_kind(values: NDArray[np.float64], kinds: NDArray[np.object_], kind: str) -> NDArray[np.float64]:
    return np.asarray(values[np.isfinite(values) & (kinds == kind)], dtype=float)
