"""Turns a sheet and its roles into long rows: one measurement, or one summary, a row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rcatools.errors import InputError
from rcatools.recording.tables.clean import combined_codes
from rcatools.recording.tables.model import Request, Sheet
from rcatools.recording.tables.names import listed, plain, statistic_of, unit_in
from rcatools.recording.tables.numbers import Numbers, to_numbers
from rcatools.recording.tables.roles import Roles

Floats = NDArray[np.float64]


@dataclass
class Rows:
    """Long rows under construction.

    Attributes:
        frame: columns ``arm``, ``value`` and keys; values may still be missing or not positive.
        summary: whether rows are summaries.
        units: unit by metric name as far as known.
        excluded: what was left out so far.
        notes: what was assumed.
        value_name: what the file calls the value, "" where each metric has its own column.
    """

    frame: pd.DataFrame
    summary: bool
    units: dict[str | None, str]
    excluded: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    value_name: str = ""


def to_rows(sheet: Sheet, roles: Roles, request: Request) -> Rows:
    """Long rows of a sheet.

    Raises:
        InputError: an entry is no number, units are mixed, or a key cannot be read.
    """
    keys = _key_columns(sheet, roles)
    if roles.wide:
        rows = _wide(sheet, roles, keys)
    elif _is_summary(sheet.frame, roles, keys):
        rows = _summary(sheet, roles, keys)
    else:
        rows = _long(sheet, roles, keys)
    if "order" in roles.keys and "order" not in rows.frame.columns:
        rows.notes.append(
            f"column {roles.keys['order']!r} holds neither numbers nor times; the order stays unknown"
        )
    _apply_units(rows, sheet.source)
    return rows


def _key_columns(sheet: Sheet, roles: Roles) -> pd.DataFrame:
    """The sheet's keys under their role names, as text ("order" as numbers)."""
    frame, out = sheet.frame, pd.DataFrame(index=sheet.frame.index)
    if roles.arm is not None:
        out["arm"] = _text(frame[roles.arm])
    for role, column in roles.keys.items():
        if role != "order":
            out[role] = _text(frame[column])
        elif (order := _order(frame[column])) is not None:
            out[role] = order
    if len(roles.workload) == 1:
        out["workload"] = _text(frame[roles.workload[0]])
    elif roles.workload:
        parts = [column + "=" + _text(frame[column]).astype(str) for column in roles.workload]
        out["workload"] = pd.concat(parts, axis=1).agg(" ".join, axis=1)
    return out


def _text(column: pd.Series) -> pd.Series:
    """A key column as stripped text, missing where blank; categories stay categories."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        names = [str(c).strip() for c in column.cat.categories]
        if len(set(names)) == len(names) and "" not in names:
            return column.cat.rename_categories(names)
    texts = (
        column.astype("object")
        .where(column.notna(), None)
        .map(lambda v: None if v is None else str(v).strip())
    )
    return texts.where(texts != "", None)


def _order(column: pd.Series) -> pd.Series | None:
    """Positions in time as numbers; dates and times become seconds; None where it is neither."""
    if pd.api.types.is_numeric_dtype(column):
        return column.astype(float)
    texts = column.astype(str)
    numbers = pd.to_numeric(texts, errors="coerce")
    if numbers.notna().all():
        return numbers.astype(float)
    times = pd.to_datetime(texts, errors="coerce", utc=True, format="ISO8601")
    return None if times.isna().any() else (times - times.min()).dt.total_seconds()


def _numbers(sheet: Sheet, column: str) -> Numbers:
    return to_numbers(sheet.frame[column], column, sheet.source, sheet.decimal_comma)


def _long(sheet: Sheet, roles: Roles, keys: pd.DataFrame) -> Rows:
    columns = list(roles.values) or [
        column for (statistic, _), column in roles.statistics.items() if statistic in ("mean", "median")
    ]
    extra: dict[str, Floats] = {}
    for (statistic, _), column in roles.statistics.items():
        if statistic in ("within_sd", "sd") and "within_sd" not in extra:
            extra["within_sd"] = _numbers(sheet, column).values
    return _stacked(sheet, columns, keys, extra, named=len(columns) > 1)


def _stacked(
    sheet: Sheet, columns: list[str], keys: pd.DataFrame, extra: dict[str, Floats], *, named: bool
) -> Rows:
    """One block of rows per value column, the column's name being the metric where there are several."""
    parts, units, excluded = [], {}, Counter[str]()
    for column in columns:
        numbers = _numbers(sheet, column)
        part = keys.assign(value=numbers.values, **extra)
        if named:
            part["metric"] = column if "metric" not in keys else keys["metric"].astype(str) + " " + column
        excluded["failed"] += numbers.failed
        units[column if named else None] = numbers.unit or unit_in(column)
        parts.append(part)
    frame = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    return Rows(frame, False, units, +excluded, value_name="" if named else columns[0])


def _is_summary(frame: pd.DataFrame, roles: Roles, keys: pd.DataFrame) -> bool:
    """Rows are summaries when they carry a count, a spread or a centre and stand once per arm and workload."""
    kinds = {statistic for statistic, _ in roles.statistics} - {"within_sd", "margin"}
    if not kinds or (not roles.values and not kinds & {"mean", "median"}):
        return False
    if {"run", "block", "sample"} & set(keys.columns):
        return False
    place = keys[[c for c in ("arm", "workload", "metric", "machine", "day") if c in keys.columns]]
    return not place.astype(str).duplicated().any()


def _summary(sheet: Sheet, roles: Roles, keys: pd.DataFrame) -> Rows:
    centres = {column: plain(column) for column in roles.values}
    kind = dict.fromkeys(centres, "unknown")
    for (statistic, about), column in roles.statistics.items():
        if statistic in ("mean", "median") and not roles.values:
            better = ("mean", about) in roles.statistics and ("sd", about) in roles.statistics
            if statistic == "mean" and ("median", about) in roles.statistics and not better:
                continue
            if statistic == "median" and better:
                continue
            centres[column], kind[column] = about, statistic
    parts, units = [], {}
    for column, about in centres.items():
        numbers = _numbers(sheet, column)
        part = keys.assign(value=numbers.values, centre=kind[column])
        for name, values in _statistics_of(sheet, roles, about).items():
            part[name] = values
        if len(centres) > 1:
            part["metric"] = column
        units[column if len(centres) > 1 else None] = numbers.unit or unit_in(column)
        parts.append(part)
    value_name = "" if len(centres) > 1 else next(iter(centres))
    return Rows(pd.concat(parts, ignore_index=True), True, units, value_name=value_name)


def _statistics_of(sheet: Sheet, roles: Roles, about: str) -> dict[str, Floats]:
    """Spread, range, count and margin that belong to a centre: named like it, or named for nothing in particular."""
    found: dict[str, Floats] = {}
    names = {"sd": "sd", "sem": "sem", "low": "low", "high": "high", "count": "n", "sample_count": "samples",
             "margin": "margin", "within_sd": "within_sd"}  # fmt: skip
    for wanted in (about, ""):
        for (statistic, of), column in roles.statistics.items():
            if statistic in names and of == wanted and names[statistic] not in found:
                found[names[statistic]] = _numbers(sheet, column).values
                if statistic == "margin" and ("pct" in plain(column) or "percent" in plain(column)):
                    found["margin"] = found["margin"] / 100.0
    if "sem" in found and "n" in found:
        found.setdefault("sd", found["sem"] * np.sqrt(found["n"]))
    found.pop("sem", None)
    return found


def _wide(sheet: Sheet, roles: Roles, keys: pd.DataFrame) -> Rows:
    """Arms from columns: each row of the sheet becomes one row per arm, paired by what names the row."""
    notes = []
    keys = keys.copy()
    row_key = next((role for role in ("block", "run", "sample") if role in keys.columns), None)
    if row_key is not None and row_key != "block":
        keys = keys.rename(columns={row_key: "block"})
        notes.append(f"each {row_key} of the wide table holds every arm: arms are paired by it")
    centres = {column: statistic_of(column) for column in roles.wide}
    spread = {
        s for s, about in roles.statistics if about == "" and s in ("sd", "low", "high", "count", "sem")
    }
    measured = [c for c, (s, _) in centres.items() if s in ("mean", "median")]
    summary = bool(spread and measured) or any(
        s in ("sd", "count", "sem", "low") and about in {a for _, a in centres.values() if a}
        for s, about in roles.statistics
    )
    labels = _labels(roles.wide, centres)
    parts, units, excluded = [], set(), Counter[str]()
    for column in roles.wide:
        numbers = _numbers(sheet, column)
        part = keys.assign(arm=labels[column], value=numbers.values)
        statistic, about = centres[column]
        own = _statistics_of(sheet, roles, about)
        if summary:
            fixed = column not in measured
            part["centre"] = "published" if fixed else str(statistic)
            own = {"margin": own["margin"]} if fixed and "margin" in own else ({} if fixed else own)
        else:
            own = {k: v for k, v in own.items() if k in ("within_sd", "margin")}
        for name, values in own.items():
            part[name] = values
        excluded["failed"] += numbers.failed
        units.add(numbers.unit or unit_in(column))
        parts.append(part)
    if len(units - {""}) > 1:
        raise InputError(
            f"{sheet.source}: the arm columns {listed(roles.wide)} carry the units {listed(sorted(units - {''}))}; "
            "they cannot be compared. Name the arms with --arm, or convert them"
        )
    frame = pd.concat(parts, ignore_index=True)
    return Rows(frame, summary, {None: next(iter(units - {""}), "")}, +excluded, notes)


def _labels(wide: tuple[str, ...], centres: dict[str, tuple[str | None, str]]) -> dict[str, str]:
    """Arm names of wide columns: the column's name, without "mean" or "median" where something else is left."""
    short = {
        c: about if statistic in ("mean", "median") and about else c
        for c, (statistic, about) in centres.items()
    }
    return short if len(set(short.values())) == len(wide) else {c: c for c in wide}


def _apply_units(rows: Rows, source: str) -> None:
    """Use a unit column: one unit per metric and workload; several units make several metrics."""
    if "unit" not in rows.frame.columns:
        return
    frame = rows.frame
    unit = frame["unit"].astype("object").where(frame["unit"].notna(), "").astype(str)
    group = combined_codes(frame, [c for c in ("metric", "workload") if c in frame.columns])
    pairs = pd.DataFrame({"group": group, "unit": unit.to_numpy()}).drop_duplicates()
    several = pairs[pairs["group"].duplicated(keep=False)]
    if len(several):
        mixed = sorted(several.loc[several["group"] == several["group"].iloc[0], "unit"])
        where = (
            f" of {frame['workload'][group == several['group'].iloc[0]].iloc[0]!r}"
            if "workload" in frame
            else ""
        )
        raise InputError(f"{source}: values{where} carry the units {listed(mixed)}; convert them to one")
    names = sorted(set(unit))
    if "metric" in frame.columns:
        pairs = pd.DataFrame({"metric": frame["metric"].astype(str), "unit": unit}).drop_duplicates()
        rows.units = dict(zip(pairs["metric"], pairs["unit"], strict=False))
    elif len(names) > 1:
        frame["metric"] = unit
        rows.units = {name: name for name in names}
    else:
        rows.units = {None: names[0]}
    rows.frame = frame.drop(columns="unit")
