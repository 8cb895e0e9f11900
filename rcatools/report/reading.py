"""Reads the measured tables of a report from recordings, their snapshots and their traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rcatools.diagnosis.steps import step_figures
from rcatools.errors import RcaError
from rcatools.memory.ledger import ledger
from rcatools.memory.owners import owners
from rcatools.memory.read import load_snapshot
from rcatools.recording import Recording
from rcatools.report.measured import COLUMNS, Measured, harmless_texts
from rcatools.report.safe import clean
from rcatools.trace.read import load_trace

SMALLEST_BLOCK = 2**20


def measure_tables(recordings: Sequence[Recording]) -> Measured:
    """Read the tables of several recordings; files that cannot be read are counted, not raised."""
    rows: dict[str, list[pd.DataFrame]] = {name: [] for name in COLUMNS}
    for recording in recordings:
        rows["blocks"].append(_blocks(recording))
        rows["runs"].append(_simple_types(recording.runs).assign(recording=clean(recording.name)))
        rows["kernels"].append(_kernels(recording))
        for arm, file in _in_declared_order(recording, recording.snapshots):
            try:
                balance, pins = _snapshot(file)
            except RcaError as error:
                rows["problems"].append(_problem(recording, arm, file, error))
                continue
            rows["ledger"].append(balance.assign(recording=clean(recording.name), arm=arm))
            rows["pins"].append(pins.assign(recording=clean(recording.name), arm=arm))
        for arm, file in _in_declared_order(recording, recording.traces):
            try:
                steps = step_figures(load_trace(file))
            except RcaError as error:
                rows["problems"].append(_problem(recording, arm, file, error))
                continue
            if steps is not None:
                rows["steps"].append(
                    pd.DataFrame(
                        [
                            {
                                "recording": clean(recording.name),
                                "arm": arm,
                                "steps": steps.steps,
                                "kernels": steps.kernels,
                                "kernel_us": float(np.median(steps.kernel_us)),
                                "gap_us": float(np.median(steps.gap_us)),
                                "median_gap_us": steps.median_gap_us,
                            }
                        ]
                    )
                )
    return Measured(**{name: _together(name, frames) for name, frames in rows.items()})


def _together(name: str, frames: list[pd.DataFrame]) -> pd.DataFrame:
    kept = [frame for frame in frames if len(frame)]
    if not kept:
        return pd.DataFrame(columns=list(COLUMNS[name]))
    table = harmless_texts(pd.concat(kept, ignore_index=True))
    first = [column for column in COLUMNS[name] if column in table.columns]
    return table[[*first, *(column for column in table.columns if column not in first)]]


def _in_declared_order(recording: Recording, files: dict[str, Path]) -> list[tuple[str, Path]]:
    order = {name: index for index, name in enumerate(recording.manifest.arm_names)}
    return sorted(files.items(), key=lambda item: (order.get(item[0], len(order)), item[0]))


def _blocks(recording: Recording) -> pd.DataFrame:
    samples = recording.samples[recording.samples["block"] >= 0]
    table = samples.groupby(["metric", "block", "order", "arm"], sort=True)["value"].median().reset_index()
    return table.assign(recording=clean(recording.name))


def _kernels(recording: Recording) -> pd.DataFrame:
    if recording.kernels.empty:
        return recording.kernels
    table = recording.kernels.groupby(["arm", "kernel", "block"], sort=True)["us"].median().reset_index()
    return table.assign(recording=clean(recording.name))


def _simple_types(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of mixed types as text, so that recordings with different facts go into one table."""
    return frame.assign(
        **{
            column: frame[column].map(lambda value: None if _missing(value) else str(value))
            for column in frame.columns
            if frame[column].dtype == object
        }
    )


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def _snapshot(file: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    snapshot = load_snapshot(file)
    columns = ["active", "awaiting_free", "stranded", "releasable", "reserved"]
    rows = ledger(snapshot).rows
    balance = rows.groupby("stream", sort=False)[columns].sum().reset_index()
    balance = balance.sort_values("reserved", ascending=False, ignore_index=True)
    balance["active"] = balance["active"] - balance["awaiting_free"]
    names = ["stream", "size", "owner", "basis", "confidence", "pins_bytes", "reason"]
    held = [
        [getattr(block, name) for name in names]
        for block in owners(snapshot)
        if block.size >= SMALLEST_BLOCK or block.pins_bytes >= SMALLEST_BLOCK
    ]
    return balance, pd.DataFrame(held, columns=names)


def _problem(recording: Recording, arm: str, file: Path, error: RcaError) -> pd.DataFrame:
    return pd.DataFrame(
        [{"recording": clean(recording.name), "arm": arm, "file": file.name, "problem": str(error)}]
    )
