"""The decode product's recording: converted without loss, and its tables right on made-up times that are known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from vime_samples import READ_SHARE, ROWS, made_up

from rcatools.diagnosis import decode_product as dp
from rcatools.errors import InputError
from rcatools.experiment import product_recording as conversion
from rcatools.experiment.product_sessions import joined, one_process
from rcatools.recording import open_recording
from rcatools.report import vime_tiles
from rcatools.workload.vime import product as pr


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dp.ProductData:
    folder = tmp_path_factory.mktemp("product")
    source = folder / "result.json"
    source.write_text(json.dumps(made_up()))
    conversion.write_product_recording(source, folder / "recording")
    return dp.load_product(open_recording(folder / "recording"))


def test_every_time_is_in_the_recording_and_a_process_is_a_block(data: dp.ProductData) -> None:
    document = made_up()
    assert data.recording.warnings == ()
    assert len(data.recording.samples) == sum(
        len(t) * len(t[0]) for t in (r["us_per_call"] for r in document["table"])
    )
    values = data.recording.block_values("qkv_m8_us")
    assert list(values.index) == [0, 1, 2, 3]
    (default,) = [
        r["us_per_call"]
        for r in document["table"]
        if (r["shape"], r["rows"], r["arm"]) == ("qkv", 8, "default")
    ]
    assert values["default"].tolist() == [sorted(blocks)[1] for blocks in default]
    manifest = data.recording.manifest
    assert manifest.ceilings["read_bytes_per_s"] == 2**31 / 400e-6
    assert (manifest.baseline, manifest.state, manifest.counts["planned"]) == ("default", "complete", 36)


def test_ratios_and_floor_shares_are_those_put_in(data: dp.ProductData) -> None:
    table = dp.product_table(data).set_index(["shape", "rows"])
    assert len(table) == 10
    cell = table.loc[("lm_head", 64)]
    assert cell["deeper_ratio"] == pytest.approx(0.6)
    assert cell["specialised_ratio"] == pytest.approx(0.8)
    assert cell["specialised_verdict"] == "faster"
    assert table.loc[("lm_head", 8)]["specialised_verdict"] == "slower"
    assert cell["default_floor_share"] == pytest.approx(READ_SHARE)
    assert cell["deeper_floor_share"] == pytest.approx(READ_SHARE / 0.6)
    assert cell["torch_floor_share"] == pytest.approx(READ_SHARE / 0.5)
    assert table.loc[("o_proj", 8)]["specialised_verdict"] == ""
    assert math.isnan(table.loc[("o_proj", 8)]["specialised_ratio"])


def test_published_configurations_launch_fewer_programs_in_every_cell(data: dp.ProductData) -> None:
    changes = dp.launch_changes(data)
    assert set(zip(changes["shape"], changes["rows"], strict=True)) == {
        (shape, rows) for shape in ("qkv", "gate_up", "lm_head") for rows in ROWS
    }
    assert (changes["programs_published"] < changes["programs_default"]).all()
    at = changes.set_index(["shape", "rows"])
    assert at.loc[("gate_up", 64)]["weight_bytes_ratio"] == 0.5
    assert at.loc[("lm_head", 64)]["weight_bytes_ratio"] == 1.0


def test_factor_effects_are_the_steps_put_in_whatever_the_drift(data: dp.ProductData) -> None:
    effects = dp.factor_effects(data.grid)
    assert len(effects) == 10 * 5
    wanted = {
        ("block_m", "16 to 32"): 1.1,
        ("block_n", "32 to 64"): 1.2,
        ("block_n", "64 to 128"): 1.5,
        ("warps", "2 to 4"): 0.9,
        ("stages", "2 to 4"): 0.5,
    }
    for item in effects.itertuples():
        assert item.ratio == pytest.approx(wanted[item.factor, item.step])
        assert item.low <= item.ratio * (1 + 1e-9)
        assert item.blocks == 5


def test_a_step_of_decode_adds_up_36_layers_and_one_head(data: dp.ProductData) -> None:
    times = dp.token_times(data).set_index("rows").loc[8]
    middle = 1.015 * 1.001  # median process, median block
    per_layer = {s.name: s.weight_bytes / 1e6 * middle for s in pr.QWEN3_8B_TP4}
    layers = sum(per_layer[name] for name in ("qkv", "o_proj", "gate_up", "down"))
    assert times["default"] == pytest.approx(36 * layers + per_layer["lm_head"])
    chosen = 36 * (layers + 0.1 * (per_layer["qkv"] + per_layer["gate_up"])) + 1.1 * per_layer["lm_head"]
    assert times["published"] == pytest.approx(chosen)
    assert times["read"] == pytest.approx(READ_SHARE * times["default"])


def test_equality_is_counted_per_configuration_and_schedule(data: dp.ProductData) -> None:
    summary = dp.equality_summary(data.equality).set_index(["config", "split"])
    assert summary.loc[("default", True)]["equal_to_default"] == 10
    assert summary.loc[("torch", "")]["equal_to_default"] == 0
    assert (summary["cells"] == 10).all()


@pytest.mark.parametrize(
    ("content", "named"),
    [("{", "damaged"), ("[]", "not a result"), ('{"format": "other"}', "not a result")],
)
def test_other_files_are_refused(content: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(InputError, match=named):
        conversion.load_product_json(file)


def test_a_result_that_lacks_a_part_is_refused(tmp_path: Path) -> None:
    document = made_up(1, 1)
    del document["grid"]
    file = tmp_path / "x.json"
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match="lacks grid"):
        conversion.load_product_json(file)


def test_a_stopped_benchmark_is_a_stopped_recording(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(made_up(2, 1) | {"not_run": ["table 2"]}))
    conversion.write_product_recording(file, tmp_path / "out")
    recording = open_recording(tmp_path / "out")
    assert recording.manifest.state == "stopped"
    assert "not complete" in recording.warnings[0]


def test_a_damaged_json_beside_a_recording_is_one_line(data: dp.ProductData, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(made_up(2, 1)))
    conversion.write_product_recording(file, tmp_path / "out")
    (tmp_path / "out" / dp.RAW).write_text('{"table": [{}]}')
    with pytest.raises(InputError, match="damaged"):
        dp.load_product(open_recording(tmp_path / "out"))


def test_the_first_form_holds_one_process_and_says_so(tmp_path: Path) -> None:
    document = made_up(1, 6)
    old = {
        "gpu": "a card",
        "capability": "9.0",
        "memory_bytes": 1,
        "driver": "580",
        "cuda": "13.0",
        "hip": None,
        "multiprocessors": 132,
        "l2_bytes": 1,
        "python": "3.12.3",
        "torch": "2.11.0",
        "triton": "3.6.0",
        "commit": None,
        "seed": 0,
        "clocks": None,
        "unix_time": 1.8e9,
    }
    for item in document["table"]:
        (item["us_per_call"],) = item["us_per_call"]
    document["table"] = [item for item in document["table"] if not item["arm"].endswith("_deeper")]
    document |= {"format": conversion.FIRST_FORMAT, "environment": old}
    document["ceilings"] = document["ceilings"][0]
    file = tmp_path / "x.json"
    file.write_text(json.dumps(document))
    conversion.write_product_recording(file, tmp_path / "out")
    found = dp.load_product(open_recording(tmp_path / "out"))
    assert found.replicate == "block of one process"
    assert len(dp.cell_values(found.recording, "qkv", 8)) == 6
    assert set(found.recording.runs["isolation"]) == {"none"}
    # without an arm of its own the deeper tile is read from the factor grid
    assert dp.product_table(found)["deeper_ratio"].tolist() == pytest.approx([0.5] * 10)
    times = dp.token_times(found)
    assert times["deeper"].tolist() == pytest.approx((0.5 * times["default"]).tolist())


def test_a_damaged_first_form_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps({"format": conversion.FIRST_FORMAT, "table": []}))
    with pytest.raises(InputError, match="damaged"):
        conversion.load_product_json(file)


def test_sessions_are_joined_process_by_process(tmp_path: Path) -> None:
    """Three processes of two sessions: what only one measured is missing in the others, and said."""
    first, second = made_up(1), made_up(2)
    first["table"] = [row for row in first["table"] if row["arm"] != "default_deeper"]
    first["environment"] = {"python": "3.12.3", "packages": {}, "code": {"commit": None}}
    second["environment"] = {"python": "3.12.3", "packages": {}, "code": {"commit": "a" * 40}}
    second["grid"], second["not_run"] = second["grid"][:24], ["gate_up grid 8", "table 2: no time"]
    paths = [tmp_path / "1.json", tmp_path / "2.json"]
    for path, document in zip(paths, (first, second), strict=True):
        path.write_text(json.dumps(document))
    conversion.write_product_recording(paths, tmp_path / "made")
    recording = open_recording(tmp_path / "made")
    assert recording.manifest.state == "stopped"  # a process of the second session was not run
    assert recording.manifest.environment["code"]["commit"] == "a" * 40
    values = recording.block_values("qkv_m8_us")
    assert len(values) == 3
    assert values["default_deeper"].notna().sum() == 2
    assert [item["processes"] for item in recording.manifest.design["sessions"]] == [1, 2]
    data = dp.load_product(recording)
    assert len(data.grid) == len(made_up(1)["grid"]) * 5  # the first session's grid is whole
    assert json.loads((tmp_path / "made" / "decode_matmul.json").read_text())["not_run"] == [
        "table 2: no time"
    ]
    deeper = dp.deeper_comparison(data, "qkv", 8)
    assert deeper is not None
    assert deeper.estimate.n == 2
    assert "(2 processes, too few for an interval)" in "\n".join(vime_tiles.sentences(data))


def test_a_first_form_joins_as_one_process(tmp_path: Path) -> None:
    one = one_process(made_up(4) | {"replicate": "block of one process"})
    assert "replicate" not in one
    assert len(one["processes"]) == 1
    assert [len(process) for process in one["table"][0]["us_per_call"]] == [12]


def test_sessions_of_other_cards_are_refused(tmp_path: Path) -> None:
    second = made_up(1)
    second["device"] = {**second["device"], "name": "another card"}
    with pytest.raises(InputError, match="a card and another card"):
        joined([made_up(1), second])
