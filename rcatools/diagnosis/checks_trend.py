"""Checks on a series of arms: dose (time against an amount) and step (time against a count)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.checks_time import FIXES, no_arms, not_tested
from rcatools.diagnosis.means import Mean, detectable, mean_over_blocks
from rcatools.diagnosis.parts import Evidence, Outcome
from rcatools.diagnosis.vocabulary import Dose, StepCount
from rcatools.diagnosis.wording import said
from rcatools.recording import Recording
from rcatools.stats.decide import MIN_REPLICATES
from rcatools.units import counted

Floats = NDArray[np.float64]
MIN_PLACES = 3


def dose(case: Case, check: Dose) -> Outcome:
    """Trend of log time over the ranks of the doses, one line per block, t-interval over blocks."""
    metric = check.metric or case.metric
    recording, arms = _with_most(case, check.doses, (), metric)
    if recording is None:
        return no_arms(case, list(check.doses), metric)
    table = case.logs(recording, metric)[arms].to_numpy()
    rank = np.arange(len(arms)) - (len(arms) - 1) / 2
    per_block = table @ rank / float(rank @ rank) * (len(arms) - 1)
    confidence = case.confidence(recording)
    mean = mean_over_blocks(per_block, confidence)
    if mean is None:
        return not_tested(f"fewer than {MIN_REPLICATES} blocks have every dose")
    limit = detectable(mean, confidence)
    need = case.half_effect
    if mean.low > 0 and mean.value > need:
        name, definite = "rises", mean.low > need
    elif mean.high < 0 and mean.value < -need:
        name, definite = "falls", mean.high < -need
    elif mean.low > -need and mean.high < need:
        name, definite = "flat", True
    else:
        name, definite = "undecided", False
    text = (
        f"from the smallest to the largest of {len(arms)} doses {_exp(mean)}, {counted(mean.n, 'block')}, "
        f"detection limit {units.percent(limit)}"
    )
    evidence = _trend_evidence(_place(recording, arms, metric, check.notebook), text, mean, limit)
    return Outcome(
        name,
        definite,
        f"{said(name)}: {text}",
        (evidence,),
        "" if definite else "the interval is too wide",
        limit,
    )


def step(case: Case, check: StepCount) -> Outcome:
    """One jump at a count, a ramp, nothing, or something else; the baseline counts as zero."""
    metric = check.metric or case.metric
    recording, arms = _with_most(case, check.counts, (case.baseline,), metric)
    if recording is None:
        return no_arms(case, (*check.counts, case.baseline), metric)
    table = case.logs(recording, metric)
    base = table[case.baseline].to_numpy()
    relative = table[arms].to_numpy() - base[:, None]
    relative = relative[np.isfinite(relative).all(axis=1)]
    if relative.shape[0] < MIN_REPLICATES:
        return not_tested(f"fewer than {MIN_REPLICATES} blocks have every count")
    levels = np.concatenate([[0.0], relative.mean(axis=0)])
    counts = np.array([0, *(check.counts[name] for name in arms)], dtype=float)
    confidence = case.confidence(recording)
    need = case.half_effect
    cut = best_cut(levels)
    columns = np.column_stack([np.zeros(relative.shape[0]), relative])
    height = mean_over_blocks(columns[:, cut:].mean(axis=1) - columns[:, :cut].mean(axis=1), confidence)
    assert height is not None
    limit = detectable(height, confidence)
    name, definite = _shape(levels, counts, cut, height, need)
    if name == "step":
        where = f"between {counts[cut - 1]:.0f} and {counts[cut]:.0f}"
        text = (
            f"{_exp(height)} from a count {where} on (mean of the counts from {counts[cut]:.0f} on against the mean of "
            f"those below; measured: {', '.join(f'{c:.0f}' for c in counts)}), {counted(height.n, 'block')}"
        )
    else:
        largest = int(np.argmax(np.abs(levels)))
        text = (
            f"counts 0 to {counts[-1]:.0f}, largest change {units.change(math.exp(levels[largest]))} at "
            f"{counts[largest]:.0f}, {counted(height.n, 'block')}, detection limit {units.percent(limit)}"
        )
    evidence = _trend_evidence(
        _place(recording, (case.baseline, *arms), metric, check.notebook), text, height, limit
    )
    reason = "" if definite else "the shape is not clear"
    return Outcome(name, definite, f"{said(name)}: {text}", (evidence,), reason, limit)


def _exp(mean: Mean) -> str:
    return units.estimate(math.exp(mean.value), math.exp(mean.low), math.exp(mean.high))


def _with_most(
    case: Case, places: Mapping[str, float], needed: Sequence[str], metric: str
) -> tuple[Recording | None, list[str]]:
    """The recording with most of the arms (at least three, and all needed ones), and its arms in rising order."""
    best: tuple[Recording | None, list[str]] = None, []
    for recording in case.recordings:
        present = set(case.logs(recording, metric).columns)
        arms = sorted((name for name in places if name in present), key=lambda name: places[name])
        if len(arms) >= MIN_PLACES and set(needed) <= present and len(arms) > len(best[1]):
            best = recording, arms
    return best


def best_cut(levels: Floats) -> int:
    """Number of leading values below the cut that leaves the smallest sum of squares on both sides."""
    cuts = range(1, levels.size)
    return min(cuts, key=lambda k: float(levels[:k].var() * k + levels[k:].var() * (levels.size - k)))


def _shape(levels: Floats, counts: Floats, cut: int, height: Mean, need: float) -> tuple[str, bool]:
    noise = height.sd / math.sqrt(height.n)
    if float(np.abs(levels).max()) + height.half < need:
        return "flat", True
    line = np.polyval(np.polyfit(counts, levels, 1), counts)
    left_step = np.concatenate([levels[:cut] - levels[:cut].mean(), levels[cut:] - levels[cut:].mean()])
    left_line = levels - line
    jump = abs(height.value)
    if abs(height.low if height.value > 0 else height.high) > need and height.value * height.low > 0:
        flat_sides = float(np.abs(left_step).max()) < max(0.35 * jump, 3 * noise)
        if flat_sides and left_step @ left_step <= left_line @ left_line:
            return "step", True
        if left_line @ left_line < left_step @ left_step and float(np.abs(left_line).max()) < 0.35 * np.ptp(
            levels
        ):
            return "ramp", True
        return "irregular", True
    if float(np.ptp(levels)) > 2 * need + 4 * noise:
        return "irregular", True
    return "undecided", False


def _trend_evidence(place: Evidence, text: str, mean: Mean, limit: float | None) -> Evidence:
    return replace(
        place,
        text=text,
        value=math.exp(mean.value),
        ci_low=math.exp(mean.low),
        ci_high=math.exp(mean.high),
        unit="ratio",
        n=mean.n,
        detection_limit=limit,
    )


def _place(recording: Recording, arms: Sequence[str], metric: str, notebook: str) -> Evidence:
    return Evidence("", recording.name, tuple(arms), metric, notebook or FIXES)
