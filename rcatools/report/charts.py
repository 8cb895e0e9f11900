"""Charts as data: what is drawn, made apart from how it is drawn.

Each chart gives its own table, so that whoever cannot see or run the drawing reads the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rcatools import units
from rcatools.report.table import Cell, Table, make

UNITS: dict[str, Callable[[float | None], str]] = {
    "change": units.signed_percent,
    "us": units.duration_us,
    "bytes": units.byte_size,
    "count": units.significant,
    "share": units.percent,
}


@dataclass(frozen=True)
class Interval:
    """A point with its interval; ``tone`` as in Cell."""

    label: str
    value: float | None
    low: float | None
    high: float | None
    tone: str = ""
    note: str = ""


@dataclass(frozen=True)
class Forest:
    """Points with intervals, one row each, against a reference line and a margin band."""

    id: str
    title: str
    description: str
    axis: str
    rows: tuple[Interval, ...]
    unit: str = "change"
    band: float | None = None
    value_name: str = "Estimate"

    def table(self) -> Table:
        """The numbers of the chart."""
        form = UNITS[self.unit]
        rows = [
            [Cell(row.label, code=True), form(row.value), form(row.low), form(row.high), row.note]
            for row in self.rows
        ]
        return make(self.title, ["", self.value_name, "Low", "High", "Note"], rows, numeric=(1, 2, 3))


@dataclass(frozen=True)
class Bars:
    """Horizontal bars made of parts; every row has the same parts in the same order."""

    id: str
    title: str
    description: str
    axis: str
    parts: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    unit: str = "us"

    def table(self) -> Table:
        """The numbers of the chart."""
        form = UNITS[self.unit]
        rows = [[Cell(label, code=True), *(form(value) for value in values)] for label, values in self.rows]
        return make(self.title, ["", *self.parts], rows, numeric=range(1, len(self.parts) + 1))


@dataclass(frozen=True)
class Strip:
    """All single values of each row, nothing averaged away."""

    id: str
    title: str
    description: str
    axis: str
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    unit: str = "change"
    band: float | None = None

    def table(self) -> Table:
        """Number, minimum, median and maximum of each row."""
        form = UNITS[self.unit]
        rows: list[Sequence[Cell | str | None]] = []
        for label, values in self.rows:
            ordered = sorted(values)
            middle = _median(ordered)
            low, high = (ordered[0], ordered[-1]) if ordered else (None, None)
            rows.append([Cell(label, code=True), str(len(ordered)), form(low), form(middle), form(high)])
        return make(self.title, ["", "Blocks", "Smallest", "Median", "Largest"], rows, numeric=(1, 2, 3, 4))


@dataclass(frozen=True)
class Curve:
    """Points with intervals over a number."""

    id: str
    title: str
    description: str
    x_axis: str
    axis: str
    series: tuple[tuple[str, tuple[tuple[float, Interval], ...]], ...]
    unit: str = "change"
    band: float | None = None
    log_x: bool = False

    def table(self) -> Table:
        """The numbers of the chart."""
        form = UNITS[self.unit]
        rows = [
            [name, units.significant(x), form(point.value), form(point.low), form(point.high)]
            for name, points in self.series
            for x, point in points
        ]
        return make(
            self.title, ["Series", self.x_axis, "Estimate", "Low", "High"], rows, numeric=(1, 2, 3, 4)
        )


Chart = Forest | Bars | Strip | Curve


@dataclass(frozen=True)
class Drawn:
    """A plotly figure that is no chart of these, with its numbers as a table for whoever cannot run it."""

    figure: Any
    table: Table


def is_empty(chart: Chart) -> bool:
    """Whether there is nothing to draw."""
    return not (chart.series if isinstance(chart, Curve) else chart.rows)


def _median(ordered: Sequence[float]) -> float | None:
    if not ordered:
        return None
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def numbered_families(names: Sequence[str], least: int = 3) -> Mapping[str, list[tuple[float, str]]]:
    """Arm names of the form ``family_<number>`` grouped by family, for families of at least ``least`` members."""
    families: dict[str, list[tuple[float, str]]] = {}
    for name in names:
        family, _, number = name.rpartition("_")
        if family and number.isdigit():
            families.setdefault(family, []).append((float(number), name))
    return {family: sorted(members) for family, members in families.items() if len(members) >= least}
