"""report.html as a parser sees it: nothing runs but our two scripts, every figure has its table."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise

import hostile
import pandas as pd
import pytest
from report_samples import map_strings, sample_diagnosis, sample_document

from rcatools.report import page
from rcatools.report.measured import COLUMNS, Facts, Measured

FACTS = Facts("sample", "step_us", "off", 0.01, ("off_again",))


def measured(change=lambda text: text) -> Measured:
    """Small tables; Parquet holds no lone surrogates, so there are none."""
    tables = {name: pd.DataFrame(columns=list(columns)) for name, columns in COLUMNS.items()}
    name = change("sample")
    tables["blocks"] = pd.DataFrame(
        [
            (name, "step_us", block, order, change(arm), value * (1 + block / 1000))
            for block in range(3)
            for order, (arm, value) in enumerate((("off", 100.0), ("off_again", 100.1), ("side", 105.0)))
        ],
        columns=list(COLUMNS["blocks"]),
    )
    tables["runs"] = pd.DataFrame(
        [(name, change("000-00-off"), change("off"), 0, 0, change("hung"), change("no answer"))],
        columns=list(COLUMNS["runs"]),
    )
    tables["ledger"] = pd.DataFrame(
        [
            (name, change("side"), stream, 2**20, 0, 2**10, 2**21, 2**22 * rank)
            for stream, rank in ((0, 9), (7, 1))
        ],
        columns=list(COLUMNS["ledger"]),
    )
    tables["pins"] = pd.DataFrame(
        [
            (
                name,
                change("side"),
                7,
                79_691_776,
                change("blas_lt_workspace"),
                change("size"),
                0.9,
                512,
                change("why"),
            )
        ],
        columns=list(COLUMNS["pins"]),
    )
    tables["steps"] = pd.DataFrame(
        [(name, change(arm), 5, 330, 2445.0, gap, 0.1) for arm, gap in (("off", 24.0), ("side", 135.0))],
        columns=list(COLUMNS["steps"]),
    )
    tables["problems"] = pd.DataFrame(
        [(name, change("side"), change("side.json.gz"), change("truncated"))],
        columns=list(COLUMNS["problems"]),
    )
    return Measured(**tables)


class Outline(HTMLParser):
    """Every element with its attributes, the text of scripts and styles, and the text outside of them."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.inside: str | None = None
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in {"script", "style"}:
            self.inside = tag
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside:
            self.inside = None

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts[-1] += data
        else:
            self.text += data

    def counts(self) -> Counter[str]:
        return Counter(tag for tag, _ in self.elements)


@pytest.fixture(scope="module")
def rendered() -> str:
    return page.render(sample_document(), measured(), FACTS)


@pytest.fixture(scope="module")
def outline(rendered: str) -> Outline:
    return Outline(rendered)


def test_verdict_and_tables_stand_above_any_script(rendered: str) -> None:
    before = rendered.partition("<script")[0]
    for text in (
        "Slower than the baseline",
        "A side-stream capture makes",
        "+5.0\u00a0%",
        "Evidence matrix",
        "<table",
    ):
        assert text in before
    assert "plotly" not in before


def test_the_policy_allows_our_scripts_and_nothing_from_outside(outline: Outline) -> None:
    policy = next(
        a["content"] for t, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    assert "http" not in policy
    run = [
        text for (tag, attrs), text in zip(blocks(outline), outline.scripts, strict=True) if runs(tag, attrs)
    ]
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in run}
    assert len(run) == 2
    assert set(rules["script-src"].split()) == hashes


def blocks(outline: Outline) -> list[tuple[str, dict[str, str | None]]]:
    return [(tag, attrs) for tag, attrs in outline.elements if tag in {"script", "style"}]


def runs(tag: str, attrs: dict[str, str | None]) -> bool:
    return tag == "script" and attrs.get("type") != "application/json"


def test_nothing_is_loaded_and_nothing_runs_from_attributes(outline: Outline) -> None:
    for tag, attrs in outline.elements:
        assert not [name for name in attrs if name.startswith("on")], tag
        assert "src" not in attrs
        assert tag not in {"iframe", "object", "embed", "link", "base", "form", "img"}
        if tag == "a":
            assert re.match(r"#|https?://", attrs["href"] or "")


def test_every_figure_has_a_drawing_and_its_table(rendered: str) -> None:
    figures = re.findall(r"<figure.*?</figure>", rendered, re.S)
    assert len(figures) >= 8
    for figure in figures:
        assert "<svg" in figure
        assert "<table>" in figure
        assert "<figcaption>" in figure


def test_drawn_charts_and_embedded_charts_are_the_same(outline: Outline) -> None:
    data = next(
        text
        for (tag, attrs), text in zip(blocks(outline), outline.scripts, strict=True)
        if attrs.get("id") == "charts"
    )
    embedded = json.loads(data)
    assert set(embedded) == {a["data-chart"] for _, a in outline.elements if "data-chart" in a}
    forest = embedded["fixes"]["light"]["data"]
    drawn = {y: x for trace in forest for x, y in zip(trace["x"], trace["y"], strict=True)}
    assert drawn["side_gc"] == pytest.approx(5.02)
    assert drawn["current"] == pytest.approx(-0.06)


def test_tables_name_their_columns_and_rows(outline: Outline) -> None:
    heads = [attrs.get("scope") for tag, attrs in outline.elements if tag == "th"]
    assert heads
    assert set(heads) == {"col", "row"}


def test_headings_do_not_skip_a_level(outline: Outline) -> None:
    levels = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_ids_are_unique(outline: Outline) -> None:
    ids = [attrs["id"] for _, attrs in outline.elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def hostile_page(piece: str) -> Outline:
    def change(text: str) -> str:
        return text if text.startswith("https://") else f"{text}{piece}"

    def stored(text: str) -> str:
        return change(text).replace("\ud800", "")

    facts = Facts(stored("sample"), "step_us", stored("off"), 0.01, (stored("off_again"),))
    document = map_strings(sample_diagnosis(), change).document()
    return Outline(page.render(document, measured(stored), facts))


def test_hostile_text_adds_no_element_and_no_attribute() -> None:
    plain = hostile_page(" " + "harmless words " * (len(hostile.EVERYTHING) // 15))
    attacked = hostile_page(f" {hostile.EVERYTHING}")
    assert attacked.counts() == plain.counts()
    names = [
        Counter(name for _, attrs in item.elements for name in attrs if name != "class")
        for item in (plain, attacked)
    ]
    assert names[0] == names[1]
    policies = [
        next(a["content"] for t, a in item.elements if a.get("http-equiv")) for item in (plain, attacked)
    ]
    assert policies[0] == policies[1]
    assert "<script>alert(1)</script>" in attacked.text


def test_no_person_host_or_folder_reaches_the_page() -> None:
    said = " ".join(hostile.PERSONAL)
    document = map_strings(sample_diagnosis(), lambda text: f"{text} {said}").document()
    shown = page.render(document, measured(), FACTS)
    text = Outline(shown).text
    assert not re.search(r"alice|gpu01|corp|/home|Users|fileserver|token@", text)


def test_an_empty_diagnosis_still_makes_a_page() -> None:
    document = sample_document()
    for key in ("links", "hypotheses", "observations", "claims", "fixes", "arms", "mechanisms", "plants"):
        document[key] = []
    for key in ("kernels", "reconcile", "published", "open", "details"):
        document[key] = []
    document.update(effect=None, noise=None, sensitive=None)
    empty = Measured(**{name: pd.DataFrame(columns=list(columns)) for name, columns in COLUMNS.items()})
    shown = Outline(page.render(document, empty, Facts()))
    assert "No measured verdict" in shown.text
    assert document["answer"].replace(" %", "\u00a0%") in shown.text


def test_long_texts_are_in_rows_that_a_narrow_screen_shows_as_blocks(outline: Outline) -> None:
    tables = [attrs for tag, attrs in outline.elements if tag == "table" and attrs.get("class") == "stacked"]
    assert len(tables) >= 8
    for tag, attrs in outline.elements:
        if tag in {"td", "th"} and "data-column" in attrs:
            assert attrs["data-column"]
            assert attrs["role"] in {"cell", "rowheader"}


def test_remarks_are_shown_whole_and_the_rest_behind_a_count() -> None:
    document = sample_document()
    document["details"] = [f"Remark {k} " + "word " * 60 for k in range(15)]
    rendered = page.render(document, measured(), FACTS)
    banner = rendered.partition('id="verdict"')[2].partition("</section>")[0]
    assert banner.count("Remark ") == 15
    assert "word…" not in banner
    assert "<summary>3 more remarks</summary>" in banner


def test_the_commands_of_the_recordings_stand_in_the_page(rendered: str) -> None:
    assert "Record again, on such a machine" in rendered
    assert "rcatools record capture-stream --out sample --device cuda" in rendered
