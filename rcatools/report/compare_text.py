"""A comparison as a text table for a terminal and as Markdown for an issue."""

from __future__ import annotations

from rcatools.report.compare_rows import COLUMNS, arms_table, cells, headline, most_telling, remarks
from rcatools.report.compare_view import Shown, lines
from rcatools.report.safe import clean, md
from rcatools.report.table import to_markdown as table_to_markdown
from rcatools.stats.records import TableVerdict


def to_text(table: TableVerdict, shown: Shown) -> str:
    """A fixed-width table, the sentences, the warnings and what was left out."""
    every = list(lines(table, shown))
    kept = most_telling(every)
    rows = [COLUMNS, *(tuple(clean(cell) for cell in cells(line)) for line in kept)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    body = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    out = [clean(headline(table)), "", body[0], "-" * len(body[0]), *body[1:]]
    if len(kept) < len(every):
        out.append(f"... and {len(every) - len(kept):,} more; --json holds all of them")
    out += ["", *(clean(text) for text in remarks(kept, table, shown))]
    return "\n".join(out) + "\n"


def to_markdown(table: TableVerdict, shown: Shown) -> str:
    """The same as a Markdown table; names and texts from the table cannot become markup or mentions."""
    every = list(lines(table, shown))
    kept = most_telling(every)
    head = headline(table)
    body = table_to_markdown(arms_table(kept, head, len(every) - len(kept)))
    notes = "\n".join(f"- {md(text)}" for text in remarks(kept, table, shown))
    return f"**{md(head)}**\n\n{body}\n\n{notes}\n"
