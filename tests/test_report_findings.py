"""findings.md: right figures, within GitHub's limit, harmless whatever the files held."""

from __future__ import annotations

import copy
import re
from collections import Counter

import hostile
import pytest
from report_samples import map_strings, sample_diagnosis, sample_document
from test_report_safe import GITHUB_FINDS, github, other

from rcatools.report import findings, present, provenance
from rcatools.report.safe import md

ALLOWED = {
    "h2", "h3", "p", "strong", "ul", "li", "a", "code", "pre", "table", "thead", "tbody", "tr", "th", "td",
    "details", "summary",
}  # fmt: skip


def long_document(rows: int) -> dict:
    document = sample_document()
    for key in ("arms", "fixes", "kernels", "claims", "open", "mechanisms"):
        document[key] = [copy.deepcopy(document[key][i % len(document[key])]) for i in range(rows)]
    document["environment"]["recordings"][0]["files"] = {
        f"traces/{i}.json.gz": "ab" * 32 for i in range(rows)
    }
    return document


def cells(shown: str, first: str) -> list[str]:
    row = next(line for line in shown.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_first_lines_say_verdict_effect_limit_and_noise() -> None:
    lines = findings.render(sample_document()).splitlines()
    assert lines[2].startswith("**A side-stream capture makes the decode step 5.0 % slower")
    head = "\n".join(lines[:12])
    assert "`side` against `off`: +5.0 % [+4.9 %, +5.1 %] in time, 14 blocks, ▲ slower" in head
    assert "**Detection limit:** 0.15 %" in head
    assert "**Noise floor (A/A):** 0.13 %" in head


def test_every_part_an_issue_needs_is_there_in_order() -> None:
    titles = re.findall(r"^### (.*)$", findings.render(sample_document()), re.M)
    assert titles == [
        "How to reproduce",
        "Causal chain",
        "Rival causes",
        "Fix variants",
        "Published claims",
        "Not tested",
        "Environment",
        "Raw data",
    ]


def test_fix_table_tells_time_memory_output_and_verdict() -> None:
    row = cells(findings.render(sample_document()), "`side_gc`")
    assert row[2] == "▲&nbsp;slower"
    assert row[3] == "+5.0 % [+4.9 %, +5.1 %]"
    assert row[6:] == ["+76.00 MiB", "-76.00 MiB", "76.00 MiB", "equal"]


def test_published_numbers_are_quoted_to_the_last_digit() -> None:
    document = sample_document()
    document["published"][0].update(value=79_691_776.0, unit="bytes")
    document["published"].append({**document["published"][0], "value": -0.01, "unit": "%"})
    text = findings.render(document)
    assert "79,691,776 bytes" in text
    assert "-0.01 %" in text


def test_published_numbers_stand_apart_from_measured_ones() -> None:
    text = findings.render(sample_document())
    before, _, after = text.partition("Published numbers (not measured here)")
    assert "83.42" not in before
    assert "83.42 tok/s" in after.partition("</details>")[0]


@pytest.mark.parametrize("render", [github, other])
def test_github_shows_only_the_markup_we_wrote(render) -> None:
    shown = render(findings.render(sample_document()))
    assert set(shown.tags) <= ALLOWED
    assert "details" in shown.tags


@pytest.mark.parametrize("render", [github, other])
def test_a_hostile_recording_changes_no_markup(render) -> None:
    document = map_strings(sample_diagnosis(), lambda text: f"{text} {hostile.EVERYTHING}").document()
    document["environment"][hostile.EVERYTHING] = hostile.EVERYTHING
    markdown = findings.render(document)
    shown = render(markdown)
    assert set(shown.tags) <= ALLOWED | {"blockquote"}
    assert len(markdown) <= findings.MAX_CHARACTERS
    assert not GITHUB_FINDS.search(re.sub(r"<https?://[^>]*>", "", shown.outside_code))


def test_each_hostile_piece_alone_keeps_the_whole_structure() -> None:
    plain = Counter(github(findings.render(sample_document())).tags)
    for piece in hostile.PIECES:
        document = map_strings(
            sample_diagnosis(),
            lambda text, piece=piece: text if text.startswith("https://") else f"{text} {piece}",
        ).document()
        shown = Counter(github(findings.render(document)).tags)
        for tag in ("table", "tr", "td", "th", "details", "summary", "h2", "h3", "pre"):
            assert shown[tag] == plain[tag], (piece, tag)
        assert set(shown) <= ALLOWED, piece


def test_no_person_host_or_folder_reaches_the_findings() -> None:
    said = " ".join(hostile.PERSONAL)
    document = map_strings(sample_diagnosis(), lambda text: f"{text} {said}").document()
    document["environment"].update(hostname="gpu-box-17.corp", user="alice")
    shown = findings.render(document)
    assert not re.search(r"alice|gpu01|gpu-box|corp|/home|Users|fileserver|token@", shown)


@pytest.mark.parametrize("rows", [60, 400, 1000])
def test_long_reports_are_cut_where_it_shows(rows: int) -> None:
    text = findings.render(long_document(rows))
    assert len(text) <= findings.MAX_CHARACTERS
    assert re.search(r"\d+ more rows are in report.html|Cut to fit", text)
    assert text.count("<details>") == text.count("</details>")
    assert len(re.findall(r"^```", text, re.M)) % 2 == 0
    assert "▲ slower" in text.split("###")[0]


@pytest.mark.parametrize("limit", [2000, 3000, 5000, 9000, 14000, 20000])
def test_any_limit_is_kept_with_folds_closed(limit: int) -> None:
    text = findings.render(long_document(50), limit)
    assert len(text) <= limit
    assert set(github(text).tags) <= ALLOWED | {"blockquote"}
    assert text.count("<details>") == text.count("</details>")
    assert len(re.findall(r"^```", text, re.M)) % 2 == 0


def test_short_reports_are_not_cut() -> None:
    text = findings.render(sample_document())
    assert "more rows are in" not in text
    assert "Cut to fit" not in text


def test_a_missed_plant_is_told_at_the_top() -> None:
    document = sample_document()
    document["sensitive"] = False
    assert "cannot be relied on" in findings.render(document).split("###")[0]


def test_an_empty_diagnosis_still_says_what_it_knows() -> None:
    document = sample_document()
    for key in ("links", "hypotheses", "observations", "claims", "fixes", "arms", "mechanisms", "plants"):
        document[key] = []
    for key in ("kernels", "reconcile", "published", "open", "details"):
        document[key] = []
    document.update(effect=None, noise=None, sensitive=None)
    text = findings.render(document)
    assert document["answer"] in text
    assert "### Causal chain" not in text


def test_the_diagram_holds_every_link_once() -> None:
    diagram = findings.chain_diagram(sample_document())
    assert re.findall(r"^  (L\d)\[", diagram, re.M) == ["L0", "L1", "L2", "L3", "L4"]
    assert diagram.count(" --> ") == 4


def test_the_commands_that_made_the_recordings_are_given_in_full() -> None:
    document = sample_document()
    long = "rcatools record capture-stream --arms " + ",".join(f"arm_{k}" for k in range(150))
    document["environment"]["recordings"][0].update(command=long, used=True)
    other = {**document["environment"]["recordings"][0], "command": "rcatools record other", "used": False}
    document["environment"]["recordings"].append(other)
    part = findings.render(document).partition("### How to reproduce")[2].partition("\n### ")[0]
    assert f"\n{long}\n" in part
    assert "rcatools record other" not in part


def test_the_least_needed_section_loses_its_rows_first() -> None:
    document = sample_document()
    document["mechanisms"] = [{**document["mechanisms"][0], "text": "x" * 400} for _ in range(200)]
    text = findings.render(document)
    assert len(text) <= findings.MAX_CHARACTERS
    assert re.search(
        r"What changed inside the step \(200\)</summary>\n\n\d+ more rows are in report.html", text
    ) or ("160 more rows are in report.html" in text)
    assert len(re.findall(r"more rows are in", text)) == 1


def test_counts_agree_with_their_nouns() -> None:
    document = sample_document()
    hypothesis = copy.deepcopy(document["hypotheses"][1])
    failing = hypothesis["predictions"][0]
    hypothesis["predictions"] = [dict(failing, text=f"thing {k}") for k in range(4)]
    document["hypotheses"][1] = hypothesis
    assert "1 further prediction fails" in findings.render(document)
    hypothesis["predictions"].append(dict(failing, text="thing 5"))
    assert "2 further predictions fail" in findings.render(document)


def test_a_question_is_followed_by_what_it_needs() -> None:
    document = sample_document()
    document["open"] = [{"text": "Is it so there?", "run": "rcatools doctor", "needs": "an AMD card"}]
    part = findings.render(document).partition("### Not tested")[2]
    assert "- Is it so there? Needs an AMD card.\n\n  ```sh\n  rcatools doctor\n  ```" in part


def test_variants_are_back_at_the_baseline_only_where_something_was_slower() -> None:
    document = sample_document()
    line = next(x for x in findings.render(document).splitlines() if x.startswith("- **Fix variants:**"))
    assert "back at the baseline within the margin: current (" in line
    assert "still slower: side_gc (" in line
    for item in document["fixes"]:
        item["verdict"] = "slower"
    assert "none is shown to be back at the baseline; still slower" in findings.render(document)
    document["effect"]["verdict"] = "faster"
    document["fixes"][0].update(verdict="faster", arm="quick")
    text = findings.render(document)
    assert "faster than the baseline: quick (" in text
    assert "back at" not in text.partition("###")[0]


def test_each_command_writes_the_recording_that_it_made_under_its_present_name() -> None:
    document = sample_document()
    one = document["environment"]["recordings"][0]
    document["environment"]["recordings"] = [
        {**one, "name": name, "used": True, "command": f"rcatools record x --seed {seed} --out first"}
        for seed, name in enumerate(("first", "second"))
    ]
    assert provenance.commands(document) == [
        "rcatools record x --seed 0 --out first",
        "rcatools record x --seed 1 --out second",
    ]


def test_a_failed_prediction_tells_what_was_predicted_and_what_was_seen() -> None:
    item = {
        "text": "the effect at a fixed KV size",
        "expected": "less than half of the effect",
        "observed": "more than half of the effect: a against b: +7.3 % [+7.1 %, +7.4 %], 98 % of the effect, 6 blocks",
    }
    wanted = "predicted: less than half of the effect at a fixed KV size; seen: 98 % of it"
    assert present.failed_prediction(item) == wanted
    other = {"text": "two levels", "expected": "two levels", "observed": "one level: 24 runs"}
    assert present.failed_prediction(other) == "two levels: predicted two levels; seen: one level"


def test_a_prediction_that_fails_without_being_necessary_is_counted_and_named() -> None:
    held = {"holds": True, "necessary": True}
    failed = {
        "holds": False,
        "necessary": False,
        "text": "a fixed cost per kernel",
        "observed": "there, but smaller than what counts: 164 ns",
    }
    assert present.balance([held, held, failed]) == (
        "2 predictions hold, 1 does not, not a necessary one: a fixed cost per kernel (there, but smaller than what counts)"
    )
    assert (
        present.balance([held, {**failed, "necessary": True}]) == "1 prediction holds, 1 fails (1 necessary)"
    )


def test_arms_of_several_recordings_tell_theirs_and_which_is_of_another_card() -> None:
    document = sample_document()
    one = document["environment"]["recordings"][0]
    document["environment"]["uuid"] = "card-a"
    document["environment"]["recordings"] = [
        {**one, "name": f"x-gpu{name}", "uuid": card}
        for name, card in (("-main", "card-a"), ("-early", "card-b"))
    ]
    for number, item in enumerate(document["arms"]):
        item["recording"] = "x-gpu-early" if number % 2 else "x-gpu-main"
    table = present.arms(document)
    column = table.columns.index("Recording")
    shown = [row[column].text for row in table.rows]
    assert shown == ["early †" if k % 2 else "main" for k in range(len(shown))]
    assert "another card" in table.note
    assert "Recording" not in str(present.arms(sample_document()).columns)


def test_an_interval_before_a_colon_is_shown_without_a_character_reference() -> None:
    text = "side_ws_0 +15.88 % [+15.86 %, +15.90 %]: not judged"
    assert "&#93;" not in md(text)
    assert github(md(text)).text.strip() == text
    assert github(md("[a]: https://x.test") + "\n\n[a]").tags == ["p", "p"]
