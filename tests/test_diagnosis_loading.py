"""investigation.yaml: what is accepted, and the one line that a mistake gets."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from rcatools.diagnosis import list_checks, load_investigation, parse_investigation
from rcatools.diagnosis.loading import MAX_FILE_BYTES
from rcatools.diagnosis.vocabulary import CHECKS
from rcatools.errors import InputError, UnsafeInputError

DATA = Path(__file__).resolve().parents[1] / "data" / "investigations"

SMALL = """
slug: small
title: A small one
question: is b slower than a?
effect: {suspect: b, baseline: off, metric: step_us, margin: 0.02, repeat: [again]}
arms:
  off: {role: baseline, text: nothing}
  again: {role: repeat, text: nothing again}
  b: {role: suspect, text: something}
observations:
  slower: {check: ratio, text: b is slower, arm: b}
  counts: {check: step, text: a step, counts: {b: 1, again: 2, off: 3}}
links:
  - {id: a, text: it is slower, all: {slower: slower}}
hypotheses:
  - {id: real, title: real, stands: it is real, predicts: {slower: slower}}
  - {id: noise, title: noise, stands: it is noise, is_null: true, predicts: {slower: [equivalent, faster]}}
claims:
  - {id: c, text: t, source: s, published: "1", date: 2026-07-13, judged: {by: hypothesis, hypothesis: real}}
"""


def test_off_and_dates_stay_text() -> None:
    spec = parse_investigation(SMALL)
    assert list(spec.arms) == ["off", "again", "b"]
    assert spec.effect.baseline == "off"
    assert spec.claims[0].date == "2026-07-13"
    assert spec.hypotheses[1].is_null is True


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("arm: b}", "amr: b}", "unknown key in f.yaml at observations.slower 'amr': did you mean 'arm'?"),
        (
            "check: ratio",
            "check: rato",
            "unknown check in f.yaml at observations.slower 'rato': did you mean 'ratio'?",
        ),
        ("check: ratio, ", "", "f.yaml: observations.slower lacks 'check', one of "),
        ("arm: b}", "arm: bb}", "unknown arm in f.yaml at observations.slower 'bb': did you mean 'b'?"),
        (
            "all: {slower: slower}",
            "all: {slower: slowr}",
            "unknown outcome of check 'ratio' in f.yaml at links[0].all.slower 'slowr': did you mean 'slower'?",
        ),
        (
            "predicts: {slower: slower}",
            "predicts: {slwer: slower}",
            "unknown observation in f.yaml at hypotheses[0].predicts 'slwer': did you mean 'slower'?",
        ),
        (
            "hypothesis: real",
            "hypothesis: reel",
            "unknown hypothesis in f.yaml at claims[0] 'reel': did you mean 'real'?",
        ),
        ("margin: 0.02", "margin: two", "f.yaml: effect.margin: Expected `float`, got `str`"),
        (
            "margin: 0.02",
            "margin: 2",
            "f.yaml: effect: the margin must lie between 0 and 1 (0.01 = 1 %), got 2",
        ),
        ("title: A small one\n", "", "f.yaml: the top: lacks the required key 'title'"),
        ("text: nothing}", "text: 3}", "f.yaml: arms.off.text: Expected `str`, got `int`"),
        (
            "{b: 1, again: 2, off: 3}",
            "{b: 1}",
            "f.yaml: observations.counts: a step needs at least three counts",
        ),
        ("  again: {role", "  off: {role", "the key 'off' stands twice"),
        ("id: noise", "id: real", "f.yaml: the id 'real' stands twice in hypotheses"),
        ("slug: small", "slug: &x small", None),
        ("slug: small", "slug: *x", "aliases are not read here"),
        ("question: is", "question: [", "f.yaml: while parsing"),
        (
            "title: A small one",
            "title: !!python/object/apply:os.system [id]",
            "could not determine a constructor",
        ),
        (
            "links:",
            "tables: {t: ../secret.csv}\nlinks:",
            "tables.t must be the name of a CSV file in the same folder",
        ),
        ("links:", "plants: {b: [slower_kernel]}\nlinks:", "did you mean 'slower_kernels'?"),
        (
            "arm: b}",
            "arm: b}\n  part: {check: reconcile, text: t, part: {table: nowhere, column: x}, whole: 1}",
            "unknown table in f.yaml at observations.part.part 'nowhere'",
        ),
        (
            "arm: b}",
            "arm: b}\n  part: {check: reconcile, text: t, part: {value: 1, sum: [1, 2]}, whole: 1}",
            "a quantity needs exactly one of value, table, sum, product, ratio, difference; got value, sum",
        ),
    ],
)
def test_every_mistake_is_one_line_with_its_place(old: str, new: str, message: str | None) -> None:
    assert old in SMALL
    text = SMALL.replace(old, new, 1)
    if message is None:
        parse_investigation(text, "f.yaml")
        return
    with pytest.raises(InputError) as caught:
        parse_investigation(text, "f.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "- 1", "3", "\x00"])
def test_what_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_investigation(text)


@pytest.mark.parametrize(
    "text",
    [
        "? [a, b]\n: 1\n",
        "slug: " + "[" * 3000 + "]" * 3000,
        SMALL + "open: [{text: t, run: " + "{sum: [" * 400 + "1" + "]}" * 400 + "}]\n",
        SMALL.replace("arm: b}", "arm: b, margin: .nan}"),
        SMALL.replace("margin: 0.02", "margin: .nan"),
        SMALL.replace("margin: 0.02", "margin: 1e999"),
    ],
    ids=["list-as-key", "deep", "deep-value", "nan-margin", "nan", "huge"],
)
def test_hostile_text_is_one_line_too(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_investigation(text)
    assert len(str(caught.value)) < 2000


def test_files_missing_too_large_or_not_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no investigation at"):
        load_investigation(tmp_path)
    file = tmp_path / "investigation.yaml"
    file.write_bytes(b"slug: \xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        load_investigation(tmp_path)
    file.write_bytes(b"# " + b"x" * MAX_FILE_BYTES)
    with pytest.raises(UnsafeInputError):
        load_investigation(file)
    file.write_text(SMALL + "tables: {t: t.csv}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"t\.csv, which is not beside it"):
        load_investigation(file)


def test_a_table_keeps_hash_signs_and_drops_leading_comments(tmp_path: Path) -> None:
    (tmp_path / "investigation.yaml").write_text(SMALL + "tables: {t: t.csv}\n", encoding="utf-8")
    (tmp_path / "t.csv").write_text("# from elsewhere\nid,source\nx,project#12\n", encoding="utf-8")
    table = load_investigation(tmp_path).tables["t"]
    assert table.to_dict("records") == [{"id": "x", "source": "project#12"}]


def test_list_checks_documents_every_check() -> None:
    listed = list_checks()
    assert listed.keys() == CHECKS.keys()
    for name, entry in listed.items():
        assert len(str(entry["does"])) > 40, name
        assert entry["outcomes"], name
    assert listed["delta_fit"]["parameters"]["term"] == "required"  # type: ignore[index]


@pytest.mark.parametrize(
    "folder", sorted(p.parent for p in DATA.glob("*/investigation.yaml")), ids=lambda p: p.name
)
def test_shipped_investigations_load_and_name_the_recorder_s_arms(folder: Path) -> None:
    investigation = load_investigation(folder)
    assert investigation.slug == folder.name
    plan = tomllib.loads((folder / "arms.toml").read_text(encoding="utf-8"))
    declared = {arm["name"]: arm["role"] for arm in plan["arm"]}
    known = {name: arm.role for name, arm in investigation.spec.arms.items()}
    assert declared == {name: known.get(name) for name in declared}
    assert set(known) <= set(declared)
    assert plan["baseline"] == investigation.spec.effect.baseline
    assert plan["metric"] == investigation.spec.effect.metric
    assert plan["margin"] == investigation.spec.effect.margin


def test_published_numbers_of_capture_stream_are_data_with_sources() -> None:
    table = load_investigation(DATA / "capture-stream").tables["published"].set_index("id")
    assert table.loc[["july_off", "july_side", "july_side_gc"], "value"].tolist() == [83.42, 69.5, 69.3]
    assert table.loc[["july_current_low", "july_current_high"], "value"].tolist() == [83.25, 83.3]
    revert = table[table.index.str.startswith("revert_")]["value"].tolist()
    assert revert == [0.16, 0.32, -0.46, -0.01, 0.30, -0.55, -0.79, 1.64]
    assert table.loc[["report_low", "report_high"], "value"].tolist() == [17, 20]
    assert table["source"].notna().all()
    assert table["url"].str.startswith("https://github.com/").all()
    assert table.loc["hipblaslt_bytes", "value"] == 76 * 1024 * 1024
