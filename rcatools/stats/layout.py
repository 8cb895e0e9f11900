"""Finds the unit of replication in a table's columns and reduces samples to it.

Samples lie inside runs, runs inside blocks, blocks inside machines and days. A run becomes one number, the median
of its log times. What a table calls ``block`` pairs arms; without it runs are independent; without both, each
row is taken for a run, unless the rows are samples by name or by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MAX_SAMPLES_AS_RUNS = 10  # so few repetitions an arm are started one by one; more come out of a loop
MAX_ROWS_AS_RUNS = 60

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Cell:
    """The runs of one arm in one metric and workload; all arrays have one entry per run.

    Attributes:
        logs: median natural log of the time-like value.
        block: block code, equal codes are the same block (zeros without blocks).
        stratum: code of machine and day together.
        machine: machine code.
        day: day code.
        order: position in time, NaN where unknown.
        samples: samples in the run.
        sd_within: standard deviation of log samples inside the run, NaN for one sample.
    """

    logs: Floats
    block: Codes
    stratum: Codes
    machine: Codes
    day: Codes
    order: Floats
    samples: Codes
    sd_within: Floats


@dataclass(frozen=True)
class Layout:
    """A table by groups and arms.

    Attributes:
        groups: (metric, workload) of each group, None where the table has no such column.
        arms: arm names in order of appearance.
        cells: runs by (group index, arm index).
        unit: "block", "run" or "row".
        order_is_run_number: the order comes from run labels, which restart in each arm.
        samples_as_runs: rows named samples were taken as runs; no verdict may rest on that.
        pooled: rows were many samples without runs; each arm was reduced to a single run.
        warnings: sentences for a reader.
    """

    groups: tuple[tuple[str | None, str | None], ...]
    arms: tuple[str, ...]
    cells: dict[tuple[int, int], Cell]
    unit: str
    order_is_run_number: bool
    samples_as_runs: bool
    pooled: bool
    warnings: tuple[str, ...]


def lay_out(frame: pd.DataFrame, baseline: str, unit: str = "auto") -> Layout:
    """Reduce a long table to runs.

    Args:
        frame: columns ``arm`` and ``value`` (positive, time-like), and any of ``metric``, ``workload``,
            ``machine``, ``day``, ``block``, ``run``, ``sample``, ``order``.
        baseline: the arm that blocks must share to count as blocks.
        unit: "auto", or "block", "run", "row" to overrule what the columns say.
    """
    arm, arms = _codes(frame, "arm")
    metric, metrics = _codes(frame, "metric")
    workload, workloads = _codes(frame, "workload")
    group, group_first = _dense(_combine([metric, workload]))
    block, _ = _codes(frame, "block")
    run, _ = _codes(frame, "run")
    machine, _ = _codes(frame, "machine")
    day, _ = _codes(frame, "day")
    stratum = _combine([machine, day])
    base = arms.index(baseline) if baseline in arms else -1
    chosen, flags, warnings = _choose_unit(
        frame, arm == base, _combine([group, arm]), _combine([group, block]), unit
    )
    if chosen == "row":
        run = np.arange(len(frame), dtype=np.int64)
    elif flags["pooled"]:
        run = np.zeros(len(frame), dtype=np.int64)
    elif chosen == "block" and not {"run", "sample"} & set(frame.columns):
        run = _turns(_combine([group, arm, stratum, block]), arm == base)
    order, order_is_run_number = _order(frame)
    key = _combine([group, arm, stratum, block, run])
    runs = _reduce(np.log(frame["value"].to_numpy(dtype=float)), key, order)
    first = runs["first"]
    table = {
        "group": group[first],
        "arm": arm[first],
        "block": block[first],
        "stratum": stratum[first],
        "machine": machine[first],
        "day": day[first],
    }
    names = tuple(
        (
            metrics[metric[i]] if metrics else None,
            workloads[workload[i]] if workloads else None,
        )
        for i in group_first
    )
    return Layout(
        groups=names,
        arms=tuple(arms),
        cells=_cells(table, runs),
        unit=chosen,
        order_is_run_number=order_is_run_number,
        samples_as_runs=flags["samples_as_runs"],
        pooled=flags["pooled"],
        warnings=tuple(warnings),
    )


def _choose_unit(
    frame: pd.DataFrame, is_base: NDArray[np.bool_], cell: Codes, place: Codes, unit: str
) -> tuple[str, dict[str, bool], list[str]]:
    flags = {"samples_as_runs": False, "pooled": False}
    warnings: list[str] = []
    if unit != "auto":
        return unit, flags, [f"each {unit} was taken as one replicate because the call said so"]
    if "block" in frame.columns:
        shared = np.intersect1d(place[is_base], place[~is_base])
        if shared.size:
            return "block", flags, warnings
        warnings.append("no block holds the baseline and another arm; blocks cannot pair anything here")
    if "run" in frame.columns or "block" in frame.columns:
        return "run", flags, warnings
    most = int(np.bincount(_dense(cell)[0]).max())
    if "sample" in frame.columns and most > 1:
        if most > MAX_SAMPLES_AS_RUNS:
            flags["pooled"] = True
            return "run", flags, warnings
        flags["samples_as_runs"] = True
    elif most > MAX_ROWS_AS_RUNS:
        flags["pooled"] = True
        return "run", flags, warnings
    return "row", flags, warnings


def _turns(place: Codes, is_base: NDArray[np.bool_]) -> Codes:
    """Turn of each row in its arm and block where only the baseline stands twice there; zeros otherwise.

    Then its second turn is the baseline measured again, and not a further sample of the first.
    """
    count = np.bincount(_dense(place)[0])[_dense(place)[0]]
    if not is_base.any() or count[~is_base].max(initial=1) > 1 or np.median(count[is_base]) != 2:
        return np.zeros(place.size, dtype=np.int64)
    return np.asarray(pd.Series(place).groupby(place, sort=False).cumcount(), dtype=np.int64)


def _codes(frame: pd.DataFrame, column: str) -> tuple[Codes, list[str]]:
    """Integer codes of a column in order of appearance and the names; zeros and no names without it."""
    if column not in frame.columns:
        return np.zeros(len(frame), dtype=np.int64), []
    codes, uniques = pd.factorize(frame[column], use_na_sentinel=False)
    return codes.astype(np.int64), [str(u) for u in uniques]


def _combine(columns: Sequence[Codes]) -> Codes:
    """One code per distinct combination of codes, kept small so that it cannot overflow."""
    total, size = columns[0], int(columns[0].max(initial=0)) + 1
    for codes in columns[1:]:
        width = int(codes.max(initial=0)) + 1
        if width == 1:
            continue
        if size * width > 2**62:
            total, first = _dense(total)
            size = first.size
        total, size = total * width + codes, size * width
    return total


def _dense(codes: Codes) -> tuple[Codes, Codes]:
    """Codes renumbered by first appearance, and the row of each first appearance."""
    dense, _ = pd.factorize(codes)
    dense = dense.astype(np.int64)
    first = np.full(int(dense.max(initial=-1)) + 1, -1, dtype=np.int64)
    first[dense[::-1]] = np.arange(dense.size - 1, -1, -1)
    return dense, first


def _order(frame: pd.DataFrame) -> tuple[Floats, bool]:
    for column in ("order", "run"):
        if column in frame.columns:
            codes, labels = _codes(frame, column)
            numbers = pd.to_numeric(pd.Series(labels, dtype=str), errors="coerce").to_numpy(dtype=float)
            if np.isfinite(numbers).all():
                return numbers[codes], column == "run"
    return np.full(len(frame), np.nan), False


def _reduce(logs: Floats, key: Codes, order: Floats) -> dict[str, NDArray[np.generic]]:
    """Median, count, spread, first row and earliest order of each key, keys in order of first appearance."""
    dense, first = _dense(key)
    count = np.bincount(dense, minlength=first.size)
    if count.max(initial=0) <= 1:
        return {
            "logs": logs,
            "samples": count,
            "sd": np.full(logs.size, np.nan),
            "order": order,
            "first": first,
        }
    position = np.lexsort((logs, dense))
    ordered = logs[position]
    start = np.concatenate([[0], np.cumsum(count)[:-1]])
    median = (ordered[start + (count - 1) // 2] + ordered[start + count // 2]) / 2
    mean = np.bincount(dense, weights=logs) / count
    squares = np.bincount(dense, weights=(logs - mean[dense]) ** 2)
    sd = np.sqrt(np.divide(squares, count - 1, out=np.full(first.size, np.nan), where=count > 1))
    earliest = np.full(first.size, np.nan)
    if np.isfinite(order).all():
        earliest = np.full(first.size, np.inf)
        np.minimum.at(earliest, dense, order)
    return {"logs": median, "samples": count, "sd": sd, "order": earliest, "first": first}


def _cells(table: dict[str, Codes], runs: dict[str, NDArray[np.generic]]) -> dict[tuple[int, int], Cell]:
    num_arms = int(table["arm"].max(initial=0)) + 1
    place = table["group"] * num_arms + table["arm"]
    by_place = np.argsort(place, kind="stable")
    sorted_place = place[by_place]
    bounds = np.flatnonzero(np.diff(sorted_place)) + 1
    starts = np.concatenate([[0], bounds])
    ends = np.concatenate([bounds, [place.size]])
    columns = {name: np.asarray(values)[by_place] for name, values in {**table, **runs}.items()}
    cells = {}
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        part = slice(start, end)
        cells[divmod(int(sorted_place[start]), num_arms)] = Cell(
            logs=columns["logs"][part],
            block=columns["block"][part],
            stratum=columns["stratum"][part],
            machine=columns["machine"][part],
            day=columns["day"][part],
            order=columns["order"][part],
            samples=columns["samples"][part],
            sd_within=columns["sd"][part],
        )
    return cells
