"""The tables of arms, kernels and traces of a report, made from verdict.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rcatools import units
from rcatools.diagnosis import wording
from rcatools.report import words
from rcatools.report.table import Cell, Table, make

Document = Mapping[str, Any]
OTHER_CARD = " †"


def arms(document: Document, *, bars: bool = False) -> Table:
    """Every arm against the baseline; ``bars``: a bar of characters too."""
    scale = max((abs(item["ratio"] - 1) for item in document["arms"] if item["ratio"]), default=0.0)
    memory = any(item.get("live_bytes") is not None for item in document["arms"])
    places = short_recordings(document)
    rows = []
    for item in document["arms"]:
        bar = [words.bar(item["ratio"] - 1 if item["ratio"] else None, scale, 8)] if bars else []
        live = [units.byte_size(item.get("live_bytes"))] if memory else []
        rows.append(
            [
                Cell(item["arm"], code=True),
                item["summary"],
                words.verdict_cell(item["verdict"]),
                words.effect(item),
                *bar,
                words.detection(item["mde"]),
                str(item["n"]),
                units.p_value(item["p_value"]),
                *live,
                *([places.get(item["recording"], item["recording"])] if len(places) > 1 else []),
                "; ".join(
                    text for text in (wording.reasons(item["reasons"]), item.get("caveat", "")) if text
                ),
            ]
        )
    columns = ["Arm", "What it does", "Verdict", "Time against baseline", *(["−   0   +"] if bars else [])]
    columns += ["Detection limit", "Blocks", "p", *(["Left under side stream"] if memory else [])]
    columns += [*(["Recording"] if len(places) > 1 else []), "Reasons"]
    first = 5 if bars else 4
    marked = any(OTHER_CARD in name for name in places.values())
    note = f"{OTHER_CARD.strip()} recorded on another card of the same name." if marked else ""
    return make("All arms", columns, rows, numeric=(3, *range(first, first + 3 + memory)), note=note)


def short_recordings(document: Document) -> dict[str, str]:
    """The recordings that arms were timed in, each with its name without what all share; other cards marked."""
    names = list(dict.fromkeys(item["recording"] for item in document["arms"] if item["recording"]))
    words_of = [name.split("-") for name in names]
    shared = 0
    while words_of and all(len(w) > shared + 1 and w[shared] == words_of[0][shared] for w in words_of):
        shared += 1
    cards = {item["name"]: item.get("uuid") for item in document["environment"].get("recordings") or ()}
    first = document["environment"].get("uuid")
    return {
        name: "-".join(parts[shared:])
        + (OTHER_CARD if first and cards.get(name) not in (None, first) else "")
        for name, parts in zip(names, words_of, strict=True)
    }


def kernels(document: Document) -> Table:
    """Isolated kernels, suspect against baseline."""
    priced = bool(document.get("boundary")) and any(
        item.get("against_boundary") for item in document["kernels"]
    )
    rows = [
        [
            Cell(item["kernel"], code=True),
            item["bound"],
            units.significant(item["per_step"]) if item["per_step"] is not None else "",
            units.duration_us(item["base_us"]),
            units.signed_duration_us(item["delta_us"]),
            words.effect(item),
            *([item.get("against_boundary", "")] if priced else []),
            words.detection(item["mde"]),
            units.percent(item["share"]),
            units.share(item["ceiling"]) if item.get("ceiling") is not None else "",
            words.verdict_cell(item["verdict"]),
        ]
        for item in document["kernels"]
    ]
    columns = [
        "Kernel",
        "Bound",
        "Per step",
        "Baseline",
        "Difference",
        "Change",
        *(["Against one boundary"] if priced else []),
        "Detection limit",
        "Share of the step",
        "Of the measured ceiling",
        "Verdict",
    ]
    note = "Each launched back to back in a graph: a time holds one kernel boundary." if rows else ""
    title = "Kernels alone, suspect against baseline"
    if priced:
        price = document["boundary"]
        ends = sorted((price["delta_us"], price["gap_us"] or price["delta_us"]))
        note += (
            f" Against one boundary: whether the interval of the difference lies below, within or above "
            f"{units.duration_us(ends[0])} to {units.duration_us(ends[1])}, what one more costs."
        )
    numeric = (2, 3, 4, 5, 7, 8, 9) if priced else (2, 3, 4, 5, 6, 7, 8)
    return make(title, columns, rows, numeric=numeric, note=note)


def reconcile(document: Document) -> Table:
    """Does the trace explain the measured difference."""
    rows = [
        [
            Cell(item["arm"], code=True),
            units.signed_duration_us(item["measured_us"]),
            units.signed_duration_us(item["kernels_us"]),
            units.signed_duration_us(item["launches_us"]),
            units.signed_duration_us(item["gaps_us"]),
            units.signed_duration_us(item["unexplained_us"]),
            item["text"],
        ]
        for item in document["reconcile"]
    ]
    columns = [
        "Arm",
        "Step, measured",
        "Same kernels",
        "Added launches",
        "Same gaps",
        "Not explained",
        "Reading",
    ]
    note = (
        "Kernels, launches and gaps are traced. Added launches: kernels that only one of the two has, each with one gap of "
        "the baseline; a launch that is gone counts negative."
    )
    return make("Where the time went", columns, rows, numeric=(1, 2, 3, 4, 5), note=note if rows else "")


def mechanisms(document: Document) -> Table:
    """How each arm differs from the baseline, from measurement alone."""
    rows = [
        [
            Cell(item["arm"], code=True),
            words.MECHANISM_TEXT.get(item["kind"], item["kind"]),
            units.percent(item["share"]) if item["share"] is not None else "",
            item["text"],
        ]
        for item in document["mechanisms"]
    ]
    return make("What changed inside the step", ["Arm", "Kind", "Share", "Reading"], rows, numeric=(2,))


def plants(document: Document) -> Table:
    """Planted regressions: were they found, and taken for what they are."""
    rows = []
    for item in document["plants"]:
        found = Cell("not tested", tone="open")
        if item["found"] is not None:
            found = Cell("✓ seen", tone="good") if item["found"] else Cell("✗ missed", tone="bad")
        taken = words.MECHANISM_TEXT.get(item["diagnosed"], item["diagnosed"])
        rows.append([Cell(item["arm"], code=True), item["planted"], found, taken, item["text"]])
    return make("Planted regressions", ["Arm", "Planted", "Seen", "Taken for", "Reading"], rows)
