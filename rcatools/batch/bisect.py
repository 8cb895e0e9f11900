"""The first bad commit in noisy measurements: a posterior over where the step is, and what to measure next.

Model: log value = level of the stratum (machine, day) + step * (commit >= first bad) + noise, the noise normal
with one unknown spread, the step half-normal towards slower (or normal, either way). The spread is integrated
on a grid with the scale-free prior, the step exactly; half of the prior says that there is no step. Asking for
the commit that halves the posterior is the probabilistic bisection of Horstein (1963) with a measured error
instead of a known one. A commit may stay undecided; one that cannot be measured is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rcatools.errors import InputError
from rcatools.stats import ttest
from rcatools.stats.assemble import Context
from rcatools.stats.records import Comparison, Verdict
from rcatools.stats.unpaired import compare_log_runs

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

SPREADS = np.geomspace(3e-4, 0.3, 61)
NO_STEP = 0.5


@dataclass(frozen=True)
class Settings:
    """What is declared before the first run.

    Attributes:
        scale: prior size of a step on the log scale (0.05: steps of a few per cent).
        level: probability at which a commit is named.
        margin: step that does not matter, for the verdict on the runs before and after.
        either_way: also look for steps towards faster.
        start: runs of the first and of the last commit before anything else.
    """

    scale: float = 0.05
    level: float = 0.99
    margin: float = 0.01
    either_way: bool = False
    start: int = 2

    def __post_init__(self) -> None:
        """Refuse what cannot be used; raises InputError."""
        if not 0 < self.scale < 2 or not 0.5 < self.level < 1 or not 0 < self.margin < 1 or self.start < 1:
            raise InputError(
                "a bisect needs scale between 0 and 2, level between 0.5 and 1, margin between 0 and 1 "
                f"and start at 1 or more, got {self}"
            )


@dataclass(frozen=True)
class Location:
    """Where the step is.

    Attributes:
        state: "found", "undecided" or "no_step".
        first_bad: index of the named commit, None unless found.
        probability: of the likeliest first bad commit.
        likeliest: its index.
        candidates: fewest indices that hold the declared level of probability, likeliest first.
        no_step: probability that there is none.
        bad: probability of each commit to come after the step, shape (commits,).
        step: ratio of the levels after and before at the likeliest place, None without runs on both sides.
        check: the project's own comparison of the runs after with those before, once the place has the declared
            probability; None before.
        next: index of the commit to measure next, None where nothing more is needed or possible.
        runs: measurements used.
    """

    state: str
    first_bad: int | None
    probability: float
    likeliest: int
    candidates: tuple[int, ...]
    no_step: float
    bad: Floats
    step: float | None
    check: Comparison | None
    next: int | None
    runs: int

    def verdict_of(self, commit: int, level: float = 0.95) -> str:
        """ "good", "bad" or "undecided" for one commit."""
        share = float(self.bad[commit])
        return "bad" if share >= level else "good" if share <= 1 - level else "undecided"


def locate(
    commit: Sequence[int] | Codes,
    log_value: Sequence[float] | Floats,
    count: int,
    *,
    stratum: Sequence[int] | Codes | None = None,
    excluded: frozenset[int] = frozenset(),
    settings: Settings | None = None,
) -> Location:
    """Judge all measurements so far.

    Args:
        commit: index of the commit of each measurement, 0 to count - 1, oldest first, shape (n,).
        log_value: natural log of each measured time (or time ratio), shape (n,).
        count: number of commits, at least 2.
        stratum: machine or day of each measurement; a level of its own is taken out for each.
        excluded: commits that cannot be measured.
        settings: what was declared.

    Raises:
        InputError: wrong shapes, positions outside, or values that are not finite.
    """
    chosen = settings or Settings()
    at, y = np.asarray(commit, dtype=np.int64), np.asarray(log_value, dtype=float)
    groups = np.zeros(at.size, dtype=np.int64) if stratum is None else np.asarray(stratum, dtype=np.int64)
    if count < 2 or at.shape != y.shape or groups.shape != y.shape or at.ndim != 1:
        raise InputError("a bisect needs at least two commits and as many positions as values")
    if at.size and (at.min() < 0 or at.max() >= count):
        raise InputError(f"a measurement names a commit outside 0 to {count - 1}")
    if not np.isfinite(y).all():
        raise InputError("a bisect needs positive finite values")
    posterior = _posterior(at, y, count, groups, chosen)
    places, none = posterior[:-1], float(posterior[-1])
    bad = np.concatenate([[0.0], np.cumsum(places)])
    likeliest = int(np.argmax(places)) + 1
    probability = float(places[likeliest - 1])
    sides = _sides(at, y, groups, likeliest)
    check = _check(sides, chosen) if probability >= chosen.level else None
    state = _state(probability, none, check, chosen)
    order = np.argsort(-places, kind="stable")
    share = np.cumsum(places[order])
    needed = int(np.searchsorted(share, chosen.level * (1 - none))) + 1
    return Location(
        state=state,
        first_bad=likeliest if state == "found" else None,
        probability=probability,
        likeliest=likeliest,
        candidates=tuple(int(order[i]) + 1 for i in range(min(needed, order.size))),
        no_step=none,
        bad=bad,
        step=_step(sides),
        check=check,
        next=_next(at, y, posterior, count, excluded, chosen) if state == "undecided" else None,
        runs=int(at.size),
    )


def search(
    measure: Callable[[int], float],
    count: int,
    *,
    budget: int | None = None,
    settings: Settings | None = None,
) -> Location:
    """Measure one commit after the other until the step is named or the budget is spent.

    Args:
        measure: one run of a commit, its time (any unit); NaN where it cannot be measured.
        count: number of commits, oldest first.
        budget: most runs; None: one fewer than commits.
        settings: what was declared.
    """
    at: list[int] = []
    y: list[float] = []
    excluded: set[int] = set()
    limit = budget if budget is not None else count - 1
    while True:
        found = locate(at, y, count, excluded=frozenset(excluded), settings=settings)
        if found.next is None or len(at) >= limit:
            return found
        value = measure(found.next)
        if value > 0 and math.isfinite(value):
            at.append(found.next)
            y.append(math.log(value))
        else:
            excluded.add(found.next)


def _posterior(at: Codes, y: Floats, count: int, groups: Codes, settings: Settings) -> Floats:
    """Probabilities of first bad = 1 .. count - 1 and of no step, shape (count,)."""
    prior = np.full(count, math.log((1 - NO_STEP) / (count - 1)))
    prior[-1] = math.log(NO_STEP)
    if not at.size:
        return np.asarray(np.exp(prior), dtype=float)
    after = (at[None, :] >= np.arange(1, count + 1)[:, None]).astype(float)
    after[-1] = 0.0
    x, r = _within(after, groups), _within(y[None, :], groups)[0]
    df = y.size - np.unique(groups).size
    variance, scale = SPREADS[None, :] ** 2, settings.scale**2
    xx, xy = (x * x).sum(axis=1)[:, None], (x @ r)[:, None]
    precision = xx / variance + 1 / scale
    mean = xy / variance / precision
    log_likelihood = (
        -df / 2 * np.log(variance)
        - float(r @ r) / (2 * variance)
        - 0.5 * np.log(scale * precision)
        + 0.5 * mean**2 * precision
    )
    if not settings.either_way:
        log_likelihood = log_likelihood + math.log(2) + special.log_ndtr(mean * np.sqrt(precision))
    log_likelihood[-1] = (-df / 2 * np.log(variance) - float(r @ r) / (2 * variance))[0]
    total = special.logsumexp(log_likelihood, axis=1) + prior
    return np.asarray(special.softmax(total), dtype=float)


def _within(values: Floats, groups: Codes) -> Floats:
    """Rows with the mean of each group taken out."""
    _, code = np.unique(groups, return_inverse=True)
    member = np.eye(int(code.max()) + 1)[code]
    means = values @ member / member.sum(axis=0)
    return np.asarray(values - means[:, code], dtype=float)


def _sides(at: Codes, y: Floats, groups: Codes, place: int) -> tuple[Floats, Floats, Codes, Codes] | None:
    """Values and strata before and after a place; None where the two sides cannot be compared."""
    late = at >= place
    if late.all() or not late.any() or not np.isin(groups[~late], groups[late]).any():
        return None
    return y[~late], y[late], groups[~late], groups[late]


def _step(sides: tuple[Floats, Floats, Codes, Codes] | None) -> float | None:
    return None if sides is None else ttest.from_strata(*sides).ratio


def _check(sides: tuple[Floats, Floats, Codes, Codes] | None, settings: Settings) -> Comparison | None:
    if sides is None:
        return None
    before, after, *strata = sides
    several = np.unique(np.concatenate(strata)).size > 1
    context = Context(arm="after", baseline="before", margin=settings.margin, confidence=0.95)
    return compare_log_runs(before, after, context, strata=(strata[0], strata[1]) if several else None)


def _state(probability: float, none: float, check: Comparison | None, settings: Settings) -> str:
    if none >= settings.level:
        return "no_step"
    wanted = {Verdict.SLOWER, Verdict.FASTER} if settings.either_way else {Verdict.SLOWER}
    if probability >= settings.level and check is not None and check.verdict in wanted:
        return "found"
    return "undecided"


def _next(
    at: Codes,
    y: Floats,
    posterior: Floats,
    count: int,
    excluded: frozenset[int],
    settings: Settings,
) -> int | None:
    """The commit whose run is expected to tell most; both ends first."""
    made = np.bincount(at, minlength=count)
    usable = np.array([i for i in range(count) if i not in excluded], dtype=np.int64)
    if usable.size < 2:
        return None
    ends = (int(usable[0]), int(usable[-1]))
    fewest = min(ends, key=lambda i: made[i])
    if made[fewest] < settings.start:
        return fewest
    place = int(np.argmax(posterior[:-1])) + 1
    if posterior[place - 1] >= settings.level:  # the place is known, the verdict on its size is not
        sides = usable[usable < place], usable[usable >= place]
        rarer = min(sides, key=lambda side: made[side].sum() if side.size else np.inf)
        return int(rarer[np.argmin(made[rarer])])
    gain = _expected_gain(at, y, posterior, count, settings)[usable]
    return int(usable[np.argmax(np.round(gain, 6))])


def _expected_gain(at: Codes, y: Floats, posterior: Floats, count: int, settings: Settings) -> Floats:
    """What one run of each commit is expected to tell, in nats, shape (count,).

    Each place of the step predicts a mean and a variance for the run; between places the means differ. For
    normal mixtures the gain is about log(1 + variance of the means / mean variance) / 2.
    """
    places = np.arange(1, count + 1)  # the last one: no step
    after = at[None, :] >= places[:, None]
    after[-1] = False
    n0, n1 = (~after).sum(axis=1), after.sum(axis=1)
    mean0 = (~after) @ y / np.maximum(n0, 1)
    mean1 = after @ y / np.maximum(n1, 1)
    explained = posterior @ (n0 * n1 * (mean1 - mean0) ** 2) / y.size
    left = (float(((y - y.mean()) ** 2).sum()) - explained) / max(y.size - 2, 1)
    spread = max(left, float(SPREADS[0]) ** 2)
    ratio = spread / settings.scale**2
    shrink = n1 / (n1 + ratio)
    weight = shrink * ratio  # what the runs after the step say about the level before it
    low = (n0 * mean0 + weight * mean1) / (n0 + weight)
    low_variance = spread / (n0 + weight)
    high = low + shrink * (mean1 - low)
    high_variance = (1 - shrink) ** 2 * low_variance + spread / (n1 + ratio)
    late = np.arange(count)[None, :] >= places[:, None]
    late[-1] = False
    mean = np.where(late, high[:, None], low[:, None])
    variance = spread + np.where(late, high_variance[:, None], low_variance[:, None])
    centre = posterior @ mean
    between = posterior @ (mean - centre) ** 2
    return np.asarray(0.5 * np.log1p(between / (posterior @ variance)), dtype=float)
