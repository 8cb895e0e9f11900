"""A comparison as a text table for a terminal and as Markdown for an issue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rcatools import units
from rcatools.report.compare_view import Line, Shown, lines
from rcatools.report.safe import clean, md
from rcatools.stats.records import GroupEstimate, TableVerdict

MAX_LINES = 60
MAX_SENTENCES = 12
_HEAD = ("arm", "verdict", "change", "interval", "n", "p", "could be seen", "reasons")


def to_text(table: TableVerdict, shown: Shown, max_lines: int = MAX_LINES) -> str:
    """A fixed-width table, the sentences, the warnings and what was left out."""
    every = list(lines(table, shown))
    kept = _most_telling(every, max_lines)
    rows = [_HEAD, *(tuple(clean(cell) for cell in _cells(line)) for line in kept)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    body = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    out = [clean(_headline(table)), "", body[0], "-" * len(body[0]), *body[1:]]
    if len(kept) < len(every):
        out.append(f"... and {len(every) - len(kept):,} more; --json holds all of them")
    out += ["", *_bulleted(kept, table, shown, clean)]
    return "\n".join(out) + "\n"


def to_markdown(table: TableVerdict, shown: Shown, max_lines: int = MAX_LINES) -> str:
    """The same as a Markdown table; names and texts from the table cannot become markup or mentions."""
    every = list(lines(table, shown))
    kept = _most_telling(every, max_lines)
    out = [
        f"**{md(_headline(table))}**",
        "",
        "| " + " | ".join(_HEAD) + " |",
        "|" + "---|" * len(_HEAD),
    ]
    out += ["| " + " | ".join(md(cell) for cell in _cells(line)) + " |" for line in kept]
    if len(kept) < len(every):
        out += ["", f"{len(every) - len(kept):,} more lines are in the JSON."]
    out += ["", *(f"- {text}" for text in _bulleted(kept, table, shown, md))]
    return "\n".join(out) + "\n"


def _headline(table: TableVerdict) -> str:
    count = len(table.results)
    scope = "" if count == 1 else f" over {count:,} results"
    correction = "" if table.correction == "none" else f", p-values corrected ({table.correction})"
    return f"{table.verdict}: compared with {table.baseline}{scope}{correction}"


def _cells(line: Line) -> tuple[str, ...]:
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


def _bulleted(
    kept: Sequence[Line], table: TableVerdict, shown: Shown, safe: Callable[[str], str]
) -> list[str]:
    """Sentences of the first lines, then every warning once, then what was assumed and left out."""
    out = []
    for line in kept[:MAX_SENTENCES]:
        where = " / ".join(p for p in (line.result.metric, line.result.workload) if p)
        out.append((f"{where}: " if where else "") + line.sentence)
    if len(kept) > MAX_SENTENCES:
        out.append(f"{len(kept) - MAX_SENTENCES} more lines of the table have their sentence in the JSON.")
    texts = Counter(text for line in kept for text in line.comparison.warnings)
    for text, count in texts.items():
        out.append(_capital(text) + (f" ({count} arms)." if count > 1 else "."))
    out += [_group_text(group) for group in table.groups]
    out += [_capital(text) + "." for result in table.results[:MAX_SENTENCES] for text in result.warnings]
    out += [_capital(text) + "." for text in (*table.warnings, *shown.notes)]
    if shown.excluded:
        told = ", ".join(f"{count:,} {cause.replace('_', ' ')}" for cause, count in shown.excluded.items())
        out.append(f"Left out and counted: {told}.")
    return [safe(text) for text in out]


def _group_text(group: GroupEstimate) -> str:
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


def _most_telling(every: list[Line], most: int) -> list[Line]:
    """All lines where they fit; else those with the smallest p-values, in table order."""
    if len(every) <= most:
        return every

    def rank(i: int) -> tuple[int, float]:
        c = every[i].comparison
        p = c.p_value if c.p_adjusted is None else c.p_adjusted
        return (0 if str(c.verdict) in ("slower", "faster") else 1, 2.0 if p is None else p)

    chosen = sorted(sorted(range(len(every)), key=rank)[:most])
    return [every[i] for i in chosen]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
