"""When two levels inside an arm forbid a verdict: a mean over fast and slow processes describes neither.

Levels are looked for in each arm and in both arms together; the last finds a baseline that visits both levels
where each arm alone has too few runs. Levels that both arms visit in the same blocks cancel in the pairs. Where
every run (or every pair) of the candidate lies on one side, the direction holds in spite of the levels.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rcatools import units
from rcatools.stats.decide import Note
from rcatools.stats.modes import ALPHA, MIN_GAP, MIN_VALUES, find_modes_rows
from rcatools.stats.records import Reason

CLEAR_SEPARATION = 6.0  # standard deviations between the centres: one run in 700 falls on the wrong side
MIN_PAIRS_FOR_SIGN = 6  # below, agreement of all signs has an exact p above 0.05

Floats = NDArray[np.float64]
Members = NDArray[np.bool_]


def modes_in_runs(b: Floats, c: Floats, screened: bool = False) -> list[Note]:
    """Notes on levels in independent runs; ``b`` and ``c`` are logs."""
    if screened:
        return []
    found = [("baseline", b, m) for m in [_levels(b)] if m is not None]
    found += [("candidate", c, m) for m in [_levels(c)] if m is not None]
    if not found:
        together = _straddled(b, c)
        if together is not None:
            side = "baseline" if _both(together[: b.size]) else "candidate"
            values, members = (b, together[: b.size]) if side == "baseline" else (c, together[b.size :])
            found = [(side, values, members)]
    apart = bool(c.min() > b.max() or c.max() < b.min())
    return [_note(side, values, members, blocks=not apart) for side, values, members in found]


def modes_in_pairs(b: Floats, c: Floats, d: Floats, screened: bool = False) -> list[Note]:
    """Notes on levels in paired runs; ``b``, ``c`` are logs by block and ``d`` their difference."""
    if screened:
        return []
    in_b, in_c = _levels(b), _levels(c)
    if in_b is not None and in_c is not None and bool(np.all(in_b == in_c)):
        text = "both arms change between two levels in the same blocks; the pairs cancel that"
        return [Note(Reason.MODES_IN_ARM, text, blocks=False)]
    found = [("baseline", b, in_b)] if in_b is not None else []
    found += [("candidate", c, in_c)] if in_c is not None else []
    in_d = _levels(d)
    if not found and in_d is not None:
        found = [("block ratio", d, in_d)]
    if not found:
        together = _straddled(b, c)
        if together is not None and not np.all(together[: b.size] == together[b.size :]):
            side = "baseline" if _both(together[: b.size]) else "candidate"
            found = [(side, b, together[: b.size]) if side == "baseline" else (side, c, together[b.size :])]
    one_side = d.size >= MIN_PAIRS_FOR_SIGN and bool(np.all(d > 0) or np.all(d < 0))
    return [_note(side, values, members, blocks=not one_side) for side, values, members in found]


def levels_over_arms(arms: dict[str, Floats]) -> tuple[str, frozenset[str]] | None:
    """Two clear levels among all runs of a group, for arms that have too few runs each.

    Args:
        arms: logs of the runs by arm.

    Returns:
        A sentence and the arms that visit both levels; None without clear levels or where no arm visits both.
    """
    logs = np.concatenate(list(arms.values()))
    if logs.size < MIN_VALUES:
        return None
    table = find_modes_rows(logs[None, :])
    if not table.found[0] or table.separation[0] < CLEAR_SEPARATION:
        return None
    cut = float(table.cut[0])
    both = frozenset(arm for arm, values in arms.items() if _both(values > cut))
    if not both:
        return None
    gap = units.percent(math.expm1(float(table.high_log[0] - table.low_log[0])))
    text = f"the runs of all arms fall on two levels {gap} apart and one arm visits both; a mean describes neither"
    return text, both


def suspects(rows: Floats) -> NDArray[np.bool_]:
    """Rows of logs, shape (rows, n), that could show levels: a cheap screen for thousands of comparisons."""
    if rows.shape[1] < MIN_VALUES:
        return np.zeros(rows.shape[0], dtype=bool)
    table = find_modes_rows(rows, alpha=ALPHA, min_gap=MIN_GAP)
    return table.found


def _levels(logs: Floats) -> Members | None:
    if logs.size < MIN_VALUES:
        return None
    table = find_modes_rows(logs[None, :])
    return np.asarray(logs > table.cut[0]) if table.found[0] else None


def _straddled(b: Floats, c: Floats) -> Members | None:
    """Upper-level membership of both arms' runs when two clear levels exist and one arm visits both."""
    logs = np.concatenate([b, c])
    if logs.size < MIN_VALUES or min(b.size, c.size) < 1:
        return None
    table = find_modes_rows(logs[None, :])
    if not table.found[0] or table.separation[0] < CLEAR_SEPARATION:
        return None
    members = np.asarray(logs > table.cut[0])
    return members if _both(members[: b.size]) or _both(members[b.size :]) else None


def _both(members: Members) -> bool:
    return bool(members.any() and not members.all())


def _note(side: str, logs: Floats, members: Members, *, blocks: bool) -> Note:
    low, high = float(logs[~members].mean()), float(logs[members].mean())
    count = int(members.sum())
    text = (
        f"the {side} has two levels {units.percent(math.expm1(high - low))} apart "
        f"({count} of {logs.size} runs in the upper one)"
    )
    if not blocks:
        text += "; the candidate lies on one side of the baseline throughout, so the direction holds"
    return Note(Reason.MODES_IN_ARM, text, blocks)
