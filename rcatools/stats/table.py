"""A whole table: every metric and workload, every arm, one correction over all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rcatools.errors import InputError
from rcatools.stats import design, drift, noise, pooling, screening, ttest
from rcatools.stats.assemble import Context, with_note
from rcatools.stats.decide import Note, check_declared
from rcatools.stats.declared import Declared, split_arms
from rcatools.stats.family import correct
from rcatools.stats.groups import group_estimates, shared_levels
from rcatools.stats.layout import Cell, Layout, lay_out
from rcatools.stats.mixtures import levels_over_arms
from rcatools.stats.modes import MIN_VALUES
from rcatools.stats.paired import compare_log_pairs
from rcatools.stats.records import (
    Comparison,
    NoiseFloor,
    Reason,
    Result,
    TableVerdict,
    Verdict,
    worst,
)
from rcatools.stats.ttest import LogDifference
from rcatools.stats.unpaired import compare_log_runs

EXACT_UP_TO = 500

Floats = NDArray[np.float64]


def compare_table(frame: pd.DataFrame, declared: Declared) -> TableVerdict:
    """Judge every arm of a long table against the baseline.

    Args:
        frame: columns ``arm`` and ``value`` (positive times, or rates already inverted), any of ``metric``,
            ``workload``, ``machine``, ``day``, ``block``, ``run``, ``sample``, ``order``, ``class`` (a class of
            workloads) and ``within_sd`` (a published spread inside the run).
        declared: baseline, margin and the like.

    Raises:
        UnknownNameError: the baseline or a wanted arm is not in the table.
        InputError: nothing to compare: no row, one arm only, or more than 100 arms.
        ValueError: margin or confidence out of range.
    """
    check_declared(declared.margin, declared.confidence)
    layout = lay_out(frame, declared.baseline, declared.unit)
    candidates, repeats = split_arms(layout.arms, declared)
    judged = _Judge(layout, declared, candidates, repeats)
    results, skipped = [], 0
    for index in range(len(layout.groups)):
        result = judged.result(index)
        if result is None:
            skipped += 1
        else:
            results.append(result)
    if not results:
        raise InputError(
            f"no metric or workload holds both {declared.baseline!r} and another arm; give the same metrics and workloads for both"
        )
    warnings = list(layout.warnings) + _unit_warnings(layout)
    if skipped:
        warnings.append(f"{skipped} of {len(layout.groups)} workloads lack the baseline or every other arm")
    for arm in repeats:
        warnings.append(
            f"arm {arm!r} was taken as the baseline measured again (A/A); it gives the noise floor"
        )
    results = pooling.spread_inside_runs(frame, results)
    results, note = shared_levels(results)
    warnings += [note] if note else []
    corrected, correction = correct(results, judged.runs_of)
    return TableVerdict(
        baseline=declared.baseline,
        results=tuple(corrected),
        verdict=worst(result.verdict for result in corrected),
        correction=correction,
        groups=group_estimates(frame, corrected),
        warnings=tuple(warnings),
    )


def _unit_warnings(layout: Layout) -> list[str]:
    if layout.pooled:
        return [
            "rows are many samples without a run column: they were taken as one run per arm; "
            "add a run (process) column, or say --unit row if each row is a process of its own"
        ]
    if layout.samples_as_runs:
        return ["the table has samples but no runs; each sample was taken as if it were a run of its own"]
    if layout.unit == "row":
        return ["the table has no block or run column; each row was taken as one run"]
    return []


class _Judge:
    """Compares arms group by group; holds what does not change between groups."""

    def __init__(
        self, layout: Layout, declared: Declared, candidates: Sequence[str], repeats: Sequence[str]
    ) -> None:
        self.layout, self.declared = layout, declared
        self.candidates, self.repeats = candidates, repeats
        self.clean = screening.clean_groups(layout, declared.baseline)
        self.with_exact = len(layout.groups) * len(candidates) <= EXACT_UP_TO
        self.number = {arm: i for i, arm in enumerate(layout.arms)}
        self.pooled_repeats = self._repeats_over_groups() if repeats else None

    def result(self, index: int) -> Result | None:
        """The result of one group, None where it lacks the baseline or every candidate."""
        baseline = self.cell(index, self.declared.baseline)
        here = [(arm, cell) for arm in self.candidates if (cell := self.cell(index, arm)) is not None]
        again = [(arm, cell) for arm in self.repeats if (cell := self.cell(index, arm)) is not None]
        if baseline is None or not (here or again):
            return None
        baseline, inner = split_repeated_label(baseline, [cell for _, cell in here], self.layout.unit)
        repeats = [self._compare(index, arm, baseline, cell, None) for arm, cell in again]
        if inner is not None:
            name = f"{self.declared.baseline} (again)"
            repeats.append(self._compare(index, name, baseline, inner, None))
        floors: list[NoiseFloor] = []
        comparisons = []
        for arm, cell in here:
            bare = self._compare(index, arm, baseline, cell, None)
            floor = self._floor(bare, repeats, baseline, cell)
            if floor is not None:
                floors.append(floor)
                bare = self._compare(index, arm, baseline, cell, floor)
            comparisons.append(bare)
        comparisons = self._with_levels(comparisons, baseline, here)
        metric, workload = self.layout.groups[index]
        paired = all(c.paired for c in comparisons or repeats)
        return Result(
            metric=metric,
            workload=workload,
            baseline=self.declared.baseline,
            unit="run" if self.layout.unit == "block" and not paired else self.layout.unit,
            paired=paired,
            comparisons=tuple(comparisons),
            repeats=tuple(repeats),
            noise=max(floors, key=lambda f: f.floor) if floors else _own_floor(repeats),
            levels={arm: _level(cell) for arm, cell in [(self.declared.baseline, baseline), *here, *again]},
            verdict=worst(c.verdict for c in comparisons or repeats),
            warnings=tuple(_repeat_warnings(repeats)),
        )

    def _with_levels(
        self, comparisons: list[Comparison], baseline: Cell, here: list[tuple[str, Cell]]
    ) -> list[Comparison]:
        """Mark undecided comparisons of a small group whose runs fall on two levels over all arms."""
        few = max(cell.logs.size for _, cell in [("", baseline), *here]) < MIN_VALUES if here else False
        if not few or any(Reason.MODES_IN_ARM in c.reasons for c in comparisons):
            return comparisons
        found = levels_over_arms(
            {self.declared.baseline: baseline.logs, **{arm: cell.logs for arm, cell in here}}
        )
        if found is None:
            return comparisons
        text, both = found
        return [
            with_note(c, Note(Reason.MODES_IN_ARM, text, blocks=True))
            if c.verdict is Verdict.UNDECIDED and {c.arm, c.baseline} & both
            else c
            for c in comparisons
        ]

    def cell(self, index: int, arm: str) -> Cell | None:
        """The runs of an arm in a group."""
        return self.layout.cells.get((index, self.number[arm]))

    def runs_of(self, result: Result, arm: str) -> Floats | None:
        """Logs of an arm's runs, for corrections that need them."""
        cell = self.cell(self.layout.groups.index((result.metric, result.workload)), arm)
        return None if cell is None else cell.logs

    def _compare(
        self, index: int, arm: str, baseline: Cell, candidate: Cell, floor: NoiseFloor | None
    ) -> Comparison:
        declared = self.declared
        context = Context(
            arm=arm,
            baseline=declared.baseline,
            margin=declared.margins.get(self.layout.groups[index], declared.margin),
            confidence=declared.confidence,
            noise_floor=None if floor is None else floor.floor,
            with_exact=self.with_exact,
            screened=bool(self.clean[index]),
        )
        notes = design.named_elsewhere(declared.baseline, arm)
        notes += pooling.refused(self.layout, baseline, candidate)
        if self.layout.unit == "block":
            pairs = design.pair(baseline, candidate)
            if pairs.b.size and (pairs.b.size >= 3 or min(baseline.logs.size, candidate.logs.size) < 3):
                notes += pairs.notes
                notes += self._drift_of_pairs(pairs)
                done = compare_log_pairs(pairs.b, pairs.c, context, dropped=pairs.dropped, notes=tuple(notes))
                return _finish(done, baseline, candidate, floor)
        confounds, strata = design.confounded(baseline, candidate, few_blocks=self.layout.unit == "block")
        notes += confounds + self._drift_of_runs(baseline, candidate, strata)
        done = compare_log_runs(baseline.logs, candidate.logs, context, strata=strata, notes=tuple(notes))
        if any(note.blocks for note in confounds):
            done = _without_test(done)
        return _finish(done, baseline, candidate, floor)

    def _drift_of_pairs(self, pairs: design.Pairs) -> list[Note]:
        found = []
        if not self.layout.order_is_run_number:
            found.append(drift.explains(pairs.b, pairs.c, pairs.order_b, pairs.order_c, paired=True))
        if self.with_exact:
            found.append(drift.of_the_effect(pairs.c - pairs.b, self.declared.margin))
        return [note for note in found if note is not None]

    def _drift_of_runs(self, baseline: Cell, candidate: Cell, strata: design.Strata | None) -> list[Note]:
        b, c = baseline.logs, candidate.logs
        if strata is not None:
            b, c = ttest.aligned(b, c, *strata, ttest.from_strata(b, c, *strata).mean)
        order_b, order_c = baseline.order, candidate.order
        note = None
        if (
            self.layout.order_is_run_number
            and order_b.max() >= order_c.min()
            and order_c.max() >= order_b.min()
        ):
            note = drift.follows_run_numbers(b, c, order_b, order_c, self.declared.margin)
        else:
            note = drift.explains(b, c, order_b, order_c, paired=False)
        return [note] if note is not None else []

    def _floor(
        self, bare: Comparison, repeats: list[Comparison], baseline: Cell, candidate: Cell
    ) -> NoiseFloor | None:
        """The largest floor that the table's and the declared A/A data give at this comparison's size."""
        declared = self.declared
        known = [r.facts.difference for r in repeats if r.facts is not None and r.facts.difference.n > 1]
        if not known and self.pooled_repeats is not None:
            known.append(self.pooled_repeats)
        if declared.repeat_difference is not None:
            known.append(declared.repeat_difference)
        sizes = bare.n_baseline, bare.n_candidate
        found = [noise.floor_for(difference, *sizes, declared.confidence) for difference in known]
        runs = np.asarray(declared.repeat_runs, dtype=float)
        if not runs.size and not bare.paired and min(sizes) == 1 and max(sizes) >= 3:
            runs = np.exp(max(baseline.logs, candidate.logs, key=len))
        if runs.size:
            found.append(noise.floor_from_runs(runs, *sizes, declared.confidence))
        return max((f for f in found if f is not None), key=lambda f: f.floor, default=None)

    def _repeats_over_groups(self) -> LogDifference | None:
        """The A/A difference over groups, where each holds too few repeats for a floor of its own."""
        d, scales = [], []
        for index in range(len(self.layout.groups)):
            baseline = self.cell(index, self.declared.baseline)
            for arm in self.repeats:
                cell = self.cell(index, arm)
                if baseline is None or cell is None:
                    continue
                d.append(float(cell.logs.mean() - baseline.logs.mean()))
                n = min(baseline.logs.size, cell.logs.size)
                scales.append(n**-0.5 if self.layout.unit == "block" else (2 / n) ** 0.5)
        if len(d) < 2:
            return None
        difference = ttest.from_pairs(np.array(d))
        one = float(np.std(np.array(d) / np.array(scales), ddof=1))
        return replace(difference, sd=one, pairs=self.layout.unit == "block")


def split_repeated_label(baseline: Cell, candidates: list[Cell], unit: str) -> tuple[Cell, Cell | None]:
    """Part a baseline that stands twice in each block from its second appearance, where candidates stand once."""
    most = max((cell.logs.size for cell in candidates), default=0)
    if unit != "block" or not candidates or baseline.logs.size <= most:
        return baseline, None
    _, at, counts = np.unique(baseline.block, return_inverse=True, return_counts=True)
    once = all(np.unique(cell.block).size == cell.block.size for cell in candidates)
    if not once or counts.size < 2 or np.median(counts) != 2:
        return baseline, None
    seen: dict[int, int] = {}
    turn = np.empty(at.size, dtype=np.int64)
    for position, block in enumerate(at.tolist()):
        turn[position] = seen.get(block, 0)
        seen[block] = seen.get(block, 0) + 1
    return _part(baseline, turn == 0), _part(baseline, turn == 1)


def _part(cell: Cell, keep: NDArray[np.bool_]) -> Cell:
    return Cell(*(getattr(cell, name)[keep] for name in Cell.__dataclass_fields__))


def _level(cell: Cell) -> float:
    return math.exp(float(cell.logs.mean()))


def _own_floor(repeats: Sequence[Comparison]) -> NoiseFloor | None:
    floors = [
        noise.floor_for(r.facts.difference, r.n_baseline, r.n_candidate, r.confidence)
        for r in repeats
        if r.facts is not None
    ]
    return max((f for f in floors if f is not None), key=lambda f: f.floor, default=None)


def _repeat_warnings(repeats: Sequence[Comparison]) -> list[str]:
    return [
        f"the A/A arm {r.arm!r} differs from the baseline by itself (p = {r.p_value:.2g}): "
        "something else than the build changes between arms"
        for r in repeats
        if r.p_value is not None and r.estimate.n >= 3 and r.p_value < 0.01
    ]


def _without_test(comparison: Comparison) -> Comparison:
    """A difference that design alone could make has no p-value and no interval."""
    estimate = replace(comparison.estimate, ci_low=None, ci_high=None)
    return replace(
        comparison, estimate=estimate, p_value=None, p_exact=None, p_equivalence=None, mde=None, facts=None
    )


def _finish(done: Comparison, baseline: Cell, candidate: Cell, floor: NoiseFloor | None) -> Comparison:
    done = pooling.would_have_misled(done, baseline, candidate)
    if done.mde is None and floor is not None:
        done = replace(done, mde=floor.detectable)
    return done
