"""Evidence of a report: tables against hand-made recordings, margins and dropped arms, the shared folder."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import synthetic_worlds as worlds

from rcatools.errors import InputError, UnknownNameError
from rcatools.recording import open_recording
from rcatools.report import document, evidence, locate
from rcatools.report.inputs import inputs
from rcatools.report.measured import load_measured
from rcatools.report.reading import measure_tables

ARMS = ("off", "off_again", "side", "side_gc", "clear_blas", "current", "pad_untracked", "touch_stream",
        "plant_additive", "plant_multiplicative")  # fmt: skip
H200 = Path(__file__).resolve().parents[1].parent / "shared" / "h200"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recordings") / "synthetic"
    worlds.write(worlds.make("queue_cliff", 3, arms=ARMS), made)
    return made


@pytest.fixture(scope="module")
def gathered(folder: Path) -> evidence.Evidence:
    return evidence.gather(inputs("capture-stream", [folder]))


def test_blocks_are_medians_of_runs(folder: Path, gathered: evidence.Evidence) -> None:
    samples = open_recording(folder).samples
    for row in gathered.measured.blocks.sample(10, random_state=1).to_dict("records"):
        chosen = samples[(samples["arm"] == row["arm"]) & (samples["block"] == row["block"])]
        chosen = chosen[chosen["metric"] == row["metric"]]
        assert row["value"] == pytest.approx(float(np.median(chosen["value"])))


def test_the_document_has_the_form_of_a_verdict(gathered: evidence.Evidence) -> None:
    plain = json.loads(json.dumps(gathered.document, allow_nan=False))
    assert document.check(plain, "here") == plain


def test_evidence_is_read_back_only_for_the_same_inputs(
    folder: Path, gathered: evidence.Evidence, tmp_path: Path
) -> None:
    asked = inputs("capture-stream", [folder])
    gathered.save(tmp_path, asked.key())
    again = evidence.load(tmp_path, asked.key())
    assert again is not None
    assert again.document == gathered.document
    assert again.facts == gathered.facts
    for field in dataclasses.fields(again.measured):
        before, after = getattr(gathered.measured, field.name), getattr(again.measured, field.name)
        assert list(before.columns) == list(after.columns)
        assert len(before) == len(after)
    for other in (
        inputs("capture-stream", [folder], margin=0.2),
        inputs("capture-stream", [folder], drop_arms=["side_gc"]),
    ):
        assert evidence.load(tmp_path, other.key()) is None
    assert evidence.load(tmp_path / "absent", asked.key()) is None


def test_a_changed_recording_is_judged_anew(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "synthetic"
    shutil.copytree(folder, copy)
    before = inputs("capture-stream", [copy]).key()
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "created_utc": "2026-12-02T00:00:00Z"}))
    assert inputs("capture-stream", [copy]).key() != before


def test_a_wider_margin_moves_verdicts(folder: Path, gathered: evidence.Evidence) -> None:
    wide = evidence.gather(inputs("capture-stream", [folder], margin=0.9))
    assert wide.facts.margin == 0.9
    assert gathered.facts.margin != 0.9
    assert any("margin" in text for text in wide.document["warnings"])


def test_a_dropped_arm_is_gone_everywhere_and_told(folder: Path) -> None:
    less = evidence.gather(inputs("capture-stream", [folder], drop_arms=["side_gc", "touch_stream"]))
    assert not {"side_gc", "touch_stream"} & {item["arm"] for item in less.document["arms"]}
    assert not {"side_gc", "touch_stream"} & set(less.measured.blocks["arm"])
    assert any("judged without side_gc, touch_stream" in text for text in less.document["warnings"])


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"margin": 1.5}, InputError, "between 0 and 1"),
        ({"drop_arms": ["sde_gc"]}, UnknownNameError, "did you mean 'side_gc'"),
        ({"drop_arms": ["off"]}, InputError, "baseline"),
    ],
)
def test_wrong_settings_are_refused(folder: Path, changes: dict, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        evidence.gather(inputs("capture-stream", [folder], **changes))


def test_unknown_names_tell_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'capture-stream'"):
        inputs("capture-steam")
    with pytest.raises(InputError, match="no recording at"):
        inputs("capture-stream", [str(tmp_path / "absent")])


def test_a_recording_of_another_investigation_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "other"
    shutil.copytree(folder, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "investigation": "vime-decode"}))
    with pytest.raises(InputError, match="run 'rcatools report vime-decode'"):
        evidence.gather(inputs("capture-stream", [copy]))


def test_damaged_snapshots_and_traces_are_counted_not_raised(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "synthetic"
    shutil.copytree(folder, copy)
    (copy / "snapshots").mkdir()
    (copy / "snapshots" / "side.pickle.gz").write_bytes(b"no snapshot")
    (copy / "traces" / "side.json.gz").write_bytes(b"no trace")
    problems = measure_tables([open_recording(copy)]).problems
    assert set(problems["file"]) == {"side.pickle.gz", "side.json.gz"}


def test_no_folder_or_login_of_a_recording_reaches_the_tables(folder: Path) -> None:
    recording = open_recording(folder)
    runs = recording.runs.assign(reason="killed in /home/alice/run by alice@gpu01.example.com")
    told = measure_tables([dataclasses.replace(recording, runs=runs)]).runs["reason"].unique()
    assert len(told) == 1
    assert not re.search("alice|gpu01|/home", told[0])


@pytest.mark.skipif(not H200.is_dir(), reason="the reference measurements are not beside the checkout")
def test_ledger_and_steps_of_real_files(tmp_path: Path, folder: Path) -> None:
    copy = tmp_path / "real"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "traces")
    for kind, prefix in (("snapshots", "snap_"), ("traces", "trace_")):
        (copy / kind).mkdir(exist_ok=True)
        source = H200 / ("arm_snapshots" if kind == "snapshots" else "decode_traces")
        for file in source.iterdir():
            shutil.copy(file, copy / kind / file.name.removeprefix(prefix))
    tables = measure_tables([open_recording(copy)])
    assert tables.problems.empty
    side = tables.pins[(tables.pins["arm"] == "side") & (tables.pins["size"] == 79_691_776)]
    assert len(side) == 1
    assert side.iloc[0]["stream"] != tables.ledger[tables.ledger["arm"] == "side"].iloc[0]["stream"]
    steps = tables.steps.set_index("arm")
    assert steps.loc["side", "kernel_us"] == pytest.approx(2438.8, rel=0.002)
    assert steps.loc["off", "kernel_us"] == pytest.approx(2445.8, rel=0.002)
    assert steps.loc["side", "median_gap_us"] > 4 * steps.loc["off", "median_gap_us"]


def test_measured_tables_survive_a_round_trip_without_rows(tmp_path: Path) -> None:
    empty = measure_tables([])
    empty.save(tmp_path)
    assert load_measured(tmp_path).ledger.empty


def test_the_checkout_is_found_and_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (locate.checkout() / "notebooks").is_dir()
    (tmp_path / "data" / "investigations").mkdir(parents=True)
    monkeypatch.setenv("RCATOOLS_HOME", str(tmp_path))
    assert locate.checkout() == tmp_path
    with pytest.raises(InputError, match="no recording of x is embedded"):
        locate.recording_folders("x", [])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.pop("links"), "links"),
        (lambda d: d["links"][0].update(id=3), r"\$\.links\[0\]\.id"),
        (lambda d: d.update(fixes="none"), "fixes"),
        (lambda d: d.update(chain=None), "form of a verdict"),
        (lambda d: d.update(live={"sentences": [1]}), "sentences"),
    ],
)
def test_a_verdict_of_another_form_is_refused(
    gathered: evidence.Evidence, tmp_path: Path, change, says: str
) -> None:
    damaged = json.loads(json.dumps(gathered.document))
    change(damaged)
    (tmp_path / "verdict.json").write_text(json.dumps(damaged))
    with pytest.raises(InputError, match=says):
        document.read(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', "\x00"])
def test_what_is_no_verdict_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "verdict.json").write_text(content)
    with pytest.raises(InputError, match=r"verdict\.json"):
        document.read(tmp_path)
