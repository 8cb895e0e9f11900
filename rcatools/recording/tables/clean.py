"""Leaves out what cannot be judged, counting it, and refuses what would mislead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rcatools.errors import InputError
from rcatools.recording.tables.names import listed
from rcatools.units import counted

_IDENTITY = ("metric", "workload", "arm", "machine", "day", "block", "run", "sample", "order")
SUSPICIOUS_FACTOR = 200.0
WIDEST_SPAN = 12.0
Codes = NDArray[np.int64]


def without_unusable(frame: pd.DataFrame, excluded: Counter[str], source: str) -> pd.DataFrame:
    """Rows that have an arm, every key the table uses, and a positive finite value; the others are counted.

    Raises:
        InputError: no row is left.
    """
    value = frame["value"].to_numpy(dtype=float)
    failed = excluded["failed"]
    causes = {
        "missing": np.isnan(value),
        "infinite": np.isinf(value),
        "not_positive": np.isfinite(value) & (value <= 0),
    }
    for key in ("arm", "metric", "workload", "block", "run"):
        if key in frame.columns:
            causes[f"no_{key}"] = frame[key].isna().to_numpy()
    usable = np.ones(len(frame), dtype=bool)
    for cause, hit in causes.items():
        excluded[cause] += int((hit & usable).sum())
        usable &= ~hit
    excluded["missing"] -= min(failed, excluded["missing"])
    if not usable.any():
        raise InputError(
            f"{source} holds no usable measurement ({describe(excluded)}); values must be positive numbers, correct them"
        )
    return frame if usable.all() else frame[usable].reset_index(drop=True)


def without_duplicates(frame: pd.DataFrame, excluded: Counter[str]) -> tuple[pd.DataFrame, list[str]]:
    """Rows without exact copies, which are counted.

    Two equal values of one arm are no copy by themselves: keys must name the row. With a sample or order column
    they do; with a block or run alone they do when wherever keys repeat the value repeats as well.
    """
    keys = [c for c in _IDENTITY if c in frame.columns]
    if not {"block", "run", "sample", "order"} & set(keys):
        return frame, []
    place = combined_codes(frame, keys)
    _, counts = np.unique(place, return_counts=True)
    if counts.size == len(frame):
        return frame, []
    both = pd.factorize(place * (len(frame) + 1) + pd.factorize(frame["value"])[0])[0]
    keep = ~pd.Series(both).duplicated().to_numpy()
    distinct = int(keep.sum())
    named = bool({"sample", "order"} & set(keys))
    if not named and distinct > counts.size:
        return frame, []
    notes, copies = [], len(frame) - distinct
    if copies:
        excluded["duplicate"] += copies
        notes.append(
            f"exact copies (same keys, same value), of which one was kept: {counted(copies, 'further row')}"
        )
    if distinct > counts.size:
        again = distinct - counts.size
        notes.append(
            f"kept as samples, with the keys of another row and another value: {counted(again, 'row')}"
        )
    return (frame[keep].reset_index(drop=True) if copies else frame), notes


def check_scale(frame: pd.DataFrame, any_scale: bool = False) -> None:
    """Refuse values of one metric and workload that fall into two lots a power of 1,000 apart: mixed units.

    With ``any_scale`` only a span of more than twelve orders of magnitude is refused, which no comparison has.

    Raises:
        InputError: with the two levels and how many values each has.
    """
    place = combined_codes(frame, [c for c in ("metric", "workload") if c in frame.columns])
    codes = pd.factorize(place)[0]
    logs = np.log10(frame["value"].to_numpy(dtype=float))
    table = pd.Series(logs).groupby(codes).agg(["min", "max"])
    span = (table["max"] - table["min"]).to_numpy()
    if span.max(initial=0.0) > WIDEST_SPAN:
        group = int(np.argmax(span))
        low, high = 10.0 ** float(table["min"].iloc[group]), 10.0 ** float(table["max"].iloc[group])
        raise InputError(
            f"values from {low:.3g} to {high:.3g} in one comparison cannot be one quantity; name the column with --value or --metric, or correct them"
        )
    if any_scale:
        return
    suspicious = np.flatnonzero(span > np.log10(SUSPICIOUS_FACTOR))
    for group in suspicious.tolist():
        values = np.sort(logs[codes == group])
        steps = np.diff(values)
        cut = int(np.argmax(steps))
        low, high = values[: cut + 1], values[cut + 1 :]
        distance = float(np.median(high) - np.median(low))
        nearest = 3 * round(distance / 3)
        if nearest > 0 and abs(distance - nearest) < 0.15 and steps[cut] > 2:
            raise InputError(
                f"{low.size:,} values lie near {10 ** float(np.median(low)):.4g} and {high.size:,} near "
                f"{10 ** float(np.median(high)):.4g}, a factor {10**nearest:,} apart: mixed units? "
                "Convert them to one unit, or say --any-scale if they are right"
            )


def combined_codes(frame: pd.DataFrame, columns: list[str]) -> Codes:
    """One integer per distinct combination of columns; zeros for no columns."""
    total = np.zeros(len(frame), dtype=np.int64)
    for column in columns:
        codes, uniques = pd.factorize(frame[column], use_na_sentinel=False)
        total = pd.factorize(total * max(len(uniques), 1) + codes)[0].astype(np.int64)
    return total


def describe(excluded: Mapping[str, int]) -> str:
    """What was left out, for a reader; "" for nothing."""
    words = {
        "failed": "of failed runs",
        "not_positive": "zero or negative",
        "duplicate": "duplicates",
        "no_arm": "without an arm",
        "no_metric": "without a metric",
        "no_workload": "without a workload",
        "no_block": "without a block",
        "no_run": "without a run",
    }
    return ", ".join(f"{count:,} {words.get(cause, cause)}" for cause, count in excluded.items() if count)


def check_metrics(frame: pd.DataFrame, wanted: tuple[str, ...], source: str) -> pd.DataFrame:
    """Rows of the wanted metrics only.

    Raises:
        InputError: a wanted metric is not in the table.
    """
    if not wanted:
        return frame
    if "metric" not in frame.columns:
        raise InputError(f"{source} has one metric without a name; leave --metric out")
    names = frame["metric"].astype(str)
    known = set(names)
    for name in wanted:
        if name not in known:
            raise InputError(f"{source} has no metric {name!r}; its metrics are {listed(sorted(known))}")
    return frame[names.isin(wanted)].reset_index(drop=True)
