"""Decides what each column of a sheet is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pandas as pd

from rcatools.errors import InputError, UnknownNameError
from rcatools.recording.tables.model import Request, Sheet
from rcatools.recording.tables.names import (
    IDENTIFIERS,
    PARAMETERS,
    SHARED_PROCESS,
    is_share,
    listed,
    more_is_better,
    plain,
    role_of,
    statistic_of,
)
from rcatools.recording.tables.numbers import looks_numeric, require_columns


@dataclass(frozen=True)
class Roles:
    """What was decided about a sheet's columns; every name is a column of the sheet.

    Attributes:
        arm: column that names the arm, None in a wide table.
        wide: columns that are arms, in a wide table.
        values: columns of measurements.
        keys: one column each for block, run, sample, metric, machine, day, order, class, unit.
        workload: columns that tell workloads apart.
        statistics: columns that hold a statistic, by (statistic, what it is about).
        unknown: columns that nothing is read from.
        notes: what was assumed.
    """

    arm: str | None
    wide: tuple[str, ...]
    values: tuple[str, ...]
    keys: dict[str, str]
    workload: tuple[str, ...]
    statistics: dict[tuple[str, str], str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def decide_roles(sheet: Sheet, request: Request) -> Roles:
    """Find arm, values and keys among the columns.

    Raises:
        InputError: no arm column holds the baseline, several could, or no column holds values.
        UnknownNameError: a column named in the request is not there.
    """
    frame = sheet.frame.drop(columns=[c for c in request.ignore if c in sheet.frame.columns])
    asked = [c for c in (request.value, request.arm_column, request.run_column, request.block_column) if c]
    named = {c: _actual(frame, c, sheet.source) for c in (*asked, *request.by)}
    value = named.get(request.value or "")
    arm, notes = _arm_column(frame, request, named, sheet.source)
    wide: tuple[str, ...] = ()
    if arm is None:
        wide, arm_notes = _wide_arms(frame, request, sheet.source)
        notes += arm_notes
    rest = [c for c in frame.columns if c != arm and c not in wide]
    keys, workload, free = _keys(frame, rest, request, named)
    statistics: dict[tuple[str, str], str] = {}
    for column in list(free):
        statistic, about = statistic_of(column)
        if statistic is not None and column != value and looks_numeric(frame[column]):
            if not (statistic in ("mean", "median") and (statistic, about) in statistics):
                statistics[(statistic, about)] = column
            free.remove(column)
    if wide:
        values: tuple[str, ...] = ()
    else:
        values, value_notes = _values(frame, free, value, statistics, sheet.source)
        notes += value_notes
    free = [c for c in free if c not in values]
    if arm is not None:
        crossing = [c for c in free if not looks_numeric(frame[c]) and _crosses(frame, c, arm)]
        for column in crossing:
            notes.append(
                f"column {column!r} tells workloads apart: each of its values stands in several arms"
            )
        workload += crossing
        free = [c for c in free if c not in crossing]
    roles = Roles(arm, wide, values, keys, tuple(workload), statistics, tuple(map(str, free)), tuple(notes))
    return _process_as_block(frame, roles) if arm is not None else roles


def _actual(frame: pd.DataFrame, name: str, source: str) -> str:
    """The column with this name, whatever its case."""
    if name in frame.columns:
        return name
    for column in frame.columns:
        if plain(column) == plain(name) and plain(name):
            return str(column)
    require_columns(frame, [name], source)
    return name


def _arm_column(
    frame: pd.DataFrame, request: Request, named: dict[str, str], source: str
) -> tuple[str | None, list[str]]:
    if request.arm_column:
        column = named[request.arm_column]
        if not _holds(frame, column, request.baseline):
            raise UnknownNameError("baseline arm", request.baseline, _labels(frame, column))
        return column, []
    called = [str(c) for c in frame.columns if plain(c) == "arm"]
    if called:
        if _holds(frame, called[0], request.baseline):
            return called[0], []
        raise UnknownNameError("baseline arm", request.baseline, _labels(frame, called[0]))
    holding = [
        str(c) for c in frame.columns if c not in named.values() and _holds(frame, str(c), request.baseline)
    ]
    likely = [c for c in holding if role_of(c) == "arm"] or [c for c in holding if role_of(c) is None]
    likely = likely or holding
    if len(likely) == 1:
        return likely[0], [f"column {likely[0]!r} names the arms: it holds the baseline {request.baseline!r}"]
    if len(likely) > 1:
        raise InputError(
            f"{source}: the baseline {request.baseline!r} stands in the columns {listed(likely)}; "
            "say which one names the arm with --arm-column"
        )
    return None, []


def _holds(frame: pd.DataFrame, column: str, label: str) -> bool:
    values = frame[column]
    if pd.api.types.is_float_dtype(values):
        return False
    return bool((values.astype(str).str.strip() == label).any())


def _labels(frame: pd.DataFrame, column: str) -> list[str]:
    return [str(v) for v in frame[column].dropna().unique()[:20]]


def _wide_arms(frame: pd.DataFrame, request: Request, source: str) -> tuple[tuple[str, ...], list[str]]:
    """The columns of a wide table that are arms."""
    by_plain = {plain(c): str(c) for c in frame.columns}
    baseline = by_plain.get(plain(request.baseline)) or _by_stem(frame, request.baseline)
    if baseline is None:
        called = [str(c) for c in frame.columns if role_of(c) == "arm"]
        if called:
            raise UnknownNameError("baseline arm", request.baseline, _labels(frame, called[0]))
        raise InputError(
            f"{source}: no column names the arms or is called {request.baseline!r}{_what_there_is(frame)}; give "
            "--arm-column COL, or a baseline that stands in the table"
        )
    if not looks_numeric(frame[baseline]):
        raise InputError(
            f"{source}: the baseline column {baseline!r} holds no numbers; give a column of measurements, or "
            "--arm-column COL"
        )
    if request.arms:
        others = [_actual(frame, _by_stem(frame, arm) or arm, source) for arm in request.arms]
    else:
        others = [
            str(c) for c in frame.columns if str(c) != baseline and _may_be_arm(frame, str(c), baseline)
        ]
    if not others:
        raise InputError(
            f"{source}: beside {baseline!r} no column holds measurements; a comparison needs a second arm"
        )
    return (baseline, *others), [
        f"columns {listed([baseline, *others])} were read as the arms of a wide table"
    ]


def _what_there_is(frame: pd.DataFrame) -> str:
    """The labels of columns that could name arms, or else the columns, in brackets."""
    texts = [str(c) for c in frame.columns if not looks_numeric(frame[c]) and 2 <= frame[c].nunique() <= 20]
    if texts:
        return f" ({'; '.join(f'column {c!r} holds {listed(_labels(frame, c)[:5])}' for c in texts[:3])})"
    return f" (columns: {listed(frame.columns)})"


def _by_stem(frame: pd.DataFrame, label: str) -> str | None:
    """The column that is the label with a unit behind it."""
    stem = plain(label)
    matches = [str(c) for c in frame.columns if plain(c).rsplit("_", 1)[0] == stem or plain(c) == stem]
    centres = [c for c in matches if statistic_of(c)[0] in (None, "mean", "median")]
    return centres[0] if len(centres) == 1 else None


def _may_be_arm(frame: pd.DataFrame, column: str, baseline: str) -> bool:
    statistic, about = statistic_of(column)
    alike = statistic_of(baseline)[0] == statistic
    if statistic in ("mean", "median") and (alike or not about):
        statistic = None
    if (
        statistic is not None
        or is_share(column)
        or role_of(column) is not None
        or plain(column) in PARAMETERS
    ):
        return False
    if not looks_numeric(frame[column]):
        return False
    here, there = more_is_better(column), more_is_better(baseline)
    return here is None or there is None or here == there


def _keys(
    frame: pd.DataFrame, rest: list[str], request: Request, named: dict[str, str]
) -> tuple[dict[str, str], list[str], list[str]]:
    """Columns by role, columns that tell workloads apart, and the columns left over."""
    keys: dict[str, str] = {}
    workload = [named[c] for c in request.by]
    free: list[str] = []
    forced = {
        named[c]: role for c, role in ((request.run_column, "run"), (request.block_column, "block")) if c
    }
    for column in rest:
        name = str(column)
        role = forced.get(name) or role_of(name)
        if name in workload or name == named.get(request.value or ""):
            if name not in workload:
                free.append(name)
        elif role == "workload" or (plain(name) in PARAMETERS and role is None):
            workload.append(name)
        elif role is not None and role != "arm" and (role not in keys or name in forced):
            if role in keys:
                free.append(keys[role])
            keys[role] = name
        else:
            free.append(name)
    return keys, workload, free


def _values(
    frame: pd.DataFrame,
    free: list[str],
    value: str | None,
    statistics: dict[tuple[str, str], str],
    source: str,
) -> tuple[tuple[str, ...], list[str]]:
    if value is not None:
        return (value,), []
    called = [c for c in free if plain(c) == "value"]
    if called:
        return (called[0],), []
    if any(statistic in ("mean", "median") for statistic, _ in statistics):
        return (), []
    numeric = [c for c in free if looks_numeric(frame[c]) and not is_share(c) and plain(c) not in IDENTIFIERS]
    if not numeric:
        raise InputError(
            f"{source}: no column holds measurements (columns: {listed(frame.columns)}); name it with --value"
        )
    if len(numeric) == 1:
        return (numeric[0],), [f"column {numeric[0]!r} was read as the value"]
    return tuple(numeric), [f"columns {listed(numeric)} were read as separate metrics; pick one with --value"]


def _crosses(frame: pd.DataFrame, column: str, arm: str) -> bool:
    """Whether a text column takes several values and each stands in more than one arm."""
    pairs = frame[[column, arm]].dropna().astype(str).drop_duplicates()
    counts = pairs[column].value_counts()
    return bool(counts.size > 1 and (counts > 1).all() and counts.size < len(frame) / 2)


def _process_as_block(frame: pd.DataFrame, roles: Roles) -> Roles:
    """A named process that stands in several arms was measured under each of them: it pairs them."""
    run = roles.keys.get("run")
    if run is None or "block" in roles.keys or plain(run) not in SHARED_PROCESS or roles.arm is None:
        return roles
    labels = frame[[run, roles.arm]].dropna().astype(str).drop_duplicates()
    shared = labels[run].value_counts()
    counted = labels[run].str.fullmatch(r"\d{1,3}").all()
    if counted or not (shared > 1).any():
        return roles
    keys = {role: column for role, column in roles.keys.items() if role != "run"} | {"block": run}
    note = f"the same {plain(run)} stands in several arms: arms are paired by {run!r}"
    return replace(roles, keys=keys, notes=(*roles.notes, note))
