"""Families of single runs: what many workloads say together, and what they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rcatools import units
from rcatools.stats import ttest
from rcatools.stats.assemble import with_note
from rcatools.stats.decide import Note
from rcatools.stats.mixtures import CLEAR_SEPARATION
from rcatools.stats.modes import MIN_VALUES, find_modes
from rcatools.stats.records import Estimate, GroupEstimate, Reason, Result

MIN_WORKLOADS = 3
ALL = "all"
Floats = NDArray[np.float64]


def group_estimates(
    frame: pd.DataFrame, results: Sequence[Result], confidence: float = 0.95
) -> tuple[GroupEstimate, ...]:
    """Take single-run workloads together, within each class of workloads where the table names classes.

    A class of fewer than two workloads gives its ratio without an interval. Without classes three workloads are
    needed, and the group is called "all".
    """
    single = [r for r in results if r.workload is not None and all(c.estimate.n == 1 for c in r.comparisons)]
    levels = any(Reason.MODES_IN_ARM in c.reasons for r in single for c in r.comparisons)
    if levels or len(single) < 2 or not any(r.comparisons for r in single):
        return ()
    classes = _classes(frame)
    if classes is None and len(single) < MIN_WORKLOADS:
        return ()
    column = ALL if classes is None else "class"
    ratios: dict[tuple[str | None, str, str], list[float]] = {}
    for result in single:
        value = ALL if classes is None else classes.get(str(result.workload), ALL)
        for comparison in result.comparisons:
            ratios.setdefault((result.metric, value, comparison.arm), []).append(comparison.estimate.ratio)
    return tuple(
        _group(metric, column, value, arm, d=np.log(np.array(r)), confidence=confidence)
        for (metric, value, arm), r in ratios.items()
    )


def shared_levels(results: list[Result]) -> tuple[list[Result], str | None]:
    """Mark single-run workloads that all show the same two levels, baseline low and candidates high or reverse.

    Where the baseline reads the same in every workload, the workloads repeat one measurement; a jump of all of
    them to one other level then speaks for two states of the machine as much as for several changes.
    """
    single = [
        r for r in results if r.workload is not None and r.comparisons and r.comparisons[0].estimate.n == 1
    ]
    if len(single) < MIN_WORKLOADS or len(single) != len(results) or len({r.metric for r in results}) > 1:
        return results, None
    values = np.array([level for r in single for level in r.levels.values()])
    if values.size < MIN_VALUES:
        return results, None
    modes = find_modes(values)
    base = np.array([r.levels[r.baseline] for r in single])
    middle = math.sqrt(modes.low * modes.high)
    one_level = bool(np.all(base < middle) or np.all(base > middle))
    if not modes.found or modes.separation < CLEAR_SEPARATION or not one_level:
        return results, None
    text = (
        f"the {len(single)} workloads read alike and fall on two levels {units.percent(modes.gap)} apart: "
        "one change of the machine's state explains that as well as separate changes do"
    )
    note = Note(Reason.MODES_IN_ARM, "all workloads fall on the same two levels", blocks=False)
    marked = [
        replace(
            r,
            comparisons=tuple(with_note(c, note) for c in r.comparisons),
        )
        for r in results
    ]
    return marked, text


def _classes(frame: pd.DataFrame) -> dict[str, str] | None:
    if "class" not in frame.columns or "workload" not in frame.columns:
        return None
    pairs = frame[["workload", "class"]].astype(str).drop_duplicates()
    return (
        None
        if pairs["workload"].duplicated().any()
        else dict(zip(pairs["workload"], pairs["class"], strict=True))
    )


def _group(
    metric: str | None, column: str, value: str, arm: str, *, d: Floats, confidence: float
) -> GroupEstimate:
    difference = ttest.from_pairs(d)
    low, high = difference.interval(confidence)
    return GroupEstimate(
        metric=metric,
        column=column,
        value=value,
        arm=arm,
        estimate=Estimate(difference.ratio, low, high, difference.n, difference.sd),
        p_value=difference.p_value(),
        spread=(math.exp(float(d.min())), math.exp(float(d.max()))),
    )
