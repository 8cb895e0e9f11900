"""Evidence from several devices says which; demonstrations, counts and gains read as what they are."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from test_diagnosis_checks import draw, recording
from vime_samples import graph_result

from rcatools import units
from rcatools.diagnosis import environment, judge, parse_investigation
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.checks import observe
from rcatools.diagnosis.investigation import Investigation
from rcatools.diagnosis.records import Evidence, Observation, Outcome
from rcatools.diagnosis.remarks import filled
from rcatools.diagnosis.wording import reasons, replicated
from rcatools.errors import InputError, UnknownNameError
from rcatools.experiment.graph_recording import write_graph_recording
from rcatools.recording import Recording, open_recording
from rcatools.report import findings, fix_table, page, present, provenance, words
from rcatools.report.measured import COLUMNS, Facts, Measured

GRAPHS = "graphs"
TEXT = """
slug: s
title: t
question: q
effect:
  suspect: side
  baseline: off
  metric: step_us
  margin: 0.05
  repeat: [again]
  noun: the exchange of {rows} rows over {transport}
  scope: One exchange, not a rollout.
  beside: {whole: the whole call}
arms:
  off: {role: baseline, text: off}
  again: {role: repeat, text: again}
  side: {role: suspect, text: the suspect}
  safe: {role: fix, text: a safe form}
companions: {graphs: a further workload}
tables: {seen: "", published: ""}
observations:
  here: {check: ratio, text: time of the suspect, arm: side}
  whole: {check: ratio, text: time of a safe form, arm: safe}
  there: {check: ratio, text: time of a form, arm: packed, against: packed_cached, metric: graph_m8_us, recording: graphs}
  count: {check: ledger, text: collectives a call, figure: calls, label: collectives issued, arm: side, bytes: 3, unit: count}
  harm: {check: seen, text: harm, table: seen, column: harmed, where: {form: a}, say: words, tell: [device, processes]}
  safe: {check: seen, text: no harm, table: seen, column: harmed, where: {form: b}, say: words}
  larger: {check: compare, text: larger, left: {table: seen, column: us, where: {form: a}}, right: 2, unit: us, tell: [device]}
hypotheses:
  - {id: h, title: the cause, stands: "the cause acts (alone: {whole})", predicts: {here: faster}}
  - {id: n, title: nothing, stands: nothing acts, is_null: true, predicts: {here: equivalent}}
  - {id: g, group: on the card, title: a card's cause, stands: a card's cause acts, predicts: {there: slower}}
  - {id: m, group: on the card, title: no card's cause, stands: no, is_null: true, predicts: {there: equivalent}}
claims:
  - {id: c, text: it is whole, source: x, published: "5", environment: {card: another card}, judged: {by: nothing, because: no rollout was run}}
  - {id: d, text: a card's, source: x, published: "", environment: {card: a card}, judged: {by: hypothesis, hypothesis: g}}
"""
TABLE = pd.DataFrame(
    [
        {
            "form": "a",
            "harmed": 1,
            "words": "2 of 4 wrong",
            "device": "a processor",
            "processes": 3,
            "us": 3.0,
        },
        {
            "form": "b",
            "harmed": 0,
            "words": "0 of 4 wrong",
            "device": "a processor",
            "processes": 3,
            "us": 1.0,
        },
    ]
)


@pytest.fixture(scope="module")
def companion(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("companion")
    (folder / "x.json").write_text(json.dumps(graph_result(6)))
    write_graph_recording(folder / "x.json", folder / GRAPHS)
    return open_recording(folder / GRAPHS)


@pytest.fixture(scope="module")
def primary() -> Recording:
    times = draw(3, off=0.0, again=0.0, side=-0.9, safe=-0.45)
    facts = {arm: {"calls": [3] * 12, "transport": ["gloo"] * 12} for arm in times}
    made = recording(times, facts)
    manifest = made.manifest
    workload = {**manifest.workload, "parameters": {"rows": 8}}
    device = {**manifest.device, "name": "a processor", "uuid": None}
    return replace(made, manifest=replace(manifest, workload=workload, device=device))


@pytest.fixture(scope="module")
def document(primary: Recording, companion: Recording) -> dict[str, Any]:
    tables = {"seen": TABLE, "published": TABLE}
    declared = Investigation(parse_investigation(TEXT))
    return judge(declared, [primary], tables, companions=[companion]).document()


def observed(document: dict[str, Any]) -> dict[str, Any]:
    return {item["id"]: item for item in document["observations"]}


def test_every_comparison_names_its_device_and_its_replicates(document: dict[str, Any]) -> None:
    found = observed(document)
    assert found["here"]["observed"].endswith(", a processor")
    assert "12 blocks" in found["here"]["observed"]
    assert found["there"]["observed"].endswith(", a card")
    assert "6 processes" in found["there"]["observed"]
    assert [found[name]["evidence"][0]["device"] for name in ("here", "there")] == ["a processor", "a card"]


def test_with_one_device_its_name_is_not_repeated(primary: Recording) -> None:
    case = Case(Investigation(parse_investigation(TEXT)), [primary], {"seen": TABLE})
    check = case.spec.observations["here"]
    assert "a processor" not in observe(case, "here", check, sensitive=None).outcome.observed


def test_counts_are_no_bytes(document: dict[str, Any]) -> None:
    text = observed(document)["count"]["observed"]
    assert "collectives issued: 3 in side; 12 of 12 runs equal to 3" in text
    assert " B" not in text


def test_demonstrations_are_told_in_their_own_words(document: dict[str, Any]) -> None:
    found = observed(document)
    assert (found["harm"]["outcome"], found["safe"]["outcome"]) == ("yes", "no")
    assert found["harm"]["observed"] == "yes: 2 of 4 wrong (a processor, 3 processes)"
    assert found["larger"]["observed"] == "more: 3 against 2 us (a processor)"


def test_a_demonstration_that_is_not_there_or_twice_is_refused(primary: Recording) -> None:
    for rows in (TABLE[TABLE["form"] == "b"], pd.concat([TABLE, TABLE])):
        case = Case(Investigation(parse_investigation(TEXT)), [primary], {"seen": rows})
        with pytest.raises(InputError, match="matches"):
            observe(case, "harm", case.spec.observations["harm"], sensitive=None)
    with pytest.raises(UnknownNameError, match="table"):
        parse_investigation(
            TEXT.replace(
                "table: seen, column: harmed, where: {form: b}", "table: sean, column: harmed, where: {}"
            )
        )


def test_the_answer_says_what_was_timed_and_what_it_does_not_cover(document: dict[str, Any]) -> None:
    safe = next(item for item in document["arms"] if item["arm"] == "safe")
    beside = units.estimate(safe["ratio"], safe["ci_low"], safe["ci_high"])
    e = document["effect"]
    share, _, bounds = units.estimate(e["ratio"], e["ci_low"], e["ci_high"]).partition(" [")
    assert share.startswith("-")
    assert document["answer"].startswith(
        f"On a processor, the exchange of 8 rows over gloo takes {share[1:]} less time [{bounds} (the whole call: {beside})"
        f" with the suspect, because the cause acts (alone: {beside}, 12 blocks, a processor)."
    )
    assert document["details"][0] == "One exchange, not a rollout."


def test_a_claim_that_nothing_here_speaks_about_says_why(document: dict[str, Any]) -> None:
    claims = {item["id"]: item for item in document["claims"]}
    assert (claims["c"]["status"], claims["c"]["measured"]) == ("not_testable", "not measured here")
    assert claims["c"]["reasons"] == ["no rollout was run"]


def test_a_claim_judged_on_a_companion_is_held_to_the_companions_device(document: dict[str, Any]) -> None:
    claims = {item["id"]: item for item in document["claims"]}
    assert claims["d"]["environment"] == []  # the companion is that card; the recording that decides is not
    assert claims["d"]["status"] == "supported"


def test_every_device_is_listed_with_its_recordings(document: dict[str, Any], primary: Recording) -> None:
    listed = provenance.devices(document).frame()
    assert listed["Device"].tolist() == ["a processor", "a card"]
    assert listed["Recordings and tables"].tolist() == [f"{primary.name}, seen, published", GRAPHS]
    assert words.devices(document) == f"a processor ({primary.name}); a card ({GRAPHS})"
    text = findings.render(document)
    assert f"**Measured on:** a processor ({primary.name}); a card ({GRAPHS})" in text.replace("\u200b", "")
    made = provenance.recordings(document).frame().set_index("Name")
    assert made.loc[GRAPHS, "Size"].startswith("6 processes")
    assert made.loc[GRAPHS, "Device"] == "a card"


def test_status_and_tiles_carry_the_device(document: dict[str, Any]) -> None:
    rows = present.hypotheses(document).frame()
    because = rows.set_index("Explanation")["Because"]
    assert because["A card's cause"].endswith("(a card)")
    assert because["The cause"].endswith("(a processor)")
    empty = {name: pd.DataFrame(columns=list(columns)) for name, columns in COLUMNS.items()}
    html = page.render(document, Measured(**empty), Facts(baseline="off", metric="step_us"))
    assert "Root-cause report" in html
    assert "a card (graphs)" in html
    assert "Measured on a processor." in html


def test_a_gain_is_told_by_what_is_kept(document: dict[str, Any]) -> None:
    table = fix_table.fixes(document).frame()
    assert "Gain given up" in table.columns
    assert "Effect removed" not in table.columns
    given = table.set_index("Arm")["Gain given up"]
    # the safe form keeps half of the gain in logarithms
    assert float(given["safe"].removesuffix(" %")) == pytest.approx(50, abs=1)
    assert not any(item["best"] for item in document["fixes"])
    assert "gives up" in next(item["text"] for item in document["fixes"] if item["arm"] == "safe")


def test_columns_of_what_no_run_recorded_are_left_out(document: dict[str, Any]) -> None:
    columns = set(fix_table.fixes(document).frame().columns)
    assert not columns & {"Reserved", "KV cache", "Left under side stream"}
    fixes = [item | {"live_bytes": 2**20} for item in document["fixes"]]
    assert "Left under side stream" in fix_table.fixes(document | {"fixes": fixes}).frame().columns


def test_an_unknown_commit_is_said_and_not_explained() -> None:
    assert provenance.code({"commit": None, "reason": "nobody asked for it"}) == "commit not recorded"


@pytest.mark.parametrize(
    ("number", "replicate", "text"),
    [
        (12, "block", "12 blocks"),
        (1, "process", "1 process"),
        (8, "process", "8 processes"),
        (16, "block of one process", "16 blocks of one process"),
    ],
)
def test_replicates_are_counted_as_what_they_are(number: int, replicate: str, text: str) -> None:
    assert replicated(number, replicate) == text


def test_a_device_that_only_a_table_speaks_of_is_listed_with_what_the_table_tells(primary: Recording) -> None:
    table = TABLE.assign(device="a third card", torch="2.9.0")
    document = judge(Investigation(parse_investigation(TEXT)), [primary], {"seen": table}).document()
    listed = provenance.devices(document).frame().set_index("Device").loc["a third card"]
    assert listed[["Torch", "Python", "Driver"]].tolist() == ["2.9.0", "not recorded", "not recorded"]
    assert "a third card (seen)" in words.devices(document)
    row = provenance.recordings(document).frame().set_index("Name").loc["seen"]
    assert row[["State", "Made", "Device", "Size"]].tolist() == [
        "table",
        "not recorded",
        "a third card",
        "2 rows",
    ]
    assert row["Code"] == "commit not recorded, torch 2.9.0, os not recorded"


def test_a_cause_whose_telling_prediction_was_not_tested_is_not_said_to_be_isolated(
    primary: Recording,
) -> None:
    text = (
        TEXT.replace("alone: {whole}", "alone: {untimed}")
        .replace("predicts: {here: faster}}", "predicts: {here: faster, untimed: slower}}")
        .replace(
            "  there: {", "  untimed: {check: ratio, text: time of an arm not run, arm: late}\n  there: {", 1
        )
        .replace("  safe: {role", "  late: {role: probe, text: late}\n  safe: {role", 1)
    )
    said = judge(Investigation(parse_investigation(text)), [primary], {"seen": TABLE}).answer
    assert "because" not in said
    assert said.endswith("So far the data support that the cause acts; not tested: time of an arm not run.")


def test_sessions_tell_which_processes_were_measured_at_which_commit() -> None:
    whole = {"commit": "614e284", "source_commit": "a6fc0a1f", "source_sha256": "s"}
    manifest = SimpleNamespace(
        environment={"code": whole},
        design={
            "sessions": [
                {"processes": 1, "code": {"commit": None}},
                {"processes": 2, "code": {"commit": "614e284", "source_sha256": "s"}},
            ]
        },
    )
    found = environment.sessions(SimpleNamespace(manifest=manifest))  # type: ignore[arg-type]
    assert environment.session_text(found) == "2 of 3 processes: commit a6fc0a1; 1: commit not recorded"
    assert provenance.code(whole, found).startswith(
        "2 of 3 processes: commit a6fc0a1; 1: commit not recorded. "
    )


def test_each_recording_is_recorded_again_into_its_own_folder() -> None:
    made = {
        "a": "rcatools record s --out other --blocks 3",
        "b": "rcatools record s --out other --blocks 3",
        "c": "python benchmarks/decode_matmul.py",
    }
    items = [{"name": name, "command": command} for name, command in made.items()]
    assert provenance.commands({"environment": {"recordings": items}}) == [
        "rcatools record s --out a --blocks 3",
        "rcatools record s --out b --blocks 3",
        "python benchmarks/decode_matmul.py build/c",
    ]


@pytest.mark.parametrize(
    ("named", "said"), [(2, "2 of 2 seen and named"), (1, "2 of 2 seen, 1 of them named"), (0, "2 of 2 seen")]
)
def test_planted_regressions_are_named_only_where_they_were(named: int, said: str) -> None:
    plants = [{"found": True, "named": i < named} for i in range(2)]
    assert words.planted({"plants": plants}) == said


def test_an_interval_that_equal_arms_explain_is_not_said_to_exclude_anything() -> None:
    codes = ("within_noise_floor", "interval_excludes_one", "too_few_runs")
    assert reasons(codes) == "equal arms differ as much, few runs"
    assert reasons(codes[1:]) == "the interval excludes no difference, few runs"


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ((1.016, 1.009, 1.023), "is 1.6 % slower [+0.9 %, +2.3 %]"),
        ((0.6, 0.58, 0.62), "takes 40.0 % less time [-42.0 %, -38.0 %]"),
        ((1.0, 0.973, 1.027), "shows no change of time, +0.0 % [-2.7 %, +2.7 %]"),
    ],
)
def test_a_ratio_reads_by_the_side_its_interval_lies_on(
    bounds: tuple[float, float, float], said: str
) -> None:
    value, low, high = bounds
    place = Evidence(text="", value=value, ci_low=low, ci_high=high, unit="ratio", n=3, arms=("a", "b"))
    seen = Observation("x", "", "ratio", Outcome("equivalent", True, "", (place,)), "")
    assert filled("it {x:time}", {"x": seen}) == f"it {said}, 3 blocks"
