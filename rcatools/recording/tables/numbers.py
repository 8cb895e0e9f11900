"""Text in number columns: units behind numbers, thousands separators, words for a failed run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rcatools.errors import InputError
from rcatools.recording.tables.names import listed

MISSING = frozenset(
    {"", "na", "n/a", "nan", "null", "none", "-", "--", "–", "—", "?", "nil", "missing", "<na>"}
)
FAILED = frozenset(
    {"oom", "fail", "failed", "error", "err", "timeout", "timed out", "crash", "crashed", "killed"}
)
_NUMBER = re.compile(
    r"\s*(?P<number>[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|[+-]?inf(?:inity)?)"
    r"\s*(?P<unit>[^\d\s.,+-][^\d,]{0,15})?\s*",
    re.I,
)
_UNIT_ALIASES = {"µs": "us", "μs": "us", "usec": "us", "msec": "ms", "sec": "s", "secs": "s", "seconds": "s"}


@dataclass(frozen=True)
class Numbers:
    """A column as numbers.

    Attributes:
        values: NaN where missing or failed, infinities kept.
        failed: entries that name a failed run.
        unit: the unit written behind every number, "" for none.
    """

    values: NDArray[np.float64]
    failed: int
    unit: str


def to_numbers(column: pd.Series, name: str, source: str, decimal_comma: bool = False) -> Numbers:
    """Read a column as numbers, or say which row cannot be.

    Raises:
        InputError: an entry is no number, or the entries carry different units.
    """
    if pd.api.types.is_bool_dtype(column):
        raise InputError(
            f"column {name!r} of {source} holds true/false, not measurements; name another with --value"
        )
    if pd.api.types.is_numeric_dtype(column):
        return Numbers(column.to_numpy(dtype=float, na_value=np.nan), 0, "")
    codes, distinct = pd.factorize(column, use_na_sentinel=False)
    values, kinds, units = _parse_all(
        [str(v) for v in distinct], [v is None or v is pd.NA for v in distinct], decimal_comma
    )
    bad = np.flatnonzero(kinds == 2)
    if bad.size:
        rows = np.flatnonzero(np.isin(codes, bad))
        text = str(distinct[codes[rows[0]]])
        hint = "; a decimal comma needs ';' between columns" if re.fullmatch(r"\s*\d+,\d+\s*", text) else ""
        raise InputError(
            f"column {name!r} of {source}: {text[:40]!r} in data row {rows[0] + 1:,} is not a number "
            f"({rows.size:,} such rows){hint}; correct it or leave it empty"
        )
    used = np.unique(codes[kinds[codes] == 0])
    present = sorted({units[i] for i in used})
    if len(present) > 1:
        counts = {
            u or "no unit": int(np.isin(codes, [i for i in used if units[i] == u]).sum()) for u in present
        }
        told = ", ".join(f"{unit} ({count:,} rows)" for unit, count in counts.items())
        raise InputError(f"column {name!r} of {source} mixes units: {told}; convert it to one unit")
    failed = int((kinds[codes] == 3).sum())
    return Numbers(values[codes], failed, present[0] if present else "")


def looks_numeric(column: pd.Series) -> bool:
    """Whether most of a column's distinct entries read as numbers, units and words for missing ones included."""
    if pd.api.types.is_bool_dtype(column):
        return False
    if pd.api.types.is_numeric_dtype(column):
        return True
    distinct = column.dropna().unique()[:200]
    if not len(distinct):
        return False
    _, kinds, _ = _parse_all([str(v) for v in distinct], [False] * len(distinct), False)
    return bool((kinds == 0).sum() > len(distinct) / 2)


def _parse_all(
    texts: Sequence[str], missing: Sequence[bool], decimal_comma: bool
) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]]:
    """Value, kind (0 number, 1 missing, 2 neither, 3 failed run) and unit of each text."""
    values, kinds, units = (
        np.full(len(texts), np.nan),
        np.zeros(len(texts), dtype=np.int64),
        [""] * len(texts),
    )
    for i, text in enumerate(texts):
        word = text.strip().lower()
        if missing[i] or word in MISSING:
            kinds[i] = 1
            continue
        if word in FAILED:
            kinds[i] = 3
            continue
        found = _NUMBER.fullmatch(text.replace(",", ".") if decimal_comma else text)
        if found is None:
            kinds[i] = 2
            continue
        values[i] = float(found["number"].replace(",", ""))
        unit = (found["unit"] or "").strip()
        units[i] = _UNIT_ALIASES.get(unit, unit)
    return values, kinds, units


def require_columns(frame: pd.DataFrame, names: Sequence[str], source: str) -> None:
    """Raise InputError naming the columns there are when one of ``names`` is missing."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise InputError(
            f"{source} has no column {missing[0]!r}; its columns are {listed(frame.columns)}; name one of them"
        )
