"""From a difference and what is known about its design to a ``Comparison``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rcatools.stats.decide import Facts, Note, judge
from rcatools.stats.detection import detectable
from rcatools.stats.records import Comparison, Estimate, WithoutExtreme
from rcatools.stats.ttest import LogDifference


@dataclass(frozen=True)
class Context:
    """What was declared, or is known before the runs are looked at.

    Attributes:
        arm: the candidate's name.
        baseline: the baseline's name.
        margin: declared margin.
        confidence: level of intervals.
        noise_floor: A/A floor as |ratio - 1|, or None.
        with_exact: also compute the exact p-value (costs most in large families).
        screened: the caller has tested all runs for modes in bulk and found none here.
    """

    arm: str
    baseline: str
    margin: float
    confidence: float
    noise_floor: float | None = None
    with_exact: bool = True
    screened: bool = False


def assemble(
    difference: LogDifference,
    context: Context,
    *,
    paired: bool,
    counts: tuple[int, int],
    p_floor: float | None = None,
    p_exact: float | None = None,
    without_extreme: WithoutExtreme | None = None,
    notes: tuple[Note, ...] = (),
    warnings: tuple[str, ...] = (),
    dropped: int = 0,
) -> Comparison:
    """Judge a difference and put everything a reader needs into one record."""
    low, high = difference.interval(context.confidence)
    alpha = 1 - context.confidence
    facts = Facts(
        difference=difference,
        margin=context.margin,
        alpha=alpha,
        p_floor=p_floor,
        noise_floor=context.noise_floor,
        without_extreme=without_extreme,
        notes=notes,
    )
    verdict, reasons, texts = judge(facts)
    return Comparison(
        arm=context.arm,
        baseline=context.baseline,
        estimate=Estimate(difference.ratio, low, high, difference.n, difference.sd),
        p_value=difference.p_value(),
        p_floor=p_floor,
        mde=detectable(difference, alpha=alpha),
        margin=context.margin,
        verdict=verdict,
        reasons=reasons,
        warnings=(*texts, *warnings),
        p_exact=p_exact,
        p_equivalence=difference.p_equivalence(context.margin),
        confidence=context.confidence,
        paired=paired,
        n_baseline=counts[0],
        n_candidate=counts[1],
        dropped=dropped,
        noise_floor=context.noise_floor,
        without_extreme=without_extreme,
        facts=facts,
        own_warnings=warnings,
    )


def with_adjusted_p(comparison: Comparison, p_adjusted: float, min_effect: float = 0.0) -> Comparison:
    """Judge again with a p-value corrected over everything that was compared."""
    assert comparison.facts is not None
    facts = replace(comparison.facts, p_adjusted=p_adjusted, min_effect=min_effect)
    return replace(_judged_again(comparison, facts), p_adjusted=p_adjusted)


def with_note(comparison: Comparison, note: Note) -> Comparison:
    """Judge again with a disturbance that was found later, from more than this comparison's own runs."""
    if comparison.facts is None:  # the design alone forbids a verdict; a further note changes nothing
        reasons = dict.fromkeys([*comparison.reasons, note.reason])
        return replace(comparison, reasons=tuple(reasons), warnings=(*comparison.warnings, note.text))
    return _judged_again(comparison, replace(comparison.facts, notes=(*comparison.facts.notes, note)))


def _judged_again(comparison: Comparison, facts: Facts) -> Comparison:
    verdict, reasons, texts = judge(facts)
    return replace(
        comparison,
        facts=facts,
        verdict=verdict,
        reasons=reasons,
        warnings=(*texts, *comparison.own_warnings),
    )
