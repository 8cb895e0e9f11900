"""Streams over time: when each was last used, and what lies idle under it."""

from __future__ import annotations

import pandas as pd

from rcatools.memory.diff import stream_labels, stream_order
from rcatools.memory.ledger import ledger
from rcatools.memory.snapshot import ACTIONS, Snapshot

_USES = tuple(code for code, name in enumerate(ACTIONS) if name in ("alloc", "free_requested"))


def stream_activity(snapshot: Snapshot) -> pd.DataFrame:
    """One row per device and stream that holds memory or appears in the history.

    Returns:
        Columns ``device``, ``stream`` (handle), ``label``, ``allocations``, ``first_event`` and
        ``last_event`` (event numbers of the device's first and last allocation or free request there; -1
        where the history has none), ``reserved``, ``allocated``, ``idle`` (unused bytes, stranded or
        releasable) and ``unused_tail`` (events of the device after ``last_event``; the whole history for a
        stream that it never mentions).
    """
    labels = stream_labels(stream_order(snapshot))
    events = snapshot.events.assign(number=snapshot.events.groupby("device").cumcount())
    totals = events.groupby("device").size()
    used = events[events["action"].isin(_USES)].groupby(["device", "stream"])["number"].agg(["min", "max"])
    allocated = events[events["action"] == ACTIONS.index("alloc")].groupby(["device", "stream"]).size()
    held = (
        ledger(snapshot)
        .segments.groupby(["device", "stream"])[["reserved", "allocated", "stranded", "releasable"]]
        .sum()
    )
    table = held.join(used, how="outer").join(allocated.rename("allocations"), how="left").reset_index()
    number = table[["min", "max"]].fillna(-1).astype("int64")
    sizes = (
        table[["reserved", "allocated", "stranded", "releasable", "allocations"]].fillna(0).astype("int64")
    )
    length = table["device"].map(totals).fillna(0).astype("int64")
    return pd.DataFrame(
        {
            "device": table["device"].astype("int64"),
            "stream": table["stream"],
            "label": [labels[int(s)] for s in table["stream"]],
            "allocations": sizes["allocations"],
            "first_event": number["min"],
            "last_event": number["max"],
            "reserved": sizes["reserved"],
            "allocated": sizes["allocated"],
            "idle": sizes["stranded"] + sizes["releasable"],
            "unused_tail": length - 1 - number["max"],
        }
    )


def idle_under_unused_streams(snapshot: Snapshot, since_event: int, device: int = 0) -> int:
    """Bytes that lie idle under streams with no allocation or free from an event on.

    Args:
        snapshot: the snapshot.
        since_event: event number on the device.
        device: device index.
    """
    table = stream_activity(snapshot)
    mine = table[(table["device"] == device) & (table["last_event"] < since_event)]
    return int(mine["idle"].sum())
