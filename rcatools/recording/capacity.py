"""What stands beside the times of a serving recording: estimate against actual graph memory, and confounded arms.

Both read the runs table of a recording (columns ``arm``, ``block``, ``outcome`` and facts that may be missing).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from rcatools import units

LOG_RESOLUTION_BYTES = round(0.01 * 2**30)  # vLLM logs sizes as GiB with two decimals
KV_FACTS = ("kv_blocks", "kv_tokens", "kv_bytes")
SAME_IN_ALL = {
    "vllm_version": "the vLLM version",
    "platform": "the platform",
    "eager": "eager mode",
    "model_runner": "the model runner",
}

LARGEST = 1e18  # bytes, blocks or tokens beyond it were not measured


@dataclass(frozen=True)
class EstimateRow:
    """Estimated and actual memory of the graphs of one arm: medians over its runs, bytes.

    Attributes:
        arm: its name.
        n: runs that tell both.
        estimate_bytes, actual_bytes: None where no run tells it.
        difference_bytes: actual minus estimate.
        ratio: actual / estimate.
        exact: True where the numbers come from the process itself, False where a log rounded them.
        note: why something is missing, or what the numbers mean.
    """

    arm: str
    n: int
    estimate_bytes: int | None
    actual_bytes: int | None
    difference_bytes: int | None
    ratio: float | None
    exact: bool
    note: str

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class Confound:
    """A difference between arms, beside the one they are named for, that can carry their times.

    Attributes:
        figure: the fact that differs ("kv_blocks", "profiling_skipped", "vllm_version", ...).
        arm, against: the arms.
        value, other: the fact in each, as text.
        text: one sentence.
    """

    figure: str
    arm: str
    against: str
    value: str
    other: str
    text: str

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def estimates(runs: pd.DataFrame) -> tuple[EstimateRow, ...]:
    """Estimate against actual of every arm with finished runs, in order of appearance."""
    done = runs[runs["outcome"] == "ok"]
    return tuple(_estimate(str(arm), own) for arm, own in done.groupby("arm", sort=False))


def _estimate(arm: str, runs: pd.DataFrame) -> EstimateRow:
    estimate, actual = _numbers(runs, "estimate_bytes"), _numbers(runs, "graph_bytes")
    both = pd.concat([estimate, actual], axis=1, keys=["estimate", "actual"]).dropna()
    exact = bool(len(runs)) and bool(_flags(runs, "memory_exact").all())
    notes = []
    if _flags(runs, "profiling_skipped").any():
        notes.append("a saved start-up plan was applied, so nothing was estimated")
    if _flags(runs, "eager").any() and actual.dropna().empty:
        notes.append("eager mode: no graphs")
    elif estimate.dropna().empty:
        notes.append("no estimate is known")
    if actual.dropna().empty and not notes:
        notes.append("the actual memory is not known")
    middle = {name: both[name].median() for name in both.columns} if len(both) else {}
    low, high = middle.get("estimate"), middle.get("actual")
    difference = None if low is None or high is None else round(high - low)
    if difference is not None and not exact and abs(difference) < LOG_RESOLUTION_BYTES:
        notes.append(
            f"the log rounds to {units.byte_size(LOG_RESOLUTION_BYTES)}: the two are equal as far as it tells"
        )
    if low is not None and low <= 0:
        notes.append("nothing was set aside for graphs")
    return EstimateRow(
        arm=arm,
        n=len(both),
        estimate_bytes=_median(estimate),
        actual_bytes=_median(actual),
        difference_bytes=difference,
        ratio=float(high / low) if low and high is not None and low > 0 else None,
        exact=exact,
        note="; ".join(notes),
    )


def confounds(runs: pd.DataFrame, baseline: str) -> tuple[Confound, ...]:
    """What differs between each arm and the baseline beside the arm itself.

    The size of the KV cache counts as different when the medians of an arm and the baseline differ at all: the
    number of blocks is exact, and one block less is a different capacity.
    """
    done = runs[runs["outcome"] == "ok"]
    base = done[done["arm"] == baseline]
    found: list[Confound] = []
    if base.empty:
        return ()
    for name, own in done.groupby("arm", sort=False):
        arm = str(name)
        if _flags(own, "profiling_skipped").any():
            text = f"{arm}: memory profiling was skipped (start-up plan applied), so the arm did nothing"
            found.append(Confound("profiling_skipped", arm, baseline, "yes", "", text))
        if arm == baseline:
            continue
        if (kv := _kv_confound(arm, own, baseline, base)) is not None:
            found.append(kv)
        for figure, what in SAME_IN_ALL.items():
            left, right = _texts(own, figure), _texts(base, figure)
            if left and right and left != right:
                text = f"{arm} and {baseline} differ in {what}: {left} against {right}"
                found.append(Confound(figure, arm, baseline, left, right, text))
    return tuple(found)


def _kv_confound(arm: str, own: pd.DataFrame, baseline: str, base: pd.DataFrame) -> Confound | None:
    for figure in KV_FACTS:
        left, right = _median(_numbers(own, figure)), _median(_numbers(base, figure))
        if left is None or right is None:
            continue
        if left == right:
            return None
        unit = {"kv_blocks": "KV blocks", "kv_tokens": "KV tokens", "kv_bytes": "bytes of KV cache"}[figure]
        text = (
            f"{arm} has {left:,} {unit}, {baseline} {right:,} ({units.change(left / right) if right else 'n/a'}): its "
            "time cannot be laid to the arm alone; repeat with a fixed number of KV blocks"
        )
        return Confound(figure, arm, baseline, f"{left}", f"{right}", text)
    return None


def _numbers(runs: pd.DataFrame, figure: str) -> pd.Series:
    if figure not in runs.columns:
        return pd.Series(float("nan"), index=runs.index)
    values = pd.to_numeric(runs[figure], errors="coerce").astype(float)
    return values.where(values.abs() < LARGEST)


def _flags(runs: pd.DataFrame, figure: str) -> pd.Series:
    if figure not in runs.columns:
        return pd.Series(False, index=runs.index)
    return runs[figure].map(lambda value: value is True or str(value) == "True")


def _median(values: pd.Series) -> int | None:
    known = values.dropna()
    return round(float(known.median())) if len(known) else None


def _texts(runs: pd.DataFrame, figure: str) -> str:
    if figure not in runs.columns:
        return ""
    return ", ".join(sorted({str(value) for value in runs[figure].dropna()}))
