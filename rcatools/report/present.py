"""The tables of a report, made from verdict.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rcatools import units
from rcatools.report import words
from rcatools.report.table import Cell, Table, make

Document = Mapping[str, Any]


def links(document: Document) -> Table:
    """The causal chain, link by link."""
    rows = []
    for link in document["links"]:
        evidence = "; ".join(item["text"] for item in link["evidence"]) or link["reason"]
        as_cause = "" if link["as_cause"] else "after the chain ended"
        rows.append(
            [Cell(f"({link['id']})"), link["text"], words.link_cell(link["verdict"]), evidence, as_cause]
        )
    return make("Causal chain", ["Link", "What must be seen", "Verdict", "Evidence", "As a cause"], rows)


def hypotheses(document: Document) -> Table:
    """Every rival cause with its status and why."""
    rows = []
    for item in document["hypotheses"]:
        decide = item["decide"]["text"] if item["decide"] else ""
        rows.append([item["title"], words.status_cell(item["status"]), item["reason"], decide])
    return make("Rival causes", ["Cause", "Status", "Because", "What would decide"], rows)


def predictions(hypothesis: Mapping[str, Any]) -> Table:
    """What one cause predicts, and what was seen."""
    rows = []
    for item in hypothesis["predictions"]:
        kind = "necessary" if item["necessary"] else "supporting"
        if item["distinct_from"]:
            kind += ", tells it from " + ", ".join(item["distinct_from"])
        rows.append(
            [
                item["text"],
                item["expected"],
                item["observed"],
                words.holds(item["holds"]),
                kind,
                item["evidence"],
            ]
        )
    columns = ["Prediction", "Expected", "Observed", "Holds", "Weight", "Where"]
    return make(str(hypothesis["title"]), columns, rows)


def matrix(document: Document) -> Table:
    """Observations down, causes across: which prediction holds or fails where."""
    causes = [item for item in document["hypotheses"] if item["predictions"]]
    cells: dict[str, dict[str, bool | None]] = {}
    for cause in causes:
        for item in cause["predictions"]:
            cells.setdefault(item["observation"], {})[cause["id"]] = item["holds"]
    known = {item["id"]: item for item in document["observations"]}
    rows = []
    for observation, by_cause in cells.items():
        item = known.get(observation)
        marks: list[Cell | str] = [
            _mark(by_cause[cause["id"]]) if cause["id"] in by_cause else "" for cause in causes
        ]
        seen = (item["observed"] or item["reason"]) if item else ""
        rows.append([item["text"] if item else observation, seen, *marks])
    columns = ["Observation", "Seen", *(str(cause["title"]) for cause in causes)]
    note = (
        "✓ seen as this cause predicts, ✗ not as it predicts, – not tested, empty: it predicts nothing here"
    )
    return make("Evidence matrix", columns, rows, note=note)


def _mark(holds: bool | None) -> Cell:
    if holds is None:
        return Cell("–", tone="open")
    return Cell("✓", tone="bad") if holds else Cell("✗", tone="calm")


def fixes(document: Document) -> Table:
    """Fix variants: time, memory, correctness, verdict."""
    scale = max((abs(item["ratio"] - 1) for item in document["fixes"] if item["ratio"]), default=0.0)
    rows = []
    for item in document["fixes"]:
        rows.append(
            [
                Cell(item["arm"] + (" (best)" if item["best"] else ""), code=not item["best"]),
                item["summary"],
                words.effect(item),
                words.bar(item["ratio"] - 1 if item["ratio"] else None, scale, 8),
                units.percent(item["recovered"]) if item["recovered"] is not None else units.NOT_AVAILABLE,
                _signed_bytes(item["memory_delta_bytes"]),
                units.byte_size(item["live_bytes"]),
                _correct(item),
                words.verdict_cell(item["verdict"]),
            ]
        )
    columns = [
        "Arm",
        "What it does",
        "Time against baseline",
        "−   0   +",
        "Effect removed",
        "Reserved against baseline",
        "Left under the side stream",
        "Output",
        "Verdict",
    ]
    return make("Fix variants", columns, rows, numeric=(2, 4, 5, 6))


def _signed_bytes(value: int | None) -> str:
    if value is None:
        return units.NOT_AVAILABLE
    return ("+" if value > 0 else "") + units.byte_size(value)


def _correct(item: Mapping[str, Any]) -> Cell:
    if item["correct"] is None:
        return Cell("not checked", tone="open")
    if item["correct"]:
        return Cell("equal", tone="good")
    return Cell(f"differs ({units.significant(item['output_rel_error'], 2)} relative)", tone="bad")


def arms(document: Document) -> Table:
    """Every arm against the baseline."""
    scale = max((abs(item["ratio"] - 1) for item in document["arms"] if item["ratio"]), default=0.0)
    rows = [
        [
            Cell(item["arm"], code=True),
            item["summary"],
            words.effect(item),
            words.bar(item["ratio"] - 1 if item["ratio"] else None, scale, 8),
            words.detection(item["mde"]),
            str(item["n"]),
            units.p_value(item["p_value"]),
            words.verdict_cell(item["verdict"]),
            words.reasons(item["reasons"]),
        ]
        for item in document["arms"]
    ]
    columns = [
        "Arm",
        "What it does",
        "Time against baseline",
        "−   0   +",
        "Detection limit",
        "Blocks",
        "p",
        "Verdict",
        "Reasons",
    ]
    return make("All arms", columns, rows, numeric=(2, 4, 5, 6))


def kernels(document: Document) -> Table:
    """Isolated kernels, suspect against baseline."""
    rows = [
        [
            Cell(item["kernel"], code=True),
            item["bound"],
            units.significant(item["per_step"]) if item["per_step"] is not None else "",
            units.duration_us(item["base_us"]),
            _signed_us(item["delta_us"]),
            words.effect(item),
            words.detection(item["mde"]),
            units.percent(item["share"]) if item["share"] is not None else units.NOT_AVAILABLE,
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
        "Share of ceiling",
        "Verdict",
    ]
    return make("Kernels alone, suspect against baseline", columns, rows, numeric=(2, 3, 4, 5, 6, 7))


def _signed_us(value: float | None) -> str:
    if value is None:
        return units.NOT_AVAILABLE
    return ("+" if value > 0 else "") + units.duration_us(value)


def reconcile(document: Document) -> Table:
    """Does the trace explain the measured difference."""
    rows = [
        [
            Cell(item["arm"], code=True),
            _signed_us(item["measured_us"]),
            _signed_us(item["kernels_us"]),
            _signed_us(item["gaps_us"]),
            _signed_us(item["unexplained_us"]),
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
            found = Cell("✓ found", tone="good") if item["found"] else Cell("✗ missed", tone="bad")
        rows.append([Cell(item["arm"], code=True), item["planted"], found, item["diagnosed"], item["text"]])
    return make("Planted regressions", ["Arm", "Planted", "Found", "Taken for", "Reading"], rows)


def claims(document: Document) -> Table:
    """Published claims against what was measured here."""
    rows = [
        [
            Cell(item["source"], url=item["url"]),
            item["date"],
            item["text"],
            item["published"],
            item["measured"],
            words.status_cell(item["status"]),
            "; ".join(item["reasons"]),
        ]
        for item in document["claims"]
    ]
    columns = ["Source", "Date", "Claim", "Published", "Measured here", "Status", "Because"]
    return make("Published claims", columns, rows)


def claim_differences(document: Document) -> Table:
    """Environment differences between claims and this recording."""
    rows = [
        [
            item["source"],
            difference["key"],
            difference["published"] or "not told",
            difference["here"] or "not told",
        ]
        for item in document["claims"]
        for difference in item["environment"]
    ]
    return make("Where the environments differ", ["Claim", "What", "Published", "Here"], rows)


def published(document: Document) -> Table:
    """Numbers from elsewhere, never mixed with ours."""
    rows = [
        [
            Cell(item["source"], url=item["url"]),
            item["label"],
            f"{units.significant(item['value'], 4)} {item['unit']}".strip(),
            item["note"],
        ]
        for item in document["published"]
    ]
    return make(
        "Published numbers (not measured here)", ["Source", "What", "Value", "Note"], rows, numeric=(2,)
    )


def open_questions(document: Document) -> Table:
    """What was not tested, and the run that would test it."""
    rows = [[item["text"], item["needs"], Cell(item["run"], code=True)] for item in document["open"]]
    return make("Not tested", ["Question", "Needs", "Run"], rows)


def environment(document: Document) -> Table:
    """Machine and software of the recordings."""
    rows = [
        [str(key).replace("_", " "), _plain(value)]
        for key, value in document["environment"].items()
        if key != "recordings" and value not in (None, "", [], {})
    ]
    return make("Environment", ["What", "Value"], rows)


def recordings(document: Document) -> Table:
    """The raw data with the command that made each recording."""
    rows = []
    for item in document["environment"].get("recordings") or ():
        failed = item.get("runs_failed") or 0
        counts = f"{item.get('runs_ok', '?')} runs" + (f", {failed} failed" if failed else "")
        rows.append(
            [
                Cell(str(item.get("name")), code=True),
                f"{item.get('state')}, {item.get('created_utc')}",
                f"{item.get('blocks')} blocks, {counts}",
                _plain(item.get("git")),
                Cell(str(item.get("command") or ""), code=True),
            ]
        )
    return make("Recordings", ["Name", "State", "Size", "Code", "Made by"], rows)


def hashes(document: Document) -> Table:
    """SHA-256 of the files the verdict was made from."""
    rows = [
        [Cell(f"{item.get('name')}/{name}", code=True), Cell(str(digest), code=True)]
        for item in document["environment"].get("recordings") or ()
        for name, digest in (item.get("files") or {}).items()
    ]
    return make("Files and their SHA-256", ["File", "SHA-256"], rows)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items() if item not in (None, ""))
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value)
    return "" if value is None else str(value)
