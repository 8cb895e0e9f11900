"""Recordings beside the first: companions with a workload of their own, and recordings from different code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic_worlds as worlds
from vime_samples import made_up

from rcatools.diagnosis import judge, load_investigation
from rcatools.diagnosis.loading import parse_investigation
from rcatools.diagnosis.provenance import GROUP, ID
from rcatools.diagnosis.records import Diagnosis, Status
from rcatools.errors import UnknownNameError
from rcatools.experiment.product_recording import write_product_recording
from rcatools.recording import Recording, open_recording

ROOT = Path(__file__).resolve().parents[1]
VIME = ROOT / "data" / "investigations" / "vime-decode"
NAME = "vime-matmul-h200"


def companion(folder: Path, document: dict[str, Any]) -> Recording:
    (folder / "x.json").write_text(json.dumps(document))
    write_product_recording(folder / "x.json", folder / NAME)
    return open_recording(folder / NAME)


def outcomes(diagnosis: Diagnosis) -> dict[str, str | None]:
    return {item.id: item.outcome.name for item in diagnosis.observations}


def test_checks_that_name_a_companion_are_answered_within_it(tmp_path: Path) -> None:
    found = outcomes(judge(load_investigation(VIME), [], companions=[companion(tmp_path, made_up(6))]))
    assert (found["product_lm_head_64"], found["product_gate_up_64"]) == ("faster", "faster")
    assert (found["programs_qkv_64"], found["programs_lm_head_64"]) == ("less", "less")
    assert found["bits"] == "matches"
    assert found["product_lm_head_16"] is None  # 16 rows were not timed
    assert found["exchange"] is None  # the forms were not


def test_a_companion_that_is_not_there_is_said_and_leaves_its_checks_open() -> None:
    diagnosis = judge(load_investigation(VIME), [])
    (item,) = [item for item in diagnosis.observations if item.id == "bits"]
    assert (item.outcome.name, item.outcome.definite) == (None, False)
    assert [text for text in diagnosis.warnings if f"companion recording {NAME} is not there" in text]


NEAR = (1.0, 1.002, 0.998, 1.001, 0.999, 1.0)  # the published configuration against the default, by process


def as_fast_as_the_default(planted: float) -> dict[str, Any]:
    """A benchmark in which the published configuration takes the default's time, and a plant ``planted`` times it."""
    document = made_up(len(NEAR))
    default = {(r["shape"], r["rows"]): r["us_per_call"] for r in document["table"] if r["arm"] == "default"}
    for row in document["table"]:
        if row["arm"] == "specialised":
            row["us_per_call"] = scaled(default[row["shape"], row["rows"]], 1.0)
    document["table"] += [
        row | {"arm": "default_planted", "us_per_call": scaled(row["us_per_call"], planted)}
        for row in document["table"]
        if row["arm"] == "default"
    ]
    return document


def scaled(times: list[list[float]], factor: float) -> list[list[float]]:
    return [[us * near * factor for us in process] for process, near in zip(times, NEAR, strict=True)]


@pytest.mark.parametrize(("planted", "definite"), [(1.0, False), (1.3, True)])
def test_no_difference_counts_only_where_the_companion_shows_what_was_planted(
    planted: float, definite: bool, tmp_path: Path
) -> None:
    recording = companion(tmp_path, as_fast_as_the_default(planted))
    diagnosis = judge(load_investigation(VIME), [], companions=[recording])
    (item,) = [item for item in diagnosis.observations if item.id == "product_qkv_64"]
    assert (item.outcome.name, item.outcome.definite) == ("equivalent", definite)


def test_a_companion_nobody_declared_is_refused_with_the_near_name() -> None:
    text = (VIME / "investigation.yaml").read_text()
    with pytest.raises(UnknownNameError, match=f"did you mean '{NAME}'"):
        parse_investigation(text.replace(f"recording: {NAME}", "recording: vime-matmul-h20", 1))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Recording]:
    folder = tmp_path_factory.mktemp("pair")
    for name in ("one", "two"):
        worlds.write(worlds.make("nothing", 5, arms=("off", "off_again", "side")), folder / name)
    return open_recording(folder / "one"), open_recording(folder / "two")


def with_environment(recording: Recording, **changes: Any) -> Recording:
    environment = {**recording.manifest.environment, **changes}
    return replace(recording, manifest=replace(recording.manifest, environment=environment))


def test_recordings_from_one_state_raise_no_question(pair: tuple[Recording, Recording]) -> None:
    diagnosis = judge(load_investigation(ROOT / "data" / "investigations" / "capture-stream"), pair)
    assert ID not in {item.id for item in diagnosis.hypotheses}


def test_other_code_is_the_first_hypothesis_and_names_what_differs(
    pair: tuple[Recording, Recording],
) -> None:
    one = with_environment(pair[0], code={"commit": "a" * 40, "dirty": False, "untracked_files": 0})
    two = with_environment(
        pair[1], code={"commit": "a" * 40, "dirty": True, "diff_sha256": "b" * 64, "untracked_files": 1}
    )
    diagnosis = judge(load_investigation(ROOT / "data" / "investigations" / "capture-stream"), [one, two])
    first = diagnosis.hypotheses[0]
    assert (first.id, first.group, first.status) == (ID, GROUP, Status.UNDECIDED)
    assert "two and one differ in" in first.reason
    assert "rcatools dirty (no against yes)" in first.reason
    assert "diff_sha256 (not told against bbbbbbbbbbbb)" in first.reason
    assert first.decide is not None
