"""Figures of vime-decode's checks in words: one comparison, and times in graphs over processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from rcatools import units
from rcatools.diagnosis.graph_hazards import GraphHazards
from rcatools.diagnosis.remarks import way
from rcatools.diagnosis.wording import replicated
from rcatools.report.figures import records


def observation(document: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The check of that id, or None."""
    return next((item for item in document["observations"] if item["id"] == name), None)


def ratio(document: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The evidence of a ratio that was measured, else None."""
    item = observation(document, name)
    places = item["evidence"] if item else []
    return places[0] if places and places[0]["unit"] == "ratio" and places[0]["value"] else None


def told(document: Mapping[str, Any], name: str, label: str, *, silent: bool = False) -> str:
    """A comparison in short: what, verdict, estimate, replicates, device; ``silent``: nothing where not measured."""
    item = observation(document, name)
    if item is None or not item["evidence"]:
        return "" if silent or item is None else f"{label}: not measured"
    e = item["evidence"][0]
    figures = [
        units.estimate(e["value"], e["ci_low"], e["ci_high"]),
        replicated(int(e["n"]), str(e.get("replicate", "block"))),
        str(e.get("device", "")),
    ]
    return f"{label}: {_verdict(item, e)}, {', '.join(part for part in figures if part)}"


def _verdict(item: Mapping[str, Any], e: Mapping[str, Any]) -> str:
    """The verdict in words; an interval that leaves 1 out inside the margin is a difference, though a small one."""
    outcome = str(item["outcome"] or "too few for a verdict")
    if outcome == "equivalent":
        seen = way(e["ci_low"], e["ci_high"])
        return f"{seen} by less than the margin" if seen else "no difference seen"
    if item["outcome"] and not item["definite"] and item["reason"]:
        return f"{outcome} ({item['reason']})"
    return outcome


def spread(graphs: GraphHazards, rows: int) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Least, median and greatest over processes of each process's median in microseconds, by (how, form)."""
    chosen = graphs.times[graphs.times["rows"] == rows]
    each = chosen.groupby(["how", "form", "process"])["us"].median()
    table = each.groupby(["how", "form"]).agg(["min", "median", "max"]).reset_index()
    return {
        (str(row["how"]), str(row["form"])): (float(row["min"]), float(row["median"]), float(row["max"]))
        for row in records(table)
    }


def medians(graphs: GraphHazards, rows: int) -> dict[tuple[str, str], float]:
    """Median over processes of each process's median in microseconds, by (how, form)."""
    return {key: values[1] for key, values in spread(graphs, rows).items()}


def equal_arms(graphs: GraphHazards, how: str) -> float | None:
    """The largest difference between two equal arms in one process, as a fraction; None where none was run twice."""
    chosen = graphs.times[graphs.times["how"] == how]
    each = chosen.groupby(["form", "rows", "process"])["us"].median().unstack("form")
    twice = [name for name in each.columns if f"{name}_again" in each.columns]
    ratios = pd.concat([each[f"{name}_again"] / each[name] for name in twice]).dropna() if twice else None
    return float((ratios - 1).abs().max()) if ratios is not None and len(ratios) else None
