"""The dot-and-interval figure of a comparison as plain SVG text; needs no library and no browser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from rcatools import units
from rcatools.report.compare_view import Line

ROW_HEIGHT = 26
MAX_ROWS = 60
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 280, 150, 40, 46
_COLOURS = {"slower": "#b5301f", "faster": "#1a7f4b", "equivalent": "#2b5d9b", "undecided": "#6b6b6b"}
_STEPS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def interval_figure(rows: Sequence[Line], title: str) -> str:
    """An SVG document: one row per arm, a dot at the change, a bar for the interval, a band for the margin.

    Args:
        rows: lines of a comparison; beyond 60 the rest is counted in the title.
        title: heading.

    Returns:
        SVG 1.1 text with title and description for screen readers; verdicts differ in shape as well as in colour.
    """
    shown = list(rows[:MAX_ROWS])
    if len(rows) > len(shown):
        title = f"{title} (first {len(shown)} of {len(rows):,})"
    height = _TOP + ROW_HEIGHT * max(1, len(shown)) + _BOTTOM
    low, high = _limits(shown)

    def x(log_ratio: float) -> float:
        share = (log_ratio - low) / (high - low)
        return _LEFT + min(max(share, 0.0), 1.0) * (_WIDTH - _LEFT - _RIGHT)

    bottom = height - _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" font-family="sans-serif" font-size="12">',
        f"<title>{_text(title)}</title>",
        f"<desc>{_text('; '.join(line.sentence for line in shown[:20]))}</desc>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="14" font-weight="bold">{_text(title, 110)}</text>',
    ]
    if shown:
        margin = math.log1p(max(line.comparison.margin for line in shown))
        parts.append(
            f'<rect x="{x(-margin):.1f}" y="{_TOP}" width="{x(margin) - x(-margin):.1f}" '
            f'height="{bottom - _TOP}" fill="#2b5d9b" fill-opacity="0.10"/>'
        )
    parts += _axis(low, high, x, bottom)
    for i, line in enumerate(shown):
        parts += _row(line, _TOP + ROW_HEIGHT * i + ROW_HEIGHT / 2, x)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _limits(rows: Sequence[Line]) -> tuple[float, float]:
    """Ends of the log axis: all dots, and intervals up to four times the widest dot."""
    dots = [math.log(line.ratio) for line in rows] or [0.0]
    margin = math.log1p(max((line.comparison.margin for line in rows), default=0.02))
    reach = max(1.5 * margin, 1.2 * max(abs(d) for d in dots))
    ends = [math.log(v) for line in rows for v in (line.low, line.high) if v is not None and v > 0]
    reach = max(reach, min(max((abs(e) for e in ends), default=0.0), 4 * reach))
    return -1.05 * reach, 1.05 * reach


def _axis(low: float, high: float, x: object, bottom: float) -> list[str]:
    assert callable(x)
    span = math.expm1(high)
    step = next((s for s in _STEPS if span / s <= 5), _STEPS[-1])
    ticks = [k * step for k in range(-6, 7) if k * step > -0.95]
    parts = []
    for tick in ticks:
        if not low <= math.log1p(tick) <= high:
            continue
        at = x(math.log1p(tick))
        zero = tick == 0
        colour, width = ("#000000", 1.2) if zero else ("#d0d0d0", 0.8)
        parts.append(
            f'<line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{bottom}" stroke="{colour}" stroke-width="{width}"/>'
        )
        label = "no change" if zero else units.signed_percent(tick)
        parts.append(f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{_text(label)}</text>')
    caption = "change of the printed value; band: margin declared not to matter"
    parts.append(f'<text x="{_LEFT}" y="{bottom + 36}" fill="#555555">{caption}</text>')
    return parts


def _row(line: Line, y: float, x: object) -> list[str]:
    assert callable(x)
    verdict = str(line.comparison.verdict)
    colour = _COLOURS[verdict]
    at = x(math.log(line.ratio))
    parts = [f'<text x="{_LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{_text(line.label, 40)}</text>']
    if line.low is not None and line.high is not None:
        parts.append(
            f'<line x1="{x(math.log(line.low)):.1f}" y1="{y:.1f}" x2="{x(math.log(line.high)):.1f}" y2="{y:.1f}" '
            f'stroke="{colour}" stroke-width="2.5"/>'
        )
    if verdict == "undecided":
        parts.append(
            f'<circle cx="{at:.1f}" cy="{y:.1f}" r="4.5" fill="#ffffff" stroke="{colour}" stroke-width="2"/>'
        )
    elif verdict == "equivalent":
        parts.append(f'<rect x="{at - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>')
    else:
        parts.append(f'<circle cx="{at:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
    told = f"{units.change(line.ratio)} {verdict}"
    parts.append(f'<text x="{_WIDTH - _RIGHT + 12}" y="{y + 4:.1f}" fill="{colour}">{_text(told)}</text>')
    return parts


def _text(text: str, most: int = 4000) -> str:
    clean = "".join(c if c.isprintable() else "?" for c in text)
    return escape(clean if len(clean) <= most else clean[: most - 3] + "...", quote=True)
