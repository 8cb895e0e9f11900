"""What vime-decode saw of the exchange on one GPU: launched eagerly and in a graph, one rank, no transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rcatools import units
from rcatools.diagnosis import decode_product as dp
from rcatools.diagnosis.graph_hazards import GraphHazards
from rcatools.report.figures import records
from rcatools.report.vime_told import equal_arms, spread, told
from rcatools.units import counted

ROWS = 8
ON_THE_CARD = (
    ("eager_exchange", "published form against the one before RL-Kernel#403, launched eagerly"),
    ("eager_pickled", "agreement by a tensor against pickled objects, launched eagerly"),
    (
        "eager_readback",
        "two checks read back on the host in each call, as before RL-Kernel#403, against none, launched eagerly",
    ),
    ("graph_split", "one message in three gathers against one, in a graph"),
    ("graph_preflight", "agreement kept against gathered each call, in a graph"),
)


def sentences(document: Mapping[str, Any], graphs: GraphHazards, product: dp.ProductData | None) -> list[str]:
    """What the forms take where no transport is in it, and how much that is of a decode step."""
    return _compared(document, graphs) + _captured(graphs) + _against_products(graphs, product)


def _compared(document: Mapping[str, Any], graphs: GraphHazards) -> list[str]:
    """One sentence per comparison of forms, then how much equal arms differ."""
    found = [text for name, label in ON_THE_CARD if (text := told(document, name, label, silent=True))]
    if not found:
        return []
    lines = [f"One rank, {ROWS} rows, {text}." for text in found]
    equal = {
        place: units.percent(largest)
        for place, how in (("launched eagerly", "eager"), ("in a graph", "graph"))
        if (largest := equal_arms(graphs, how)) is not None
    }
    if equal:
        parts = ", ".join(f"{place} by up to {largest}" for place, largest in equal.items())
        lines.append(f"One form timed twice in a process differs {parts}.")
    return lines


def _captured(graphs: GraphHazards) -> list[str]:
    refused = graphs.captures[~graphs.captures["captured"].astype(bool)]["form"].tolist()
    kept = [row["form"] for row in records(graphs.captures) if row["replay_equal"] is True]
    where = f"On {graphs.device}, {counted(graphs.world, 'rank')}"
    found = []
    if refused:
        found.append(
            f"{where}: no CUDA graph takes {', '.join(map(str, refused))}; captured, and right on replay: "
            f"{', '.join(map(str, kept))}. Whether the published rollout captured this call is not known."
        )
    time = spread(graphs, ROWS)
    if {("graph", "packed"), ("eager", "packed")} <= set(time):
        processes = counted(graphs.times["process"].nunique(), "process", "processes")
        found.append(
            f"{where}, {ROWS} rows, {processes}: one exchange of packed takes {_range(time['eager', 'packed'])} launched "
            f"eagerly and {_range(time['graph', 'packed'])} in a replayed graph. One rank has no transport: this is "
            "launches and copies alone."
        )
    return found


def _range(values: tuple[float, float, float]) -> str:
    """A median over processes with the least and the greatest: "714 us (470 us to 802 us)"."""
    low, median, high = (units.duration_us(value) for value in values)
    return f"{median} ({low} to {high})" if low != high else median


def _against_products(graphs: GraphHazards, product: dp.ProductData | None) -> list[str]:
    """How much an exchange is beside the products of a decode step, on the same card."""
    if product is None:
        return []
    time, step = spread(graphs, ROWS), dp.token_times(product)
    if not {("graph", "packed"), ("eager", "packed")} <= set(time):
        return []
    return [
        f"For scale: the decode products of one step of {ROWS} rows take {units.duration_us(row['default'])} on that card "
        "with the default tiles, without attention, norms and transport; one exchange is "
        f"{_part(time['eager', 'packed'], row['default'])} of that launched eagerly and "
        f"{_part(time['graph', 'packed'], row['default'])} in a replay."
        for row in records(step[step["rows"] == ROWS])
    ]


def _part(values: tuple[float, float, float], whole: float) -> str:
    low, median, high = (units.percent(value / whole) for value in values)
    return f"{median} ({low} to {high})" if low != high else median
