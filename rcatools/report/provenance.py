"""Tables of where things come from: published claims and numbers, machine, recordings, and what is still open."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rcatools import units
from rcatools.diagnosis import wording
from rcatools.diagnosis.environment import session_text
from rcatools.report import words
from rcatools.report.table import Cell, Table, make
from rcatools.units import counted

Document = Mapping[str, Any]
_OUT = re.compile(r"(--out[ =])(\S+)")
_PLAIN = re.compile(r"[\w.-]+", re.A)
_BENCHMARK = re.compile(r"python benchmarks/\w+\.py")
APART = ("recordings", "checks", "devices", "tables")  # parts of the environment with tables of their own


def claims(document: Document) -> Table:
    """Published claims and what becomes of them, in short."""
    rows = [
        [
            Cell(item["source"], url=item["url"]),
            item["text"],
            item["published"],
            words.status_cell(item["status"]),
            "; ".join(item["reasons"]),
        ]
        for item in document["claims"]
    ]
    return make("Published claims", ["Source", "Claim", "Published", "Status", "Because"], rows)


def claims_in_full(document: Document) -> Table:
    """Published claims with their dates and the figures measured here that speak to them."""
    rows = [
        [f"{item['source']}: {item['text']}", item["date"], item["measured"]] for item in document["claims"]
    ]
    return make("What was measured about each claim", ["Claim", "Date", "Measured here"], rows)


def claim_differences(document: Document) -> Table:
    """Environment differences between claims and this recording."""
    rows = [
        list(row)
        for row in dict.fromkeys(
            (
                str(item["source"]),
                wording.setting(str(difference["key"])),
                difference["published"] or "not told",
                difference["here"] or "not told",
            )
            for item in document["claims"]
            for difference in item["environment"]
        )
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
        [_label(str(key)), _value(str(key), value)]
        for key, value in document["environment"].items()
        if key not in APART and value not in (None, "", [], {})
    ]
    several = len(document["environment"].get("devices") or ()) > 1
    return make("Environment", ["What", document["environment"]["device"] if several else "Value"], rows)


def devices(document: Document) -> Table:
    """Every device that evidence comes from; empty where it is only one."""
    used = document["environment"].get("devices") or ()
    keys = ("backend", "arch", "driver", "runtime", "torch", "python")
    rows = [
        [
            str(item["device"]),
            *(_plain(item.get(key)) or ("" if item["recordings"] else "not recorded") for key in keys),
            ", ".join([*item["recordings"], *(item.get("tables") or ())]),
        ]
        for item in used
    ]
    columns = ["Device", *(words.capital(key) for key in keys), "Recordings and tables"]
    return make("Devices", columns, rows if len(rows) > 1 else [])


def checks(document: Document) -> Table:
    """How the recordings were measured: fork against spawn, clock cycles, warm-up, clocks, neighbours, cache."""
    rows = [
        [
            Cell(str(item["recording"]), code=True),
            words.capital(item["check"]),
            str(item["verdict"]).replace("_", " "),
            item["text"],
        ]
        for item in document["environment"].get("checks") or ()
    ]
    return make("How it was measured", ["Recording", "Check", "Outcome", "Seen"], rows)


def fork_sentence(document: Document) -> str:
    """What forking the runs does to them, in one sentence; empty where verdict.json does not tell."""
    told = [
        item for item in document["environment"].get("checks") or () if item["check"] == "fork against spawn"
    ]
    tested = [item for item in told if item["verdict"] != "not_tested"]
    if told and not tested:
        why = told[0]["text"].partition(": ")[2]
        return f"Whether forking a run changes it was {why} (record with --spawn-share 0.3)."
    seen = [f"{item['text']} ({item['recording']})" for item in tested]
    return f"Does forking a run change it? {'; '.join(seen)}." if seen else ""


def recordings(document: Document) -> Table:
    """The raw data: state, size and code of each recording."""
    rows = []
    for item in document["environment"].get("recordings") or ():
        failed = item.get("runs_failed") or 0
        planned = item.get("blocks_planned")
        blocks = wording.replicated(int(item.get("blocks") or 0), str(item.get("replicate") or "block"))
        if planned and planned != item.get("blocks"):
            blocks = f"{item.get('blocks')} of {planned} planned blocks"
        counts = counted(item.get("runs_ok") or 0, "run") + (f", {failed} failed" if failed else "")
        use = "" if item.get("used", True) else "not part of this verdict"
        rows.append(
            [
                Cell(str(item.get("name")), code=True),
                ", ".join(part for part in (str(item.get("state")), _ended(item), use) if part),
                str(item.get("created_utc"))[:19].replace("T", " ") + " UTC",
                str(item.get("device") or ""),
                f"{blocks}, {counts}",
                code(item.get("git"), item.get("sessions") or ()),
                _sums(item),
            ]
        )
    names = {str(item.get("name")) for item in document["environment"].get("recordings") or ()}
    rows += [_table_row(item, names) for item in document["environment"].get("tables") or ()]
    note = "The manifest holds the SHA-256 of every other file of its recording." if rows else ""
    columns = ["Name", "State", "Made", "Device", "Size", "Code", "SHA-256"]
    return make("Recordings", columns, rows, note=note)


def commands(document: Document) -> list[str]:
    """The commands that made the recordings of this verdict, each with the recording's own folder as target."""
    found = document["environment"].get("recordings") or ()
    made = [
        _into(str(item["command"]), str(item.get("name")))
        for item in found
        if item.get("used", True) and item.get("command")
    ]
    return list(dict.fromkeys(made))


def _into(command: str, name: str) -> str:
    """A recording's command with ``name`` as its target: benchmarks take theirs as the last word."""
    if not _PLAIN.fullmatch(name):
        return command
    if _OUT.search(command):
        return _OUT.sub(lambda match: f"{match.group(1)}{name}", command)
    if _BENCHMARK.fullmatch(command):
        return f"{command} build/{name}"
    return command


def _table_row(item: Mapping[str, Any], recordings: Collection[str]) -> list[Any]:
    """A table of the investigation as a row of the raw data; what it does not tell is said to be so."""
    made, made_by = str(item.get("made_utc") or ""), str(item.get("made_by") or "")
    taken = made_by in recordings
    told = {} if taken else {key: str(item.get(key) or "not recorded") for key in ("commit", "torch", "os")}
    sums = {"table": item.get("sha256"), "package source": item.get("source_sha256")}
    return [
        Cell(str(item.get("name")), code=True),
        "table",
        f"{made[:19].replace('T', ' ')} UTC" if made else "" if taken else "not recorded",
        ", ".join(map(str, item.get("devices") or ())),
        counted(int(item.get("rows") or 0), "row"),
        f"from {made_by}" if taken else ", ".join(part for part in (made_by, _told(told)) if part),
        _told(sums),
    ]


def _told(values: Mapping[str, Any]) -> str:
    """Named values in a row, those that are empty left out."""
    return ", ".join(f"{name} {value}" for name, value in values.items() if value)


def code(git: Any, sessions: Sequence[Mapping[str, Any]] = ()) -> str:
    """The state of the measured code: commit and changes; of several sessions, what is known of each."""
    if not isinstance(git, Mapping):
        return "" if git is None else str(git)
    if sessions and not all(item["commit"] for item in sessions):
        return f"{session_text(sessions)}. Where recorded: {code(git)}"
    if git.get("source_commit"):
        return (
            f"package source that of commit {git['source_commit']} (SHA-256 {git.get('source_sha256')}); the checkout "
            f"itself stood at {git.get('commit') or 'no commit'}"
            + (" with uncommitted changes" if git.get("dirty") else "")
        )
    commit = git.get("commit")
    parts = [f"commit {commit}" if commit else "commit not recorded"]
    if git.get("dirty"):
        parts.append("with uncommitted changes")
    elif git.get("dirty") is False:
        parts.append("no uncommitted changes")
    elif git.get("declared"):
        parts.append("as told to the recorder (no git there)")
    return ", ".join(parts)


def _sums(item: Mapping[str, Any]) -> str:
    """Hashes of a recording's manifest and of the package's source that made it."""
    git = item.get("git")
    source = git.get("source_sha256") if isinstance(git, Mapping) else None
    sums = {"manifest": item.get("manifest_sha256"), "package source": source}
    return _told(sums)


def _ended(item: Mapping[str, Any]) -> str:
    reasons = {
        "budget": "ended by its time budget",
        "looks": "ended at a planned look",
        "interrupt": "interrupted",
        "error": "ended by an error",
    }
    return reasons.get(str(item.get("stopped_by")), "")


def hashes(document: Document) -> Table:
    """SHA-256 of the files the verdict was made from."""
    rows = [
        [Cell(f"{item.get('name')}/{name}", code=True), Cell(str(digest), code=True)]
        for item in document["environment"].get("recordings") or ()
        for name, digest in (item.get("files") or {}).items()
    ]
    return make("Files and their SHA-256", ["File", "SHA-256"], rows)


def _label(key: str) -> str:
    return {"kv_bytes": "KV cache", "memory_bytes": "memory"}.get(key) or wording.setting(key)


def _value(key: str, value: Any) -> str:
    if key == "code":
        return code(value)
    if key.endswith("_bytes") and isinstance(value, int | float):
        return f"{units.byte_size(value)} ({units.byte_count(int(value))})"
    return _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items() if item not in (None, ""))
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value)
    if isinstance(value, int) and value >= 2**20 and value % 2**20 == 0:
        return units.exact_size(value)
    return "" if value is None else str(value)
