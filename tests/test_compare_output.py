"""What is printed: the JSON contract, a sentence, and text that cannot become markup."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compare_help import arm, compare, run, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

REASONS = {
    "interval_excludes_one", "interval_inside_margin", "interval_too_wide", "too_few_runs", "within_noise_floor",
    "order_or_drift", "modes_in_arm", "unequal_spread", "outlier_carries_effect", "mixed_machines",
    "single_run_per_arm", "pooled_samples_refused",
}  # fmt: skip
VERDICTS = {"slower", "faster", "equivalent", "undecided"}
ARM_KEYS = {
    "arm",
    "n",
    "ratio",
    "ci_low",
    "ci_high",
    "p_value",
    "mde",
    "p_floor",
    "verdict",
    "reasons",
    "warnings",
}
TOP_KEYS = {"verdict", "baseline", "unit", "paired", "noise_floor", "arms"}


def rows(effect: float, n: int = 8, name: str = "on") -> list[tuple[str, int, float]]:
    rng = np.random.default_rng(n)
    level = 100 * np.exp(rng.normal(0, 0.02, n))
    return [
        (a, i, v)
        for a, e in (("off", 1.0), (name, effect))
        for i, v in enumerate(level * e * np.exp(rng.normal(0, 0.004, n)))
    ]


def check_contract(document: dict[str, Any]) -> None:
    assert document.keys() >= TOP_KEYS
    assert document["verdict"] in VERDICTS
    for part in [document, *document.get("results", [])]:
        assert part["unit"] in {"block", "run", "row", "summary"}
        for entry in part["arms"]:
            assert entry.keys() >= ARM_KEYS
            assert entry["verdict"] in VERDICTS
            assert entry["reasons"]
            assert set(entry["reasons"]) <= REASONS
            assert all(isinstance(w, str) for w in entry["warnings"])


def test_the_document_keeps_its_contract(tmp_path: Path) -> None:
    one = compare(write(tmp_path / "one.csv", "arm,block,value", rows(1.05)), "--baseline", "off")
    check_contract(one)
    assert "results" not in one
    assert arm(one)["ci_low"] < arm(one)["ratio"] < arm(one)["ci_high"]
    many = [(w, *row) for w in ("k1", "k2") for row in rows(1.05 if w == "k1" else 1.0)]
    several = compare(write(tmp_path / "two.csv", "kernel,arm,block,value", many), "--baseline", "off")
    check_contract(several)
    assert [r["workload"] for r in several["results"]] == ["k1", "k2"]
    assert several["verdict"] == "slower"
    assert several["arms"] == []


def test_the_sentence_holds_what_a_person_would_write(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "arm,block,value", rows(1.05))
    sentence = arm(compare(path, "--baseline", "off"))["sentence"]
    assert sentence.startswith("on is 4.7 % slower than off (95 % interval +4.5 % to +4.9 %, 8 blocks).")
    undecided = arm(compare(write(tmp_path / "u.csv", "arm,run,value", rows(1.02, 4)), "--baseline", "off"))
    assert undecided["verdict"] == "undecided"
    assert "would have been seen" in undecided["sentence"]
    assert "alternating runs an arm to see" in undecided["sentence"]
    same = arm(compare(write(tmp_path / "e.csv", "arm,block,value", rows(1.0)), "--baseline", "off"))
    assert "is within 2.0 % of off" in same["sentence"]
    rate = [(a, i, 1e4 / v) for a, i, v in rows(1.05)]
    lower = arm(compare(write(tmp_path / "r.csv", "arm,block,tok_s", rate), "--baseline", "off"))
    assert "lower than off" in lower["sentence"]


def test_text_names_every_arm_and_reason(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "arm,block,value", rows(1.05))
    code, out, err = run(path, "--baseline", "off")
    assert (code, err) == (0, "")
    line = next(line for line in out.splitlines() if line.startswith("on "))
    assert line.split()[1] == "slower"
    assert line.endswith("interval_excludes_one")
    assert out.startswith("slower: compared with off")


HOSTILE = "<img src=x onerror=alert(1)>|`x` @octocat #1 [a](http://e.org) **b** \x1b[31m"


def test_markdown_and_text_keep_names_harmless(tmp_path: Path) -> None:
    entries = [{"arm": HOSTILE if a == "on" else a, "block": i, "value": v} for a, i, v in rows(1.05)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(entries))
    _, markdown, _ = run(path, "--baseline", "off", "--markdown")
    assert "\x1b" not in markdown
    for raw in ("<img", "|`", "@octocat", "[a](", "**b**", "http://e"):
        assert raw not in markdown
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(table) == 3
    assert all(line.replace("\\|", "").count("|") == 9 for line in table)
    _, text, _ = run(path, "--baseline", "off")
    assert "\x1b" not in text
    assert arm(compare(path, "--baseline", "off"))["arm"] == HOSTILE.strip()


def test_figure_is_well_formed_and_shows_dot_interval_and_margin(tmp_path: Path) -> None:
    figure = tmp_path / "f.svg"
    entries = [{"arm": HOSTILE if a == "on" else a, "block": i, "value": v} for a, i, v in rows(1.05)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(entries))
    run(path, "--baseline", "off", "--figure", figure)
    root = ET.fromstring(figure.read_text(encoding="utf-8"))
    entry = arm(compare(path, "--baseline", "off"))
    dot = next(e for e in root.iter() if "dot" in e.get("class", ""))
    bar = next(e for e in root.iter() if e.get("class", "").startswith("arm "))
    zero = next(e for e in root.iter() if e.get("class", "") == "zero")
    band = next(e for e in root.iter() if e.get("class", "") == "band")
    x0, x = float(zero.get("x1", "")), float(dot.get("cx", ""))
    left, right = float(bar.get("x1", "")), float(bar.get("x2", ""))
    assert x0 < left < x < right
    assert (left - x0) / (x - x0) == pytest.approx((entry["ci_low"] - 1) / (entry["ratio"] - 1), abs=0.01)
    assert float(band.get("width", "")) == pytest.approx(2 * 0.02 / (entry["ratio"] - 1) * (x - x0), rel=0.02)
    assert {e.tag.split("}")[1] for e in root.iter()} <= {
        "svg",
        "style",
        "title",
        "desc",
        "rect",
        "text",
        "line",
        "circle",
    }
    assert "onerror" not in {name for e in root.iter() for name in e.attrib}


def test_thousands_of_lines_are_cut_in_text_and_whole_in_json(tmp_path: Path) -> None:
    many = [(f"k{k}", *row) for k in range(250) for row in rows(1.05 if k == 249 else 1.0)]
    path = write(tmp_path / "t.csv", "kernel,arm,block,value", many)
    _, text, _ = run(path, "--baseline", "off")
    assert "and 190 more" in text
    assert "k249 / on" in text
    document = compare(path, "--baseline", "off")
    assert len(document["results"]) == 250
    check_contract(document)


VALUES = st.lists(st.floats(0.5, 2.0), min_size=3, max_size=8)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=VALUES, b=VALUES, factor=st.sampled_from([1e-3, 7.0, 1e4]))
def test_units_order_and_direction_do_not_matter(
    tmp_path: Path, a: list[float], b: list[float], factor: float
) -> None:
    table = [("x", v) for v in a] + [("y", v) for v in b]
    plain = arm(compare(write(tmp_path / "p.csv", "arm,value", table), "--baseline", "x", "--any-scale"))
    scaled = [(n, v * factor) for n, v in reversed(table)]
    other = arm(compare(write(tmp_path / "s.csv", "arm,value", scaled), "--baseline", "x", "--any-scale"))
    inverse = [(n, 1 / v) for n, v in table]
    rate = arm(
        compare(write(tmp_path / "r.csv", "arm,value", inverse), "--baseline", "x", "--higher-is-better")
    )
    swapped = arm(compare(tmp_path / "p.csv", "--baseline", "y", "--any-scale"))
    for same in (other, rate):
        assert same["ratio"] == pytest.approx(plain["ratio"], rel=1e-9)
        assert same["p_value"] == pytest.approx(plain["p_value"], rel=1e-6, abs=1e-12)
        assert same["verdict"] == plain["verdict"]
    assert swapped["ratio"] == pytest.approx(1 / plain["ratio"], rel=1e-9)
    opposite = {"slower": "faster", "faster": "slower"}
    assert swapped["verdict"] == opposite.get(plain["verdict"], plain["verdict"])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(
        st.binary(max_size=200),
        st.text(alphabet="arm,value;\t|\"'{}[]:0123456789.-eainf\n#=@", max_size=200).map(str.encode),
        st.lists(
            st.tuples(st.sampled_from(["a", "b", ""]), st.text("0123456789.e-,naif ", max_size=6)),
            max_size=12,
        ).map(lambda pairs: ("arm,value\n" + "".join(f'{n},"{v}"\n' for n, v in pairs)).encode()),
    ),
    suffix=st.sampled_from([".csv", ".json", ".txt", ".parquet"]),
)
def test_no_file_makes_it_fall_over(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_bytes(content)
    code, out, err = run(path, "--baseline", "a", "--json")
    assert code in (0, 2)
    if code == 2:
        assert out == ""
        assert err.count("\n") == 1
    else:
        check_contract(json.loads(out))


def test_a_notebook_gets_chart_table_and_sentences(tmp_path: Path) -> None:
    from rcatools.report.charts import Forest
    from rcatools.report.compare_items import judge_table
    from rcatools.report.session import bundle
    from rcatools.report.table import Table

    assert judge_table("", "off") == []
    path = write(tmp_path / "t.csv", "arm,block,value", rows(1.05))
    chart, table, *texts = judge_table(str(path), "off")
    assert isinstance(chart, Forest)
    assert chart.rows[0].value == pytest.approx(arm(compare(path, "--baseline", "off"))["ratio"] - 1)
    assert isinstance(table, Table)
    assert [cell.text for cell in table.rows[0]][:2] == ["on", "▲ slower"]
    assert str(texts[0]).startswith("on is 4.7 % slower")
    assert all(bundle(item) for item in (chart, table, *texts))
