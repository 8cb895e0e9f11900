"""The fleet overview as one HTML page that opens offline and runs no script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2
from markupsafe import Markup

from rcatools import __version__
from rcatools.batch import fleet_tables
from rcatools.report.page import TEMPLATES
from rcatools.report.safe import clean
from rcatools.report.svg import draw
from rcatools.report.table import Table, to_html
from rcatools.report.theme import DARK, FONT, LIGHT, css_variables


def render(document: Mapping[str, Any], jobs: list[Mapping[str, Any]], margin: float) -> str:
    """The page as HTML text.

    Args:
        document: of ``fleet.overview``.
        jobs: rows of the index's ``jobs`` table.
        margin: deviation that does not matter, drawn as a band.
    """
    sections = [
        _section("arms", "Verdicts", fleet_tables.arms_table(document), _chart(document, margin)),
        _section("machines", "Noise floor per machine", fleet_tables.machines_table(document)),
        _section("rows", "Rows of sweeps", fleet_tables.rows_table(jobs)),
        _section("problems", "Could not be read", fleet_tables.problems_table(document)),
    ]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("fleet.html.j2").render(
        style=Markup(_style()),
        sentences=[clean(text) for text in fleet_tables.sentences(document)],
        sections=[section for section in sections if section["blocks"]],
        version=__version__,
    )


def _section(name: str, title: str, table: Table, *before: Markup) -> dict[str, Any]:
    blocks = [*before, Markup(to_html(table, caption=False))] if table.rows else []
    return {"id": name, "title": title, "blocks": [block for block in blocks if block]}


def _chart(document: Mapping[str, Any], margin: float) -> Markup:
    if not document["arms"]:
        return Markup("")
    return Markup(draw(fleet_tables.arms_chart(document, margin)))


def _style() -> str:
    text = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    return (
        text.replace("@LIGHT@", css_variables(LIGHT))
        .replace("@DARK@", css_variables(DARK))
        .replace("@FONT@", FONT)
    )
