"""A table as data: the same record becomes Markdown, HTML and a DataFrame in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rcatools.report.safe import clean, md, md_code, web_address

SHORT_NAME = 30


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: what it says; may come from a file, renderers make it harmless.
        code: whether it is a name or command.
        tone: "bad", "good", "calm", "open" or "": how it is coloured, never the only carrier of meaning.
        url: address behind the text, or "".
    """

    text: str
    code: bool = False
    tone: str = ""
    url: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under named columns.

    Attributes:
        title: caption.
        columns: column names.
        rows: one tuple of cells per row.
        numeric: indices of columns aligned to the right.
        note: a line below, such as what was left out.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: frozenset[int] = frozenset()
    note: str = ""

    def head(self, count: int) -> Table:
        """The first rows, with a note that says how many were left out."""
        left = len(self.rows) - count
        if left <= 0:
            return self
        note = f"{left} more rows are in report.html"
        if count and self.note:
            note += f". {self.note}"
        return Table(self.title, self.columns, self.rows[:count], self.numeric, note)

    def frame(self) -> pd.DataFrame:
        """The texts as a DataFrame, for notebooks (which escape them)."""
        return pd.DataFrame(
            [[clean(cell.text) for cell in row] for row in self.rows], columns=list(self.columns)
        )


def make(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    numeric: Iterable[int] = (),
    note: str = "",
) -> Table:
    """A table from cells or plain texts; None becomes an empty cell."""
    made = tuple(tuple(cell if isinstance(cell, Cell) else Cell(cell or "") for cell in row) for row in rows)
    width = len(columns)
    assert all(len(row) == width for row in made), f"{title}: a row does not have {width} cells"
    return Table(title, tuple(columns), made, frozenset(numeric), note)


def to_markdown(table: Table) -> str:
    """A GitHub table; the title is not part of it."""
    marks = ["---:" if i in table.numeric else "---" for i in range(len(table.columns))]
    lines = [_md_row(md(name) for name in table.columns), _md_row(marks)]
    lines += [_md_row(_md_cell(cell) for cell in row) for row in table.rows]
    return "\n".join(lines) + (f"\n\n{md(table.note)}" if table.note else "")


def _md_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _md_cell(cell: Cell) -> str:
    if not cell.text:
        return ""
    text = md_code(cell.text) if cell.code else md(cell.text)
    return text.replace(" ", "&nbsp;") if cell.tone and len(cell.text) <= SHORT_NAME else text


def to_html(table: Table, *, caption: bool = True, stacked: bool = False) -> str:
    """An HTML table with a caption, column scopes and tones as classes.

    ``stacked``: on a narrow screen each row becomes a block of its own, every cell under its column's name, so that
    long texts need no sideways scrolling.
    """
    if stacked:
        return _stacked(table, caption=caption)
    head = "".join(
        f'<th scope="col"{_number(i, table)}>{html.escape(clean(name))}</th>'
        for i, name in enumerate(table.columns)
    )
    body = "".join(
        "<tr>" + "".join(_html_cell(i, cell, table) for i, cell in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    return _framed(
        table, f"<table>{_caption(table, caption)}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _caption(table: Table, wanted: bool) -> str:
    return f"<caption>{html.escape(clean(table.title))}</caption>" if wanted else ""


def _framed(table: Table, markup: str) -> str:
    """The table in a region that scrolls by keyboard, with its note."""
    note = f'<p class="note">{html.escape(clean(table.note))}</p>' if table.note else ""
    label = html.escape(clean(table.title))
    return f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">{markup}</div>{note}'


def _stacked(table: Table, *, caption: bool) -> str:
    """Roles are told outright: a row that is shown as a block is none for a screen reader otherwise."""
    names = [html.escape(clean(name)) for name in table.columns]
    head = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in names)
    body = ""
    for row in table.rows:
        cells = "".join(
            f'<{_stacked_tag(i)}{_number(i, table)} data-column="{names[i]}"><span class="in">{_html_text(cell)}</span>'
            f"</{_stacked_tag(i).split()[0]}>"
            for i, cell in enumerate(row)
        )
        body += f'<tr role="row">{cells}</tr>'
    return _framed(
        table,
        f'<table class="stacked" role="table">{_caption(table, caption)}<thead role="rowgroup"><tr role="row">{head}</tr>'
        f'</thead><tbody role="rowgroup">{body}</tbody></table>',
    )


def _stacked_tag(index: int) -> str:
    return 'th scope="row" role="rowheader"' if index == 0 else 'td role="cell"'


def _number(index: int, table: Table) -> str:
    return ' class="num"' if index in table.numeric else ""


def _html_cell(index: int, cell: Cell, table: Table) -> str:
    tag = ("th", ' scope="row"') if index == 0 else ("td", "")
    return f"<{tag[0]}{tag[1]}{_number(index, table)}>{_html_text(cell)}</{tag[0]}>"


def _html_text(cell: Cell) -> str:
    text = html.escape(clean(cell.text)).replace(" %", "\u00a0%")
    if cell.code and text:
        kept = ' class="short"' if len(cell.text) <= SHORT_NAME else ""
        text = f"<code{kept}>{text}</code>"
    address = web_address(cell.url) if cell.url else None
    if address:
        text = f'<a href="{html.escape(address)}" rel="noreferrer noopener">{text}</a>'
    return f'<span class="tone {cell.tone}">{text}</span>' if cell.tone else text
