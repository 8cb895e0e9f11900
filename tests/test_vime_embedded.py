"""What the checkout carries of vime-decode: tables made from recordings, and the reading they give."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rcatools.diagnosis import decode_product as dp
from rcatools.diagnosis.graph_hazards import write_tables
from rcatools.errors import InputError
from rcatools.experiment.graph_recording import write_graph_recording
from rcatools.experiment.product_recording import write_product_recording
from rcatools.experiment.provenance import with_source_commit
from rcatools.recording import open_recording
from rcatools.report import evidence, inputs, live, vime_findings

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "data" / "investigations" / "vime-decode"
PRODUCT = ROOT / "data" / "recordings" / "vime-matmul-h200"
GRAPHS = ROOT / "data" / "recordings" / "vime-graphs-h200"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return evidence.gather(inputs.inputs("vime-decode")).document


def test_quoted_tables_are_what_the_recording_gives(tmp_path: Path) -> None:
    write_tables(GRAPHS / "capture_hazards.json", tmp_path)
    for name in ("hazards_gpu", "captures", "graph_times"):
        assert (FOLDER / f"{name}.csv").read_text() == (tmp_path / f"{name}.csv").read_text()


def test_the_recordings_are_what_the_benchmarks_wrote(tmp_path: Path) -> None:
    sessions = sorted(PRODUCT.glob("session-*.json")) or [PRODUCT / "decode_matmul.json"]
    write_product_recording(sessions, tmp_path / PRODUCT.name)
    write_graph_recording(GRAPHS / "capture_hazards.json", tmp_path / GRAPHS.name)
    for folder in (PRODUCT, GRAPHS):
        again, kept = open_recording(tmp_path / folder.name), open_recording(folder)
        # files are whole; that a benchmark ended before its plan is said, and nothing else
        assert all("is stopped, not complete" in text for text in kept.warnings)
        pd.testing.assert_frame_equal(again.samples, kept.samples)
        pd.testing.assert_frame_equal(again.runs, kept.runs)


def test_the_measured_package_source_is_that_of_the_named_commit() -> None:
    """Checked against git where the checkout has its history; a shallow one cannot tell."""
    for folder in (PRODUCT, GRAPHS):
        code = open_recording(folder).manifest.environment["code"]
        named = code.get("source_commit")
        if not named:
            assert code["commit"]
        elif in_history(named):
            assert with_source_commit(code, named) == code
            with pytest.raises(InputError, match="is not what was measured"):
                with_source_commit({**code, "source_sha256": "0" * 64}, named)
    with pytest.raises(InputError, match="is not in this repository"):
        with_source_commit({}, "0" * 40)


def in_history(commit: str) -> bool:
    return not subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", commit], check=False, capture_output=True
    ).returncode


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
        if values["default"].median() < 50:  # an empty kernel is half a percent of the longest
            assert (planted.estimate.ci_low or 0) > 1, (shape, rows)
        assert abs(again.estimate.ratio - 1) < 0.01


def test_the_review_and_the_configurations_are_read_from_the_data(document: dict[str, Any]) -> None:
    claims = {item["id"]: item["status"] for item in document["claims"]}
    assert claims["more_programs"] == "contradicted"
    assert claims["faster_products"] == "not_reproduced"
    assert claims["same_bits"] == "supported"
    assert claims["restored"] == "not_attributable"
    assert claims["review_copy"] == "supported"
    for name in ("review_shared_buffers", "review_rank_local", "review_group_id"):
        assert claims[name] == "supported"
    causes = {item["id"]: item["status"] for item in document["hypotheses"]}
    assert causes["provenance"] == causes["collectives"] == causes["eager_form"] == "supported"
    assert causes["product_gain"] == causes["wide_gain_all"] == "contradicted"
    assert causes["fewer_bytes"] == causes["pickling_alone"] == causes["buffers_alone"] == "contradicted"


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
        "fewer programs than the default in 14 of 14 products",
        "6 of 16 published numbers",
        "Harm in the safe forms: 0 of",
        "Nothing here was run on ROCm",
        "how much of the gap in throughput that is was not measured",
        "replay overwrote 1032 numbers of another tensor, NVIDIA H200",
    ):
        assert words in text


def test_every_figure_of_the_report_has_its_device(document: dict[str, Any]) -> None:
    devices = [item["device"] for item in document["environment"]["devices"]]
    assert len(devices) == 2
    for item in document["observations"]:
        for place in item["evidence"]:
            if place["recording"]:
                assert place["device"] in devices
                assert place["device"] in item["observed"]


def test_the_tiles_are_judged_at_every_row_count_that_was_timed(document: dict[str, Any]) -> None:
    data = dp.load_product(open_recording(PRODUCT))
    timed = {(row["shape"], row["rows"]) for row in dp.launch_changes(data).to_dict("records")}
    asked = {item["id"] for item in document["observations"] if item["id"].startswith("product_")}
    assert asked == {f"product_{shape}_{rows}" for shape, rows in timed}


def test_a_short_live_check_takes_the_arms_and_sizes_of_its_investigation() -> None:
    assert live.short("vime-decode") == (
        ("reference_again", "packed_cached"),
        (*live.SHORT, "-p", "calls=100"),
    )
    assert live.short("capture-stream") == (("off_again", "side"), (*live.SHORT, "-p", "samples=10"))
