"""A vectorised first look for two levels, so that ten thousand kernels cost seconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rcatools.stats.layout import Cell, Layout
from rcatools.stats.mixtures import suspects

SCREEN_FROM = 50


def clean_groups(layout: Layout, baseline: str) -> NDArray[np.bool_]:
    """True for groups where no arm shows two levels, alone or with the baseline.

    With fewer than 50 groups nothing is screened (all False): each comparison then makes the full test itself.
    """
    clean = np.zeros(len(layout.groups), dtype=bool)
    if len(layout.groups) < SCREEN_FROM:
        return clean
    base = layout.arms.index(baseline)
    dirty = np.zeros(len(layout.groups), dtype=bool)
    by_size: dict[int, list[tuple[int, NDArray[np.float64]]]] = {}
    for (group, arm), cell in layout.cells.items():
        rows = [cell.logs]
        other = layout.cells.get((group, base))
        if arm != base and other is not None:
            rows += _with_baseline(cell, other)
        for logs in rows:
            by_size.setdefault(logs.size, []).append((group, logs))
    for entries in by_size.values():
        found = suspects(np.stack([logs for _, logs in entries]))
        dirty[[entries[i][0] for i in np.flatnonzero(found)]] = True
    return ~dirty


def _with_baseline(cell: Cell, base: Cell) -> list[NDArray[np.float64]]:
    rows = [np.concatenate([base.logs, cell.logs])]
    if base.logs.size == cell.logs.size and np.array_equal(base.block, cell.block):
        rows.append(cell.logs - base.logs)
    return rows
