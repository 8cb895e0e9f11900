"""The JSON documents and plain tables of the command line."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from rcatools.memory.build import pool_label
from rcatools.memory.diff import SnapshotDiff, stream_labels, stream_order
from rcatools.memory.engine import UNVERIFIABLE
from rcatools.memory.intervention import Intervention, agreement
from rcatools.memory.ledger import ledger, pins
from rcatools.memory.oom import OomReport
from rcatools.memory.owners import BlockOwner
from rcatools.memory.peak import peak
from rcatools.memory.replay import Replay
from rcatools.memory.sites import site
from rcatools.memory.snapshot import Snapshot
from rcatools.memory.streams import stream_activity
from rcatools.units import byte_count, byte_size

_DEVICE_COLUMNS = (
    "device",
    "reserved",
    "allocated",
    "active",
    "awaiting_free",
    "stranded",
    "releasable",
    "rounding",
    "unlisted",
    "segments",
    "live_blocks",
)
_ROW_COLUMNS = (
    "device",
    "stream",
    "pool_id",
    "size_class",
    "reserved",
    "allocated",
    "active",
    "awaiting_free",
    "stranded",
    "releasable",
    "rounding",
    "unlisted",
    "unmappable",
    "largest_free",
    "segments",
    "live_blocks",
)


def _records(table: pd.DataFrame, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = []
    for values in zip(*(table[c].tolist() for c in columns), strict=True):
        row = dict(zip(columns, values, strict=True))
        if "pool_id" in row:
            row["pool_id"] = list(row["pool_id"]) if row["pool_id"] is not None else None
        rows.append(row)
    return rows


def ledger_document(snapshot: Snapshot, device: int | None = None) -> dict[str, Any]:
    """The ledger, the peak of the busiest device (or of ``device``) and how far the history can be trusted."""
    balance = ledger(snapshot)
    rows, devices = balance.rows, balance.devices
    histories = list(snapshot.histories)
    if device is not None:
        rows, devices = rows[rows["device"] == device], devices[devices["device"] == device]
        histories = [h for h in histories if h.device == device]
    peaks = [p for h in histories if (p := peak(snapshot, h.device)) is not None]
    main = max(histories, key=lambda h: h.events, default=None)
    return {
        "devices": _records(devices, _DEVICE_COLUMNS),
        "rows": _records(rows, _ROW_COLUMNS),
        "peak": next((p.as_dict() for p in peaks if main is not None and p.device == main.device), None),
        "peaks": [p.as_dict() for p in peaks],
        "pins": _pins(snapshot, device),
        "streams": _activity(snapshot, device),
        "history": {
            "events": sum(h.events for h in histories),
            "overflowed": any(h.overflowed for h in histories),
            "recorded": any(h.recorded for h in histories),
            "complete": bool(histories) and all(h.complete for h in histories),
            "devices": [dict(h.__dict__) for h in histories],
        },
        "warnings": [n.as_dict() for n in balance.notes],
    }


def _pins(snapshot: Snapshot, device: int | None) -> list[dict[str, Any]]:
    table = pins(snapshot)
    if device is not None:
        table = table[table["device"] == device]
    columns = (
        "device",
        "stream",
        "pool_id",
        "segment_address",
        "stranded",
        "live_in_segment",
        "address",
        "size",
        "state",
    )
    sites = {index: site(snapshot.stack(index)) for index in set(table["stack"].tolist())}
    rows = _records(table, columns)
    for row, stack in zip(rows, table["stack"].tolist(), strict=True):
        row["site"] = sites[stack] or None
    return rows


def fitting_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of ``fitting_blocks``."""
    return _records(table, ("device", "stream", "pool_id", "size_class", "address", "size", "state"))


def _activity(snapshot: Snapshot, device: int | None) -> list[dict[str, Any]]:
    table = stream_activity(snapshot)
    if device is not None:
        table = table[table["device"] == device]
    return _records(table, tuple(table.columns))


def ledger_table(snapshot: Snapshot, device: int | None = None) -> list[tuple[str, Any]]:
    """The ledger for reading: sizes with units, streams and pools by name."""
    rows = ledger(snapshot).rows
    if device is not None:
        rows = rows[rows["device"] == device]
    labels = stream_labels(stream_order(snapshot))
    text = pd.DataFrame(
        {
            "device": rows["device"],
            "stream": [labels[s] for s in rows["stream"]],
            "pool": [pool_label(p) for p in rows["pool_id"]],
            "class": rows["size_class"],
            **{
                c: [byte_size(v) for v in rows[c]]
                for c in ("reserved", "allocated", "awaiting_free", "stranded", "releasable", "largest_free")
            },
            "segments": rows["segments"],
        }
    )
    tables: list[tuple[str, Any]] = [("ledger", text)]
    held = _pins(snapshot, device)
    if held:
        tables.append(
            ("what pins stranded bytes (largest first)", pd.DataFrame([_pin_row(p, labels) for p in held]))
        )
    return tables


def _pin_row(pin: dict[str, Any], labels: dict[int, str]) -> dict[str, str]:
    return {
        "stream": labels[pin["stream"]],
        "stranded": byte_size(pin["stranded"]),
        "live blocks": str(pin["live_in_segment"]),
        "block": byte_count(pin["size"]),
        "allocated at": (pin["site"] or "unknown")[:70],
    }


def owners_document(
    snapshot: Snapshot, blocks: list[BlockOwner], outcome: Intervention | None = None
) -> dict[str, Any]:
    """Live blocks and who holds them, largest first."""
    return {
        "blocks": [b.as_dict() for b in blocks],
        "intervention": None if outcome is None else outcome.as_dict(),
        "agreement": None if outcome is None else agreement(snapshot, outcome).as_dict(),
        "warnings": [n.as_dict() for n in snapshot.notes],
    }


def owners_table(snapshot: Snapshot, blocks: list[BlockOwner]) -> list[tuple[str, Any]]:
    """The owners for reading."""
    labels = stream_labels(stream_order(snapshot))
    rows = [
        (
            b.device,
            byte_count(b.size),
            labels[b.stream],
            b.owner,
            b.basis,
            b.confidence,
            byte_size(b.pins_bytes),
            b.reason[:60],
        )
        for b in blocks
    ]
    names = ["device", "size", "stream", "owner", "basis", "confidence", "strands", "reason"]
    return [("live blocks", pd.DataFrame(rows, columns=names))]


def replay_document(snapshot: Snapshot, results: list[Replay]) -> dict[str, Any]:
    """The outcome of replaying one or several devices: counts added up, the main device's peak and mode."""
    main = max(results, key=lambda r: r.events)
    checked, exact = sum(r.checked for r in results), sum(r.exact for r in results)
    reasons: Counter[str] = Counter()
    for result in results:
        reasons.update(result.unverifiable)
    wrong = next((r for r in results if r.mismatches), None)
    return {
        "events": sum(r.events for r in results),
        "checked": checked,
        "exact": exact,
        "fraction_exact": exact / checked if checked else None,
        "unverifiable": reasons.total(),
        "unverifiable_reasons": dict(reasons),
        "segment_sequence_exact": all(r.segment_sequence_exact for r in results),
        "end_state_exact": all(r.end_state_exact for r in results),
        "end_difference": next((r.end_difference for r in results if r.end_difference), None),
        "peak_reserved": main.peak_reserved,
        "first_mismatch": {"device": wrong.device, **wrong.mismatches[0].as_dict()} if wrong else None,
        "mode": main.mode,
        "torch_rules": main.rules.version,
        "devices": [r.as_dict() for r in results],
        "warnings": [n.as_dict() for n in snapshot.notes],
    }


def replay_text(result: Replay) -> str:
    """The outcome of a replay in a few lines."""
    share = "nothing to check" if result.fraction_exact is None else f"{result.fraction_exact:.4%} exact"
    end = "exact" if result.end_state_exact else f"NOT exact: {result.end_difference}"
    lines = [
        f"{result.events} events, {result.checked} checked, {share}; {sum(result.unverifiable.values())} unverifiable",
        *(f"  {count} x {reason}: {UNVERIFIABLE[reason]}" for reason, count in result.unverifiable.items()),
        f"segment sequence {'exact' if result.segment_sequence_exact else 'NOT exact'}, end state {end}",
        f"peak reserved {byte_count(result.peak_reserved)}; {result.mode}; rules of torch {result.rules.version}",
        *(
            f"mismatch at event {m.index} ({m.action}): expected {m.expected}, recorded {m.recorded}"
            for m in result.mismatches[:3]
        ),
    ]
    return "\n".join(lines)


def diff_document(result: SnapshotDiff) -> dict[str, Any]:
    """The difference of two snapshots."""
    return {
        "blocks": result.blocks.to_dict("records"),
        "sites": result.sites.to_dict("records"),
        "ledger": result.ledger.to_dict("records"),
        "matched_by": result.matched_by,
        "streams_a": {label: handle for handle, label in result.streams[0].items()},
        "streams_b": {label: handle for handle, label in result.streams[1].items()},
        "unchanged_blocks": result.unchanged_blocks,
        "warnings": [n.as_dict() for n in result.notes],
    }


def oom_document(reports: list[tuple[int, OomReport]]) -> dict[str, Any]:
    """Out-of-memory lines of a log, by line number."""
    return {"messages": [{"line": number, **report.as_dict()} for number, report in reports]}


def oom_table(reports: list[tuple[int, OomReport]]) -> list[tuple[str, Any]]:
    """Out-of-memory lines for reading."""
    return [
        (
            f"line {number}: {report.cause}",
            "\n".join(
                [
                    f"asked for {byte_size(report.requested)}, free {byte_size(report.free)}, idle inside torch "
                    f"{byte_size(report.idle)}, not torch {byte_size(report.non_torch)}",
                    *report.advice,
                ]
            ),
        )
        for number, report in reports
    ]
