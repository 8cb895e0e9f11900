"""Reads tables and judges them in one call: what the command line and the notebooks share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rcatools.errors import InputError
from rcatools.recording.tables import Request, Source, Table, read_tables
from rcatools.recording.tables.repeats import read_repeats
from rcatools.report.compare_view import Line, Shown, lines
from rcatools.stats.declared import Declared
from rcatools.stats.records import DEFAULT_CONFIDENCE, DEFAULT_MARGIN, TableVerdict
from rcatools.stats.repeats import difference_of, runs_of
from rcatools.stats.summaries import compare_summaries
from rcatools.stats.table import compare_table
from rcatools.stats.timelike import time_like


@dataclass(frozen=True)
class Judged:
    """A table with what it says.

    Attributes:
        table: what was read.
        verdict: what was found.
        shown: directions, units and notes for the output.
    """

    table: Table
    verdict: TableVerdict
    shown: Shown

    def lines(self) -> list[Line]:
        """Every arm of every result, for a text, a figure or a notebook."""
        return list(lines(self.verdict, self.shown))


def judge_tables(
    sources: Sequence[Source],
    request: Request,
    *,
    margin: float = DEFAULT_MARGIN,
    confidence: float = DEFAULT_CONFIDENCE,
    unit: str = "auto",
    repeats: Sequence[str] = (),
    not_repeats: Sequence[str] = (),
    repeat_tables: Sequence[Path] = (),
) -> Judged:
    """Read tables and judge every arm against the baseline.

    Args:
        sources: (arm or None, file) each.
        request: which columns are what.
        margin: largest |ratio - 1| that does not matter.
        confidence: level of the intervals.
        unit: "auto", "block", "run" or "row".
        repeats: arms that are the baseline measured again.
        not_repeats: arms that are no repeat whatever their name says.
        repeat_tables: A/A files: runs of one build, or two arms of it.

    Raises:
        InputError: the tables cannot be read or hold nothing to compare.
        UnknownNameError: the baseline, an arm or a column is not there.
    """
    table = read_tables(sources, request)
    declared = Declared(
        baseline=table.baseline,
        arms=table.arms,
        margin=margin,
        confidence=confidence,
        unit=unit,
        repeats=tuple(repeats),
        not_repeats=tuple(not_repeats),
    )
    compared = {os.path.realpath(path) for _, path in sources}
    for path in repeat_tables:
        if os.path.realpath(path) in compared:
            raise InputError(
                f"{path} is the compared table itself; A/A data must be other runs, give their table"
            )
    if repeat_tables:
        frame = time_like(
            read_repeats(repeat_tables, request), {None: next(iter(table.higher.values()), False)}
        )
        if frame["arm"].nunique() == 1:
            declared = replace(declared, repeat_runs=runs_of(frame))
        else:
            declared = replace(declared, repeat_difference=difference_of(frame))
    frame = time_like(table.frame, table.higher)
    verdict = compare_summaries(frame, declared) if table.summary else compare_table(frame, declared)
    shown = Shown(table.higher, table.units, table.excluded, table.notes, table.sources)
    return Judged(table, verdict, shown)
