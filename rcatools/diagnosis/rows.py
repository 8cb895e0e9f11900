"""Tables of a diagnosis: arms, noise, fixes, isolated kernels."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.caveats import unsteady
from rcatools.diagnosis.checks_kernels import declared_kernels, per_step
from rcatools.diagnosis.records import ArmEstimate, FixResult, KernelResult, Noise, PublishedNumber
from rcatools.errors import InputError
from rcatools.recording import Recording
from rcatools.stats.multiplicity import discoveries
from rcatools.stats.paired import compare_blocks
from rcatools.stats.records import Comparison, Verdict
from rcatools.units import counted

PUBLISHED_COLUMNS = ("id", "source", "url", "label", "value", "unit", "note")


def estimate_of(case: Case, comparison: Comparison, recording: Recording, metric: str) -> ArmEstimate:
    """A comparison in the form of the document."""
    e = comparison.estimate
    declared = case.spec.arms.get(comparison.arm)
    return ArmEstimate(
        arm=comparison.arm,
        against=comparison.baseline,
        metric=metric,
        ratio=e.ratio if math.isfinite(e.ratio) else None,
        ci_low=e.ci_low,
        ci_high=e.ci_high,
        n=e.n,
        mde=comparison.mde,
        p_value=comparison.p_value,
        verdict=comparison.verdict.value,
        reasons=tuple(str(reason) for reason in comparison.reasons),
        warnings=comparison.warnings,
        role=declared.role if declared else "",
        summary=declared.text if declared else "",
        recording=recording.name,
        live_bytes=_median(case, recording, comparison.arm, "side_live_bytes"),
        caveat="; ".join(unsteady(case, recording, (comparison.arm, comparison.baseline), metric)),
    )


def timed_arms(case: Case) -> list[str]:
    """Arms with timed runs, declared order first, the baseline left out."""
    present = {str(name) for r in case.recordings for name in case.logs(r, case.metric).columns} - {
        case.baseline
    }
    declared = [name for name in case.spec.arms if name in present]
    return declared + sorted(present - set(declared))


def arm_estimates(case: Case) -> tuple[ArmEstimate, ...]:
    """Every timed arm against the baseline."""
    return tuple(
        estimate_of(case, *found, case.metric)
        for name in timed_arms(case)
        if (found := case.compare(name)) is not None
    )


def noise(case: Case) -> Noise | None:
    """The A/A comparison of the first recording that has one."""
    for repeat in case.spec.effect.repeat:
        found = case.compare(repeat)
        if found is None:
            continue
        comparison, recording = found
        floor = case.noise_floor(recording)
        if floor is None:
            continue
        quiet = comparison.verdict in (Verdict.EQUIVALENT, Verdict.UNDECIDED)
        text = (
            f"{repeat} against {case.baseline}: {units.estimate(floor.ratio, floor.ci_low, floor.ci_high)}, "
            f"{counted(floor.n, 'block')}; differences up to "
            f"{units.percent(floor.floor)} are not told from noise"
        )
        if not quiet:
            text += "; equal arms differ, so smaller effects must not be believed"
        return Noise(
            arms=(case.baseline, repeat),
            ratio=floor.ratio,
            ci_low=floor.ci_low,
            ci_high=floor.ci_high,
            floor=floor.floor,
            detectable=floor.detectable,
            n=floor.n,
            verdict=comparison.verdict.value,
            text=text,
        )
    return None


def fixes(case: Case) -> tuple[FixResult, ...]:
    """The suspect and every fix variant that was timed: time, memory, correctness, verdict."""
    names = [case.suspect, *case.investigation.arms_with_role("fix")]
    rows = [row for name in dict.fromkeys(names) if (row := _fix(case, name)) is not None]
    good = [
        row
        for row in rows
        if row.arm != case.suspect and row.correct is not False and (row.recovered or 0.0) > 0.5
    ]
    if case.direction < 0:  # a gain: variants keep it, and none was asked to remove it
        good = []
    best = min(good, key=lambda row: (row.ratio or math.inf, row.live_bytes or 0)) if good else None
    return tuple(_marked(row, best) for row in rows)


def _marked(row: FixResult, best: FixResult | None) -> FixResult:
    return replace(row, best=best is not None and row.arm == best.arm)


def _fix(case: Case, arm: str) -> FixResult | None:
    found = case.compare(arm)
    if found is None:
        return None
    comparison, recording = found
    e = comparison.estimate
    recovered = None
    if case.effect is not None and math.isfinite(e.ratio) and arm != case.suspect:
        recovered = 1.0 - math.log(e.ratio) / case.effect.value
    own, base = (
        _median(case, recording, arm, "reserved_bytes"),
        _median(case, recording, case.baseline, "reserved_bytes"),
    )
    live = _median(case, recording, arm, "side_live_bytes")
    kv = [_median(case, recording, name, "kv_bytes") for name in (arm, case.baseline)]
    correct, error, output = _output(case, recording, arm)
    text = units.estimate(e.ratio, e.ci_low, e.ci_high)
    if recovered is not None:
        gain = case.direction < 0
        text += (
            f", gives up {units.share(recovered)} of the gain"
            if gain
            else f", {units.share(recovered)} of the effect gone"
        )
    if comparison.verdict is Verdict.EQUIVALENT:
        text += f", detection limit {units.percent(comparison.mde)}"
    if live is not None:
        text += f", {units.byte_size(live)} left live under the profiling stream"
    declared = case.spec.arms.get(arm)
    return FixResult(
        arm=arm,
        role=declared.role if declared else "",
        summary=declared.text if declared else "",
        ratio=e.ratio if math.isfinite(e.ratio) else None,
        ci_low=e.ci_low,
        ci_high=e.ci_high,
        mde=comparison.mde,
        n=e.n,
        verdict=comparison.verdict.value,
        reasons=tuple(str(reason) for reason in comparison.reasons),
        recovered=recovered,
        memory_bytes=own,
        memory_delta_bytes=own - base if own is not None and base is not None else None,
        live_bytes=live,
        correct=correct,
        output_rel_error=error,
        best=False,
        text=text,
        kv_delta_bytes=kv[0] - kv[1] if kv[0] is not None and kv[1] is not None else None,
        output=output,
    )


def _median(case: Case, recording: Recording, arm: str, figure: str) -> int | None:
    table = case.facts(recording, figure)
    if arm not in table.columns:
        return None
    values = pd.to_numeric(table[arm], errors="coerce").dropna()
    return round(float(values.median())) if len(values) else None


def _output(case: Case, recording: Recording, arm: str) -> tuple[bool | None, float | None, str]:
    """Whether the output is right, its largest relative error to float64, and how it agrees with the baseline's.

    Right: bit for bit the baseline's in every block, or within the tolerance that its runs declare. Agreement:
    "identical", "within_tolerance", "mismatch" or "not_checked".
    """
    error, limit = (_largest(recording, arm, name) for name in ("output_rel_error", "output_tolerance"))
    within = error <= limit if error is not None and limit is not None else None
    hashes = case.facts(recording, "output_sha256")
    if {arm, case.baseline} <= set(hashes.columns):
        pair = hashes[[arm, case.baseline]].dropna()
        if len(pair) and (pair[arm] == pair[case.baseline]).all():
            return within is not False, error, "mismatch" if within is False else "identical"
        if len(pair):
            return within is True, error, "within_tolerance" if within else "mismatch"
    return within, error, {None: "not_checked", True: "within_tolerance", False: "mismatch"}[within]


def _largest(recording: Recording, arm: str, figure: str) -> float | None:
    """Largest value of a fact over all finished runs of an arm, untimed ones too."""
    runs = recording.runs
    if figure not in runs.columns:
        return None
    own = runs[(runs["arm"] == arm) & (runs["outcome"] == "ok")]
    value = float(pd.to_numeric(own[figure], errors="coerce").max()) if len(own) else math.nan
    return value if math.isfinite(value) else None


def kernels(case: Case) -> tuple[KernelResult, ...]:
    """Isolated kernels of the suspect against the baseline, with the false-discovery rate controlled."""
    for recording in case.recordings:
        logs = case.kernel_logs(recording)
        if case.suspect in logs and case.baseline in logs:
            return _kernel_rows(case, recording, logs[case.baseline], logs[case.suspect])
    return ()


def _kernel_rows(
    case: Case, recording: Recording, base: pd.DataFrame, own: pd.DataFrame
) -> tuple[KernelResult, ...]:
    declared = declared_kernels(recording)
    blocks = base.index.intersection(own.index)
    names = [str(name) for name in base.columns if name in own.columns]
    compared = [
        compare_blocks(
            np.exp(base.loc[blocks, name].to_numpy()),
            np.exp(own.loc[blocks, name].to_numpy()),
            margin=case.margin,
            confidence=case.confidence(recording),
        )
        for name in names
    ]
    ratios = [item.estimate.ratio for item in compared]
    p_values = [math.nan if item.p_value is None else item.p_value for item in compared]
    found = [bool(v) for v in discoveries(ratios, p_values, min_effect=case.margin)] if names else []
    rows = []
    for name, item, shown in zip(names, compared, found, strict=True):
        base_us = float(np.exp(base[name].median()))
        times = per_step(declared[name]) if name in declared else None
        delta = base_us * (item.estimate.ratio - 1)
        rows.append(
            KernelResult(
                kernel=name,
                bound=str(declared.get(name, {}).get("bound", "")),
                per_step=times,
                base_us=base_us,
                delta_us=delta,
                ratio=item.estimate.ratio,
                ci_low=item.estimate.ci_low,
                ci_high=item.estimate.ci_high,
                mde=item.mde,
                share=base_us * times / case.step_us if times and case.step_us else None,
                verdict=_kernel_verdict(item, shown=shown),
                ceiling=_of_ceiling(recording, declared.get(name, {}), base_us),
            )
        )
    return tuple(sorted(rows, key=lambda row: -(row.share or 0.0)))


def _of_ceiling(recording: Recording, entry: dict[str, object], base_us: float) -> float | None:
    """Part of the device's measured rate that a kernel reaches; None where its kind has none, or none was measured."""
    kinds = {
        "bandwidth": ("bytes", ("copy_bytes_per_s", "read_bytes_per_s")),
        "compute": ("flops", ("matmul_flops",)),
    }
    if entry.get("bound") not in kinds:
        return None
    work, names = kinds[str(entry["bound"])]
    amount = entry.get(work)
    rates = [recording.manifest.ceilings.get(name) for name in names]
    top = max((float(rate) for rate in rates if isinstance(rate, int | float)), default=0.0)
    if not isinstance(amount, int | float) or top <= 0 or base_us <= 0:
        return None
    return float(amount) / (base_us * 1e-6) / top


def _kernel_verdict(item: Comparison, *, shown: bool) -> str:
    if item.verdict in (Verdict.SLOWER, Verdict.FASTER) and not shown:
        return Verdict.UNDECIDED.value
    return item.verdict.value


def published(case: Case) -> tuple[PublishedNumber, ...]:
    """The table of published numbers, row by row; InputError where a column is missing."""
    name = case.spec.published
    if not name or name not in case.tables:
        return ()
    table = case.tables[name]
    missing = [column for column in PUBLISHED_COLUMNS if column not in table.columns]
    if missing:
        raise InputError(f"table {name} of published numbers lacks {', '.join(missing)}")
    return tuple(
        PublishedNumber(
            id=str(row["id"]),
            source=str(row["source"]),
            url=str(row["url"]),
            label=str(row["label"]),
            value=float(row["value"]),
            unit=str(row["unit"]),
            note="" if pd.isna(row["note"]) else str(row["note"]),
        )
        for row in table.to_dict("records")
    )
