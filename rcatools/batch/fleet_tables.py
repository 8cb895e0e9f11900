"""The fleet as tables and sentences, for the terminal, the notebook and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rcatools import units
from rcatools.report.charts import Forest, Interval
from rcatools.report.safe import clean
from rcatools.report.table import Cell, Table, make

TONES = {"slower": "bad", "faster": "good", "equivalent": "calm", "undecided": "open"}
SHOWN = 500
SHOWN_POINTS = 80

Document = Mapping[str, Any]


def sentences(document: Document) -> list[str]:
    """What stands out, in a few lines."""
    counts, verdicts = document["counts"], document["verdicts"]
    lines = [
        f"{counts['recordings']} recordings ({document['superseded']} of broken-off attempts set aside), "
        f"{counts['reports']} reports, {counts['jobs']} jobs, {counts['problems']} files that could not be read."
    ]
    if verdicts:
        lines.append("Verdicts: " + ", ".join(f"{count} {name}" for name, count in verdicts.items()) + ".")
    if document["jobs"]:
        lines.append(
            "Jobs: " + ", ".join(f"{count} {name}" for name, count in document["jobs"].items()) + "."
        )
    lines += [odd_sentence(item) for item in document["odd"][:10]]
    if len(document["odd"]) > 10:
        lines.append(f"{len(document['odd']) - 10} more machines or days stand out.")
    if not document["odd"]:
        lines.append("No machine and no day stands out from its peers (or there are fewer than four).")
    return lines


def odd_sentence(item: Document) -> str:
    """One sentence on a machine or day that stands out."""
    change = units.signed_percent(item["deviation"])
    quantity = {"level": "its baseline is", "noise": "its A/A noise is"}.get(
        item["quantity"], f"the effect of {clean(item['quantity'], 80)} is"
    )
    return (
        f"The {item['what']} {clean(item['name'], 80)} is odd: {quantity} {change} against the median of "
        f"{item['peers']} others ({item['recordings']} recordings, {abs(item['z']):.1f} scaled deviations)."
    )


def bisect_sentences(found: Document) -> list[str]:
    """What a bisect says, and what to do next."""
    chance = units.percent(found["probability"])
    if found["state"] == "found":
        interval = units.interval(found["ci_low"], found["ci_high"])
        return [
            f"First bad commit: {found['first_bad']} (probability {chance}); the level steps by "
            f"{units.change(found['step'])} {interval}, verdict {found['verdict']}, {found['recordings']} recordings."
        ]
    if found["state"] == "no_step":
        return [f"No step among these commits (probability {units.percent(found['probability_no_step'])})."]
    few = ", ".join(found["candidates"][:8]) + (", ..." if len(found["candidates"]) > 8 else "")
    lines = [
        f"Undecided after {found['recordings']} recordings: {len(found['candidates'])} candidates, {few}."
    ]
    if found["next"]:
        lines.append(f"Measure next: {found['next']}")
    return lines


def arms_table(document: Document) -> Table:
    """Verdicts per arm over all recordings."""
    return make(
        "Verdicts by arm",
        ("arm", "recordings", "median change", "range", "slower", "faster", "equivalent", "undecided"),
        [
            (
                Cell(row["arm"], code=True),
                str(row["recordings"]),
                units.change(row["ratio"]),
                f"{units.change(row['lowest'])} to {units.change(row['highest'])}",
                *(str(row[verdict]) for verdict in TONES),
            )
            for row in document["arms"]
        ],
        numeric=range(1, 8),
    )


def machines_table(document: Document) -> Table:
    """Noise floor per machine."""
    odd = {item["name"] for item in document["odd"] if item["what"] == "machine"}
    return make(
        "Machines",
        ("machine", "device", "recordings", "days", "noise floor (median)", "worst", "failed runs", "odd"),
        [
            (
                Cell(row["machine"], code=True),
                row["device"],
                str(row["recordings"]),
                str(row["days"]),
                units.percent(row["noise_floor"]),
                units.percent(row["worst_noise_floor"]),
                str(row["failed_runs"]),
                Cell("odd", tone="bad") if row["machine"] in odd else "",
            )
            for row in document["machines"][:SHOWN]
        ],
        numeric=range(2, 7),
        note=_cut(len(document["machines"])),
    )


def rows_table(jobs: list[Document]) -> Table:
    """The state and verdict of every row of the sweeps."""
    shown = [
        (
            Cell(str(job["name"] or job["job"]), code=True),
            str(job["kind"] or ""),
            Cell(str(job["state"]), tone="" if job["state"] == "done" else "bad"),
            Cell(str(job["verdict"] or ""), tone=TONES.get(job["verdict"] or "", "")),
            str(job["attempts"]),
            str(job["error"] or ""),
        )
        for job in jobs[:SHOWN]
    ]
    columns = ("row", "kind", "state", "verdict", "attempts", "error")
    return make("Rows of the sweeps", columns, shown, numeric=(4,), note=_cut(len(jobs)))


def problems_table(document: Document) -> Table:
    """Files that could not be read."""
    rows = [(Cell(item["path"], code=True), item["reason"]) for item in document["problems"]]
    note = _cut(document["counts"]["problems"], len(rows))
    return make("Could not be read", ("path", "reason"), rows, note=note)


def arms_chart(document: Document, margin: float) -> Forest:
    """Median and range of each arm's change over all recordings."""
    return Forest(
        id="fleet-arms",
        title="Change of each arm over all recordings",
        description="Median over recordings; the bar reaches from the lowest to the highest recording.",
        axis="change against the baseline of the same recording",
        rows=tuple(
            Interval(
                label=f"{row['arm']} ({row['recordings']})",
                value=row["ratio"] - 1,
                low=row["lowest"] - 1,
                high=row["highest"] - 1,
            )
            for row in document["arms"][:SHOWN_POINTS]
        ),
        band=margin,
        value_name="Median",
    )


def trend_chart(found: Document, margin: float) -> Forest:
    """The value of every measured commit against the level of the first."""
    measured = [row for row in found["commits"] if row["value"] is not None]
    first = measured[0]["value"] if measured else 1.0
    tones = {"bad": "bad", "good": "calm", "undecided": "open"}
    return Forest(
        id="trend",
        title=f"{found['quantity']} over commits",
        description="Mean of each measured commit against the first one, oldest on top.",
        axis="change against the first commit",
        rows=tuple(
            Interval(
                label=f"{row['commit'][:12]} ({row['recordings']})",
                value=row["value"] / first - 1,
                low=None,
                high=None,
                tone=tones[row["verdict"]],
                note=row["verdict"],
            )
            for row in measured[-SHOWN_POINTS:]
        ),
        band=margin,
    )


def _cut(total: int, shown: int = SHOWN) -> str:
    return f"{total - shown} more are in the store" if total > shown else ""
