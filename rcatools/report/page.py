"""``report.html``: one page that opens offline, says everything without JavaScript and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

import rcatools
from rcatools import units
from rcatools.diagnosis.answer import MAIN_GROUP
from rcatools.report import present, words
from rcatools.report.charts import Chart
from rcatools.report.measured import Facts, Measured
from rcatools.report.plot import figure
from rcatools.report.safe import harmless
from rcatools.report.sections import Builder
from rcatools.report.theme import DARK, FONT, LIGHT, css_variables
from rcatools.units import counted

TEMPLATES = Path(__file__).parent / "templates"
VERDICT_WORDS = {
    "slower": "▲ Slower than the baseline",
    "faster": "▼ Faster than the baseline",
    "equivalent": "≈ Equivalent within the margin",
    "undecided": "? Undecided",
}
SHOWN_REMARKS = 12

Document = Mapping[str, Any]


def render(document: Document, measured: Measured, facts: Facts) -> str:
    """The page as HTML text, plotly.js inlined once."""
    document = harmless(document)
    builder = Builder(document, measured, facts)
    effect = document["effect"] or {}
    # The chain's own sentence stands with the chain, right below.
    remarks = [text for text in document["details"] if text != document["chain"]["text"]]
    page = {
        "version": rcatools.__version__,
        "investigation": document["investigation"],
        "title": document["title"],
        "question": document["question"],
        "answer": document["answer"],
        "details": [words.sentence(text) for text in remarks[:SHOWN_REMARKS]],
        "more": [words.sentence(text) for text in remarks[SHOWN_REMARKS:]],
        "warnings": document["warnings"],
        "device": words.devices(document),
        "tone": words.VERDICT_TONE.get(effect.get("verdict", ""), "open"),
        "verdict_word": VERDICT_WORDS.get(effect.get("verdict", ""), "No measured verdict"),
        "tiles": _tiles(document),
        "sections": [
            {**vars(item), "blocks": [Markup(b) for b in item.blocks]} for item in builder.sections()
        ],
    }
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    plotly = _plotly() if builder.charts else ""
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            policy=_policy(plotly, script),
            style=Markup(_style()),
            charts=Markup(_embedded(builder.charts)),
            plotly=Markup(plotly),
            script=Markup(script),
        )
    )


def _tiles(document: Document) -> list[dict[str, str]]:
    tiles = []
    effect, noise = document["effect"], document["noise"]
    if effect and effect["ratio"] is not None:
        value, _, interval = words.effect(effect).partition(" [")
        note = f"{effect['arm']} against {effect['against']}, {counted(effect['n'], 'block')}"
        note += f", [{interval}" if interval else ""
        several = len(document["environment"].get("devices") or ()) > 1
        note += f", {document['environment']['device']}" if several else ""
        tiles.append({"name": "Effect on time", "value": value, "note": note})
        tiles.append(
            {
                "name": "Detection limit",
                "value": words.detection(effect["mde"]),
                "note": "smallest change that would have been seen",
            }
        )
    if noise:
        tiles.append(
            {
                "name": "Noise floor (A/A)",
                "value": units.percent(noise["floor"]),
                "note": "two arms of one build",
            }
        )
    if document["sensitive"] is not None:
        tiles.append(
            {
                "name": "Planted regressions",
                "value": words.planted(document),
                "note": "each seen as a difference"
                if document["sensitive"]
                else "'no difference' cannot be relied on",
            }
        )
    for group, items in present.groups(document).items():
        stands = [words.capital(item["title"]) for item in items if item["status"] == "supported"]
        if stands or group == MAIN_GROUP:
            devices = present.on_devices(
                [p for item in items for p in item["predictions"] if p["holds"] is not None]
            )
            tiles.append(
                {
                    "name": words.capital(group.replace("_", " ")),
                    "value": ", ".join(stands) or "not settled",
                    "note": devices.strip(" ()"),
                    "words": "yes",
                }
            )
    return tiles


def _embedded(charts: Mapping[str, Chart]) -> str:
    """Both colour variants of every figure as JSON that cannot end its script element."""
    figures = {
        key: {
            "light": json.loads(figure(chart, LIGHT).to_json()),
            "dark": json.loads(figure(chart, DARK).to_json()),
        }
        for key, chart in charts.items()
    }
    text = json.dumps(figures, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _style() -> str:
    text = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    return (
        text.replace("@LIGHT@", css_variables(LIGHT))
        .replace("@DARK@", css_variables(DARK))
        .replace("@FONT@", FONT)
    )


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    text = str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")
    assert "</script" not in text.lower()
    return text


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["together"] = lambda text: str(text).replace(" %", "\u00a0%")
    return made
