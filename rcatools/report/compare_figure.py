"""The dot-and-interval figure of a comparison: a chart as data, drawn elsewhere as SVG or with plotly."""

from __future__ import annotations

from collections.abc import Sequence

from rcatools.report.charts import Forest, Interval
from rcatools.report.compare_view import Line
from rcatools.report.svg import draw

MAX_ROWS = 60
_TONES = {"slower": "bad", "faster": "good", "equivalent": "calm", "undecided": "open"}


def interval_chart(rows: Sequence[Line], title: str) -> Forest:
    """One row per arm: a dot at the change of the printed value, its interval, the margin as a band.

    Args:
        rows: lines of a comparison; beyond 60 the rest is counted in the title. Bounds beyond four times the
            widest change are drawn cut there and told in the note.
        title: heading.
    """
    shown = list(rows[:MAX_ROWS])
    if len(rows) > len(shown):
        title = f"{title} (first {len(shown)} of {len(rows):,})"
    margin = max((line.comparison.margin for line in shown), default=0.0)
    reach = 4 * max([2 * margin, *(abs(line.ratio - 1) for line in shown)])
    return Forest(
        id="comparison",
        title=title,
        description=" ".join(line.sentence for line in shown[:20]),
        axis="change of the printed value; band: margin declared not to matter",
        rows=tuple(_row(line, reach) for line in shown),
        band=margin or None,
        value_name="Change",
    )


def interval_figure(rows: Sequence[Line], title: str) -> str:
    """The chart as a standalone SVG document with a description for screen readers."""
    return draw(interval_chart(rows, title), standalone=True) + "\n"


def _row(line: Line, reach: float) -> Interval:
    verdict = str(line.comparison.verdict)
    low, high = _cut(line.low, reach), _cut(line.high, reach)
    cut = (low, high) != (_change(line.low), _change(line.high))
    return Interval(
        label=f"{line.label}: {verdict}",
        value=line.ratio - 1,
        low=low,
        high=high,
        tone=_TONES[verdict],
        note="interval cut" if cut else "",
    )


def _change(ratio: float | None) -> float | None:
    return None if ratio is None else ratio - 1


def _cut(ratio: float | None, reach: float) -> float | None:
    return None if ratio is None else min(max(ratio - 1, -reach), reach)
