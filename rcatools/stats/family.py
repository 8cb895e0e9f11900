"""One correction over everything a table compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rcatools.stats.assemble import with_adjusted_p
from rcatools.stats.multiplicity import dunnett, false_discovery, holm
from rcatools.stats.records import Comparison, Reason, Result, worst

DUNNETT_UP_TO = 20
MIN_EFFECT_FROM = 10  # from so many comparisons on, a verdict also needs the margin as effect

RunsOf = Callable[[Result, str], NDArray[np.float64] | None]


def correct(results: Sequence[Result], runs_of: RunsOf) -> tuple[list[Result], str]:
    """Correct p-values and judge again.

    Several metrics or workloads: Benjamini-Hochberg over all of them, and from ten comparisons on a minimum
    effect of the margin. One result with several arms: Dunnett for independent runs of like spread, Holm
    otherwise. One comparison: nothing.

    Returns:
        The results and the correction's name.
    """
    if len(results) > 1:
        return _benjamini_hochberg(results), "benjamini-hochberg"
    if not results or len([c for c in results[0].comparisons if c.facts is not None]) < 2:
        return list(results), "none"
    adjusted = _dunnett(results[0], runs_of)
    name = "holm" if adjusted is None else "dunnett"
    if adjusted is None:
        adjusted = holm([_p(c) for c in results[0].comparisons]).tolist()
    return [_replace(results[0], adjusted, 0.0)], name


def _benjamini_hochberg(results: Sequence[Result]) -> list[Result]:
    raw = [_p(c) for result in results for c in result.comparisons]
    adjusted = false_discovery(raw).tolist()
    many = len(raw) >= MIN_EFFECT_FROM
    out, start = [], 0
    for result in results:
        end = start + len(result.comparisons)
        least = result.comparisons[0].margin if many and result.comparisons else 0.0
        out.append(_replace(result, adjusted[start:end], least))
        start = end
    return out


def _dunnett(result: Result, runs_of: RunsOf) -> list[float] | None:
    """Dunnett's p-values, or None where its assumptions do not hold."""
    arms = result.comparisons
    plain = all(
        not c.paired and c.estimate.n >= 3 and c.facts is not None and Reason.UNEQUAL_SPREAD not in c.reasons
        for c in arms
    )
    if (
        not plain
        or len(arms) > DUNNETT_UP_TO
        or Reason.MIXED_MACHINES in {r for c in arms for r in c.reasons}
    ):
        return None
    baseline = runs_of(result, result.baseline)
    runs = [runs_of(result, c.arm) for c in arms]
    if baseline is None or any(r is None for r in runs):
        return None
    return list(dunnett([np.exp(r) for r in runs if r is not None], np.exp(baseline)))


def _replace(result: Result, adjusted: Sequence[float], min_effect: float) -> Result:
    comparisons = tuple(
        with_adjusted_p(c, p, min_effect) if c.facts is not None and np.isfinite(p) else c
        for c, p in zip(result.comparisons, adjusted, strict=True)
    )
    return replace(result, comparisons=comparisons, verdict=worst(c.verdict for c in comparisons))


def _p(comparison: Comparison) -> float:
    return float("nan") if comparison.p_value is None else comparison.p_value
