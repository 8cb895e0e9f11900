"""Charts: the drawing and the table hold the same numbers, on axes that a reader can check."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import hostile
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import sample_document

from rcatools.report import figures
from rcatools.report.charts import Bars, Curve, Forest, Interval, Strip, is_empty, numbered_families
from rcatools.report.plot import figure
from rcatools.report.svg import draw, ticks

SVG = "{http://www.w3.org/2000/svg}"

FOREST = Forest(
    "f",
    "Title",
    "Text",
    "axis",
    (
        Interval("a", 0.05, 0.04, 0.06, "bad"),
        Interval("b", 0.0, -0.01, 0.01, "good"),
        Interval("c", None, None, None),
    ),
    band=0.01,
)
BARS = Bars("b", "Title", "Text", "axis", ("in", "out"), (("a", (2.0, 3.0)), ("b", (1.0, None))))
STRIP = Strip("s", "Title", "Text", "axis", (("a", (0.01, 0.03, 0.02)), ("b", (0.0,))))
CURVE = Curve(
    "c",
    "Title",
    "Text",
    "n",
    "axis",
    (("s", ((1.0, Interval("x", 0.0, -0.01, 0.01)), (8.0, Interval("y", 0.05, 0.04, 0.06)))),),
    log_x=True,
)


def elements(chart, css: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(draw(chart, standalone=True))
    return [item for item in root.iter() if css in (item.get("class") or "").split()]


def scale(chart) -> tuple[float, float]:
    """Offset and slope of the horizontal axis, read from two of its labelled grid lines."""
    root = ElementTree.fromstring(draw(chart, standalone=True))
    labels = {
        float(item.get("x") or 0): float((item.text or "").split(" %")[0])
        for item in root.iter(f"{SVG}text")
        if item.get("class") == "tick" and re.fullmatch(r"[+-][\d.]+ %", item.text or "")
    }
    (x0, v0), (x1, v1) = sorted(labels.items())[0], sorted(labels.items())[-1]
    return x0 - v0 * (x1 - x0) / (v1 - v0), (x1 - x0) / (v1 - v0)


def test_static_points_lie_where_the_axis_says() -> None:
    offset, slope = scale(FOREST)
    dots = elements(FOREST, "dot")
    assert [(float(dot.get("cx") or 0) - offset) / slope for dot in dots] == pytest.approx(
        [5.0, 0.0], abs=0.05
    )
    arms = elements(FOREST, "arm")
    ends = [(float(arm.get(key) or 0) - offset) / slope for arm in arms for key in ("x1", "x2")]
    assert ends == pytest.approx([4.0, 6.0, -1.0, 1.0], abs=0.05)


def test_static_bars_are_as_long_as_their_parts() -> None:
    boxes = {css: elements(BARS, css) for css in ("s0", "s1")}
    widths = [float(box.get("width") or 0) for box in boxes["s0"][:2]] + [
        float(boxes["s1"][0].get("width") or 0)
    ]
    assert widths[0] / widths[1] == pytest.approx(2.0, rel=0.01)
    assert widths[2] / widths[0] == pytest.approx(1.5, rel=0.01)


def test_every_value_of_a_strip_has_its_tick() -> None:
    assert len(elements(STRIP, "tally")) == 4


def test_plotly_shows_the_same_numbers() -> None:
    points = [(x, y) for trace in figure(FOREST).data for x, y in zip(trace.x, trace.y, strict=True)]
    assert sorted(points) == [(0.0, "b"), (5.0, "a")]
    bars = figure(BARS).data
    assert [list(bar.x) for bar in bars] == [[2.0, 1.0], [3.0, None]]
    curve = figure(CURVE).data[0]
    assert list(curve.x) == [1.0, 8.0]
    assert list(curve.y) == pytest.approx([0.0, 5.0])
    assert list(curve.error_y.array) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("unit", "value", "suffix", "shown"),
    [("bytes", 79_691_776.0, " MiB", 76.0), ("us", 131.0, " us", 131.0), ("us", 25_000.0, " ms", 25.0)],
)
def test_axes_have_the_unit_that_suits(unit: str, value: float, suffix: str, shown: float) -> None:
    made = figure(Bars("b", "t", "d", "a", ("p",), (("x", (value,)),), unit=unit))
    assert made.layout.xaxis.ticksuffix == suffix
    assert made.data[0].x[0] == pytest.approx(shown)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_round_and_inside(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert 1 <= len(found) <= 12
    rounding = 1e-6 * span + 1e-15 * abs(low)
    assert all(low - rounding <= value <= low + span + rounding for value in found)


def test_tables_hold_what_is_drawn() -> None:
    texts = [[cell.text for cell in row] for row in FOREST.table().rows]
    assert texts[0][:4] == ["a", "+5.0 %", "+4.0 %", "+6.0 %"]
    assert texts[2][:4] == ["c", "n/a", "n/a", "n/a"]
    assert [cell.text for cell in STRIP.table().rows[0]] == ["a", "3", "+1.0 %", "+2.0 %", "+3.0 %"]


def test_numbered_arms_become_one_curve() -> None:
    assert numbered_families(["streams_8", "streams_1", "streams_2", "side", "dose_1", "dose_2"]) == {
        "streams": [(1.0, "streams_1"), (2.0, "streams_2"), (8.0, "streams_8")]
    }
    curve = figures.families(sample_document(), 0.01)[0]
    assert [x for x, _ in curve.series[0][1]] == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize("piece", hostile.PIECES)
def test_hostile_labels_stay_text(piece: str) -> None:
    chart = Forest("f", piece, piece, piece, (Interval(piece, 0.1, 0.0, 0.2, "bad", piece),))
    root = ElementTree.fromstring(draw(chart, standalone=True))
    assert {item.tag.removeprefix(SVG) for item in root.iter()} <= {
        "svg", "style", "title", "desc", "line", "text", "rect", "circle",
    }  # fmt: skip
    texts = list(strings(json.loads(figure(chart).to_json())))
    assert texts
    assert not [text for text in texts if re.search(r"<(?!/?b>%?|br>%|extra>|/extra>)", text)]


def strings(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def test_nothing_to_draw_is_told() -> None:
    assert is_empty(figures.kernels({"kernels": []}, None))
    assert not is_empty(CURVE)


def test_the_ceiling_chart_holds_only_kernels_that_have_one() -> None:
    document = sample_document()
    document["kernels"][0]["ceiling"], document["kernels"][1]["ceiling"] = 0.48, None
    chart = figures.ceiling_share(document)
    assert [(label, values) for label, values in chart.rows] == [("kv_gather (bandwidth)", (0.48,))]
    document["kernels"][0]["ceiling"] = None
    assert is_empty(figures.ceiling_share(document))
