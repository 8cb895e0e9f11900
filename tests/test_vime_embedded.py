"""What the checkout carries of vime-decode: tables made from recordings, and the reading they give."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rcatools.diagnosis import decode_product as dp
from rcatools.diagnosis.graph_hazards import write_tables
from rcatools.experiment.product_recording import write_product_recording
from rcatools.recording import open_recording
from rcatools.report import evidence, inputs, live, vime_findings

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "data" / "investigations" / "vime-decode"
PRODUCT = ROOT / "data" / "recordings" / "vime-matmul-h200"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return evidence.gather(inputs.inputs("vime-decode")).document


def test_quoted_tables_are_what_the_recording_gives(tmp_path: Path) -> None:
    write_tables(PRODUCT / "capture_hazards.json", tmp_path)
    for name in ("hazards_gpu", "captures", "graph_times"):
        assert (FOLDER / f"{name}.csv").read_text() == (tmp_path / f"{name}.csv").read_text()


def test_the_product_recording_is_what_the_benchmark_wrote(tmp_path: Path) -> None:
    write_product_recording(PRODUCT / "decode_matmul.json", tmp_path / PRODUCT.name)
    again, kept = open_recording(tmp_path / PRODUCT.name), open_recording(PRODUCT)
    assert kept.warnings == ()
    pd.testing.assert_frame_equal(again.samples, kept.samples)
    pd.testing.assert_frame_equal(again.runs, kept.runs)


def test_published_numbers_that_could_not_be_read_are_missing_and_say_so(document: dict[str, Any]) -> None:
    with (FOLDER / "published.csv").open() as stream:
        rows = list(csv.DictReader(line for line in stream if not line.startswith("# ")))
    missing = {row["id"] for row in rows if not row["value"]}
    assert missing == {row["id"] for row in rows if row["note"].startswith("missing:")}
    assert {item["id"] for item in document["published"] if item["value"] is None} == missing
    assert all(row["source"].startswith("RL-Align/RL-Kernel#") for row in rows)
    assert "clean_main_step_0" not in missing


def test_every_product_of_ours_has_the_same_bits_and_torch_has_not() -> None:
    data = dp.load_product(open_recording(PRODUCT))
    summary = dp.equality_summary(data.equality)
    ours = summary[summary["config"] != "torch"]
    assert (ours["equal_to_default"] == ours["cells"]).all()
    assert (ours["equal_to_batch"] == ours["cells"]).all()
    assert ours["cells"].sum() == 25 * 29 * 2  # shapes x row counts, configurations, schedules
    assert summary["relative_error"].max() < 8e-3


def test_planted_kernels_of_the_products_are_seen_in_every_cell() -> None:
    data = dp.load_product(open_recording(PRODUCT))
    for shape, rows in data.cells():
        values = dp.cell_values(data.recording, shape, rows)
        planted = dp.compare_arms(values, "default_planted", "default", margin=0.02)
        again = dp.compare_arms(values, "default_again", "default", margin=0.02)
        assert planted is not None
        assert again is not None
        if values["default"].median() < 100:  # an empty kernel is half a percent of the longest
            assert (planted.estimate.ci_low or 0) > 1
        assert abs(again.estimate.ratio - 1) < 0.01


def test_the_review_and_the_configurations_are_read_from_the_data(document: dict[str, Any]) -> None:
    claims = {item["id"]: item["status"] for item in document["claims"]}
    assert claims["more_programs"] == "contradicted"
    assert claims["faster_products"] == "not_reproduced"
    assert claims["same_bits"] == "supported"
    assert claims["restored"] == "not_attributable"
    assert claims["review_copy"] == "contradicted"
    for name in ("review_shared_buffers", "review_rank_local", "review_group_id"):
        assert claims[name] == "supported"
    causes = {item["id"]: item["status"] for item in document["hypotheses"]}
    assert causes["provenance"] == causes["collectives"] == causes["eager_form"] == "supported"
    assert causes["product_gain"] == "contradicted"


def test_collectives_were_counted_in_every_run(document: dict[str, Any]) -> None:
    seen = {item["id"]: item["outcome"] for item in document["observations"]}
    assert [seen[f"calls_{name}"] for name in ("reference", "packed", "cached")] == ["matches"] * 3


def test_equal_bits_in_every_run_and_both_plants_found(document: dict[str, Any]) -> None:
    assert document["sensitive"] is True
    assert {item["arm"]: item["correct"] for item in document["fixes"]} == dict.fromkeys(
        ("packed_cached", "safe_agreed", "safe_carried", "safe_carried_flat"), True
    )


def test_the_sentences_of_the_notebook_come_from_the_embedded_data(document: dict[str, Any]) -> None:
    text = "\n".join(vime_findings.sentences(document, vime_findings.load_extras("vime-decode")))
    for words in (
        "fewer programs than the default in 14 of 14 cells",
        "6 of 16 published numbers",
        "Harm in the safe forms: 0 of",
        "nothing here was run on ROCm",
    ):
        assert words in text


def test_a_short_live_check_takes_the_arms_and_sizes_of_its_investigation() -> None:
    assert live.short("vime-decode") == (
        ("reference_again", "packed_cached"),
        (*live.SHORT, "-p", "calls=100"),
    )
    assert live.short("capture-stream") == (("off_again", "side"), (*live.SHORT, "-p", "samples=10"))
