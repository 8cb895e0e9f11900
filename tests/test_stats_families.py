"""Corrections, sequential bounds, fits and the reduction of samples, against other libraries and by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.stats.multitest import multipletests

from rcatools.errors import InputError
from rcatools.stats import multiplicity
from rcatools.stats.drift import explains, trend, wanders
from rcatools.stats.fits import additive_multiplicative
from rcatools.stats.reduce import run_values
from rcatools.stats.sequential import bounds

RNG = np.random.default_rng(7)


def test_holm_by_hand() -> None:
    # 0.01 * 3, then max(0.03, 0.02 * 2), then max(0.04, 0.04)
    assert multiplicity.holm([0.02, np.nan, 0.01, 0.04]) == pytest.approx(
        [0.04, np.nan, 0.03, 0.04], nan_ok=True
    )


def test_false_discovery_matches_statsmodels_and_scipy() -> None:
    p = np.append(RNG.uniform(size=40) ** 2, [1.0, 0.0, 0.5, 0.5])
    assert multiplicity.false_discovery(p) == pytest.approx(stats.false_discovery_control(p))
    assert multiplicity.false_discovery(p) == pytest.approx(multipletests(p, method="fdr_bh")[1])
    assert multiplicity.false_discovery(p, dependent=True) == pytest.approx(
        multipletests(p, method="fdr_by")[1]
    )


def test_discoveries_need_significance_and_size() -> None:
    found = multiplicity.discoveries([1.10, 1.01, 1.10, 0.90], [1e-6, 1e-6, 0.5, np.nan], min_effect=0.02)
    assert found.tolist() == [True, False, False, False]


def test_dunnett_lies_between_raw_and_bonferroni() -> None:
    control = np.exp(RNG.normal(0, 0.02, 10))
    arms = [np.exp(RNG.normal(shift, 0.02, 10)) for shift in (0.0, 0.015, 0.03)]
    adjusted = multiplicity.dunnett(arms, control)
    pooled = np.sqrt(np.mean([np.log(a).var(ddof=1) for a in (*arms, control)]))
    for p, arm in zip(adjusted, arms, strict=True):
        t = (np.log(arm).mean() - np.log(control).mean()) / (pooled * math.sqrt(2 / 10))
        raw = 2 * stats.t.sf(abs(t), 36)
        assert raw - 1e-3 <= p <= min(1, 3 * raw) + 1e-3


def test_pocock_and_obrien_fleming_match_the_published_tables() -> None:
    # Jennison and Turnbull (2000), tables 2.1 and 2.3, alpha 0.05
    for looks, pocock, fleming in ((2, 2.178, 1.977), (3, 2.289, 2.004), (5, 2.413, 2.040)):
        assert bounds(looks).z == pytest.approx([pocock] * looks, abs=2e-3)
        expected = [fleming * math.sqrt(looks / k) for k in range(1, looks + 1)]
        assert bounds(looks, "obrien-fleming").z == pytest.approx(expected, abs=5e-3)
    assert bounds(1).z == pytest.approx([stats.norm.isf(0.025)])


def test_bounds_hold_their_error_for_unequal_looks() -> None:
    looks = (6, 12, 18, 30)
    plan = bounds(looks)
    x = np.cumsum(RNG.standard_normal((40_000, 30)), axis=1)
    z = np.abs(x[:, np.array(looks) - 1]) / np.sqrt(looks)
    assert np.mean(np.any(z >= np.array(plan.z), axis=1)) == pytest.approx(0.05, abs=0.005)


@pytest.mark.parametrize("looks", [0, [], [3, 3], [-1, 2]])
def test_bounds_refuse_no_plan(looks: object) -> None:
    with pytest.raises(ValueError, match="increasing"):
        bounds(looks)  # type: ignore[arg-type]


def test_fit_tells_additive_from_multiplicative() -> None:
    base = np.geomspace(2, 400, 60)
    both = additive_multiplicative(base, 0.9 + 0.05 * base + RNG.normal(0, 0.02, 60))
    assert both.intercept_ci[0] < 0.9 < both.intercept_ci[1]
    assert both.slope_ci[0] < 0.05 < both.slope_ci[1]
    additive = additive_multiplicative(base, 0.9 + RNG.normal(0, 0.02, 60))
    assert additive.slope_ci[0] < 0 < additive.slope_ci[1]
    assert additive.intercept_ci[0] > 0.8


def test_weighted_fit_matches_a_formula_route() -> None:
    frame = pd.DataFrame({"x": np.arange(1.0, 11), "w": np.arange(1.0, 11) ** -2})
    frame["y"] = 1 + 0.2 * frame.x + RNG.normal(0, 0.1, 10) * frame.x
    model = smf.wls("y ~ x", frame, weights=frame.w).fit()
    fit = additive_multiplicative(frame.x, frame.y, frame.w)
    low, high = model.conf_int().loc["x"]
    assert fit.slope == pytest.approx(model.params["x"])
    assert fit.slope_ci == pytest.approx((low, high))


def test_fit_refuses_what_no_line_fits() -> None:
    with pytest.raises(ValueError, match="differing base times"):
        additive_multiplicative([5, 5, 5], [1, 2, 3])
    with pytest.raises(ValueError, match="one length"):
        additive_multiplicative([1, 2, 3], [1, 2])


def test_run_values_take_the_median_of_each_run() -> None:
    samples = pd.DataFrame(
        {
            "arm": ["a"] * 5 + ["b"] * 2,
            "block": [1, 1, 1, 2, 2, 1, 1],
            "run": [7, 7, 7, 8, 8, 9, 9],
            "value": [1.0, 3.0, 100.0, 2.0, 8.0, 5.0, 5.0],
        }
    )
    table = run_values(samples)
    assert table[["arm", "block", "run", "samples"]].values.tolist() == [
        ["a", 1, 7, 3],
        ["a", 2, 8, 2],
        ["b", 1, 9, 2],
    ]
    assert table["value"].tolist() == pytest.approx([3.0, 4.0, 5.0])
    with pytest.raises(InputError, match="2 samples"):
        run_values(samples.assign(value=[1, 2, 3, 4, 5, 0, np.inf]))
    with pytest.raises(InputError, match="block"):
        run_values(samples.drop(columns="block"))


def test_trend_matches_scipy() -> None:
    values = 100 * 1.002 ** np.arange(20) * np.exp(RNG.normal(0, 0.002, 20))
    found = trend(values, min_total=0.01)
    assert found is not None
    assert found.found
    assert found.p_value == pytest.approx(stats.kendalltau(np.arange(20), values).pvalue)
    assert found.slope_per_step == pytest.approx(0.002, abs=5e-4)
    assert trend(np.full(9, 3.0)) is None
    assert trend([1.0, 2.0]) is None


def test_step_and_slope_match_a_linear_model() -> None:
    order = np.arange(12.0)
    y = 0.01 * order + RNG.normal(0, 0.001, 12)
    note = explains(y[:6], y[6:], order[:6], order[6:], paired=False)
    assert note is not None
    assert note.blocks
    frame = pd.DataFrame({"y": y, "arm": (order >= 6) * 1.0, "order": order})
    step = smf.ols("y ~ arm + order", frame).fit().params["arm"]
    assert f"{100 * math.expm1(step):+.2f} %" in note.text


def test_wandering_is_autocorrelation() -> None:
    walk = np.cumsum(RNG.normal(size=60))
    order = np.arange(60.0)
    assert wanders(walk[:30], order[:30], walk[30:], order[30:])
    share = np.mean(
        [
            wanders(*(v for half in np.split(RNG.normal(size=24), 2) for v in (half, np.arange(12.0))))
            for _ in range(400)
        ]
    )
    assert share < 0.1
