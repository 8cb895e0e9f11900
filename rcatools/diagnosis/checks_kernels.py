"""Checks on kernels and on the gaps between them: kernel_ratio, delta_fit, gap, reconcile."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.checks_time import not_tested
from rcatools.diagnosis.means import t_quantile
from rcatools.diagnosis.parts import Evidence, Outcome
from rcatools.diagnosis.steps import StepFigures
from rcatools.diagnosis.vocabulary import DeltaFit, Gap, KernelRatio, Reconcile
from rcatools.diagnosis.wording import SOME, reasons, said
from rcatools.recording import Recording
from rcatools.stats.paired import compare_blocks
from rcatools.stats.records import Verdict
from rcatools.units import counted

Floats = NDArray[np.float64]
NOTEBOOK = "02_profile_kernels"
BETWEEN = "neither clearly below nor above what counts"


def declared_kernels(recording: Recording) -> dict[str, dict[str, object]]:
    """The kernels that the workload declared, by name."""
    listed = recording.manifest.workload.get("kernels", [])
    entries = listed if isinstance(listed, list) else []
    return {str(item["name"]): item for item in entries if isinstance(item, dict) and "name" in item}


def per_step(entry: dict[str, object]) -> float:
    """Declared launches per step, 1 where not told."""
    value = entry.get("per_step", 1)
    return float(value) if isinstance(value, int | float) and value > 0 else 1.0


def kernel_logs(case: Case, recording: Recording, arm: str) -> pd.DataFrame:
    """Natural log of each isolated kernel's median in each block of an arm: blocks x kernels."""
    return case.kernel_logs(recording)[arm] if arm in case.kernel_logs(recording) else pd.DataFrame()


def timed_pair(
    case: Case, check: KernelRatio | DeltaFit
) -> tuple[Recording, list[str], Floats, Floats] | Outcome:
    """Recording, kernel names, base and candidate medians (blocks x kernels) of the asked class."""
    arm, against = check.arm or case.suspect, check.against or case.baseline
    for recording in case.recordings:
        base, candidate = (kernel_logs(case, recording, name) for name in (against, arm))
        if base.empty or candidate.empty:
            continue
        declared = declared_kernels(recording)
        bound = check.bound if isinstance(check, KernelRatio) else ""
        wanted = set(check.kernels) or {
            name for name, entry in declared.items() if bound in ("", entry.get("bound"))
        }
        names = [name for name in base.columns if name in candidate.columns and name in wanted]
        if not names:
            return not_tested(
                f"recording {recording.name} timed no kernel of the class {check.bound or check.kernels}"
            )
        blocks = base.index.intersection(candidate.index)
        left = np.exp(base.loc[blocks, names].to_numpy(dtype=float))
        right = np.exp(candidate.loc[blocks, names].to_numpy(dtype=float))
        whole = np.isfinite(left).all(axis=1) & np.isfinite(right).all(axis=1)
        return recording, names, left[whole], right[whole]
    return not_tested(f"no recording timed the kernels of {arm} and {against} in isolation")


def kernel_ratio(case: Case, check: KernelRatio) -> Outcome:
    """The class summed per step, paired by block."""
    found = timed_pair(case, check)
    if isinstance(found, Outcome):
        return found
    recording, names, left, right = found
    declared = declared_kernels(recording)
    weight = np.array([per_step(declared.get(name, {})) for name in names])
    arm, against = check.arm or case.suspect, check.against or case.baseline
    comparison = compare_blocks(
        left @ weight,
        right @ weight,
        margin=check.margin or case.margin,
        confidence=case.confidence(recording),
        arm=arm,
        baseline_name=against,
    )
    e = comparison.estimate
    label = f"{check.bound}-bound kernels" if check.bound else "kernels " + ", ".join(names)
    text = (
        f"{label} ({len(names)}) of {arm} against {against}: {units.estimate(e.ratio, e.ci_low, e.ci_high)}, "
        f"{counted(e.n, 'block')}, detection limit {units.percent(comparison.mde)}"
    )
    evidence = kernel_evidence(recording, (arm, against), text, check.notebook)
    evidence = replace(
        evidence,
        value=e.ratio,
        ci_low=e.ci_low,
        ci_high=e.ci_high,
        unit="ratio",
        n=e.n,
        detection_limit=comparison.mde,
    )
    definite = comparison.verdict is not Verdict.UNDECIDED
    return Outcome(
        comparison.verdict.value,
        definite,
        f"{said(comparison.verdict.value)}: {text}",
        (evidence,),
        "" if definite else reasons(comparison.reasons),
        comparison.mde,
    )


def kernel_evidence(recording: Recording, arms: tuple[str, ...], text: str, notebook: str) -> Evidence:
    return Evidence(text, recording.name, arms, "kernels", notebook or NOTEBOOK)


def difference_of_steps(a: Floats, b: Floats, confidence: float = 0.95) -> tuple[float, float]:
    """Mean of b minus mean of a with the half width of Welch's interval (infinite below two steps each)."""
    difference = float(b.mean() - a.mean())
    if min(a.size, b.size) < 2:
        return difference, math.inf
    va, vb = a.var(ddof=1) / a.size, b.var(ddof=1) / b.size
    if va + vb == 0:
        return difference, 0.0
    df = (va + vb) ** 2 / (va**2 / (a.size - 1) + vb**2 / (b.size - 1))
    return difference, t_quantile(confidence, max(int(df), 1)) * math.sqrt(va + vb)


def gap(case: Case, check: Gap) -> Outcome:
    """Gap per boundary of two traces, the interval no narrower than what equal arms differ by."""
    arm, against = check.arm or case.suspect, check.against or case.baseline
    candidate, base = case.step_figures(arm), case.step_figures(against)
    if candidate is None or base is None:
        missing = [name for name, item in ((arm, candidate), (against, base)) if item is None]
        return not_tested(f"no readable trace of {', '.join(missing)}")
    (b, recording), a = candidate, base[0]
    if a.boundaries == 0 or b.boundaries == 0:
        return not_tested("a trace holds a single kernel per step: no boundary to look at")
    per_boundary_a, per_boundary_b = a.gap_us / a.boundaries, b.gap_us / b.boundaries
    difference, half = difference_of_steps(per_boundary_a, per_boundary_b)
    half = max(half, _equal_arms_differ(case, a))
    need = check.at_least_us
    if need is None:
        need = math.expm1(case.half_effect) * (case.step_us or float(a.span_us.mean())) / a.boundaries
    name, definite = above(difference, half, need)
    part = f", {units.share(difference / need)} of what would count" if name == SOME else ""
    name = {"above": "grows", "below": "shrinks", "inside": "same"}.get(name, name)
    text = (
        f"{arm} against {against}: {units.duration_us(difference)} "
        f"[{units.duration_us(difference - half)}, {units.duration_us(difference + half)}] more at each of "
        f"{a.boundaries:.0f} boundaries of a step, medians {units.duration_us(a.median_gap_us)} ({against}) and "
        f"{units.duration_us(b.median_gap_us)} ({arm}), from {a.steps} and {b.steps} traced steps of one process "
        f"each; {units.duration_us(need)} would count{part}"
    )
    evidence = Evidence(
        text,
        recording.name,
        (arm, against),
        "trace",
        check.notebook or NOTEBOOK,
        difference,
        difference - half,
        difference + half,
        "us",
        min(a.steps, b.steps),
        half,
    )
    reason = "" if definite else BETWEEN
    return Outcome(name, definite, f"{said(name)}: {text}", (evidence,), reason, half)


def _equal_arms_differ(case: Case, base: StepFigures) -> float:
    """Largest difference of the gap per boundary between the baseline's trace and its repeats'."""
    found = [case.step_figures(name) for name in case.spec.effect.repeat]
    others = [item[0] for item in found if item is not None and item[0].boundaries]
    own = float(base.gap_us.mean() / base.boundaries)
    return max((abs(float(o.gap_us.mean() / o.boundaries) - own) for o in others), default=0.0)


def above(value: float, half: float, need: float) -> tuple[str, bool]:
    """Where a value lies against what counts.

    "above" or "below": a change as large as that. "inside": less than half of it, and the interval lies inside.
    "some": a change that the interval excludes to be none and to be one that counts, and half of it or more.
    """
    if value - half > 0 and value >= need:
        return "above", True
    if value + half < 0 and value <= -need:
        return "below", True
    if value - half > -need and value + half < need:
        if abs(value) < need / 2:
            return "inside", True
        if abs(value) > half:
            return SOME, True
    return "undecided", False


def trace_terms(a: StepFigures, b: StepFigures) -> dict[str, Floats]:
    """How step b differs from step a, in us per step: per-step arrays of gaps, kernels and launches.

    ``kernels``: names that both have with equal counts; ``launches``: everything else. They add up to the
    difference of the mean spans; each array is b's own spread around that mean.
    """
    launches = 0.0
    for name in a.by_name.keys() | b.by_name.keys():
        count_a, us_a = a.by_name.get(name, (0.0, 0.0))
        count_b, us_b = b.by_name.get(name, (0.0, 0.0))
        if count_a != count_b:
            launches += us_b - us_a
    gap = b.gap_us - a.gap_us.mean()
    kernel = b.kernel_us - a.kernel_us.mean() - launches
    added = (b.boundaries - a.boundaries) * (a.gap_us.mean() / a.boundaries if a.boundaries else 0.0)
    return {"gaps": gap - added, "kernels": kernel, "launches": np.full(b.steps, launches + added)}


def reconcile(case: Case, check: Reconcile) -> Outcome:
    """Share of a difference that a part of it explains."""
    if check.part is not None and check.whole is not None:
        part, whole = case.quantity(check.part), case.quantity(check.whole)
        if part is None or whole is None:
            return not_tested("a figure of the reconciliation is missing in its table")
        return _share(check, part, whole, 0.0, Evidence("", source="table", notebook=check.notebook))
    if not check.term:
        return not_tested("reconcile needs a term of the traces, or part and whole")
    arm, against = check.arm or case.suspect, check.against or case.baseline
    candidate, base = case.step_figures(arm), case.step_figures(against)
    measured = case.compare(arm, against)
    if candidate is None or base is None or measured is None:
        return not_tested(f"needs traces and timed runs of {arm} and {against}")
    (b, recording), a = candidate, base[0]
    if measured[0].verdict not in (Verdict.SLOWER, Verdict.FASTER):
        return not_tested(f"no measured difference between {arm} and {against} to explain")
    values = trace_terms(a, b)[check.term]
    whole = _step_delta(case, measured[1], arm, against)
    spread = values.std(ddof=1) / math.sqrt(values.size) if values.size > 1 else 0.0
    half = float(spread) * (t_quantile(0.95, values.size - 1) if values.size > 1 else 0.0)
    place = Evidence("", recording.name, (arm, against), "trace", check.notebook or NOTEBOOK)
    return _share(check, float(values.mean()), whole, half, place)


def _step_delta(case: Case, recording: Recording, arm: str, against: str) -> float:
    table = np.exp(case.logs(recording, case.metric)[[arm, against]].to_numpy())
    return float(np.nanmedian(table[:, 0] - table[:, 1]))


def _share(check: Reconcile, part: float, whole: float, half: float, place: Evidence) -> Outcome:
    if whole == 0:
        return not_tested("there is no difference to explain")
    share, margin = part / whole, abs(half / whole)
    if share - margin >= check.share and share + margin <= 2.0:
        name, definite = "explained", True
    elif share + margin < check.share:
        name, definite = "not_explained", True
    elif share - margin > 2.0:
        name, definite = "overshoots", True
    else:
        name, definite = "undecided", False
    if check.term:
        text = f"{check.term} {units.duration_us(part)} of {units.duration_us(whole)} a step, {units.share(share)}"
    else:
        text = f"{units.significant(part)} of {units.significant(whole)}, {units.percent(share)}"
    evidence = replace(
        place, text=text, value=share, ci_low=share - margin, ci_high=share + margin, unit="share"
    )
    return Outcome(
        name,
        definite,
        f"{said(name)}: {text}",
        (evidence,),
        "" if definite else "the share's interval includes the limit",
    )
