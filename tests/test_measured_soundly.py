"""Checks of how it was measured, against recordings in which the disturbance was planted."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rcatools.diagnosis import soundness
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.loading import load_investigation
from rcatools.recording import Recording, open_recording
from rcatools.recording.writer import tables
from rcatools.report import findings, provenance
from rcatools.stats.isolation import fork_effect

DATA = Path(__file__).resolve().parents[1] / "data"
H200 = DATA / "recordings" / "capture-stream-h200"
KINDS = np.array(["fork", "spawn"] * 8, dtype=object)


# --- the test itself ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("planted", "spread", "verdict"),
    [(0.05, 0.005, "slower"), (-0.05, 0.005, "faster"), (0.0, 0.003, "equivalent"), (0.0, 0.1, "undecided")],
)
def test_a_planted_effect_of_fork_is_found_with_its_size(planted: float, spread: float, verdict: str) -> None:
    rng = np.random.default_rng(5)
    logs = (
        np.log(1000.0) + rng.normal(0, spread, KINDS.size) + np.where(KINDS == "fork", np.log1p(planted), 0)
    )
    found = fork_effect("off", logs, KINDS, margin=0.02)
    assert found.verdict == verdict
    assert (found.forked, found.spawned) == (8, 8)
    assert found.comparison is not None
    estimate = found.comparison.estimate
    assert estimate.ci_low is not None
    assert estimate.ci_high is not None
    assert estimate.ci_low < 1 + planted < estimate.ci_high
    assert "8 and 8 blocks" in found.text


def test_false_alarms_stay_at_the_level_where_the_kinds_are_few_and_unequal() -> None:
    rng = np.random.default_rng(11)
    kinds = np.array(["spawn"] * 3 + ["fork"] * 9, dtype=object)
    alarms = sum(
        fork_effect("off", rng.normal(0, 0.01, 12), kinds, margin=0.001).verdict in {"slower", "faster"}
        for _ in range(600)
    )
    assert alarms / 600 <= 0.07


@pytest.mark.parametrize(
    ("kinds", "says"),
    [
        (["fork"] * 9, "off: not tested: 0 spawned blocks, 3 are needed"),
        (["fork"] * 8 + ["spawn"], "off: not tested: 1 spawned block, 3 are needed"),
        (["spawn"] * 9, "off: not tested: 0 forked blocks, 3 are needed"),
        (["none", None, float("nan")] * 3, "off: not tested: 0 spawned blocks, 3 are needed"),
    ],
)
def test_too_few_of_a_kind_is_said_not_tested(kinds: list[Any], says: str) -> None:
    found = fork_effect("off", np.zeros(9), np.array(kinds, dtype=object))
    assert (found.verdict, found.comparison) == ("not_tested", None)
    assert found.text == says


def test_a_block_without_the_run_does_not_count() -> None:
    logs = np.where(np.arange(16) < 12, np.nan, 0.0)
    found = fork_effect("off", logs, KINDS)
    assert (found.forked, found.spawned) == (2, 2)
    with pytest.raises(ValueError, match="one length"):
        fork_effect("off", logs, KINDS[:3])


# --- on recordings ------------------------------------------------------------------------------------


def recording(
    *,
    fork: float = 1.0,
    interaction: float = 1.0,
    clocks: dict[str, float] | None = None,
    blocks: int = 12,
    **facts: Any,
) -> Recording:
    """A recording of "off" and "side" (5 % slower), forked and spawned in turn, with planted disturbances.

    Args:
        fork: factor of forking on every arm; ``interaction``: a further one on "side" alone.
        clocks: clock of each arm; its times go with the inverse, so that its cycles do not change.
    """
    rng = np.random.default_rng(3)
    parts = []
    for block in range(blocks):
        kind = "spawn" if block % 2 else "fork"
        for order, arm in enumerate(("off", "side")):
            clock = (clocks or {}).get(arm)
            level = 1000.0 * (fork if kind == "fork" else 1.0) * np.exp(rng.normal(0, 0.002))
            if arm == "side":
                level *= 1.0 if clocks else 1.05
                level *= interaction if kind == "fork" else 1.0
            if clock:
                level *= 2000.0 / clock
            told = {"sm_clock_mhz": clock, "throttle": "none" if clock else "not readable"} | facts
            key = {"run": f"{block}-{arm}", "arm": arm, "block": block, "order": order, "isolation": kind}
            parts.append(
                key
                | {
                    "outcome": "ok",
                    "reason": None,
                    "samples": {"step_us": [level, level]},
                    "kernels": {},
                    "facts": told,
                }
            )
    real = open_recording(H200)
    runs, samples, kernels = tables(parts)
    return replace(real, runs=runs, samples=samples, kernels=kernels)


def rows(made: Recording) -> dict[tuple[str, str], dict[str, Any]]:
    case = Case(load_investigation(DATA / "investigations" / "capture-stream"), [made], margin=0.02)
    found = soundness.document(case)
    return {(row["check"], row["figures"].get("of", "")): row for row in found}


@pytest.mark.parametrize(
    ("planted", "baseline", "suspect"),
    [
        ({}, "equivalent", "equivalent"),
        (
            {"fork": 1.05},
            "slower",
            "equivalent",
        ),  # it meets both arms alike: the comparison inside blocks is safe
        (
            {"interaction": 1.05},
            "equivalent",
            "slower",
        ),  # it is an effect of fork that side / off would carry
        ({"blocks": 4}, "not_tested", "not_tested"),
    ],
)
def test_fork_is_judged_for_the_baseline_and_for_the_effect(
    planted: dict[str, Any], baseline: str, suspect: str
) -> None:
    found = rows(recording(**planted))
    assert found["fork against spawn", "off"]["verdict"] == baseline
    assert found["fork against spawn", "side / off"]["verdict"] == suspect


def test_pairs_started_in_two_ways_say_nothing_about_fork() -> None:
    made = recording()
    kinds = made.runs["isolation"].where(
        made.runs["arm"] != "side", "spawn"
    )  # as an arm that must be spawned
    found = rows(replace(made, runs=made.runs.assign(isolation=kinds)))
    assert found["fork against spawn", "off"]["verdict"] == "equivalent"
    assert found["fork against spawn", "side / off"]["text"].endswith(
        "not tested: 0 forked blocks, 3 are needed"
    )


@pytest.mark.parametrize(
    ("clocks", "verdict"),
    [
        ({"off": 2000.0, "side": 2000.0}, "no_difference"),
        ({"off": 2000.0, "side": 1800.0}, "clocks"),  # 11 % slower at 10 % less clock
        (None, "not_tested"),
    ],
)
def test_a_difference_of_clocks_is_gone_in_cycles(clocks: dict[str, float] | None, verdict: str) -> None:
    assert rows(recording(clocks=clocks))["in clock cycles", ""]["verdict"] == verdict


def test_the_effect_on_the_h200_is_confirmed_in_cycles() -> None:
    found = rows(open_recording(H200))
    assert found["in clock cycles", ""]["verdict"] == "confirmed"
    assert re.match(r"(\d+) of \1 runs settled", found["warm-up", ""]["text"])
    assert found["clocks", ""]["verdict"] == "quiet"


def test_what_disturbed_runs_is_counted() -> None:
    found = rows(
        recording(
            clocks={"off": 2000.0, "side": 2000.0},
            throttle="sw_thermal",
            warmup_flat=False,
            warmup_steps=300,
            other_processes=2,
        )
    )
    assert found["clocks", ""]["verdict"] == "throttled"
    assert "24 under reduced clocks (24 sw_thermal)" in found["clocks", ""]["text"]
    assert found["warm-up", ""]["text"].startswith("0 of 24 runs settled after 300 steps")
    assert found["neighbours", ""]["text"].startswith("24 of 24 runs shared the device")


def test_facts_of_a_wrong_type_are_missing_facts() -> None:
    found = rows(
        recording(sm_clock_mhz="fast", warmup_flat="?", warmup_steps="many", other_processes="x", throttle=7)
    )
    assert found["in clock cycles", ""]["verdict"] == "not_tested"
    assert found["clocks", ""]["text"] == "not readable on this device"


def test_findings_say_it_in_one_line_and_old_reports_still_render() -> None:
    document = {"environment": {"checks": list(rows(recording()).values())}}
    assert provenance.fork_sentence(document).count("\n") == 0
    assert "6 and 6 blocks" in provenance.fork_sentence(document)
    untested = {"environment": {"checks": list(rows(recording(blocks=2)).values())}}
    assert "was not tested: 1 spawned block" in provenance.fork_sentence(untested)
    assert provenance.fork_sentence({"environment": {}}) == ""
    assert len(provenance.checks(document).rows) == len(rows(recording()))
    assert findings.METHOD in findings._method({"environment": {}})
