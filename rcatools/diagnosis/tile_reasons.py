"""Why a tile configuration takes the time it takes: what it puts to work on the card, and which change does it.

Everything here is counted from tile sizes and from what the compiler allocated, or timed; no hardware counter was
read. A program's load buffers are its shared memory: the tiles of both operands, once for each stage but one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from rcatools.diagnosis.decode_product import DEEPER, ProductData
from rcatools.stats.paired import compare_blocks

FACTORS = ("block_m", "block_n", "warps", "stages")
ARMS = ("default", "specialised", "default_deeper", "specialised_deeper")
PROPERTIES = ("programs", "waves", "buffer_bytes", "weight_bytes")


def at_work(data: ProductData) -> pd.DataFrame:
    """One row per shape, row count and arm of ours that keeps the published schedule.

    Columns: shape, rows, arm, config, block_m, block_n, warps, stages, programs, programs_per_sm (how many fit one
    multiprocessor: registers, shared memory, threads), waves (programs over those that fit the card at once),
    busy_share (multiprocessors that get a program), buffer_bytes (load buffers of the programs at work), weight_reads
    (how often each weight is asked for), us (median). Empty where the device's multiprocessors were not recorded.
    """
    multiprocessors = data.recording.manifest.device.get("multiprocessors")
    found = []
    for row in data.launches[data.launches["arm"].isin(ARMS)].to_dict("records"):
        compiled = _compiled(data, str(row["config"]), split=int(row["kernels"]) == 2)
        if not multiprocessors or compiled is None:
            continue
        values = data.recording.block_values(f"{row['shape']}_m{row['rows']}_us")
        found.append(
            {
                **{key: row[key] for key in ("shape", "rows", "arm", "config")},
                **{key: int(compiled[key]) for key in FACTORS},
                **_occupancy(int(row["programs"]), compiled, int(multiprocessors)),
                "weight_reads": _weight_reads(int(row["rows"]), int(compiled["block_m"])),
                "us": float(values[row["arm"]].median()),
            }
        )
    return pd.DataFrame(found)


def _weight_reads(rows: int, block_m: int) -> int:
    return -(-rows // block_m)


def _occupancy(programs: int, compiled: dict[str, Any], multiprocessors: int) -> dict[str, Any]:
    fit = int(compiled["programs_per_sm"])
    resident = min(programs, fit * multiprocessors)
    return {
        "programs": programs,
        "programs_per_sm": fit,
        "waves": programs / (fit * multiprocessors),
        "busy_share": min(programs, multiprocessors) / multiprocessors,
        "buffer_bytes": resident * int(compiled["shared_bytes"]),
    }


def _compiled(data: ProductData, config: str, *, split: bool) -> dict[str, Any] | None:
    """Resources of a configuration's first kernel; a "_deeper" one is found by its tile with more stages."""
    table = data.compiled
    if not {"programs_per_sm", "shared_bytes", *FACTORS} <= set(table.columns):
        return None
    table = table[table["kernel"] == ("chunk_products" if split else "whole_product")]
    own = table[table["name"] == config.removesuffix("_deeper")]
    if own.empty:
        return None
    if config.endswith("_deeper"):
        wanted = own.iloc[0]
        own = table[(table["stages"] == DEEPER)]
        for name in ("block_m", "block_n", "warps"):
            own = own[own[name] == wanted[name]]
        if own.empty:
            return None
    return {str(key): value for key, value in own.iloc[0].items()}


def grid_at_work(data: ProductData) -> pd.DataFrame:
    """The factor grid with the columns of ``at_work`` that a configuration decides: one row per shape, rows, name."""
    multiprocessors = data.recording.manifest.device.get("multiprocessors")
    if not multiprocessors or data.grid.empty:
        return pd.DataFrame()
    found = []
    for (shape, count, name), part in data.grid.groupby(["shape", "rows", "name"], sort=False):
        first = part.iloc[0]
        compiled = _compiled(data, str(name), split=int(first["kernels"]) == 2)
        if compiled is None:
            return pd.DataFrame()
        found.append(
            {
                "shape": shape,
                "rows": int(str(count)),
                "name": name,
                **_occupancy(int(first["programs"]), compiled, int(multiprocessors)),
                "weight_bytes": int(first["weight_bytes"]),
                "us": float(part["us"].median()),
            }
        )
    return pd.DataFrame(found)


def rank_correlations(data: ProductData) -> pd.DataFrame:
    """Spearman's correlation of time with each property over the grid's configurations, per shape and row count.

    Columns: shape, rows, configurations, and one per PROPERTIES; NaN where a property does not vary.
    """
    grid = grid_at_work(data)
    found = []
    for (shape, count), part in grid.groupby(["shape", "rows"], sort=False) if len(grid) else ():
        row: dict[str, Any] = {"shape": shape, "rows": int(str(count)), "configurations": len(part)}
        for name in PROPERTIES:
            varies = part[name].nunique() > 1
            row[name] = float(part[name].corr(part["us"], method="spearman")) if varies else math.nan
        found.append(row)
    return pd.DataFrame(found)


def single_changes(data: ProductData) -> pd.DataFrame:
    """Each property that the published configuration changes, changed alone on the default tile.

    From the factor grid: one process, intervals over its blocks. Columns: shape, rows, factor, step, ratio, low,
    high, blocks; cells of the grid where the published rule keeps the default are left out.
    """
    found: list[dict[str, Any]] = []
    if not set(FACTORS) <= set(data.compiled.columns):
        return pd.DataFrame(found)
    tiles = {
        str(row["name"]): {name: int(row[name]) for name in FACTORS}
        for row in data.compiled.to_dict("records")
    }
    for (shape, count), cell in data.grid.groupby(["shape", "rows"], sort=False):
        rows = int(str(count))
        chosen = data.launches[(data.launches["shape"] == shape) & (data.launches["rows"] == rows)]
        chosen = chosen[chosen["arm"] == "specialised"]
        if chosen.empty or not {"default", chosen["config"].iloc[0]} <= set(tiles):
            continue
        before, after = tiles["default"], tiles[chosen["config"].iloc[0]]
        base = _times(cell, before)
        for name in FACTORS:
            if before[name] == after[name]:
                continue
            changed = _times(cell, before | {name: after[name]})
            if base.size == 0 or changed.size != base.size:
                continue
            e = compare_blocks(base, changed).estimate
            found.append(
                {
                    "shape": shape,
                    "rows": rows,
                    "factor": name,
                    "step": f"{before[name]} to {after[name]}",
                    "ratio": e.ratio,
                    "low": e.ci_low,
                    "high": e.ci_high,
                    "blocks": e.n,
                }
            )
    return pd.DataFrame(found)


def _times(cell: pd.DataFrame, levels: dict[str, int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    for name, level in levels.items():
        cell = cell[cell[name] == level]
    return np.asarray(cell.sort_values("block")["us"].to_numpy(dtype=float))
