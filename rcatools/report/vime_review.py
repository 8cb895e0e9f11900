"""The four findings of the review of RL-Kernel#403: which are real, and what each costs to close."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from rcatools import units
from rcatools.diagnosis.graph_hazards import GraphHazards
from rcatools.report import words
from rcatools.report.figures import records
from rcatools.report.vime_told import medians, observation, told
from rcatools.units import counted

BETWEEN, IN_A_GRAPH = "between ranks", "in a graph, one rank"
BASELINES = {
    "packed_cached": "the published form",
    "packed_cached_column": "the published form that copies only the column",
}
# Demonstrations that speak about each finding, and checks of the fix's price.
REVIEW: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "The whole message is copied to pick one column": (
        (),
        (("copy", f"only the column copied, {BETWEEN}"), ("graph_copy", IN_A_GRAPH)),
    ),
    "Shared buffers are overwritten by concurrent calls, or freed under a captured graph": (
        ("shared_buffer", "shared_by_streams", "evicted_buffer"),
        (("owned", f"owned buffers, {BETWEEN}"), ("graph_owned", IN_A_GRAPH)),
    ),
    "A rank-local cache lets one rank skip a collective": (
        ("rank_skips_then_gather", "rank_skips_then_barrier"),
        (
            ("safe_by_digest", f"digest carried in the message and owned buffers, {BETWEEN}"),
            ("graph_digest", IN_A_GRAPH),
            ("safe_by_agreement", f"all ranks asked before each skip and owned buffers, {BETWEEN}"),
        ),
    ),
    "A key from the group's id fits a later group": (
        ("reused_group_id",),
        (("keyed", f"members and epoch as key, {BETWEEN}"), ("graph_keyed", IN_A_GRAPH)),
    ),
}


def review(table: pd.DataFrame) -> list[str]:
    """Which findings of the review are real: what the demonstrations showed."""
    found = []
    for finding, (hazards, _) in REVIEW.items():
        if not hazards:
            found.append(
                f"{finding}: real by counting (on four ranks 33 numbers a row and rank are copied, one is needed); "
                "whether that takes time stands under the costs."
            )
            continue
        part = table[table["hazard"].isin(hazards)]
        published, safe = part[part["safe"] == 0], part[part["safe"] == 1]
        if published.empty:
            found.append(f"{finding}: not tested.")
            continue
        real = "real" if (published["harmed"] == 1).any() else "not seen"
        seen = "; ".join(
            f"{row['hazard'].replace('_', ' ')}: {row['seen']}, {row['device']}" for row in records(published)
        )
        still = int((safe["harmed"] == 1).sum())
        found.append(
            f"{finding}: {real} ({seen}). Harm in the safe forms: {still} of {counted(len(safe), 'demonstration')}."
        )
    found.append(
        "Each was met on purpose, in forms written here after the published ones. Whether the published run met one is "
        "not known; its three steps reported no mismatch."
    )
    return found


def safety(document: Mapping[str, Any], graphs: GraphHazards | None) -> list[str]:
    """What closing each finding costs: time of the safe form against the form with the hazard, named with each."""
    found = []
    for finding, (_, prices) in REVIEW.items():
        priced: dict[str, list[str]] = {}
        for name, label in prices:
            if text := told(document, name, label):
                priced.setdefault(_baseline(document, name), []).append(
                    text + _other_rows(document, name, graphs)
                )
        texts = [
            words.capital(
                "; ".join([f"against {baseline}: {items[0]}" if baseline else items[0], *items[1:]])
            )
            for baseline, items in priced.items()
        ]
        if texts:
            found.append(f"{finding}. {'. '.join(texts)}.")
    same = _other_rows(document, "graph_keyed", graphs)
    if same:
        found.append(
            "In a graph the row count is 8 where no other is named. The new key changes nothing that a graph replays, so what "
            f"it differs by{same} is chance, and so may be anything of that size."
        )
    found.append(
        "A digest carried in the message closes the last two findings together: no cache is left that a rank could hit "
        "alone or by an old id."
    )
    return found


def _baseline(document: Mapping[str, Any], name: str) -> str:
    """What a price is measured against, in words; empty where it was not measured."""
    item = observation(document, name)
    if item is None or not item["evidence"]:
        return ""
    arm = str(item["evidence"][0]["arms"][1])
    return BASELINES.get(arm, arm)


def _other_rows(document: Mapping[str, Any], name: str, graphs: GraphHazards | None) -> str:
    """The same comparison at the other row counts that were timed in a graph: medians over processes."""
    item = observation(document, name)
    if graphs is None or not name.startswith("graph_") or item is None or not item["evidence"]:
        return ""
    arm, against = item["evidence"][0]["arms"]
    found = []
    for rows in sorted(set(graphs.times["rows"]) - {8}):
        time = medians(graphs, int(rows))
        if {("graph", arm), ("graph", against)} <= set(time):
            change = units.change(time["graph", arm] / time["graph", against])
            found.append(f"{counted(int(rows), 'row')} {change}")
    return f" ({', '.join(found)})" if found else ""
