"""Reads one or several files into one table."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rcatools.errors import InputError, UnknownNameError
from rcatools.recording.tables import clean
from rcatools.recording.tables.convert import Rows, to_rows
from rcatools.recording.tables.files import read_sheet
from rcatools.recording.tables.model import Request, Sheet, Table
from rcatools.recording.tables.names import listed, more_is_better, plain, statistic_of
from rcatools.recording.tables.numbers import require_columns
from rcatools.recording.tables.roles import Roles, decide_roles

Source = tuple[str | None, Path]
_RUN_NUMBER = re.compile(r"(?i)(?:[\s_.\-]*(?:run|rep|trial|seed)?[\s_.\-]*\d+)$")


def read_tables(sources: Sequence[Source], request: Request) -> Table:
    """Read files of measurements into one long table.

    Args:
        sources: (arm, file) each; the arm is None where the file itself names its arms, or where the file's name
            does (a trailing run number is no part of the arm: "before-1.json", "before-2.json").
        request: what the caller says about columns.

    Raises:
        InputError: a file cannot be read, or nothing usable is in it.
        UnknownNameError: the baseline or a named column is not there.
        OSError: a file cannot be opened.
    """
    if not sources:
        raise InputError("no table was given: give at least one file")
    _each_once(sources)
    sheets = [read_sheet(path, _text_columns(request)) for _, path in sources]
    for column in request.ignore:
        if not any(column in sheet.frame.columns for sheet in sheets):
            require_columns(sheets[0].frame, [column], sheets[0].source)
    name = sheets[0].source if len(sheets) == 1 else f"{len(sheets)} files"
    prepared, file_notes = _named_arms(sheets, sources, request)
    parts: list[Rows] = []
    unknown: list[str] = []
    notes = list(file_notes)
    baseline, form, asked_arms = request.baseline, "long", bool(request.arms)
    for sheet in prepared:
        roles = decide_roles(sheet, request) if sheet.form == "table" else _harness_roles(sheet)
        rows = to_rows(sheet, roles, request)
        parts.append(rows)
        form = sheet.form if sheet.form != "table" else "wide" if roles.wide else "long"
        baseline = str(rows.frame["arm"].iloc[0]) if roles.wide else baseline
        unknown += [c for c in roles.unknown if c not in unknown]
        notes += [n for n in (*roles.notes, *rows.notes) if n not in notes]
    if unknown:
        notes.append(f"nothing was read from the columns {listed(unknown)}")
    if form == "wide":
        request = replace(request, arms=tuple(str(a) for a in parts[0].frame["arm"].drop_duplicates())[1:])
    table = _merged(parts, request, name, notes)
    return replace(
        table,
        baseline=baseline,
        arms=request.arms if asked_arms else (),
        form=form,
        unknown=tuple(unknown),
        sources=tuple(sheet.source for sheet in sheets),
    )


def _each_once(sources: Sequence[Source]) -> None:
    """InputError where an arm is given one file twice: its measurements would count twice."""
    seen: set[tuple[str | None, str]] = set()
    for arm, path in sources:
        key = (arm, os.path.realpath(path))
        if path.is_file() and key in seen:
            raise InputError(f"{path} is given twice, so its measurements would count twice; give it once")
        seen.add(key)


def _text_columns(request: Request) -> tuple[str, ...]:
    return tuple(c for c in (request.arm_column, request.run_column, request.block_column, *request.by) if c)


def _named_arms(
    sheets: list[Sheet], sources: Sequence[Source], request: Request
) -> tuple[list[Sheet], list[str]]:
    """Give every sheet its arm and tell the runs of several files apart."""
    several = len(sheets) > 1
    out, notes, seen = [], [], Counter[str]()
    for number, (sheet, (arm, path)) in enumerate(zip(sheets, sources, strict=True), start=1):
        frame = sheet.frame
        own = [str(c) for c in frame.columns if str(c).strip().lower() == "arm"]
        if arm is not None and own:
            raise InputError(f"{sheet.source} has its own column {own[0]!r}; leave {arm}= away")
        if sheet.form == "table" and arm is None and not several:
            out.append(sheet)
            continue
        if sheet.form != "table" and arm is None and not several:
            out.append(_arms_inside(sheet, request))
            continue
        frame = frame.copy()
        if arm is None and (own or request.arm_column):
            label = None
        else:
            label = arm if arm is not None else _stem(path)
            frame["arm"] = label
            seen[label] += 1
        frame = _runs_apart(frame, number, sheet.form, label)
        out.append(replace(sheet, frame=frame))
    single = {label for label, count in seen.items() if count == 1}
    out = [_rows_stay_rows(sheet, single) for sheet in out]
    if several and seen:
        told = ", ".join(
            f"{label!r} ({count} {'file' if count == 1 else 'files'})" for label, count in seen.items()
        )
        notes.append(f"arms by file: {told}")
    return out, notes


def _stem(path: Path) -> str:
    stem = path.name
    for suffix in (".json", ".jsonl", ".csv", ".tsv", ".txt", ".parquet", ".md"):
        stem = stem.removesuffix(suffix)
    return _RUN_NUMBER.sub("", stem) or stem


def _runs_apart(frame: pd.DataFrame, number: int, form: str, label: str | None) -> pd.DataFrame:
    """Make run and block labels of different files differ, and name the file as run where it names none."""
    columns = {str(c).strip().lower(): c for c in frame.columns}
    for key in ("run", "process"):
        if key in columns:
            frame[columns[key]] = f"{number}." + frame[columns[key]].astype(str)
            return frame
    if label is None and "block" in columns:
        frame[columns["block"]] = f"{number}." + frame[columns["block"]].astype(str)
    elif "block" not in columns and form != "go benchmark":
        frame["run"] = str(number)
    return frame


def _rows_stay_rows(sheet: Sheet, single: set[str]) -> Sheet:
    """Where an arm is one plain file, its rows are what the file says, not samples of one run."""
    frame = sheet.frame
    if sheet.form != "table" or "run" not in frame.columns or "arm" not in frame.columns:
        return sheet
    if (
        str(frame["arm"].iloc[0]) in single
        and frame["run"].nunique() == 1
        and str(frame["run"].iloc[0]).isdigit()
    ):
        return replace(sheet, frame=frame.drop(columns="run"))
    return sheet


def _arms_inside(sheet: Sheet, request: Request) -> Sheet:
    """One result file alone: its commands or benchmarks are the arms."""
    for column in ("command", "workload"):
        if column in sheet.frame.columns and (sheet.frame[column] == request.baseline).any():
            return replace(sheet, frame=sheet.frame.rename(columns={column: "arm"}))
    column = "command" if "command" in sheet.frame.columns else "workload"
    names = sheet.frame[column].drop_duplicates().tolist() if column in sheet.frame.columns else []
    if len(names) < 2:
        raise InputError(
            f"{sheet.source} is one {sheet.form} file of one arm; give a file for each: NAME=FILE OTHER=FILE"
        )
    raise UnknownNameError("baseline arm", request.baseline, names[:20])


def _harness_roles(sheet: Sheet) -> Roles:
    frame = sheet.frame
    keys = {c: c for c in ("run", "sample", "metric", "machine") if c in frame.columns}
    workload = tuple(c for c in ("workload", "command") if c in frame.columns and frame[c].nunique() > 1)
    if "command" in frame.columns and "workload" not in frame.columns and "arm" in frame.columns:
        workload = ()
    statistics = {("within_sd", ""): "within_sd"} if "within_sd" in frame.columns else {}
    if frame["metric"].nunique() == 1 and "arm" in frame.columns:
        keys = {**keys, "metric": "metric"}
    return Roles("arm", (), ("value",), keys, workload, statistics, (), ())


def _merged(parts: list[Rows], request: Request, name: str, notes: list[str]) -> Table:
    """One table of all files' rows; form, columns left over and sources are filled in by the caller."""
    if len({rows.summary for rows in parts}) > 1:
        raise InputError(f"{name}: some files hold measurements and some summaries; compare them apart")
    excluded: Counter[str] = Counter()
    units: dict[str | None, str] = {}
    for rows in parts:
        excluded.update(rows.excluded)
        units.update(rows.units)
    frame = (
        parts[0].frame if len(parts) == 1 else pd.concat([rows.frame for rows in parts], ignore_index=True)
    )
    frame = clean.without_unusable(frame, excluded, name)
    frame = clean.check_metrics(frame, request.metrics, name)
    if "metric" in frame.columns and frame["metric"].astype(str).nunique() == 1 and None not in units:
        units.setdefault(None, units.get(str(frame["metric"].iloc[0]), ""))
    if request.arms:
        keep = frame["arm"].astype(str)
        known = keep.unique().tolist()
        for arm in request.arms:
            if arm not in known:
                raise UnknownNameError("arm", arm, known[:20])
    summary = parts[0].summary
    if not summary:
        frame, copies = clean.without_duplicates(frame, excluded)
        notes += copies
    clean.check_scale(frame, any_scale=request.any_scale or summary)
    higher, direction_notes = _directions(frame, units, request, parts[0].value_name)
    return Table(
        frame=frame,
        summary=summary,
        higher=higher,
        units=units,
        form="long",
        excluded=dict(+excluded),
        notes=(*notes, *direction_notes),
    )


def _directions(
    frame: pd.DataFrame, units: dict[str | None, str], request: Request, value_name: str
) -> tuple[dict[str | None, bool], list[str]]:
    """Whether more is better, by metric: what the caller says, else what names and units say, else a time."""
    metrics: list[str | None] = (
        [str(m) for m in frame["metric"].drop_duplicates()] if "metric" in frame.columns else [None]
    )
    said, higher, guessed = request.higher_is_better, {}, []
    notes = []
    for metric in metrics:
        unit = units.get(metric, "")
        name = metric or value_name
        hint = more_is_better(name, unit)
        if said is None:
            higher[metric] = bool(hint)
            if hint:
                notes.append(f"{name or unit!r}: more is better, by its name")
            elif hint is None and plain(name) not in ("", "value") and statistic_of(name)[1]:
                guessed.append(name)
        elif len(metrics) > 1 and hint is not None and hint != said:
            higher[metric] = hint
            notes.append(
                f"{metric!r}: {'more' if hint else 'less'} is better by its name, in spite of the call"
            )
        else:
            higher[metric] = said
            if hint is not None and hint != said:
                notes.append(
                    f"{name or unit!r} was taken as {'a rate' if said else 'a time'}, as the call says"
                )
    if guessed:
        notes.append(f"{listed(guessed)}: taken as times, less is better; say --higher-is-better for rates")
    return higher, notes
