"""What the decode product's recording says: cells against the bandwidth floor, and which factor moves the time.

Reads the recording made from ``benchmarks/decode_matmul.py`` and the JSON beside it. Ratios are times,
candidate / baseline; intervals are over what ``ProductData.replicate`` names, and over blocks of one process
for the factor grid.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from rcatools.errors import InputError
from rcatools.recording import Recording
from rcatools.stats.paired import compare_blocks
from rcatools.stats.records import Comparison

RAW = "decode_matmul.json"
MAX_RAW_BYTES = 64 * 2**20
FACTORS = ("block_m", "block_n", "warps", "stages")
COMPARED = ("specialised", "default_whole", "torch")
DEFAULT_TILE = {"block_m": 16, "block_n": 32, "warps": 2}
DEEPER = 4
# Layers of Qwen3-8B (num_hidden_layers of its published config.json); the head runs once per token.
QWEN3_8B_LAYERS = 36
PER_LAYER = ("qkv", "o_proj", "gate_up", "down")


@dataclass(frozen=True)
class ProductData:
    """The recording and the tables of its JSON: one row per kernel, checked product or grid point."""

    recording: Recording
    compiled: pd.DataFrame
    equality: pd.DataFrame
    grid: pd.DataFrame
    launches: pd.DataFrame
    empty_kernel_us: float

    @property
    def replicate(self) -> str:
        """What an interval is over: "process", or "block of one process"."""
        return str(self.recording.manifest.design.get("replicate", "process"))

    def cells(self) -> list[tuple[str, int]]:
        """Shapes and row counts in measured order."""
        return list(self.launches[["shape", "rows"]].drop_duplicates().itertuples(index=False, name=None))


def load_product(recording: Recording) -> ProductData:
    """Read the JSON beside a product recording.

    Raises:
        InputError: it is missing, too large or damaged.
    """
    file = recording.path / RAW
    if not file.is_file() or file.stat().st_size > MAX_RAW_BYTES:
        raise InputError(f"{recording.path} has no usable {RAW}: it is no recording of the decode product")
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        launches = [row for row in raw["table"] if row["launch"] is not None]
        grid = [
            {
                **row["config"],
                **row["launch"],
                "shape": row["shape"],
                "rows": row["rows"],
                "block": b,
                "us": us,
            }
            for row in raw["grid"]
            for b, us in enumerate(row["us_per_call"])
        ]
        return ProductData(
            recording=recording,
            compiled=_flat(raw["compiled"], "config"),
            equality=pd.DataFrame(raw["equality"]),
            grid=pd.DataFrame(grid),
            launches=_flat(launches, "launch").drop(columns="us_per_call"),
            empty_kernel_us=_empty_kernel_us(raw["ceilings"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is damaged ({type(error).__name__}: {error}): record again") from None


def _empty_kernel_us(ceilings: Any) -> float:
    parts = ceilings if isinstance(ceilings, list) else [ceilings]
    return float(np.median([us for part in parts for us in part["empty_kernel_us"]]))


def _flat(rows: list[dict[str, Any]], key: str) -> pd.DataFrame:
    return pd.DataFrame([{**{k: v for k, v in row.items() if k != key}, **row[key]} for row in rows])


def cell_values(recording: Recording, shape: str, rows: int) -> pd.DataFrame:
    """Microseconds per call, one row per process and one column per arm."""
    return recording.block_values(f"{shape}_m{rows}_us")


def compare_arms(values: pd.DataFrame, arm: str, against: str, *, margin: float) -> Comparison | None:
    """One arm against another within a cell, paired by process; None where one is not there."""
    if not {arm, against} <= set(values.columns):
        return None
    return compare_blocks(values[against], values[arm], margin=margin, arm=arm, baseline_name=against)


def product_table(data: ProductData) -> pd.DataFrame:
    """One row per shape and row count.

    Columns: ``default_us``; for each of COMPARED and for ``deeper`` (the default tile with four stages) its
    ``_ratio``, ``_low``, ``_high``, ``_verdict`` and ``_n`` (replicates) against the default; ``read_us`` (the weight read once by
    the fastest plain read); and for default, specialised, deeper and torch the share of that floor,
    ``<arm>_floor_share``. What was not measured in a cell is NaN or "".
    """
    rows = []
    for shape, count in data.cells():
        values = cell_values(data.recording, shape, count)
        read = values[[name for name in values.columns if name.startswith("read_")]].median().min()
        row: dict[str, Any] = {"shape": shape, "rows": count, "default_us": values["default"].median()}
        row["read_us"] = float(read)
        for arm in COMPARED:
            found = compare_arms(values, arm, "default", margin=data.recording.manifest.margin)
            row |= _ratio_columns(arm, found)
        deeper = deeper_comparison(data, shape, count)
        row |= _ratio_columns("deeper", deeper)
        for arm in ("default", "specialised", "torch"):
            row[f"{arm}_floor_share"] = (
                float(read) / values[arm].median() if arm in values.columns else math.nan
            )
        row["deeper_floor_share"] = row["default_floor_share"] / row["deeper_ratio"]
        rows.append(row)
    return pd.DataFrame(rows)


def deeper_comparison(data: ProductData, shape: str, rows: int) -> Comparison | None:
    """The default tile with four stages against two: by its own arm, else by the factor grid, else None.

    The programs, their bytes and their order are the same; only more loads are in flight.
    """
    margin = data.recording.manifest.margin
    found = compare_arms(cell_values(data.recording, shape, rows), "default_deeper", "default", margin=margin)
    if found is not None:
        return found
    cell = data.grid[(data.grid["shape"] == shape) & (data.grid["rows"] == rows)]
    for name, level in DEFAULT_TILE.items():
        cell = cell[cell[name] == level]
    wide = cell.pivot_table(index="block", columns="stages", values="us")
    wide = wide.rename(columns={2: "default", DEEPER: "default_deeper"})
    return compare_arms(wide, "default_deeper", "default", margin=margin)


def _ratio_columns(arm: str, found: Comparison | None) -> dict[str, Any]:
    if found is None:
        return {
            f"{arm}_ratio": math.nan,
            f"{arm}_low": math.nan,
            f"{arm}_high": math.nan,
            f"{arm}_verdict": "",
            f"{arm}_n": 0,
        }
    e = found.estimate
    return {
        f"{arm}_ratio": e.ratio,
        f"{arm}_low": e.ci_low,
        f"{arm}_high": e.ci_high,
        f"{arm}_verdict": found.verdict.value,
        f"{arm}_n": e.n,
    }


def launch_changes(data: ProductData) -> pd.DataFrame:
    """Where the published rule picks another configuration: programs and requested bytes, published / default."""
    rows = []
    for (shape, count), cell in data.launches.groupby(["shape", "rows"], sort=False):
        arms = {str(row["arm"]): row for row in cell.to_dict("records")}
        if "specialised" not in arms:
            continue
        new, old = arms["specialised"], arms["default"]
        rows.append(
            {
                "shape": shape,
                "rows": count,
                "config": new["config"],
                "programs_default": int(old["programs"]),
                "programs_published": int(new["programs"]),
                "weight_bytes_ratio": new["weight_bytes"] / old["weight_bytes"],
                "x_bytes_ratio": new["x_bytes"] / old["x_bytes"],
            }
        )
    return pd.DataFrame(rows)


def factor_effects(grid: pd.DataFrame, confidence: float = 0.95) -> pd.DataFrame:
    """The effect of each step of each factor at each shape and row count, all other factors held.

    A step's ratio is the geometric mean, over all combinations of the other factors, of time after / before;
    the interval is a t-interval over the blocks of the grid. Columns: shape, rows, factor, step, ratio, low,
    high, blocks.
    """
    rows = []
    logs = grid.assign(log=np.log(grid["us"]))
    for (shape, count), cell in logs.groupby(["shape", "rows"], sort=False):
        for factor in FACTORS:
            others = [name for name in FACTORS if name != factor]
            wide = cell.pivot_table(index=["block", *others], columns=factor, values="log")
            levels = sorted(wide.columns)
            for before, after in itertools.pairwise(levels):
                steps = (wide[after] - wide[before]).groupby("block").mean().to_numpy()
                mean, half = float(steps.mean()), _half_width(steps, confidence)
                rows.append(
                    {
                        "shape": shape,
                        "rows": count,
                        "factor": factor,
                        "step": f"{before} to {after}",
                        "ratio": math.exp(mean),
                        "low": math.exp(mean - half),
                        "high": math.exp(mean + half),
                        "blocks": steps.size,
                    }
                )
    return pd.DataFrame(rows)


def _half_width(values: np.ndarray[Any, np.dtype[np.float64]], confidence: float) -> float:
    if values.size < 2:
        return math.nan
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    return float(stats.t.ppf(0.5 + confidence / 2, values.size - 1)) * error


def token_times(data: ProductData) -> pd.DataFrame:
    """Microseconds of all products of one decode step of Qwen3-8B on one of four ranks, by row count.

    "deeper" is the default times the ratio of ``deeper_comparison``, NaN where a cell lacks it. 36 layers of QKV, output, gate-up and down projections and one head; "published" takes the configuration
    the published rule picks in each cell. Only products: attention, norms and collectives are not in it.
    """
    rows = []
    for count in sorted({count for _, count in data.cells()}):
        totals = dict.fromkeys(("default", "published", "deeper", "torch", "read"), 0.0)
        for shape, times in [(name, QWEN3_8B_LAYERS) for name in PER_LAYER] + [("lm_head", 1)]:
            medians = cell_values(data.recording, shape, count).median()
            read = medians[[name for name in medians.index if name.startswith("read_")]].min()
            totals["default"] += times * medians["default"]
            totals["published"] += times * medians.get("specialised", medians["default"])
            deeper = deeper_comparison(data, shape, count)
            ratio = math.nan if deeper is None else deeper.estimate.ratio
            totals["deeper"] += times * medians["default"] * ratio
            totals["torch"] += times * medians["torch"]
            totals["read"] += times * read
        rows.append({"rows": count} | totals)
    return pd.DataFrame(rows)


def equality_summary(equality: pd.DataFrame) -> pd.DataFrame:
    """Per configuration and schedule: cells checked, cells equal in every bit, largest relative error."""
    keys = ["config", "split"]
    grouped = equality.assign(split=equality["split"].astype("object").fillna("")).groupby(keys, sort=False)
    return grouped.agg(
        cells=("shape", "size"),
        equal_to_default=("equal_to_default", "sum"),
        equal_to_batch=("equal_to_batch_of_64", "sum"),
        relative_error=("relative_error", "max"),
    ).reset_index()
