"""A/A tables: the spread of runs of one build, or the difference of two arms of it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rcatools.errors import InputError
from rcatools.stats import design, ttest
from rcatools.stats.layout import lay_out
from rcatools.stats.ttest import LogDifference


def runs_of(frame: pd.DataFrame) -> tuple[float, ...]:
    """The values of the runs of one build, time-like; samples are reduced to their run first.

    Raises:
        InputError: fewer than three runs.
    """
    layout = lay_out(frame, str(frame["arm"].iloc[0]))
    logs = np.concatenate([cell.logs for cell in layout.cells.values()])
    if logs.size < 3:
        raise InputError(f"the A/A table holds {logs.size} runs; a noise floor needs at least 3, give more")
    return tuple(float(v) for v in np.exp(logs))


def difference_of(frame: pd.DataFrame) -> LogDifference:
    """The A/A difference of two arms of one build, paired by block where they share blocks.

    Raises:
        InputError: fewer than two replicates.
    """
    first = str(frame["arm"].iloc[0])
    layout = lay_out(frame, first)
    base = layout.arms.index(first)
    a, b = layout.cells[(0, base)], layout.cells[(0, 1 - base)]
    if layout.unit == "block":
        pairs = design.pair(a, b)
        difference = ttest.from_pairs(pairs.c - pairs.b) if pairs.b.size else None
    else:
        difference = ttest.from_runs(a.logs, b.logs)
    if difference is None or difference.sd is None:
        raise InputError(
            "the A/A tables hold fewer than two replicates an arm; a noise floor needs more, give them"
        )
    return difference
