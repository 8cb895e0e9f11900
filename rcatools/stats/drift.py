"""Trends along the order of measurement, and whether they explain what looks like an effect."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rcatools import units
from rcatools.stats.decide import Note
from rcatools.stats.records import Drift, Reason
from rcatools.stats.ttest import from_pairs, from_runs, t_quantile, t_tail

MIN_VALUES = 5
MAX_VALUES = 500  # Theil-Sen compares all pairs; longer series are averaged to this many points
ALPHA = 0.01
EXPLAINED_SHARE = 0.5
Floats = NDArray[np.float64]


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
    steps = np.flatnonzero(np.isfinite(logs)).astype(float)
    logs = logs[np.isfinite(logs)]
    if logs.size > MAX_VALUES:
        steps, logs = (
            np.array([part.mean() for part in np.array_split(v, MAX_VALUES)]) for v in (steps, logs)
        )
    if logs.size < MIN_VALUES or np.ptp(logs) == 0:
        return None
    from scipy import stats  # half a second, needed where a trend is asked for

    slope = float(stats.theilslopes(logs, steps).slope)
    p_value = float(stats.kendalltau(steps, logs).pvalue)
    total = math.expm1(slope * float(steps[-1] - steps[0]))
    centred = logs - logs.mean()
    lag1 = float((centred[1:] @ centred[:-1]) / (centred @ centred))
    return Drift(math.expm1(slope), total, p_value, lag1, p_value <= alpha and abs(total) >= min_total)


def explains(
    b: Floats, c: Floats, order_b: Floats, order_c: Floats, *, paired: bool, alpha: float = 0.05
) -> Note | None:
    """Whether a straight drift along a known order explains the difference of two arms.

    Unpaired runs, and pairs whose arms always ran in the same order, are fitted by a common slope along the order
    and a step between the arms. Where one arm came entirely first, a slope that leaves no certain step forbids a
    verdict, and so do neighbours that are alike; otherwise a slope that takes more than half of the step does.
    Pairs in varying order show the slope by themselves: their differences are fitted along the distance in order.
    A difference that the plain test does not see needs no explanation.

    Args:
        b: logs of the baseline's runs (of its blocks, when paired).
        c: logs of the candidate's runs.
        order_b: position of each baseline run, over all runs or inside its block.
        order_c: position of each candidate run.
        paired: whether the verdict rests on block pairs, which need a clearer slope to be overruled.
        alpha: level of the plain test and of the slope.
    """
    order = np.concatenate([order_b, order_c])
    if b.size + c.size < MIN_VALUES or min(b.size, c.size) < 2 or not np.isfinite(order).all():
        return None
    p_value = (from_pairs(c - b) if paired else from_runs(b, c)).p_value()
    if p_value is None:
        return None
    if paired:
        return _explains_pairs(b, c, order_b, order_c, shown=p_value < alpha)
    apart = bool(order_b.max() < order_c.min() or order_c.max() < order_b.min())
    text = "all runs of one arm came before the other's; a change in between would look the same"
    fitted = _step_and_slope(b, c, order)
    if p_value < alpha and fitted is not None:
        effect = float(c.mean() - b.mean())
        uncertain = (
            fitted.step * effect <= 0 or abs(fitted.step) <= t_quantile(0.975, fitted.df) * fitted.error
        )
        if apart and fitted.p_slope <= 2 * alpha and uncertain:
            return Note(Reason.ORDER_OR_DRIFT, _drift_text(fitted, effect, "one arm came first"), True)
        if apart and wanders(b, order_b, c, order_c):
            text = "one arm came first, and neighbours in time are alike: a wandering machine explains it as well"
            return Note(Reason.ORDER_OR_DRIFT, text, True)
        if not apart and fitted.p_slope <= alpha and _takes(fitted, effect):
            return Note(Reason.ORDER_OR_DRIFT, _drift_text(fitted, effect, "the arms alternate"), True)
    return Note(Reason.ORDER_OR_DRIFT, text, False) if apart else None


def _explains_pairs(b: Floats, c: Floats, order_b: Floats, order_c: Floats, *, shown: bool) -> Note | None:
    distance, effect = order_c - order_b, float(c.mean() - b.mean())
    varied = bool(np.ptp(distance) > 0)
    over_all = np.unique(np.concatenate([order_b, order_c])).size == b.size + c.size
    fitted = None
    if varied:
        fitted = _least_squares(np.column_stack([np.ones(b.size), distance]), c - b)
    elif over_all:
        fitted = _step_and_slope(b, c, np.concatenate([order_b, order_c]))
    if shown and fitted is not None and fitted.p_slope <= ALPHA and _takes(fitted, effect):
        return Note(Reason.ORDER_OR_DRIFT, _drift_text(fitted, effect, "inside and between blocks"), True)
    if varied or distance[0] == 0:
        return None
    later = "after" if distance[0] > 0 else "before"
    text = f"the candidate always ran {later} the baseline; what changes inside a block would look the same"
    return Note(Reason.ORDER_OR_DRIFT, text, False)


def wanders(b: Floats, order_b: Floats, c: Floats, order_c: Floats, alpha: float = 0.05) -> bool:
    """Whether neighbours in time are alike inside both arms: lag-1 autocorrelation, one-sided.

    Under independence it has a bias of -1/n and a standard error near 1/sqrt(n) (Bartlett 1946).
    """
    products = squares = expected = 0.0
    for logs, order in ((b, order_b), (c, order_c)):
        e = logs[np.argsort(order, kind="stable")]
        e = e - e.mean()
        products += float(e[1:] @ e[:-1])
        squares += float(e @ e)
        expected -= float(e @ e) / e.size
    n = b.size + c.size
    if squares <= 0 or n < 2 * MIN_VALUES:
        return False
    return (products - expected) / squares * math.sqrt(n) > t_quantile(1 - alpha, 1e6)


def follows_run_numbers(b: Floats, c: Floats, run_b: Floats, run_c: Floats, margin: float) -> Note | None:
    """A drift along run numbers that restart in each arm, so that the true order of the arms is unknown.

    It forbids a verdict where the candidate's runs continue the baseline's drift: the step between the arms is
    what the slope gives over one arm's length.
    """
    if min(b.size, c.size) < 4 or not (np.isfinite(run_b).all() and np.isfinite(run_c).all()):
        return None
    fitted = _step_and_slope(b, c, np.concatenate([run_b - run_b.min(), run_c - run_c.min()]))
    if fitted is None or fitted.p_slope > ALPHA:
        return None
    per_step, effect = fitted.per_step, float(c.mean() - b.mean())
    over_an_arm = per_step * (np.ptp(run_b) + 1)
    if abs(over_an_arm) < math.log1p(margin) / 2:
        return None
    same = bool(effect != 0 and EXPLAINED_SHARE <= over_an_arm / effect <= 1 / EXPLAINED_SHARE)
    text = f"values drift by {units.signed_percent(math.expm1(per_step))} a run inside both arms"
    text += "; if the arms were run one after the other, that is the whole difference" if same else ""
    return Note(Reason.ORDER_OR_DRIFT, text, same)


def of_the_effect(d: Floats, margin: float) -> Note | None:
    """A note when block log-ratios change along the blocks by more than the margin."""
    found = trend(np.exp(d), min_total=margin)
    if found is None or not found.found:
        return None
    text = (
        f"the effect itself changes by {units.signed_percent(found.total)} from the first to the last block"
    )
    return Note(Reason.ORDER_OR_DRIFT, text, False)


@dataclass(frozen=True)
class _Fitted:
    step: float
    error: float
    p_slope: float
    per_step: float
    df: int


def _step_and_slope(b: Floats, c: Floats, order: Floats) -> _Fitted | None:
    """A step between the arms and a common slope along the order."""
    is_c = np.concatenate([np.zeros(b.size), np.ones(c.size)])
    return _least_squares(
        np.column_stack([is_c, order - order.mean(), np.ones(is_c.size)]), np.concatenate([b, c])
    )


def _least_squares(design: Floats, y: Floats) -> _Fitted | None:
    """Step (first column) and slope (second column), None where the design cannot tell them apart."""
    df = y.size - design.shape[1]
    if df < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    inverse = np.linalg.inv(design.T @ design)
    beta = inverse @ design.T @ y
    residual = y - design @ beta
    error = np.sqrt(np.diag(inverse) * max(float(residual @ residual) / df, 1e-24))
    p_slope = 2 * t_tail(abs(float(beta[1])) / float(error[1]), df)
    return _Fitted(float(beta[0]), float(error[0]), p_slope, float(beta[1]), df)


def _takes(fitted: _Fitted, effect: float) -> bool:
    """Whether the slope takes more than half of the effect, or turns it round."""
    return fitted.step * effect <= 0 or abs(fitted.step) < (1 - EXPLAINED_SHARE) * abs(effect)


def _drift_text(fitted: _Fitted, effect: float, where: str) -> str:
    return (
        f"values drift by {units.signed_percent(math.expm1(fitted.per_step))} a step of the order ({where}); "
        f"of {units.signed_percent(math.expm1(effect))} in time it leaves "
        f"{units.signed_percent(math.expm1(fitted.step))}"
    )
