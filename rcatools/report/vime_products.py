"""Tables and charts of the decode products: cells, factors, launches, bits, assembly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from rcatools import units
from rcatools.diagnosis import decode_product as dp
from rcatools.diagnosis import tile_reasons as tr
from rcatools.diagnosis.wording import replicated
from rcatools.report.charts import Bars, Forest, Interval
from rcatools.report.figures import records
from rcatools.report.table import Cell, Table, make
from rcatools.report.vime import RATIO_AXIS, interval_of
from rcatools.report.vime_tiles import FACTOR_NAMES
from rcatools.report.words import verdict_cell

PRODUCT_ARMS = {
    "specialised": "published configuration",
    "default_whole": "default tiles, one kernel",
    "torch": "torch",
}


def product_forest(data: dp.ProductData, rows: int) -> Forest:
    """Every compared arm of every shape at one row count, against the default configuration."""
    points = []
    for shape, count in data.cells():
        if count != rows:
            continue
        values = dp.cell_values(data.recording, shape, count)
        for arm, label in PRODUCT_ARMS.items():
            found = dp.compare_arms(values, arm, "default", margin=data.recording.manifest.margin)
            if found is not None:
                points.append(interval_of(f"{shape}: {label}", found))
        deeper = dp.deeper_comparison(data, shape, count)
        if deeper is not None:
            points.append(interval_of(f"{shape}: default tiles, four stages", deeper))
    return Forest(
        f"product_m{rows}",
        f"Decode products of {rows} rows against the default configuration",
        f"One row per shape and arm: mean change with its interval over {replicated(count_of(data), data.replicate)}, "
        f"{data.recording.manifest.device.get('name')}. Every arm of ours gives the same bits.",
        RATIO_AXIS,
        tuple(points),
        band=data.recording.manifest.margin,
        value_name="Change",
    )


def count_of(data: dp.ProductData) -> int:
    """Replicates of the product recording."""
    return int(data.recording.samples["block"].nunique())


def product_cells(data: dp.ProductData) -> Table:
    """Times, ratios and the share of the bandwidth floor in every cell."""
    rows = []
    for cell in records(dp.product_table(data)):
        chosen = str(cell["specialised_verdict"])
        rows.append(
            [
                Cell(f"{cell['shape']}, {cell['rows']} rows", code=True),
                units.duration_us(cell["default_us"]),
                _change(cell, "specialised") if chosen else "the default",
                verdict_cell(chosen) if chosen else "",
                _change(cell, "deeper"),
                _change(cell, "torch"),
                units.duration_us(cell["read_us"]),
                *(units.percent(cell.get(f"{arm}_floor_share")) for arm in ("default", "deeper", "torch")),
            ]
        )
    columns = ["Product", "Default", "Published", "Verdict", "Four stages", "torch", "Floor"]
    columns += ["Default's share", "Four stages' share", "torch's share"]
    return make(
        "Decode products of Qwen3-8B on one of four ranks",
        columns,
        rows,
        numeric=(1, 2, 4, 5, 6, 7, 8, 9),
        note=f"{data.recording.manifest.device.get('name')}, {replicated(count_of(data), data.replicate)}, ratios paired by "
        f"it. Floor: the weight read once by a plain read. Share: floor / time.",
    )


def _change(cell: Mapping[str, Any], arm: str) -> str:
    return f"{units.change(cell[f'{arm}_ratio'])} {units.interval(cell[f'{arm}_low'], cell[f'{arm}_high'])}"


def launch_table(data: dp.ProductData) -> Table:
    """Programs and requested bytes where the published rule leaves the default."""
    rows = [
        [
            Cell(f"{row['shape']}, {row['rows']} rows", code=True),
            Cell(str(row["config"]), code=True),
            str(row["programs_default"]),
            str(row["programs_published"]),
            units.significant(row["weight_bytes_ratio"]),
            units.significant(row["x_bytes_ratio"]),
        ]
        for row in records(dp.launch_changes(data))
    ]
    return make(
        "What the published configurations launch",
        [
            "Product",
            "Configuration",
            "Programs, default",
            "Programs, published",
            "Weight bytes asked for",
            "Input bytes asked for",
        ],
        rows,
        numeric=(2, 3, 4, 5),
        note="Bytes are ratios published / default of what programs ask for; caches serve repeated ones.",
    )


ARM_NAMES = {
    "default": "default",
    "specialised": "published",
    "default_deeper": "default, four stages",
    "specialised_deeper": "published, four stages",
}


def work_table(data: dp.ProductData, rows: tuple[int, ...] = (8, 64)) -> Table:
    """What each configuration puts to work on the card, beside its time."""
    work = tr.at_work(data)
    made = [
        [
            Cell(f"{row['shape']}, {row['rows']} rows", code=True),
            ARM_NAMES[row["arm"]],
            f"{row['block_m']} x {row['block_n']}, {row['warps']} warps, {row['stages']} stages",
            f"{row['programs']:,}",
            str(row["programs_per_sm"]),
            units.significant(row["waves"], 2),
            units.share(row["busy_share"]),
            units.byte_size(float(row["buffer_bytes"]), 3),
            str(row["weight_reads"]),
            units.duration_us(row["us"]),
        ]
        for row in (records(work[work["rows"].isin(rows)]) if len(work) else [])
    ]
    columns = ["Product", "Configuration", "Tile", "Programs", "Fit one SM", "Waves", "SMs with work"]
    columns += ["Load buffers at work", "Weight asked for", "Time"]
    return make(
        "What each configuration puts to work",
        columns,
        made,
        numeric=range(3, 10),
        note=f"On {data.recording.manifest.device.get('name')}. Counted from tile sizes and from what the compiler "
        "allocated, no hardware counter: waves are programs over those that fit the card at once; load buffers are the "
        "shared memory of the programs at work; weight asked for: times each weight is read by a program.",
    )


def single_changes(data: dp.ProductData, rows: int) -> Forest:
    """Each change of the published configuration alone on the default tile."""
    singles = tr.single_changes(data)
    points = [
        Interval(
            f"{item['shape']}: {FACTOR_NAMES[item['factor']]} {item['step']}",
            item["ratio"] - 1,
            None if item["low"] is None else item["low"] - 1,
            None if item["high"] is None else item["high"] - 1,
            tone="bad" if item["ratio"] > 1 else "good",
            note=f"{item['blocks']} blocks of one process",
        )
        for item in (records(singles[singles["rows"] == rows]) if len(singles) else [])
    ]
    return Forest(
        f"singles_m{rows}",
        f"Each published change alone on the default tile, {rows} rows",
        f"Mean change with its interval over blocks of one process, {data.recording.manifest.device.get('name')}.",
        RATIO_AXIS,
        tuple(points),
        value_name="Change",
    )


def factors(data: dp.ProductData, rows: int) -> Forest:
    """The effect of each step of each factor at one row count, all others held."""
    effects = dp.factor_effects(data.grid)
    points = [
        Interval(
            f"{item['shape']}: {FACTOR_NAMES[item['factor']]} {item['step']}",
            item["ratio"] - 1,
            item["low"] - 1,
            item["high"] - 1,
            tone="bad" if item["low"] > 1 else "good" if item["high"] < 1 else "open",
            note=f"{item['blocks']} blocks of one process",
        )
        for item in records(effects[effects["rows"] == rows])
    ]
    return Forest(
        f"factors_m{rows}",
        f"Which property moves the time of {rows} rows",
        "Each step of one property, averaged over all combinations of the others.",
        RATIO_AXIS,
        tuple(points),
        value_name="Change",
    )


def token_bars(data: dp.ProductData) -> Bars:
    """All products of one decode step, by row count and arm."""
    parts = ("default", "published", "deeper", "torch", "read")
    rows = [
        (f"{int(row['rows'])} rows, {name}", (float(row[name]),))
        for row in records(dp.token_times(data))
        for name in parts
    ]
    return Bars(
        "token_products",
        "All products of one decode step",
        "36 layers and one head of Qwen3-8B on one of four ranks; read: the weights read once.",
        "microseconds per step",
        ("time",),
        tuple(rows),
    )


def equality(data: dp.ProductData) -> Table:
    """Bits of every configuration and schedule against the default's."""
    rows = [
        [
            Cell(str(row["config"]), code=True),
            {True: "split", False: "one kernel"}.get(row["split"], "library"),
            str(row["cells"]),
            str(row["equal_to_default"]),
            str(row["equal_to_batch"]),
            units.significant(row["relative_error"]),
        ]
        for row in records(dp.equality_summary(data.equality))
    ]
    return make(
        "Equal in every bit",
        ["Configuration", "Schedule", "Cells", "Equal to default", "Equal within 64 rows", "Largest error"],
        rows,
        numeric=(2, 3, 4, 5),
        note="Error: largest difference to float64 over the largest value.",
    )


def assembly(rows: pd.DataFrame) -> Table:
    """Offline assembly of the AMD targets; nothing of it was run."""
    made = [
        [
            Cell(f"{row['target']}, {row['kernel']}", code=True),
            Cell(str(row["config"]), code=True),
            Cell(f"{row['count']} x {row['matrix_instruction']}", code=True),
            str(row["vgprs"]),
            str(row["spills"]),
            units.byte_size(float(row["shared_bytes"])),
        ]
        for row in records(rows)
    ]
    return make(
        "Compiled for AMD cards, not run on ROCm",
        ["Target and kernel", "Configuration", "Matrix instructions", "Vector registers", "Spills", "Shared"],
        made,
        numeric=(3, 4, 5),
    )
