"""The shipped findings and page as a reader gets them: no internal names, no cut words, no slips of number or unit."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from test_report_safe import github

from rcatools.diagnosis import load_investigation
from rcatools.report import findings, page
from rcatools.report.evidence import gather
from rcatools.report.inputs import inputs
from rcatools.stats.records import Reason

ROOT = Path(__file__).resolve().parents[1]
NAMES = [p.name for p in sorted((ROOT / "data" / "recordings").glob("capture-stream-h200*"))]
SPEC = load_investigation(ROOT / "data" / "investigations" / "capture-stream").spec


@pytest.fixture(scope="module")
def evidence() -> Any:
    if not NAMES:
        pytest.skip("no H200 recording is shipped")
    return gather(inputs("capture-stream", NAMES, None, ()))


@pytest.fixture(scope="module")
def markdown(evidence: Any) -> str:
    return findings.render(evidence.document)


@pytest.fixture(scope="module")
def prose(markdown: str) -> str:
    """What is shown outside code."""
    return html.unescape(github(markdown).outside_code)


@pytest.fixture(scope="module")
def head(markdown: str) -> list[str]:
    return [html.unescape(line) for line in markdown.partition("\n### ")[0].splitlines() if line]


@pytest.mark.parametrize(
    "slip",
    [
        r"(?<!\d)-0(?:\.0+)? (?:%|ns|us|B)",
        r"(?<![\d,.])1 (?:blocks|predictions|runs|questions|rows|kernels|streams|observations|remarks)\b",
        r"(?<![\d,.])1 further predictions",
        r"[µμ]s\b",
        r"\b(?:None|nan|NaN|null|True|False)\b",
        r"\b(?:zero|carries|absent|not_explained|one_mode|two_modes): ",
        r"\bexpected (?:zero|carries|absent|same|flat)\b",
        r"[A-Za-z]…(?: |$|\))",
        r"\.\.(?!\.)",
        r"(?<!\w)\(\)|\[\]|[;,:] *[;,]",
    ],
)
def test_no_slip_of_number_word_or_unit(prose: str, slip: str) -> None:
    assert re.findall(rf".{{0,40}}{slip}.{{0,20}}", prose) == []


def test_no_reason_code_and_no_id_of_an_explanation_or_check_reaches_the_reader(prose: str) -> None:
    arms = set(SPEC.arms)
    ids = {h.id for h in SPEC.hypotheses} | set(SPEC.observations) | {c.id for c in SPEC.claims}
    ids |= {reason.value for reason in Reason} | {"side_live_bytes", "kv_address", "kv_offset"}
    hidden = {name for name in ids - arms if "_" in name}
    shown = set(re.findall(r"(?<![\w.])[a-z]+(?:_[a-z0-9]+)+(?!\w)", re.sub(r"runs\.\w+", "", prose)))
    assert shown & hidden == set()


def test_the_head_says_it_in_lines_of_bearable_length(head: list[str]) -> None:
    assert head[1].startswith("**On one NVIDIA H200, ")
    assert max(len(line) for line in head) < 480
    assert sum(line.startswith("- ") for line in head) <= 25


def test_every_estimate_of_the_head_tells_how_many_blocks_it_rests_on(head: list[str]) -> None:
    for line in head[2:]:
        if re.search(r"\[[+-]", line) and "Fix variants" not in line and "not judged on time" not in line:
            assert re.search(r"\d+ blocks?\b", line), line


def test_how_to_reproduce_gives_the_command_of_every_recording_judged(evidence: Any, markdown: str) -> None:
    used = [item for item in evidence.document["environment"]["recordings"] if item["used"]]
    part = markdown.partition("### How to reproduce")[2].partition("\n### ")[0]
    assert used
    for item in used:
        assert re.sub(r"--out \S+", f"--out {item['name']}", item["command"]) in part


def test_the_link_that_fails_tells_value_interval_threshold_and_what_it_would_take(
    evidence: Any, markdown: str
) -> None:
    link = next(item for item in evidence.document["links"] if item["id"] == "d")
    assert link["verdict"] == "not_shown"
    text = link["evidence"][0]["text"]
    value, low, high = (float(x) for x in re.findall(r"([+-][\d.]+) %", text)[:3])
    assert low <= value <= high
    assert re.search(r"[\d.]+ % would count \(half of the effect\), [\d.]+ % would have been seen", text)
    assert re.search(r"are \d+ % of the step: .* they would have to be [\d.]+ % longer", text)
    assert text.split("; ")[0] in html.unescape(markdown)


def test_kernels_timed_alone_stand_beside_the_price_of_a_boundary(evidence: Any, markdown: str) -> None:
    kernels = {item["kernel"]: item for item in evidence.document["kernels"]}
    price = evidence.document["boundary"]
    assert price["ci_low_us"] < price["delta_us"] < price["ci_high_us"]
    part = html.unescape(
        markdown.partition("Kernels alone, suspect against baseline")[2].partition("</details>")[0]
    )
    assert "each of its times holds a boundary" in part
    low, high = sorted((price["delta_us"], price["gap_us"]))
    for side in ("below", "within", "above"):
        named = re.search(rf"(?:intervals: |; ){side}: ([\w, ]+)", part)
        wanted = {name for name, item in kernels.items() if side == _side(item, low, high)}
        assert (set(named.group(1).split(", ")) if named else set()) == wanted
    assert f"accounts for {100 * price['share']:.0f} % of the effect" in part


def _side(item: Any, low: float, high: float) -> str:
    each = 2 if item["against_boundary"].endswith(" two") else 1
    least, most = (item["base_us"] * (item[bound] - 1) / each for bound in ("ci_low", "ci_high"))
    return "below" if most < low else "above" if least > high else "within"


def test_measured_but_not_judged_arms_are_in_the_head_with_their_figures(
    evidence: Any, head: list[str]
) -> None:
    text = "\n".join(head)
    for item in evidence.document["arms"]:
        if item["n"] < 3 or "outputs_differ" in item["reasons"]:
            assert re.search(rf"\b{item['arm']} \(?[+-][\d.]+ %", text), item["arm"]
            assert item["verdict"] == "undecided"


def test_remarks_hold_no_number_that_is_not_the_definition_of_an_arm() -> None:
    defined = set(re.findall(r"\d+", " ".join(arm.text for arm in SPEC.arms.values())))
    for hypothesis in SPEC.hypotheses:
        for text in (hypothesis.stands, *(remark.text for remark in hypothesis.remarks)):
            assert set(re.findall(r"\d+", re.sub(r"\{\w+\}", "", text))) <= defined, text


def test_the_page_says_nothing_shortened_in_its_first_screen(evidence: Any) -> None:
    rendered = page.render(evidence.document, evidence.measured, evidence.facts)
    banner = re.sub(r"<[^>]+>", " ", rendered.partition('id="verdict"')[2].partition("</section>")[0])
    assert not re.search(r"\w…", banner)
    chain = rendered.partition('class="chain"')[2].partition("</ol>")[0]
    assert not re.search(r"\w…", chain)
