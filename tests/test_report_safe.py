"""Text from files stays text: judged by two Markdown renderers with GitHub's rules, not by our own rules."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import cmarkgfm
import hostile
import pytest
from cmarkgfm.cmark import Options
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rcatools.report import safe

MARKS = st.text(
    st.sampled_from(list("\\`*_{}[]()#+-.!|<>~$@&;:/=^ \n\t'\"aZ09x\u202e\u200b\x1b")), max_size=30
)
TEXTS = st.one_of(st.text(max_size=60), MARKS, st.sampled_from(hostile.PIECES))
GITHUB_FINDS = re.compile(r"@\w|#\d|\bGH-\d|https?:|www\.|\b[0-9a-f]{40}\b", re.I)


class Flat(HTMLParser):
    """Tags and text of rendered HTML; text outside of code elements apart."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.text = ""
        self.outside_code = ""
        self.depth = 0
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.depth += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "code"

    def handle_data(self, data: str) -> None:
        self.text += data
        if not self.depth:
            self.outside_code += data


def github(markdown: str) -> Flat:
    options = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES
    return Flat(cmarkgfm.github_flavored_markdown_to_html(markdown, options))


def other(markdown: str) -> Flat:
    return Flat(MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(markdown))


def same(shown: str, text: str) -> bool:
    return shown.replace("\u200b", "").strip() == safe.clean(text).strip()


@pytest.mark.parametrize("render", [github, other])
@given(TEXTS)
@example(hostile.EVERYTHING)
@settings(max_examples=250, deadline=None)
def test_a_paragraph_shows_the_text_and_nothing_else(render, text: str) -> None:
    shown = render(f"**Seen:** {safe.md(text)} end")
    assert shown.tags == ["p", "strong"]
    assert same(shown.text.strip().removeprefix("Seen:").removesuffix("end"), text)
    assert not GITHUB_FINDS.search(shown.outside_code)


@pytest.mark.parametrize("render", [github, other])
@given(TEXTS)
@example(hostile.EVERYTHING)
@settings(max_examples=150, deadline=None)
def test_text_at_the_start_of_a_line_forms_no_block(render, text: str) -> None:
    shown = render(f"before\n\n{safe.md(text)}\n\nafter")
    assert set(shown.tags) == {"p"}


@pytest.mark.parametrize("render", [github, other])
@given(TEXTS, TEXTS)
@example(hostile.EVERYTHING, "\\")
@settings(max_examples=250, deadline=None)
def test_table_cells_keep_their_number_and_text(render, first: str, second: str) -> None:
    table = f"| a | b |\n| --- | --- |\n| {safe.md(first)} | {safe.md_code(second)} |"
    shown = render(table)
    assert shown.tags.count("td") == 2
    assert set(shown.tags) <= {"table", "thead", "tbody", "tr", "th", "td", "code"}
    assert not GITHUB_FINDS.search(shown.outside_code)


@given(TEXTS)
@settings(max_examples=200, deadline=None)
def test_code_shows_the_name_itself(text: str) -> None:
    shown = github(f"name {safe.md_code(text)} end")
    assert shown.tags == ["p", "code"]
    assert same(shown.text.removeprefix("name ").removesuffix("end\n"), text) or not safe.clean(text)


@given(st.lists(TEXTS, max_size=4))
@settings(max_examples=150, deadline=None)
def test_a_block_ends_where_it_should(lines: list[str]) -> None:
    shown = github(safe.md_block("\n".join(lines), "sh") + "\n\nafter")
    assert shown.tags == ["pre", "code", "p"]


@given(TEXTS)
@example(hostile.EVERYTHING)
def test_clean_text_is_one_visible_line(text: str) -> None:
    line = safe.clean(text)
    assert "\n" not in line
    assert line.isprintable() or not line
    assert not re.search("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\x00-\x1f\x7f-\x9f]", line)
    assert safe.clean(line) == line


def test_terminal_escapes_leave_no_rest() -> None:
    assert safe.clean("\x1b[1;31mred\x1b[0m \x1b]0;title\x07text \x1b(B") == "red text"


def test_long_text_is_cut_with_a_mark() -> None:
    assert safe.clean("x" * 5000, 100) == "x" * 99 + "…"


@pytest.mark.parametrize("text", hostile.PERSONAL)
def test_persons_hosts_and_folders_do_not_pass(text: str) -> None:
    shown = safe.without_persons(safe.clean(f"see {text}"))
    assert not re.search(r"alice|gpu01|corp|home|Users|token|fileserver|/root", shown)


@pytest.mark.parametrize(
    "text",
    [
        "rcatools report capture-stream --out report",
        "36.8 tok/s at 1/2 of the pages, a/b",
        "https://github.com/vllm-project/vllm/issues/48453",
        "vllm-project/vllm#48453",
        "torch 2.11.0+cu130, /opt is a word here",
        "H200/MI300X and 79,691,776 B",
    ],
)
def test_ordinary_text_passes_unchanged(text: str) -> None:
    assert safe.without_persons(safe.clean(text)) == text


def test_names_told_under_personal_keys_are_removed_everywhere() -> None:
    document = {
        "environment": {"hostname": "gpu-box-17.corp", "user": "alice", "device": "NVIDIA H200"},
        "links": [{"text": "seen by ALICE on gpu-box-17"}],
    }
    shown = safe.harmless(document)
    assert shown["environment"] == {"device": "NVIDIA H200"}
    assert shown["links"][0]["text"] == "seen by [removed] on [removed]"


def test_ordinary_words_are_no_names() -> None:
    document = {"environment": {"user": "root", "home": "/root"}, "title": "the root cause on this host"}
    assert safe.harmless(document)["title"] == "the root cause on this host"


def test_settings_that_end_like_personal_ones_teach_no_names() -> None:
    document = {"settings": {"CUDA_HOME": "/usr/local/cuda", "MASTER_HOST_COUNT": "two"}, "backend": "cuda"}
    shown = safe.harmless(document)
    assert shown["backend"] == "cuda"
    assert shown["settings"]["CUDA_HOME"] == "…/cuda"


@given(TEXTS)
def test_mermaid_labels_hold_no_syntax(text: str) -> None:
    assert not re.search(r'["<>;`#&\[\]{}|]', safe.mermaid(text))


@given(TEXTS)
def test_plotly_text_holds_no_tag(text: str) -> None:
    shown = safe.plot_text(text, 10_000)
    assert "<" not in shown
    assert html.unescape(shown) == safe.clean(text, 10_000)


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-cmd|x", "@sum"])
def test_a_spreadsheet_sees_text(text: str) -> None:
    assert safe.cell_text(text) == f"'{text}"


def test_negative_numbers_stay_numbers() -> None:
    assert safe.cell_text("-0.5") == "-0.5"


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "http://a@b/",
        "//x",
        "https://x/<script>",
        "https://x y",
        "ftp://x/",
    ],
)
def test_only_plain_web_addresses_become_links(url: str) -> None:
    assert safe.web_address(url) is None
