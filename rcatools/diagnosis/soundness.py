"""Was it measured soundly? What the verdicts rest on and no hypothesis asks about, as rows of checks.

Of each recording of the device: whether forking its runs changed them, whether a difference stays one in clock
cycles, whether warm-up ended by its trend, what was seen of clocks and neighbours, and what the cache held when
kernels were timed. A check that could not be made says so and how it could.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.recording import Recording
from rcatools.recording.conditions import cycle_values, disturbances
from rcatools.stats.decide import MIN_REPLICATES
from rcatools.stats.isolation import NOT_TESTED, ForkEffect, fork_effect
from rcatools.stats.paired import compare_blocks
from rcatools.stats.records import Verdict

Row = dict[str, Any]
FORK, CYCLES, WARM_UP, CLOCKS, NEIGHBOURS, CACHE = (
    "fork against spawn",
    "in clock cycles",
    "warm-up",
    "clocks",
    "neighbours",
    "kernels alone",
)
READING = {
    "confirmed": "not a difference of clocks",
    "clocks": "gone in cycles, so it was a difference of clocks",
    "no_difference": "no difference in time that clocks could have made",
    "undecided": "undecided",
}


def document(case: Case) -> list[Row]:
    """Rows of "recording", "check", "verdict" and "text"; and "figures" with the numbers where there are some."""
    return [row for recording in case.recordings for row in _rows(case, recording)]


def _rows(case: Case, recording: Recording) -> Iterator[Row]:
    def row(check: str, verdict: str, text: str, **figures: Any) -> Row:
        known = {key: value for key, value in figures.items() if value is not None}
        return {
            "recording": recording.name,
            "check": check,
            "verdict": verdict,
            "text": text,
            "figures": known,
        }

    for effect in fork_effects(case, recording):
        yield row(FORK, effect.verdict, effect.text, **_figures(effect))
    if case.suspect in case.logs(recording, case.metric).columns:
        verdict, text = in_cycles(case, recording)
        yield row(CYCLES, verdict, text)
    runs = recording.timed_runs()
    ended = runs[runs["outcome"] == "ok"]
    yield row(WARM_UP, *_warm_up(ended))
    seen = disturbances(recording)
    yield row(CLOCKS, *_clocks(seen))
    yield row(NEIGHBOURS, *_neighbours(seen))
    if len(recording.kernels):
        yield row(CACHE, *_cache(recording))


def fork_effects(case: Case, recording: Recording) -> list[ForkEffect]:
    """Forked against spawned blocks: the baseline's time, and the suspect's ratio to it inside the block.

    A pair counts where both of its runs were started the same way.
    """
    logs = case.logs(recording, case.metric)
    kinds = case.facts(recording, "isolation")
    test = partial(fork_effect, margin=case.margin, confidence=case.confidence(recording))
    found = []
    if case.baseline in logs.columns:
        base = _kinds(kinds, case.baseline, logs.index)
        found.append(test(case.baseline, logs[case.baseline], base))
        if case.suspect in logs.columns:
            other = _kinds(kinds, case.suspect, logs.index)
            ratio = logs[case.suspect] - logs[case.baseline]
            found.append(test(f"{case.suspect} / {case.baseline}", ratio, base.where(base == other)))
    return found


def in_cycles(case: Case, recording: Recording) -> tuple[str, str]:
    """Verdict and words: does the suspect's difference stay one when times are counted in clock cycles?"""
    name = f"{case.suspect} / {case.baseline}"
    cycles = cycle_values(recording, case.metric)
    if cycles is None or not {case.suspect, case.baseline} <= set(cycles.columns):
        return NOT_TESTED, f"{name}: not tested: the device's clock was not read in every run"
    pairs = cycles[[case.baseline, case.suspect]].dropna()
    if len(pairs) < MIN_REPLICATES:
        return NOT_TESTED, f"{name}: not tested: {len(pairs)} blocks hold both, {MIN_REPLICATES} are needed"
    time, cycle = (
        compare_blocks(
            table[case.baseline].to_numpy(),
            table[case.suspect].to_numpy(),
            margin=case.margin,
            confidence=case.confidence(recording),
        )
        for table in (recording.block_values(case.metric).loc[pairs.index], pairs)
    )
    verdict = _confirmation(time.verdict, cycle.verdict)
    shown = (
        f"{units.change(found.estimate.ratio)} {units.interval(found.estimate.ci_low, found.estimate.ci_high)}"
        for found in (time, cycle)
    )
    return verdict, f"{name}: {' in time, '.join(shown)} in cycles ({len(pairs)} blocks): {READING[verdict]}"


def _confirmation(time: Verdict, cycles: Verdict) -> str:
    if time is Verdict.EQUIVALENT:
        return "no_difference"
    if time is Verdict.UNDECIDED:
        return "undecided"
    if cycles is time:
        return "confirmed"
    return "clocks" if cycles is Verdict.EQUIVALENT else "undecided"


def _kinds(table: pd.DataFrame, arm: str, blocks: pd.Index[Any]) -> pd.Series[Any]:
    column = table[arm] if arm in table.columns else pd.Series(dtype=object)
    return column.reindex(blocks)


def _figures(effect: ForkEffect) -> dict[str, Any]:
    figures: dict[str, Any] = {"of": effect.of, "forked": effect.forked, "spawned": effect.spawned}
    if effect.comparison is not None:
        found = effect.comparison.estimate
        figures |= {"ratio": found.ratio, "ci_low": found.ci_low, "ci_high": found.ci_high}
        figures |= {"mde": effect.comparison.mde}
    return figures


def _range(values: pd.Series[Any]) -> str:
    low, high = f"{values.min():.0f}", f"{values.max():.0f}"
    return low if low == high else f"{low} to {high}"


def _warm_up(ended: pd.DataFrame) -> tuple[str, str]:
    flat = ended["warmup_flat"] if "warmup_flat" in ended else pd.Series(dtype=object)
    flat = flat[[str(value) in ("True", "False") for value in flat]]
    if flat.empty:
        return NOT_TESTED, "not told by the workload"
    settled = sum(str(value) == "True" for value in flat)
    told = ended["warmup_steps"] if "warmup_steps" in ended else pd.Series(index=ended.index, dtype=float)
    steps = pd.to_numeric(told.loc[flat.index], errors="coerce").dropna()
    length = f" after {_range(steps)} steps" if len(steps) else ""
    text = f"{settled} of {len(flat)} runs settled{length} (three windows alike, no steady fall)"
    if settled < len(flat):
        return "not_settled", f"{text}; the others were timed at the limit of their warm-up"
    return "settled", text


def _clocks(seen: pd.DataFrame) -> tuple[str, str]:
    read = seen[seen["clocks_read"]]
    if read.empty:
        return NOT_TESTED, "not readable on this device"
    throttled = int(seen["throttled"].sum())
    reasons = Counter(seen.loc[seen["throttled"], "throttle"])
    why = f" ({', '.join(f'{n} {reason}' for reason, n in reasons.most_common(3))})" if reasons else ""
    return (
        "throttled" if throttled else "quiet",
        f"{_range(read['sm_clock_mhz'])} MHz over {len(read)} of {len(seen)} runs, {throttled} under reduced clocks{why}",
    )


def _neighbours(seen: pd.DataFrame) -> tuple[str, str]:
    known = seen["other_processes"].dropna()
    load = seen["load_1m"].dropna()
    host = f"host load up to {units.significant(load.max())}" if len(load) else "host load not read"
    if known.empty:
        return NOT_TESTED, f"other processes on the device not readable, {host}"
    shared = int((known > 0).sum())
    return ("shared" if shared else "quiet"), f"{shared} of {len(known)} runs shared the device, {host}"


def _cache(recording: Recording) -> tuple[str, str]:
    parameters = recording.manifest.workload.get("parameters")
    mode = parameters.get("cache") if isinstance(parameters, dict) else None
    if mode not in ("hot", "cold"):
        return NOT_TESTED, "the recording does not tell whether the cache was hot or cold"
    found = recording.manifest.workload.get("timing_cache")
    states = Counter(str(v) for v in found.values()) if isinstance(found, dict) else Counter()
    told = "".join(f"; {n} kernels {state}" for state, n in states.most_common())
    how = "emptied before each launch" if mode == "cold" else "left as it was: kernels run back to back"
    return mode, f"{mode}: the cache was {how}{told}"
