"""Joins results of ``benchmarks/decode_matmul.py`` from several sessions into one, process by process.

A session may end before its processes are complete. Processes of the same kernels on the same kind of card are
replicates whenever they ran; what one process suffices for is taken from the session that measured most of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rcatools.errors import InputError

Document = Mapping[str, Any]
ONCE = ("compiled", "equality", "grid")


def joined(documents: Sequence[Document]) -> dict[str, Any]:
    """One document of all sessions, in the order given; the last one gives device and environment.

    ``us_per_call`` of an arm that a process did not measure is an empty list. ``sessions`` says what each session
    held and from which code.

    Raises:
        InputError: the sessions are of different cards.
    """
    plain = [one_process(item) for item in documents]
    last = plain[-1]
    for item in plain[:-1]:
        for key in ("backend", "name", "arch"):
            if item["device"].get(key) != last["device"].get(key):
                raise InputError(
                    f"the sessions are of different devices ({item['device'].get('name')} and "
                    f"{last['device'].get('name')}): make a recording of each"
                )
    whole = {key: max((item[key] for item in reversed(plain)), key=len) for key in ONCE}
    done = {f"{row['shape']} grid {row['rows']}" for row in whole["grid"]}
    return {
        "format": last["format"],
        "not_run": [text for text in last["not_run"] if text not in done],
        **whole,
        "table": _tables(plain),
        "ceilings": [part for item in plain for part in item["ceilings"]],
        "processes": [part for item in plain for part in item["processes"]],
        "device": last["device"],
        "environment": last["environment"],
        "sessions": [
            {
                "unix_time": item["processes"][0]["unix_time"],
                "processes": len(item["processes"]),
                "code": item["environment"].get("code"),
                "packages": item["environment"].get("packages"),
            }
            for item in plain
        ],
    }


def one_process(document: Document) -> dict[str, Any]:
    """A document whose replicates are processes: blocks of one process become its samples."""
    if "replicate" not in document:
        return dict(document)
    rest = {key: value for key, value in document.items() if key != "replicate"}
    table = [
        row | {"us_per_call": [[us for block in row["us_per_call"] for us in block]]}
        for row in document["table"]
    ]
    return rest | {"table": table, "processes": document["processes"][:1]}


def _tables(documents: Sequence[Document]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, int, str], dict[str, Any]] = {}
    for document in reversed(documents):  # the newest names first: its order and launches are kept
        for row in document["table"]:
            rows.setdefault((row["shape"], row["rows"], row["arm"]), row | {"us_per_call": []})
    for document in documents:
        count = len(document["processes"])
        own = {(row["shape"], row["rows"], row["arm"]): row["us_per_call"] for row in document["table"]}
        for key, row in rows.items():
            row["us_per_call"] += own.get(key, [[] for _ in range(count)])
    return list(rows.values())
