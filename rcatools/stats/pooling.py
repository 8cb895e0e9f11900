"""Samples are not replicates: notes for tables that invite pooling."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rcatools import units
from rcatools.stats import ttest
from rcatools.stats.decide import MIN_REPLICATES, Note
from rcatools.stats.layout import Cell, Layout
from rcatools.stats.records import Comparison, Reason, Verdict


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
    return replace(
        done, reasons=(*done.reasons, Reason.POOLED_SAMPLES_REFUSED), warnings=(*done.warnings, text)
    )


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
