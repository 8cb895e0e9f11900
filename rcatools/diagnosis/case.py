"""The evidence at hand: recordings of one device, tables, and what is read from them once.

Recordings of different devices or workloads are never pooled: the first recording given decides, recordings like
it add arms, the others are only listed. A check looks at one recording.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rcatools.diagnosis.alike import unlike
from rcatools.diagnosis.conditions import Conditions
from rcatools.diagnosis.investigation import Investigation
from rcatools.diagnosis.means import Mean, mean_over_blocks
from rcatools.diagnosis.quantities import evaluate
from rcatools.diagnosis.steps import StepFigures, step_figures
from rcatools.diagnosis.vocabulary import Quantity
from rcatools.errors import RcaError
from rcatools.memory.read import load_snapshot
from rcatools.memory.snapshot import Snapshot
from rcatools.recording import Recording
from rcatools.stats import noise
from rcatools.stats.paired import compare_blocks
from rcatools.stats.records import Comparison, NoiseFloor, Reason, Verdict
from rcatools.trace.read import load_trace

Floats = NDArray[np.float64]


class Case:
    """An investigation with its recordings and tables.

    Args:
        investigation: what is asked.
        recordings: in order of weight; the first decides the device.
        tables: tables by name, beside or instead of those of the investigation.
        steps: figures of traces that were read before, by recording path and arm.
        margin: replaces the margin that the first recording (or the investigation) declared.
        companions: recordings of further workloads that checks name; each is judged within itself.
    """

    def __init__(
        self,
        investigation: Investigation,
        recordings: Sequence[Recording],
        tables: Mapping[str, pd.DataFrame] | None = None,
        steps: Mapping[tuple[str, str], StepFigures] | None = None,
        margin: float | None = None,
        companions: Sequence[Recording] = (),
    ) -> None:
        self.investigation = investigation
        self.spec = investigation.spec
        self.tables = {**investigation.tables, **(tables or {})}
        first = recordings[0] if recordings else None
        apart = [(r, unlike(r, first)) for r in recordings if first is not None]
        self.recordings = tuple(r for r, why in apart if not why)
        self.others = tuple((r, why) for r, why in apart if why)
        self.companions = {r.name: r for r in companions}
        declared = first.manifest.margin if first is not None else self.spec.effect.margin
        self.margin = declared if margin is None else margin
        self.warnings: list[str] = []
        self._logs: dict[tuple[int, str], pd.DataFrame] = {}
        self._facts: dict[tuple[int, str], pd.DataFrame] = {}
        self._steps: dict[tuple[str, str], StepFigures | None] = dict(steps or {})
        self._snapshots: dict[tuple[str, str], Snapshot | None] = {}
        self._places: dict[int, tuple[NDArray[np.int64], list[int], list[str]]] = {}
        self._kernels: dict[int, dict[str, pd.DataFrame]] = {}
        self._comparisons: dict[tuple[str, ...], Comparison] = {}
        self.conditions = Conditions(self.spec.arms)

    @property
    def primary(self) -> Recording | None:
        """The recording that decides the device, or None where only tables were given."""
        return self.recordings[0] if self.recordings else None

    @property
    def baseline(self) -> str:
        """The baseline arm."""
        return self.spec.effect.baseline

    @property
    def suspect(self) -> str:
        """The suspect arm."""
        return self.spec.effect.suspect

    @property
    def metric(self) -> str:
        """The declared metric."""
        return self.spec.effect.metric

    @property
    def backend(self) -> str:
        """Backend of the device, "" without a recording."""
        return str(self.primary.manifest.device.get("backend", "")) if self.primary else ""

    @property
    def device_name(self) -> str:
        """The first recording's device in words: "one NVIDIA H200" where the card is known, else its name."""
        if self.primary is None:
            return "no device"
        device = self.primary.manifest.device
        name = device.get("name") or device.get("backend")
        if not name:
            return "an unnamed device"
        return f"one {name}" if device.get("uuid") else str(name)

    @cached_property
    def several_devices(self) -> bool:
        """Whether recordings that checks look at come from more than one device."""
        used = (*self.recordings, *self.companions.values())
        return len({str(item.manifest.device.get("name")) for item in used}) > 1

    def tag_of(self, recording: Recording) -> str:
        """The recording's device where the case has several, else ""."""
        return str(recording.manifest.device.get("name")) if self.several_devices else ""

    def devices_of(self, names: Iterable[str]) -> str:
        """Devices of the recordings of these names, in words; the primary's where none is known."""
        known = {item.name: item for item in (*self.recordings, *self.companions.values())}
        found = dict.fromkeys(str(known[n].manifest.device.get("name")) for n in names if n in known)
        return " and ".join(found) or self.device_name

    def confidence(self, recording: Recording) -> float:
        """The confidence of a recording's verdicts; see ``Conditions.confidence``."""
        return self.conditions.confidence(recording)

    def logs(self, recording: Recording, metric: str) -> pd.DataFrame:
        """Natural log of each run's median time: blocks x arms."""
        key = (id(recording), metric)
        if key not in self._logs:
            values = recording.block_values(metric)
            self._logs[key] = pd.DataFrame(np.log(values.to_numpy(dtype=float)), values.index, values.columns)
        return self._logs[key]

    def sources(self, companion: str = "") -> tuple[Recording, ...]:
        """The recordings of the device, or the one companion of that name where it is there."""
        if companion:
            return (self.companions[companion],) if companion in self.companions else ()
        return self.recordings

    def recording_with(self, arms: Sequence[str], metric: str = "", companion: str = "") -> Recording | None:
        """The recording with most blocks that hold all these arms, the first of equals; None where none has one."""
        best, most = None, 0
        for recording in self.sources(companion):
            table = self.logs(recording, metric or self.metric)
            if set(arms) <= set(table.columns):
                blocks = int(np.isfinite(table[list(dict.fromkeys(arms))].to_numpy()).all(axis=1).sum())
                if blocks > most:
                    best, most = recording, blocks
        return best

    def differences(self, recording: Recording, arm: str, against: str, metric: str = "") -> Floats:
        """Block log-ratios arm / against, NaN where a block lacks one."""
        table = self.logs(recording, metric or self.metric)
        return np.asarray(table[arm].to_numpy() - table[against].to_numpy(), dtype=float)

    def facts(self, recording: Recording, figure: str) -> pd.DataFrame:
        """A fact of the timed, finished runs: blocks x arms (first run of a block and arm), NaN where missing."""
        key = (id(recording), figure)
        if key not in self._facts:
            places, blocks, arms = self._run_places(recording)
            if figure in recording.runs.columns and places.size:
                cells = recording.runs[figure].to_numpy(dtype=object)[np.maximum(places, 0)]
                cells[places < 0] = None
                self._facts[key] = pd.DataFrame(cells, index=blocks, columns=arms)
            else:
                self._facts[key] = pd.DataFrame()
        return self._facts[key]

    def _run_places(self, recording: Recording) -> tuple[NDArray[np.int64], list[int], list[str]]:
        """Row number in ``runs`` of the first finished timed run of each block and arm, -1 where there is none."""
        key = id(recording)
        if key not in self._places:
            runs = recording.runs
            used = np.flatnonzero(((runs["block"] >= 0) & (runs["outcome"] == "ok")).to_numpy())
            block, blocks = pd.factorize(runs["block"].to_numpy()[used], sort=True)
            arm, arms = pd.factorize(runs["arm"].to_numpy(dtype=object)[used])
            places = np.full((len(blocks), len(arms)), -1, dtype=np.int64)
            places[block[::-1], arm[::-1]] = used[::-1]
            self._places[key] = (places, [int(v) for v in blocks], [str(v) for v in arms])
        return self._places[key]

    def kernel_logs(self, recording: Recording) -> dict[str, pd.DataFrame]:
        """Natural log of each isolated kernel's median, by arm: blocks x kernels."""
        key = id(recording)
        if key not in self._kernels:
            table = recording.kernels
            block, time = (pd.to_numeric(table[name], errors="coerce") for name in ("block", "us"))
            table = table[(block >= 0) & (time > 0) & np.isfinite(time)]
            self._kernels[key] = {}
            if len(table):
                wide = table.groupby(["arm", "block", "kernel"])["us"].median().unstack("kernel")
                arms = wide.index.get_level_values("arm").to_numpy()
                blocks = wide.index.get_level_values("block").to_numpy()
                logs = np.log(wide.to_numpy(dtype=float))
                self._kernels[key] = {
                    str(arm): pd.DataFrame(logs[arms == arm], blocks[arms == arm], wide.columns)
                    for arm in dict.fromkeys(arms)
                }
        return self._kernels[key]

    def quantity(self, quantity: float | Quantity | None) -> float | None:
        """The number a quantity stands for; see ``quantities.evaluate``."""
        return evaluate(quantity, self.tables)

    def compare(
        self,
        arm: str,
        against: str = "",
        metric: str = "",
        margin: float | None = None,
        companion: str = "",
    ) -> tuple[Comparison, Recording] | None:
        """Paired comparison of two arms with the A/A floor; None where no recording has both."""
        against, metric = against or self.baseline, metric or self.metric
        recording = self.recording_with((arm, against), metric, companion)
        if recording is None:
            return None
        declared = recording.manifest.margin if companion else self.margin
        key = (str(recording.path), arm, against, metric, str(margin))
        if key not in self._comparisons:
            floor = self.noise_floor(recording, metric)
            table = self.logs(recording, metric)
            compared = compare_blocks(
                np.exp(table[against].to_numpy()),
                np.exp(table[arm].to_numpy()),
                margin=margin or declared,
                confidence=self.confidence(recording),
                noise_floor=floor.floor if floor else None,
                arm=arm,
                baseline_name=against,
            )
            apart = self.conditions.outputs_apart(recording, (arm, against))
            self._comparisons[key] = _no_verdict(compared, apart) if apart else compared
        return self._comparisons[key], recording

    def noise_floor(self, recording: Recording, metric: str = "") -> NoiseFloor | None:
        """The A/A floor of a recording, from the baseline and its repeat; None without one."""
        table = self.logs(recording, metric or self.metric)
        baseline, repeats = self.baseline, list(self.spec.effect.repeat)
        if recording.name in self.companions:
            arms = recording.manifest.design["arms"]
            baseline = recording.manifest.baseline
            repeats = [str(arm["name"]) for arm in arms if arm.get("role") == "repeat"]
        for repeat in repeats:
            if repeat in table.columns and baseline in table.columns:
                return noise.noise_floor(
                    np.exp(table[baseline].to_numpy()),
                    np.exp(table[repeat].to_numpy()),
                    self.confidence(recording),
                )
        return None

    @cached_property
    def effect(self) -> Mean | None:
        """The suspect against the baseline in log-ratios, or None where its verdict is no difference."""
        found = self.compare(self.suspect)
        if found is None or found[0].verdict not in (Verdict.SLOWER, Verdict.FASTER):
            return None
        return mean_over_blocks(
            self.differences(found[1], self.suspect, self.baseline), self.confidence(found[1])
        )

    @property
    def direction(self) -> float:
        """+1 where the suspect is slower (or nothing was found), -1 where it is faster."""
        return -1.0 if self.effect is not None and self.effect.value < 0 else 1.0

    @property
    def half_effect(self) -> float:
        """Half of the effect in logarithms; the margin where there is no effect."""
        return abs(self.effect.value) / 2 if self.effect is not None else math.log1p(self.margin)

    @cached_property
    def step_us(self) -> float | None:
        """Median time of the baseline's step in the primary recording, in the metric's unit."""
        found = self.recording_with((self.baseline,))
        if found is None:
            return None
        value = float(np.exp(np.nanmedian(self.logs(found, self.metric)[self.baseline].to_numpy())))
        return value if math.isfinite(value) else None

    def step_figures(self, arm: str) -> tuple[StepFigures, Recording] | None:
        """The trace of an arm as steps; None where no recording has a readable one."""
        for recording in self.recordings:
            key = (str(recording.path), arm)
            if key not in self._steps:
                self._steps[key] = self._read_steps(recording, arm)
            figures = self._steps[key]
            if figures is not None:
                return figures, recording
        return None

    def _read_steps(self, recording: Recording, arm: str) -> StepFigures | None:
        path = recording.traces.get(arm)
        if path is None:
            return None
        try:
            return step_figures(load_trace(path))
        except RcaError as error:
            self.warnings.append(f"trace of {arm} in {recording.name} was not used: {error}")
            return None

    def snapshot(self, arm: str) -> tuple[Snapshot, Recording] | None:
        """The allocator snapshot of an arm; None where no recording has a readable one."""
        for recording in self.recordings:
            key = (str(recording.path), arm)
            if key not in self._snapshots:
                self._snapshots[key] = self._read_snapshot(recording, arm)
            found = self._snapshots[key]
            if found is not None:
                return found, recording
        return None

    def _read_snapshot(self, recording: Recording, arm: str) -> Snapshot | None:
        path = recording.snapshots.get(arm)
        if path is None:
            return None
        try:
            return load_snapshot(path)
        except (RcaError, OSError) as error:
            self.warnings.append(f"snapshot of {arm} in {recording.name} was not used: {error}")
            return None


def _no_verdict(comparison: Comparison, why: str) -> Comparison:
    """The estimate without a verdict: the arms do not compute the same."""
    return replace(
        comparison,
        verdict=Verdict.UNDECIDED,
        reasons=(Reason.OUTPUTS_DIFFER,),
        warnings=(why, *comparison.warnings),
    )


def replicate_of(recording: Recording) -> str:
    """What one replicate of a recording is, as its design says: "block" where it says nothing."""
    return str(recording.manifest.design.get("replicate", "block"))
