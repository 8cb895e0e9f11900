"""Which GPU events cannot be true and must stay out of every sum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from rcatools.trace.model import TraceWarning
from rcatools.units import counted

NS_PER_S = 1_000_000_000
NS_PER_DAY = 86_400 * NS_PER_S
EXCLUSIONS = {
    "negative_duration": "their duration is negative",
    "impossible_duration": "they last longer than a day, or than everything else in the trace together",
}


def separate_impossible(
    table: pd.DataFrame, host_extent_ns: tuple[int, int] | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split a table into rows that can be true and rows that cannot.

    A negative duration is impossible, and one above a day. So is a duration above the extent of all other events together
    (host events included) when it is also above one second or a hundred times that extent with at least
    eight other events: a profile of a few kernels without host events may well hold one long kernel.

    Args:
        table: activities with ``start_ns`` and ``dur_ns``.
        host_extent_ns: first start and last end of the host events, or None.

    Returns:
        The kept rows and the excluded ones; the latter with a column ``reason``.
    """
    duration = table["dur_ns"].to_numpy()
    start = table["start_ns"].to_numpy()
    reason = np.full(len(table), "", dtype=object)
    reason[duration < 0] = "negative_duration"
    reason[duration > NS_PER_DAY] = "impossible_duration"
    for row in np.argsort(-duration, kind="stable"):
        if duration[row] < 0:
            break
        if reason[row]:
            continue
        others = reason == ""
        others[row] = False
        extent = _extent(start[others], duration[others], host_extent_ns)
        count = int(others.sum())
        too_long = duration[row] > extent and count > 0
        if too_long and (duration[row] >= NS_PER_S or (duration[row] > 100 * extent and count >= 8)):
            reason[row] = "impossible_duration"
        else:
            break
    good = reason == ""
    if good.all():
        return table, table.iloc[:0].assign(reason=reason[:0])
    excluded = table[~good].assign(reason=reason[~good])
    return table[good].reset_index(drop=True), excluded.reset_index(drop=True)


def _extent(
    start: npt.NDArray[np.int64],
    duration: npt.NDArray[np.int64],
    host: tuple[int, int] | None,
) -> int:
    edges = [] if start.size == 0 else [int(start.min()), int((start + duration).max())]
    if host is not None:
        edges += list(host)
    return max(edges) - min(edges) if edges else 0


def exclusion_warnings(excluded: pd.DataFrame) -> list[TraceWarning]:
    """One warning per reason of exclusion, with the number of events and their time."""
    return [
        TraceWarning(
            reason,
            f"kept out of every sum: {counted(len(rows), 'GPU event')} ({int(rows['dur_ns'].sum()) / 1000:.3f} us): {text}",
            len(rows),
        )
        for reason, text in EXCLUSIONS.items()
        if len(rows := excluded[excluded["reason"] == reason])
    ]
