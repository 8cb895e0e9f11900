"""The charts of a report, made from verdict.json and the measured tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rcatools import units
from rcatools.report import words
from rcatools.report.charts import Bars, Curve, Forest, Interval, Strip, numbered_families
from rcatools.report.measured import Facts, Measured
from rcatools.units import counted

Document = Mapping[str, Any]
CHANGE_AXIS = "time against the baseline (right is slower)"


def _interval(item: Mapping[str, Any]) -> Interval:
    return Interval(
        label=str(item["arm"]),
        value=_minus_one(item["ratio"]),
        low=_minus_one(item["ci_low"]),
        high=_minus_one(item["ci_high"]),
        tone=words.VERDICT_TONE.get(item["verdict"], "open"),
        note=f"{item['verdict']}, {counted(item['n'], 'block')}",
    )


def _minus_one(ratio: float | None) -> float | None:
    return None if ratio is None else ratio - 1


def fixes(document: Document, margin: float | None) -> Forest:
    """The suspect, the A/A arm and every fix variant against the baseline."""
    compared = {item["arm"] for item in document["fixes"]}
    rows = [
        _interval(item)
        for item in document["arms"]
        if item["role"] in {"suspect", "repeat"} and item["arm"] not in compared
    ]
    rows += [_interval(item) for item in document["fixes"]]
    return Forest(
        "fixes",
        "Fix variants against the baseline",
        "One row per arm: mean change of time with its confidence interval over blocks. The band is "
        "the declared margin. " + _in_words(rows),
        CHANGE_AXIS,
        tuple(rows),
        band=margin,
        value_name="Change",
    )


def arms(document: Document, margin: float | None) -> Forest:
    """Every arm against the baseline."""
    rows = tuple(_interval(item) for item in document["arms"])
    return Forest(
        "arms",
        "All arms against the baseline",
        "One row per arm: mean change of time with its confidence interval over blocks. "
        + _in_words(rows)
        + _other_outputs(document, [row.label for row in rows]),
        CHANGE_AXIS,
        rows,
        band=margin,
        value_name="Change",
    )


def _other_outputs(document: Document, drawn: Sequence[str]) -> str:
    """A sentence about arms that are drawn but carry no verdict, because they compute something else."""
    other = [i["arm"] for i in document["arms"] if "outputs_differ" in i["reasons"] and i["arm"] in drawn]
    return f" Not judged, because its output is not the baseline's: {', '.join(other)}." if other else ""


def _in_words(rows: Sequence[Interval]) -> str:
    slower = [row.label for row in rows if row.tone == "bad"]
    return f"Slower: {', '.join(slower)}." if slower else "No arm is slower."


def kernels(document: Document, margin: float | None) -> Forest:
    """Isolated kernels, suspect against baseline; compute-bound ones last."""
    order = {"bandwidth": 0, "latency": 1, "compute": 2}
    items = sorted(document["kernels"], key=lambda item: order.get(item["bound"], 3))
    rows = tuple(
        Interval(
            label=str(item["kernel"]),
            value=_minus_one(item["ratio"]),
            low=_minus_one(item["ci_low"]),
            high=_minus_one(item["ci_high"]),
            tone=words.VERDICT_TONE.get(item["verdict"], "open"),
            note=f"{item['bound']}-bound",
        )
        for item in items
    )
    return Forest(
        "kernels",
        "Kernels alone: suspect against baseline",
        "Each kernel timed by itself, launched back to back in a graph, so that a time holds one kernel boundary. Slower "
        "memory would show on the bandwidth-bound kernels, in proportion to their duration; a cost at each boundary shows "
        "most on the shortest kernels.",
        CHANGE_AXIS,
        rows,
        band=margin,
        value_name="Change",
    )


def kernel_runs(measured: Measured, facts: Facts, suspect: str) -> Strip:
    """Each isolated kernel in every run of the baseline, its repeats and the suspect, as a change of its baseline median."""
    table = measured.kernels[measured.kernels["recording"] == facts.recording]
    rows = []
    for kernel in dict.fromkeys(table["kernel"]):
        own = table[table["kernel"] == kernel]
        base = own.loc[own["arm"] == facts.baseline, "us"].median()
        for arm in dict.fromkeys((facts.baseline, *facts.repeats, *([suspect] if suspect else []))):
            values = own.loc[own["arm"] == arm, "us"].to_numpy(dtype=float)
            if len(values) and base > 0:
                rows.append((f"{kernel} · {arm}", tuple(float(value) for value in values / base - 1)))
    return Strip(
        "kernel-runs",
        "Each kernel alone, run by run",
        "One tick per run: the kernel's median in that run against its median over the runs of the baseline.",
        "change against the median of the baseline",
        tuple(rows),
        band=facts.margin,
    )


def kernel_differences(document: Document) -> Forest:
    """Difference of each isolated kernel in microseconds, shortest first: equal when the cost is fixed per kernel."""
    rows = []
    for item in sorted(document["kernels"], key=lambda item: item["base_us"]):
        low, high = _minus_one(item["ci_low"]), _minus_one(item["ci_high"])
        rows.append(
            Interval(
                label=str(item["kernel"]),
                value=item["delta_us"],
                low=None if low is None else low * item["base_us"],
                high=None if high is None else high * item["base_us"],
                tone=words.VERDICT_TONE.get(item["verdict"], "open"),
                note=f"{item['bound']}-bound, {units.duration_us(item['base_us'])} alone",
            )
        )
    return Forest(
        "kernel-differences",
        "The same differences as times",
        "Shortest kernel first. A cost at each boundary does not grow with the kernel; slower memory does."
        + _one_boundary(document),
        "difference against the baseline, one launch",
        tuple(rows),
        unit="us",
        value_name="Difference",
    )


def _one_boundary(document: Document) -> str:
    found = document.get("boundary")
    return f" One boundary costs {units.signed_duration_us(found['delta_us'])}." if found else ""


def ceiling_share(document: Document) -> Bars:
    """What share of the device's measured ceiling each kernel reaches."""
    rows = tuple(
        (f"{item['kernel']} ({item['bound']})", (item["ceiling"],))
        for item in document["kernels"]
        if item.get("ceiling") is not None
    )
    return Bars(
        "ceiling",
        "Share of the measured ceiling",
        "Rate of each kernel, timed alone in the baseline, against what the same device was measured to reach: bandwidth "
        "of a copy or a read, or the rate of a matrix product. Kernels bound by latency have no such ceiling.",
        "share of the ceiling, baseline arm",
        ("reached",),
        rows,
        unit="share",
    )


def where_time_went(document: Document) -> Bars:
    """The traced difference of each arm split into kernels and gaps."""
    rows = tuple(
        (str(item["arm"]), (item["kernels_us"], item["launches_us"] or 0.0, item["gaps_us"]))
        for item in document["reconcile"]
        if item["kernels_us"] is not None and item["gaps_us"] is not None
    )
    return Bars(
        "where",
        "Where the time went",
        "Difference of one traced step against the baseline: kernels that both have, launches that only one has (each "
        "with one gap of the baseline), and the gaps between kernels."
        + _other_outputs(document, [name for name, _ in rows]),
        "difference of one step against the baseline",
        ("same kernels", "added launches", "gaps between kernels"),
        rows,
    )


def steps(measured: Measured, recording: str) -> Bars:
    """One traced step per arm: time in kernels, time in gaps."""
    table = measured.steps[measured.steps["recording"] == recording]
    rows = tuple((str(row["arm"]), (float(row["kernel_us"]), float(row["gap_us"]))) for row in records(table))
    return Bars(
        "steps",
        "One decode step in the profiler trace",
        "Time inside kernels and idle time between them, median over the traced replays.",
        "time of one step",
        ("inside kernels", "gaps between kernels"),
        rows,
    )


def gaps(measured: Measured, recording: str) -> Bars:
    """Idle time of one traced step per arm."""
    table = measured.steps[measured.steps["recording"] == recording]
    rows = tuple((str(row["arm"]), (float(row["gap_us"]),)) for row in records(table))
    return Bars(
        "gaps",
        "Gaps between the kernels of one step",
        "Sum of the idle times between consecutive kernels of one traced step, per arm. A step with more kernels has more "
        "gaps: where the time went counts those with the added launches.",
        "idle time in one step",
        ("gaps between kernels",),
        rows,
    )


def allocator(measured: Measured, recording: str, arms: Sequence[str]) -> Bars:
    """Bytes per stream beside the stream that holds the KV cache."""
    rows = []
    for arm in arms:
        for row in records(side_streams(measured, recording, arm)):
            rows.append(
                (
                    f"{arm} · {stream_name(row['stream'])}",
                    (
                        float(row["active"]),
                        float(row["awaiting_free"]),
                        float(row["stranded"]),
                        float(row["releasable"]),
                    ),
                )
            )
    return Bars(
        "allocator",
        "Allocator bytes on side streams",
        "Bytes that the allocator keeps for each stream other than the one with the KV cache, when decode starts. The "
        "baseline shows what a process holds without any profile. Live bytes cannot be returned by empty_cache.",
        "bytes held for the stream",
        ("live", "awaiting free", "stranded", "releasable"),
        tuple(rows),
        unit="bytes",
    )


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as mappings."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.itertuples(index=False, name=None)]


def side_streams(measured: Measured, recording: str, arm: str) -> pd.DataFrame:
    """Ledger rows of an arm without the stream that reserves most, which holds the KV cache."""
    chosen = (measured.ledger["recording"] == recording) & (measured.ledger["arm"] == arm)
    table = measured.ledger[chosen].sort_values("reserved", ascending=False)
    return table.iloc[1:]


def stream_name(handle: Any) -> str:
    """A stream handle in a form short enough for a label."""
    number = int(handle)
    return "default stream" if number == 0 else f"stream …{number & 0xFFFFF:05x}"


def blocks(document: Document, measured: Measured, facts: Facts) -> Strip:
    """Every block's ratio to the baseline, arm by arm."""
    table = ratios(measured, facts.recording, facts.metric, facts.baseline)
    declared = [item["arm"] for item in document["arms"] if item["arm"] in table.columns]
    table = table[[*declared, *(arm for arm in table.columns if arm not in declared)]]
    rows = tuple(
        (str(arm), tuple(float(value) for value in table[arm].dropna()))
        for arm in table.columns
        if arm != facts.baseline
    )
    return Strip(
        "blocks",
        "Every block",
        "One tick per block: time of the arm over the baseline of the same block. Nothing is left out.",
        CHANGE_AXIS,
        rows,
        band=facts.margin,
    )


def ratios(measured: Measured, recording: str, metric: str, baseline: str) -> pd.DataFrame:
    """Ratio minus one to the baseline: blocks by arms, in the order of first appearance of the arm."""
    chosen = measured.blocks[
        (measured.blocks["recording"] == recording) & (measured.blocks["metric"] == metric)
    ]
    if chosen.empty or baseline not in set(chosen["arm"]):
        return pd.DataFrame()
    table = chosen.pivot_table(index="block", columns="arm", values="value", aggfunc="median", sort=False)
    return table.div(table[baseline], axis=0) - 1


def baseline_series(measured: Measured, facts: Facts) -> Curve:
    """Step time of the baseline and its repeats over blocks, against the baseline's own median."""
    arms = [facts.baseline, *facts.repeats]
    chosen = measured.blocks[
        (measured.blocks["recording"] == facts.recording) & (measured.blocks["metric"] == facts.metric)
    ]
    first = chosen[chosen["arm"] == arms[0]]["value"]
    middle = float(first.median()) if len(first) else float("nan")
    series = []
    for arm in arms:
        rows = chosen[chosen["arm"] == arm].sort_values("block")
        points = tuple(
            (float(row["block"]), Interval(arm, float(row["value"]) / middle - 1, None, None))
            for row in records(rows)
        )
        if points:
            series.append((arm, points))
    return Curve(
        "drift",
        "The same build, block after block",
        "Step time of the baseline and of its repeat in each block. A trend here is drift of the machine.",
        "block",
        f"against the baseline's median ({units.duration_us(middle)})",
        tuple(series),
    )


def families(document: Document, margin: float | None) -> list[Curve]:
    """A curve per family of numbered arms, such as 1, 2, 4 ... further streams."""
    by_name = {item["arm"]: item for item in document["arms"]}
    made = []
    for family, members in numbered_families(list(by_name)).items():
        points = tuple((number, _interval(by_name[name])) for number, name in members)
        numbers = np.array([number for number, _ in members])
        made.append(
            Curve(
                f"family-{family}",
                f"Arms {family}_N",
                f"Change of time over N, the number in the name of the arm: {_numbers(points)}.",
                f"N in {family}_N",
                "time against the baseline",
                ((family, points),),
                band=margin,
                log_x=bool(numbers.min() > 0 and numbers.max() / numbers.min() >= 8),
            )
        )
    return made


def _numbers(points: Sequence[tuple[float, Interval]]) -> str:
    return ", ".join(f"{units.signed_percent(point.value)} at {x:g}" for x, point in points)
