"""The tables of a report, made from verdict.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rcatools import units
from rcatools.diagnosis import wording
from rcatools.report import words
from rcatools.report.table import Cell, Table, make

Document = Mapping[str, Any]


def links(document: Document) -> Table:
    """The causal chain, link by link."""
    rows = []
    for link in document["links"]:
        evidence = "; ".join(item["text"] for item in link["evidence"]) or link["reason"]
        ends = link["id"] == document["chain"]["ends_at"]
        as_cause = "" if link["as_cause"] else "the chain ends here" if ends else "after its end"
        rows.append(
            [Cell(f"({link['id']})"), link["text"], words.link_cell(link["verdict"]), evidence, as_cause]
        )
    return make("Causal chain", ["Link", "What must be seen", "Verdict", "Evidence", "As a cause"], rows)


def why(link: Mapping[str, Any], clauses: int = 2) -> str:
    """What a link was judged by, in short: the leading clauses of its evidence, only what failed where it failed."""
    texts = [item["text"] for item in link["evidence"]]
    failed = [text for text in texts if link["verdict"] == "not_shown" and text in link["reason"]]
    return "; ".join("; ".join(text.split("; ")[:clauses]) for text in failed or texts) or str(link["reason"])


STATUS_ORDER = ("supported", "undecided", "not_tested", "contradicted")


def groups(document: Document) -> dict[str, list[Mapping[str, Any]]]:
    """Hypotheses by group, in declared order of the groups, those that stand first."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for item in document["hypotheses"]:
        found.setdefault(item["group"], []).append(item)

    def place(item: Mapping[str, Any]) -> int:
        return STATUS_ORDER.index(item["status"]) if item["status"] in STATUS_ORDER else len(STATUS_ORDER)

    return {group: sorted(items, key=place) for group, items in found.items()}


def hypotheses(document: Document) -> Table:
    """Every rival explanation with its status, in short; the full reasons stand with its predictions."""
    grouped = groups(document)
    several = len(grouped) > 1
    rows = []
    for group, items in grouped.items():
        for item in items:
            row = [words.capital(item["title"]), words.status_cell(item["status"]), because(item)]
            rows.append([words.capital(group.replace("_", " ")), *row] if several else row)
    columns = ["Explanation", "Status", "Because"]
    return make("Rival causes", ["Of", *columns] if several else columns, rows)


def because(hypothesis: Mapping[str, Any], most: int = 3) -> str:
    """The predictions that carry a status, in short."""
    predictions = hypothesis["predictions"]
    failed = [item for item in predictions if item["holds"] is False and item["necessary"]]
    held = [item for item in predictions if item["holds"] is True]
    if hypothesis["status"] == "contradicted" and failed:
        told = [f"{item['text']}: {item['expected']} expected, {words.seen(item)} seen" for item in failed]
        left = wording.counted(len(told) - most, "further prediction")
        return _few(told, most, f"{left} {'fails' if len(told) - most == 1 else 'fail'}") + on_devices(failed)
    if hypothesis["status"] == "supported" and held:
        told = [f"{item['text']}: {words.seen(item)}" for item in own_first(held)]
        return f"{_few(told, most, f'{len(told) - most} more')}. {balance(predictions)}{on_devices(held)}"
    return str(hypothesis["reason"])


def on_devices(predictions: Sequence[Mapping[str, Any]]) -> str:
    """The devices that predictions were seen on, in parentheses, where the evidence names them."""
    named = [place.get("device", "") for item in predictions for place in item["places"]]
    devices = [name for name in dict.fromkeys(named) if name]
    return f" ({', '.join(devices)})" if devices else ""


def deciding(document: Document) -> dict[str, list[str]]:
    """The runs that would settle what is open, each with the sentences about what it would settle."""
    found: dict[str, list[str]] = {}
    for item in document["hypotheses"]:
        if item["decide"]:
            text = f"{words.capital(item['title'])}. {words.capital(item['decide']['text'])}."
            found.setdefault(item["decide"]["run"], []).append(text)
    return found


def own_first(held: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Predictions that hold, first those that most rivals do not share."""
    return sorted(held, key=lambda item: (-len(item["distinct_from"]), not item["necessary"]))


def balance(predictions: Sequence[Mapping[str, Any]]) -> str:
    """How many predictions hold, fail and were not judged, in words."""
    held = sum(1 for item in predictions if item["holds"] is True)
    failed = [item for item in predictions if item["holds"] is False]
    open_ones = sum(1 for item in predictions if item["holds"] is None)
    necessary = sum(1 for item in failed if item["necessary"])
    texts = [f"{wording.counted(held, 'prediction')} {'holds' if held == 1 else 'hold'}"]
    if failed:
        texts.append(f"{len(failed)} {'fails' if len(failed) == 1 else 'fail'} ({necessary} necessary)")
    else:
        texts.append("none fails")
    if open_ones:
        texts.append(f"{open_ones} not judged")
    return ", ".join(texts)


def _few(told: list[str], most: int, rest: str) -> str:
    shown = "; ".join(told[:most])
    return shown if len(told) <= most else f"{shown}; {rest}"


def titles(document: Document) -> dict[str, str]:
    """Titles of the explanations by their ids."""
    return {item["id"]: item["title"] for item in document["hypotheses"]}


def predictions(
    hypothesis: Mapping[str, Any], *, short: bool = False, names: Mapping[str, str] | None = None
) -> Table:
    """What one cause predicts, and what was seen.

    Args:
        hypothesis: an entry of the document.
        short: outcomes without figures and places.
        names: titles of the explanations, for what a prediction tells it from.
    """
    names = names or {}
    rows = []
    for item in hypothesis["predictions"]:
        kind = "necessary" if item["necessary"] else "supporting"
        if item["distinct_from"] and not short:
            kind += ", tells it from: " + "; ".join(names.get(name, name) for name in item["distinct_from"])
        seen = words.seen(item) if short else item["observed"]
        row = [item["text"], item["expected"], seen, words.holds(item["holds"]), kind]
        rows.append(row if short else [*row, item["evidence"]])
    columns = ["Prediction", "Expected", "Observed", "Holds", "Weight"]
    return make(words.capital(hypothesis["title"]), columns if short else [*columns, "Where"], rows)


def observations(document: Document) -> Table:
    """Every check that was asked for, with its figures and the place where anyone can see them."""
    places = [e for item in document["observations"] for e in item["evidence"]]
    notebooks = {e["notebook"] for e in places if e["notebook"]}
    one = len(notebooks) == 1
    rows = []
    for item in document["observations"]:
        seen = _seen_or_why(item)
        where = dict.fromkeys(_where(e, seen, notebook=not one) for e in item["evidence"])
        rows.append([item["text"], _outcome_cell(item), seen, "; ".join(where)])
    note = f"All are shown in notebook {next(iter(notebooks))}." if one else ""
    return make("Every check", ["Check", "Outcome", "Seen", "Where"], rows, note=note)


def _where(e: Mapping[str, Any], seen: str, *, notebook: bool) -> str:
    """Recording, source, arms and notebook; arms only where the figures do not name them all."""
    arms = "" if all(name in seen for name in e["arms"]) else "/".join(e["arms"])
    parts = (e["recording"], e["source"], arms, e["notebook"] if notebook else "")
    return ", ".join(part for part in parts if part)


def _seen_or_why(item: Mapping[str, Any]) -> str:
    """The figures without the outcome in front, which has a column of its own, and why they do not decide."""
    _, _, figures = item["observed"].partition(": ")
    figures = figures or item["observed"]
    if not item["evidence"]:
        return str(item["reason"]) or figures
    open_one = not item["definite"] and item["reason"] and item["outcome"] is not None
    return f"{figures}. Not decided: {item['reason']}" if open_one else figures


def chain_text(document: Document) -> str:
    """The sentence about the chain without the reason, which stands at the link that ends it."""
    text = str(document["chain"]["text"])
    for link in document["links"]:
        if link["id"] == document["chain"]["ends_at"] and link["reason"]:
            return text.removesuffix(f" {words.capital(link['reason'])}.")
    return text


def _outcome_cell(item: Mapping[str, Any]) -> Cell:
    if item["outcome"] is None:
        few = item["evidence"]
        return Cell(f"– {words.outcome(item['observed']) if few else 'not tested'}", tone="open")
    if not item["definite"]:
        return Cell(f"? {wording.said('undecided')}", tone="open")
    return Cell(wording.said(item["outcome"]))


def matrix(document: Document, group: str | None = None, *, tested_only: bool = False) -> Table:
    """Observations down, explanations across: which prediction holds or fails where.

    Args:
        document: verdict.json.
        group: only the explanations of this group.
        tested_only: leave out observations that no run answered; the note counts them.
    """
    causes = [
        item
        for name, items in groups(document).items()
        if group in (None, name)
        for item in items
        if item["predictions"]
    ]
    cells: dict[str, dict[str, bool | None]] = {}
    for cause in causes:
        for item in cause["predictions"]:
            cells.setdefault(item["observation"], {})[cause["id"]] = item["holds"]
    known = {item["id"]: item for item in document["observations"]}
    rows = []
    untested = 0
    for observation, by_cause in cells.items():
        item = known.get(observation)
        if item is not None and item["outcome"] is None:
            untested += 1
            if tested_only:
                continue
        marks: list[Cell | str] = [
            _mark(by_cause[cause["id"]]) if cause["id"] in by_cause else "" for cause in causes
        ]
        rows.append([item["text"] if item else observation, _outcome_cell(item) if item else "", *marks])
    columns = ["Observation", "Seen", *(words.capital(cause["title"]) for cause in causes)]
    note = "✓ seen as this explanation predicts, ✗ not as it predicts, – not judged, empty: it predicts nothing here."
    if tested_only and untested:
        left = wording.counted(untested, "observation")
        note += f" {left} that no run answered {'is' if untested == 1 else 'are'} left out here."
    return make("Evidence matrix", columns, rows, note=note)


def _mark(holds: bool | None) -> Cell:
    if holds is None:
        return Cell("–", tone="open")
    return Cell("✓", tone="yes") if holds else Cell("✗", tone="calm")


def arms(document: Document, *, bars: bool = False) -> Table:
    """Every arm against the baseline; ``bars``: a bar of characters too."""
    scale = max((abs(item["ratio"] - 1) for item in document["arms"] if item["ratio"]), default=0.0)
    memory = any(item.get("live_bytes") is not None for item in document["arms"])
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
                wording.reasons(item["reasons"]),
            ]
        )
    columns = ["Arm", "What it does", "Verdict", "Time against baseline", *(["−   0   +"] if bars else [])]
    columns += ["Detection limit", "Blocks", "p", *(["Left under side stream"] if memory else []), "Reasons"]
    first = 5 if bars else 4
    return make("All arms", columns, rows, numeric=(3, *range(first, first + 3 + memory)))


def kernels(document: Document) -> Table:
    """Isolated kernels, suspect against baseline."""
    rows = [
        [
            Cell(item["kernel"], code=True),
            item["bound"],
            units.significant(item["per_step"]) if item["per_step"] is not None else "",
            units.duration_us(item["base_us"]),
            units.signed_duration_us(item["delta_us"]),
            words.effect(item),
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
        "Detection limit",
        "Share of the step",
        "Of the measured ceiling",
        "Verdict",
    ]
    note = "Each launched back to back in a graph: a time holds one kernel boundary." if rows else ""
    title = "Kernels alone, suspect against baseline"
    return make(title, columns, rows, numeric=(2, 3, 4, 5, 6, 7, 8), note=note)


def reconcile(document: Document) -> Table:
    """Does the trace explain the measured difference."""
    rows = [
        [
            Cell(item["arm"], code=True),
            units.signed_duration_us(item["measured_us"]),
            units.signed_duration_us(item["kernels_us"]),
            units.signed_duration_us(item["gaps_us"]),
            units.signed_duration_us(item["unexplained_us"]),
            item["text"],
        ]
        for item in document["reconcile"]
    ]
    columns = ["Arm", "Step, measured", "Kernels, traced", "Gaps, traced", "Not explained", "Reading"]
    return make("Where the time went", columns, rows, numeric=(1, 2, 3, 4))


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
