"""Figures draw the numbers of the records, and nothing a file says can become markup."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_support import DATA, chain, write

from rcatools.errors import InputError
from rcatools.report import session, trace_items
from rcatools.report.charts import Drawn
from rcatools.report.session import bundle
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
    assert figure.layout.title.text.startswith("Roofline<br><sup>1 of 8 kernels, 54.7 %")
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


# --- what the notebook shows ------------------------------------------------------------------------------


def shown(profiles: trace_items.Profiles) -> dict[str, list[Any]]:
    return {
        "about": trace_items.about(profiles),
        "kernels": trace_items.kernels(profiles, 5),
        "roofline": trace_items.roofline(profiles),
        "distributions": trace_items.distributions(profiles),
        "difference": trace_items.difference(profiles, 5),
    }


def test_two_files_are_shown_with_every_figure_and_its_numbers() -> None:
    files = [str(DATA / f"trace_{name}.json.gz") for name in ("off", "side")]
    profiles = trace_items.open_profiles("capture-stream", (), files)
    items = shown(profiles)
    table = items["about"][0]
    assert [row[0].text for row in table.rows] == ["trace_off.json.gz", "trace_side.json.gz"]
    assert [row[2].text for row in table.rows] == ["1650", "1650"]
    for label, drawn in zip(("off", "side"), items["kernels"], strict=True):
        assert drawn.table.title == f"Kernels of trace_{label}.json.gz"
        assert len(drawn.table.rows) == 5
        assert "3 more rows" in drawn.table.note
    assert len(items["distributions"][0].table.rows) == 2 * 6
    waterfall, deltas, between = (item for item in items["difference"] if isinstance(item, Drawn))
    terms = {row[0].text: float(row[1].text.removesuffix(" us")) for row in waterfall.table.rows}
    assert sum(value for term, value in terms.items() if term != "total") == pytest.approx(terms["total"], abs=0.002)  # fmt: skip
    assert deltas.table.rows[0][-1].text == "neither"
    assert [row[3].text for row in between.table.rows[1::2]] == ["96.0 ns", "480 ns"]
    case = session.open_case("capture-stream", ["capture-stream-h200"])
    assert "read as additive" in trace_items.answer(profiles, case)[0]
    assert trace_items.answer(profiles, case)[1:] == case.sentences("02_profile_kernels")
    for item in (*items["kernels"], waterfall, deltas, between):
        made = bundle(item)
        assert {"application/vnd.plotly.v1+json", "text/html", "text/plain"} <= set(made)
        assert json.dumps(made, allow_nan=False)


def test_the_recordings_own_traces_have_a_roofline_from_its_ceilings_and_its_declared_work() -> None:
    profiles = trace_items.open_profiles("capture-stream", ["capture-stream-h200"])
    assert (profiles.a, profiles.b) == ("off", "side")
    assert list(profiles.traces) == ["off", "off_again", "side"]
    items = shown(profiles)
    rows = {row[0].text: row for row in items["roofline"][0].table.rows}
    assert rows["expert_gemm_kernel"][1].text == "compute"
    assert "measured in capture-stream-h200" in rows["expert_gemm_kernel"][-1].text


def test_one_file_is_shown_alone_and_a_missing_one_named(tmp_path: Path) -> None:
    file = write(tmp_path / "t.json", chain([5.0, 6.5] * 20, ["k", "gemm"] * 20))
    items = shown(trace_items.open_profiles("capture-stream", (), [str(file)]))
    assert items["difference"] == ["No comparison: it takes two traces with GPU activity."]
    assert len(items["kernels"]) == 1
    with pytest.raises(InputError, match="two to compare"):
        trace_items.open_profiles("capture-stream", (), [str(file)] * 3)
    with pytest.raises(InputError, match="does not exist"):
        trace_items.open_profiles("capture-stream", (), [str(tmp_path / "none.json")])


def test_traces_without_gpu_activity_and_cards_that_differ_say_so(tmp_path: Path) -> None:
    empty = write(tmp_path / "e.json", [])
    one = write(tmp_path / "a.json", chain([5.0] * 20, ["gemm"] * 20), "NVIDIA H200")
    other = write(tmp_path / "b.json", chain([5.0] * 20, ["gemm"] * 20), "AMD Instinct MI300X")
    items = shown(trace_items.open_profiles("capture-stream", (), [str(one), str(empty)]))
    assert "no GPU activity" in {cell.text for row in items["about"][0].rows for cell in row}
    assert isinstance(items["difference"][0], str)
    items = shown(trace_items.open_profiles("capture-stream", (), [str(one), str(other)]))
    assert "different devices" in items["roofline"][0]


def test_distributions_stay_small_and_say_how_many_are_drawn(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path / "t.json", chain([5.0, 6.5] * 3000, ["k", "gemm"] * 3000)))
    figure = distribution_figure({"one": trace})
    assert sum(len(box.y) for box in figure.data) == 3000
    assert figure.layout.title.text.endswith("<sup>3000 of 6000 launches drawn</sup>")
