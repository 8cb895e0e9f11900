"""Two profiler traces as what a notebook shows: tables, shares, roofline, distributions, and their difference.

profiles = trace_items.open_profiles(investigation, recordings)          # the recording's own traces
profiles = trace_items.open_profiles(investigation, (), ["a.json.gz", "b.json.gz"])   # any two files
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rcatools.errors import InputError
from rcatools.recording import Recording, open_recording
from rcatools.report import trace_ceilings, trace_tables
from rcatools.report.charts import Drawn
from rcatools.report.locate import recording_folders
from rcatools.report.session import Case
from rcatools.report.table import Table
from rcatools.report.trace_figures import (
    delta_figure,
    distribution_figure,
    gaps_figure,
    roofline_figure,
    share_figure,
    waterfall_figure,
)
from rcatools.trace.bounds import Ceilings
from rcatools.trace.diff import TraceDiff, diff
from rcatools.trace.gaps import gaps
from rcatools.trace.health import health
from rcatools.trace.model import Trace
from rcatools.trace.read import load_trace
from rcatools.trace.summary import Summary, summarize
from rcatools.trace.work import Work
from rcatools.units import duration_us

Items = list[Drawn | Table | str]
ROLES = ("baseline", "repeat", "suspect")
NOTEBOOK = "02_profile_kernels"


@dataclass(frozen=True)
class Profiles:
    """Traces to show, read once.

    Attributes:
        a: label of the baseline, "" where there is no trace at all.
        b: label of the candidate, "" where there is one trace only.
        traces: by label: a, b, and further runs whose distributions stand beside them.
        ceilings: of the device, for the roofline; None where unknown.
        declared: work of one launch by a part of the kernel's name.
        missing: why there is nothing to show, one sentence; "" otherwise.
        given: the traces are files that somebody gave, not a recording's.
    """

    a: str = ""
    b: str = ""
    traces: Mapping[str, Trace] = field(default_factory=dict)
    ceilings: Ceilings | None = None
    declared: Mapping[str, Work] = field(default_factory=dict)
    missing: str = ""
    given: bool = False

    @cached_property
    def summaries(self) -> dict[str, Summary]:
        """The summaries of a and b."""
        pair = [label for label in (self.a, self.b) if label]
        return {label: summarize(self.traces[label], self.ceilings, self.declared) for label in pair}

    @cached_property
    def difference(self) -> TraceDiff | None:
        """b against a; None where one of them holds no GPU activity."""
        if not self.b or not all(len(self.traces[label].kernels) for label in (self.a, self.b)):
            return None
        return diff(self.traces[self.a], self.traces[self.b], self.ceilings)


def open_profiles(
    investigation: str,
    recordings: Sequence[str] = (),
    files: Sequence[str] = (),
    ceilings: str = "",
) -> Profiles:
    """Two trace files, or those that the first recording holds of its baseline and its suspect.

    Args:
        investigation: folder name in data/investigations.
        recordings: folders or names of embedded recordings; none: the embedded ones.
        files: one trace file of any known format, or two to compare, the baseline first; none: the recording's.
        ceilings: roofline.csv or JSON for the roofline; "" takes the recording's or the data sheet's.

    Raises:
        InputError: a file is missing or is no trace, or there are more than two.
    """
    if len(files) > 2:
        raise InputError(f"{len(files)} trace files are given: give one, or two to compare")
    if files:
        return _of_files(files, ceilings)
    return _of_recording(open_recording(recording_folders(investigation, recordings)[0]), ceilings)


def _of_files(paths: Sequence[str], ceilings: str) -> Profiles:
    names = [Path(path).name for path in paths]
    labels = names if len(set(names)) == len(names) else [f"{side}: {name}" for side, name in zip("ab", names, strict=True)]  # fmt: skip
    traces = {label: load_trace(path) for label, path in zip(labels, paths, strict=True)}
    kinds = {name for trace in traces.values() for name in trace.devices.values() if name}
    known = trace_ceilings.for_devices(kinds, ceilings or None) if len(kinds) <= 1 else None
    return Profiles(labels[0], labels[1] if len(labels) > 1 else "", traces, known, given=True)


def _of_recording(recording: Recording, ceilings: str) -> Profiles:
    manifest = recording.manifest
    by_role: dict[str, list[str]] = {role: [] for role in ROLES}
    for arm in manifest.design["arms"]:
        if arm["name"] in recording.traces and arm.get("role") in by_role:
            by_role[arm["role"]].append(arm["name"])
    chosen = [*by_role["baseline"][:1], *by_role["repeat"], *by_role["suspect"][:1]]
    if not by_role["baseline"]:
        return Profiles(missing=f"The recording {recording.name} holds no trace of its baseline.")
    traces = {arm: load_trace(recording.traces[arm]) for arm in chosen}
    device = manifest.device.get("name")
    known = (
        trace_ceilings.for_devices([device], ceilings)
        if ceilings
        else trace_ceilings.of_recording(manifest.ceilings, device, f"measured in {recording.name}")
    )
    declared = {
        str(kernel["name"]): Work(float(kernel["bytes"]), float(kernel["flops"]), "bf16")
        for kernel in manifest.workload.get("kernels", ())
        if {"name", "bytes", "flops"} <= set(kernel)
    }
    suspect = by_role["suspect"][:1] or by_role["repeat"][:1]
    return Profiles(by_role["baseline"][0], suspect[0] if suspect else "", traces, known, declared)


def about(profiles: Profiles) -> Items:
    """What the traces are, and what their health forbids to conclude."""
    if profiles.missing:
        return [profiles.missing]
    return [trace_tables.traces(profiles.summaries, {label: health(profiles.traces[label]) for label in profiles.summaries})]  # fmt: skip


def kernels(profiles: Profiles, top: int = 20) -> Items:
    """Per trace: the kernels by time with their share, roles and bounds, as a table and as bars."""
    items: Items = []
    for label, summary in profiles.summaries.items():
        if len(summary.kernels):
            items.append(Drawn(share_figure(summary, top, label), trace_tables.first(trace_tables.kernels(summary, label), top)))  # fmt: skip
    return items


def roofline(profiles: Profiles) -> Items:
    """The kernels whose work is known, under the ceilings; or why there is no such plot."""
    if not profiles.summaries:
        return []
    if profiles.ceilings is None:
        return ["No roofline: the ceilings are not known, or the traces come from different devices. Give the traces of one device, and roofline.csv or JSON as `ceilings`."]  # fmt: skip
    items: Items = []
    for label, summary in profiles.summaries.items():
        drawn = Drawn(roofline_figure(summary, profiles.ceilings, label=label), trace_tables.roofline(summary, label))  # fmt: skip
        items.append(drawn if drawn.table.rows else f"No roofline of {label}: the work of none of its kernels is known (no recorded shapes, nothing declared).")  # fmt: skip
    return items


def distributions(profiles: Profiles, top: int = 6) -> Items:
    """Durations of the launches of each kernel in every run that has a trace."""
    traces = {label: trace for label, trace in profiles.traces.items() if len(trace.only_kernels())}
    if not traces:
        return []
    return [Drawn(distribution_figure(traces, top), trace_tables.distributions(traces, top))]


def difference(profiles: Profiles, top: int = 20) -> Items:
    """The difference of the two: waterfall, change against duration, gaps, kernels, and what it says."""
    found = profiles.difference
    if found is None:
        return ["No comparison: it takes two traces with GPU activity."] if profiles.summaries else []
    pair = {label: profiles.traces[label] for label in (profiles.a, profiles.b)}
    counts = gaps(pair[profiles.a]).table["place"].value_counts()
    place = str(counts.idxmax()) if len(counts) else "eager"
    spans = [duration_us(span, 4) for span in found.spans_us]
    return [
        f"{profiles.b} against {profiles.a}: {spans[1]} against {spans[0]}, read as {found.reading}.",
        *found.statements,
        Drawn(waterfall_figure(found), trace_tables.terms(found)),
        Drawn(delta_figure(found), trace_tables.classes(found)),
        Drawn(gaps_figure(pair, place), trace_tables.boundaries(pair, place)),
        trace_tables.first(trace_tables.changes(found), top),
    ]


def answer(profiles: Profiles, case: Case) -> list[str]:
    """The answer of the case, with what files that were given say in front."""
    sentences = case.sentences(NOTEBOOK)
    found = profiles.difference if profiles.given else None
    if found is None:
        return sentences
    return [f"The files given, {profiles.b} against {profiles.a}, are read as {found.reading}. {found.statements[0]}", *sentences]  # fmt: skip
