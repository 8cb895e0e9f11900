"""Paired and unpaired comparisons against scipy, statsmodels and numbers worked by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import statsmodels.formula.api as smf
from pandas import DataFrame
from scipy import stats
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW, ttost_paired

from rcatools.stats import exact, extremes, ttest
from rcatools.stats.detection import blocks_needed, detectable_two_samples, smallest_detectable
from rcatools.stats.paired import compare_blocks
from rcatools.stats.records import Verdict
from rcatools.stats.unpaired import compare_runs

RNG = np.random.default_rng(42)
BASE = np.exp(RNG.normal(7, 0.02, 12))
SLOW = BASE * np.exp(RNG.normal(0.03, 0.01, 12))


def test_paired_t_matches_scipy_on_logs() -> None:
    done = compare_blocks(BASE, SLOW)
    reference = stats.ttest_rel(np.log(SLOW), np.log(BASE))
    low, high = reference.confidence_interval(0.95)
    assert done.p_value == pytest.approx(reference.pvalue, rel=1e-9)
    assert done.estimate.ci_low == pytest.approx(math.exp(low), rel=1e-9)
    assert done.estimate.ci_high == pytest.approx(math.exp(high), rel=1e-9)
    assert done.estimate.ratio == pytest.approx(stats.gmean(SLOW / BASE), rel=1e-12)
    assert done.verdict == "slower"
    assert done.reasons[0] == "interval_excludes_one"


def test_paired_by_hand() -> None:
    # log2 ratios 1, 1, 4 halves of log 2: mean 2 d, sd sqrt(3) d, error d, t = 2 with 2 degrees of freedom
    d = math.log(2) / 2
    done = compare_blocks([1, 1, 1], [math.exp(d), math.exp(d), math.exp(4 * d)])
    assert done.estimate.ratio == pytest.approx(2.0)
    assert done.estimate.sd_log == pytest.approx(math.sqrt(3) * d)
    assert done.p_value == pytest.approx(1 - 2 / math.sqrt(6))  # t distribution with 2 df in closed form
    assert done.p_floor == 0.25


def test_equivalence_matches_statsmodels_on_logs() -> None:
    near = BASE * np.exp(RNG.normal(0.002, 0.008, 12))
    done = compare_blocks(BASE, near, margin=0.02)
    p_value, *_ = ttost_paired(near, BASE, 1 / 1.02, 1.02, transform=np.log)
    assert done.p_equivalence == pytest.approx(p_value, rel=1e-9)
    assert done.verdict is Verdict.EQUIVALENT


def test_welch_matches_scipy_and_statsmodels() -> None:
    other = np.exp(RNG.normal(7.05, 0.05, 7))
    done = compare_runs(BASE, other)
    logs = np.log(other), np.log(BASE)
    assert done.p_value == pytest.approx(stats.ttest_ind(*logs, equal_var=False).pvalue, rel=1e-9)
    low, high = CompareMeans(*map(DescrStatsW, logs)).tconfint_diff(usevar="unequal")
    assert done.estimate.ci_low == pytest.approx(math.exp(low), rel=1e-9)
    assert done.estimate.ci_high == pytest.approx(math.exp(high), rel=1e-9)


def test_strata_match_a_linear_model_with_machine_dummies() -> None:
    machine = np.array([0, 0, 1, 1, 1, 2, 2, 2, 2, 3])
    arm = np.array([0, 1, 0, 1, 1, 0, 0, 1, 1, 0])
    y = RNG.normal(0, 0.01, 10) + 0.1 * machine + 0.03 * arm
    model = smf.ols("y ~ arm + C(machine)", DataFrame({"y": y, "arm": arm, "machine": machine})).fit()
    d = ttest.from_strata(y[arm == 0], y[arm == 1], machine[arm == 0], machine[arm == 1])
    assert d.mean == pytest.approx(model.params["arm"])
    assert d.error == pytest.approx(model.bse["arm"])
    assert d.df == model.df_resid
    assert d.p_value() == pytest.approx(model.pvalues["arm"])


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_sign_flip_is_the_full_enumeration(n: int) -> None:
    d = RNG.normal(0.3, 1, n)
    flips = np.array(list(itertools.product([1, -1], repeat=n)))
    share = np.mean(np.abs(flips @ d) >= abs(d.sum()) - 1e-12)
    assert exact.sign_flip_p(d) == pytest.approx(share, abs=1e-12)
    assert exact.sign_flip_p(np.ones(n)) == pytest.approx(exact.sign_flip_floor(n))


def test_sign_flip_agrees_with_scipy_and_large_n_with_its_limit() -> None:
    d = RNG.normal(0.2, 1, 8)
    reference = stats.permutation_test((d,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert exact.sign_flip_p(d) == pytest.approx(reference.pvalue)
    many = RNG.normal(0.15, 1, 40)
    z = many.sum() / np.sqrt(many @ many)
    assert exact.sign_flip_p(many) == pytest.approx(2 * stats.norm.sf(abs(z)), rel=0.05)


def test_mann_whitney_without_and_with_ties() -> None:
    a, b = [9228, 7814, 7639], [7806, 7689, 7700]
    assert exact.mann_whitney_p(a, b) == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue)
    tied = [1.0, 2.0, 2.0], [2.0, 3.0, 3.0, 3.0]
    reference = stats.permutation_test(
        tied,
        lambda x, y: abs(stats.rankdata(np.r_[x, y])[: len(x)].sum() - 12),
        permutation_type="independent",
        alternative="greater",
        n_resamples=np.inf,
    )
    assert exact.mann_whitney_p(*tied) == pytest.approx(reference.pvalue)
    assert exact.rank_floor(3, 3) == pytest.approx(0.1)


def test_power_matches_statsmodels() -> None:
    effect = math.log1p(smallest_detectable(0.02, 9))
    assert TTestPower().power(effect / 0.02, nobs=9, alpha=0.05) == pytest.approx(0.8, abs=1e-4)
    reached = TTestPower().solve_power(math.log1p(0.01) / 0.01, alpha=0.05, power=0.8)
    assert blocks_needed(0.01, 0.01) == math.ceil(reached)
    assert [blocks_needed(0.01, e) for e in (0.05, 0.02, 0.01, 0.005)] == [3, 5, 11, 34]
    assert detectable_two_samples(0.01, 5, 5) > smallest_detectable(0.01, 5)


@pytest.mark.parametrize(("n", "expected"), [(1, "single_run_per_arm"), (2, "too_few_runs")])
def test_few_blocks_never_decide(n: int, expected: str) -> None:
    done = compare_blocks(np.full(n, 100.0), np.full(n, 200.0) + np.arange(n))
    assert done.verdict == "undecided"
    assert done.reasons[0] == expected
    assert (done.p_value is None) == (n == 1)


def test_missing_pairs_are_dropped_and_counted() -> None:
    candidate = SLOW.copy()
    candidate[[1, 4]] = np.nan, -3.0
    done = compare_blocks(BASE, candidate)
    keep = np.isfinite(candidate) & (candidate > 0)
    assert done.dropped == 2
    assert done.estimate.n == 10
    assert done.p_value == pytest.approx(stats.ttest_rel(np.log(candidate[keep]), np.log(BASE[keep])).pvalue)


def test_wrong_calls_raise() -> None:
    with pytest.raises(ValueError, match="one length"):
        compare_blocks([1, 2], [1])
    with pytest.raises(ValueError, match="none of 2 blocks"):
        compare_blocks([np.nan, 1], [1, np.nan])
    with pytest.raises(ValueError, match="margin"):
        compare_blocks([1], [1], margin=2)
    with pytest.raises(ValueError, match="positive time"):
        compare_runs([], [1])


def test_margin_wins_over_significance_and_says_so() -> None:
    tight = BASE * 1.008 * np.exp(RNG.normal(0, 0.001, 12))
    done = compare_blocks(BASE, tight)
    assert done.verdict == "equivalent"
    assert set(done.reasons) >= {"interval_inside_margin", "interval_excludes_one"}
    assert "smaller than the margin" in " ".join(done.warnings)
    assert compare_blocks(BASE, tight, margin=0.002).verdict == "slower"


def test_noise_floor_forbids_a_verdict_below_it() -> None:
    done = compare_blocks(BASE, SLOW, noise_floor=0.05)
    assert done.verdict == "undecided"
    assert done.reasons[0] == "within_noise_floor"
    assert compare_blocks(BASE, SLOW, noise_floor=0.01).verdict == "slower"
    same = BASE * np.exp(RNG.normal(0, 0.001, 12))
    assert compare_blocks(BASE, same, noise_floor=0.01).verdict == "equivalent"
    assert compare_blocks(BASE, same, noise_floor=0.03).verdict == "undecided"


def test_an_outlier_that_carries_the_effect_is_named_and_kept() -> None:
    done = compare_runs([100, 101, 99.5], [100.2, 99.8, 124])
    assert done.verdict == "undecided"
    assert "outlier_carries_effect" in done.reasons
    assert done.without_extreme is not None
    assert done.without_extreme.value == pytest.approx(124)
    assert done.without_extreme.ratio == pytest.approx(
        stats.gmean([100.2, 99.8]) / stats.gmean([100, 101, 99.5])
    )
    assert done.estimate.n == 3
    assert done.estimate.ratio == pytest.approx(
        stats.gmean([100.2, 99.8, 124]) / stats.gmean([100, 101, 99.5])
    )


def test_an_outlier_beside_a_real_effect_carries_nothing() -> None:
    slow = SLOW * np.exp(0.2)
    slow[0] *= 1.3
    done = compare_blocks(BASE, slow)
    assert done.verdict == "slower"
    assert "outlier_carries_effect" not in done.reasons
    assert done.without_extreme is not None
    assert done.without_extreme.is_outlier


def test_modified_z_by_hand() -> None:
    # median 3, absolute deviations 2 1 0 1 97, their median 1: z = 97 / 1.4826
    index, distance, z = extremes.farthest(np.array([1.0, 2.0, 3.0, 4.0, 100.0]))
    assert (index, distance) == (4, 97.0)
    assert z == pytest.approx(97 / 1.4826)


def test_no_spread_at_all_is_told() -> None:
    done = compare_runs([5.0, 5.0, 5.0], [6.0, 6.0, 6.0])
    assert done.verdict == "slower"
    assert done.p_value == 0.0
    assert "no spread" in " ".join(done.warnings)
    assert compare_runs([5.0] * 3, [5.0] * 3).verdict == "equivalent"
