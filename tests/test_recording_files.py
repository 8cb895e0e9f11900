"""What the recorder writes and the reader accepts; conditions and agreement of outputs from known tables."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from engine_support import drill, make

from rcatools.errors import InputError, RunError
from rcatools.files import StorageError, finite, write_bytes, write_json
from rcatools.recording import conditions
from rcatools.recording.reader import open_recording, read_manifest
from rcatools.recording.schema import RUN_COLUMNS, SAMPLE_COLUMNS
from rcatools.recording.writer import count_blocks, tables

ROOT = Path(__file__).resolve().parents[1]
H200 = ROOT / "data" / "recordings" / "capture-stream-h200"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recording") / "r"
    make(drill(blocks=2), out)
    return out


def test_files_appear_whole_and_leave_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes(tmp_path / "a" / "f", b"old")
    write_bytes(tmp_path / "a" / "f", b"new")
    assert (tmp_path / "a" / "f").read_bytes() == b"new"

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="--resume"):
        write_bytes(tmp_path / "a" / "f", b"half")
    assert (tmp_path / "a" / "f").read_bytes() == b"new"
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["f"]
    assert StorageError(Path("x"), "y").exit_code == RunError.exit_code == 3


def test_json_numbers_are_finite_or_null(tmp_path: Path) -> None:
    assert finite({"a": [math.nan, math.inf, 1.5], 2: (-math.inf,)}) == {"a": [None, None, 1.5], "2": [None]}
    write_json(tmp_path / "f", {"x": math.nan})
    assert json.loads((tmp_path / "f").read_text(), parse_constant=pytest.fail) == {"x": None}


def test_recording_holds_every_sample_with_its_run(small: Path) -> None:
    recording = open_recording(small)
    assert set(SAMPLE_COLUMNS) <= set(recording.samples)
    assert set(RUN_COLUMNS) <= set(recording.runs)
    assert len(recording.samples) == 2 * 2 * 20
    wide = recording.block_values("step_us")
    by_hand = recording.samples[(recording.samples["arm"] == "a") & (recording.samples["block"] == 1)][
        "value"
    ]
    assert wide.loc[1, "a"] == np.median(by_hand)
    assert recording.manifest.design["arms"][0]["name"] == "a"
    assert not (small / "parts").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.pop("design"), "lacks design"),
        (lambda m: m.update(state="done"), "state 'done'"),
        (lambda m: m["design"].update(margin=2), "margin 2"),
        (lambda m: m["design"].update(baseline="b"), "not among its arms"),
        (lambda m: m["design"].update(arms=[1]), "mappings with a name"),
        (lambda m: m.update(schema="else"), "not a recording manifest"),
        (lambda m: m.update(version=99), "update rcatools"),
        (lambda m: m.update(counts=[]), "'counts' is not a mapping"),
    ],
)
def test_damaged_manifests_are_refused_in_one_line(
    change: Any, said: str, small: Path, tmp_path: Path
) -> None:
    document = json.loads((small / "manifest.json").read_text())
    change(document)
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=said) as caught:
        read_manifest(tmp_path)
    assert "\n" not in str(caught.value)


def test_truncated_and_nested_manifests_are_refused(tmp_path: Path) -> None:
    for text in ("{", "[" * 100_000, ""):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(InputError, match="damaged"):
            read_manifest(tmp_path)
    with pytest.raises(InputError, match=r"no manifest\.json"):
        read_manifest(ROOT / "docs")


def test_changed_tables_are_noticed_by_hash_and_bad_values_refused(small: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    samples = pd.read_parquet(copy / "samples.parquet")
    samples["value"] *= 1.01
    samples.to_parquet(copy / "samples.parquet")
    assert any("differs from the hash" in warning for warning in open_recording(copy).warnings)
    samples.loc[0, "value"] = -1
    samples.to_parquet(copy / "samples.parquet")
    with pytest.raises(InputError, match="1 values that are not positive"):
        open_recording(copy)
    pd.concat([samples.iloc[1:], samples.iloc[1:2]]).to_parquet(copy / "samples.parquet")
    with pytest.raises(InputError, match="same sample twice"):
        open_recording(copy)


def test_blocks_are_counted_by_what_they_hold() -> None:
    rows = [
        ("a", 0, "ok"),
        ("b", 0, "ok"),
        ("a", 1, "ok"),
        ("b", 1, "killed"),
        ("a", 2, "ok"),
        ("a", -1, "ok"),
    ]
    runs = pd.DataFrame(rows, columns=["arm", "block", "outcome"])
    counts = count_blocks(runs, ["a", "b"])
    assert counts == {"blocks_begun": 3, "blocks_whole": 2, "blocks_good": 1}


def part(run: str, arm: str, block: int, outcome: str = "ok", **facts: Any) -> dict[str, Any]:
    samples = {"step_us": [100.0 + block, 102.0 + block]}
    base = {"run": run, "arm": arm, "block": block, "order": 0, "isolation": "fork", "outcome": outcome}
    return base | {"reason": None, "samples": samples, "kernels": {}, "facts": facts}


def recording_of(parts: list[dict[str, Any]]) -> Any:
    """A recording in memory around hand-made parts."""
    from dataclasses import replace

    runs, samples, kernels = tables(parts)
    real = open_recording(H200)
    arms = [{"name": name, "role": "probe"} for name in ("off", "same", "other", "wrong", "bare")]
    manifest = replace(real.manifest, design={"baseline": "off", "margin": 0.01, "arms": arms})
    return replace(real, runs=runs, samples=samples, kernels=kernels, manifest=manifest)


def test_agreement_of_outputs_tells_identical_from_tolerated_from_wrong() -> None:
    good = {"output_rel_error": 0.01, "output_tolerance": 0.05}
    parts = [
        part("0", "off", 0, output_sha256="h", **good),
        part("1", "same", 0, output_sha256="h", **good),
        part("2", "other", 0, output_sha256="k", **good),
        part("3", "wrong", 0, "mismatch", output_sha256="z", output_rel_error=0.2, output_tolerance=0.05),
        part("4", "bare", 0),
    ]
    table = conditions.output_agreement(recording_of(parts)).set_index("arm")
    assert table["verdict"].to_dict() == {
        "off": "identical",
        "same": "identical",
        "other": "within_tolerance",
        "wrong": "mismatch",
        "bare": "not_checked",
    }
    assert table.loc["wrong", "mismatches"] == 1
    assert table.loc["other", "equal"] is False
    unchecked = [part("0", "off", 0, output_sha256="h"), part("1", "same", 0, output_sha256="k")]
    assert (
        conditions.output_agreement(recording_of(unchecked)).set_index("arm").loc["same", "verdict"]
        == "mismatch"
    )


def test_recorded_arms_agree_bit_for_bit() -> None:
    table = conditions.output_agreement(open_recording(H200)).set_index("arm")
    assert set(table["verdict"]) == {"identical"}
    rivals = conditions.output_agreement(
        open_recording(H200.with_name("capture-stream-h200-rivals"))
    ).set_index("arm")
    assert list(rivals.index[rivals["equal"] == False]) == ["side_ws_0"]  # noqa: E712
    assert rivals.loc["side_ws_0", "verdict"] == "within_tolerance"


def test_throttled_runs_are_kept_and_marked_and_cycles_are_time_times_clock() -> None:
    parts = [
        part("0", "off", 0, sm_clock_mhz=2000.0, throttle="none", other_processes=0),
        part("1", "same", 0, sm_clock_mhz=1000.0, throttle="sw_thermal", other_processes=1),
    ]
    recording = recording_of(parts)
    table = conditions.disturbances(recording).set_index("arm")
    assert table["throttled"].to_dict() == {"off": False, "same": True}
    assert table.loc["same", "other_processes"] == 1
    assert len(recording.samples) == 4
    cycles = conditions.cycle_values(recording, "step_us")
    assert cycles is not None
    assert cycles.loc[0, "off"] == 101.0 * 2000.0
    assert cycles.loc[0, "same"] == 101.0 * 1000.0
    unread = recording_of([*parts, part("2", "other", 0)])
    assert conditions.cycle_values(unread, "step_us") is None
    assert not conditions.disturbances(unread).set_index("arm").loc["other", "clocks_read"]


def test_the_effect_on_the_h200_stands_in_cycles_too() -> None:
    recording = open_recording(H200)
    cycles, times = conditions.cycle_values(recording, "step_us"), recording.block_values("step_us")
    assert cycles is not None
    for table in (cycles, times):
        ratio = np.exp(np.log(table["side"] / table["off"]).mean())
        assert ratio == pytest.approx(1.074, abs=0.004)
    assert not conditions.disturbances(recording)["throttled"].any()
