"""Cost per kernel boundary: the same boundaries of two traces, compared pair by pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rcatools.trace.align import Alignment
from rcatools.trace.gaps import Gaps, gaps
from rcatools.trace.model import Trace

Floats = npt.NDArray[np.float64]

LEVEL = 0.99
MIN_BOUNDARIES = 20
BLOCKS = 50
RESAMPLES = 999
_MOST_CELLS = 4_000_000
MATERIAL = 0.005  # of the span of a


@dataclass(frozen=True)
class BoundaryCost:
    """How much longer (or shorter) the idle time at a boundary became.

    Attributes:
        a, b: gap statistics of each trace over all its boundaries.
        us_per_boundary: median over corresponding boundaries of gap b minus gap a, with ``ci``.
        place: which boundaries were compared: "replay" (inside graph replays) when there are enough of them, else
            "all". Inside a replay the host has no part in the gap.
        paired: number of corresponding boundaries.
        total_us: the sum of their changes.
        by_place: the same per place, for those with enough boundaries.
        changed: the interval excludes zero and the sum is at least ``MATERIAL`` of the span of a.
    """

    a: dict[str, Any]
    b: dict[str, Any]
    us_per_boundary: float | None
    ci: tuple[float | None, float | None]
    place: str | None
    paired: int
    total_us: float
    by_place: dict[str, dict[str, Any]]
    changed: bool
    level: float = LEVEL

    def to_json(self) -> dict[str, Any]:
        """The form of the command line."""
        return {**vars(self), "ci": list(self.ci)}


def boundary_cost(a: Trace, b: Trace, alignment: Alignment, span_a_us: float) -> BoundaryCost:
    """Compare the gaps of two aligned traces.

    Two boundaries correspond when both their activities are aligned and stand next to each other on one stream in
    both traces. The interval is a percentile bootstrap of the median over blocks of consecutive boundaries, since
    neighbours are not independent. It speaks about these two traces, not about other processes.
    """
    left, right = gaps(a), gaps(b)
    change, place = _paired(left, right, alignment, len(a.kernels), len(b.kernels))
    by_place: dict[str, dict[str, Any]] = {}
    medians: dict[str, tuple[float, tuple[float, float]]] = {}
    for name in ("replay", "between", "eager"):
        part = change[place == name]
        if part.size >= MIN_BOUNDARIES:
            median, interval = medians[name] = _median_interval(part)
            by_place[name] = {
                "count": int(part.size),
                "us_per_boundary": median,
                "ci": list(interval),
                "sum_us": float(part.sum()),
            }
    chosen = change[place == "replay"] if "replay" in by_place else change
    if chosen.size < MIN_BOUNDARIES:
        return BoundaryCost(
            left.statistics(), right.statistics(), None, (None, None), None, int(chosen.size), float(chosen.sum()),
            by_place, False,
        )  # fmt: skip
    same = next((name for name, found in by_place.items() if found["count"] == chosen.size), None)
    median, interval = medians[same] if same else _median_interval(chosen)
    total = float(chosen.sum())
    excludes = interval[0] > 0 or interval[1] < 0
    return BoundaryCost(
        a=left.statistics(),
        b=right.statistics(),
        us_per_boundary=median,
        ci=interval,
        place="replay" if "replay" in by_place else "all",
        paired=int(chosen.size),
        total_us=total,
        by_place=by_place,
        changed=bool(excludes and abs(median) * chosen.size >= MATERIAL * span_a_us),
    )


def _paired(
    left: Gaps, right: Gaps, alignment: Alignment, size_a: int, size_b: int
) -> tuple[Floats, npt.NDArray[np.object_]]:
    """Change in microseconds and place of each pair of corresponding boundaries, in order of a."""
    partner = np.full(size_a, -1, dtype=np.int64)
    partner[alignment.pairs["a"].to_numpy()] = alignment.pairs["b"].to_numpy()
    following = np.full(size_b + 1, -2, dtype=np.int64)
    gap_after = np.zeros(size_b + 1, dtype=np.int64)
    following[right.table["before"].to_numpy()] = right.table["after"].to_numpy()
    gap_after[right.table["before"].to_numpy()] = right.table["gap_ns"].to_numpy()
    before, after = partner[left.table["before"].to_numpy()], partner[left.table["after"].to_numpy()]
    known = (before >= 0) & (after >= 0) & (following[before] == after)
    change = (gap_after[before] - left.table["gap_ns"].to_numpy())[known] / 1000
    return change, left.table["place"].to_numpy(dtype=object)[known]


def _median_interval(values: Floats) -> tuple[float, tuple[float, float]]:
    """Median and its block-bootstrap interval."""
    block = np.repeat(np.arange(min(BLOCKS, values.size)), [part.size for part in np.array_split(values, min(BLOCKS, values.size))])  # fmt: skip
    count = int(block[-1]) + 1
    order = np.argsort(values, kind="stable")
    ordered, block = values[order], block[order]
    picked = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    medians = np.empty(RESAMPLES)
    rows = max(_MOST_CELLS // values.size, 1)
    for start in range(0, RESAMPLES, rows):
        part = picked[start : start + rows]
        drawn = np.apply_along_axis(np.bincount, 1, part, minlength=count)  # how often each block was drawn
        reach = np.cumsum(drawn[:, block], axis=1, dtype=np.int32)
        total = reach[:, -1:]
        low = ordered[(reach >= (total + 1) // 2).argmax(axis=1)]
        high = ordered[(reach >= total // 2 + 1).argmax(axis=1)]
        medians[start : start + rows] = (low + high) / 2
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(np.median(values)), (float(low), float(high))
