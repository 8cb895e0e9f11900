"""Tables and charts of vime-decode: collectives, latency by form and ranks, captures, hazards, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from rcatools import units
from rcatools.diagnosis.graph_hazards import GraphHazards
from rcatools.recording import Recording
from rcatools.recording.provenance import ProvenanceDifference
from rcatools.report.charts import Curve, Interval
from rcatools.report.figures import records
from rcatools.report.measured import Measured
from rcatools.report.table import Cell, Table, make
from rcatools.report.words import VERDICT_TONE
from rcatools.stats.paired import compare_blocks
from rcatools.stats.records import Comparison
from rcatools.units import counted

RATIO_AXIS = "time against the baseline (right is slower)"


def _facts(measured: Measured, recording: str) -> pd.DataFrame:
    runs = measured.runs[(measured.runs["recording"] == recording) & (measured.runs["block"] >= 0)]
    return runs[runs["outcome"] == "ok"]


def world_sizes(measured: Measured, recording: str) -> list[int]:
    """World sizes the recording counted collectives for."""
    prefix = "collectives_per_call_"
    runs = _facts(measured, recording)
    names = [name.removeprefix(prefix) for name in runs.columns if name.startswith(prefix)]
    return sorted(int(n) for n in names if n.isdigit() and runs[prefix + n].notna().any())


def judged_world(measured: Measured, recording: str) -> int:
    """The world size whose metrics carry no number; 0 where none does."""
    numbered = set(measured.blocks[measured.blocks["recording"] == recording]["metric"])
    left = [w for w in world_sizes(measured, recording) if f"exchange_{w}_us" not in numbered]
    return left[0] if left else 0


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
        found[str(arm)] = interval_of(str(arm), comparison)
    return found


def interval_of(label: str, comparison: Comparison) -> Interval:
    """A comparison as a point of a chart, as change of time."""
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


def captures(graphs: GraphHazards | None) -> Table:
    """Which forms a graph takes, and whether a replay on new inputs is right."""
    rows = []
    for item in records(graphs.captures) if graphs is not None else []:
        captured = bool(item["captured"])
        right = {True: "right", False: "wrong", None: ""}[item["replay_equal"]]
        rows.append(
            [
                Cell(str(item["form"]), code=True),
                Cell("captured" if captured else "refused", tone="good" if captured else "bad"),
                right,
                "" if pd.isna(item["at_capture"]) else str(int(item["at_capture"])),
                "" if pd.isna(item["at_replay"]) else str(int(item["at_replay"])),
                str(item["error"]),
            ]
        )
    return make(
        f"Capture in a graph, {graphs.device}" if graphs is not None else "Capture in a graph",
        ["Form", "Capture", "Replay", "Issued at capture", "Issued at replay", "Error"],
        rows,
        numeric=(3, 4),
    )


def replays(graphs: GraphHazards | None) -> Table:
    """Time of one exchange, launched eagerly and inside a replayed graph: medians over processes."""
    if graphs is None or graphs.times.empty:
        return make("One exchange on a GPU", [], [])
    rows = []
    for (how, form), part in graphs.times.groupby(["how", "form"]):
        medians = part.groupby(["rows", "process"])["us"].median().groupby("rows").median()
        rows.append([str(how), Cell(str(form), code=True), *(units.duration_us(float(v)) for v in medians)])
    counts = sorted(graphs.times["rows"].unique())
    alone = " One rank has no transport: launches and copies alone." if graphs.world == 1 else ""
    return make(
        f"One exchange on {graphs.device}, {counted(graphs.world, 'rank')}",
        ["Launched", "Form", *(counted(int(count), "row") for count in counts)],
        rows,
        numeric=range(2, 2 + len(counts)),
        note=f"Median of {counted(graphs.times['process'].nunique(), 'process', 'processes')}.{alone}",
    )


def hazards(table: pd.DataFrame) -> Table:
    """The demonstrations: what was met by which form and what came out."""
    made = []
    for row in records(table):
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


def provenance(differences: Sequence[ProvenanceDifference], first: Recording, second: Recording) -> Table:
    """Where two recordings come from different code or surroundings."""
    rows = [[item.kind, Cell(item.key, code=True), item.first, item.second] for item in differences]
    return make("What the recordings do not share", ["Kind", "What", first.name, second.name], rows)
