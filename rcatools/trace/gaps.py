"""Idle time between consecutive activities of a stream, inside and between graph replays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rcatools.trace.model import Trace, lanes


@dataclass(frozen=True)
class Gaps:
    """Boundaries between consecutive activities.

    ``table`` has one row per boundary: device, stream, place ("replay": both in one graph replay,
    "between": next to a graph replay, "eager"), before, after (row numbers in ``Trace.kernels``),
    gap_ns (start of the next minus end of the one before; negative is overlap).
    """

    table: pd.DataFrame

    def statistics(self, place: str | None = None) -> dict[str, Any]:
        """Count, median and sum in microseconds, of all boundaries or of one place."""
        rows = self.table if place is None else self.table[self.table["place"] == place]
        gap = rows["gap_ns"].to_numpy()
        return {
            "count": int(gap.size),
            "median_us": float(np.median(gap)) / 1000 if gap.size else None,
            "sum_us": int(gap.sum()) / 1000,
        }


def gaps(trace: Trace) -> Gaps:
    """Gaps of every stream of a trace (of every hardware queue where the file names queues)."""
    table = trace.kernels
    lane = lanes(table)
    order = np.lexsort((table["start_ns"], lane))
    device, stream, lane = table["device"].to_numpy()[order], table["stream"].to_numpy()[order], lane[order]
    start, duration = table["start_ns"].to_numpy()[order], table["dur_ns"].to_numpy()[order]
    launch = np.where(table["graph"], table["correlation"], -1)[order]
    same = lane[1:] == lane[:-1]
    gap = start[1:] - (start + duration)[:-1]
    before, after = launch[:-1], launch[1:]
    place = np.where((before == -1) & (after == -1), "eager", np.where(before == after, "replay", "between"))
    return Gaps(
        pd.DataFrame(
            {
                "device": device[1:][same],
                "stream": stream[1:][same],
                "place": place[same],
                "before": order[:-1][same],
                "after": order[1:][same],
                "gap_ns": gap[same],
            }
        )
    )
