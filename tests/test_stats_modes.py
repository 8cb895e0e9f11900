"""Two levels: found where they are, not where tails, skew, rounding or drift look like them."""

from __future__ import annotations

import numpy as np
import pytest

from rcatools.stats.mixtures import modes_in_pairs, modes_in_runs
from rcatools.stats.modes import find_modes, find_modes_rows

ROWS = 1500


def mixture(rng: np.random.Generator, n: int, share: float, gap: float, sd: float) -> np.ndarray:
    return rng.normal(0, sd, (ROWS, n)) + np.log1p(gap) * (rng.random((ROWS, n)) < share)


@pytest.mark.parametrize("sd", [0.003, 0.01, 0.015])
def test_thirty_seventy_mixture_is_named_at_twelve_runs(sd: float) -> None:
    rows = mixture(np.random.default_rng(1), 12, 0.3, 0.2, sd)
    assert find_modes_rows(rows).found.mean() >= 0.9


@pytest.mark.parametrize("n", [6, 12, 30])
@pytest.mark.parametrize("shape", ["normal", "t3", "skewed", "uniform", "trend"])
def test_one_level_is_rarely_named(n: int, shape: str) -> None:
    rng = np.random.default_rng(2)
    rows = {
        "normal": lambda: rng.normal(0, 0.01, (ROWS, n)),
        "t3": lambda: 0.01 * rng.standard_t(3, (ROWS, n)),
        "skewed": lambda: 0.05 * np.exp(0.5 * rng.standard_normal((ROWS, n))),
        "uniform": lambda: rng.uniform(0, 0.05, (ROWS, n)),
        "trend": lambda: rng.normal(0, 0.003, (ROWS, n)) + np.linspace(0, 0.03, n),
    }[shape]()
    assert find_modes_rows(rows).found.mean() <= 0.05


def test_share_gap_and_members_are_told() -> None:
    values = [100.1, 99.8, 120.3, 100.3, 119.7, 99.9, 120.0, 100.0]
    modes = find_modes(values)
    assert modes.found
    assert modes.members == tuple(v > 110 for v in values)
    assert modes.share_high == pytest.approx(3 / 8)
    assert modes.gap == pytest.approx(0.2, abs=0.003)
    assert modes.p_value < 0.01


def test_rounded_values_are_not_two_levels() -> None:
    assert not find_modes([35.3, 35.3, 35.4, 35.4, 35.3, 35.4, 35.3, 35.4]).found
    assert not find_modes([100, 100, 100, 102, 102, 102, 102, 100]).found
    assert not find_modes([5.0] * 8).found


def test_one_far_run_is_an_outlier_among_few() -> None:
    assert not find_modes([100, 100.5, 99.5, 100.2, 99.9, 130]).found
    assert find_modes([100, 100.5]).n == 2
    assert not find_modes([]).found


def test_levels_in_runs_forbid_a_verdict_unless_all_runs_lie_apart() -> None:
    rng = np.random.default_rng(3)
    low = rng.normal(0, 0.005, 12)
    lottery = rng.normal(0, 0.005, 12) + 0.18 * (np.arange(12) % 3 == 0)
    note = modes_in_runs(low, lottery)[0]
    assert note.blocks
    assert "4 of 12" in note.text
    apart = modes_in_runs(low, lottery + 0.4)[0]
    assert not apart.blocks


def test_levels_shared_by_both_arms_in_the_same_blocks_cancel() -> None:
    rng = np.random.default_rng(4)
    state = 0.18 * (rng.random(12) < 0.4)
    b, c = state + rng.normal(0, 0.004, 12), state + rng.normal(0.02, 0.004, 12)
    notes = modes_in_pairs(b, c, c - b)
    assert notes
    assert not any(note.blocks for note in notes)


def test_a_baseline_that_visits_the_candidates_level_is_seen_with_four_runs_an_arm() -> None:
    base, head = np.log([22.6, 25.4, 22.5, 22.7]), np.log([25.1, 25.2, 22.6, 25.8])
    assert modes_in_runs(base, head)[0].blocks
    clean = np.log([22.6, 22.55, 22.5, 22.7]), np.log([25.1, 25.2, 25.3, 25.8])
    assert modes_in_runs(*clean) == []
