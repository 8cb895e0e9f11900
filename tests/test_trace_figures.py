"""Figures draw the numbers of the records, and nothing a file says can become markup."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from trace_support import DATA, chain, write

from rcatools.report.trace_figures import (
    delta_figure,
    distribution_figure,
    gaps_figure,
    roofline_figure,
    share_figure,
    waterfall_figure,
)
from rcatools.trace.bounds import Ceilings
from rcatools.trace.diff import diff
from rcatools.trace.read import load_trace
from rcatools.trace.summary import summarize
from rcatools.trace.work import Work

OFF, SIDE = load_trace(DATA / "trace_off.json.gz"), load_trace(DATA / "trace_side.json.gz")
EVIL = "<img src=x onerror=alert(1)><b>k</b>"


def test_shares_add_up_and_the_rest_is_shown() -> None:
    figure = share_figure(summarize(OFF), top=3)
    assert sum(float(np.sum(bar.x)) for bar in figure.data) == pytest.approx(1)
    assert "1650 kernels" in figure.layout.title.text


def test_waterfall_ends_where_b_is() -> None:
    difference = diff(OFF, SIDE)
    bars = waterfall_figure(difference).data[0]
    assert sum(bars.y[:-1]) == pytest.approx(bars.y[-1]) == pytest.approx(difference.spans_us[1])
    assert bars.x == ("a", "slower", "launches", "replaced", "new", "gone", "unaligned", "gaps", "b")


def test_the_fitted_line_goes_through_a_planted_change(tmp_path: Path) -> None:
    base = np.linspace(3, 90, 200)
    names = [f"gemm_{i % 20}" for i in range(200)]
    difference = diff(
        load_trace(write(tmp_path / "a.json", chain(base, names))),
        load_trace(write(tmp_path / "b.json", chain(1.1 * base + 2, names))),
    )
    figure = delta_figure(difference)
    line = figure.data[-1]
    mean = 10 * (1 + 1.1) / 2 + 1
    assert np.interp(mean, line.x, line.y) == pytest.approx(3.0, abs=0.02)
    assert sum(len(part.x) for part in figure.data[:-1]) == 200


def test_gap_curves_show_the_shift() -> None:
    figure = gaps_figure({"off": OFF, "side": SIDE})
    medians = [float(np.interp(0.5, curve.y, curve.x)) for curve in figure.data]
    assert medians[1] - medians[0] == pytest.approx(0.35, abs=0.05)


def test_roofline_draws_known_kernels_and_counts_the_others() -> None:
    card = Ceilings(4e12, {"bf16": 8e14}, "probe")
    figure = roofline_figure(summarize(OFF, card, {"reduce_kernel": Work(1.2e8, 6e7, "bf16")}), card)
    assert figure.layout.title.text.startswith("Roofline: 1 of 8 kernels, 54.7 %")
    assert figure.data[0].x[0] == pytest.approx(0.5)


def test_distribution_holds_every_launch() -> None:
    figure = distribution_figure({"off": OFF, "side": SIDE}, top=8)
    assert [len(box.y) for box in figure.data] == [1650, 1650]


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path / "t.json", chain([5.0, 6.5] * 20, [EVIL, "gemm"] * 20)))
    difference = diff(trace, trace)
    drawn = [share_figure(summarize(trace)), distribution_figure({EVIL: trace}), waterfall_figure(difference), delta_figure(difference), gaps_figure({EVIL: trace}, "eager")]  # fmt: skip
    for figure in drawn:
        assert "<img" not in figure.to_json().replace("\\u003c", "<")
