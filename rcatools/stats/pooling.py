"""Samples are not replicates: notes for tables that invite pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from rcatools import units
from rcatools.stats import ttest
from rcatools.stats.assemble import with_note
from rcatools.stats.decide import MIN_REPLICATES, Note
from rcatools.stats.layout import Cell, Layout
from rcatools.stats.records import Comparison, Reason, Result, Verdict


def refused(layout: Layout, baseline: Cell, candidate: Cell) -> list[Note]:
    """A note where the rows are samples of too few runs, or of runs the table does not name."""
    most = int(max(baseline.samples.max(), candidate.samples.max()))
    few = min(baseline.logs.size, candidate.logs.size)
    if layout.samples_as_runs:
        return [Note(Reason.POOLED_SAMPLES_REFUSED, "samples of unnamed runs cannot carry a verdict", True)]
    if layout.pooled or (few < MIN_REPLICATES and most > 1):
        text = (
            f"up to {most:,} samples inside {few} {'run' if few == 1 else 'runs'} are not {most:,} replicates"
        )
        return [Note(Reason.POOLED_SAMPLES_REFUSED, text, False)]
    return []


def would_have_misled(done: Comparison, baseline: Cell, candidate: Cell) -> Comparison:
    """Add a reason where pooled samples would have shown a difference that runs do not."""
    if done.verdict is not Verdict.UNDECIDED or done.estimate.n < MIN_REPLICATES:
        return done
    if done.p_value is None or done.p_value < 1 - done.confidence:
        return done
    p_value = pooled_p(baseline, candidate)
    if p_value is None or p_value >= 1 - done.confidence:
        return done
    text = f"pooled samples would give p {units.p_value(p_value)}; they repeat inside runs, so runs were compared"
    return with_note(done, Note(Reason.POOLED_SAMPLES_REFUSED, text, blocks=False))


def spread_inside_runs(frame: pd.DataFrame, results: Sequence[Result]) -> list[Result]:
    """Say of single runs with a printed spread that this spread is not the error of a comparison."""
    if "within_sd" not in frame.columns or all(c.estimate.n > 1 for r in results for c in r.comparisons):
        return list(results)
    keys = [k for k in ("metric", "workload") if k in frame.columns]
    inside: dict[tuple[str, ...], float] = {}
    for row in frame[[*keys, "arm", "value", "within_sd"]].itertuples(index=False, name=None):
        if row[-1] is not None and math.isfinite(float(row[-1])):
            inside[tuple(str(v) for v in row[:-2])] = float(row[-1]) / float(row[-2])
    out = []
    for result in results:
        place = [str(v) for k, v in (("metric", result.metric), ("workload", result.workload)) if k in keys]
        comparisons = [
            _not_the_error(c, inside.get((*place, c.arm)) if c.estimate.n == 1 else None)
            for c in result.comparisons
        ]
        out.append(replace(result, comparisons=tuple(comparisons)))
    return out


def _not_the_error(comparison: Comparison, relative_sd: float | None) -> Comparison:
    if relative_sd is None:
        return comparison
    effect = abs(math.log(comparison.estimate.ratio))
    times = f"; the difference is {effect / relative_sd:.0f} times it" if relative_sd > 0 else ""
    text = f"the printed spread ({units.percent(relative_sd)}) lies inside a run and is not the error of this comparison"
    return with_note(comparison, Note(Reason.POOLED_SAMPLES_REFUSED, text + times, blocks=False))


def pooled_p(baseline: Cell, candidate: Cell) -> float | None:
    """Welch's p as if every sample were independent, from run medians and spreads; None without samples."""
    parts = [_moments(cell) for cell in (baseline, candidate)]
    if parts[0] is None or parts[1] is None:
        return None
    (mean_b, sd_b, n_b), (mean_c, sd_c, n_c) = parts[0], parts[1]
    return ttest.from_moments(mean_c - mean_b, sd_b, n_b, sd_c, n_c).p_value()


def _moments(cell: Cell) -> tuple[float, float, int] | None:
    n = int(cell.samples.sum())
    if n < 2 * cell.samples.size or n < 3:
        return None
    mean = float(np.average(cell.logs, weights=cell.samples))
    inside = float(np.nansum((cell.samples - 1) * np.nan_to_num(cell.sd_within) ** 2))
    between = float((cell.samples * (cell.logs - mean) ** 2).sum())
    return mean, math.sqrt((inside + between) / (n - 1)), n
