"""The text form of every number, in one place.

All functions return plain text without markup. ``None`` and numbers that are not finite become "n/a".
"""

from __future__ import annotations

import math

NOT_AVAILABLE = "n/a"
_FINE = 0.2  # an interval narrower than this many percentage points is told with two decimals
_COARSE = 2.0  # and one narrower than this too, where the value lies below one percent
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def significant(value: float | None, digits: int = 3) -> str:
    """The value with a number of significant digits and no exponent for ordinary sizes."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    if decimals > 9 or abs(value) >= 1e12:
        return f"{value:.{digits - 1}e}"
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def duration_us(value: float | None, digits: int = 3) -> str:
    """A time given in microseconds as ns, us, ms or s."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    size = abs(value)
    if size >= 1e6:
        return f"{significant(value / 1e6, digits)} s"
    if size >= 1e3:
        return f"{significant(value / 1e3, digits)} ms"
    if size >= 1 or size == 0:
        return f"{significant(value, digits)} us"
    return f"{significant(value * 1e3, digits)} ns"


def signed_duration_us(value: float | None, digits: int = 3) -> str:
    """The same with its sign: "+276 ns"."""
    text = duration_us(value, digits)
    return f"+{text}" if value is not None and value > 0 and text != NOT_AVAILABLE else text


def byte_size(value: float | None, digits: int = 4) -> str:
    """A size in bytes with a binary prefix."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    size, step = float(value), 0
    while abs(size) >= 1024 and step < len(_BINARY) - 1:
        size /= 1024
        step += 1
    if step == 0:
        return f"{int(size)} B"
    return f"{significant(size, digits)} {_BINARY[step]}"


def exact_size(value: int) -> str:
    """A size that is a whole number of some binary unit, such as "1 GiB"; else the bytes."""
    step = 0
    while value and value % 1024 == 0 and step < len(_BINARY) - 1:
        value, step = value // 1024, step + 1
    return f"{value:,} {_BINARY[step]}"


def byte_count(value: int | None) -> str:
    """An exact number of bytes with thousands separators."""
    return NOT_AVAILABLE if value is None else f"{value:,} B"


def change(ratio: float | None) -> str:
    """A ratio as a signed percentage: 1.05 gives "+5.0 %", 1.0004 gives "+0.04 %"."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_AVAILABLE
    return signed_percent(ratio - 1.0)


def signed_percent(fraction: float | None) -> str:
    """A fraction as a signed percentage; two decimals below one percent, one above."""
    if fraction is None or not math.isfinite(fraction):
        return NOT_AVAILABLE
    percent = 100.0 * fraction
    return _signed(percent, 2 if abs(percent) < 0.995 else 1)


def percent(fraction: float | None) -> str:
    """A fraction as an unsigned percentage."""
    if fraction is None or not math.isfinite(fraction):
        return NOT_AVAILABLE
    value = 100.0 * fraction
    return f"{value:.2f} %" if abs(value) < 0.995 else f"{value:.1f} %"


def interval(low: float | None, high: float | None) -> str:
    """The bounds of a ratio as signed percentages in brackets."""
    return f"[{change(low)}, {change(high)}]"


def estimate(ratio: float | None, low: float | None, high: float | None) -> str:
    """A ratio with its bounds, all with the decimals that the width of the interval is worth.

    1.0744 with bounds 1.0740 and 1.0748 gives "+7.44 % [+7.40 %, +7.48 %]", a wide interval one decimal:
    "+5.1 % [+4.2 %, +6.0 %]".
    """
    if ratio is None or low is None or high is None or not all(map(math.isfinite, (ratio, low, high))):
        return change(ratio)
    width = 100.0 * (high - low)
    fine = width < _FINE or (width < _COARSE and abs(100.0 * (ratio - 1.0)) < 0.995)
    texts = [_signed(100.0 * (value - 1.0), 2 if fine else 1) for value in (ratio, low, high)]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]"


def share(fraction: float | None) -> str:
    """A part of a whole in whole percent, never "-0 %"."""
    if fraction is None or not math.isfinite(fraction):
        return NOT_AVAILABLE
    return f"{round(100.0 * fraction) + 0:d} %"


def _signed(percent: float, decimals: int) -> str:
    text = f"{percent:+.{decimals}f}"
    return (text.replace("-", "+") if float(text) == 0 else text) + " %"


def p_value(value: float | None) -> str:
    """A p-value; below 0.001 only the bound is told."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def bandwidth(bytes_per_second: float | None) -> str:
    """A rate in decimal GB/s or TB/s, as data sheets give it."""
    if bytes_per_second is None or not math.isfinite(bytes_per_second):
        return NOT_AVAILABLE
    if bytes_per_second >= 1e12:
        return f"{significant(bytes_per_second / 1e12)} TB/s"
    return f"{significant(bytes_per_second / 1e9)} GB/s"


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun, or with the clause that begins with it: "1 block", "3 blocks"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def compute_rate(flops: float | None) -> str:
    """A rate in GFLOP/s or TFLOP/s."""
    if flops is None or not math.isfinite(flops):
        return NOT_AVAILABLE
    if flops >= 1e12:
        return f"{significant(flops / 1e12)} TFLOP/s"
    return f"{significant(flops / 1e9)} GFLOP/s"
