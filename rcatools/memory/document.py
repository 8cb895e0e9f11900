"""The JSON documents and plain tables of the command line."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rcatools.memory.build import pool_label
from rcatools.memory.diff import SnapshotDiff, stream_labels, stream_order
from rcatools.memory.intervention import Intervention
from rcatools.memory.ledger import ledger
from rcatools.memory.owners import BlockOwner
from rcatools.memory.peak import peak
from rcatools.memory.replay import Replay
from rcatools.memory.snapshot import Snapshot
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
        "history": {
            "events": sum(h.events for h in histories),
            "overflowed": any(h.overflowed for h in histories),
            "recorded": any(h.recorded for h in histories),
            "complete": bool(histories) and all(h.complete for h in histories),
            "devices": [dict(h.__dict__) for h in histories],
        },
        "warnings": [n.as_dict() for n in balance.notes],
    }


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
    return [("ledger", text)]


def owners_document(
    snapshot: Snapshot, blocks: list[BlockOwner], outcome: Intervention | None = None
) -> dict[str, Any]:
    """Live blocks and who holds them, largest first."""
    return {
        "blocks": [b.as_dict() for b in blocks],
        "intervention": None if outcome is None else outcome.as_dict(),
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


def replay_document(snapshot: Snapshot, result: Replay) -> dict[str, Any]:
    """The outcome of a replay."""
    return {**result.as_dict(), "warnings": [n.as_dict() for n in snapshot.notes]}


def replay_text(result: Replay) -> str:
    """The outcome of a replay in a few lines."""
    share = "nothing to check" if result.fraction_exact is None else f"{result.fraction_exact:.4%} exact"
    lines = [
        f"{result.events} events, {result.checked} checked, {share}; {sum(result.unverifiable.values())} unverifiable",
        *(f"  {count} x {reason}" for reason, count in result.unverifiable.items()),
        f"segment sequence {'exact' if result.segment_sequence_exact else 'NOT exact'}, end state "
        f"{'exact' if result.end_state_exact else 'NOT exact: ' + str(result.end_difference)}",
        f"peak reserved {byte_count(result.peak_reserved)}; {result.mode}; rules of torch {result.rules.version}",
    ]
    if result.mismatches:
        first = result.mismatches[0]
        lines.append(
            f"first mismatch: event {first.index} ({first.action}): expected {first.expected}, recorded {first.recorded}"
        )
    return "\n".join(lines)


def diff_document(result: SnapshotDiff) -> dict[str, Any]:
    """The difference of two snapshots."""
    return {
        "blocks": result.blocks.to_dict("records"),
        "ledger": result.ledger.to_dict("records"),
        "matched_by": result.matched_by,
        "streams_a": {label: handle for handle, label in result.streams[0].items()},
        "streams_b": {label: handle for handle, label in result.streams[1].items()},
        "unchanged_blocks": result.unchanged_blocks,
        "warnings": [n.as_dict() for n in result.notes],
    }
