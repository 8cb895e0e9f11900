"""Columns that grow while a file is read: whole numbers in blocks, and each distinct text kept once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rcatools.trace.model import NO_ID, signed64

Ints = npt.NDArray[np.int64]


class Codes(dict[Any, int]):
    """A number for each text; ``texts`` has the text of each number, and 0 is the empty text.

    Keys are texts, or raw JSON as bytes: raw JSON that differs in its blanks only has one number.
    """

    def __init__(self) -> None:
        super().__init__({"": 0, b"": 0})
        self.texts = [""]

    def __missing__(self, key: str | bytes) -> int:
        if isinstance(key, bytes):
            number = self[b"".join(key.split()).decode("utf-8", "replace")]
        else:
            number = len(self.texts)
            self.texts.append(key)
        self[key] = number
        return number

    def of(self, keys: Iterable[str | bytes]) -> list[int]:
        """The numbers of texts."""
        return [self[key] for key in keys]

    def categorical(self, numbers: Ints, shown: Callable[[str], str] = str) -> pd.Categorical:
        """Numbers as a categorical column, the categories in order of appearance.

        Args:
            numbers: of this record's texts.
            shown: how a text is shown; texts that are shown alike become one category.
        """
        codes, found = pd.factorize(numbers)
        labels: dict[str, int] = {}
        place = [labels.setdefault(shown(self.texts[number]), len(labels)) for number in found]
        return pd.Categorical.from_codes(
            np.array(place, dtype=np.int64)[codes] if place else codes,
            categories=pd.Index(list(labels), dtype=object),
        )

    def where(self, numbers: Ints, holds: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """For which numbers a condition holds for the text; it is asked once per distinct number."""
        found, inverse = np.unique(numbers, return_inverse=True)
        known = np.array([holds(self.texts[number]) for number in found], dtype=bool)
        return known[inverse] if len(found) else np.zeros(0, dtype=bool)


class Table:
    """Columns of whole numbers (int64), grown block by block."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self._blocks: list[Ints] = []

    def add(self, *columns: Sequence[int] | Ints) -> None:
        """Append a block: its values column by column."""
        self._blocks.append(np.array(columns, dtype=np.int64))

    def whole(self) -> dict[str, Ints]:
        """All rows, one array per column; the table is empty afterwards."""
        blocks, self._blocks = self._blocks, []
        joined = np.concatenate([np.zeros((len(self.columns), 0), dtype=np.int64), *blocks], axis=1)
        return dict(zip(self.columns, joined, strict=True))


def last_rows(numbers: Ints, wanted: Ints) -> Ints:
    """The row of the last appearance of each wanted number; -1 where it does not appear or is ``NO_ID``."""
    if not numbers.size:
        return np.full(wanted.shape, -1, dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    place = np.maximum(np.searchsorted(ordered, wanted, side="right") - 1, 0)
    found = (ordered[place] == wanted) & (wanted != NO_ID)
    return np.where(found, order[place], -1)


def whole_numbers(values: list[Any]) -> Ints:
    """Whole numbers, or texts of such, as a column; ``NO_ID`` for anything else."""
    if set(map(type, values)) == {int}:
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            pass
    return np.array([whole_number(value) for value in values], dtype=np.int64)


def whole_number(value: Any) -> int:
    """A whole number of up to 64 bits from a number or its text; ``NO_ID`` otherwise."""
    if type(value) is int:
        return signed64(value)
    if isinstance(value, bytes):
        value = value.strip(b'"').decode("utf-8", "replace")
    if isinstance(value, str):
        try:
            return signed64(int(value))
        except ValueError:
            return NO_ID
    return signed64(int(value)) if isinstance(value, float) and value.is_integer() else NO_ID
