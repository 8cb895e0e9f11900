"""How two arms were measured: which runs pair up, and what machine, day or order would explain as well."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rcatools.stats.decide import Note
from rcatools.stats.layout import Cell
from rcatools.stats.records import Reason

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Strata = tuple[Codes, Codes]

_OTHER_MACHINE = re.compile(
    r"(?:other|another|different)[\s_\-.]*(?:board|box|card|device|gpu|host|machine|node|runner|server)", re.I
)
_OTHER_TIME = re.compile(r"(?:other|another|different|last|previous)[\s_\-.]*(?:day|week|month)", re.I)


@dataclass(frozen=True)
class Pairs:
    """Block pairs of two arms.

    Attributes:
        b: logs of the baseline by block.
        c: logs of the candidate by block.
        order_b: when the baseline ran, NaN where unknown.
        order_c: when the candidate ran.
        dropped: blocks that hold one of the two arms only.
        notes: machines and days mixed inside blocks.
    """

    b: Floats
    c: Floats
    order_b: Floats
    order_c: Floats
    dropped: int
    notes: tuple[Note, ...]


def pair(baseline: Cell, candidate: Cell) -> Pairs:
    """Pair the block means of two arms, on the same machine and day where blocks name them."""
    same = np.array_equal(baseline.block, candidate.block) and np.array_equal(
        baseline.stratum, candidate.stratum
    )
    if same and np.all(np.diff(baseline.block) > 0):
        return Pairs(baseline.logs, candidate.logs, baseline.order, candidate.order, 0, ())
    inside = np.concatenate([baseline.stratum, candidate.stratum])
    width = int(inside.max(initial=0)) + 1
    place_b = baseline.block * width + baseline.stratum
    place_c = candidate.block * width + candidate.stratum
    notes: tuple[Note, ...] = ()
    if not np.isin(place_b, place_c).any():
        notes = _mixed_inside_blocks(baseline, candidate)
        place_b, place_c = baseline.block, candidate.block
    blocks_b, b, order_b = _block_means(baseline, place_b)
    blocks_c, c, order_c = _block_means(candidate, place_c)
    _, at_b, at_c = np.intersect1d(blocks_b, blocks_c, assume_unique=True, return_indices=True)
    dropped = blocks_b.size + blocks_c.size - 2 * at_b.size
    return Pairs(b[at_b], c[at_c], order_b[at_b], order_c[at_c], dropped, notes)


def confounded(
    baseline: Cell, candidate: Cell, *, few_blocks: bool = False
) -> tuple[list[Note], Strata | None]:
    """What else than the arm separates runs that are not paired.

    Args:
        baseline: runs of the baseline.
        candidate: runs of the candidate.
        few_blocks: blocks exist but are too few to pair; they are strata then.

    Returns:
        Notes on machines and days, and the strata (machine, day, block) to compare inside where both arms share
        some.
    """
    notes = []
    for codes_b, codes_c, reason, word in (
        (baseline.machine, candidate.machine, Reason.MIXED_MACHINES, "machine"),
        (baseline.day, candidate.day, Reason.ORDER_OR_DRIFT, "day"),
    ):
        places = np.unique(np.concatenate([codes_b, codes_c]))
        if places.size < 2:
            continue
        if not np.isin(codes_b, codes_c).any():
            text = f"no {word} ran both arms: the difference is one of {word}s as much as of arms"
            notes.append(Note(reason, text, blocks=True))
        elif not _balanced(codes_b, codes_c):
            text = f"runs come from {places.size} {word}s; the arms are compared inside each {word}"
            notes.append(Note(reason, text, blocks=False))
    strata_b, strata_c = baseline.stratum, candidate.stratum
    if few_blocks:
        width = int(max(strata_b.max(initial=0), strata_c.max(initial=0))) + 1
        strata_b, strata_c = baseline.block * width + strata_b, candidate.block * width + strata_c
    several = np.unique(np.concatenate([strata_b, strata_c])).size > 1
    if several and not any(note.blocks for note in notes):
        if np.isin(strata_b, strata_c).any():
            return notes, (strata_b, strata_c)
        text = "no machine ran both arms on one day"
        notes.append(Note(Reason.MIXED_MACHINES, text, blocks=True))
    return notes, None


def named_elsewhere(*arms: str) -> list[Note]:
    """A note when an arm's own name says it comes from another machine or another time."""
    notes = []
    for arm in arms:
        if _OTHER_MACHINE.search(arm):
            text = f"the arm name {arm!r} says it comes from another machine; that is no A/B"
            notes.append(Note(Reason.MIXED_MACHINES, text, blocks=True))
        elif _OTHER_TIME.search(arm):
            text = f"the arm name {arm!r} says it comes from another time; that is no A/B"
            notes.append(Note(Reason.ORDER_OR_DRIFT, text, blocks=True))
    return notes


def _mixed_inside_blocks(baseline: Cell, candidate: Cell) -> tuple[Note, ...]:
    notes = []
    for codes_b, codes_c, reason, word in (
        (baseline.machine, candidate.machine, Reason.MIXED_MACHINES, "machine"),
        (baseline.day, candidate.day, Reason.ORDER_OR_DRIFT, "day"),
    ):
        if np.unique(np.concatenate([codes_b, codes_c])).size < 2:
            continue
        balanced = _balanced(codes_b, codes_c)
        text = f"within a block the arms ran on different {word}s"
        text += "; they swap evenly, so the mean holds" if balanced else ""
        notes.append(Note(reason, text, blocks=not balanced))
    return tuple(notes)


def _balanced(codes_b: Codes, codes_c: Codes) -> bool:
    """Both arms visit each place equally often, up to one run."""
    size = int(max(codes_b.max(initial=0), codes_c.max(initial=0))) + 1
    counts_b, counts_c = np.bincount(codes_b, minlength=size), np.bincount(codes_c, minlength=size)
    return bool(np.all(np.abs(counts_b - counts_c) <= (1 if codes_b.size != codes_c.size else 0)))


def _block_means(cell: Cell, place: Codes) -> tuple[Codes, Floats, Floats]:
    blocks, at = np.unique(place, return_inverse=True)
    if blocks.size == place.size:
        by_block = np.argsort(place, kind="stable")
        return blocks, cell.logs[by_block], cell.order[by_block]
    count = np.bincount(at)
    return blocks, np.bincount(at, weights=cell.logs) / count, np.bincount(at, weights=cell.order) / count
