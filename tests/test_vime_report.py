"""Tables, charts and sentences of vime-decode against made-up measurements whose reading is known."""

from __future__ import annotations

import json
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
    assert row["8 rows"].tolist() == ["31.0 us"]
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


def document(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "answer": "An answer.",
        "published": [{"label": "clean main, step 0", "value": 30.06}, {"label": "step 1", "value": None}],
        "hypotheses": [{"id": "copy_cost", "status": "contradicted", "reason": "It took no time."}],
        "observations": [{"id": "safe_by_digest", "text": "The safe form", "observed": "equivalent: +1 %"}],
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
    hazards = pd.DataFrame([row | {"device": "cpu"} for row in rows])
    return vime_findings.Extras(product, graphs, hazards, pd.DataFrame())


def test_the_sentences_say_what_the_tables_hold(product: dp.ProductData, graphs: GraphHazards) -> None:
    said = vime_findings.sentences(document(), extras(product, graphs))
    text = "\n".join(said)
    assert said[0] == "An answer."
    assert "reference cannot be captured" in text
    assert "fewer programs than the default in 6 of 6 cells" in text
    assert (
        "On a card with 8 rows the published configurations against the default: 3 slower of 3 cells" in text
    )
    assert (
        "On a card with 64 rows the published configurations against the default: 3 faster of 3 cells" in text
    )
    assert "20 of 20 products of ours" in text
    assert "1 of 2 published numbers (step 1)" in text
    assert "contradicted here. It took no time." in text
    assert "freed under a captured graph: real" in text
    assert "skip a collective: real (rank skips then barrier: hangs). Harm in the safe forms: 0 of 1" in text
    assert "a new group may have: not seen" in text
    assert "safe_carried takes 26.0 us against 25.0 us of packed_cached_column" in text


def test_without_a_gpu_the_sentences_say_what_was_not_measured() -> None:
    text = "\n".join(vime_findings.sentences(document(), extras(None, None)))
    assert "The decode products were not measured." in text
    assert "replayed graph" not in text


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
