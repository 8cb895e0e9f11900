"""report.html in a real browser: drawn, silent, asking nobody, readable by everyone."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import hostile
import pytest
from browser import CHROMIUM, Page, with_page
from report_samples import map_strings, sample_diagnosis, sample_document
from test_report_page import FACTS, measured

from rcatools.report import page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install one to run these"),
]
AXE = Path(
    os.environ.get("AXE_CORE", Path(__file__).resolve().parents[1] / ".venv/axe-core/package/axe.min.js")
)


# Texts of rows shown as blocks that have less than half of the row's width.
SQUEEZED = (
    "[...document.querySelectorAll('table.stacked .in')].filter(t => t.offsetParent && t.textContent.length > 30 && "
    "t.offsetWidth < t.closest('tr').clientWidth / 2).map(t => t.textContent.slice(0, 60))"
)
# Rows shown as blocks whose texts still need sideways scrolling.
CUT = (
    "[...document.querySelectorAll('table.stacked')].filter(t => t.offsetParent && t.parentElement.scrollWidth > "
    "t.parentElement.clientWidth + 1).map(t => t.parentElement.getAttribute('aria-label'))"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    attacked = map_strings(sample_diagnosis(), lambda text: f"{text} {hostile.EVERYTHING}").document()
    pages = {"plain": sample_document(), "attacked": attacked}
    for name, document in pages.items():
        (folder / f"{name}.html").write_text(page.render(document, measured(), FACTS))
    return {name: folder / f"{name}.html" for name in pages}


async def drawn(view: Page) -> int:
    """Wait until the page's own script has run; the number of figures drawn."""
    for _ in range(200):
        if await view.evaluate("document.documentElement.dataset.drawn === 'yes'"):
            break
        await asyncio.sleep(0.05)
    return int(await view.evaluate("document.querySelectorAll('.drawn .main-svg').length"))


@pytest.fixture(scope="module")
def seen(files: dict[str, Path]) -> dict[str, Any]:
    """Everything the tests ask, from one browser."""

    async def look(view: Page) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, file, width, dark in (
            ("plain", files["plain"], 1280, False),
            ("dark", files["plain"], 1280, True),
            ("narrow", files["plain"], 400, False),
            ("attacked", files["attacked"], 1280, False),
        ):
            view.problems.clear()
            view.requests.clear()
            await view.open(file.as_uri(), width=width, dark=dark)
            found[name] = {
                "drawn": await drawn(view),
                "charts": await view.evaluate("document.querySelectorAll('[data-chart]').length"),
                "scroll": await view.evaluate("document.documentElement.scrollWidth"),
                "cut": await view.evaluate(CUT),
                "squeezed": await view.evaluate(SQUEEZED),
                "ink": await view.evaluate("getComputedStyle(document.body).color"),
                "text": await view.evaluate("document.body.innerText.length"),
                "dialogs": await view.evaluate("String(window.hacked || '')"),
                "axe": await axe(view) if AXE.is_file() else None,
                "problems": list(view.problems),
                "requests": list(view.requests),
            }
        await view.open(files["plain"].as_uri(), scripts=False)
        found["without scripts"] = {
            "figures": await static(view),
            "text": (await view.call("DOM.getDocument"))["root"]["nodeName"],
        }
        return found

    async def static(view: Page) -> list[dict[str, Any]]:
        await view.call("Emulation.setScriptExecutionDisabled", value=False)
        return list(
            await view.evaluate(
                "[...document.querySelectorAll('figure')].map(f => ({"
                "height: f.querySelector('svg.chart').getBoundingClientRect().height,"
                "hidden: f.querySelector('.plot').hidden, rows: f.querySelectorAll('tbody tr').length}))"
            )
        )

    async def axe(view: Page) -> list[str]:
        await view.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; }); true")
        await view.evaluate(AXE.read_text() + "; true")
        return list(
            await view.evaluate(
                "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations"
                ".filter(v => ['serious', 'critical'].includes(v.impact))"
                ".map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 120)).join(' | ')))"
            )
        )

    return dict(with_page(look))


@pytest.mark.parametrize("name", ["plain", "dark", "narrow", "attacked"])
def test_every_figure_is_drawn_and_the_console_is_silent(seen: dict[str, Any], name: str) -> None:
    assert seen[name]["charts"] >= 8
    assert seen[name]["drawn"] >= seen[name]["charts"]
    assert seen[name]["problems"] == []


@pytest.mark.parametrize("name", ["plain", "dark", "narrow", "attacked"])
def test_the_page_asks_nobody(seen: dict[str, Any], name: str) -> None:
    assert [address[:8] for address in seen[name]["requests"]] == ["file:///"]


@pytest.mark.parametrize(("name", "width"), [("plain", 1280), ("narrow", 400), ("attacked", 1280)])
def test_the_page_never_scrolls_sideways(seen: dict[str, Any], name: str, width: int) -> None:
    assert seen[name]["scroll"] <= width


def test_no_column_of_long_text_is_cut_on_a_narrow_screen(seen: dict[str, Any]) -> None:
    assert seen["narrow"]["cut"] == []
    assert seen["narrow"]["squeezed"] == []


def test_dark_mode_changes_the_ink(seen: dict[str, Any]) -> None:
    assert seen["plain"]["ink"] != seen["dark"]["ink"]


def test_hostile_text_runs_nothing(seen: dict[str, Any]) -> None:
    assert seen["attacked"]["dialogs"] == ""


def test_without_scripts_every_figure_still_stands_with_its_table(seen: dict[str, Any]) -> None:
    figures = seen["without scripts"]["figures"]
    assert len(figures) == seen["plain"]["charts"]
    for figure in figures:
        assert figure["height"] > 60
        assert figure["hidden"]
        assert figure["rows"] > 0


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not at hand (.ci/run fetches it)")
@pytest.mark.parametrize("name", ["plain", "dark", "narrow"])
def test_axe_finds_nothing_serious(seen: dict[str, Any], name: str) -> None:
    assert seen[name]["axe"] == []
