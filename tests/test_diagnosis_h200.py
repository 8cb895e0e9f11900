"""Measurements of one H200: the first probe's files, and the recordings that come with the project."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import synthetic_worlds as worlds

from rcatools.diagnosis import judge, load_investigation
from rcatools.diagnosis.records import Diagnosis, Mechanism, Status
from rcatools.recording import Recording, open_recording

ROOT = Path(__file__).resolve().parents[1]
H200 = ROOT.parent / "shared" / "h200"
INVESTIGATION = load_investigation(ROOT / "data" / "investigations" / "capture-stream")
NAMES = {
    "off2": "off_again",
    "clear": "clear_blas",
    "plant_add": "plant_additive",
    "plant_mul": "plant_multiplicative",
}


@pytest.fixture(scope="module")
def probe() -> Diagnosis:
    if not H200.is_dir():
        pytest.skip("the shared H200 measurements are not here")
    entries = json.loads((H200 / "decode_arms.json").read_text(encoding="utf-8"))
    samples, runs = [], []
    for order, entry in enumerate(entries):
        arm = NAMES.get(entry["arm"], entry["arm"])
        key = {"arm": arm, "block": entry["block"], "order": order, "run": f"{entry['block']}-{arm}"}
        samples += [
            {**key, "metric": "step_us", "sample": i, "value": 1e3 * ms} for i, ms in enumerate(entry["ms"])
        ]
        runs.append({**key, "outcome": "ok", "kv_offset": entry["kv_off"], "kv_address": entry["kv_mod1g"]})
    base, _ = worlds.in_memory(worlds.make("nothing", 0), "probe")
    manifest = replace(
        base.manifest,
        device={"backend": "cuda", "name": "NVIDIA H200", "arch": "sm_90"},
        workload={},
        design={
            **base.manifest.design,
            "arms": [{"name": name} for name in dict.fromkeys(r["arm"] for r in runs)],
        },
    )
    recording = Recording(
        path=Path("probe"),
        manifest=manifest,
        runs=pd.DataFrame(runs),
        samples=pd.DataFrame(samples),
        kernels=base.kernels.iloc[:0],
        snapshots={},
        traces={
            name: H200 / "decode_traces" / f"trace_{name}.json.gz" for name in ("off", "side", "current")
        },
        warnings=(),
    )
    return judge(INVESTIGATION, [recording])


def test_the_probe_s_figures_come_out(probe: Diagnosis) -> None:
    wanted = {
        "off_again": -0.03,
        "side": 4.97,
        "side_gc": 5.02,
        "current": -0.06,
        "clear_blas": 4.91,
        "pad_untracked": 0.16,
        "no_empty_off": -0.10,
        "no_empty_side": 5.33,
    }
    log_percent = {a.arm: 100 * math.log(a.ratio) for a in probe.arms if a.ratio}
    for arm, value in wanted.items():
        assert log_percent[arm] == pytest.approx(value, abs=0.02), arm


def test_the_probe_excludes_placement_and_a_smaller_cache(probe: Diagnosis) -> None:
    assert probe.hypothesis("placement").status is Status.CONTRADICTED
    assert "untracked pad" in probe.hypothesis("placement").reason
    assert "cleared" in probe.hypothesis("placement").reason
    assert probe.hypothesis("kv_shrink").status is Status.CONTRADICTED
    assert probe.hypothesis("noise").status is Status.CONTRADICTED
    assert probe.hypothesis("spawn_lottery").status is Status.CONTRADICTED
    # it had no arm for a pending wait, so the two causes at kernel boundaries stay open
    assert probe.hypothesis("queue_cliff").status is Status.UNDECIDED
    decide = probe.hypothesis("queue_cliff").decide
    assert decide is not None
    assert "cross_wait" in decide.run


def test_the_probe_s_slowdown_sits_in_the_gaps(probe: Diagnosis) -> None:
    side = next(item for item in probe.mechanisms if item.arm == "side")
    assert side.kind is Mechanism.LONGER_GAPS
    reconcile = next(item for item in probe.reconcile if item.arm == "side")
    assert reconcile.explained == pytest.approx(1.0, abs=0.1)
    assert reconcile.gaps_us == pytest.approx(396 - 265, abs=2)


def test_the_probe_s_answer_names_the_card_and_what_is_open(probe: Diagnosis) -> None:
    assert probe.answer.startswith("On NVIDIA H200, the decode step is 5.1 % slower")
    assert "not settled" in probe.answer
    assert any("AMD" in item.needs for item in probe.open)


RECORDINGS = sorted((ROOT / "data" / "recordings").glob("capture-stream-h200*/manifest.json"))


@pytest.fixture(scope="module")
def shipped() -> Diagnosis:
    if not RECORDINGS:
        pytest.skip("no H200 recording is shipped")
    return judge(INVESTIGATION, [open_recording(file.parent) for file in RECORDINGS])


def test_the_shipped_recordings_judge_every_link(shipped: Diagnosis) -> None:
    links = {link.id: link for link in shipped.links}
    assert {name: link.verdict.value for name, link in links.items()} == {
        "a": "shown",
        "b": "shown",
        "c": "shown",
        "d": "not_shown",
        "e": "shown",
    }
    assert any("GiB in side" in item.text for item in links["c"].evidence)
    for item in links["d"].evidence:
        assert item.detection_limit is not None
        assert item.detection_limit < 0.01
    assert shipped.chain_ends_at == "d"
    assert shipped.sensitive is True


def test_the_shipped_recordings_name_cause_and_owner(shipped: Diagnosis) -> None:
    status = {item.id: item.status for item in shipped.hypotheses}
    assert status["queue_cliff"] is Status.SUPPORTED
    for name in ("kv_shrink", "placement", "cross_stream_wait", "spawn_lottery", "noise", "aiter_scratch"):
        assert status[name] is Status.CONTRADICTED, name
    assert status["blas_workspace"] is Status.SUPPORTED
    assert "H200" in shipped.answer
    placement = {p.observation: p.holds for p in shipped.hypothesis("placement").predictions}
    assert placement["pad_without_stream"] is False
    assert placement["block_cleared"] is False
    kinds = {item.arm: item.kind for item in shipped.mechanisms}
    assert kinds["plant_additive"] is Mechanism.MORE_KERNELS
    assert kinds["plant_multiplicative"] is Mechanism.SLOWER_KERNELS
    assert kinds["side"] is Mechanism.LONGER_GAPS


def test_the_shipped_plants_are_told_apart_with_their_labels_swapped(shipped: Diagnosis) -> None:
    recordings = [open_recording(file.parent) for file in RECORDINGS]
    names = {
        "plant_additive": "touch_stream",
        "plant_multiplicative": "plant_additive",
        "touch_stream": "pad_side",
    }
    hidden = judge(INVESTIGATION, [worlds.renamed(item, names) for item in recordings])
    kinds = {item.arm: item.kind for item in hidden.mechanisms}
    assert kinds["touch_stream"] is Mechanism.MORE_KERNELS
    assert kinds["plant_additive"] is Mechanism.SLOWER_KERNELS


def test_the_shipped_verdict_says_what_is_open_on_amd(shipped: Diagnosis) -> None:
    amd = [item for item in shipped.open if "AMD" in item.needs]
    assert len(amd) >= 3
    assert all("--device rocm" in item.run for item in amd)
    july = next(item for item in shipped.claims if item.id == "july_side_stream")
    assert july.status.value == "not_attributable"
