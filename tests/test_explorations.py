"""What the explorations' README says can be read off their files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rcatools.experiment.cliff import find_step
from rcatools.recording.reader import open_recording

FOLDER = Path(__file__).resolve().parents[1] / "data" / "explorations" / "queue-cliff-h200"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("variants", [1, 4, 16])
def test_the_bare_program_steps_at_the_sixteenth_stream(when: str, variants: int) -> None:
    mine = [r for r in rows("native.jsonl") if (r["when"], r["variants"]) == (when, variants)]
    curve = [r["us_per_kernel"] for r in sorted(mine, key=lambda r: r["streams"])]
    step = find_step(curve)
    assert step.at == 16
    assert step.low == pytest.approx(0.73, abs=0.01)
    assert step.high == pytest.approx(0.905, abs=0.01)


def test_acts_take_the_places_that_are_told() -> None:
    at = {(r["act"], tuple(r["warm"]), tuple(r["env"])): r.get("step_at") for r in rows("acts.jsonl")}
    for warm in ((), ("linear_bias", "mm", "norm")):
        reference = at["none", warm, ()]
        assert reference == (8 if warm else 7)
        used = {act: reference - place for (act, w, e), place in at.items() if w == warm and not e and place}
        assert {
            used[name] for name in ("add", "tri", "mm", "linear_bias", "norm", "h2d", "legacy", "high")
        } == {1}
        assert {used[name] for name in ("unused", "event", "wait")} == {0}
        assert (used["add2"], used["add4"]) == (2, 4)


def test_a_decode_step_on_one_further_stream_takes_all_places_and_a_capture_two() -> None:
    steps = {
        r["work"]: find_step([0.727, *r["us_per_kernel_after_0_to_12_streams"]])
        for r in rows("work_on_one_stream.jsonl")
    }
    at = {name: step.at - 1 for name, step in steps.items() if step.at is not None}
    assert at["none"] == at["alloc"] == 8
    assert (at["cap"], at["caprun"], at["qkv1"], at["merge1"]) == (6, 7, 7, 7)
    assert at["all"] == 1
    assert {at[name] for name in ("out40", "gather40", "rms40", "write40", "expert10")} == {0}
    assert at["qkv40"] == 4


def test_a_process_that_has_stepped_stays_so() -> None:
    for row in rows("graphs.jsonl"):
        curve = row["us_per_kernel_after_1_to_20_streams"]
        for later in ("first_graph_again", "after_half_a_second_idle", "replayed_on_a_further_stream"):
            assert row[later] == pytest.approx(curve[-1], rel=0.03)


def test_launches_count_and_not_streams() -> None:
    table = {row["condition"]: row for row in json.loads((FOLDER / "summary.json").read_text())["conditions"]}
    curves = rows("curves.jsonl")
    assert len(curves) == 3 * len(table)
    for row in table.values():  # every process of a condition steps at the same place, by the same price
        mine = [find_step(c["curve"]) for c in curves if c["condition"] == row["condition"]]
        assert {step.at for step in mine} == {row["at_low"]} == {row["at_high"]}
        assert all(step.high - step.low == pytest.approx(0.178, abs=0.003) for step in mine)
    assert (table["none"]["at_low"], table["none"]["low_us"]) == (9, pytest.approx(0.929, abs=0.002))
    used = {name: row["places_used"] for name, row in table.items()}
    assert used["add4"] == used["add+add+add+add"] == 4
    assert {used[name] for name in ("add8", "add16", "add40", "add80", "add40_waited")} == {8}
    assert {used[name] for name in ("product", "norm", "sum", "high", "legacy", "add late")} == {1}
    assert {used[name] for name in ("copy", "event", "wait", "unused", "none capture:fresh")} == {0}
    assert used["capture"] == 2
    warm = " warm:linear_bias warm:product warm:norm"
    assert table["none" + warm]["at_low"] == 10
    assert used["linear_bias40" + warm] == 4
    settings = (
        "CUDA_DEVICE_MAX_CONNECTIONS=1",
        "CUDA_DEVICE_MAX_CONNECTIONS=32",
        "CUDA_MODULE_LOADING=EAGER",
    )
    assert {used[f"none {name}"] for name in settings} == {0}


ROOT = FOLDER.parents[2]
ROW = re.compile(r"\(`(\w+)`\)[^|]*\| ([+-][\d.]+) % \[([+-][\d.]+), ([+-][\d.]+)\] \| (\d+) \|")


def test_the_page_about_streams_quotes_the_recordings() -> None:
    folder = ROOT / "data" / "recordings"
    tables = [
        open_recording(folder / name).block_values("step_us")
        for name in ("capture-stream-h200", "capture-stream-h200-rivals")
    ]
    rows = ROW.findall((ROOT / "docs" / "streams.md").read_text())
    assert len(rows) >= 8
    for arm, *told, blocks in rows:
        (table,) = (t for t in tables if len(t) == int(blocks) and arm in t)
        logs = np.log(table[arm] / table["off"])
        half = stats.t.ppf(0.975, logs.size - 1) * logs.std(ddof=1) / np.sqrt(logs.size)
        found = 100 * np.expm1([logs.mean(), logs.mean() - half, logs.mean() + half])
        assert [float(x) for x in told] == pytest.approx(list(found), abs=0.0051), arm
