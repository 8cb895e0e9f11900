"""Verdicts from summaries: mean, spread and count, or "median of 3", judged as far as they allow.

Log moments follow from printed ones: a relative standard deviation c gives sqrt(log(1 + c**2)) on the log scale
(log-normal), and a range of n runs gives log(high / low) / d2(n), d2 being the expected range of n standard normal
values (Tippett 1925). Where no spread is printed the interval assumes 10 % between runs, which most benchmarks
stay below, and says so; equivalence is never claimed on that assumption.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from rcatools import units
from rcatools.errors import InputError
from rcatools.stats import design, exact, noise, ttest
from rcatools.stats.assemble import Context, assemble
from rcatools.stats.decide import Note, check_declared
from rcatools.stats.declared import Declared, split_arms
from rcatools.stats.family import correct
from rcatools.stats.groups import group_estimates
from rcatools.stats.records import Comparison, NoiseFloor, Reason, Result, TableVerdict, Verdict, worst
from rcatools.stats.ttest import LogDifference

ASSUMED_SD = 0.10
Row = dict[str, Any]
FIXED = "published"


@dataclass(frozen=True)
class Summary:
    """One arm's printed summary on the log scale.

    Attributes:
        log: log of the centre (of the median, for a mean with a spread).
        sd: log standard deviation of one run, None where nothing printed gives it.
        n: runs it stands for; 0 for a number given without runs (a published claim).
        samples: samples inside the run, 0 where unknown.
        low: log of the smallest run, None where unknown.
        high: log of the largest run.
    """

    log: float
    sd: float | None
    n: int
    samples: int
    low: float | None
    high: float | None


def compare_summaries(frame: pd.DataFrame, declared: Declared) -> TableVerdict:
    """Judge a table of summaries against the baseline.

    Args:
        frame: columns ``arm`` and ``value`` (the centre, time-like), any of ``metric``, ``workload``, ``class``,
            ``sd``, ``n``, ``low``, ``high``, ``samples``, ``margin`` and ``centre`` ("mean", "median", "unknown",
            or "published" for a number that stands for no runs of this table).
        declared: baseline, margin and the like.

    Raises:
        UnknownNameError: the baseline or a wanted arm is not in the table.
        InputError: nothing to compare.
    """
    check_declared(declared.margin, declared.confidence)
    arms = [str(a) for a in frame["arm"].drop_duplicates()]
    candidates, repeats = split_arms(arms, declared)
    results = []
    for key, rows in _groups(frame):
        by_arm = {str(row["arm"]): row for row in rows}
        baseline = by_arm.get(declared.baseline)
        if baseline is None:
            continue
        here = replace(declared, margin=_margin(rows, declared.margin))
        again = [_compare(arm, baseline, by_arm[arm], here, None) for arm in repeats if arm in by_arm]
        floors = {arm: _floor(here, again, baseline, by_arm[arm]) for arm in candidates if arm in by_arm}
        judged = [_compare(arm, baseline, by_arm[arm], here, floor) for arm, floor in floors.items()]
        if judged or again:
            results.append(_result(key, by_arm, judged, again, list(floors.values())))
    if not results:
        raise InputError(
            f"no metric or workload holds both {declared.baseline!r} and another arm; give the same metrics and workloads for both"
        )
    corrected, correction = correct(results, lambda result, arm: None)
    return TableVerdict(
        baseline=declared.baseline,
        results=tuple(corrected),
        verdict=worst(result.verdict for result in corrected),
        correction=correction,
        groups=group_estimates(frame, corrected),
        warnings=("the table holds summaries; outliers, modes and drift cannot be seen in them",),
    )


def compare_summary(baseline: Summary, candidate: Summary, context: Context) -> Comparison:
    """Compare two summaries; a baseline with n = 0 is a published number."""
    fixed = baseline.n == 0
    difference, notes, assumed = _difference(baseline, candidate)
    n_b, n_c = max(baseline.n, 1), max(candidate.n, 1)
    notes += design.named_elsewhere(context.baseline, context.arm)
    if max(baseline.samples, candidate.samples) > 1:
        text = "the counts are samples inside one run; runs repeat, samples do not"
        notes.append(Note(Reason.POOLED_SAMPLES_REFUSED, text, False))
    done = assemble(
        difference,
        context,
        paired=False,
        counts=(n_b, n_c),
        p_floor=exact.sign_flip_floor(n_c) if fixed else exact.rank_floor(n_b, n_c),
        notes=tuple(notes),
        warnings=tuple(_sentences(baseline, candidate, difference)),
    )
    if assumed:
        estimate = replace(done.estimate, sd_log=None)
        done = replace(done, estimate=estimate, mde=None, p_value=None, p_equivalence=None)
        if done.verdict is Verdict.EQUIVALENT:
            reasons = (
                Reason.INTERVAL_TOO_WIDE,
                *(r for r in done.reasons if r != Reason.INTERVAL_INSIDE_MARGIN),
            )
            done = replace(done, verdict=Verdict.UNDECIDED, reasons=reasons)
    return done


def _difference(baseline: Summary, candidate: Summary) -> tuple[LogDifference, list[Note], bool]:
    mean = candidate.log - baseline.log
    n_b, n_c = baseline.n, candidate.n
    if n_b == 0:
        if n_c < 2:
            return LogDifference(mean, None, 0, max(n_c, 1), None), [], False
        sd = ASSUMED_SD if candidate.sd is None else candidate.sd
        scale = 1 / math.sqrt(n_c)
        return LogDifference(mean, sd * scale, n_c - 1, n_c, sd, scale), [], candidate.sd is None
    if min(n_b, n_c) < 2:
        return LogDifference(mean, None, 0, min(n_b, n_c), None), [], False
    known = [(s.sd, s.n) for s in (baseline, candidate) if s.sd is not None]
    if len(known) == 2:
        return ttest.from_moments(mean, known[0][0], n_b, known[1][0], n_c), [], False
    scale = math.sqrt(1 / n_b + 1 / n_c)
    if len(known) == 1:
        sd, n = known[0]
        return LogDifference(mean, sd * scale, n - 1, min(n_b, n_c), sd, scale), [], False
    df = n_b + n_c - 2
    return LogDifference(mean, ASSUMED_SD * scale, df, min(n_b, n_c), ASSUMED_SD, scale), [], True


def _sentences(baseline: Summary, candidate: Summary, difference: LogDifference) -> list[str]:
    texts = []
    spreads = [s.sd for s in (baseline, candidate) if s.n > 1]
    if difference.n >= 2 and spreads and all(sd is None for sd in spreads):
        limit = abs(difference.mean) / (ttest.t_quantile(0.975, difference.df) * difference.scale)
        texts.append(
            f"no spread is given, so the interval assumes {units.percent(ASSUMED_SD)} between runs; "
            f"the difference would be shown if runs spread by less than {units.percent(limit)}"
        )
    elif any(sd is None for sd in spreads):
        texts.append("one arm gives no spread; the other's was taken for both")
    if baseline.n == 0:
        texts.append("the baseline is a published number without runs: this judges the claim, not a change")
        if candidate.low is not None and candidate.high is not None:
            inside = candidate.low <= baseline.log <= candidate.high
            texts.append(
                f"the published number lies {'inside' if inside else 'outside'} the range of the runs"
            )
    return texts


def _compare(
    arm: str, baseline: Row, candidate: Row, declared: Declared, floor: NoiseFloor | None
) -> Comparison:
    context = Context(
        arm=arm,
        baseline=declared.baseline,
        margin=declared.margin,
        confidence=declared.confidence,
        noise_floor=None if floor is None else floor.floor,
    )
    done = compare_summary(_summary(baseline), _summary(candidate), context)
    return replace(done, mde=floor.detectable) if done.mde is None and floor is not None else done


def _floor(
    declared: Declared, repeats: Sequence[Comparison], baseline: Row, candidate: Row
) -> NoiseFloor | None:
    """The largest floor that A/A arms or A/A tables give; published spreads alone give none."""
    sizes = max(_summary(baseline).n, 1), max(_summary(candidate).n, 1)
    known = [r.facts.difference for r in repeats if r.facts is not None and r.p_value is not None]
    if declared.repeat_difference is not None:
        known.append(declared.repeat_difference)
    found = [noise.floor_for(difference, *sizes, declared.confidence) for difference in known]
    if declared.repeat_runs:
        found.append(noise.floor_from_runs(declared.repeat_runs, *sizes, declared.confidence))
    return max((f for f in found if f is not None), key=lambda f: f.floor, default=None)


def _result(
    key: tuple[str | None, str | None],
    by_arm: dict[str, Row],
    judged: Sequence[Comparison],
    again: Sequence[Comparison],
    floors: Sequence[NoiseFloor | None],
) -> Result:
    return Result(
        metric=key[0],
        workload=key[1],
        baseline=(judged or again)[0].baseline,
        unit="summary",
        paired=False,
        comparisons=tuple(judged),
        repeats=tuple(again),
        noise=max((f for f in floors if f is not None), key=lambda f: f.floor, default=None),
        levels={arm: float(row["value"]) for arm, row in by_arm.items()},
        verdict=worst(c.verdict for c in judged or again),
    )


def _groups(frame: pd.DataFrame) -> list[tuple[tuple[str | None, str | None], list[Row]]]:
    groups: dict[tuple[str | None, str | None], list[Row]] = {}
    for row in frame.to_dict("records"):
        key = (
            str(row["metric"]) if "metric" in row else None,
            str(row["workload"]) if "workload" in row else None,
        )
        groups.setdefault(key, []).append({str(k): v for k, v in row.items()})
    return list(groups.items())


def _margin(rows: Sequence[Row], default: float) -> float:
    given = [float(row["margin"]) for row in rows if "margin" in row and 0 < float(row["margin"]) < 1]
    return given[0] if given else default


def _summary(row: Row) -> Summary:
    centre, kind = float(row["value"]), str(row.get("centre", "unknown"))
    if kind == FIXED:
        return Summary(math.log(centre), None, 0, 0, None, None)
    samples = _whole(row.get("samples"))
    n = _whole(row.get("n")) or 1
    low, high = _positive(row.get("low")), _positive(row.get("high"))
    sd = None
    spread = _positive(row.get("sd"), zero=True)
    if _negative(row.get("sd")) or (low is not None and high is not None and low > high):
        raise InputError(
            f"the summary of arm {row['arm']!r} has a negative spread or a range upside down; correct it"
        )
    if spread is not None and n >= 2:
        sd = math.sqrt(math.log1p((spread / centre) ** 2))
    elif low is not None and high is not None and n >= 2 and high >= low:
        sd = math.log(high / low) / expected_range(n)
    log = math.log(centre) - (sd**2 / 2 if sd is not None and kind == "mean" else 0.0)
    return Summary(
        log, sd, n, samples, None if low is None else math.log(low), None if high is None else math.log(high)
    )


def _negative(value: Any) -> bool:
    return value is not None and float(value) < 0


def _whole(value: Any) -> int:
    number = _positive(value)
    return 0 if number is None else max(0, int(number))


def _positive(value: Any, *, zero: bool = False) -> float | None:
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) and (number > 0 or (zero and number == 0)) else None


@lru_cache(maxsize=256)
def expected_range(n: int) -> float:
    """d2: the expected range of n standard normal values."""

    from scipy import integrate

    def tail(x: float) -> float:
        below = float(special.ndtr(x))
        return 1.0 - below**n - (1.0 - below) ** n

    return float(integrate.quad(tail, -np.inf, np.inf)[0])
