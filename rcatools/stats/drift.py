"""Trends along the order of measurement, and whether order can be told from the arm."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from rcatools.stats.records import Drift

MIN_VALUES = 5
ALPHA = 0.01


def trend(values: ArrayLike, *, alpha: float = ALPHA, min_total: float = 0.0) -> Drift | None:
    """Theil-Sen slope and Kendall's tau of positive values in the order they were taken.

    Args:
        values: shape (n,), positive times; entries that are not finite are left out.
        alpha: level of the test.
        min_total: smallest relative change over the series that counts as found.

    Returns:
        The trend, or None with fewer than five values.
    """
    logs = np.log(np.asarray(values, dtype=float))
    steps = np.flatnonzero(np.isfinite(logs))
    logs = logs[steps]
    if logs.size < MIN_VALUES or np.ptp(logs) == 0:
        return None
    slope = float(stats.theilslopes(logs, steps).slope)
    p_value = float(stats.kendalltau(steps, logs).pvalue)
    total = math.expm1(slope * float(steps[-1] - steps[0]))
    centred = logs - logs.mean()
    lag1 = float((centred[1:] @ centred[:-1]) / (centred @ centred))
    found = p_value <= alpha and abs(total) >= min_total
    return Drift(math.expm1(slope), total, p_value, lag1, found)
