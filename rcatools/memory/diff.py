"""What is new, gone and grown between two snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from rcatools.memory.build import pool_label
from rcatools.memory.ledger import ledger
from rcatools.memory.owners import owners
from rcatools.memory.sites import site
from rcatools.memory.snapshot import DEFAULT_POOL, Note, Snapshot

_KEYS = ["device", "stream", "pool", "size", "owner"]
_SITE_KEYS = ["device", "stream", "pool", "owner", "site"]
_LEDGER_KEYS = ["device", "stream", "pool", "size_class"]
_LEDGER_VALUES = ["reserved", "allocated", "awaiting_free", "stranded", "releasable"]


@dataclass(frozen=True)
class SnapshotDiff:
    """The difference B - A.

    Attributes:
        blocks: live blocks by ``device``, ``stream`` (label), ``pool`` (kind), ``size`` and ``owner``:
            ``count_a``, ``count_b``, ``bytes_delta`` and ``change`` ("new", "gone", "grown", "shrunk");
            unchanged groups are left out and counted in ``unchanged_blocks``.
        sites: live bytes by ``device``, ``stream``, ``pool``, ``owner`` and ``site`` (the line that allocated
            them, "" where unknown): ``count_a``, ``count_b``, ``bytes_a``, ``bytes_b``, ``bytes_delta``,
            ``change``; unchanged ones are left out. A block that only changed its size is "grown" or
            "shrunk" here and "gone" and "new" in ``blocks``.
        ledger: ledger rows of both by (``device``, ``stream``, ``pool``, ``size_class``), with ``*_a``,
            ``*_b`` and ``*_delta`` of reserved, allocated, awaiting_free, stranded and releasable.
        streams: label of each stream handle, one mapping per snapshot.
        matched_by: how streams were matched: "handle" (both from one process) or "order" (of first use).
        unchanged_blocks: live blocks in groups that did not change.
        notes: limits of the comparison.
    """

    blocks: pd.DataFrame
    sites: pd.DataFrame
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
    snapshots share one, else by order of first use. Pools are compared by kind, because their numbers count
    the captures of a process.
    """
    order_a, order_b = stream_order(a), stream_order(b)
    same_process = bool(set(order_a) & set(order_b))
    if same_process:
        labels_a = labels_b = stream_labels(list(dict.fromkeys(order_a + order_b)))
    else:
        labels_a, labels_b = stream_labels(order_a), stream_labels(order_b)
    held_a, held_b = _held(a, labels_a, environment), _held(b, labels_b, environment)
    blocks = _changes(held_a, held_b, _KEYS)
    unchanged = blocks["change"] == ""
    sites = _changes(held_a, held_b, _SITE_KEYS)
    return SnapshotDiff(
        blocks=_ranked(blocks[~unchanged].drop(columns=["bytes_a", "bytes_b"]), _KEYS),
        sites=_ranked(sites[sites["change"] != ""], _SITE_KEYS),
        ledger=_ledger_changes(a, b, labels_a, labels_b),
        streams=(labels_a, labels_b),
        matched_by="handle" if same_process else "order",
        unchanged_blocks=int(blocks.loc[unchanged, "count_b"].sum()),
        notes=_notes(a, b, same_process or not (order_a and order_b)),
    )


def _held(snapshot: Snapshot, labels: dict[int, str], environment: Mapping[str, str] | None) -> pd.DataFrame:
    rows = [
        (o.device, labels[o.stream], _pool_kind(o.pool_id), o.size, o.owner, site(snapshot.stack(o.stack)))
        for o in owners(snapshot, environment)
    ]
    return pd.DataFrame(rows, columns=[*_KEYS, "site"])


def _changes(a: pd.DataFrame, b: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    def totals(held: pd.DataFrame, suffix: str) -> pd.DataFrame:
        bytes_held = held["size"]
        grouped = held.assign(_bytes=bytes_held).groupby(keys, as_index=False, dropna=False)
        return grouped.agg(**{f"count_{suffix}": ("_bytes", "size"), f"bytes_{suffix}": ("_bytes", "sum")})

    both = totals(a, "a").merge(totals(b, "b"), on=keys, how="outer")
    numbers = ["count_a", "count_b", "bytes_a", "bytes_b"]
    both[numbers] = both[numbers].fillna(0).astype("int64")
    both["bytes_delta"] = both["bytes_b"] - both["bytes_a"]
    both["change"] = [
        _change(*values)
        for values in zip(*(both[c].tolist() for c in ("count_a", "count_b", "bytes_delta")), strict=True)
    ]
    return both


def _change(count_a: int, count_b: int, delta: int) -> str:
    if not count_a:
        return "new"
    if not count_b:
        return "gone"
    return "grown" if delta > 0 else "shrunk" if delta < 0 else ""


def _ranked(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    ranked = table.assign(_rank=-table["bytes_delta"].abs()).sort_values(["_rank", *keys], ignore_index=True)
    return ranked.drop(columns="_rank")


def _pool_kind(pool: tuple[int, int] | None) -> str:
    return pool_label(pool).split(" ")[0] if pool != DEFAULT_POOL else "default"


def _ledger_changes(
    a: Snapshot, b: Snapshot, labels_a: dict[int, str], labels_b: dict[int, str]
) -> pd.DataFrame:
    def rows(snapshot: Snapshot, labels: dict[int, str]) -> pd.DataFrame:
        table = ledger(snapshot).rows
        table = table.assign(
            stream=[labels[s] for s in table["stream"]], pool=[_pool_kind(p) for p in table["pool_id"]]
        )
        return table.groupby(_LEDGER_KEYS, as_index=False)[_LEDGER_VALUES].sum()

    both = rows(a, labels_a).merge(rows(b, labels_b), on=_LEDGER_KEYS, how="outer", suffixes=("_a", "_b"))
    for value in _LEDGER_VALUES:
        pair = [f"{value}_a", f"{value}_b"]
        both[pair] = both[pair].fillna(0).astype("int64")
        both[f"{value}_delta"] = both[pair[1]] - both[pair[0]]
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
