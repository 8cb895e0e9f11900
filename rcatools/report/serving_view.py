"""Tables of a serving recording: speed by load and arm with the KV blocks beside it, estimate against actual memory."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from rcatools import units
from rcatools.recording.capacity import KV_FACTS, confounds, estimates
from rcatools.report import words
from rcatools.report.measured import Facts, Measured
from rcatools.report.table import Cell, Table, make
from rcatools.stats.paired import compare_blocks
from rcatools.stats.records import DEFAULT_MARGIN, Comparison

PER_TOKEN = re.compile(r"token_us(?:\.(.+))?")
LATENCIES = {"ttft": "First token", "tpot": "Each next token", "e2el": "Whole request"}


def tables(measured: Measured, facts: Facts) -> list[Table]:
    """The tables of the first recording, none where it was not made with vLLM."""
    shown = [speeds(measured, facts), memory(measured, facts)]
    return [table for table in shown if table.rows]


def speeds(measured: Measured, facts: Facts) -> Table:
    """One row per load and arm: tokens per second, time per token against the baseline, latencies, KV blocks."""
    blocks = measured.blocks[measured.blocks["recording"] == facts.recording]
    runs = timed(measured, facts)
    loads = {
        str(name): found[1] or ""
        for name in blocks["metric"].unique()
        if (found := PER_TOKEN.fullmatch(name))
    }
    if any(loads.values()):  # the plain metric repeats one of the loads
        loads = {name: load for name, load in loads.items() if load}
    capacity = {item.arm: item for item in confounds(runs, facts.baseline) if item.figure in KV_FACTS}
    rows = []
    for metric, load in sorted(loads.items(), key=lambda item: _order(item[1])):
        table = _by_block(blocks, metric)
        for arm in table.columns:
            latencies = [
                _latency(_by_block(blocks, f"{name}_us.{load}"), str(arm), facts) for name in LATENCIES
            ]
            speed = 1e6 / float(table[arm].median())
            kv = _kv(runs, str(arm))
            flag = Cell(f"{kv} (differs: confound)", tone="bad") if arm in capacity else Cell(kv)
            change = _change(table, str(arm), facts)
            rows.append(
                [load or "one batch", Cell(str(arm)), units.significant(speed, 4), *change, *latencies, flag]
            )
    columns = ["Load", "Arm", "Output tokens/s", "Time per token", "Interval", "Detection limit", "Verdict"]
    note = "; ".join(item.text for item in capacity.values())
    return make(
        "Speed by load and arm",
        [*columns, *LATENCIES.values(), "KV cache"],
        rows,
        numeric=(2, 3, 4, 5, 7, 8, 9),
        note=note,
    )


def memory(measured: Measured, facts: Facts) -> Table:
    """Estimated and actual memory of the graphs, arm by arm."""
    runs = timed(measured, facts)
    rows = [
        [
            Cell(row.arm),
            units.byte_size(row.estimate_bytes),
            units.byte_size(row.actual_bytes),
            units.NOT_AVAILABLE if row.ratio is None else units.change(row.ratio),
            f"{row.n}",
            row.note,
        ]
        for row in (estimates(runs) if "graph_bytes" in runs.columns else ())
        if row.estimate_bytes is not None or row.actual_bytes is not None
    ]
    columns = ["Arm", "Estimate", "Actual", "Actual against estimate", "Runs", "Note"]
    return make("Graph memory: estimate against actual", columns, rows, numeric=(1, 2, 3, 4))


def timed(measured: Measured, facts: Facts) -> pd.DataFrame:
    """The timed runs of the first recording."""
    runs = measured.runs
    return runs[(runs["recording"] == facts.recording) & (pd.to_numeric(runs["block"]) >= 0)]


def _by_block(blocks: pd.DataFrame, metric: str) -> pd.DataFrame:
    chosen = blocks[blocks["metric"] == metric]
    return chosen.pivot_table(index="block", columns="arm", values="value", aggfunc="median", sort=False)


def _compare(table: pd.DataFrame, arm: str, facts: Facts) -> Comparison | None:
    """An arm against the baseline, None where no block has both or it is the baseline."""
    pair = {arm, facts.baseline}
    if len(pair) < 2 or not pair <= set(table.columns) or table[list(pair)].dropna().empty:
        return None
    return compare_blocks(
        np.asarray(table[facts.baseline], dtype=float),
        np.asarray(table[arm], dtype=float),
        margin=DEFAULT_MARGIN if facts.margin is None else facts.margin,
    )


def _change(table: pd.DataFrame, arm: str, facts: Facts) -> list[str | Cell]:
    """Change, interval, detection limit and verdict of an arm against the baseline."""
    if arm == facts.baseline:
        return ["baseline", "", "", ""]
    found = _compare(table, arm, facts)
    if found is None:
        return [units.NOT_AVAILABLE, "", "", "no block has both"]
    e = found.estimate
    verdict = Cell(found.verdict.value, tone=words.VERDICT_TONE.get(found.verdict.value, "open"))
    return [units.change(e.ratio), units.interval(e.ci_low, e.ci_high), units.percent(found.mde), verdict]


def _latency(table: pd.DataFrame, arm: str, facts: Facts) -> str:
    """Median over blocks, and the change against the baseline with its interval."""
    if arm not in table.columns:
        return units.NOT_AVAILABLE
    text = units.duration_us(float(table[arm].median()))
    found = _compare(table, arm, facts)
    if found is None:
        return text
    e = found.estimate
    return f"{text} ({units.change(e.ratio)} {units.interval(e.ci_low, e.ci_high)})"


def _kv(runs: pd.DataFrame, arm: str) -> str:
    own = runs[(runs["arm"] == arm) & (runs["outcome"] == "ok")]
    for figure, unit in zip(KV_FACTS, ("blocks", "tokens", "bytes"), strict=True):
        values = (
            pd.to_numeric(own[figure], errors="coerce").dropna()
            if figure in own.columns
            else pd.Series(dtype=float)
        )
        if len(values):
            low, high = int(values.min()), int(values.max())
            return f"{low:,} {unit}" if low == high else f"{low:,} to {high:,} {unit}"
    return units.NOT_AVAILABLE


def _order(load: str) -> tuple[float, str]:
    found = re.match(r"c(\d+)", load)
    return (float(found[1]) if found else float("inf"), load)
