"""Two arms measured in the same blocks: t-test of the block log-ratios."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rcatools.stats import decide, exact
from rcatools.stats.detection import smallest_detectable
from rcatools.stats.extremes import without_extreme_pair
from rcatools.stats.modes import MIN_VALUES, find_modes
from rcatools.stats.records import DEFAULT_CONFIDENCE, DEFAULT_MARGIN, Comparison, Estimate


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
        ValueError: the shapes differ, or margin or confidence are out of range.
    """
    b, c = np.asarray(baseline, dtype=float), np.asarray(candidate, dtype=float)
    if b.shape != c.shape or b.ndim != 1:
        raise ValueError(f"need two vectors of one length, got {b.shape} and {c.shape}")
    decide.check_declared(margin, confidence)
    usable = np.isfinite(b) & np.isfinite(c) & (b > 0) & (c > 0)
    b, c = b[usable], c[usable]
    d = np.log(c) - np.log(b)
    estimate, p_value, p_equivalence = _t_test(d, margin, confidence)
    alpha = 1 - confidence
    sd = estimate.sd_log
    modes = find_modes(np.exp(d)) if d.size >= MIN_VALUES else None
    facts = decide.Facts(
        estimate=estimate,
        p_value=p_value,
        p_equivalence=p_equivalence,
        p_floor=exact.sign_flip_floor(d.size) if d.size else None,
        margin=margin,
        alpha=alpha,
        noise_floor=noise_floor,
        n_smaller=d.size,
        without_extreme=without_extreme_pair(d, alpha) if d.size >= 3 else None,
        modes_in_difference=modes,
    )
    verdict, reasons, warnings = decide.judge(facts)
    dropped = int((~usable).sum())
    if dropped:
        warnings = (
            *warnings,
            f"{dropped} blocks lack one side or hold no positive number; they are left out",
        )
    return Comparison(
        arm=arm,
        baseline=baseline_name,
        estimate=estimate,
        p_value=p_value,
        p_floor=facts.p_floor,
        mde=None if sd is None else smallest_detectable(sd, d.size, alpha=alpha),
        margin=margin,
        verdict=verdict,
        reasons=reasons,
        warnings=warnings,
        p_exact=exact.sign_flip_p(d) if d.size else None,
        p_equivalence=p_equivalence,
        confidence=confidence,
        paired=True,
        n_baseline=d.size,
        n_candidate=d.size,
        dropped=dropped,
        noise_floor=noise_floor,
        without_extreme=facts.without_extreme,
        modes_baseline=find_modes(b) if d.size >= MIN_VALUES else None,
        modes_candidate=find_modes(c) if d.size >= MIN_VALUES else None,
    )


def _t_test(
    d: NDArray[np.float64], margin: float, confidence: float
) -> tuple[Estimate, float | None, float | None]:
    """Estimate, two-sided p and equivalence p of log differences."""
    n = d.size
    if n == 0:
        return Estimate(float("nan"), None, None, 0, None), None, None
    mean = float(d.mean())
    if n == 1:
        return Estimate(math.exp(mean), None, None, 1, None), None, None
    sd = float(d.std(ddof=1))
    error = sd / math.sqrt(n)
    half = float(stats.t.ppf(0.5 + confidence / 2, n - 1)) * error
    estimate = Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n, sd)
    return estimate, decide.two_sided_p(mean, error, n - 1), decide.equivalence_p(mean, error, n - 1, margin)
