"""What may have disturbed a run, and whether its numbers may be compared at all.

Nothing is dropped here: every run stays in its recording, these tables say what is known about it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from rcatools.recording.reader import Recording
from rcatools.recording.schema import QUIET

LARGEST = 1e15  # beyond it a clock, temperature or count was not measured


def is_throttled(throttle: pd.Series) -> pd.Series:
    """Whether a run saw a reason for reduced clocks; runs whose clocks are not readable say no."""
    return throttle.notna() & ~throttle.isin(QUIET)


def disturbances(recording: Recording) -> pd.DataFrame:
    """One row per timed run: what was seen beside it.

    Returns:
        Columns run, arm, block, throttled (bool), throttle, clocks_read (bool), sm_clock_mhz, temperature_c,
        power_w, other_processes, load_1m; a fact that was not recorded is missing.
    """
    runs = recording.timed_runs()
    names = ("sm_clock_mhz", "temperature_c", "power_w", "other_processes", "load_1m")
    table = runs[["run", "arm", "block"]].copy()
    throttle = _column(runs, "throttle").astype(object).where(lambda s: s.notna(), "not readable").map(str)
    table["throttled"] = is_throttled(throttle)
    table["throttle"] = throttle
    table["clocks_read"] = _numbers(runs, "sm_clock_mhz").notna()
    for name in names:
        table[name] = _numbers(runs, name)
    return table.reset_index(drop=True)


def cycle_values(recording: Recording, metric: str) -> pd.DataFrame | None:
    """``block_values`` in clock cycles (time x SM or GFX clock), or None where a run's clock was not read.

    A difference that is gone in cycles was a difference of clocks. One that stays was not. What waits for
    memory does not scale with this clock, so that such a change of clocks shows in cycles instead.
    """
    runs = recording.timed_runs()
    good = runs[runs["outcome"] == "ok"]
    clock = _numbers(good, "sm_clock_mhz")
    clock = clock.where(clock > 0)
    if good.empty or clock.isna().any():
        return None
    clocks = good.assign(clock=clock).pivot_table(index="block", columns="arm", values="clock")
    values = recording.block_values(metric)
    return values * clocks.reindex(index=values.index, columns=values.columns)


def output_agreement(recording: Recording, reference: str = "") -> pd.DataFrame:
    """Whether each arm computes what the baseline computes; times of an arm that does not say nothing.

    Args:
        recording: the recording.
        reference: arm to compare with instead of the baseline.

    Returns:
        One row per arm in declared order: "arm"; "runs" with a known output; "outputs" (distinct hashes);
        "equal" (True: one output, the baseline's, bit for bit; False; None: not recorded); "rel_error" (largest
        against float64) and "tolerance", or NaN; "mismatches" (runs outside their tolerance); "verdict":
        "identical", "within_tolerance" (other bits, right by float64), "mismatch" or "not_checked".
    """
    runs = recording.runs
    hashes = _column(runs, "output_sha256")
    baseline = set(hashes[(runs["arm"] == (reference or recording.manifest.baseline)) & hashes.notna()])
    error, tolerance = _numbers(runs, "output_rel_error"), _numbers(runs, "output_tolerance")
    wrong = (error > tolerance) | (runs["outcome"] == "mismatch")
    table = pd.DataFrame({"hash": hashes, "error": error, "tolerance": tolerance, "wrong": wrong})
    by_arm = {str(name): rows for name, rows in table.groupby(runs["arm"].to_numpy(), sort=False)}
    rows = []
    for arm in recording.manifest.arm_names:
        mine = by_arm.get(arm, table.iloc[:0])
        found = set(mine["hash"].dropna())
        equal = found == baseline and len(baseline) == 1 if found and baseline else None
        mismatches = int(mine["wrong"].sum())
        rows.append(
            {
                "arm": arm,
                "runs": int(mine["hash"].count()),
                "outputs": len(found),
                "equal": equal,
                "rel_error": mine["error"].max(),
                "tolerance": mine["tolerance"].min(),
                "mismatches": mismatches,
                "verdict": _verdict(equal, mismatches, checked=bool(mine["error"].notna().any())),
            }
        )
    return pd.DataFrame(rows)


def _verdict(equal: bool | None, wrong: int, *, checked: bool) -> str:
    if wrong:
        return "mismatch"
    if equal:
        return "identical"
    return "within_tolerance" if checked else ("not_checked" if equal is None else "mismatch")


def _numbers(frame: pd.DataFrame, name: str) -> pd.Series:
    """A fact's column as numbers; what is no finite number is missing."""
    values = pd.to_numeric(_column(frame, name), errors="coerce").astype(float)
    return values.where(np.isfinite(values) & (values.abs() < LARGEST))


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    """A fact's column, all missing where the recording has none."""
    if name in frame.columns:
        return frame[name]
    return pd.Series([None] * len(frame), index=frame.index, dtype=object)
