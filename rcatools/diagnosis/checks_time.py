"""Checks on the measured times of arms: ratio, equivalence, effect_share, modes.

Each takes the case and the declared check and returns an Outcome; ``vocabulary`` says what each decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rcatools import units
from rcatools.diagnosis.case import Case, replicate_of
from rcatools.diagnosis.caveats import with_caveats
from rcatools.diagnosis.means import detectable, mean_over_blocks, t_quantile
from rcatools.diagnosis.parts import Evidence, Outcome
from rcatools.diagnosis.vocabulary import EffectShare, Equivalence, ModesCheck, Ratio
from rcatools.diagnosis.wording import reasons, replicated, said
from rcatools.recording import Recording
from rcatools.stats.decide import MIN_REPLICATES
from rcatools.stats.modes import MIN_VALUES, find_modes
from rcatools.stats.records import Comparison, Verdict
from rcatools.units import counted

Floats = NDArray[np.float64]
NOTEBOOK, FIXES = "01_reproduce", "04_compare_fixes"
MANY_ARMS = 8
TOO_FEW = "too few blocks"
MIN_IN_A_MODE, SHARE_IN_A_MODE = 3, 0.12
_MODES_OPEN = {
    "hidden": "the runs spread too widely to exclude two levels",
    "few": "so few runs in one of the levels may be outliers",
}


def not_tested(reason: str) -> Outcome:
    """No data."""
    return Outcome(None, False, "not tested", reason=reason)


def too_few(evidence: Evidence) -> Outcome:
    """Measured, but in too few blocks for a verdict: the figures are shown, the outcome is none."""
    text = f"{evidence.text}, too few for a verdict ({MIN_REPLICATES} are needed)"
    evidence = replace(evidence, text=text)
    return Outcome(None, False, f"{TOO_FEW}: {text}", (evidence,), text)


def no_arms(case: Case, arms: Sequence[str], metric: str = "", companion: str = "") -> Outcome:
    """No recording has these arms; the missing ones are named."""
    if companion:
        return not_tested(f"no recording {companion} with {' and '.join(dict.fromkeys(arms))} was given")
    if not case.recordings:
        return not_tested("no recording was given")
    present = {name for r in case.recordings for name in case.logs(r, metric or case.metric).columns}
    missing = [name for name in dict.fromkeys(arms) if name not in present]
    if missing:
        return not_tested(f"no timed run of {', '.join(missing)} on {case.device_name}")
    return not_tested(f"no single recording has {', '.join(dict.fromkeys(arms))} together")


def comparison_evidence(
    comparison: Comparison, recording: Recording, metric: str, notebook: str = "", device: str = ""
) -> Evidence:
    """A paired comparison as evidence; ``device`` is told where it is given."""
    e = comparison.estimate
    text = f"{comparison.arm} against {comparison.baseline}: {units.estimate(e.ratio, e.ci_low, e.ci_high)}, "
    text += replicated(e.n, replicate_of(recording))
    if e.n >= MIN_REPLICATES:
        text += f", detection limit {units.percent(comparison.mde)}"
    text += f", {device}" if device else ""
    return Evidence(
        text=text,
        recording=recording.name,
        arms=(comparison.arm, comparison.baseline),
        source=metric,
        notebook=notebook or NOTEBOOK,
        value=e.ratio,
        ci_low=e.ci_low,
        ci_high=e.ci_high,
        unit="ratio",
        n=e.n,
        detection_limit=comparison.mde,
        replicate=replicate_of(recording),
        device=device,
    )


def ratio(case: Case, check: Ratio | Equivalence) -> Outcome:
    """Paired comparison with the declared margin."""
    found = case.compare(check.arm, check.against, check.metric, check.margin, check.recording)
    if found is None:
        return no_arms(case, (check.arm, check.against or case.baseline), check.metric, check.recording)
    comparison, recording = found
    metric, device = check.metric or case.metric, case.tag_of(recording)
    evidence = comparison_evidence(comparison, recording, metric, check.notebook, device)
    evidence = with_caveats(case, recording, evidence, metric)
    if comparison.estimate.n < MIN_REPLICATES:
        return too_few(evidence)
    verdict = comparison.verdict
    name: str = verdict.value
    if isinstance(check, Equivalence) and verdict in (Verdict.SLOWER, Verdict.FASTER):
        name = "different"
    definite = verdict is not Verdict.UNDECIDED
    return Outcome(
        name=name,
        definite=definite,
        observed=f"{said(name)}: {evidence.text}",
        evidence=(evidence,),
        reason="" if definite else reasons(comparison.reasons),
        detection_limit=comparison.mde,
    )


def effect_share(case: Case, check: EffectShare) -> Outcome:
    """Whether a pair of arms shows the effect: t-interval of (arm - against) minus half of the effect."""
    against = check.against or case.baseline
    recording = case.recording_with((check.arm, against))
    if recording is None:
        return no_arms(case, (check.arm, against))
    if case.effect is None:
        return not_tested(f"no effect of {case.suspect} on {case.device_name} that an arm could carry")
    confidence = case.confidence(recording)
    mean = mean_over_blocks(case.direction * case.differences(recording, check.arm, against), confidence)
    if mean is None:
        found = case.compare(check.arm, against)
        notebook = check.notebook or FIXES
        return (
            too_few(comparison_evidence(*found, case.metric, notebook))
            if found
            else no_arms(case, (check.arm, against))
        )
    effect = abs(case.effect.value)
    share = mean.value / effect

    def beyond(part: float) -> tuple[bool, bool]:
        """Whether the pair is surely above, surely below that part of the effect."""
        error = math.hypot(mean.error, part * case.effect.error) if case.effect else mean.error
        half = t_quantile(confidence, mean.n - 1) * error
        return mean.value - half > part * effect, mean.value + half < part * effect

    if beyond(0.25)[0] and beyond(0.75)[1]:
        name, definite = "partial", False
    elif beyond(0.5)[0]:
        name, definite = "carries", True
    elif beyond(0.5)[1]:
        name, definite = "absent", True
    else:
        name, definite = "undecided", False
    limit = detectable(mean, confidence)
    sign = case.direction
    low, high = sorted((math.exp(sign * mean.low), math.exp(sign * mean.high)))
    text = (
        f"{check.arm} against {against}: {units.estimate(math.exp(sign * mean.value), low, high)}, "
        f"{units.share(share)} of the effect, {counted(mean.n, 'block')}, detection limit {units.percent(limit)}"
    )
    evidence = Evidence(
        text=text,
        recording=recording.name,
        arms=(check.arm, against),
        source=case.metric,
        notebook=check.notebook or FIXES,
        value=math.exp(sign * mean.value),
        ci_low=low,
        ci_high=high,
        unit="ratio",
        n=mean.n,
        detection_limit=limit,
    )
    evidence = with_caveats(case, recording, evidence)
    text = evidence.text
    reason = {
        "partial": "a part only: decides nothing",
        "undecided": "the interval includes half of the effect",
    }
    return Outcome(name, definite, f"{said(name)}: {text}", (evidence,), reason.get(name, ""), limit)


def modes(case: Case, check: ModesCheck) -> Outcome:
    """Two levels between runs of equal arms, the block's common level taken out where enough arms carry it."""
    metric = check.metric or case.metric
    recording = case.recording_with(check.arms_together[:1], metric)
    if recording is None:
        return no_arms(case, check.arms_together, metric)
    table = case.logs(recording, metric)
    arms = [name for name in check.arms_together if name in table.columns]
    values = table[arms].to_numpy()
    others = table.drop(columns=arms).to_numpy()
    if others.shape[1] >= MANY_ARMS:
        values = values - block_level(others)[:, None]
    logs = values[np.isfinite(values)]
    if logs.size < MIN_VALUES:
        return not_tested(f"{logs.size} runs of {', '.join(arms)}; {MIN_VALUES} are needed to see two levels")
    smallest = math.expm1(max(case.half_effect, math.log1p(case.margin)))
    found = find_modes(np.exp(logs - logs.mean()), min_gap=smallest)
    spread = _spread(logs)
    if found.found:
        text = (
            f"{units.percent(found.gap)} apart, {units.share(found.share_high)} of {found.n} runs in the "
            f"upper one, p {units.p_value(found.p_value)}"
        )
    else:
        text = (
            f"{found.n} runs of {' and '.join(arms)}, spread {units.percent(spread)}; two levels "
            f"{units.percent(smallest)} apart would count"
        )
    evidence = Evidence(
        text=text,
        recording=recording.name,
        arms=tuple(arms),
        source=metric,
        notebook=check.notebook or "00_preflight",
        value=1 + found.gap if found.found else 1.0,
        unit="ratio",
        n=found.n,
        detection_limit=smallest,
    )
    # an arm's spread as wide as the gap that counts could hide two levels
    hidden = not found.found and spread > smallest / 2
    upper = round(found.share_high * found.n)
    few = found.found and min(upper, found.n - upper) < max(MIN_IN_A_MODE, SHARE_IN_A_MODE * found.n)
    name = "two_modes" if found.found else "one_mode"
    return Outcome(
        name=name,
        definite=not hidden and not few,
        observed=f"{said(name)}: {text}",
        evidence=(evidence,),
        reason=_MODES_OPEN["hidden" if hidden else "few"] if hidden or few else "",
        detection_limit=smallest,
    )


def _spread(logs: Floats) -> float:
    """Standard deviation as a few outliers do not move it, but a second level does."""
    middle = 1.4826 * float(np.median(np.abs(logs - np.median(logs))))
    low, high = np.quantile(logs, [0.1, 0.9])
    return max(middle, float(high - low) / 2.563)


def block_level(logs: Floats) -> Floats:
    """Common level of each block, shrunk by what of it is chance (James and Stein 1961); shape (blocks,).

    The mean over arms, not the median: where every arm has two levels, a block's median jumps between them.
    """
    logs = logs[:, np.isfinite(logs).any(axis=0)]
    rest = logs - np.nanmean(logs, axis=0)
    level = np.nanmean(rest, axis=1)
    chance = np.nanvar(rest - level[:, None]) / max(rest.shape[1], 1)
    total = float(np.var(level))
    return np.asarray(level * max(0.0, 1.0 - chance / total) if total > 0 else level, dtype=np.float64)
