"""The bisect: the posterior against brute force, the right commit in noise, undecided where it must be."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from rcatools.batch import bisect
from rcatools.batch.bisect import Settings, locate, search
from rcatools.errors import InputError

COMMITS = 64


def noisy(place: int, seed: int, step: float = 0.03, noise: float = 0.01):
    """One run of a commit: a known step at a known place, log-normal noise."""
    rng = np.random.default_rng(seed)
    return lambda i: 100 * math.exp((math.log1p(step) if i >= place else 0.0) + rng.normal(0, noise))


def test_a_three_per_cent_step_in_one_per_cent_noise_is_found_with_fewer_runs_than_commits() -> None:
    places = np.random.default_rng(64).integers(1, COMMITS, 100)
    found = [search(noisy(int(place), seed), COMMITS) for seed, place in enumerate(places)]
    right = sum(item.first_bad == place for item, place in zip(found, places, strict=True))
    assert right >= 95
    assert max(item.runs for item in found) < COMMITS
    assert np.mean([item.runs for item in found]) < COMMITS / 2


def test_without_a_step_none_is_named() -> None:
    found = [search(noisy(0, seed, step=0.0), COMMITS, budget=25) for seed in range(30)]
    assert not [item for item in found if item.state == "found"]


def test_a_step_that_the_noise_hides_stays_undecided() -> None:
    found = [search(noisy(20, seed, step=0.01, noise=0.03), COMMITS, budget=20) for seed in range(20)]
    assert {item.state for item in found} <= {"undecided", "no_step"}
    assert any(item.state == "undecided" for item in found)
    assert all(len(item.candidates) > 1 for item in found if item.state == "undecided")


def brute(at: list[int], y: list[float], count: int, settings: Settings) -> np.ndarray:
    """The same posterior by numerical integration over the level and the step, for each spread."""
    values = np.asarray(y)
    log_like = []
    for place in [*range(1, count), None]:
        total = []
        for spread in bisect.SPREADS[::6]:

            def inner(step: float, spread: float = float(spread), place: int | None = place) -> float:
                shift = np.where(np.asarray(at) >= (place if place is not None else count), step, 0.0)
                left = values - shift
                # the level is integrated over a flat prior: a normal around the mean of what is left
                squares = ((left - left.mean()) ** 2).sum()
                return math.exp(-squares / (2 * spread**2)) * spread ** (1 - len(at))

            if place is None:
                total.append(inner(0.0))
                continue
            prior = stats.halfnorm(scale=settings.scale)
            grid = np.linspace(0, 8 * settings.scale, 20_001)
            total.append(integrate.simpson([inner(s) * prior.pdf(s) for s in grid[::10]], x=grid[::10]))
        log_like.append(sum(total))
    weights = np.asarray(log_like)
    weights[:-1] *= 0.5 / (count - 1)
    weights[-1] *= 0.5
    return weights / weights.sum()


def test_the_posterior_is_that_of_numerical_integration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisect, "SPREADS", bisect.SPREADS[24:49])
    at, y = [0, 0, 4, 4, 2, 3], [0.0, 0.012, 0.05, 0.043, 0.004, 0.04]
    expected = brute(at, y, 5, Settings())
    monkeypatch.setattr(bisect, "SPREADS", bisect.SPREADS[::6])
    found = locate(at, y, 5)
    assert np.diff(found.bad) == pytest.approx(expected[:-1], abs=2e-3)
    assert found.no_step == pytest.approx(expected[-1], abs=2e-3)


def test_levels_of_machines_are_taken_out() -> None:
    rng = np.random.default_rng(3)
    at = np.repeat(np.arange(10), 4)
    machine = np.tile([0, 1, 0, 1], 10)
    y = 0.03 * (at >= 6) + 0.4 * machine + rng.normal(0, 0.004, at.size)
    assert locate(at, y, 10).state == "undecided"
    found = locate(at, y, 10, stratum=machine)
    assert found.first_bad == 6
    assert found.check is not None
    assert found.check.verdict == "slower"
    assert found.step == pytest.approx(math.exp(0.03), abs=0.004)


def test_a_machine_that_measured_one_side_only_decides_nothing() -> None:
    at = np.repeat(np.arange(6), 3)
    machine = (at >= 3).astype(int)
    y = 0.05 * machine + np.random.default_rng(1).normal(0, 0.002, at.size)
    assert locate(at, y, 6).first_bad == 3
    assert locate(at, y, 6, stratum=machine).first_bad is None


def test_a_commit_that_cannot_be_measured_is_left_out_and_the_rest_named_as_a_range() -> None:
    run = noisy(30, 5)
    found = search(lambda i: math.nan if i in {29, 30, 31} else run(i), COMMITS)
    assert found.state == "undecided"
    assert set(found.candidates) <= {29, 30, 31, 32}
    assert {found.verdict_of(i) for i in (0, 28)} == {"good"}
    assert {found.verdict_of(i) for i in (32, 63)} == {"bad"}
    assert found.verdict_of(30) == "undecided"


def test_faster_steps_are_found_only_when_asked_for() -> None:
    run = noisy(12, 8, step=-0.04)
    assert search(run, 24).state != "found"
    found = search(noisy(12, 8, step=-0.04), 24, settings=Settings(either_way=True))
    assert found.first_bad == 12
    assert found.check is not None
    assert found.check.verdict == "faster"


def test_probabilities_are_probabilities_whatever_was_measured() -> None:
    rng = np.random.default_rng(0)
    for count, runs in itertools.product((2, 3, 40), (0, 1, 2, 9)):
        at = rng.integers(0, count, runs)
        found = locate(at, rng.normal(0, 0.01, runs), count)
        assert found.bad.shape == (count,)
        assert (np.diff(found.bad) >= 0).all()
        assert found.bad[-1] + found.no_step == pytest.approx(1.0)
        assert found.next is None or 0 <= found.next < count


def test_equal_values_name_nothing() -> None:
    found = locate([0, 1, 2, 3] * 3, [0.0] * 12, 4)
    assert found.state in {"no_step", "undecided"}


@pytest.mark.parametrize(
    ("at", "y", "count"),
    [([0], [0.0, 1.0], 4), ([4], [0.0], 4), ([-1], [0.0], 4), ([0], [math.nan], 4), ([0], [0.0], 1)],
)
def test_wrong_measurements_are_refused(at: list[int], y: list[float], count: int) -> None:
    with pytest.raises(InputError):
        locate(at, y, count)


@pytest.mark.parametrize("change", [{"scale": 0}, {"level": 0.4}, {"margin": 1.0}, {"start": 0}])
def test_wrong_settings_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Settings(**change)
