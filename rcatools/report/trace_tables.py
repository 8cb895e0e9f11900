"""Tables of profiler traces for notebooks: the numbers beside the figures of ``trace_figures``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from rcatools.report.measured import harmless_text
from rcatools.report.table import Cell, Table, make
from rcatools.trace.decompose import TERMS
from rcatools.trace.diff import TraceDiff
from rcatools.trace.gaps import gaps
from rcatools.trace.health import Health
from rcatools.trace.model import Trace
from rcatools.trace.records import records
from rcatools.trace.summary import Summary
from rcatools.units import NOT_AVAILABLE, duration_us, percent, significant

LONGEST_NAME = 80


def first(table: Table, count: int) -> Table:
    """The first rows; the note says how many more there are and where."""
    left = len(table.rows) - count
    if left <= 0:
        return table
    note = (
        f"{left} more rows: 'rcatools trace summary' and 'rcatools trace diff' with --json print all of them"
    )
    return replace(
        table, rows=table.rows[:count], note="; ".join(text for text in (table.note, note) if text)
    )


def _name(name: object) -> Cell:
    text = str(harmless_text(str(name)))
    return Cell(
        text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 16]}...{text[-13:]}", code=True
    )


def traces(summaries: Mapping[str, Summary], checked: Mapping[str, Health]) -> Table:
    """One row per trace and device: what is in it, and what may not be concluded from it."""
    rows = []
    for label, summary in summaries.items():
        held = summary.coverage
        linked = f"{held.linked} of {held.kernels} ({held.graph} from graphs)"
        blocks = ", ".join(checked[label].blocks) or "nothing found against it"
        for device in summary.devices:
            idle = "not to be read" if device.idle_us is None else duration_us(device.idle_us, 4)
            rows.append([_name(label), str(harmless_text(device.name or "name not recorded")), str(device.kernels), duration_us(device.kernel_us, 5),
                         duration_us(device.busy_us, 5), duration_us(device.span_us, 5), idle, linked, str(held.dropped_events), blocks])  # fmt: skip
        if not summary.devices:
            rows.append([_name(label), "no GPU activity", "0", *[""] * 6, blocks])
    columns = ["Trace", "Device", "Kernels", "In kernels", "Busy", "Span", "Idle", "Linked to a launch", "Left out", "May not be concluded"]  # fmt: skip
    return make("The traces", columns, rows, numeric=range(2, 7))


def kernels(summary: Summary, label: str) -> Table:
    """All kernels of a trace by total time."""
    rows = [
        [_name(row["name"]), row["role"], str(row["count"]), duration_us(row["total_us"]), percent(row["share"]), duration_us(row["median_us"]),
         duration_us(row["p95_us"]), row["bound"], f"{percent(row['work_coverage'])} of the launches: {row['bound_basis']}" if row["work_coverage"] else row["bound_basis"]]
        for row in records(summary.kernels)
    ]  # fmt: skip
    held = summary.coverage
    note = f"{held.kernels} kernels, {duration_us(held.kernel_us, 4)}; {held.unlinked} ({duration_us(held.unlinked_us, 4)}) have no launch in the file"  # fmt: skip
    columns = ["Kernel", "Role", "Launches", "Total", "Share", "Median", "95 %", "Bound", "Basis"]
    return make(f"Kernels of {label}", columns, rows, numeric=range(2, 7), note=note)


def roofline(summary: Summary, label: str) -> Table:
    """The kernels whose bytes and operations are known."""
    rows = [
        [_name(row["name"]), row["bound"], percent(row["share"]), f"{significant(row['bytes_per_s'] / 1e12)} TB/s",
         f"{significant(row['flops_per_s'] / 1e12)} TFLOP/s", significant(row["flops_per_s"] / row["bytes_per_s"]), row["bound_basis"]]
        for row in records(summary.kernels)
        if (row["bytes_per_s"] or 0) > 0 and (row["flops_per_s"] or 0) > 0
    ]  # fmt: skip
    columns = ["Kernel", "Bound", "Share of time", "Bandwidth", "Rate", "Operations per byte", "Basis"]
    note = f"{len(rows)} of {len(summary.kernels)} kernels: those whose work is known from shapes or declared"
    return make(f"Roofline of {label}", columns, rows, numeric=range(2, 6), note=note)


def distributions(traces: Mapping[str, Trace], top: int) -> Table:
    """Launches of each kernel by run: how many, and their quantiles."""
    names = largest_kernels(traces, top)
    rows = []
    for name in names:
        for label, trace in traces.items():
            table = trace.only_kernels()
            part = table.loc[table["name"].astype(object) == name, "dur_us"]
            if len(part):
                rows.append([_name(name), Cell(label, code=True), str(len(part)), *(duration_us(float(part.quantile(q))) for q in (0, 0.25, 0.5, 0.75, 0.95, 1))])  # fmt: skip
    columns = ["Kernel", "Run", "Launches", "Shortest", "25 %", "Median", "75 %", "95 %", "Longest"]
    return make("Duration of each launch, by run", columns, rows, numeric=range(2, 9))


def largest_kernels(traces: Mapping[str, Trace], top: int) -> list[str]:
    """Names of the kernels with the most time over all traces."""
    totals: dict[str, int] = {}
    for trace in traces.values():
        for name, time in trace.only_kernels().groupby("name", observed=True)["dur_ns"].sum().items():
            totals[str(name)] = totals.get(str(name), 0) + int(time)
    return sorted(totals, key=lambda name: (-totals[name], name))[:top]


def terms(difference: TraceDiff) -> Table:
    """The terms of a difference, which add up."""
    rows = [[term, f"{difference.terms[f'{term}_us']:+.3f} us"] for term in TERMS]
    rows.append(["total", f"{difference.total_delta_us:+.3f} us"])
    shares = [percent(share) for share in difference.aligned_share]
    note = f"aligned: {shares[0]} of the kernel time of a, {shares[1]} of b"
    return make("Where the difference comes from", ["Term", "Change of the span"], rows, numeric=(1,), note=note)  # fmt: skip


def classes(difference: TraceDiff) -> Table:
    """Fixed and proportional change of aligned kernels: all together, then by role and bound."""
    fit = difference.fit
    low, high = fit.ratio_ci
    rows = [["all", "", str(fit.launches), _signed(fit.us_per_kernel), _between(*fit.us_ci), _change(fit.ratio), _between_ratios(low, high), fit.reading]]  # fmt: skip
    for row in records(difference.classes):
        rows.append([row["by"], row["class"], str(row["launches"]), _signed(row["us_per_kernel"]), _between(row["us_low"], row["us_high"]), _change(row["ratio"]), _between_ratios(row["ratio_low"], row["ratio_high"]), row["reading"]])  # fmt: skip
    columns = ["By", "Class", "Launches", "Fixed per launch", "99 % interval", "In proportion", "99 % interval", "Reading"]  # fmt: skip
    return make("Change of kernels that both have", columns, rows, numeric=range(2, 7), note=fit.why)


def boundaries(pair: Mapping[str, Trace], place: str) -> Table:
    """Idle time at boundaries of each trace, all of them and those of one place."""
    rows = []
    for label, trace in pair.items():
        found = gaps(trace)
        for where, name in ((None, "all"), (place, place)):
            stats = found.statistics(where)
            median = NOT_AVAILABLE if stats["median_us"] is None else duration_us(stats["median_us"])
            rows.append([_name(label), name, str(stats["count"]), median, duration_us(stats["sum_us"], 4)])
    return make("Idle time between consecutive activities", ["Trace", "Where", "Boundaries", "Median", "Sum"], rows, numeric=(2, 3, 4))  # fmt: skip


def changes(difference: TraceDiff) -> Table:
    """Every row of the difference, largest change first."""
    rows = []
    for row in records(difference.kernels):
        names = dict.fromkeys(name for name in (row["name_a"], row["name_b"]) if name)
        rows.append([_name(" -> ".join(str(_name(name).text) for name in names)), row["role"], row["term"], str(row["count_a"]), str(row["count_b"]), f"{row['delta_us']:+.3f} us",
                     _change(row["ratio"]), NOT_AVAILABLE if row["q_value"] is None else significant(row["q_value"]), "yes" if row["changed"] else ""])  # fmt: skip
    columns = ["Kernel", "Role", "Term", "Launches a", "Launches b", "Change", "Per call", "q", "Changed"]
    note = "q: signed-rank test over the launches of these two traces, false discovery held at 5 %; it does not speak of other processes"  # fmt: skip
    return make("What changed", columns, rows, numeric=range(3, 8), note=note)


def _signed(value: float | None) -> str:
    return NOT_AVAILABLE if value is None or not math.isfinite(value) else f"{value:+.3f} us"


def _change(ratio: float | None) -> str:
    return NOT_AVAILABLE if ratio is None or not math.isfinite(ratio) else f"{100 * (ratio - 1):+.2f} %"


def _between(low: float | None, high: float | None) -> str:
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return NOT_AVAILABLE
    return f"{low:+.3f} to {high:+.3f} us"


def _between_ratios(low: float | None, high: float | None) -> str:
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return NOT_AVAILABLE
    return f"{100 * (low - 1):+.2f} to {100 * (high - 1):+.2f} %"
