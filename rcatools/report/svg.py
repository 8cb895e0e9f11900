"""Charts as small static SVG: what the page shows without JavaScript and in print.

Colours are CSS classes, so that the drawing follows the page's light and dark palette. Only numbers and
escaped text are written.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from rcatools.report.charts import UNITS, Bars, Chart, Curve, Forest, Strip
from rcatools.report.safe import clean
from rcatools.report.theme import LIGHT, css_variables

WIDTH, LABEL, RIGHT, ROW, TOP, BOTTOM = 760, 190, 20, 24, 12, 44


def draw(chart: Chart, *, standalone: bool = False) -> str:
    """The SVG element of a chart, with its description for screen readers.

    Inside the page its colours come from the page's style; ``standalone`` adds a light style of its own.
    """
    body, height = _BODIES[type(chart)](chart)
    extra = f' xmlns="http://www.w3.org/2000/svg" width="{WIDTH}"' if standalone else ""
    style = f"<style>{_standalone_style()}</style>" if standalone else ""
    title, text = html.escape(clean(chart.title)), html.escape(clean(chart.description))
    key = html.escape(chart.id, quote=True)
    return (
        f'<svg class="chart"{extra} viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{key}-t {key}-d">{style}'
        f'<title id="{key}-t">{title}</title><desc id="{key}-d">{text}</desc>{body}</svg>'
    )


def _standalone_style() -> str:
    page = (Path(__file__).parent / "templates" / "page.css").read_text(encoding="utf-8")
    rules = " ".join(line for line in page.splitlines() if line.startswith("svg"))
    return f"svg{{{css_variables(LIGHT)}background:#fff;font-size:12.5px;font-family:sans-serif}}{rules}"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from ``low`` to ``high``, about ``count`` of them."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


class _Axis:
    """A linear horizontal axis."""

    def __init__(self, values: Sequence[float], left: float, right: float) -> None:
        low, high = min((*values, 0.0)), max((*values, 0.0))
        room = (high - low or abs(high) or 1.0) * 0.05
        self.low, self.high = (low - room if low < 0 else low), high + room
        self.left, self.right = left, right

    def at(self, value: float) -> float:
        return round(self.left + (value - self.low) / (self.high - self.low) * (self.right - self.left), 2)


def _frame(chart: Forest | Bars | Strip, axis: _Axis, count: int) -> tuple[str, int]:
    bottom = TOP + ROW * count
    form = UNITS[chart.unit]
    parts = []
    for value in ticks(axis.low, axis.high):
        x = axis.at(value)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(
            f'<text class="tick" x="{x}" y="{bottom + 16}" text-anchor="middle">{form(value)}</text>'
        )
    parts.append(
        f'<text class="tick" x="{(LABEL + WIDTH - RIGHT) / 2}" y="{bottom + 36}" text-anchor="middle">'
        f"{html.escape(clean(chart.axis, 90))}</text>"
    )
    band = getattr(chart, "band", None)
    if band:
        left, right = axis.at(-band), axis.at(band)
        parts.append(
            f'<rect class="band" x="{left}" y="{TOP}" width="{round(right - left, 2)}" height="{ROW * count}"/>'
        )
    zero = axis.at(0.0)
    parts.append(f'<line class="zero" x1="{zero}" x2="{zero}" y1="{TOP}" y2="{bottom}"/>')
    return "".join(parts), bottom + BOTTOM


def _label(text: str, y: float) -> str:
    short = clean(text, 28)
    return f'<text x="{LABEL - 10}" y="{y + 4}" text-anchor="end">{html.escape(short)}</text>'


def _forest(chart: Forest) -> tuple[str, int]:
    numbers = [
        value for row in chart.rows for value in (row.value, row.low, row.high) if value is not None
    ] + ([chart.band, -chart.band] if chart.band else [])
    axis = _Axis(numbers, LABEL, WIDTH - RIGHT)
    frame, height = _frame(chart, axis, len(chart.rows))
    parts = [frame]
    for index, row in enumerate(chart.rows):
        y = TOP + ROW * (index + 0.5)
        parts.append(_label(row.label, y))
        if row.value is None:
            continue
        tone = html.escape(row.tone or "accent", quote=True)
        if row.low is not None and row.high is not None:
            parts.append(
                f'<line class="arm {tone}" x1="{axis.at(row.low)}" x2="{axis.at(row.high)}" y1="{y}" y2="{y}"/>'
            )
        parts.append(f'<circle class="dot {tone}" cx="{axis.at(row.value)}" cy="{y}" r="4.5"/>')
    return "".join(parts), height


def _bars(chart: Bars) -> tuple[str, int]:
    totals = [sum(value for value in values if value) for _, values in chart.rows]
    axis = _Axis(totals, LABEL, WIDTH - RIGHT)
    frame, height = _frame(chart, axis, len(chart.rows))
    parts = [frame]
    for index, (label, values) in enumerate(chart.rows):
        y, start = TOP + ROW * index + 4, 0.0
        parts.append(_label(label, y + ROW / 2 - 4))
        for place, value in enumerate(values):
            if not value:
                continue
            left, right = sorted((axis.at(start), axis.at(start + value)))
            parts.append(
                f'<rect class="s{place % 5}" x="{left}" y="{y}" width="{round(right - left, 2)}" height="{ROW - 8}"/>'
            )
            start += value
    x: float = LABEL
    for place, name in enumerate(chart.parts):
        parts.append(f'<rect class="s{place % 5}" x="{x}" y="{height - 2}" width="11" height="11"/>')
        parts.append(
            f'<text class="tick" x="{x + 16}" y="{height + 8}">{html.escape(clean(name, 40))}</text>'
        )
        x += 34 + 7.2 * len(clean(name, 40))
    return "".join(parts), height + 16


def _strip(chart: Strip) -> tuple[str, int]:
    numbers = [value for _, values in chart.rows for value in values]
    axis = _Axis(numbers + ([chart.band, -chart.band] if chart.band else []), LABEL, WIDTH - RIGHT)
    frame, height = _frame(chart, axis, len(chart.rows))
    parts = [frame]
    for index, (label, values) in enumerate(chart.rows):
        y = TOP + ROW * (index + 0.5)
        parts.append(_label(label, y))
        parts += [
            f'<line class="tally" x1="{axis.at(value)}" x2="{axis.at(value)}" y1="{y - 7}" y2="{y + 7}"/>'
            for value in values
        ]
    return "".join(parts), height


def _curve(chart: Curve) -> tuple[str, int]:
    form = UNITS[chart.unit]
    scale: Callable[[float], float] = (lambda x: math.log10(max(x, 1e-9))) if chart.log_x else float
    points = [(scale(x), point) for _, rows in chart.series for x, point in rows if point.value is not None]
    numbers = [value for _, p in points for value in (p.value, p.low, p.high) if value is not None]
    across = _Axis([x for x, _ in points], 80, WIDTH - RIGHT)
    if points:
        across.low, across.high = min(x for x, _ in points), max(x for x, _ in points) or 1.0
        across.high = max(across.high, across.low + 1e-9)
    up = _Axis(numbers, 280, TOP)
    parts = []
    for value in ticks(up.low, up.high):
        y = up.at(value)
        parts.append(f'<line class="grid" x1="80" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="72" y="{y + 4}" text-anchor="end">{form(value)}</text>')
    for x in dict.fromkeys(x for _, rows in chart.series for x, _ in rows):
        place = across.at(scale(x))
        parts.append(f'<text class="tick" x="{place}" y="298" text-anchor="middle">{x:g}</text>')
    middle = (80 + WIDTH - RIGHT) / 2
    parts.append(
        f'<text class="tick" x="{middle}" y="320" text-anchor="middle">{html.escape(clean(chart.x_axis, 90))}</text>'
    )
    for index, (name, rows) in enumerate(chart.series):
        drawn = [(across.at(scale(x)), point) for x, point in rows if point.value is not None]
        path = " ".join(f"{x},{up.at(point.value or 0.0)}" for x, point in drawn)
        parts.append(f'<polyline class="path s{index % 5}" points="{path}"/>')
        for x, point in drawn:
            if point.low is not None and point.high is not None:
                low, high = up.at(point.low), up.at(point.high)
                parts.append(f'<line class="arm s{index % 5}" x1="{x}" x2="{x}" y1="{low}" y2="{high}"/>')
            parts.append(
                f'<circle class="dot s{index % 5}" cx="{x}" cy="{up.at(point.value or 0.0)}" r="4"/>'
            )
        parts.append(
            f'<text class="tick" x="{92}" y="{TOP + 14 + 16 * index}">{html.escape(clean(name, 60))}</text>'
        )
    return "".join(parts), 330


_BODIES: dict[type, Callable[..., tuple[str, int]]] = {
    Forest: _forest,
    Bars: _bars,
    Strip: _strip,
    Curve: _curve,
}
