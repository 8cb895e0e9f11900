"""Small tables read once from recordings: what figures need beyond verdict.json.

Snapshots and traces are large and slow to read, so the tables are kept as Parquet files beside the
verdict, and notebooks, page and Markdown all read those.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from rcatools.files import write_bytes
from rcatools.report.safe import clean, without_persons

COLUMNS: dict[str, tuple[str, ...]] = {
    "blocks": ("recording", "metric", "block", "order", "arm", "value"),
    "runs": ("recording", "run", "arm", "block", "order", "outcome", "reason"),
    "kernels": ("recording", "arm", "kernel", "block", "us"),
    "ledger": ("recording", "arm", "stream", "active", "awaiting_free", "stranded", "releasable", "reserved"),
    "pins": ("recording", "arm", "stream", "size", "owner", "basis", "confidence", "pins_bytes", "reason"),
    "steps": ("recording", "arm", "steps", "kernels", "kernel_us", "gap_us", "median_gap_us"),
    "problems": ("recording", "arm", "file", "problem"),
}


@dataclass(frozen=True)
class Facts:
    """What figures must know of the first recording and the investigation.

    Attributes:
        recording: name of the recording that decides the device.
        metric: the declared metric.
        baseline: the baseline arm.
        margin: the equivalence margin as a fraction, None where unknown.
        repeats: arms of the same build as the baseline (A/A).
    """

    recording: str = ""
    metric: str = ""
    baseline: str = ""
    margin: float | None = None
    repeats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """Tables over all recordings; each has the columns of COLUMNS, times in microseconds, sizes in bytes.

    Attributes:
        blocks: median of the samples of each run.
        runs: every run with its outcome and the facts it reported.
        kernels: median time of each isolated kernel per arm and block.
        ledger: allocator bytes per arm and stream at the end of an inspection run.
        pins: live blocks of 1 MiB or more that pin unused bytes, or lie on a stream of their own.
        steps: one decode step as the profiler saw it: kernels, their time, the gaps between them.
        problems: snapshots and traces that could not be read, and why.
    """

    blocks: pd.DataFrame
    runs: pd.DataFrame
    kernels: pd.DataFrame
    ledger: pd.DataFrame
    pins: pd.DataFrame
    steps: pd.DataFrame
    problems: pd.DataFrame

    def save(self, folder: Path) -> None:
        """Write each table as a Parquet file."""
        for item in fields(self):
            frame: pd.DataFrame = getattr(self, item.name)
            write_bytes(folder / f"{item.name}.parquet", frame.to_parquet(index=False, compression="zstd"))


def load_measured(folder: Path) -> Measured:
    """Read what ``Measured.save`` wrote."""
    return Measured(**{name: pd.read_parquet(folder / f"{name}.parquet") for name in COLUMNS})


def harmless_text(value: Any) -> Any:
    """Text as the document has it: cleaned, without persons and paths; other values as they are."""
    return without_persons(clean(value)) if isinstance(value, str) else value


def harmless_texts(table: pd.DataFrame) -> pd.DataFrame:
    """The table with every text made harmless."""
    texts = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
    changed = {}
    for name in texts:
        known = {value: harmless_text(value) for value in table[name].dropna().unique()}
        changed[name] = table[name].map(lambda value, known=known: known.get(value, value))
    return table.assign(**changed)
