"""Two arms measured in separate runs without blocks: Welch's t-test on the logs of run values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rcatools.stats import exact, ttest
from rcatools.stats.assemble import Context, assemble
from rcatools.stats.decide import Note, check_declared
from rcatools.stats.extremes import without_extreme_run
from rcatools.stats.mixtures import modes_in_runs
from rcatools.stats.records import DEFAULT_CONFIDENCE, DEFAULT_MARGIN, Comparison
from rcatools.stats.spread import unequal_spread

Floats = NDArray[np.float64]


def compare_runs(
    baseline: ArrayLike,
    candidate: ArrayLike,
    *,
    margin: float = DEFAULT_MARGIN,
    confidence: float = DEFAULT_CONFIDENCE,
    noise_floor: float | None = None,
    arm: str = "candidate",
    baseline_name: str = "baseline",
) -> Comparison:
    """Compare two arms by one value per run, runs being independent.

    Args:
        baseline: positive times, shape (n,), n >= 1; entries that are not positive and finite are dropped.
        candidate: positive times, shape (m,), m >= 1.
        margin: largest |ratio - 1| declared not to matter.
        confidence: level of the interval.
        noise_floor: |ratio - 1| up to which equal arms were seen to differ.
        arm: the candidate's name in the result.
        baseline_name: the baseline's name in the result.

    Raises:
        ValueError: an arm has no usable run, or margin or confidence are out of range.
    """
    check_declared(margin, confidence)
    b, dropped_b = _usable_logs(baseline)
    c, dropped_c = _usable_logs(candidate)
    if not b.size or not c.size:
        raise ValueError("each arm needs at least one positive time")
    context = Context(
        arm=arm, baseline=baseline_name, margin=margin, confidence=confidence, noise_floor=noise_floor
    )
    return compare_log_runs(b, c, context, dropped=dropped_b + dropped_c)


def compare_log_runs(
    b: Floats,
    c: Floats,
    context: Context,
    *,
    strata: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    dropped: int = 0,
    notes: tuple[Note, ...] = (),
) -> Comparison:
    """The same on natural logs, optionally inside strata that both arms share (machine, day)."""
    difference = ttest.from_runs(b, c) if strata is None else ttest.from_strata(b, c, *strata)
    if strata is not None:
        b, c = ttest.aligned(b, c, *strata, difference.mean)
    found = [*notes, *modes_in_runs(b, c, context.screened)]
    if (note := unequal_spread(b, c)) is not None:
        found.append(note)
    both = min(b.size, c.size) > 1
    return assemble(
        difference,
        context,
        paired=False,
        counts=(b.size, c.size),
        p_floor=exact.rank_floor(b.size, c.size),
        p_exact=exact.mann_whitney_p(b, c) if both and strata is None and context.with_exact else None,
        without_extreme=without_extreme_run(b, c) if strata is None else None,
        notes=tuple(found),
        warnings=(f"{dropped} values are not positive numbers; they are left out",) if dropped else (),
        dropped=dropped,
    )


def _usable_logs(values: ArrayLike) -> tuple[Floats, int]:
    array = np.asarray(values, dtype=float).ravel()
    usable = np.isfinite(array) & (array > 0)
    return np.log(array[usable]), int((~usable).sum())
