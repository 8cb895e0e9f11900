"""The fit of fixed and proportional change: planted truths, coverage, refusals."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from rcatools.trace.additive import AdditiveFit, fit_additive

CASES = {"additive": (1.0, 0.0), "multiplicative": (0.0, 0.2), "both": (1.0, 0.2), "neither": (0.0, 0.0)}
SEEDS = 100


def planted(
    seed: int, cost: float, share: float, *, outliers: float = 0.0, launches: int = 500, kernels: int = 50
) -> AdditiveFit:
    generator = np.random.default_rng(seed)
    base = np.exp(generator.uniform(np.log(2), np.log(200), kernels))
    kind = np.arange(launches) % kernels
    noise = 1 + 0.05 * generator.standard_normal((2, launches))
    a, b = base[kind] * noise[0], (base[kind] * (1 + share) + cost) * noise[1]
    b = np.where(generator.random(launches) < outliers, b * generator.uniform(0.5, 3, launches), b)
    return fit_additive(a, b, kind)


@pytest.mark.parametrize("outliers", [0.0, 0.1])
@pytest.mark.parametrize("reading", CASES)
def test_planted_changes_are_read_in_95_of_100_seeds(reading: str, outliers: float) -> None:
    found = [planted(seed, *CASES[reading], outliers=outliers) for seed in range(SEEDS)]
    assert Counter(fit.reading for fit in found)[reading] >= 95
    cost, share = CASES[reading]
    assert sum(fit.us_ci[0] <= cost <= fit.us_ci[1] for fit in found) >= 95
    assert sum(fit.ratio_ci[0] <= 1 + share <= fit.ratio_ci[1] for fit in found) >= 95


def test_estimates_are_not_biased_by_the_noise_of_the_baseline() -> None:
    """Least squares of the change against the noisy base would give a share of about -0.2 % of itself and more."""
    found = [planted(seed, 0.0, 0.0) for seed in range(200)]
    ratio = np.array([fit.ratio for fit in found])
    assert abs(ratio.mean() - 1) < 3 * ratio.std() / np.sqrt(len(found)) + 5e-4


def test_noiseless_change_is_recovered() -> None:
    a = np.linspace(2, 100, 60)
    fit = fit_additive(a, 1.1 * a + 0.5, np.arange(60))
    assert fit.us_per_kernel == pytest.approx(0.5, abs=1e-6)
    assert fit.ratio == pytest.approx(1.1, abs=1e-6)
    assert fit.reading == "both"


def test_equal_durations_cannot_be_told_apart() -> None:
    generator = np.random.default_rng(0)
    a = 10 * (1 + 0.02 * generator.standard_normal(200))
    fit = fit_additive(a, a + 2, np.zeros(200, dtype=int))
    assert fit.reading == "undecided"
    assert "do not spread enough" in fit.why
    assert "+19.99 %" in fit.why


def test_few_launches_are_not_read() -> None:
    assert fit_additive([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], [0, 1, 2]).reading == "undecided"


def test_kernels_with_their_own_peculiarity_widen_the_interval() -> None:
    """All launches of a kernel share its deviation, so the kernels and not the launches count."""
    generator = np.random.default_rng(0)
    base, own = np.exp(generator.uniform(0.7, 5, 12)), 1 + 0.05 * generator.standard_normal(12)
    kind = np.arange(1200) % 12
    a = base[kind] * (1 + 0.005 * generator.standard_normal(1200))
    b = base[kind] * own[kind] * (1 + 0.005 * generator.standard_normal(1200))
    by_kernel, by_launch = fit_additive(a, b, kind), fit_additive(a, b, np.arange(1200))
    width = [fit.ratio_ci[1] - fit.ratio_ci[0] for fit in (by_kernel, by_launch)]
    assert width[0] > 3 * width[1]


def test_zero_durations_are_left_out() -> None:
    a = np.r_[np.linspace(2, 100, 60), 0.0]
    assert fit_additive(a, np.r_[a[:-1] * 1.2, 5.0], np.arange(61)).launches == 60
