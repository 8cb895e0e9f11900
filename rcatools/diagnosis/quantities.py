"""Evaluates quantities over tables: sums, products, ratios and differences of table cells, nothing more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from rcatools.diagnosis.vocabulary import Quantity
from rcatools.errors import InputError, UnknownNameError


def evaluate(quantity: float | int | Quantity | None, tables: Mapping[str, pd.DataFrame]) -> float | None:
    """The number a quantity stands for, or None where a cell of it is empty or a divisor is zero.

    Raises:
        UnknownNameError: the table or column does not exist.
        InputError: ``where`` matches no row or several, or the cell is no number.
    """
    if quantity is None:
        return None
    if isinstance(quantity, int | float):
        return float(quantity)
    if quantity.value is not None:
        return quantity.value
    if quantity.table:
        return _cell(quantity, tables)
    parts: list[float | None]
    for name in ("sum", "product", "ratio", "difference"):
        if getattr(quantity, name):
            parts = [evaluate(item, tables) for item in getattr(quantity, name)]
            known = [item for item in parts if item is not None]
            return _combine(name, known) if len(known) == len(parts) else None
    return None


def _combine(name: str, values: list[float]) -> float | None:
    if name == "sum":
        return math.fsum(values)
    if name == "product":
        return math.prod(values)
    if name == "difference":
        return values[0] - values[1]
    return values[0] / values[1] if values[1] != 0 else None


def rows_of(
    tables: Mapping[str, pd.DataFrame], table: str, column: str, where: Mapping[str, object]
) -> pd.DataFrame:
    """The rows of a table that match every entry of ``where``, compared as text or as numbers."""
    if table not in tables:
        raise UnknownNameError("table", table, tables)
    frame = tables[table]
    for name in (column, *where):
        if name not in frame.columns:
            raise UnknownNameError(f"column of table {table}", name, [str(c) for c in frame.columns])
    mask = pd.Series(True, index=frame.index)
    for name, wanted in where.items():
        cells = frame[name]
        if isinstance(wanted, int | float) and pd.api.types.is_numeric_dtype(cells):
            mask &= cells == wanted
        else:
            mask &= cells.astype(str) == str(wanted)
    return frame[mask]


def one_row(
    tables: Mapping[str, pd.DataFrame], table: str, column: str, where: Mapping[str, object]
) -> pd.DataFrame:
    """The one row that matches.

    Raises:
        InputError: none matches, or several.
    """
    rows = rows_of(tables, table, column, where)
    if len(rows) != 1:
        raise InputError(f"table {table}: {dict(where)} matches {len(rows)} rows, it must match one")
    return rows


def cells(
    tables: Mapping[str, pd.DataFrame], table: str, where: Mapping[str, object], columns: Sequence[str]
) -> list[str]:
    """Cells of the one row that matches, as words; a number stands behind the name of its column."""
    found = []
    for column in columns:
        cell = one_row(tables, table, column, where)[column].iloc[0]
        if isinstance(cell, str):
            found.append(cell)
        elif not pd.isna(cell):
            found.append(f"{cell:,.10g} {column.replace('_', ' ')}")
    return found


def _cell(quantity: Quantity, tables: Mapping[str, pd.DataFrame]) -> float | None:
    rows = one_row(tables, quantity.table, quantity.column, quantity.where)
    cell = rows[quantity.column].iloc[0]
    if pd.isna(cell):
        return None
    try:
        value = float(cell)
    except (TypeError, ValueError):
        raise InputError(
            f"table {quantity.table}, column {quantity.column}: {str(cell)[:40]!r} is not a number"
        ) from None
    return value if math.isfinite(value) else None
