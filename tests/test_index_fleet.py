"""Across recordings: odd machines and days, the first bad commit, the notebook and its page."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import numpy as np
import pandas as pd
import pytest
from index_support import recording

from rcatools.batch import fleet, fleet_page, fleet_tables, index
from rcatools.batch.fleet_session import QUESTION
from rcatools.batch.parameters import read_parameters
from rcatools.cli import main
from rcatools.errors import InputError, UnknownNameError

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "notebooks" / "07_fleet.ipynb"
COMMITS = [f"{number:040x}" for number in range(1, 13)]
STEP_AT = 7


@pytest.fixture(scope="module")
def fleet_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five cards, six days, twelve commits: card-3 is 4 % slow, one day 3 %, commit 8 makes ``side`` slower."""
    root = tmp_path_factory.mktemp("fleet")
    number = 0
    for machine in range(5):
        for day in range(6):
            commit = (machine * 6 + day) % 12
            recording(
                root / f"card-{machine}" / f"day-{day}",
                level=1000 * (1.04 if machine == 3 else 1.0) * (1.03 if day == 2 else 1.0),
                ratio=1.05 if commit >= STEP_AT else 1.0,
                noise=0.002,
                seed=number,
                machine=f"card-{machine}",
                day=f"2026-11-{day + 1:02d}",
                commit=COMMITS[commit],
            )
            number += 1
    index.update(root)
    return root


@pytest.fixture(scope="module")
def tables(fleet_folder: Path) -> dict[str, Any]:
    return index.open_store(fleet_folder / index.STORE)


def test_the_odd_machine_and_the_odd_day_are_named_and_no_other(tables: dict[str, Any]) -> None:
    found = fleet.overview(tables)["odd"]
    levels = {
        (item["what"], item["name"]): item["deviation"] for item in found if item["quantity"] == "level"
    }
    assert set(levels) == {("machine", "card-3"), ("day", "2026-11-03")}
    assert levels["machine", "card-3"] == pytest.approx(0.04, abs=0.004)
    assert levels["day", "2026-11-03"] == pytest.approx(0.03, abs=0.004)


def test_a_machine_with_more_noise_is_named(tmp_path: Path) -> None:
    for machine in range(6):
        for day in range(4):
            noise = 0.02 if machine == 2 else 0.002
            recording(tmp_path / f"{machine}-{day}", noise=noise, seed=machine * 10 + day,
                      machine=f"card-{machine}", day=f"2026-11-{day + 1:02d}")  # fmt: skip
    index.update(tmp_path)
    found = fleet.overview(index.open_store(tmp_path / index.STORE))
    assert [item["name"] for item in found["odd"] if item["quantity"] == "noise"] == ["card-2"]
    floors = {row["machine"]: row["noise_floor"] for row in found["machines"]}
    assert floors["card-2"] > 3 * max(floor for name, floor in floors.items() if name != "card-2")


def test_a_quiet_fleet_has_nothing_odd() -> None:
    """Of 200 fleets of six equal cards, four days and one per cent of noise, few name anything."""
    named = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rows = [(f"{m}-{d}", f"card-{m}", f"day-{d}", math.exp(rng.normal(7, 0.01)), math.exp(rng.normal(-6, 0.27)))
                for m in range(6) for d in range(4)]  # fmt: skip
        frame = pd.DataFrame(rows, columns=["recording", "machine", "day", "baseline_us", "noise_sd"])
        frame = frame.assign(investigation="i", workload="w", device="d", metric="m")
        named += bool(fleet.odd(frame, pd.DataFrame(columns=["recording", "arm", "ratio"])))
    assert named <= 10


def test_few_machines_are_never_called_odd(tmp_path: Path) -> None:
    for number in range(3):
        recording(tmp_path / str(number), level=1000 + 300 * number, machine=f"card-{number}")
    index.update(tmp_path)
    assert fleet.overview(index.open_store(tmp_path / index.STORE))["odd"] == []


def test_polish_gives_back_the_effects_of_a_table_without_noise() -> None:
    machines, days = {"a": 0.0, "b": 0.3, "c": -0.1}, {"1": 0.0, "2": 0.05, "3": -0.2}
    cells = [(m, d) for m in machines for d in days]
    values = np.array([5 + machines[m] + days[d] for m, d in cells])
    effects, spread = fleet.polish(values, pd.Series([m for m, _ in cells]), pd.Series([d for _, d in cells]))
    assert spread == pytest.approx(0.0, abs=1e-12)
    assert effects["machine"].to_dict() == pytest.approx(machines)
    assert effects["day"].to_dict() == pytest.approx(days)


def test_the_first_bad_commit_is_named_from_ratios(tables: dict[str, Any]) -> None:
    found = fleet.trend(tables, COMMITS, arm="side").document()
    assert (found["state"], found["first_bad"], found["verdict"]) == ("found", COMMITS[STEP_AT], "slower")
    assert found["ci_low"] < 1.05 < found["ci_high"]
    assert found["recordings"] == 30
    assert [row["verdict"] for row in found["commits"]] == ["good"] * STEP_AT + ["bad"] * (12 - STEP_AT)
    assert found["next"] is None


def test_the_baseline_did_not_step(tables: dict[str, Any]) -> None:
    found = fleet.trend(tables, COMMITS, by=["machine", "day"]).document()
    assert found["first_bad"] is None


def test_short_names_and_commits_that_are_not_listed(tables: dict[str, Any]) -> None:
    short = [name[:40] for name in COMMITS[2:]]
    found = fleet.trend(tables, short, arm="side").document()
    assert found["first_bad"] == COMMITS[STEP_AT]
    assert found["left_out"] == 6
    assert fleet._position(["abcdef1"], "abcdef1234") == 0
    assert fleet._position(["abcdef"], "abcdef1234") is None
    assert fleet._position(["abcdef1"], None) is None


def test_the_next_commit_is_asked_for_until_it_is_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "commits.txt"
    listed.write_text("".join(f"{name} a title\n" for name in COMMITS))
    root = tmp_path / "recordings"
    root.mkdir()
    made: list[str] = []
    while True:
        assert main(["bisect", str(root), "--commits", str(listed), "--arm", "side", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        if said["next"] is None:
            break
        made.append(said["next"])
        place = COMMITS.index(said["next"])
        recording(
            root / str(len(made)),
            ratio=1.04 if place >= STEP_AT else 1.0,
            commit=said["next"],
            seed=len(made),
        )
    assert said["first_bad"] == COMMITS[STEP_AT]
    assert len(set(made)) < len(COMMITS)
    assert main(["bisect", str(root), "--commits", str(listed), "--arm", "side", "--fail-on", "found"]) == 1
    assert f"First bad commit: {COMMITS[STEP_AT]}" in capsys.readouterr().out


def test_wrong_questions_are_refused(tables: dict[str, Any], fleet_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'side'"):
        fleet.trend(tables, COMMITS, arm="sidd")
    with pytest.raises(InputError, match="each once"):
        fleet.trend(tables, [COMMITS[0]] * 2)
    with pytest.raises(UnknownNameError, match="'weather'"):
        fleet.trend(tables, COMMITS, by=["weather"])
    with pytest.raises(UnknownNameError, match="commit to skip"):
        fleet.trend(tables, COMMITS, skip=["f" * 40])
    assert main(["bisect", str(fleet_folder), "--commits", str(tmp_path / "absent")]) == 2


def test_names_from_files_cannot_inject_into_the_page(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    recording(tmp_path / "a", machine=evil, ratio=1.05)
    broken = tmp_path / "<b>broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("<script>")
    index.update(tmp_path)
    store = index.open_store(tmp_path / index.STORE)
    jobs = [
        {
            "job": "x",
            "name": evil,
            "kind": "compare",
            "state": "failed",
            "verdict": None,
            "attempts": 1,
            "error": evil,
        }
    ]
    page = fleet_page.render(fleet.overview(store), jobs, 0.01)
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page


def test_sentences_have_no_holes(tables: dict[str, Any]) -> None:
    text = "\n".join(fleet_tables.sentences(fleet.overview(tables)))
    assert "machine card-3 is odd: its baseline is +4.0 %" in text
    assert "nan" not in text.lower()
    assert "None" not in text
    assert fleet_tables.bisect_sentences(fleet.trend(tables, COMMITS[:3], arm="side").document())


# --- the notebook -------------------------------------------------------------------------------------


def test_the_notebook_is_paired_asks_and_answers() -> None:
    book, script = nbformat.read(BOOK, as_version=4), jupytext.read(BOOK.with_suffix(".py"))
    assert [(c.cell_type, c.source) for c in book.cells] == [(c.cell_type, c.source) for c in script.cells]
    assert f"**Question:** {QUESTION}" in book.cells[0].source
    assert book.cells[-1].source == 'fleet.answer("07_fleet")'
    assert not [c for c in book.cells if c.cell_type == "code" and (c.outputs or c.execution_count)]
    for parameter in read_parameters(BOOK).declared.values():
        assert parameter.kind != "any"
        assert len(parameter.help) > 8


def test_plain_papermill_runs_it_and_its_result_file_tells_the_status(
    fleet_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = [
        "-p",
        "folder",
        str(fleet_folder),
        "-p",
        "arm",
        "side",
        "-p",
        "out",
        str(out),
        "-y",
        json.dumps({"commits": COMMITS}),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "papermill", str(BOOK), str(tmp_path / "done.ipynb"), *words, "--no-progress-bar"],
        capture_output=True, text=True, check=False, timeout=200, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "results" / "07_fleet.json").read_text())
    assert result["state"] == "done"
    assert any(COMMITS[STEP_AT] in sentence for sentence in result["answer"])
    assert any("card-3 is odd" in sentence for sentence in result["answer"])
    assert "card-3" in (out / "fleet.html").read_text()
    text = json.dumps(nbformat.read(tmp_path / "done.ipynb", as_version=4))
    assert "image/svg+xml" in text
    assert math.isfinite(len(text))
