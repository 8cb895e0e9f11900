"""Tables and charts of vime-decode: collectives, latency by form and ranks, hazards, products, provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from rcatools import units
from rcatools.diagnosis import decode_product as dp
from rcatools.recording import Recording
from rcatools.recording.provenance import ProvenanceDifference
from rcatools.report.charts import Bars, Curve, Forest, Interval
from rcatools.report.figures import records
from rcatools.report.measured import Measured
from rcatools.report.table import Cell, Table, make
from rcatools.report.words import VERDICT_TONE, verdict_cell
from rcatools.stats.paired import compare_blocks
from rcatools.workload.vime.demonstrate import Demonstration

RATIO_AXIS = "time against the baseline (right is slower)"
FACTOR_NAMES = {
    "block_m": "rows per tile",
    "block_n": "columns per tile",
    "warps": "warps per program",
    "stages": "stages (loads in flight)",
}
PRODUCT_ARMS = {
    "specialised": "published configuration",
    "default_deeper": "default tiles, four stages",
    "specialised_deeper": "published configuration, four stages",
    "default_whole": "default tiles, one kernel",
    "torch": "torch",
}


def _facts(measured: Measured, recording: str) -> pd.DataFrame:
    runs = measured.runs[(measured.runs["recording"] == recording) & (measured.runs["block"] >= 0)]
    return runs[runs["outcome"] == "ok"]


def world_sizes(measured: Measured, recording: str) -> list[int]:
    """World sizes the recording counted collectives for."""
    prefix = "collectives_per_call_"
    runs = _facts(measured, recording)
    names = [name.removeprefix(prefix) for name in runs.columns if name.startswith(prefix)]
    return sorted(int(n) for n in names if n.isdigit() and runs[prefix + n].notna().any())


def collectives(measured: Measured, recording: str, world: int) -> Table:
    """Per form: collectives issued, collectives the backend counted, bytes one rank sends, per call."""
    runs = _facts(measured, recording)
    found: list[tuple[str, list[float]]] = []
    for arm, part in runs.groupby("arm", sort=False):
        values = [
            float(pd.to_numeric(part[f"{name}_{world}"], errors="coerce").median())
            for name in ("collectives_per_call", "backend_collectives_per_call", "bytes_per_call")
        ]
        found.append((str(arm), values))
    found.sort(key=lambda item: (-item[1][0], item[0]))
    rows = [
        [Cell(arm, code=True), *("not counted" if pd.isna(v) else units.significant(v, 4) for v in values)]
        for arm, values in found
    ]
    return make(
        f"Collectives per call, {world} ranks",
        ["Form", "Issued", "Counted by the backend", "Bytes sent"],
        rows,
        numeric=(1, 2, 3),
        note="Pickled objects travel in two collectives of the backend: sizes, then payloads.",
    )


def metric_of(what: str, world: int, judged: int) -> str:
    """Metric name of a world size, as the workload writes it."""
    return f"{what}_us" if world == judged else f"{what}_{world}_us"


def latency_by_ranks(
    measured: Measured, recording: str, baseline: str, worlds: Sequence[int], judged: int
) -> Curve:
    """Each form's exchange against the baseline's over the number of ranks, paired by block."""
    series: dict[str, list[tuple[float, Interval]]] = {}
    for world in worlds:
        for arm, found in _ratios(
            measured, recording, baseline, metric_of("exchange", world, judged)
        ).items():
            series.setdefault(arm, []).append((float(world), found))
    return Curve(
        "latency_by_ranks",
        "Exchange time against the clean checkout's form",
        "One line per form: mean change of one call's exchange with its interval over blocks. gloo over "
        "loopback: the ratios say nothing about NCCL or RCCL.",
        "ranks",
        RATIO_AXIS,
        tuple((name, tuple(points)) for name, points in series.items()),
        log_x=True,
    )


def _ratios(measured: Measured, recording: str, baseline: str, metric: str) -> dict[str, Interval]:
    chosen = measured.blocks[
        (measured.blocks["recording"] == recording) & (measured.blocks["metric"] == metric)
    ]
    values = chosen.pivot_table(index="block", columns="arm", values="value", aggfunc="first")
    if baseline not in values.columns:
        return {}
    found = {}
    for arm in [name for name in values.columns if name != baseline]:
        comparison = compare_blocks(values[baseline], values[arm], arm=str(arm), baseline_name=baseline)
        found[str(arm)] = _interval(str(arm), comparison)
    return found


def _interval(label: str, comparison: Any) -> Interval:
    e = comparison.estimate
    return Interval(
        label=label,
        value=e.ratio - 1,
        low=None if e.ci_low is None else e.ci_low - 1,
        high=None if e.ci_high is None else e.ci_high - 1,
        tone=VERDICT_TONE.get(comparison.verdict.value, "open"),
        note=f"{comparison.verdict.value}, {e.n} blocks",
    )


def latency(measured: Measured, recording: str, worlds: Sequence[int], judged: int) -> Table:
    """Median microseconds of one exchange by form and number of ranks."""
    rows: dict[str, list[Any]] = {}
    for world in worlds:
        chosen = measured.blocks[
            (measured.blocks["recording"] == recording)
            & (measured.blocks["metric"] == metric_of("exchange", world, judged))
        ]
        for arm, value in chosen.groupby("arm")["value"].median().items():
            rows.setdefault(str(arm), [Cell(str(arm), code=True)]).append(units.duration_us(float(value)))
    full = [row for row in rows.values() if len(row) == 1 + len(worlds)]
    return make(
        "Median time of one exchange",
        ["Form", *(f"{world} ranks" if world > 1 else "1 rank" for world in worlds)],
        full,
        numeric=range(1, 1 + len(worlds)),
        note="gloo over loopback.",
    )


def hazards(rows: Iterable[Demonstration | Mapping[str, Any]]) -> Table:
    """The demonstrations: what was met by which form and what came out."""
    made = []
    for item in rows:
        row = asdict(item) if isinstance(item, Demonstration) else dict(item)
        harmed = bool(int(row["harmed"]))
        made.append(
            [
                str(row["hazard"]).replace("_", " "),
                Cell(str(row["form"]), code=True),
                "safe" if int(row["safe"]) else "published",
                str(row["device"]),
                Cell("harm" if harmed else "no harm", tone="bad" if harmed else "good"),
                str(row["seen"]),
            ]
        )
    return make("Hazards on purpose", ["Hazard", "Form", "Kind", "Device", "Outcome", "Seen"], made)


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
                points.append(_interval(f"{shape}: {label}", found))
    return Forest(
        f"product_m{rows}",
        f"Decode products of {rows} rows against the default configuration",
        "One row per shape and arm: mean change with its interval over processes. Every arm of ours gives "
        "the same bits.",
        RATIO_AXIS,
        tuple(points),
        band=data.recording.manifest.margin,
        value_name="Change",
    )


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
                _change(cell, "default_deeper"),
                _change(cell, "torch"),
                units.duration_us(cell["read_us"]),
                *(
                    units.percent(cell.get(f"{arm}_floor_share"))
                    for arm in ("default", "default_deeper", "torch")
                ),
            ]
        )
    columns = ["Product", "Default", "Published", "Verdict", "Four stages", "torch", "Floor"]
    columns += ["Default's share", "Four stages' share", "torch's share"]
    return make(
        "Decode products of Qwen3-8B on one of four ranks",
        columns,
        rows,
        numeric=(1, 2, 4, 5, 6, 7, 8, 9),
        note="Floor: the weight read once by a plain read. Share: floor / time. Ratios are paired by process.",
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


def provenance(differences: Sequence[ProvenanceDifference], first: Recording, second: Recording) -> Table:
    """Where two recordings come from different code or surroundings."""
    rows = [[item.kind, Cell(item.key, code=True), item.first, item.second] for item in differences]
    return make("What the recordings do not share", ["Kind", "What", first.name, second.name], rows)
