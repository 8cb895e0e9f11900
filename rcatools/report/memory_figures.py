"""Figures of memory snapshots, from the tables that ``rcatools.memory`` computes."""

from __future__ import annotations

import html
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rcatools.memory.build import pool_label
from rcatools.memory.diff import stream_labels, stream_order
from rcatools.memory.ledger import Ledger
from rcatools.memory.snapshot import ALLOCATED, INACTIVE, PENDING, Snapshot
from rcatools.units import byte_count, byte_size

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""Okabe and Ito's palette, told apart with any colour vision."""

_STATES = {
    ALLOCATED: ("in use", "#0072B2"),
    PENDING: ("waiting for another stream", "#E69F00"),
    INACTIVE: ("unused", "#CCCCCC"),
}
_PARTS = (
    ("allocated", "in use", "#0072B2"),
    ("awaiting_free", "waiting for another stream", "#E69F00"),
    ("stranded", "stranded", "#D55E00"),
    ("releasable", "releasable", "#CCCCCC"),
    ("unlisted", "not listed in the file", "#000000"),
)
_GIB = 1 << 30


def _layout(figure: go.Figure, title: str, **more: object) -> go.Figure:
    figure.update_layout(
        title=title, template="plotly_white", legend={"orientation": "h", "y": -0.2}, margin={"t": 60}, **more
    )
    return figure


def ledger_figure(balance: Ledger, labels: dict[int, str], title: str = "Reserved memory") -> go.Figure:
    """Stacked bars, one per stream and pool: what the reserved bytes are."""
    rows = balance.rows
    keys = ["device", "stream", "pool"]
    table = rows.assign(
        stream=[labels[s] for s in rows["stream"]], pool=[pool_label(p) for p in rows["pool_id"]]
    )
    table = table.groupby(keys, as_index=False, sort=False)[[name for name, _, _ in _PARTS]].sum()
    several = table["device"].nunique() > 1
    names = [
        f"{'GPU ' + str(d) + ', ' if several else ''}{s}, {p}"
        for d, s, p in zip(*(table[k] for k in keys), strict=True)
    ]
    figure = go.Figure()
    for column, text, colour in _PARTS:
        if column == "unlisted" and not table[column].any():
            continue
        figure.add_bar(
            y=names,
            x=table[column] / _GIB,
            name=text,
            orientation="h",
            marker_color=colour,
            customdata=[byte_count(v) for v in table[column]],
            hovertemplate="%{y}<br>" + text + ": %{customdata}<extra></extra>",
        )
    return _layout(figure, title, barmode="stack", xaxis_title="GiB", yaxis={"autorange": "reversed"})


def timeline_figure(timeline: pd.DataFrame, title: str = "Memory over the recorded events") -> go.Figure:
    """Reserved (line) and requested (filled) bytes per stream against the event number."""
    figure = go.Figure()
    for number, (stream, part) in enumerate(timeline.groupby("stream", sort=False)):
        colour = COLOURS[number % len(COLOURS)]
        for column, dash, fill in (("reserved", "solid", None), ("requested", "dot", "tozeroy")):
            figure.add_scatter(
                x=part["event"],
                y=part[column] / _GIB,
                name=f"{stream}: {column}",
                mode="lines",
                line={"color": colour, "dash": dash, "width": 1, "shape": "hv"},
                fill=fill,
                hovertemplate="event %{x}<br>%{y:.3f} GiB<extra>" + f"{stream}: {column}" + "</extra>",
            )
    return _layout(figure, title, xaxis_title="event", yaxis_title="GiB")


def lifetime_figure(lifetimes: pd.DataFrame, largest: int = 300) -> go.Figure:
    """When each driver segment was held, by stream; only the largest ones, and the title says how many."""
    shown = lifetimes.nlargest(largest, "size").sort_values(["stream", "created", "address"])
    shown = shown.assign(row=range(len(shown)))
    figure = go.Figure()
    for number, (stream, part) in enumerate(shown.groupby("stream", sort=False)):
        figure.add_bar(
            y=part["row"],
            x=part["released"] - part["created"],
            base=part["created"],
            orientation="h",
            name=str(stream),
            marker_color=COLOURS[number % len(COLOURS)],
            customdata=[
                f"{byte_size(s)}, {'still held' if h else 'released'}"
                for s, h in zip(part["size"], part["held"], strict=True)
            ],
            hovertemplate="%{customdata}<br>from event %{base}<extra>" + str(stream) + "</extra>",
        )
    left_out = len(lifetimes) - len(shown)
    title = f"Life of {len(shown)} segments" + (f" ({left_out} smaller ones not drawn)" if left_out else "")
    return _layout(
        figure, title, bargap=0, xaxis_title="event", yaxis={"showticklabels": False, "title": "segment"}
    )


def segment_map(snapshots: Sequence[tuple[str, Snapshot]], largest: int = 60) -> go.Figure:
    """Blocks inside the largest segments, one panel per snapshot: side by side for two arms.

    Each row is a segment, named by stream, pool and size; blocks stand at their offset as a share of the
    segment, because segments differ by orders of magnitude.
    """
    titles = []
    figure = make_subplots(cols=len(snapshots), rows=1, horizontal_spacing=0.2)
    for column, (name, snapshot) in enumerate(snapshots, start=1):
        rows = _map_rows(snapshot, largest)
        hidden = len(snapshot.segments) - rows["segment"].nunique()
        titles.append(html.escape(name) + (f" ({hidden} smaller segments not drawn)" if hidden else ""))
        for state, (text, colour) in _STATES.items():
            part = rows[rows["state"] == state]
            figure.add_bar(
                y=part["label"],
                x=part["share"],
                base=part["offset"],
                orientation="h",
                name=text,
                legendgroup=state,
                showlegend=column == 1,
                marker={"color": colour, "line": {"color": "white", "width": 0.5}},
                customdata=[byte_count(v) for v in part["size"]],
                hovertemplate="%{y}<br>%{customdata}, " + text + "<extra></extra>",
                row=1,
                col=column,
            )
        figure.update_yaxes(autorange="reversed", row=1, col=column)
        figure.update_xaxes(title_text="share of the segment", range=[0, 1], row=1, col=column)
    height = 160 + 18 * min(largest, max((len(s.segments) for _, s in snapshots), default=1))
    return _layout(figure, " | ".join(titles), barmode="overlay", bargap=0.1, height=height)


def _map_rows(snapshot: Snapshot, largest: int) -> pd.DataFrame:
    labels = stream_labels(stream_order(snapshot))
    order = list(labels.values())
    chosen = snapshot.segments.nlargest(largest, "total_size")
    chosen = chosen.assign(_rank=[order.index(labels[s]) for s in chosen["stream"]])
    chosen = chosen.sort_values(["device", "_rank", "total_size"], ascending=[True, True, False])
    names = {
        index: f"{number}: {labels[stream]}, {pool_label(pool)}, {byte_size(size)}"
        for number, (index, stream, pool, size) in enumerate(
            zip(chosen.index, *(chosen[c] for c in ("stream", "pool_id", "total_size")), strict=True)
        )
    }
    blocks = snapshot.blocks[snapshot.blocks["segment"].isin(chosen.index)]
    where = blocks["segment"].to_numpy()
    total = snapshot.segments["total_size"].to_numpy()[where]
    start = (blocks["address"].to_numpy() - snapshot.segments["address"].to_numpy()[where]).astype("int64")
    table = pd.DataFrame(
        {
            "segment": where,
            "label": [names[s] for s in where],
            "offset": start / total,
            "share": blocks["size"].to_numpy() / total,
            "size": blocks["size"].to_numpy(),
            "state": blocks["state"].to_numpy(),
            "_order": [list(names).index(s) for s in where],
        }
    )
    return table.sort_values(["_order", "offset"], ignore_index=True)
