"""The tables of a report, made from verdict.json alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rcatools.diagnosis import wording
from rcatools.report import words
from rcatools.report.arm_tables import arms, kernels, mechanisms, plants, reconcile
from rcatools.report.table import Cell, Table, make
from rcatools.units import counted

Document = Mapping[str, Any]
__all__ = ["arms", "kernels", "mechanisms", "plants", "reconcile"]  # of arm_tables, offered here too


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
    """Hypotheses by group, in declared order of the groups; in a group, those that stand first."""
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
        told = [failed_prediction(item) for item in failed]
        left = counted(len(told) - most, "further prediction")
        rest = f"{left} {'fails' if len(told) - most == 1 else 'fail'}"
        return _few(told, most, rest, ". ") + on_devices(failed)
    if hypothesis["status"] == "supported" and held:
        told = [f"{item['text']}: {words.seen(item)}" for item in own_first(held)]
        return f"{_few(told, most, f'{len(told) - most} more')}. {balance(predictions)}{on_devices(held)}"
    return str(hypothesis["reason"])


_SHARE = re.compile(r"(-?[\d.]+ %) of the effect")


def failed_prediction(item: Mapping[str, Any]) -> str:
    """A prediction that failed: what was predicted of which observation, and what was seen."""
    share = _SHARE.search(str(item["observed"]))
    of_effect = share is not None and str(item["expected"]).endswith("of the effect")
    seen = f"{share.group(1)} of it" if share is not None and of_effect else words.seen(item)
    about = str(item["text"]).removeprefix("the effect ") if of_effect else ""
    if about and about != item["text"]:
        return f"predicted: {item['expected']} {about}; seen: {seen}"
    return f"{item['text']}: predicted {item['expected']}; seen: {seen}"


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
    texts = [f"{counted(held, 'prediction')} {'holds' if held == 1 else 'hold'}"]
    if failed and not necessary:
        told = [f"{item['text']} ({words.seen(item)})" for item in failed]
        do = (
            "1 does not, not a necessary one" if len(failed) == 1 else f"{len(failed)} do not, none necessary"
        )
        texts.append(f"{do}: {_few(told, 2, 'and others')}")
    elif failed:
        texts.append(f"{len(failed)} {'fails' if len(failed) == 1 else 'fail'} ({necessary} necessary)")
    else:
        texts.append("none fails")
    if open_ones:
        texts.append(f"{open_ones} not judged")
    return ", ".join(texts)


def _few(told: list[str], most: int, rest: str, between: str = "; ") -> str:
    shown = between.join(words.capital(text) if between == ". " else text for text in told[:most])
    return shown if len(told) <= most else f"{shown}{between}{rest}"


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
        left = counted(untested, "observation")
        note += f" {left} that no run answered {'is' if untested == 1 else 'are'} left out here."
    return make("Evidence matrix", columns, rows, note=note)


def _mark(holds: bool | None) -> Cell:
    if holds is None:
        return Cell("–", tone="open")
    return Cell("✓", tone="yes") if holds else Cell("✗", tone="calm")
