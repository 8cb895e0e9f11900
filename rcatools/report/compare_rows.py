"""The rows and sentences of a comparison, before they become text, Markdown or notebook items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rcatools import units
from rcatools.recording.tables.clean import describe
from rcatools.report.compare_view import Line, Shown
from rcatools.report.table import Table, make
from rcatools.report.words import capital, verdict_cell
from rcatools.stats.records import GroupEstimate, TableVerdict

COLUMNS = ("arm", "verdict", "change", "interval", "n", "p", "could be seen", "reasons")
MAX_LINES = 60
MAX_SENTENCES = 12


def headline(table: TableVerdict) -> str:
    """The verdict in one line."""
    count = len(table.results)
    scope = "" if count == 1 else f" over {count:,} results"
    correction = "" if table.correction == "none" else f", p-values corrected ({table.correction})"
    return f"{table.verdict}: compared with {table.baseline}{scope}{correction}"


def cells(line: Line) -> tuple[str, ...]:
    """The texts of one line under ``COLUMNS``."""
    c = line.comparison
    return (
        line.label + (" (A/A)" if line.repeat else ""),
        str(c.verdict),
        units.change(line.ratio),
        "n/a" if line.low is None or line.high is None else units.interval(line.low, line.high),
        str(c.estimate.n)
        if c.paired or c.n_baseline == c.n_candidate
        else f"{c.n_baseline} v {c.n_candidate}",
        units.p_value(c.p_value if c.p_adjusted is None else c.p_adjusted),
        units.percent(c.mde),
        ", ".join(c.reasons),
    )


def arms_table(kept: Sequence[Line], title: str, left: int = 0) -> Table:
    """The lines as a table, with a note on how many more there are."""
    rows = [[text if i != 1 else verdict_cell(text) for i, text in enumerate(cells(line))] for line in kept]
    note = f"{left:,} more lines are in the JSON." if left else ""
    return make(title, COLUMNS, rows, numeric=(2, 3, 4, 5, 6), note=note)


def most_telling(every: Sequence[Line], most: int = MAX_LINES) -> list[Line]:
    """All lines where they fit; else decided ones and those with the smallest p-values, in table order."""
    if len(every) <= most:
        return list(every)

    def rank(i: int) -> tuple[int, float]:
        c = every[i].comparison
        p = c.p_value if c.p_adjusted is None else c.p_adjusted
        return (0 if str(c.verdict) in ("slower", "faster") else 1, 2.0 if p is None else p)

    chosen = sorted(sorted(range(len(every)), key=rank)[:most])
    return [every[i] for i in chosen]


def remarks(kept: Sequence[Line], table: TableVerdict, shown: Shown) -> list[str]:
    """Sentences of the first lines, then every warning once, then what was assumed and left out."""
    out = []
    for line in kept[:MAX_SENTENCES]:
        where = " / ".join(p for p in (line.result.metric, line.result.workload) if p)
        out.append((f"{where}: " if where else "") + line.sentence)
    if len(kept) > MAX_SENTENCES:
        out.append(f"{len(kept) - MAX_SENTENCES} more lines of the table have their sentence in the JSON.")
    warnings = Counter(text for line in kept for text in line.comparison.warnings)
    out += [capital(text) + (f" ({count} arms)." if count > 1 else ".") for text, count in warnings.items()]
    out += [_of_group(group) for group in table.groups]
    out += [capital(text) + "." for result in table.results[:MAX_SENTENCES] for text in result.warnings]
    out += [capital(text) + "." for text in (*table.warnings, *shown.notes)]
    if shown.excluded:
        out.append(f"Left out and counted: {describe(shown.excluded)}.")
    return out


def _of_group(group: GroupEstimate) -> str:
    e = group.estimate
    where = "All workloads" if group.column == "all" else f"Workloads of class {group.value}"
    metric = f" ({group.metric})" if group.metric else ""
    interval = (
        "" if e.ci_low is None or e.ci_high is None else f", interval {units.interval(e.ci_low, e.ci_high)}"
    )
    return (
        f"{where}{metric}, {group.arm}: time {units.change(e.ratio)} over {e.n} workloads of one run each{interval}, "
        f"p = {units.p_value(group.p_value)}; from {units.change(group.spread[0])} to "
        f"{units.change(group.spread[1])}. Weak evidence: workloads are not repeats."
    )
