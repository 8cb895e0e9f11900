"""What a reader sees of a comparison: one line per arm, with its sentence. Feeds text, Markdown, figure and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rcatools import units
from rcatools.stats.detection import blocks_needed
from rcatools.stats.records import Comparison, Reason, Result, TableVerdict, Verdict

MEMORY_UNITS = {"mib", "gib", "kib", "mb", "gb", "kb", "bytes", "b", "tib"}


@dataclass(frozen=True)
class Shown:
    """What the numbers are, for a reader.

    Attributes:
        higher: by metric name (None for the only one): whether more is better.
        units: by metric name: the unit as text.
        excluded: rows left out, by cause.
        notes: what was assumed while reading.
        sources: file names.
    """

    higher: Mapping[str | None, bool] = field(default_factory=dict)
    units: Mapping[str | None, str] = field(default_factory=dict)
    excluded: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def rate(self, metric: str | None) -> bool:
        """Whether more of a metric is better."""
        return self.higher.get(metric, self.higher.get(None, False))

    def unit(self, metric: str | None) -> str:
        """The unit of a metric, "" where unknown."""
        return self.units.get(metric, self.units.get(None, ""))


@dataclass(frozen=True)
class Line:
    """One arm of one result.

    Attributes:
        result: where it belongs.
        comparison: what was found.
        repeat: an A/A arm, not a candidate.
        rate: more is better; ``change`` and interval are then those of the rate.
        ratio: candidate / baseline of the value as printed (a time, or a rate).
        low: lower bound of that ratio.
        high: upper bound.
        sentence: what a person would write.
    """

    result: Result
    comparison: Comparison
    repeat: bool
    rate: bool
    ratio: float
    low: float | None
    high: float | None
    sentence: str

    @property
    def label(self) -> str:
        """The arm with its metric and workload."""
        parts = [p for p in (self.result.metric, self.result.workload, self.comparison.arm) if p]
        return " / ".join(parts)


def lines(table: TableVerdict, shown: Shown) -> Iterator[Line]:
    """Every arm of every result: candidates first, then A/A arms."""
    for result in table.results:
        rate = shown.rate(result.metric)
        for comparison, repeat in [(c, False) for c in result.comparisons] + [
            (c, True) for c in result.repeats
        ]:
            ratio, low, high = as_printed(comparison, rate)
            text = sentence(comparison, result, rate, shown.unit(result.metric))
            yield Line(result, comparison, repeat, rate, ratio, low, high, text)


def as_printed(comparison: Comparison, rate: bool) -> tuple[float, float | None, float | None]:
    """Ratio and bounds of the value as the table prints it; a rate's ratio is the inverse of its time's."""
    e = comparison.estimate
    if not rate:
        return e.ratio, e.ci_low, e.ci_high
    return 1 / e.ratio, _inverse(e.ci_high), _inverse(e.ci_low)


def _inverse(value: float | None) -> float | None:
    return None if value is None or value <= 0 else 1 / value


def sentence(comparison: Comparison, result: Result, rate: bool = False, unit: str = "") -> str:
    """Effect, interval, replicates, what could have been seen, and what to run next, as a person would write it."""
    return f"{_finding(comparison, result, rate, unit)} {_seen(comparison)}{next_step(comparison, result)}".strip()


def _finding(comparison: Comparison, result: Result, rate: bool, unit: str) -> str:
    ratio, low, high = as_printed(comparison, rate)
    change = units.change(ratio)
    level = round(100 * comparison.confidence)
    interval = (
        ""
        if low is None or high is None
        else f"{level} % interval {units.change(low)} to {units.change(high)}, "
    )
    basis = f"({interval}{_replicates(comparison, result.unit)})"
    arm, base = comparison.arm, comparison.baseline
    size = units.percent(abs(ratio - 1))
    words = _words(rate, unit)
    match comparison.verdict:
        case Verdict.SLOWER:
            return f"{arm} is {size} {words[0]} than {base} {basis}."
        case Verdict.FASTER:
            return f"{arm} is {size} {words[1]} than {base} {basis}."
        case Verdict.EQUIVALENT:
            apart = Reason.INTERVAL_EXCLUDES_ONE in comparison.reasons
            margin = units.percent(comparison.margin)
            return f"{arm} is within {margin} of {base}{', though not equal' if apart else ''}: {change} {basis}."
    return f"{arm} against {base} is undecided: {change} {basis}{_because(comparison)}."


def _words(rate: bool, unit: str) -> tuple[str, str]:
    """How worse and better read for a rate, for memory, for a time."""
    if rate:
        return "lower", "higher"
    if unit.lower() in MEMORY_UNITS:
        return "larger", "smaller"
    return "slower", "faster"


def _replicates(comparison: Comparison, unit: str) -> str:
    n = comparison.estimate.n
    if comparison.paired:
        return f"{n} {'block' if n == 1 else 'blocks'}"
    word = {"row": "row", "summary": "run"}.get(unit, "run")
    if comparison.n_baseline == comparison.n_candidate:
        return f"{n} {word if n == 1 else word + 's'} an arm"
    return f"{comparison.n_baseline} and {comparison.n_candidate} {word}s"


_WHY = {
    Reason.SINGLE_RUN_PER_ARM: "one run an arm says nothing about how runs vary",
    Reason.TOO_FEW_RUNS: "too few runs",
    Reason.WITHIN_NOISE_FLOOR: "equal arms differ as much",
    Reason.ORDER_OR_DRIFT: "order or drift explains it as well",
    Reason.MODES_IN_ARM: "runs fall on two levels",
    Reason.OUTLIER_CARRIES_EFFECT: "one run carries it",
    Reason.MIXED_MACHINES: "the arms ran on different machines",
    Reason.POOLED_SAMPLES_REFUSED: "samples inside a run are no replicates",
    Reason.INTERVAL_TOO_WIDE: "the interval holds both no effect and one that matters",
}


def _because(comparison: Comparison) -> str:
    reason = next((Reason(r) for r in comparison.reasons if Reason(r) in _WHY), None)
    return f"; {_WHY[reason]}" if reason is not None else ""


def _seen(comparison: Comparison) -> str:
    if comparison.verdict in (Verdict.SLOWER, Verdict.FASTER):
        return ""
    if comparison.mde is None:
        return "What could have been seen is unknown. "
    return f"An effect of {units.percent(comparison.mde)} would have been seen. "


def next_step(comparison: Comparison, result: Result) -> str:
    """What to run next, from the reason that carries the verdict."""
    if comparison.verdict is Verdict.EQUIVALENT:
        return "Nothing more to run for this margin."
    if comparison.verdict in (Verdict.SLOWER, Verdict.FASTER):
        few = Reason.TOO_FEW_RUNS in comparison.reasons
        return (
            "Next: repeat to at least 6 runs an arm, alternating."
            if few
            else "Next: find where it comes from."
        )
    reasons = set(comparison.reasons)
    if Reason.MIXED_MACHINES in reasons and comparison.p_value is None:
        return "Next: run both arms on one machine, alternating."
    if Reason.MODES_IN_ARM in reasons:
        return "Next: several fresh processes an arm on one machine, alternating; record what differs between levels."
    if Reason.ORDER_OR_DRIFT in reasons:
        return "Next: repeat with the arms alternating in random order within blocks."
    if Reason.POOLED_SAMPLES_REFUSED in reasons and comparison.estimate.n < 3:
        return "Next: at least 6 processes an arm, alternating, and a column that names the process."
    if Reason.OUTLIER_CARRIES_EFFECT in reasons:
        extreme = comparison.without_extreme
        where = "both arms" if extreme is None or extreme.arm == "pair" else f"the {extreme.arm} arm"
        return f"Next: more runs of {where}, alternating with the other."
    return f"Next: {_more_runs(comparison, result)}."


def _more_runs(comparison: Comparison, result: Result) -> str:
    spread = comparison.estimate.sd_log
    if spread is None and result.noise is not None:
        spread = result.noise.sd_log
    if spread is None or not math.isfinite(spread) or spread <= 0:
        return "at least 6 runs an arm, alternating"
    if not comparison.paired:
        spread *= math.sqrt(2)
    wanted = max(abs(comparison.estimate.ratio - 1), comparison.margin)
    needed = max(6, blocks_needed(spread, wanted))
    return f"about {needed} alternating runs an arm to see {units.percent(wanted)}"
