"""The table of the suspect and its fix variants, and which of them work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rcatools import units
from rcatools.report import words
from rcatools.report.table import Cell, Table, make

Document = Mapping[str, Any]


def fixes_that_work(document: Document) -> list[str]:
    """Which variants are back at the baseline, faster or slower than it, each as a clause; the suspect is none.

    Where the suspect is a gain, a faster variant is told by the part of it that it gives up.
    """
    variants = [item for item in document["fixes"] if item["role"] != "suspect"]
    effect = document["effect"]
    slow = effect is not None and effect["verdict"] == "slower"
    words_of = {
        "equivalent": "back at the baseline within the margin"
        if slow
        else "within the margin of the baseline",
        "faster": "faster than the baseline",
        "slower": "still slower" if slow else "slower than the baseline",
    }
    clauses = []
    for verdict, said in words_of.items():
        items = [
            _variant(item, gain=words.is_gain(document)) for item in variants if item["verdict"] == verdict
        ]
        if items:
            clauses.append(f"{said}: {', '.join(items)}")
    works = any(item["verdict"] in {"equivalent", "faster"} for item in variants)
    if variants and slow and not works:
        clauses.insert(0, "none is shown to be back at the baseline")
    return clauses


def _variant(item: Mapping[str, Any], *, gain: bool) -> str:
    part = (
        f"; gives up {units.share(item['recovered'])} of the gain"
        if gain and item["recovered"] is not None
        else ""
    )
    return f"{item['arm']} ({words.effect(item)}{part})"


def fixes(document: Document, *, bars: bool = False) -> Table:
    """The suspect and the fix variants: verdict, time, memory, correctness; ``bars``: a bar of characters too.

    Columns of what no run recorded are left out. Where the suspect is a gain, a variant is told by the part of it that
    it gives up.
    """
    items = document["fixes"]
    scale = max((abs(item["ratio"] - 1) for item in items if item["ratio"]), default=0.0)
    gain = words.is_gain(document)
    columns: list[tuple[str, list[Cell | str], bool]] = [
        ("Arm", [Cell(item["arm"], code=True) for item in items], False),
        ("What it does", [item["summary"] + (" (best)" if item["best"] else "") for item in items], False),
        ("Verdict", [words.verdict_cell(item["verdict"]) for item in items], False),
        ("Time", [words.effect(item) for item in items], True),
    ]
    if bars:
        drawn: list[Cell | str] = [
            words.bar(item["ratio"] - 1 if item["ratio"] else None, scale, 8) for item in items
        ]
        columns.append(("−   0   +", drawn, False))
    gone = [item["recovered"] if item["role"] != "suspect" else None for item in items]
    measured: list[tuple[str, list[Any], list[Cell | str]]] = [
        (
            "Gain given up" if gain else "Effect removed",
            gone,
            [units.percent(value) if value is not None else "" for value in gone],
        )
    ]
    for title, key, form in (
        ("Reserved", "memory_delta_bytes", _signed_bytes),
        ("KV cache", "kv_delta_bytes", _signed_bytes),
        ("Left under side stream", "live_bytes", units.byte_size),
    ):
        values = [item.get(key) for item in items]
        measured.append((title, values, [form(value) for value in values]))
    columns += [
        (title, cells, True)
        for title, values, cells in measured
        if any(value is not None for value in values)
    ]
    columns.append(("Output", [_correct(item) for item in items], False))
    rows = list(zip(*(cells for _, cells, _ in columns), strict=True))
    numeric = [index for index, (_, _, number) in enumerate(columns) if number]
    titles = [title for title, _, _ in columns]
    return make("Fix variants", titles, rows, numeric=numeric, note=_fixes_note(titles) if rows else "")


def _fixes_note(titles: Sequence[str]) -> str:
    against = "Time is against the baseline"
    if "Reserved" in titles:
        against = "Time, reserved bytes and the size of the KV cache are against the baseline (a KV cache that grows is reserved too)"
    parts = [against]
    if "Gain given up" in titles:
        parts.append(
            "gain given up is the share of the suspect's gain (in logarithms of time) that a variant does not keep"
        )
    if "Effect removed" in titles:
        parts.append("effect removed is the share of the suspect's effect that is gone")
    return "; ".join([*parts, "output is compared with the baseline's"]) + "."


def _signed_bytes(value: int | None) -> str:
    if value is None:
        return units.NOT_AVAILABLE
    return ("+" if value > 0 else "") + units.byte_size(value)


def _correct(item: Mapping[str, Any]) -> Cell:
    if item["correct"] is None:
        return Cell("not checked", tone="open")
    if item["correct"]:
        other = item.get("output") == "within_tolerance"
        return Cell("other bits, within tolerance", tone="open") if other else Cell("equal", tone="good")
    return Cell(f"differs ({units.significant(item['output_rel_error'], 2)} relative)", tone="bad")
