"""The text form of numbers: what a reader sees must be what was measured."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcatools import units


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (1.0744, 1.0740, 1.0748, "+7.44 % [+7.40 %, +7.48 %]"),
        (1.0512, 1.0421, 1.0603, "+5.1 % [+4.2 %, +6.0 %]"),
        (0.9996, 0.9733, 1.0266, "+0.0 % [-2.7 %, +2.7 %]"),
        (0.99998, 0.9995, 1.0005, "+0.00 % [-0.05 %, +0.05 %]"),
        (0.93, 0.9, 0.96, "-7.0 % [-10.0 %, -4.0 %]"),
        (1.05, None, None, "+5.0 %"),
        (math.nan, 1.0, 1.1, "n/a"),
        (None, None, None, "n/a"),
    ],
)
def test_an_estimate_has_the_decimals_its_interval_is_worth(
    ratio: float | None, low: float | None, high: float | None, text: str
) -> None:
    assert units.estimate(ratio, low, high) == text


@given(st.floats(0.2, 5.0), st.floats(0.0, 0.3), st.floats(0.0, 0.3))
def test_the_bounds_as_shown_hold_the_value_as_shown(ratio: float, below: float, above: float) -> None:
    shown = units.estimate(ratio, ratio - below * ratio, ratio + above)
    value, low, high = (float(x) for x in re.findall(r"([+-][\d.]+) %", shown))
    assert low <= value <= high
    assert value == pytest.approx(100 * (ratio - 1), abs=0.051)
    assert "-0.0 %" not in shown
    assert "-0.00 %" not in shown


@given(st.floats(3e-4, 0.0019))
def test_a_narrow_interval_is_not_shown_as_a_point(width: float) -> None:
    shown = units.estimate(1.05, 1.05 - width / 2, 1.05 + width / 2)
    _, low, high = re.findall(r"[+-][\d.]+(?= %)", shown)
    assert low != high


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.994, "99 %"), (-0.004, "0 %"), (-0.016, "-2 %"), (1.46, "146 %"), (None, "n/a")]
)
def test_a_share_is_whole_and_never_minus_zero(fraction: float | None, text: str) -> None:
    assert units.share(fraction) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [(0.276, "+276 ns"), (-4.91, "-4.91 us"), (127.0, "+127 us"), (0.0, "0 us"), (None, "n/a")],
)
def test_a_difference_of_times_has_sign_and_unit(us: float | None, text: str) -> None:
    assert units.signed_duration_us(us) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(2**30, "1 GiB"), (79_691_776, "76 MiB"), (96 * 2**30, "96 GiB"), (1000, "1,000 B"), (0, "0 B")],
)
def test_a_size_is_exact(size: int, text: str) -> None:
    assert units.exact_size(size) == text
    number, unit = text.replace(",", "").split()
    assert int(number) * 1024 ** ("B", "KiB", "MiB", "GiB").index(unit) == size
