"""Tables of where things come from: published claims and numbers, machine, recordings, and what is still open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rcatools.diagnosis.wording import replicated
from rcatools.report import words
from rcatools.report.safe import clean
from rcatools.report.table import Cell, Table, make

Document = Mapping[str, Any]
SHORT = 180


def claims(document: Document) -> Table:
    """Published claims and what becomes of them, in short."""
    rows = [
        [
            Cell(item["source"], url=item["url"]),
            item["text"],
            item["published"],
            words.status_cell(item["status"]),
            clean("; ".join(item["reasons"]), SHORT),
        ]
        for item in document["claims"]
    ]
    return make("Published claims", ["Source", "Claim", "Published", "Status", "Because"], rows)


def claims_in_full(document: Document) -> Table:
    """Published claims with their dates, everything measured about them here, and every reason."""
    rows = [
        [f"{item['source']}: {item['text']}", item["date"], item["measured"], "; ".join(item["reasons"])]
        for item in document["claims"]
    ]
    return make("Claims in full", ["Claim", "Date", "Measured here", "Because"], rows)


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
            "missing" if item["value"] is None else f"{item['value']:,.12g} {item['unit']}".strip(),
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
    """Machine and software of the recording that decides the device."""
    rows = [
        [str(key).replace("_", " "), _plain(value)]
        for key, value in document["environment"].items()
        if key not in ("recordings", "devices") and value not in (None, "", [], {})
    ]
    several = len(document["environment"].get("devices") or ()) > 1
    return make("Environment", ["What", document["environment"]["device"] if several else "Value"], rows)


def devices(document: Document) -> Table:
    """Every device that evidence comes from; empty where it is only one."""
    used = document["environment"].get("devices") or ()
    keys = ("backend", "arch", "driver", "runtime", "torch", "python")
    rows = [
        [str(item["device"]), *(_plain(item.get(key)) for key in keys), ", ".join(item["recordings"])]
        for item in used
    ]
    columns = ["Device", *(words.capital(key) for key in keys), "Recordings"]
    return make("Devices", columns, rows if len(rows) > 1 else [])


def recordings(document: Document) -> Table:
    """The raw data with the command that made each recording."""
    rows = []
    for item in document["environment"].get("recordings") or ():
        failed = item.get("runs_failed") or 0
        counts = f"{item.get('runs_ok', '?')} runs" + (f", {failed} failed" if failed else "")
        size = replicated(int(item.get("blocks") or 0), str(item.get("replicate") or "block"))
        rows.append(
            [
                Cell(str(item.get("name")), code=True),
                f"{item.get('state')}, {item.get('created_utc')}",
                str(item.get("device") or ""),
                f"{size}, {counts}",
                _code(item.get("git")),
                Cell(str(item.get("command") or ""), code=True),
            ]
        )
    return make("Recordings", ["Name", "State", "Device", "Size", "Code", "Made by"], rows)


def _code(state: Any) -> str:
    """The code a recording was made with; a commit that is not known is said, not explained."""
    if isinstance(state, Mapping) and not state.get("commit"):
        rest = {key: value for key, value in state.items() if key not in ("commit", "reason")}
        return ", ".join(text for text in ("commit not recorded", _plain(rest)) if text)
    return _plain(state) or "commit not recorded"


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
