"""What the decode products say about tile configurations, in sentences."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from rcatools import units
from rcatools.diagnosis import decode_product as dp
from rcatools.diagnosis import tile_reasons as tr
from rcatools.diagnosis.wording import replicated
from rcatools.report.figures import records
from rcatools.stats.decide import MIN_REPLICATES
from rcatools.units import counted

SMALL_ROWS = (
    16  # above it the default tile of 16 rows needs several row tiles, so weights are asked for repeatedly
)
FACTOR_NAMES = {
    "block_m": "rows per tile",
    "block_n": "columns per tile",
    "warps": "warps per program",
    "stages": "stages (loads in flight)",
}


def sentences(data: dp.ProductData | None) -> list[str]:
    """The products' configurations: launched, timed, explained, and what stays open."""
    if data is None:
        return ["The decode products were not measured."]
    return [*launched(data), *timed(data), *reasons(data), *whole_step(data), *bits(data), OPEN]


OPEN = (
    "Open: whether any of this holds on an MI300X, where the configurations were chosen. Its compute units, caches and "
    "matrix instructions differ, and no hardware counter was read here."
)


def launched(data: dp.ProductData) -> list[str]:
    """Programs launched, counted."""
    changes = dp.launch_changes(data)
    if changes.empty:
        return []
    fewer = int((changes["programs_published"] < changes["programs_default"]).sum())
    examples = changes[changes["rows"] == SMALL_ROWS]
    told = ", ".join(
        f"{row['shape']} {row['programs_default']:,} to {row['programs_published']:,}"
        for row in records(examples)
    )
    return [
        f"The published configurations launch fewer programs than the default in {fewer} of {len(changes)} products where "
        f"they differ{f' (at {SMALL_ROWS} rows: {told})' if told else ''}, counted from tile sizes: 'more N-parallel "
        "programs', the comment in the code, is not what they do."
    ]


def timed(data: dp.ProductData) -> list[str]:
    """Times against the default, over the row counts."""
    cells = dp.product_table(data)
    found = []
    for low, high in ((1, SMALL_ROWS), (SMALL_ROWS + 1, int(cells["rows"].max()))):
        part = cells[(cells["rows"] >= low) & (cells["rows"] <= high) & (cells["specialised_verdict"] != "")]
        if part.empty:
            continue
        told = "; ".join(
            f"{shape} {_range(own)} ({_verdicts(own['specialised_verdict'])})"
            for shape, own in part.groupby("shape", sort=False)
        )
        found.append(
            f"Time of the published configurations against the default, {_rows(part['rows'])}, {_where(data)}: {told}; "
            f"equivalent: within {units.percent(data.recording.manifest.margin)}."
        )
    return found


def _verdicts(column: pd.Series[Any]) -> str:
    counts = column.value_counts()
    return ", ".join(f"{n} {verdict}" if len(column) > 1 else str(verdict) for verdict, n in counts.items())


def _rows(counts: pd.Series[Any]) -> str:
    low, high = int(counts.min()), int(counts.max())
    return counted(low, "row") if low == high else f"{low} to {high} rows"


def _range(cells: pd.DataFrame) -> str:
    low, high = (float(f(cells["specialised_ratio"])) for f in (min, max))
    return units.change(low) if low == high else f"{units.change(low)} to {units.change(high)}"


def _where(data: dp.ProductData) -> str:
    n = int(data.recording.samples["block"].nunique())
    return f"{data.recording.manifest.device.get('name')}, {replicated(n, data.replicate)}"


def reasons(data: dp.ProductData) -> list[str]:
    """Which change does it, and what it goes with: occupancy, load buffers, repeated weight reads."""
    found = []
    singles = tr.single_changes(data)
    for rows in (SMALL_ROWS, int(data.launches["rows"].max())) if len(singles) else ():
        part = singles[singles["rows"] == rows]
        if len(part):
            told = "; ".join(
                f"{shape}: "
                + ", ".join(
                    f"{FACTOR_NAMES[row['factor']]} {row['step']} {units.change(row['ratio'])}"
                    for row in records(own)
                )
                for shape, own in part.groupby("shape", sort=False)
            )
            found.append(
                f"Each of their changes alone on the default tile, {rows} rows (one process, "
                f"{counted(int(part['blocks'].max()), 'block')}): {told}."
            )
    work = tr.at_work(data)
    if len(work):
        found += _small(work) + _large(work)
    found += _goes_with(data)
    found += _stages(data)
    return found


def _pairs(work: pd.DataFrame, rows: int) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Shape, default and published row where the published rule leaves the default."""
    part = work[work["rows"] == rows]
    pairs = []
    for shape, cell in part.groupby("shape", sort=False):
        arms = {str(row["arm"]): row for row in records(cell)}
        if {"default", "specialised"} <= set(arms):
            pairs.append((str(shape), arms["default"], arms["specialised"]))
    return pairs


def _small(work: pd.DataFrame) -> list[str]:
    pairs = _pairs(work, SMALL_ROWS)
    same = [shape for shape, old, new in pairs if old["buffer_bytes"] == new["buffer_bytes"]]
    idle = [
        f"{shape} ({new['programs']} programs leave {units.share(1 - new['busy_share'])} of the multiprocessors without one)"
        for shape, _, new in pairs
        if new["busy_share"] < 1
    ]
    once = [shape for shape, old, new in pairs if max(old["waves"], new["waves"]) <= 1]
    if not pairs:
        return []
    text = f"At {SMALL_ROWS} rows a larger tile brings nothing more into flight"
    text += (
        f": the load buffers of the programs at work stay the same for {', '.join(same)}"
        if same
        else " everywhere"
    )
    text += f"; all programs of {', '.join(once)} fit the card at once with either tile" if once else ""
    text += f"; fewer programs leave multiprocessors idle in {', '.join(idle)}" if idle else ""
    return [text + "."]


def _large(work: pd.DataFrame) -> list[str]:
    rows = int(work["rows"].max())
    told = [
        f"{shape}: each weight asked for {_instead(new['weight_reads'], old['weight_reads'])} times, "
        f"{units.significant(new['waves'], 2)} instead of {units.significant(old['waves'], 2)} waves of programs, "
        f"{units.byte_size(new['buffer_bytes'], 3)} instead of {units.byte_size(old['buffer_bytes'], 3)} of load buffers at work"
        for shape, old, new in _pairs(work, rows)
    ]
    return [f"At {rows} rows other things change: {'; '.join(told)}."] if told and rows > SMALL_ROWS else []


def _instead(new: int, old: int) -> str:
    return f"{new} instead of {old}" if new != old else f"as before {old}"


def _goes_with(data: dp.ProductData) -> list[str]:
    table = tr.rank_correlations(data)
    found = []
    for label, part in (
        (f"1 to {SMALL_ROWS} rows", table[table["rows"] <= SMALL_ROWS]) if len(table) else ("", table),
        (f"more than {SMALL_ROWS} rows", table[table["rows"] > SMALL_ROWS]) if len(table) else ("", table),
    ):
        if part.empty:
            continue
        names = {
            "programs": "number of programs",
            "buffer_bytes": "bytes of load buffers at work",
            "waves": "waves of programs",
            "weight_bytes": "weight bytes asked for",
        }
        told = "; ".join(
            f"{text} {part[name].min():+.2f} to {part[name].max():+.2f}"
            for name, text in names.items()
            if part[name].notna().any()
        )
        found.append(
            f"Rank correlation with time over {int(part['configurations'].max())} configurations, {label}, range over "
            f"{counted(len(part), 'product')} (negative: more is faster; it describes, it proves no cause): {told}."
        )
    return found


def _stages(data: dp.ProductData) -> list[str]:
    cells = dp.product_table(data)
    part = cells[cells["deeper_ratio"].notna()]
    found = []
    for label, own in (
        (f"1 to {SMALL_ROWS} rows", part[part["rows"] <= SMALL_ROWS]),
        (f"{int(cells['rows'].max())} rows", part[part["rows"] > SMALL_ROWS]),
    ):
        if len(own):
            low, high = own["deeper_ratio"].min(), own["deeper_ratio"].max()
            found.append(f"{units.change(float(low))} to {units.change(float(high))} with {label}")
    if not found:
        return []
    return [
        "The same default tile with four stages instead of two, so more loads in flight from the same programs and bytes: "
        + ", ".join(found)
        + f", over {counted(part['shape'].nunique(), 'shape')} ({_few(part['deeper_n'], data)})."
    ]


def _few(counts: pd.Series[Any], data: dp.ProductData) -> str:
    """Replicates behind the comparisons, in words; fewer than a verdict needs is said."""
    low, high = int(counts.min()), int(counts.max())
    told = replicated(high, data.replicate) if low == high else f"{low} to {replicated(high, data.replicate)}"
    return told + (", too few for an interval" if low < MIN_REPLICATES else "")


def whole_step(data: dp.ProductData) -> list[str]:
    """All products of a decode step, for the row counts of a decode step and the largest."""
    step = dp.token_times(data)
    chosen = step[step["rows"].isin([8, int(step["rows"].max())])]
    found = []
    for row in records(chosen):
        deeper = row["deeper"]
        found.append(
            f"All products of one decode step of {int(row['rows'])} rows (36 layers and the head, one of four ranks, "
            f"{_where(data)}): default {units.duration_us(row['default'])}, published "
            f"{units.duration_us(row['published'])} ({units.change(row['published'] / row['default'])}), "
            + (f"default with four stages {units.duration_us(deeper)}, " if math.isfinite(deeper) else "")
            + f"torch {units.duration_us(row['torch'])}, weights read once {units.duration_us(row['read'])}."
        )
    return found


def bits(data: dp.ProductData) -> list[str]:
    """Equality in every bit."""
    checked = data.equality[data.equality["config"] != "torch"]
    if checked.empty:
        return []
    equal = int(checked["equal_to_default"].sum())
    return [
        f"{equal} of {len(checked)} products of these kernels (written here to the published contract), over configurations, schedules, shapes and row counts, are "
        f"equal in every bit on {data.recording.manifest.device.get('name')}."
    ]
