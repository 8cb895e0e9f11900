"""A judged table as the items a notebook shows: chart, table, sentences."""

from __future__ import annotations

from pathlib import Path

from rcatools.errors import InputError
from rcatools.recording.tables import Request
from rcatools.report.charts import Chart
from rcatools.report.compare_figure import interval_chart
from rcatools.report.compare_rows import arms_table, headline, most_telling, remarks
from rcatools.report.compare_run import Judged, judge_tables
from rcatools.report.table import Table
from rcatools.stats.records import DEFAULT_MARGIN


def judge_table(path: str, baseline: str, margin: float = 0.0) -> list[Chart | Table | str]:
    """Everything a table of measurements says, ready to be shown; nothing for an empty path.

    Args:
        path: the table, "" for none.
        baseline: the arm (or column) to compare with.
        margin: change that does not matter; 0 takes the usual 2 %.

    Raises:
        InputError: the table cannot be read or holds nothing to compare.
    """
    if not path:
        return []
    if not baseline:
        raise InputError(f"a table needs its baseline: set table_baseline to an arm or column of {path}")
    return items(judge_tables([(None, Path(path))], Request(baseline), margin=margin or DEFAULT_MARGIN))


def items(judged: Judged) -> list[Chart | Table | str]:
    """The chart, the table of arms, the sentences, and what was assumed or left out."""
    every = judged.lines()
    kept, title = most_telling(every), headline(judged.verdict)
    table = arms_table(kept, title, len(every) - len(kept))
    return [interval_chart(kept, title), table, *remarks(kept, judged.verdict, judged.shown)]
