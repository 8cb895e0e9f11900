"""Figures of profiler traces, from the records that ``rcatools.trace`` computes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rcatools.report.safe import plot_text
from rcatools.report.trace_tables import largest_kernels
from rcatools.trace.bounds import Ceilings
from rcatools.trace.decompose import TERMS
from rcatools.trace.diff import TraceDiff
from rcatools.trace.gaps import gaps
from rcatools.trace.model import Trace
from rcatools.trace.summary import Summary
from rcatools.units import duration_us, percent

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""Okabe and Ito's palette, told apart with any colour vision."""

_LONGEST_NAME = 56
_MOST_POINTS = 4000


def _layout(figure: go.Figure, title: str, below: str = "", **more: object) -> go.Figure:
    """The common form; ``below`` is a smaller second line of the title."""
    figure.update_layout(
        title={"text": f"{title}<br><sup>{below}</sup>" if below else title, "yref": "container", "y": 0.97, "yanchor": "top"},
        template="plotly_white", legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0}, margin={"t": 96, "b": 40},
        **{"height": 440, **more},
    )  # fmt: skip
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    return figure


def _of(label: str) -> str:
    return f" of {plot_text(label)}" if label else ""


def _short(name: object, longest: int = _LONGEST_NAME) -> str:
    text = str(name)
    text = text if len(text) <= longest else f"{text[: longest - 14]}...{text[-11:]}"
    return plot_text(text)


def _colours(labels: pd.Series) -> dict[str, str]:
    return {
        str(label): COLOURS[index % len(COLOURS)]
        for index, label in enumerate(dict.fromkeys(labels.astype(str)))
    }


def share_figure(summary: Summary, top: int = 15, label: str = "") -> go.Figure:
    """Share of the kernel time per kernel, largest on top, coloured by role; the rest is one bar."""
    rows = summary.kernels.head(top)
    colour = _colours(rows["role"])
    figure = go.Figure()
    for role in colour:
        part = rows[rows["role"] == role]
        figure.add_bar(
            y=[f"{index + 1}. {_short(name)}" for index, name in zip(part.index, part["name"], strict=True)],
            x=part["share"],
            orientation="h",
            name=plot_text(role),
            marker_color=colour[role],
            text=[percent(share) for share in part["share"]],
            hovertext=[
                f"{plot_text(str(name)[:400])}<br>{count} launches, median {duration_us(median)}, {plot_text(bound)}"
                for name, count, median, bound in zip(
                    part["name"], part["count"], part["median_us"], part["bound"], strict=True
                )
            ],
            hoverinfo="text",
        )
    rest = summary.kernels.iloc[top:]
    if len(rest):
        figure.add_bar(
            y=[f"{len(rest)} more kernels"],
            x=[rest["share"].sum()],
            orientation="h",
            name="rest",
            marker_color="#999999",
        )
    held = summary.coverage
    covered = f"{held.kernels} kernels, {duration_us(held.kernel_us, 4)}; {held.unlinked} without a launch in the file"
    order = {"autorange": "reversed", "categoryorder": "array", "categoryarray": [
        *(f"{index + 1}. {_short(name)}" for index, name in zip(rows.index, rows["name"], strict=True)),
        f"{len(rest)} more kernels"]}  # fmt: skip
    return _layout(
        figure, f"Share of the kernel time{_of(label)}", covered, barmode="stack", height=190 + 24 * (len(rows) + 1),
        xaxis={"tickformat": ".0%", "title": "share of the kernel time"}, yaxis=order,
    )  # fmt: skip


def roofline_figure(summary: Summary, ceilings: Ceilings, dtype: str = "bf16", label: str = "") -> go.Figure:
    """Achieved rate against arithmetic intensity of the kernels whose work is known, under the ceilings.

    Kernels without known work are counted in the title. No point is moved to fit under a ceiling.
    """
    table = summary.kernels
    known = table[(table["bytes_per_s"].astype(float) > 0) & (table["flops_per_s"].astype(float) > 0)]
    intensity = known["flops_per_s"].astype(float) / known["bytes_per_s"].astype(float)
    colour = _colours(known["bound"])
    figure = go.Figure()
    for bound in colour:
        part = known["bound"] == bound
        figure.add_scatter(
            x=intensity[part], y=known.loc[part, "flops_per_s"].astype(float), mode="markers", name=plot_text(bound),
            marker={"color": colour[bound], "size": 6 + 30 * np.sqrt(known.loc[part, "share"])},
            hovertext=[f"{_short(name)}<br>{plot_text(basis)}" for name, basis in zip(known.loc[part, "name"], known.loc[part, "bound_basis"], strict=True)],
            hoverinfo="text",
        )  # fmt: skip
    rate, bandwidth = ceilings.flops.get(dtype), ceilings.bytes_per_s
    if rate and bandwidth:
        low = min([0.05, *intensity])
        ridge = rate / bandwidth
        figure.add_scatter(
            x=[low, ridge, max([ridge * 20, *intensity])], y=[low * bandwidth, rate, rate], mode="lines",
            line={"color": "black", "width": 1}, name=plot_text(f"ceilings: {ceilings.source}"),
        )  # fmt: skip
    share = float(known["share"].sum()) if len(known) else 0.0
    return _layout(
        figure, f"Roofline{_of(label)}", f"{len(known)} of {len(table)} kernels, {percent(share)} of the kernel time",
        xaxis={"type": "log", "title": "floating-point operations per byte"},
        yaxis={"type": "log", "title": f"operations per second ({plot_text(dtype)})"},
    )  # fmt: skip


def distribution_figure(traces: Mapping[str, Trace], top: int = 6) -> go.Figure:
    """Durations of the kernels with the most time, one box per kernel and run.

    At most 4000 launches are drawn, evenly spaced in the order of their start; the title says how many of how many.
    """
    tables = {label: trace.only_kernels() for label, trace in traces.items()}
    names = largest_kernels(traces, top)
    parts = {
        (label, name): table.loc[table["name"].astype(object) == name, "dur_us"].to_numpy()
        for label, table in tables.items()
        for name in names
    }
    whole = sum(part.size for part in parts.values())
    drawn = {key: part[:: -(-whole // _MOST_POINTS) or 1] for key, part in parts.items()}
    ticks = {name: f"{place}. {_short(name, 30)}" for place, name in enumerate(names, start=1)}
    figure = go.Figure()
    for index, label in enumerate(tables):
        figure.add_box(
            x=[ticks[name] for name in names for _ in range(drawn[label, name].size)],
            y=np.concatenate([drawn[label, name] for name in names]) if names else [],
            name=plot_text(label), marker_color=COLOURS[index % len(COLOURS)], boxpoints="outliers",
        )  # fmt: skip
    shown = sum(part.size for part in drawn.values())
    return _layout(
        figure, "Duration of each launch, by run", f"{shown} of {whole} launches drawn", boxmode="group",
        yaxis={"title": "us", "type": "log"}, height=560,
        xaxis={"categoryorder": "array", "categoryarray": list(ticks.values())},
    )  # fmt: skip


def waterfall_figure(difference: TraceDiff) -> go.Figure:
    """From the span of a to that of b, one step per term."""
    before, after = difference.spans_us
    values = [difference.terms[f"{term}_us"] for term in TERMS]
    figure = go.Figure(
        go.Waterfall(
            x=["a", *TERMS, "b"],
            y=[before, *values, after],
            measure=["absolute", *["relative"] * len(TERMS), "total"],
            text=[duration_us(before, 4), *(f"{value:+.1f} us" for value in values), duration_us(after, 4)],
            increasing={"marker": {"color": COLOURS[5]}},
            decreasing={"marker": {"color": COLOURS[0]}},
            totals={"marker": {"color": COLOURS[7]}},
        )
    )
    low = min(before, after, before + min(np.cumsum([0.0, *values])))
    high = max(before, after, before + max(np.cumsum([0.0, *values])))
    room = 0.15 * (high - low) or 0.01 * high
    state = "" if difference.comparable else " - NOT COMPARABLE"
    return _layout(
        figure, f"Where {difference.total_delta_us:+.1f} us come from{state}", showlegend=False,
        yaxis={"title": "span, us", "range": [low - room, high + room]},
    )  # fmt: skip


def delta_figure(difference: TraceDiff) -> go.Figure:
    """Change of each aligned launch against its duration, with the fitted fixed cost and share.

    At most 4000 launches are drawn, evenly spaced in launch order; the title says how many of how many.
    """
    pairs = difference.pairs
    drawn = pairs.iloc[:: max(len(pairs) // _MOST_POINTS, 1)]
    mean = (drawn["dur_a"] + drawn["dur_b"]) / 2
    colour = _colours(drawn["role"])
    figure = go.Figure()
    for role in colour:
        part = drawn["role"] == role
        figure.add_scattergl(
            x=mean[part], y=(drawn["dur_b"] - drawn["dur_a"])[part], mode="markers", name=plot_text(role),
            marker={"color": colour[role], "size": 4, "opacity": 0.6},
            hovertext=[_short(name) for name in drawn.loc[part, "name"]], hoverinfo="text+x+y",
        )  # fmt: skip
    fit = difference.fit
    if np.isfinite(fit.ratio) and len(drawn):
        share = fit.ratio - 1
        grid = np.geomspace(max(float(mean.min()), 1e-3), float(mean.max()), 100)
        figure.add_scatter(
            x=grid, y=(share * grid + fit.us_per_kernel) / (1 + share / 2), mode="lines", line={"color": "black"},
            name=f"{fit.us_per_kernel:+.3f} us and {percent(abs(share))} {'more' if share >= 0 else 'less'}",
        )  # fmt: skip
    return _layout(
        figure, f"Change against duration: {plot_text(difference.reading)}", f"{len(drawn)} of {len(pairs)} launches drawn",
        xaxis={"type": "log", "title": "mean duration of the pair, us"}, yaxis={"title": "b minus a, us"},
    )  # fmt: skip


def gaps_figure(traces: Mapping[str, Trace], place: str = "replay") -> go.Figure:
    """Share of the boundaries with at most this gap, one line per trace; drawn up to the 99 % quantile."""
    figure = go.Figure()
    reach: list[float] = []
    for index, (label, trace) in enumerate(traces.items()):
        table = gaps(trace).table
        values = np.sort(table.loc[table["place"] == place, "gap_ns"].to_numpy()) / 1000
        at = np.unique(np.linspace(0, max(values.size - 1, 0), min(values.size, 1000)).astype(int))
        reach += np.quantile(values, [0.005, 0.99]).tolist() if values.size else []
        figure.add_scatter(
            x=values[at] if values.size else [], y=(at + 1) / max(values.size, 1), mode="lines", line_shape="hv",
            name=plot_text(f"{label} ({values.size} boundaries)"), line={"color": COLOURS[index % len(COLOURS)]},
        )  # fmt: skip
    room = 0.03 * (max(reach) - min(reach)) or 1.0 if reach else 0.0
    shown = {"range": [min(reach) - room, max(reach) + room]} if reach else {}
    return _layout(
        figure, "Idle time between consecutive activities of a stream", "one boundary in a hundred is longer than what is drawn",
        xaxis={"title": "us (below zero: overlap)", **shown}, yaxis={"title": "share of the boundaries", "tickformat": ".0%"},
    )  # fmt: skip
