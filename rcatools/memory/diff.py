"""What is new, gone and grown between two snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from rcatools.memory.build import pool_label
from rcatools.memory.ledger import ledger
from rcatools.memory.owners import owners
from rcatools.memory.snapshot import DEFAULT_POOL, Note, Snapshot

_KEYS = ["device", "stream", "pool", "size", "owner"]


@dataclass(frozen=True)
class SnapshotDiff:
    """The difference B - A.

    Attributes:
        blocks: live blocks by ``device``, ``stream`` (label), ``pool`` (label), ``size`` and ``owner``:
            ``count_a``, ``count_b``, ``bytes_delta`` and ``change`` ("new", "gone", "grown", "shrunk");
            unchanged groups are left out and counted in ``unchanged_blocks``.
        ledger: ledger rows of both by (``device``, ``stream``, ``pool``, ``size_class``), with ``*_a``,
            ``*_b`` and ``*_delta`` of reserved, allocated, awaiting_free, stranded and releasable.
        streams: label of each stream handle, one mapping per snapshot.
        matched_by: how streams were matched: "handle" (both from one process) or "order" (of first use).
        unchanged_blocks: live blocks in groups that did not change.
        notes: limits of the comparison.
    """

    blocks: pd.DataFrame
    ledger: pd.DataFrame
    streams: tuple[dict[int, str], dict[int, str]]
    matched_by: str
    unchanged_blocks: int
    notes: tuple[Note, ...]


def stream_order(snapshot: Snapshot) -> list[int]:
    """Non-default stream handles in the order of their first use (then of their segments)."""
    seen = dict.fromkeys(snapshot.events["stream"].tolist()) | dict.fromkeys(
        snapshot.segments["stream"].tolist()
    )
    return [int(handle) for handle in seen if handle != 0]


def stream_labels(order: list[int]) -> dict[int, str]:
    """Labels that do not depend on addresses: "default", "stream 1", "stream 2", ..."""
    return {0: "default"} | {handle: f"stream {i}" for i, handle in enumerate(order, start=1)}


def diff(a: Snapshot, b: Snapshot, environment: Mapping[str, str] | None = None) -> SnapshotDiff:
    """Compare two snapshots.

    Stream handles are addresses that differ from process to process: they are matched by handle where the
    snapshots share one, else by order of first use.
    """
    order_a, order_b = stream_order(a), stream_order(b)
    same_process = bool(set(order_a) & set(order_b))
    if same_process:
        labels_a = labels_b = stream_labels(list(dict.fromkeys(order_a + order_b)))
    else:
        labels_a, labels_b = stream_labels(order_a), stream_labels(order_b)
    blocks, unchanged = _block_changes(_groups(a, labels_a, environment), _groups(b, labels_b, environment))
    notes = _notes(a, b, same_process or not (order_a and order_b))
    return SnapshotDiff(
        blocks,
        _ledger_changes(a, b, labels_a, labels_b),
        (labels_a, labels_b),
        "handle" if same_process else "order",
        unchanged,
        notes,
    )


def _groups(
    snapshot: Snapshot, labels: dict[int, str], environment: Mapping[str, str] | None
) -> Counter[tuple[object, ...]]:
    # a graph pool's number counts captures of its process, so pools are compared by kind
    return Counter(
        (o.device, labels[o.stream], _pool_kind(o.pool_id), o.size, o.owner)
        for o in owners(snapshot, environment)
    )


def _pool_kind(pool: tuple[int, int] | None) -> str:
    return pool_label(pool).split(" ")[0] if pool != DEFAULT_POOL else "default"


def _block_changes(
    a: Counter[tuple[object, ...]], b: Counter[tuple[object, ...]]
) -> tuple[pd.DataFrame, int]:
    rows, unchanged = [], 0
    for key in a.keys() | b.keys():
        before, after = a[key], b[key]
        if before == after:
            unchanged += after
            continue
        change = "new" if not before else "gone" if not after else "grown" if after > before else "shrunk"
        rows.append((*key, before, after, (after - before) * int(key[3]), change))  # type: ignore[call-overload]
    table = pd.DataFrame(rows, columns=[*_KEYS, "count_a", "count_b", "bytes_delta", "change"])
    table["_rank"] = -table["bytes_delta"].abs()
    table = table.sort_values(["_rank", *_KEYS], ignore_index=True).drop(columns="_rank")
    return table, unchanged


def _ledger_changes(
    a: Snapshot, b: Snapshot, labels_a: dict[int, str], labels_b: dict[int, str]
) -> pd.DataFrame:
    keys = ["device", "stream", "pool", "size_class"]
    values = ["reserved", "allocated", "awaiting_free", "stranded", "releasable"]

    def rows(snapshot: Snapshot, labels: dict[int, str]) -> pd.DataFrame:
        table = ledger(snapshot).rows
        table = table.assign(
            stream=[labels[s] for s in table["stream"]], pool=[_pool_kind(p) for p in table["pool_id"]]
        )
        return table.groupby(keys, as_index=False)[values].sum()

    both = rows(a, labels_a).merge(rows(b, labels_b), on=keys, how="outer", suffixes=("_a", "_b"))
    for value in values:
        both[[f"{value}_a", f"{value}_b"]] = both[[f"{value}_a", f"{value}_b"]].fillna(0).astype("int64")
        both[f"{value}_delta"] = both[f"{value}_b"] - both[f"{value}_a"]
    return both


def _notes(a: Snapshot, b: Snapshot, matched: bool) -> tuple[Note, ...]:
    notes = []
    if not matched:
        notes.append(
            Note(
                "streams_by_order",
                "the snapshots share no stream handle: streams were matched by order of first use",
            )
        )
    for snapshot, name in ((a, "A"), (b, "B")):
        notes += [Note(n.code, f"{name}: {n.text}", n.count) for n in snapshot.notes]
    return tuple(notes)
