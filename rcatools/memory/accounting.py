"""Device memory split into live, idle and foreign parts, and variants compared on time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from rcatools.errors import InputError


@dataclass(frozen=True)
class Parts:
    """``device = live + idle + foreign``, all in one unit.

    Attributes:
        live: allocated by torch.
        idle: reserved by torch and unused.
        foreign: in use on the device and not reserved by torch (libraries, driver, other processes).
    """

    live: float
    idle: float
    foreign: float

    @property
    def device(self) -> float:
        """The sum: what a device counter shows."""
        return self.live + self.idle + self.foreign


def split_device(allocated: float, reserved: float, device: float) -> Parts:
    """Split a device counter; all three must come from the same process and moment.

    Raises:
        InputError: allocated exceeds reserved. (Reserved may exceed the device counter where the driver
            moves memory to the host: ``foreign`` is then negative.)
    """
    if allocated > reserved:
        raise InputError(
            f"allocated ({allocated}) exceeds reserved ({reserved}): the columns are swapped or mixed, correct them"
        )
    return Parts(allocated, reserved - allocated, device - reserved)


@dataclass(frozen=True)
class PartsChange:
    """How each part changed from ``a`` to ``b``.

    Attributes:
        a, b: the two splits.
        delta: b - a per part.
        ratio: b / a of live, of reserved (live + idle) and of the device counter; None where a is 0.
        carried_by: the parts with at least a tenth of the device counter's change, in its direction.
    """

    a: Parts
    b: Parts
    delta: Parts
    ratio: dict[str, float | None]
    carried_by: tuple[str, ...]


def compare_parts(a: Parts, b: Parts) -> PartsChange:
    """Say which part a change of the device counter is made of.

    A change of ``foreign`` that two variants share says nothing about either; what pool or stream holds
    ``idle`` memory is not in such numbers and needs a snapshot.
    """
    delta = Parts(b.live - a.live, b.idle - a.idle, b.foreign - a.foreign)
    total = delta.device
    carried = tuple(
        name for name in ("live", "idle", "foreign") if total != 0 and getattr(delta, name) / total >= 0.1
    )
    pairs = {
        "live": (a.live, b.live),
        "reserved": (a.live + a.idle, b.live + b.idle),
        "device": (a.device, b.device),
    }
    ratio = {name: (after / before if before else None) for name, (before, after) in pairs.items()}
    return PartsChange(a, b, delta, ratio, carried)


def freed_share(freed: float, in_use: float) -> float:
    """Share of a footprint that a device-level reading shows as returned: freed / (freed + still in use).

    Allocator counters cannot answer this: they count bytes as returned that the driver may keep.

    Raises:
        InputError: a negative figure, or both are zero.
    """
    if freed < 0 or in_use < 0 or freed + in_use == 0:
        raise InputError(
            f"freed and in-use bytes must not be negative or both zero, got {freed} and {in_use}"
        )
    return freed / (freed + in_use)


def compare_variants(table: pd.DataFrame, label: str, costs: Sequence[str], baseline: str) -> pd.DataFrame:
    """Compare variants on several costs at once (times and memory: less is better).

    Args:
        table: one row per run: a column of variant names and the cost columns.
        label: the column of names.
        costs: the cost columns.
        baseline: name of the variant that the others are divided by.

    Returns:
        One row per variant in the table's order: ``runs``, for each cost its median and ``<cost>_ratio`` to
        the baseline's, and ``dominated_by``: variants that are no worse on every cost and better on one,
        as a tuple of names. With ``runs`` = 1 no spread is known: order between near values is unproven.

    Raises:
        InputError: a column or the baseline is missing, or a cost is not a number.
    """
    missing = [c for c in (label, *costs) if c not in table.columns]
    if missing:
        raise InputError(
            f"the table has no column {missing[0]!r}; it has {', '.join(map(str, table.columns))}"
        )
    numbers = table[list(costs)].apply(pd.to_numeric, errors="coerce")
    if numbers.isna().any().any():
        bad = next(c for c in costs if numbers[c].isna().any())
        raise InputError(f"column {bad!r} holds a value that is not a number")
    grouped = numbers.groupby(table[label], sort=False)
    out = grouped.median()
    if baseline not in out.index:
        raise InputError(
            f"no variant {baseline!r} in column {label!r}; it has {', '.join(map(str, out.index))}"
        )
    runs = grouped.size()
    values = {name: tuple(row) for name, row in zip(out.index, out.to_numpy().tolist(), strict=True)}
    dominated = {
        name: tuple(other for other in values if _dominates(values[other], values[name])) for name in values
    }
    for cost in costs:
        out[f"{cost}_ratio"] = out[cost] / out.loc[baseline, cost]
    out.insert(0, "runs", runs)
    out["dominated_by"] = pd.Series(dominated)
    result: pd.DataFrame = out.reset_index()
    return result


def _dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b
