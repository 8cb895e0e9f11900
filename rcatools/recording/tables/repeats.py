"""Reads A/A tables: further runs of one build, or the same build measured as two arms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rcatools.errors import InputError
from rcatools.recording.tables import clean
from rcatools.recording.tables.convert import to_rows
from rcatools.recording.tables.files import read_sheet
from rcatools.recording.tables.model import Request
from rcatools.recording.tables.names import plain
from rcatools.recording.tables.roles import decide_roles


def read_repeats(paths: Sequence[Path], request: Request) -> pd.DataFrame:
    """Long rows of A/A files.

    Args:
        paths: one file of runs of one build (or with a column ``arm`` of two names), or two files of the same build.
        request: columns as the caller names them; its baseline and arms do not matter here.

    Returns:
        Rows with ``arm`` (one or two names), ``value`` and the keys found.

    Raises:
        InputError: more than two arms, several metrics, or nothing usable.
    """
    parts = []
    for number, path in enumerate(paths, start=1):
        sheet = read_sheet(path)
        frame = sheet.frame
        column = next((str(c) for c in frame.columns if plain(c) == "arm"), None)
        if column is None:
            frame = frame.assign(arm=f"A{number}")
            column = "arm"
        asked = replace(request, baseline=str(frame[column].iloc[0]), arms=(), arm_column=column)
        asked = replace(
            asked,
            value=_present(request.value, frame),
            run_column=_present(request.run_column, frame),
            block_column=_present(request.block_column, frame),
            by=(),
        )
        sheet = replace(sheet, frame=frame)
        rows = to_rows(sheet, decide_roles(sheet, asked), asked)
        if rows.summary:
            raise InputError(f"{sheet.source} holds summaries; A/A data must be single runs")
        part = clean.without_unusable(rows.frame, Counter(), sheet.source)
        if len(paths) > 1 and part["arm"].astype(str).nunique() == 1:
            part = part.assign(arm=f"A{number}")
        parts.append(part)
    frame = pd.concat(parts, ignore_index=True)
    if "metric" in frame.columns and frame["metric"].astype(str).nunique() > 1:
        raise InputError("the A/A table holds several metrics; name one with --value")
    arms = frame["arm"].astype(str).nunique()
    if arms > 2:
        raise InputError(f"the A/A tables hold {arms} arms; give one build, measured as one or two arms")
    return frame


def _present(name: str | None, frame: pd.DataFrame) -> str | None:
    """The column if this file has it."""
    return name if name is not None and plain(name) in {plain(c) for c in frame.columns} else None
