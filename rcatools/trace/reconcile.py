"""Do the kernels explain the end to end? Arithmetic that keeps what is explained apart from what is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rcatools.trace.diff import TraceDiff


@dataclass(frozen=True)
class Reconciliation:
    """The traces' change per step against the measured one, in microseconds.

    Attributes:
        steps: steps in each trace.
        measured_delta_us: candidate minus baseline of the measured step.
        kernels_us: change of kernel, copy and set durations per step.
        gaps_us: change of idle time (minus overlap) per step.
        explained_share: (kernels + gaps) / measured; None when nothing was measured to change.
        unexplained_us: measured minus both.
        measured_ratio: candidate over baseline.
        statement: the same in a sentence.
    """

    steps: int
    measured_delta_us: float
    kernels_us: float
    gaps_us: float
    explained_share: float | None
    unexplained_us: float
    measured_ratio: float
    statement: str

    def to_json(self) -> dict[str, Any]:
        """The form of the command line."""
        return vars(self)


def reconcile(
    difference: TraceDiff, steps: int, measured_a_us: float, measured_b_us: float
) -> Reconciliation:
    """Compare a trace diff with a measured step time of both sides.

    Args:
        difference: of traces that hold ``steps`` steps each.
        steps: number of steps in each trace.
        measured_a_us: measured time of one step of the baseline, without a profiler.
        measured_b_us: the same of the candidate.

    Raises:
        ValueError: a count or time that is not positive.
    """
    if steps < 1 or measured_a_us <= 0 or measured_b_us <= 0:
        raise ValueError("steps and measured times must be positive")
    gaps = difference.terms["gaps_us"] / steps
    kernels = difference.total_delta_us / steps - gaps
    measured = measured_b_us - measured_a_us
    share = (kernels + gaps) / measured if measured else None
    text = (
        f"Measured: {measured:+.3f} us per step ({100 * (measured_b_us / measured_a_us - 1):+.2f} %). The traces show "
        f"{kernels:+.3f} us in kernels and {gaps:+.3f} us in gaps"
    )
    text += f", {100 * share:.0f} % of it." if share is not None else "."
    return Reconciliation(
        steps, measured, kernels, gaps, share, measured - kernels - gaps, measured_b_us / measured_a_us, text
    )


@dataclass(frozen=True)
class Prediction:
    """What a change of one kernel must do to a step, and what was seen.

    Attributes:
        predicted_us: change per call times calls per step.
        predicted_share: of the baseline's step.
        observed_us: measured change of the step; None when it was not measured.
        observed_share: of the baseline's step.
    """

    predicted_us: float
    predicted_share: float
    observed_us: float | None
    observed_share: float | None


def predict(
    before_us: float,
    after_us: float,
    calls_per_step: float,
    step_before_us: float,
    step_after_us: float | None = None,
) -> Prediction:
    """Carry a per-call change to the step.

    Raises:
        ValueError: a step time or count that is not positive.
    """
    if calls_per_step <= 0 or step_before_us <= 0:
        raise ValueError("calls per step and the step time must be positive")
    predicted = (after_us - before_us) * calls_per_step
    observed = None if step_after_us is None else step_after_us - step_before_us
    return Prediction(
        predicted,
        predicted / step_before_us,
        observed,
        None if observed is None else observed / step_before_us,
    )


@dataclass(frozen=True)
class Share:
    """How much of the difference of two totals one part is.

    Attributes:
        delta_us: difference of the part.
        of_difference: its share of the difference of the totals.
        total_ratio: total of a over total of b.
        best_ratio: speed-up of a if the part cost nothing (Amdahl 1967).
        remaining_ratio: total of a without the part over total of b.
    """

    delta_us: float
    of_difference: float
    total_ratio: float
    best_ratio: float
    remaining_ratio: float


def share_of_difference(total_a_us: float, total_b_us: float, part_a_us: float, part_b_us: float) -> Share:
    """Test the claim that one part of a is why a takes longer than b.

    Raises:
        ValueError: totals that are equal or not above their parts.
    """
    if total_a_us == total_b_us or total_b_us <= 0 or total_a_us <= part_a_us:
        raise ValueError("the totals must differ, be positive and exceed the part")
    delta = part_a_us - part_b_us
    without = total_a_us - part_a_us
    return Share(
        delta,
        delta / (total_a_us - total_b_us),
        total_a_us / total_b_us,
        total_a_us / without,
        without / total_b_us,
    )
