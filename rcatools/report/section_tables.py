"""Tables of the page that are made from the measured tables, not from verdict.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rcatools import units
from rcatools.diagnosis import wording
from rcatools.report import figures
from rcatools.report.measured import Facts, Measured
from rcatools.report.table import Cell, Table, make

Document = Mapping[str, Any]
OVERVIEW_ROLES = ("baseline", "suspect", "fix", "repeat", "plant_additive", "plant_multiplicative")
MAX_ARMS_IN_A_CHART = 40


def overview_arms(document: Document, measured: Measured, facts: Facts) -> list[str]:
    """Baseline, suspect, fixes, repeats and planted arms that have an allocator snapshot."""
    named = [item["arm"] for item in document["arms"] if item["role"] in OVERVIEW_ROLES]
    known = set(measured.ledger["arm"])
    return [arm for arm in dict.fromkeys([facts.baseline, *named]) if arm in known][:MAX_ARMS_IN_A_CHART]


def failed_runs_table(measured: Measured) -> Table:
    """Runs without a result and why."""
    failed = measured.runs[measured.runs["outcome"] != "ok"]
    rows = [
        [
            Cell(str(row["run"]), code=True),
            str(row["recording"]),
            str(row["outcome"]),
            str(row["reason"] or ""),
        ]
        for row in figures.records(failed)
    ]
    return make("Failed runs", ["Run", "Recording", "Outcome", "Reason"], rows)


def ledger_table(measured: Measured, arms: Sequence[str] = ()) -> Table:
    """Allocator bytes per recording, arm and stream; of these arms only, where some are named."""
    sizes = ["active", "awaiting_free", "stranded", "releasable", "reserved"]
    rows = [
        [
            str(row["recording"]),
            Cell(str(row["arm"]), code=True),
            figures.stream_name(row["stream"]),
            *(units.byte_size(row[name]) for name in sizes),
        ]
        for row in figures.records(measured.ledger)
        if not arms or row["arm"] in arms
    ]
    columns = ["Recording", "Arm", "Stream", "Live", "Awaiting free", "Stranded", "Releasable", "Reserved"]
    return make("Allocator ledger", columns, rows, numeric=range(3, 8))


def pins_table(measured: Measured, arms: Sequence[str] = ()) -> Table:
    """Live blocks of 1 MiB or more, and who holds them; of these arms only, where some are named."""
    rows = [
        [
            Cell(str(row["arm"]), code=True),
            figures.stream_name(row["stream"]),
            units.byte_count(int(row["size"])),
            wording.owner(str(row["owner"])),
            str(row["basis"]),
            units.byte_size(row["pins_bytes"]),
            Cell(str(row["reason"]), code=True),
        ]
        for row in figures.records(measured.pins)
        if not arms or row["arm"] in arms
    ]
    columns = ["Arm", "Stream", "Size", "Holder", "Known by", "Strands", "Because of"]
    return make("Live blocks", columns, rows, numeric=(2, 5))
