"""A third, small investigation that the library never saw: data alone, run whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rcatools.diagnosis import judge, load_investigation
from rcatools.diagnosis.records import ClaimStatus, Status
from rcatools.files import write_json
from rcatools.recording import Recording, open_recording
from rcatools.recording.writer import finish

YAML = """
slug: tokenizer-threads
title: Prompt preparation got slower
question: Did the new release slow prompt preparation, or does the number of threads do it?
effect: {suspect: new, baseline: old, metric: prepare_us, margin: 0.03, repeat: [old_again], noun: preparing a prompt}
arms:
  old: {role: baseline, text: the old release}
  old_again: {role: repeat, text: the old release again}
  new: {role: suspect, text: the new release}
  new_one_thread: {role: fix, text: the new release with one thread}
  planted: {role: plant_multiplicative, text: ten percent more text}
plants: {planted: [slower_kernels, undecided]}
tables: {published: published.csv, log: log.csv}
published: published
observations:
  slower: {check: ratio, text: the new release is slower, arm: new}
  with_one_thread: {check: effect_share, text: the slowdown with one thread, arm: new_one_thread}
  memory: {check: ledger, text: peak memory, figure: peak_bytes, arm: new, against: old}
  modes: {check: modes, text: two levels, arms_together: [old, old_again]}
  lookups: {check: reconcile, text: lookups explain it, part: {product: [{table: log, column: us, where: {what: lookup}}, 3]}, whole: 300, share: 0.4}
  on_gpu: {check: ratio, text: on a card, arm: new, needs: gpu}
links:
  - {id: a, text: preparation is slower, all: {slower: slower}}
  - {id: b, text: more memory is taken, all: {memory: more}}
hypotheses:
  - {id: threads, title: threads fight, stands: threads wait for each other, predicts: {slower: slower, with_one_thread: absent}, suggests: {lookups: explained}}
  - {id: tables, title: larger tables, stands: its tables are larger, predicts: {slower: slower, memory: more, with_one_thread: carries}}
  - {id: noise, title: noise, stands: nothing changed, is_null: true, predicts: {slower: equivalent}}
claims:
  - id: release_note
    text: the new release is 50 % slower on four threads
    source: release notes
    published: 1.5 times the time
    environment: {card: "Some CPU, 16 cores", code: committed}
    cause: threads
    judged: {by: effect, arm: new, ratio: {table: published, column: value, where: {id: slowdown}}}
  - {id: forum, text: 2 times, source: a forum, published: 2 times, environment: {code: uncommitted}, judged: {by: effect, arm: new, ratio: 2.0}}
  - {id: same, text: it is 20 % slower, source: ours, published: "1.2", environment: {card: "Some CPU, 16 cores"}, judged: {by: effect, arm: new, ratio: 1.2}}
  - {id: memory, text: it needs more memory, source: s, published: more, judged: {by: observation, observation: memory, outcomes: more}}
open:
  - {text: "Does a card change it?", run: try it, needs: a card}
"""


def write_recording(folder: Path, effect: float = 0.2) -> Recording:
    rng = np.random.default_rng(5)
    levels = {"old": 0.0, "old_again": 0.0, "new": effect, "new_one_thread": 0.0, "planted": 0.1}
    for block in range(10):
        drift = rng.normal(0, 0.02)
        for order, (arm, level) in enumerate(levels.items()):
            run = f"{block:03d}-{order:02d}-{arm}"
            values = 1500 * np.exp(level + drift + rng.normal(0, 0.004) + np.abs(rng.normal(0, 0.003, 20)))
            part = {
                "run": run,
                "arm": arm,
                "block": block,
                "order": order,
                "isolation": "spawn",
                "outcome": "ok" if (arm, block) != ("planted", 3) else "hung",
                "reason": None,
                "started_utc": "",
                "wall_s": 1.0,
                "samples": {"prepare_us": values.tolist()} if (arm, block) != ("planted", 3) else {},
                "facts": {"peak_bytes": 1000},
            }
            write_json(folder / "parts" / f"{run}.json", part)
    document = {
        "investigation": "tokenizer-threads",
        "created_utc": "2026-11-01T00:00:00Z",
        "command": "made by a test",
        "device": {"backend": "cpu", "name": "Some CPU, 16 cores"},
        "environment": {"code": {"commit": "1" * 40, "dirty": False}},
        "workload": {},
        "design": {
            "baseline": "old",
            "margin": 0.03,
            "confidence": 0.95,
            "arms": [{"name": name} for name in levels],
        },
    }
    finish(folder, document, state="complete")
    return open_recording(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "investigation.yaml").write_text(YAML, encoding="utf-8")
    (tmp_path / "published.csv").write_text(
        "# theirs\nid,source,url,label,value,unit,note\nslowdown,release notes,https://example.org/,four threads,1.5,ratio,\n",
        encoding="utf-8",
    )
    (tmp_path / "log.csv").write_text("what,us\nlookup,50\nparse,20\n", encoding="utf-8")
    return tmp_path


def test_a_new_investigation_needs_no_python(folder: Path, tmp_path: Path) -> None:
    found = judge(load_investigation(folder), [write_recording(tmp_path / "r")])
    assert found.hypothesis("threads").status is Status.SUPPORTED
    assert found.hypothesis("tables").status is Status.CONTRADICTED
    assert found.hypothesis("noise").status is Status.CONTRADICTED
    assert found.answer.startswith("On Some CPU, 16 cores, preparing a prompt is 22.4 % slower [+")
    assert found.answer.endswith("because threads wait for each other.")
    assert [link.verdict for link in found.links] == ["shown", "not_shown"]
    assert found.chain_ends_at == "b"
    lookups = next(o for o in found.observations if o.id == "lookups")
    assert (lookups.outcome.name, lookups.outcome.evidence[0].value) == ("explained", 0.5)
    claims = {item.id: item.status for item in found.claims}
    assert claims == {
        "release_note": ClaimStatus.NOT_REPRODUCED,
        "forum": ClaimStatus.NOT_ATTRIBUTABLE,
        "same": ClaimStatus.SUPPORTED,
        "memory": ClaimStatus.CONTRADICTED,
    }
    assert [fix.arm for fix in found.fixes if fix.best] == ["new_one_thread"]
    assert any("hung" in text for text in found.warnings)
    assert [item.value for item in found.published] == [1.5]
    assert any(item.needs == "a card" for item in found.open)
    assert found.plants[0].found is True


def test_the_same_without_an_effect(folder: Path, tmp_path: Path) -> None:
    found = judge(load_investigation(folder), [write_recording(tmp_path / "r", effect=0.0)])
    assert found.hypothesis("noise").status is Status.SUPPORTED
    assert found.hypothesis("threads").status is Status.CONTRADICTED
    assert "does not change with the new release" in found.answer
    assert "would have been seen" in found.answer
    claims = {item.id: item.status for item in found.claims}
    assert claims["release_note"] is ClaimStatus.CONTRADICTED
    assert claims["forum"] is ClaimStatus.NOT_ATTRIBUTABLE


CONTRACT = {
    "investigation": str,
    "question": str,
    "answer": str,
    "links": list,
    "hypotheses": list,
    "claims": list,
    "fixes": list,
    "environment": dict,
    "reproduce": str,
}
ITEMS = {
    "links": {"id", "verdict", "evidence"},
    "hypotheses": {"id", "status", "predictions"},
    "claims": {"id", "source", "published", "measured", "status"},
    "fixes": {"arm", "ratio", "ci_low", "ci_high", "verdict", "memory_bytes"},
}


def test_the_document_has_the_promised_shape_and_is_strict_json(folder: Path, tmp_path: Path) -> None:
    investigation = load_investigation(folder)
    recording = write_recording(tmp_path / "r")
    document = judge(investigation, [recording]).document()
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text) == document
    for key, kind in CONTRACT.items():
        assert isinstance(document[key], kind), key
    for key, wanted in ITEMS.items():
        assert document[key]
        assert all(wanted <= item.keys() for item in document[key]), key
    for item in document["hypotheses"]:
        assert item["status"] in {"supported", "contradicted", "not_tested", "undecided"}
        for prediction in item["predictions"]:
            assert {"text", "expected", "observed", "holds", "evidence"} <= prediction.keys()
            assert prediction["holds"] in (True, False, None)
            assert isinstance(prediction["evidence"], str)
    assert text == json.dumps(judge(investigation, [recording]).document(), allow_nan=False)


def test_every_field_of_the_document_is_described(folder: Path, tmp_path: Path) -> None:
    import rcatools.diagnosis.records as records

    document = judge(load_investigation(folder), [write_recording(tmp_path / "r")]).document()
    described = records.__doc__ or ""
    missing = [key for key in document if f"{key} " not in described]
    for key in (
        "links",
        "observations",
        "hypotheses",
        "claims",
        "fixes",
        "mechanisms",
        "kernels",
        "reconcile",
    ):
        for item in document[key][:1]:
            missing += [f"{key}.{name}" for name in item if name not in described]
    assert not missing


def test_without_recordings_everything_is_open(folder: Path) -> None:
    found = judge(load_investigation(folder), [])
    assert {item.status for item in found.hypotheses} <= {Status.NOT_TESTED, Status.UNDECIDED}
    assert found.fixes == ()
    json.dumps(found.document(), allow_nan=False)


def test_facts_and_kernels_of_the_wrong_kind_do_not_break_it(folder: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    recording = write_recording(tmp_path / "r")
    runs = recording.runs.assign(peak_bytes="many")
    kernels = pd.DataFrame(
        [{"arm": "old", "block": "x", "run": None, "kernel": None, "sample": 0, "us": "fast"}]
    )
    manifest = replace(
        recording.manifest,
        workload={"kernels": "none", "parameters": 3},
        environment={"code": "lost", "packages": [], "settings": None},
        device={"backend": ["cpu"], "name": None},
    )
    found = judge(
        load_investigation(folder), [replace(recording, runs=runs, kernels=kernels, manifest=manifest)]
    )
    memory = next(o for o in found.observations if o.id == "memory")
    assert memory.outcome.name is None
    json.dumps(found.document(), allow_nan=False)
