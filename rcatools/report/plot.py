"""Charts as plotly figures, for notebooks and for the page."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from rcatools.report.charts import UNITS, Bars, Chart, Curve, Forest, Interval, Strip
from rcatools.report.safe import plot_text
from rcatools.report.theme import FONT, LIGHT, Palette

ROW_PX, FRAME_PX = 26, 92
_PERCENT = (100.0, " %")


def figure(chart: Chart, palette: Palette = LIGHT) -> go.Figure:
    """The plotly figure of a chart; every text in it is made harmless."""
    made: go.Figure
    if isinstance(chart, Forest):
        made = _forest(chart, palette)
    elif isinstance(chart, Bars):
        made = _bars(chart, palette)
    elif isinstance(chart, Strip):
        made = _strip(chart, palette)
    else:
        made = _curve(chart, palette)
    made.update_layout(
        template="none",
        font={"family": FONT, "size": 13, "color": palette.ink},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 8, "r": 16, "t": 8, "b": 44},
        hoverlabel={"font": {"family": FONT}, "bgcolor": palette.panel, "bordercolor": palette.line},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "traceorder": "normal"},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": palette.muted, "activecolor": palette.ink},
    )
    made.update_xaxes(title_font={"size": 12, "color": palette.muted}, tickfont={"size": 12})
    made.update_yaxes(title_font={"size": 12, "color": palette.muted}, tickfont={"size": 12})
    axis = {"gridcolor": palette.line, "zeroline": False, "automargin": True, "linecolor": palette.line}
    made.update_xaxes(**axis)
    made.update_yaxes(**axis)
    return made


def _unit(chart: Chart) -> tuple[float, str]:
    """Factor and suffix of the value axis; sizes and times get the prefix that suits the largest value."""
    largest = max((abs(value) for value in _values(chart)), default=0.0)
    if chart.unit in {"change", "share"}:
        return _PERCENT
    if chart.unit == "bytes":
        steps = ((2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"))
        return next(((1 / size, suffix) for size, suffix in steps if largest >= size), (1.0, " B"))
    if chart.unit == "us":
        return (1e-3, " ms") if largest >= 1e4 else (1.0, " us")
    return 1.0, ""


def _values(chart: Chart) -> list[float]:
    found: list[float | None] = []
    if isinstance(chart, Forest):
        found = [value for row in chart.rows for value in (row.value, row.low, row.high)]
    elif isinstance(chart, Bars):
        found = [sum(value for value in values if value) for _, values in chart.rows]
    elif isinstance(chart, Strip):
        found = [value for _, values in chart.rows for value in values]
    else:
        found = [point.value for _, points in chart.series for _, point in points]
    return [value for value in found if value is not None]


def _rows_layout(chart: Forest | Bars | Strip, labels: list[str]) -> dict[str, Any]:
    return {
        "height": FRAME_PX + ROW_PX * max(1, len(labels)),
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": labels[::-1],
            "showgrid": False,
            "ticksuffix": " ",
        },
        "xaxis": {"title": {"text": plot_text(chart.axis)}, "ticksuffix": _unit(chart)[1]},
    }


def _reference(
    made: go.Figure, band: float | None, scale: float, palette: Palette, *, vertical: bool
) -> None:
    add_line, add_band = (made.add_vline, made.add_vrect) if vertical else (made.add_hline, made.add_hrect)
    edges = ("x0", "x1") if vertical else ("y0", "y1")
    if band:
        add_band(
            **{edges[0]: -band * scale, edges[1]: band * scale},
            fillcolor=palette.good,
            opacity=0.10,
            line_width=0,
            layer="below",
        )
    add_line(**{"x" if vertical else "y": 0}, line={"color": palette.muted, "width": 1})


def _arms(points: list[Interval], scale: float) -> dict[str, Any]:
    def distance(point: Interval, bound: float | None) -> float:
        return 0.0 if bound is None or point.value is None else abs(bound - point.value) * scale

    return {
        "type": "data",
        "symmetric": False,
        "array": [distance(point, point.high) for point in points],
        "arrayminus": [distance(point, point.low) for point in points],
        "thickness": 1.6,
        "width": 4,
    }


def _forest(chart: Forest, palette: Palette) -> go.Figure:
    scale, _ = _unit(chart)
    form = UNITS[chart.unit]
    made = go.Figure()
    labels = [plot_text(row.label) for row in chart.rows]
    for tone in dict.fromkeys(row.tone for row in chart.rows):
        chosen = [row for row in chart.rows if row.tone == tone and row.value is not None]
        made.add_trace(
            go.Scatter(
                x=[row.value * scale for row in chosen if row.value is not None],
                y=[plot_text(row.label) for row in chosen],
                error_x={**_arms(chosen, scale), "color": palette.tone(tone)},
                mode="markers",
                marker={"color": palette.tone(tone), "size": 9, "symbol": _symbol(tone)},
                customdata=[
                    [form(row.value), form(row.low), form(row.high), plot_text(row.note)] for row in chosen
                ],
                hovertemplate="<b>%{y}</b><br>%{customdata[0]} [%{customdata[1]}, %{customdata[2]}]"
                "<br>%{customdata[3]}<extra></extra>",
                showlegend=False,
            )
        )
    made.update_layout(**_rows_layout(chart, labels))
    _reference(made, chart.band, scale, palette, vertical=True)
    return made


def _symbol(tone: str) -> str:
    return {"bad": "triangle-right", "good": "circle", "calm": "circle-open", "open": "diamond-open"}.get(
        tone, "square"
    )


def _bars(chart: Bars, palette: Palette) -> go.Figure:
    scale, _ = _unit(chart)
    form = UNITS[chart.unit]
    labels = [plot_text(label) for label, _ in chart.rows]
    made = go.Figure()
    for index, part in enumerate(chart.parts):
        values = [row[1][index] for row in chart.rows]
        made.add_trace(
            go.Bar(
                orientation="h",
                name=plot_text(part),
                x=[None if value is None else value * scale for value in values],
                y=labels,
                marker={"color": palette.series[index % len(palette.series)], "line": {"width": 0}},
                customdata=[form(value) for value in values],
                hovertemplate="<b>%{y}</b><br>%{fullData.name}: %{customdata}<extra></extra>",
            )
        )
    made.update_layout(barmode="relative", bargap=0.35, **_rows_layout(chart, labels))
    made.update_layout(height=FRAME_PX + 28 + ROW_PX * max(1, len(labels)))
    return made


def _strip(chart: Strip, palette: Palette) -> go.Figure:
    scale, _ = _unit(chart)
    labels = [plot_text(label) for label, _ in chart.rows]
    made = go.Figure()
    for label, values in chart.rows:
        made.add_trace(
            go.Scatter(
                x=[value * scale for value in values],
                y=[plot_text(label)] * len(values),
                mode="markers",
                marker={
                    "color": palette.accent,
                    "size": 9,
                    "opacity": 0.55,
                    "symbol": "line-ns",
                    "line": {"width": 2, "color": palette.accent},
                },
                customdata=[UNITS[chart.unit](value) for value in values],
                hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>",
                showlegend=False,
            )
        )
    made.update_layout(**_rows_layout(chart, labels))
    _reference(made, chart.band, scale, palette, vertical=True)
    return made


def _curve(chart: Curve, palette: Palette) -> go.Figure:
    scale, suffix = _unit(chart)
    made = go.Figure()
    for index, (name, points) in enumerate(chart.series):
        colour = palette.series[index % len(palette.series)]
        intervals = [point for _, point in points if point.value is not None]
        made.add_trace(
            go.Scatter(
                name=plot_text(name),
                x=[x for x, point in points if point.value is not None],
                y=[point.value * scale for point in intervals if point.value is not None],
                error_y={**_arms(intervals, scale), "color": colour},
                mode="lines+markers",
                line={"color": colour, "width": 1.6, "dash": "solid" if index == 0 else "dot"},
                marker={"color": colour, "size": 8, "symbol": index % 6},
                hovertemplate="%{x}: %{y:.3f}" + suffix + "<extra>%{fullData.name}</extra>",
                showlegend=len(chart.series) > 1,
            )
        )
    made.update_layout(
        height=360,
        xaxis={"title": {"text": plot_text(chart.x_axis)}, **_x_ticks(chart)},
        yaxis={"title": {"text": plot_text(chart.axis)}, "ticksuffix": suffix},
    )
    _reference(made, chart.band, scale, palette, vertical=False)
    return made


def _x_ticks(chart: Curve) -> dict[str, Any]:
    """A logarithmic axis is marked at the measured places only."""
    if not chart.log_x:
        return {"type": "linear"}
    places = sorted({x for _, points in chart.series for x, _ in points})
    return {"type": "log", "tickvals": places, "ticktext": [f"{x:g}" for x in places], "minor": {"ticks": ""}}
