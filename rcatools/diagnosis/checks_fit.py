"""The check delta_fit: what kernels timed alone take longer, as a fixed cost per launch and a share of their length."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.checks_kernels import (
    BETWEEN,
    above,
    declared_kernels,
    kernel_evidence,
    kernel_logs,
    per_step,
    timed_pair,
)
from rcatools.diagnosis.checks_time import not_tested
from rcatools.diagnosis.means import Mean, detectable, mean_over_blocks
from rcatools.diagnosis.parts import Outcome
from rcatools.diagnosis.vocabulary import DeltaFit
from rcatools.diagnosis.wording import SOME, said
from rcatools.recording import Recording
from rcatools.stats.decide import MIN_REPLICATES
from rcatools.units import counted

Floats = NDArray[np.float64]


def fit_per_block(base: Floats, delta: Floats, classes: Floats) -> Floats | None:
    """Coefficients of delta = a + sum of b_c x base over the classes, fitted in every block by itself.

    Every equation is weighted by 1 / base squared, which suits errors proportional to a kernel's duration.

    Args:
        base: shape (blocks, kernels), microseconds.
        delta: the same shape.
        classes: 0 or 1, shape (classes, kernels): which kernels each slope speaks about.

    Returns:
        Shape (blocks, 1 + classes), the intercept first; None where the kernels do not determine it.
    """
    columns = [1.0 / base, *(np.broadcast_to(row, base.shape) for row in classes)]
    design = np.stack(columns, axis=-1)
    if design.shape[1] < design.shape[2] or np.linalg.cond(design.mean(axis=0)) > 1e6:
        return None
    normal = np.einsum("bki,bkj->bij", design, design)
    right = np.einsum("bki,bk->bi", design, delta / base)
    return np.asarray(np.linalg.solve(normal, right[..., None])[..., 0], dtype=np.float64)


def _class_rows(check: DeltaFit, names: list[str], declared: dict[str, dict[str, object]]) -> Floats:
    """Which kernels share a slope: the asked class first; all of them where no class is asked or declared."""
    bounds = [str(declared.get(name, {}).get("bound", "")) for name in names]
    order = [check.bound] if check.bound else []
    if check.bound or check.term == "intercept":
        order += [bound for bound in ("bandwidth", "compute") if bound != check.bound and bound in bounds]
    if not order:
        return np.ones((1, len(names)))
    return np.array([[float(bound == wanted) for bound in bounds] for wanted in order])


def delta_fit(case: Case, check: DeltaFit) -> Outcome:
    """Intercept or slope over blocks against the smallest that counts."""
    found = timed_pair(case, check)
    if isinstance(found, Outcome):
        return found
    recording, names, left, right = found
    arm, against = check.arm or case.suspect, check.against or case.baseline
    if left.shape[0] < MIN_REPLICATES:
        return not_tested(f"fewer than {MIN_REPLICATES} blocks timed these kernels in both arms")
    classes = _class_rows(check, names, declared_kernels(recording))
    if not classes[0].any():
        return not_tested(f"recording {recording.name} timed no {check.bound}-bound kernel in isolation")
    fit = fit_per_block(left, right - left, classes)
    if fit is None:
        return not_tested(
            f"{len(names)} isolated kernels do not determine the fit: they are too few or too alike"
        )
    confidence = case.confidence(recording)
    mean = mean_over_blocks(fit[:, 0 if check.term == "intercept" else 1], confidence)
    assert mean is not None
    need = check.at_least if check.at_least is not None else _smallest_term(case, check.term, recording)
    limit = _limit(mean, confidence)
    name, definite = above(mean.value, mean.half, need)
    name = {"above": "grows", "below": "shrinks", "inside": "zero"}.get(name, name)
    about = (
        names if check.term == "intercept" else [n for n, own in zip(names, classes[0], strict=True) if own]
    )
    term = _term(check, mean, limit, len(about), len(names))
    part = f", {units.share(mean.value / need)} of what would count" if name == SOME else ""
    text = (
        f"{term[0]}{part}, {arm} against {against}, {counted(mean.n, 'block')}; "
        f"{_what_counts(case, check, recording, mean.value, need, about, term[1])}"
    )
    evidence = replace(
        kernel_evidence(recording, (arm, against), text, check.notebook),
        value=mean.value,
        ci_low=mean.low,
        ci_high=mean.high,
        unit="us" if check.term == "intercept" else "share",
        n=mean.n,
        detection_limit=limit,
    )
    return Outcome(name, definite, f"{said(name)}: {text}", (evidence,), "" if definite else BETWEEN, limit)


def _term(check: DeltaFit, mean: Mean, limit: float | None, about: int, fitted: int) -> tuple[str, str]:
    """The fitted term with its interval, and the smallest that would have been seen."""
    if check.term == "intercept":
        value = (
            f"{units.duration_us(mean.value)} [{units.duration_us(mean.low)}, {units.duration_us(mean.high)}]"
        )
        return (
            f"{value} a launch whatever the kernel's length, fitted over {fitted} kernels timed alone",
            units.duration_us(limit),
        )
    kind = f"{check.bound}-bound kernel" if check.bound else "kernel"
    value = units.estimate(1 + mean.value, 1 + mean.low, 1 + mean.high)
    return (
        f"{value} of the duration of {counted(about, kind)} timed alone, beyond a fixed cost per launch",
        units.percent(limit),
    )


def _what_counts(
    case: Case,
    check: DeltaFit,
    recording: Recording,
    value: float,
    need: float,
    names: list[str],
    limit: str,
) -> str:
    """The smallest term that counts, why it is that one, and what the seen one is of the whole step."""
    given = check.at_least is not None or case.effect is None
    if check.term == "intercept":
        why = "" if given else f" (half of the effect, spread over {_launches(case, recording)})"
        return f"{units.duration_us(need)} would count{why}, {limit} would have been seen"
    why = "" if given else " (half of the effect)"
    counts = f"{units.percent(need)} would count{why}, {limit} would have been seen"
    part = _share_of_step(case, recording, names)
    if part is None or case.effect is None:
        return counts
    effect = math.expm1(case.effect.value)
    they = "they" if len(names) > 1 else "it"
    own = "by themselves" if len(names) > 1 else "by itself"
    return (
        f"{counts}; {'these kernels are' if len(names) > 1 else 'this kernel is'} {units.share(part)} of the step: what is seen makes {units.percent(part * value)} of a "
        f"step, and to make it {units.percent(effect)} longer {own} {they} would have to be "
        f"{units.percent(effect / part)} longer"
    )


def _share_of_step(case: Case, recording: Recording, names: list[str]) -> float | None:
    """Which part of the baseline's step these kernels are, by their times alone; None where it is not known."""
    base, declared = kernel_logs(case, recording, case.baseline), declared_kernels(recording)
    if not case.step_us or base.empty or not set(names) <= set(base.columns) & declared.keys():
        return None
    times = np.exp(base[names].median())
    return sum(per_step(declared[name]) * float(times[name]) for name in names) / case.step_us


def _limit(mean: Mean, confidence: float) -> float | None:
    limit = detectable(mean, confidence)
    return None if limit is None else math.log1p(limit)


def _smallest_term(case: Case, term: str, recording: Recording) -> float:
    """Half of the effect per kernel (us) or as a share; never below the margin's worth."""
    share = max(math.expm1(case.half_effect), case.margin)
    if term == "slope":
        return share
    return share * (case.step_us or 0.0) / max(_declared_launches(recording), 1.0)


def _declared_launches(recording: Recording) -> float:
    return sum(per_step(entry) for entry in declared_kernels(recording).values())


def _launches(case: Case, recording: Recording) -> str:
    """The launches of a step that a fixed cost is spread over, and how many kernels the trace has, if others."""
    declared = _declared_launches(recording)
    text = f"the {declared:.0f} launches of a step that the workload declares"
    traced = case.step_figures(case.baseline)
    if traced is None or traced[0].kernels == declared:
        return text
    return f"{text}, not the {traced[0].kernels:.0f} kernels of the traced step"
