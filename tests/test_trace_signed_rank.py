"""The signed-rank test against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rcatools.trace.boundaries import _median_interval
from rcatools.trace.signed_rank import EXACT_UP_TO, signed_rank_p


@pytest.mark.parametrize("size", [1, 2, 6, 13, EXACT_UP_TO])
def test_small_samples_without_ties_are_exact(size: int) -> None:
    for seed in range(30):
        change = np.random.default_rng(seed).normal(0.3, 1, size)
        assert signed_rank_p(change) == pytest.approx(stats.wilcoxon(change, method="exact").pvalue, rel=1e-12)  # fmt: skip


@pytest.mark.parametrize("size", [8, 26, 400])
def test_ties_zeros_and_large_samples_are_approximated_as_scipy_does(size: int) -> None:
    for seed in range(30):
        change = np.round(np.random.default_rng(seed).normal(0.2, 1, size), 1)
        if size > EXACT_UP_TO or np.unique(np.abs(change)).size < size:
            expected = stats.wilcoxon(change, zero_method="zsplit", method="approx").pvalue
            assert signed_rank_p(change) == pytest.approx(expected, rel=1e-9)


def test_no_change_at_all_is_no_evidence() -> None:
    assert signed_rank_p(np.zeros(40)) == 1.0


@pytest.mark.parametrize("size", [20, 51, 77, 600])
def test_the_interval_of_the_median_is_that_of_resampled_blocks(size: int) -> None:
    values = np.random.default_rng(size).normal(0.35, 0.2, size)
    blocks = np.array_split(values, min(50, size))
    picked = np.random.default_rng(0).integers(0, len(blocks), (999, len(blocks)))
    medians = [np.median(np.concatenate([blocks[i] for i in row])) for row in picked]
    median, interval = _median_interval(values)
    assert median == np.median(values)
    assert interval == pytest.approx(tuple(np.quantile(medians, [0.005, 0.995])))
