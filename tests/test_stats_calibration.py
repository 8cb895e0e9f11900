"""The decision rule as a whole, by simulation: false alarms, equivalence at the boundary, power."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rcatools.stats.noise import noise_floor
from rcatools.stats.paired import compare_blocks
from rcatools.stats.sequential import bounds
from rcatools.stats.ttest import from_pairs
from rcatools.stats.unpaired import compare_runs

Noise = Callable[[np.random.Generator, int], np.ndarray]
NULLS: dict[str, Noise] = {
    "normal": lambda rng, n: rng.normal(0, 0.01, n),
    "skew": lambda rng, n: 0.015 * rng.exponential(size=n),
    "outliers": lambda rng, n: rng.normal(0, 0.01, n) + 0.1 * (rng.random(n) < 0.1),
    "two modes": lambda rng, n: rng.normal(0, 0.005, n) + np.log(1.2) * (rng.random(n) < 0.3),
}
TRIALS = 300
LIMIT = 0.07 + 2 * np.sqrt(0.07 * 0.93 / TRIALS)  # at most 7 %, with twice the error of the simulation


def walk(rng: np.random.Generator, n: int) -> np.ndarray:
    """A random walk that ends about 3 % away."""
    return 0.03 * np.cumsum(rng.normal(size=n)) / np.sqrt(n)


def alarms(verdicts: Counter[str]) -> float:
    return (verdicts["slower"] + verdicts["faster"]) / verdicts.total()


@pytest.mark.parametrize("n", [6, 12, 30])
@pytest.mark.parametrize("null", NULLS)
def test_paired_false_alarms_under_drift(null: str, n: int) -> None:
    rng, verdicts = np.random.default_rng(n), Counter[str]()
    for _ in range(TRIALS):
        drift = walk(rng, n)
        b, c = (np.exp(drift + NULLS[null](rng, n)) for _ in "ab")
        verdicts[compare_blocks(b, c).verdict] += 1
    assert alarms(verdicts) <= LIMIT


@pytest.mark.parametrize("n", [4, 12])
@pytest.mark.parametrize("null", NULLS)
def test_unpaired_false_alarms_with_arms_in_random_order(null: str, n: int) -> None:
    rng, verdicts = np.random.default_rng(n + 1), Counter[str]()
    for _ in range(TRIALS):
        values = np.exp(walk(rng, 2 * n) + NULLS[null](rng, 2 * n))
        at = rng.permutation(2 * n)
        verdicts[compare_runs(values[at[:n]], values[at[n:]]).verdict] += 1
    assert alarms(verdicts) <= LIMIT


def test_false_equivalence_at_the_boundary_and_power_when_equal() -> None:
    rng, edge, equal = np.random.default_rng(5), 0, 0
    for _ in range(1000):
        d = rng.normal(0, 0.01, 8)
        edge += from_pairs(d + np.log(1.02)).p_equivalence(0.02) < 0.05
        equal += from_pairs(d).p_equivalence(0.02) < 0.05
    assert edge / 1000 <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)
    assert equal / 1000 >= 0.95


def test_a_planted_two_percent_is_found_at_twelve_blocks_in_spite_of_a_noise_floor() -> None:
    rng, verdicts = np.random.default_rng(6), Counter[str]()
    for _ in range(TRIALS):
        drift = walk(rng, 12)
        a, a2, c = (np.exp(drift + rng.normal(0, 0.01 / np.sqrt(2), 12)) for _ in range(3))
        floor = noise_floor(a, a2)
        assert floor is not None
        verdicts[compare_blocks(a, 1.02 * c, noise_floor=floor.floor).verdict] += 1
    assert verdicts["slower"] / TRIALS >= 0.8
    assert verdicts["faster"] == 0


def test_five_looks_keep_their_error_where_plain_peeking_does_not() -> None:
    rng = np.random.default_rng(8)
    looks = (6, 12, 18, 24, 30)
    d = rng.normal(0, 1, (4000, 30))
    plan = bounds(looks)
    planned, peeking = np.zeros(4000, dtype=bool), np.zeros(4000, dtype=bool)
    for look, limit in zip(looks, plan.p, strict=True):
        mean, sd = d[:, :look].mean(axis=1), d[:, :look].std(axis=1, ddof=1)
        p = np.array([from_pairs_p(m, s, look) for m, s in zip(mean, sd, strict=True)])
        planned |= p < limit
        peeking |= p < 0.05
    assert planned.mean() <= 0.07
    assert peeking.mean() > 0.1


def from_pairs_p(mean: float, sd: float, n: int) -> float:
    from scipy import special

    return float(2 * special.stdtr(n - 1, -abs(mean) / (sd / np.sqrt(n))))


def test_pooled_samples_would_alarm_where_runs_do_not() -> None:
    rng, by_run, pooled = np.random.default_rng(9), 0, 0
    for _ in range(200):
        runs = rng.normal(0, 0.01, (2, 5))
        samples = runs[:, :, None] + rng.normal(0, 0.01, (2, 5, 100))
        medians = np.exp(np.median(samples, axis=2))
        by_run += compare_runs(*medians).verdict in ("slower", "faster")
        pooled += compare_runs(*np.exp(samples.reshape(2, -1))).p_value < 0.05
    assert by_run / 200 <= LIMIT
    assert pooled / 200 > 0.4


@pytest.mark.parametrize("n", [6, 12, 30])
def test_recorded_a_a_blocks_resampled_give_no_alarms(n: int) -> None:
    source = Path(__file__).resolve().parents[1].parent / "shared" / "h200" / "decode_arms.json"
    if not source.is_file():
        pytest.skip(f"no recording at {source}")
    medians = {(run["arm"], run["block"]): np.median(run["ms"]) for run in json.loads(source.read_text())}
    blocks = sorted({block for arm, block in medians if arm == "off2"})
    pairs = np.array([[medians[arm, block] for arm in ("off", "off2")] for block in blocks])
    rng, verdicts = np.random.default_rng(n), Counter[str]()
    for _ in range(TRIALS):
        drawn = pairs[rng.integers(0, len(pairs), n)]
        swap = rng.random(n) < 0.5
        b, c = np.where(swap, drawn[:, 1], drawn[:, 0]), np.where(swap, drawn[:, 0], drawn[:, 1])
        verdicts[compare_blocks(b, c, margin=0.0005).verdict] += 1
    assert alarms(verdicts) <= LIMIT
