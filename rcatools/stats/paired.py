"""Two arms measured in the same blocks: t-test of the block log-ratios."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rcatools.stats import exact, ttest
from rcatools.stats.assemble import Context, assemble
from rcatools.stats.decide import Note, check_declared
from rcatools.stats.extremes import without_extreme_pair
from rcatools.stats.mixtures import modes_in_pairs
from rcatools.stats.records import DEFAULT_CONFIDENCE, DEFAULT_MARGIN, Comparison
from rcatools.stats.spread import unequal_spread
from rcatools.units import counted

Floats = NDArray[np.float64]


def compare_blocks(
    baseline: ArrayLike,
    candidate: ArrayLike,
    *,
    margin: float = DEFAULT_MARGIN,
    confidence: float = DEFAULT_CONFIDENCE,
    noise_floor: float | None = None,
    arm: str = "candidate",
    baseline_name: str = "baseline",
) -> Comparison:
    """Compare two arms measured once per block.

    Args:
        baseline: one positive time per block, shape (n,); NaN where the block lacks it.
        candidate: the same for the candidate, paired by position.
        margin: largest |ratio - 1| declared not to matter.
        confidence: level of the interval; the test uses 1 - confidence.
        noise_floor: |ratio - 1| up to which equal arms were seen to differ.
        arm: the candidate's name in the result.
        baseline_name: the baseline's name in the result.

    Returns:
        The comparison. Blocks with a missing side or a value that is not positive are counted in ``dropped``.

    Raises:
        ValueError: the shapes differ, no pair is usable, or margin or confidence are out of range.
    """
    b, c = np.asarray(baseline, dtype=float), np.asarray(candidate, dtype=float)
    if b.shape != c.shape or b.ndim != 1:
        raise ValueError(f"need two vectors of one length, got {b.shape} and {c.shape}")
    check_declared(margin, confidence)
    usable = np.isfinite(b) & np.isfinite(c) & (b > 0) & (c > 0)
    if not usable.any():
        raise ValueError(f"none of {b.size} blocks holds a positive time in both arms")
    context = Context(
        arm=arm, baseline=baseline_name, margin=margin, confidence=confidence, noise_floor=noise_floor
    )
    return compare_log_pairs(np.log(b[usable]), np.log(c[usable]), context, dropped=int((~usable).sum()))


def compare_log_pairs(
    b: Floats, c: Floats, context: Context, *, dropped: int = 0, notes: tuple[Note, ...] = ()
) -> Comparison:
    """The same on natural logs, shape (n,), n >= 1, all finite, with what the caller knows about the design."""
    d = c - b
    found = [*notes, *modes_in_pairs(b, c, d, context.screened)]
    if (note := unequal_spread(b, c)) is not None:
        found.append(note)
    warnings = (
        (
            f"{counted(dropped, 'block lacks', 'blocks lack')} one of the two arms and {'is' if dropped == 1 else 'are'} left out",
        )
        if dropped
        else ()
    )
    return assemble(
        ttest.from_pairs(d),
        context,
        paired=True,
        counts=(d.size, d.size),
        p_floor=exact.sign_flip_floor(d.size),
        p_exact=exact.sign_flip_p(d) if d.size > 1 and context.with_exact else None,
        without_extreme=without_extreme_pair(d),
        notes=tuple(found),
        warnings=warnings,
        dropped=dropped,
    )
