"""How much may run on further streams before every boundary between graph kernels costs more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from rcatools.errors import InputError, UnavailableError
from rcatools.experiment.arms import Action
from rcatools.experiment.cliff import LEAST_STEP, Condition, summarize, sweep
from rcatools.experiment.worker import arm_from_dict
from rcatools.recording.reader import Recording

METRIC = "boundary_us"
PROCESSES = 5
LAUNCHES = 40  # in a row on one further stream: do launches count, or streams?


@dataclass(frozen=True)
class Limit:
    """What is known about a machine's limit of work on further streams.

    Attributes:
        source: "measured here" or the recording's name; a recording's price is read after its decode step, and the
            graph that reads it counts too, so its place comes earlier than that of the step.
        device: its name.
        points: rows of "streams" (further streams that ran one kernel each), "us" (price of one boundary, median),
            "low", "high" (range over processes) and "processes".
        safe: most further streams that still had the low price, None where the price never rose.
        stepped: fewest that had the high price, None where it never rose.
        low_us, high_us: the two prices.
        cost_us, cost_ci: what one boundary costs more, and its 95 % interval where there are several processes.
        one_stream: "launches" in a row on one single further stream, with "us", "low", "high" and "processes" as in
            points, and "reached": whether that alone brought the high price; None where it was not tried.
    """

    source: str
    device: str
    points: list[dict[str, Any]]
    safe: int | None
    stepped: int | None
    low_us: float
    high_us: float | None
    cost_us: float | None
    cost_ci: list[float] | None
    one_stream: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def measure_limit(torch: Any, device: str, report: Callable[[dict[str, Any]], None]) -> Limit:
    """Measure on this machine's GPU, in processes of their own.

    Raises:
        UnavailableError: there is no GPU, or no process gave a curve.
    """
    several, one = Condition(), Condition(act=f"add{LAUNCHES}", most=0)
    rows = sweep(torch, [several, one], PROCESSES, report)
    curves = [row["curve"] for row in rows if row["condition"] == several.name and "curve" in row]
    if not curves:
        raise UnavailableError(f"no process could measure: {rows[0]['error']}")
    found, table = summarize(curves), np.asarray(curves)
    points = [
        {
            "streams": k,
            "us": float(np.median(column)),
            "low": float(column.min()),
            "high": float(column.max()),
            "processes": len(curves),
        }
        for k, column in enumerate(table.T)
    ]
    first = found["at_low"]
    return Limit(
        source="measured here",
        device=device,
        points=points,
        safe=None if first is None else first - 1,
        stepped=found["at_high"],
        low_us=found["low_us"],
        high_us=found["high_us"],
        cost_us=found["cost_us"],
        cost_ci=found["cost_ci"],
        one_stream=_one_stream(
            pd.Series([row["curve"][0] for row in rows if row["condition"] == one.name and "curve" in row]),
            LAUNCHES,
            found["low_us"],
        ),
    )


def recorded_limit(recording: Recording) -> Limit:
    """The same from a recording whose arms ran a kernel on further streams and did nothing else.

    Raises:
        InputError: the recording has no boundary price, or no such arms.
    """
    samples = recording.samples[(recording.samples["metric"] == METRIC) & (recording.samples["block"] >= 0)]
    counts = {a["name"]: k for a in recording.manifest.design["arms"] if (k := touched(a)) is not None}
    every = samples.groupby(["run", "arm"])["value"].median().reset_index()
    runs = every[every["arm"].isin(counts)].copy()
    if runs.empty:
        raise InputError(
            f"recording {recording.name} has no {METRIC} of arms that only touch streams: record streams_2 to streams_16 on a GPU"
        )
    runs["streams"] = runs["arm"].map(counts)
    points = _points(runs)
    device = str(recording.manifest.device.get("name"))
    low = [p for p in points if p["us"] < LEAST_STEP * points[0]["us"]]
    high = [p for p in points if p["us"] >= LEAST_STEP * points[0]["us"]]
    low_runs = runs[runs["streams"].isin([p["streams"] for p in low])]["value"]
    high_runs = runs[runs["streams"].isin([p["streams"] for p in high])]["value"]
    cost, ci = _difference(low_runs, high_runs)
    rows = {a["name"]: n for a in recording.manifest.design["arms"] if (n := launched(a)) is not None}
    most = max(rows, key=rows.__getitem__, default=None)
    one_stream = None
    if most is not None:
        one_stream = _one_stream(every[every["arm"] == most]["value"], rows[most], float(low_runs.mean()))
    return Limit(
        one_stream=one_stream,
        source=recording.name,
        device=device,
        points=points,
        safe=max(p["streams"] for p in low) if high else None,
        stepped=min(p["streams"] for p in high) if high else None,
        low_us=float(low_runs.mean()),
        high_us=float(high_runs.mean()) if high else None,
        cost_us=cost,
        cost_ci=ci,
    )


def touched(declaration: dict[str, Any]) -> int | None:
    """Further streams on which an arm runs one tiny kernel, or None if it differs from the baseline otherwise."""
    actions = _only_actions(declaration)
    if actions is None or any(action.name != "touch_streams" for action in actions):
        return None
    return sum(int(action.argument or 0) for action in actions)


def launched(declaration: dict[str, Any]) -> int | None:
    """Tiny kernels that an arm queues in a row on one further stream, or None if it does anything else."""
    actions = _only_actions(declaration)
    if not actions or len(actions) > 1 or actions[0].name != "launches":
        return None
    return int(actions[0].argument or 0)


def _only_actions(declaration: dict[str, Any]) -> list[Action] | None:
    """Actions of an arm that differs from the baseline in nothing else, None for other arms."""
    arm = arm_from_dict(declaration)
    plain = arm.profile == "none" and arm.kv == "free" and arm.capture == "fresh" and arm.empty_cache
    if not plain or arm.step or arm.env or arm.scratch:
        return None
    return [action for items in arm.actions.values() for action in items]


def sentences(limit: Limit) -> list[str]:
    """The answer in words, with what to do."""
    where = f"{limit.device} ({limit.source})"
    if limit.stepped is None or limit.cost_us is None:
        most = limit.points[-1]["streams"]
        return [
            f"{where}: one boundary between graph kernels costs {limit.low_us:.3f} us with one kernel launched on each "
            f"of 0 to {most} further streams; no step was seen",
            *_about_one_stream(limit),
        ]
    if limit.source != "measured here":
        where += ", read after decode, which counts too"
    interval = f", 95 % interval {limit.cost_ci[0]:.3f} to {limit.cost_ci[1]:.3f}" if limit.cost_ci else ""
    further = "further streams that ran one kernel each"
    if limit.safe is not None and limit.stepped - limit.safe == 1:
        place = f"with up to {limit.safe} {further}, and from {limit.stepped} on"
    else:
        place = f"with up to {limit.safe} {further}, and at the latest from {limit.stepped} on"
    return [
        f"{where}: one boundary between graph kernels costs {limit.low_us:.3f} us {place} {limit.high_us:.3f} us "
        f"(+{limit.cost_us:.3f} us{interval})",
        *_about_one_stream(limit),
        f"a graph of 1,000 kernels loses {1000 * limit.cost_us:.0f} us to it in every replay",
        "the state belongs to the process, and what it ran before counts too: a process that did more before reaches "
        "it sooner; see docs/streams.md",
    ]


def _about_one_stream(limit: Limit) -> list[str]:
    if limit.one_stream is None:
        return ["whether launches or streams count was not measured"]
    row = limit.one_stream
    price = f"{row['launches']} kernels in a row on one single further stream: {row['us']:.3f} us"
    if row["reached"]:
        return [f"{price}. That alone reaches the high price, so launches count and not streams alone"]
    return [f"{price}. That does not reach the high price"]


def _one_stream(prices: pd.Series, launches: int, low_us: float) -> dict[str, Any] | None:
    """The price after many launches on one further stream, None without a process that measured it."""
    if prices.empty:
        return None
    median = float(prices.median())
    row: dict[str, Any] = {"launches": launches, "us": median}
    row |= {"low": float(prices.min()), "high": float(prices.max()), "processes": len(prices)}
    return row | {"reached": bool(median >= LEAST_STEP * low_us)}


def _points(runs: pd.DataFrame) -> list[dict[str, Any]]:
    points = []
    for streams, values in sorted((int(k), g) for k, g in runs.groupby(runs["streams"].astype(int))["value"]):
        row: dict[str, Any] = {"streams": streams, "us": float(values.median())}
        row |= {"low": float(values.min()), "high": float(values.max()), "processes": len(values)}
        points.append(row)
    return points


def _difference(low: pd.Series, high: pd.Series) -> tuple[float | None, list[float] | None]:
    """Difference of means with Welch's 95 % interval."""
    from scipy import stats

    if high.empty:
        return None, None
    difference = float(high.mean() - low.mean())
    if min(len(low), len(high)) < 2:
        return difference, None
    ci = stats.ttest_ind(high, low, equal_var=False).confidence_interval(0.95)
    return difference, [float(ci.low), float(ci.high)]
