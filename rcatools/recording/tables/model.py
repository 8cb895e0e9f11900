"""What a foreign table becomes, and what the caller says about it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

KEYS = ("metric", "workload", "machine", "day", "block", "run", "sample", "order", "class", "within_sd")


@dataclass(frozen=True)
class Request:
    """How to read a table.

    Attributes:
        baseline: the baseline's name; it tells a long table from a wide one.
        arms: candidates to keep, all when empty.
        value: column of the values, found by itself when None.
        arm_column: column that names the arm.
        run_column: column that names the run.
        block_column: column that names the block.
        by: further columns that tell workloads apart.
        ignore: columns to leave out of everything.
        higher_is_better: True or False overrules what the column's name says.
        metrics: metrics to keep, all when empty.
        any_scale: accept values a factor of 1,000 apart in one arm.
    """

    baseline: str
    arms: tuple[str, ...] = ()
    value: str | None = None
    arm_column: str | None = None
    run_column: str | None = None
    block_column: str | None = None
    by: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    higher_is_better: bool | None = None
    metrics: tuple[str, ...] = ()
    any_scale: bool = False


@dataclass(frozen=True)
class Table:
    """A table in one form, whatever it was.

    Attributes:
        frame: long rows with ``arm`` and ``value`` (as printed, positive) and those of ``KEYS`` that were found.
            A summary table has ``value`` as the centre and the columns ``sd``, ``n``, ``low``, ``high``, ``centre``
            ("mean" or "median") and ``margin`` as far as known.
        summary: whether rows are summaries instead of measurements.
        higher: by metric name (None where the table has one metric only): whether more is better.
        units: by metric name: the unit as text, "" where unknown.
        form: "long", "wide", or the program's name the file comes from.
        excluded: rows or cells left out, by cause: "missing", "failed", "infinite", "not_positive", "duplicate",
            "no_arm", "no_metric", "no_workload", "no_block", "no_run".
        unknown: columns that nothing was read from.
        notes: what was assumed, one sentence each.
        sources: file names.
        baseline: the baseline's name among the arms (a wide table's column name).
        arms: the candidates asked for, under the same names; empty for all.
    """

    frame: pd.DataFrame
    summary: bool
    higher: dict[str | None, bool]
    units: dict[str | None, str]
    form: str
    excluded: dict[str, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    baseline: str = ""
    arms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sheet:
    """A file before anything was decided about its columns.

    Attributes:
        frame: columns as the file names them.
        form: where it comes from; "table" where column names must be looked at.
        source: the file's name.
        decimal_comma: numbers use a comma for the decimal point.
    """

    frame: pd.DataFrame
    form: str
    source: str
    decimal_comma: bool = False
