"""Kernel-by-kernel alignment of two traces in launch order.

Activities are matched by what survives another build, library or vendor: role, framework operation, input
shapes and phase (step or graph replay), besides the name. The alignment is global and keeps the order
(Needleman and Wunsch 1970, no penalty for gaps), so the QKV product of one trace is not paired with the
output projection of the other only because both are matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from rcatools.trace.model import NO_ID, NO_TIME, Trace, lanes
from rcatools.trace.roles import OTHER, roles

Ints = npt.NDArray[np.int64]

BASES = ("exact", "name", "role_op_shapes", "role_op", "role")
CONFIDENCE = {"exact": 1.0, "name": 0.9, "role_op_shapes": 0.8, "role_op": 0.6, "role": 0.3}
_SCORES = np.array([20, 15, 12, 9, 4], dtype=np.int32)
_NEVER = np.int32(-(10**8))
MAX_CELLS = 120_000_000
MIN_LINKED_FOR_STEPS = 0.95


@dataclass(frozen=True)
class Alignment:
    """Which activity of trace a corresponds to which of trace b.

    Attributes:
        pairs: columns ``a`` and ``b`` (row numbers in ``Trace.kernels``) and ``basis`` (index into ``BASES``).
        only_a: rows of a without a partner, in launch order.
        only_b: rows of b without a partner, in launch order.
        phases: number of phases (steps, replays) aligned one by one; 1 when they do not correspond.
        banded: the search was limited to a band around the diagonal because the traces are long.
    """

    pairs: pd.DataFrame
    only_a: Ints
    only_b: Ints
    phases: int
    banded: bool


def align(a: Trace, b: Trace) -> Alignment:
    """Align all activities (kernels, copies, sets) of two traces, device by device in order of their numbers."""
    left, right = _Side(a), _Side(b)
    features = _features(left, right)
    pairs: list[Ints] = []
    banded = False
    segments = list(_segments(left, right))
    for rows_a, rows_b in segments:
        found, limited = _align_rows(rows_a, rows_b, features)
        banded |= limited
        pairs.append(found)
    joined = np.concatenate(pairs) if pairs else np.zeros((0, 3), dtype=np.int64)
    free_a = np.setdiff1d(left.order, joined[:, 0], assume_unique=True)
    free_b = np.setdiff1d(right.order, joined[:, 1], assume_unique=True)
    return Alignment(
        pairs=pd.DataFrame(joined, columns=["a", "b", "basis"]),
        only_a=left.order[np.isin(left.order, free_a)],
        only_b=right.order[np.isin(right.order, free_b)],
        phases=len(segments),
        banded=banded,
    )


class _Side:
    """One trace with what the alignment looks at."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.table = trace.kernels
        self.role = roles(self.table)
        self.order = launch_order(self.table)
        self.phase = _phases(trace)


def launch_order(table: pd.DataFrame) -> Ints:
    """Row numbers by device and launch.

    Activities of one launch (a graph replay) keep their start order. Unlinked ones come at the place their
    stream gives them: before the next linked activity of the same stream.
    """
    key = np.where(table["launch_ns"] == NO_TIME, np.iinfo(np.int64).max, table["launch_ns"])
    start = table["start_ns"].to_numpy()
    lane = lanes(table)
    by_lane = np.lexsort((start, lane))
    # the smallest launch time at or after each activity in its lane
    for rows in np.split(by_lane, np.flatnonzero(np.diff(lane[by_lane])) + 1) if by_lane.size else []:
        key[rows] = np.minimum.accumulate(key[rows][::-1])[::-1]
    return np.asarray(np.lexsort((start, key, table["device"].to_numpy())), dtype=np.int64)


def _phases(trace: Trace) -> Ints:
    """A number per row that changes with every step and every graph replay; -1 outside of both."""
    table = trace.kernels
    phase = np.full(len(table), NO_ID, dtype=np.int64)
    linked = table["linked"].to_numpy()
    steps = trace.steps
    if len(steps) and linked.size and linked.mean() >= MIN_LINKED_FOR_STEPS:
        begin = steps["start_ns"].to_numpy()
        at = np.searchsorted(begin, table["launch_ns"].to_numpy(), "right") - 1
        inside = (at >= 0) & linked
        inside[inside] = (table["launch_ns"].to_numpy() < begin[at] + steps["dur_ns"].to_numpy()[at])[inside]
        phase[inside] = at[inside]
    graph = table["graph"].to_numpy()
    if graph.any():
        _, replay = np.unique(table["launch_ns"].to_numpy()[graph], return_inverse=True)
        phase[graph] = len(steps) + replay
    return phase


def _segments(a: _Side, b: _Side) -> Iterator[tuple[Ints, Ints]]:
    """Runs of rows to align with each other: devices in order, phases one by one where they correspond."""
    for rows_a, rows_b in _by_device(a, b):
        runs_a, runs_b = _runs(a, rows_a), _runs(b, rows_b)
        kinds_a, kinds_b = [kind for kind, _ in runs_a], [kind for kind, _ in runs_b]
        if len(runs_a) > 1 and kinds_a == kinds_b:
            yield from ((left, right) for (_, left), (_, right) in zip(runs_a, runs_b, strict=True))
        else:
            yield rows_a, rows_b


def _by_device(a: _Side, b: _Side) -> Iterator[tuple[Ints, Ints]]:
    groups = []
    for side in (a, b):
        device = side.table["device"].to_numpy()[side.order]
        groups.append([side.order[device == number] for number in np.unique(device)])
    nothing = np.zeros(0, dtype=np.int64)
    for index in range(max(len(groups[0]), len(groups[1]))):
        yield tuple(group[index] if index < len(group) else nothing for group in groups)  # type: ignore[misc]


def _runs(side: _Side, rows: Ints) -> list[tuple[str, Ints]]:
    """Consecutive rows of one phase, with the sort of phase."""
    if rows.size == 0:
        return []
    phase = side.phase[rows]
    cuts = np.flatnonzero(np.diff(phase)) + 1
    graph = side.table["graph"].to_numpy()
    return [
        ("replay" if graph[run[0]] else "step" if side.phase[run[0]] != NO_ID else "outside", run)
        for run in np.split(rows, cuts)
    ]


@dataclass(frozen=True)
class _Features:
    """Codes comparable between the traces, per row: token, and per token its features."""

    token_a: Ints
    token_b: Ints
    name: Ints
    role: Ints
    op: Ints
    shapes: Ints
    other: int


def _features(a: _Side, b: _Side) -> _Features:
    columns = {}
    for column in ("full_name", "grid", "op", "shapes"):
        columns[column] = _codes(pd.Categorical(a.table[column]), pd.Categorical(b.table[column]))
    columns["role"] = _codes(a.role, b.role)
    split = len(a.table)
    stacked = np.stack([columns[name] for name in ("full_name", "grid", "op", "shapes", "role")], axis=1)
    unique, token = np.unique(stacked, axis=0, return_inverse=True)
    token = token.reshape(-1).astype(np.int64)
    labels = [*map(str, a.role.categories), *map(str, b.role.categories)]
    return _Features(
        token_a=token[:split],
        token_b=token[split:],
        name=unique[:, 0],
        role=unique[:, 4],
        op=unique[:, 2],
        shapes=unique[:, 3],
        other=dict(zip(dict.fromkeys(labels), range(len(labels)), strict=False)).get(OTHER, NO_ID),
    )


def _codes(a: pd.Categorical, b: pd.Categorical) -> Ints:
    """Codes of both columns over one list of texts; the empty text is -1."""
    number = {text: index for index, text in enumerate(dict.fromkeys([*a.categories, *b.categories]))}
    number[""] = NO_ID
    parts = []
    for column in (a, b):
        lookup = np.array([number[text] for text in column.categories], dtype=np.int64)
        parts.append(lookup[column.codes] if len(column) else np.zeros(0, dtype=np.int64))
    return np.concatenate(parts)


def _align_rows(rows_a: Ints, rows_b: Ints, features: _Features) -> tuple[Ints, bool]:
    """Pairs (row a, row b, basis) of two runs of rows, and whether the search was limited."""
    token_a, token_b = features.token_a[rows_a], features.token_b[rows_b]
    head = _common(token_a, token_b)
    tail = _common(token_a[head:][::-1], token_b[head:][::-1])
    middle_a, middle_b = slice(head, token_a.size - tail), slice(head, token_b.size - tail)
    inner, basis, banded = _best_path(token_a[middle_a], token_b[middle_b], features)
    ends_a = np.r_[0:head, token_a.size - tail : token_a.size].astype(np.int64)
    ends_b = np.r_[0:head, token_b.size - tail : token_b.size].astype(np.int64)
    left = np.concatenate([ends_a, inner[:, 0] + head])
    right = np.concatenate([ends_b, inner[:, 1] + head])
    bases = np.concatenate([np.zeros(ends_a.size, dtype=np.int64), basis])
    return np.stack([rows_a[left], rows_b[right], bases], axis=1), banded


def _common(a: Ints, b: Ints) -> int:
    size = min(a.size, b.size)
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if differ.size else size


def _basis_row(token: int, tokens: Ints, features: _Features) -> npt.NDArray[np.int8]:
    """Basis index between one token and many; the number of bases when they may not be paired."""
    f = features
    same_name = f.name[tokens] == f.name[token]
    same_role = (f.role[tokens] == f.role[token]) & (f.role[token] != f.other)
    same_op = same_role & (f.op[tokens] == f.op[token]) & (f.op[token] != NO_ID)
    same_shapes = same_op & (f.shapes[tokens] == f.shapes[token]) & (f.shapes[token] != NO_ID)
    return np.select(
        [tokens == token, same_name, same_shapes, same_op, same_role], [0, 1, 2, 3, 4], default=len(BASES)
    ).astype(np.int8)


def _best_path(a: Ints, b: Ints, features: _Features) -> tuple[Ints, Ints, bool]:
    """Index pairs of the best alignment, their bases, and whether only a band was searched."""
    if a.size == 0 or b.size == 0:
        return np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64), False
    kinds_b, code_b = np.unique(b, return_inverse=True)
    weights = np.append(_SCORES, _NEVER)
    tables = {int(token): weights[_basis_row(int(token), kinds_b, features)] for token in np.unique(a)}
    width = min(b.size, max(MAX_CELLS // a.size, 512))
    banded = width < b.size
    low = _band(a.size, b.size, width)
    steps = np.zeros((a.size, width), dtype=np.uint8)
    above = np.zeros(
        width + 1, dtype=np.int32
    )  # row above at columns low-1 .. low+width-1 (0 is the empty prefix)
    above_low = 0
    for row in range(a.size):
        first = int(low[row])
        above = _shifted(above, first - above_low)
        above_low = first
        score = tables[int(a[row])][code_b[first : first + width]]
        diagonal, up = above[:-1] + score, above[1:]
        best = np.maximum.accumulate(np.maximum(np.maximum(diagonal, up), above[0] if first == 0 else _NEVER))
        before = np.concatenate([above[:1] if first == 0 else [_NEVER], best[:-1]])
        steps[row] = np.where(up == best, 2, np.where(before == best, 4, 1))
        above = np.concatenate([above[:1] if first == 0 else [_NEVER], best])
    pairs = _trace_back(steps, low, b.size)
    scores = np.array([tables[int(a[i])][code_b[j]] for i, j in pairs], dtype=np.int32)
    basis = (scores[:, None] == _SCORES[None, :]).argmax(axis=1).astype(np.int64)
    return pairs, basis, banded


def _band(rows: int, columns: int, width: int) -> Ints:
    centre = np.arange(rows) * (columns / max(rows, 1))
    return np.asarray(np.clip(centre - width / 2, 0, columns - width), dtype=np.int64)


def _shifted(values: npt.NDArray[np.int32], by: int) -> npt.NDArray[np.int32]:
    """The row above, seen from a band that begins ``by`` columns later."""
    if by == 0:
        return values
    beyond = np.full(min(by, values.size), values[-1], dtype=np.int32)
    return np.concatenate([values[by:], beyond])


def _trace_back(steps: npt.NDArray[np.uint8], low: Ints, columns: int) -> Ints:
    """Pairs of the path (1: a pair, 2: skip a row, 4: skip a column); of equally good ones the earliest places."""
    row, column = steps.shape[0] - 1, columns - 1
    found: list[tuple[int, int]] = []
    while row >= 0 and column >= 0:
        at = column - int(low[row])
        if at >= steps.shape[1]:
            column = int(low[row]) + steps.shape[1] - 1
            continue
        if at < 0:
            row -= 1
            continue
        step = steps[row, at]
        if step == 1:
            found.append((row, column))
            row, column = row - 1, column - 1
        elif step == 2:
            row -= 1
        else:
            column -= 1
    return np.array(found[::-1], dtype=np.int64).reshape(-1, 2)
