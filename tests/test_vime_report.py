"""Tables, charts and sentences of vime-decode against made-up measurements whose reading is known."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from vime_samples import graph_result, made_up

from rcatools.diagnosis import decode_product as dp
from rcatools.diagnosis.graph_hazards import GraphHazards, load_graph_hazards
from rcatools.errors import InputError
from rcatools.experiment.product_recording import write_product_recording
from rcatools.recording import open_recording
from rcatools.report import vime, vime_findings, vime_products
from rcatools.report.measured import COLUMNS, Measured
from rcatools.report.vime_told import told

# time of each form's exchange at 1, 2 and 4 ranks, and collectives issued and counted by the backend
FORMS = {
    "reference": ({1: 100.0, 2: 200.0, 4: 400.0}, 3, 4),
    "packed_cached": ({1: 50.0, 2: 80.0, 4: 100.0}, 1, 1),
}


@pytest.fixture(scope="module")
def measured() -> Measured:
    blocks, runs = [], []
    for form, (times, issued, counted) in FORMS.items():
        for block in range(6):
            run = {"recording": "r", "run": f"{block}-{form}", "arm": form, "block": block, "order": 0}
            run |= {"outcome": "ok", "reason": None}
            for world, us in times.items():
                metric = "exchange_us" if world == 2 else f"exchange_{world}_us"
                place = {"recording": "r", "metric": metric, "block": block, "order": 0, "arm": form}
                blocks.append(place | {"value": us * (1 + 0.1 * block)})
                run |= {f"collectives_per_call_{world}": float(issued), f"bytes_per_call_{world}": 1056.0}
                run |= {f"backend_collectives_per_call_{world}": float(counted) if world > 1 else None}
            runs.append(run)
        runs.append({"recording": "r", "run": f"inspect-{form}", "arm": form, "block": -1, "outcome": "ok"})
    empty = {name: pd.DataFrame(columns=list(columns)) for name, columns in COLUMNS.items()}
    return Measured(**empty | {"blocks": pd.DataFrame(blocks), "runs": pd.DataFrame(runs)})


@pytest.fixture
def graphs(tmp_path: Path) -> GraphHazards:
    file = tmp_path / "capture_hazards.json"
    file.write_text(json.dumps(graph_result()))
    return load_graph_hazards(file)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> dp.ProductData:
    folder = tmp_path_factory.mktemp("product")
    (folder / "x.json").write_text(json.dumps(made_up()))
    write_product_recording(folder / "x.json", folder / "made-up")
    return dp.load_product(open_recording(folder / "made-up"))


def test_world_sizes_and_the_judged_one_are_read_from_the_recording(measured: Measured) -> None:
    assert vime.world_sizes(measured, "r") == [1, 2, 4]
    assert vime.judged_world(measured, "r") == 2
    assert vime.world_sizes(measured, "another") == []


def test_collectives_are_shown_as_counted_and_as_not_counted(measured: Measured) -> None:
    table = vime.collectives(measured, "r", 4).frame()
    assert table["Form"].tolist() == ["reference", "packed_cached"]
    assert table["Issued"].astype(float).tolist() == [3, 1]
    assert table["Counted by the backend"].astype(float).tolist() == [4, 1]
    assert (
        vime.collectives(measured, "r", 1).frame()["Counted by the backend"].tolist() == ["not counted"] * 2
    )


def test_ratios_over_ranks_are_paired_by_block(measured: Measured) -> None:
    curve = vime.latency_by_ranks(measured, "r", "reference", [1, 2, 4], 2)
    ((name, points),) = curve.series
    assert name == "packed_cached"
    assert [(x, round(p.value or 0, 9)) for x, p in points] == [(1.0, -0.5), (2.0, -0.6), (4.0, -0.75)]
    # a common drift of 50 % over the blocks leaves no trace in paired ratios
    assert all(p.low == pytest.approx(p.value) for _, p in points)


def test_median_times_stand_in_the_latency_table(measured: Measured) -> None:
    table = vime.latency(measured, "r", [1, 2, 4], 2).frame()
    assert table.loc[table["Form"] == "packed_cached", "2 ranks"].tolist() == ["100 us"]


def test_captures_and_replays(graphs: GraphHazards) -> None:
    table = vime.captures(graphs).frame().set_index("Form")
    assert table.loc["reference", "Capture"] == "refused"
    assert table.loc["packed", ["Capture", "Replay", "Issued at capture", "Issued at replay"]].tolist() == [
        "captured",
        "right",
        "1",
        "0",
    ]
    times = vime.replays(graphs).frame()
    row = times[(times["Launched"] == "graph") & (times["Form"] == "packed")]
    assert row["8 rows"].tolist() == ["30.0 us"]
    assert vime.captures(None).rows == vime.replays(None).rows == ()


def test_hazards_on_the_gpu_join_those_of_the_cpu(graphs: GraphHazards) -> None:
    seen = graphs.hazards.set_index(["hazard", "safe"])["harmed"].to_dict()
    assert seen == {
        ("evicted_buffer", 0): 1,
        ("evicted_buffer", 1): 0,
        ("shared_by_streams", 0): 1,
        ("shared_by_streams", 1): 0,
    }
    assert vime.hazards(graphs.hazards).frame()["Outcome"].tolist() == ["harm", "harm", "no harm", "no harm"]


def test_the_first_form_named_another_layout(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(graph_result() | {"format": "rcatools-capture-hazards-1"}))
    old = load_graph_hazards(file)
    for table in (old.captures, old.hazards, old.times):
        assert "safe_carried_by_rows" in set(table["form"])
        assert "safe_carried" not in set(table["form"])


@pytest.mark.parametrize("content", ["{", "{}", "[1]", '{"format": "rcatools-capture-hazards-2"}'])
def test_other_graph_files_are_refused_in_one_line(content: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(InputError):
        load_graph_hazards(file)


def evidence(value: float, arms: tuple[str, str] = ("packed_cached", "reference")) -> list[dict[str, Any]]:
    bounds = {"ci_low": value * 0.99, "ci_high": value * 1.01}
    return [{"value": value, **bounds, "unit": "ratio", "n": 12, "device": "a processor", "arms": list(arms)}]


def observation(name: str, value: float | None = None) -> dict[str, Any]:
    outcome, observed = ("faster", f"faster: {value}") if value else (None, "not tested")
    seen = evidence(value) if value else []
    return {
        "id": name,
        "text": f"text of {name}",
        "outcome": outcome,
        "definite": value is not None,
        "reason": "",
        "observed": observed,
        "evidence": seen,
    }


def document(**changes: Any) -> dict[str, Any]:
    steps = {"pickled": 0.8, "packing": 0.9, "preflight": 0.5, "buffers": 1.0}
    plain: dict[str, Any] = {
        "answer": "An answer.",
        "published": [
            {"id": "clean_main_step_0", "label": "clean main, step 0", "value": 25.0},
            {"id": "x", "label": "step 1", "value": None},
        ],
        "observations": [
            observation("exchange", 0.36),
            *(observation(name, value) for name, value in steps.items()),
            observation("copy", 0.99),
            observation("graph_copy"),
            observation("safe_by_digest", 1.08),
        ],
        "arms": [{"arm": "packed_cached", "ratio": 0.36}, {"arm": "packed_in_three", "ratio": 0.60}],
    }
    return plain | changes


def extras(product: dp.ProductData | None, graphs: GraphHazards | None) -> vime_findings.Extras:
    rows = [
        {
            "hazard": "rank_skips_then_barrier",
            "form": "packed_cached",
            "safe": 0,
            "harmed": 1,
            "seen": "hangs",
        },
        {"hazard": "rank_skips_then_barrier", "form": "safe_agreed", "safe": 1, "harmed": 0, "seen": "right"},
        {
            "hazard": "reused_group_id",
            "form": "packed_once",
            "safe": 0,
            "harmed": 0,
            "seen": "no id came back",
        },
    ]
    hazards = pd.DataFrame([row | {"device": "a processor"} for row in rows])
    return vime_findings.Extras(product, graphs, hazards, pd.DataFrame())


def test_every_question_of_the_issue_has_an_answer(product: dp.ProductData, graphs: GraphHazards) -> None:
    asked = vime_findings.questions(document(), extras(product, graphs))
    assert [item["question"].split()[0] for item in asked] == ["What", "What", "What", "Which", "What"]
    assert all(item["sentences"] for item in asked)
    assert vime_findings.sentences(document(), extras(product, graphs))[0] == "An answer."


def said(product: dp.ProductData | None, graphs: GraphHazards | None, **changes: Any) -> str:
    asked = vime_findings.questions(document(**changes), extras(product, graphs))
    return "\n".join(text for item in asked for text in item["sentences"])


def test_the_gap_is_taken_apart_into_shares_that_make_the_whole() -> None:
    text = said(None, None)
    (line,) = [line for line in text.splitlines() if line.startswith("Step by step")]
    shares = [int(number) for number in re.findall(r"\((\d+) %\)", line)]
    by_hand = [math.log(v) / math.log(0.36) for v in (0.8, 0.9, 0.5, 1.0)]
    assert shares == [round(100 * share) for share in by_hand]
    assert sum(shares) in (99, 100, 101)
    assert "12 blocks, a processor" in line


def test_the_price_of_a_collective_says_how_much_of_the_gap_it_makes() -> None:
    # two collectives more take 0.24 of the clean form's exchange, three fewer would make 0.36 of a gap of 0.64
    text = said(None, None)
    assert "12.0 % of the clean form's exchange for each collective more" in text
    assert "56 % of the gap" in text
    assert "Step by step" not in said(None, None, observations=[observation("exchange", 0.36)])
    assert "collective more" not in said(None, None, arms=[])


def test_what_is_not_measured_is_said_beside_every_answer() -> None:
    text = said(None, None)
    assert "how much of the gap in throughput that is was not measured" in text
    assert "at most 40.0 ms" in text  # 1 / 25 tokens per second and GPU
    assert "1 of 2 published numbers could not be read (step 1)" in text
    assert "Nothing here was run on ROCm" in text
    assert "The decode products were not measured." in text
    assert "replayed graph" not in text


def test_findings_of_the_review_are_told_with_form_and_device(graphs: GraphHazards) -> None:
    text = said(None, graphs)
    assert "freed under a captured graph: real" in text
    assert "replay overwrote 1032 numbers of another tensor, a card" in text
    assert (
        "skip a collective: real (rank skips then barrier: hangs, a processor). Harm in the safe forms: 0 of 1"
        in text
    )
    assert "fits a later group: not seen" in text
    assert "Whether the published run met one is not known" in text


def test_costs_name_what_was_not_measured(graphs: GraphHazards) -> None:
    text = said(None, graphs)
    assert (
        "Against reference: only the column copied, between ranks: faster, -1.0 % [-2.0 %, +0.0 %], 12 blocks, "
        "a processor. In a graph, one rank: not measured." in text
    )
    graph = observation("graph_copy", 0.96) | {
        "evidence": evidence(0.96, ("packed_cached_column", "packed_cached"))
    }
    kept = [item for item in document()["observations"] if item["id"] != "graph_copy"]
    told = said(None, graphs, observations=[*kept, graph])
    assert (
        "Against the published form: in a graph, one rank: faster, -4.0 % [-5.0 %, -3.0 %], "
        "12 blocks, a processor (1 row -4.0 %)." in told
    )
    assert "between ranks: faster, +8.0 % [+6.9 %, +9.1 %], 12 blocks, a processor" in text


def test_graphs_are_told_with_device_ranks_and_processes(
    product: dp.ProductData, graphs: GraphHazards
) -> None:
    text = said(product, graphs)
    assert "On a card, 1 rank: no CUDA graph takes reference" in text
    assert (
        "On a card, 1 rank, 8 rows, 1 process: one exchange of packed takes 310 us launched eagerly and 30.0 us"
        in text
    )
    assert "One rank, 8 rows" not in text  # none of those checks has evidence here
    seen = [*document()["observations"], observation("eager_readback", 1.33)]
    told = said(product, graphs, observations=seen)
    assert "against none, launched eagerly: faster, +33.0 %" in told
    undecided = observation("eager_readback", 1.33) | {
        "definite": False,
        "reason": "equal arms differ as much",
    }
    told = said(product, graphs, observations=[*document()["observations"], undecided])
    assert "launched eagerly: faster (equal arms differ as much), +33.0 %" in told


def test_tiles_are_told_over_all_rows_with_device_and_replicates(product: dp.ProductData) -> None:
    text = said(product, None)
    assert "fewer programs than the default in 6 of 6 products" in text
    assert (
        "8 rows, a card, 4 processes: qkv +10.0 % (slower); gate_up +10.0 % (slower); lm_head +10.0 % (slower)"
        in text
    )
    assert "64 rows, a card, 4 processes: qkv -20.0 % (faster)" in text
    assert "20 of 20 products of these kernels" in text
    assert "Open: whether any of this holds on an MI300X" in text


def test_product_charts_hold_every_cell(product: dp.ProductData) -> None:
    forest = vime_products.product_forest(product, 64)
    by_label = {row.label: row for row in forest.rows}
    assert by_label["lm_head: torch"].value == pytest.approx(-0.5)
    assert by_label["lm_head: published configuration"].tone == "good"
    assert "o_proj: published configuration" not in by_label
    assert len(vime_products.product_cells(product).rows) == 10
    factors = {row.label: row.value for row in vime_products.factors(product, 8).rows}
    assert factors["down: stages (loads in flight) 2 to 4"] == pytest.approx(-0.5)
    assert len(vime_products.token_bars(product).rows) == 2 * 5
    assert vime_products.equality(product).frame()["Cells"].tolist() == ["10", "10", "10"]


def test_a_difference_inside_the_margin_is_not_told_as_none() -> None:
    seen = observation("x", 1.016) | {"outcome": "equivalent"}
    bounds = {"ci_low": 1.009, "ci_high": 1.023}
    small = seen | {"evidence": [seen["evidence"][0] | bounds]}
    assert "a form: slower by less than the margin, +1.6 %" in told({"observations": [small]}, "x", "a form")
    none = seen | {"evidence": [seen["evidence"][0] | {"ci_low": 0.99, "ci_high": 1.04}]}
    assert "a form: no difference seen, +1.6 %" in told({"observations": [none]}, "x", "a form")


def test_eager_times_are_told_with_their_range_and_with_what_equal_arms_differ(
    product: dp.ProductData, graphs: GraphHazards
) -> None:
    rows = [
        {"form": form, "how": how, "rows": 8, "process": process, "block": 0, "us": us}
        for how, form, values in (
            ("eager", "packed", (400.0, 700.0, 800.0)),
            ("eager", "packed_cached", (100.0, 100.0, 100.0)),
            ("eager", "packed_cached_again", (110.0, 75.0, 100.0)),
            ("graph", "packed", (30.0, 30.0, 30.0)),
        )
        for process, us in enumerate(values)
    ]
    several = replace(graphs, times=pd.DataFrame(rows))
    text = said(product, several)
    assert "one exchange of packed takes 700 us (400 us to 800 us) launched eagerly and 30.0 us in a" in text
    seen = [*document()["observations"], observation("eager_readback", 1.33)]
    assert "One form timed twice in a process differs launched eagerly by up to 25.0 %." in said(
        product, several, observations=seen
    )
