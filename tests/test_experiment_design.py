"""The schedule, the planned looks and the pilot."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from engine_support import drill, make, same_samples
from scipy import stats

from rcatools.cli.app import main
from rcatools.errors import InputError
from rcatools.experiment import looks
from rcatools.experiment.design import schedule
from rcatools.experiment.pilot import assess, sentences
from rcatools.recording.reader import open_recording
from rcatools.stats.ttest import from_pairs

ARMS = ("off", "again", "side", "fix")
EFFECT = {"RCATOOLS_DRILL_EFFECT": "1.05"}


def planned(**changes: Any) -> list[Any]:
    return schedule(ARMS, **({"blocks": 200, "seed": 3, "isolation": "fork"} | changes))


def test_schedule_depends_on_its_arguments_alone_and_grows_without_changing() -> None:
    assert planned() == planned()
    assert planned() != planned(seed=4)
    assert planned(blocks=201)[: 200 * 4] == planned()


def test_every_block_holds_every_arm_once_in_changing_order() -> None:
    runs = planned()
    places: Counter[tuple[str, int]] = Counter()
    for block in range(200):
        mine = [run for run in runs if run.block == block]
        assert sorted(run.arm for run in mine) == sorted(ARMS)
        assert [run.order for run in mine] == [0, 1, 2, 3]
        places.update((run.arm, run.order) for run in mine)
    counts = np.array([[places[arm, order] for order in range(4)] for arm in ARMS])
    assert stats.chi2_contingency(counts).pvalue > 1e-3
    assert len({run.run for run in runs}) == len(runs)


def test_spawned_blocks_are_whole_and_vary_the_environment() -> None:
    runs = planned(spawn_share=0.25)
    by_block = {b: {run.isolation for run in runs if run.block == b} for b in range(200)}
    assert all(len(kinds) == 1 for kinds in by_block.values())
    share = sum(kinds == {"spawn"} for kinds in by_block.values()) / 200
    assert stats.binomtest(round(share * 200), 200, 0.25).pvalue > 1e-3
    paddings = [run.env_padding for run in runs if run.isolation == "spawn"]
    assert len(set(paddings)) > 50
    assert {run.env_padding for run in runs if run.isolation == "fork"} == {0}
    assert {run.isolation for run in planned(isolation="spawn")} == {"spawn"}


def test_arms_that_must_be_spawned_are_and_inspections_come_first() -> None:
    runs = planned(spawn_only=frozenset({"fix"}), inspect=("side", "fix"))
    assert [(run.run, run.block) for run in runs[:2]] == [("inspect-00-side", -1), ("inspect-01-fix", -1)]
    assert all((run.isolation == "spawn") == (run.arm == "fix") for run in runs)


def test_spawned_run_sees_its_padding_and_gives_the_same_samples(tmp_path: Path) -> None:
    make(drill(blocks=1), tmp_path / "fork")
    make(drill(blocks=1), tmp_path / "spawn", isolation="spawn")
    one, two = (open_recording(tmp_path / name) for name in ("fork", "spawn"))
    pd.testing.assert_frame_equal(one.samples, two.samples)
    assert (two.runs["padding_seen"] == two.runs["env_padding"]).all()
    assert two.runs["env_padding"].gt(0).all()
    assert one.runs["padding_seen"].eq(0).all()


def test_looks_are_declared_before_the_first_run_with_solved_bounds() -> None:
    declared = looks.declare(30, looks=5, kind="pocock", alpha=0.05, judged=("side",))
    assert declared["blocks"] == [6, 12, 18, 24, 30]
    assert declared["p"] == pytest.approx([0.0158] * 5, abs=2e-4)  # Pocock 1977, five looks
    of = looks.declare(30, looks=5, kind="obrien-fleming", alpha=0.05, judged=("side",))
    assert 2 * stats.norm.sf(2.04 / np.sqrt([0.2, 0.4, 0.6, 0.8, 1])) == pytest.approx(of["p"], rel=0.03)


@pytest.mark.parametrize("blocks", [6, 7, 11, 12, 14, 29, 30, 61])
def test_every_look_has_six_blocks_more_and_the_last_has_all(blocks: int) -> None:
    counts = looks.look_blocks(blocks, 5)
    assert counts[-1] == blocks
    assert min(np.diff([0, *counts])) >= 6
    assert len(counts) == min(5, blocks // 6)


def decide(d: np.ndarray, declared: dict[str, Any], margin: float) -> tuple[str, int]:
    """Decision and block count at which a sequence of log-ratios stops."""
    for look, blocks in enumerate(declared["blocks"]):
        decision = looks.judge(d[:blocks], declared, look, margin)["decision"]
        if decision != "open":
            return decision, blocks
    return "open", declared["blocks"][-1]


@pytest.mark.parametrize("kind", looks.KINDS)
def test_sequential_error_and_power_by_simulation(kind: str) -> None:
    declared = looks.declare(30, looks=5, kind=kind, alpha=0.05, judged=("side",))
    rng, trials = np.random.default_rng(11), 1000
    limit = 0.07 + 2 * np.sqrt(0.07 * 0.93 / trials)  # at most 7 %, with twice the error of the simulation

    def simulate(effect: float, margin: float, count: int = trials) -> list[tuple[str, int]]:
        draws = rng.normal(np.log1p(effect), 0.01, (count, 30))
        return [decide(d, declared, margin) for d in draws]

    assert Counter(w for w, _ in simulate(0, 0.001))["different"] / trials <= limit
    assert Counter(w for w, _ in simulate(0.01, 0.01))["equivalent"] / trials <= limit
    for effect, margin, wanted, share in ((0.02, 0.005, "different", 0.95), (0, 0.03, "equivalent", 0.9)):
        found = simulate(effect, margin, 200)
        assert sum(decision == wanted for decision, _ in found) >= share * 200
        assert np.mean([blocks for _, blocks in found]) < 20


def test_futility_is_the_simulated_chance_of_a_decision() -> None:
    rng = np.random.default_rng(3)
    d = rng.normal(0.002, 0.01, 12)
    found = from_pairs(d)
    told = looks.chance_of_a_decision(found, 30, p=0.0158, p_equivalence=0.0158, margin=0.006)
    hits = 0
    for _ in range(4000):
        mean = rng.normal(d.mean(), d.std(ddof=1) / np.sqrt(12))
        final = (12 * d.mean() + rng.normal(mean, d.std(ddof=1), 18).sum()) / 30
        error = d.std(ddof=1) / np.sqrt(30)
        p_difference = 2 * stats.t.sf(abs(final) / error, 29)
        p_equivalence = stats.t.sf((np.log1p(0.006) - abs(final)) / error, 29)
        hits += p_difference < 0.0158 or p_equivalence < 0.0158
    assert told == pytest.approx(hits / 4000, abs=0.025)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"blocks": 5}, "at least 6"), ({"kind": "wald"}, "pocock"), ({"judged": ()}, "an arm beside")],
)
def test_sequential_designs_that_cannot_work_are_refused(changes: dict[str, Any], said: str) -> None:
    usual: dict[str, Any] = {"blocks": 12, "looks": 2, "kind": "pocock", "alpha": 0.05, "judged": ("a",)}
    arguments = usual | changes
    with pytest.raises(InputError, match=said):
        looks.declare(arguments.pop("blocks"), **arguments)


def test_recording_stops_at_the_first_look_that_decides_and_says_so(tmp_path: Path) -> None:
    plan = drill(("slow", "suspect", EFFECT), blocks=24)
    manifest = make(plan, tmp_path / "r", stop_early="pocock", looks=4)
    assert manifest["stopped_by"] == "looks"
    assert manifest["state"] == "complete"
    assert manifest["counts"]["blocks_whole"] == 6
    (row,) = manifest["looks"]
    values = open_recording(tmp_path / "r").block_values("step_us")
    test = stats.ttest_rel(np.log(values["slow"]), np.log(values["a"]))
    assert (row["decision"], row["n"]) == ("different", 6)
    assert row["p_value"] == pytest.approx(test.pvalue)
    assert row["p_needed"] == manifest["design"]["sequential"]["p"][0]
    again = make(plan, tmp_path / "r", resume=True)
    assert again["looks"] == manifest["looks"]
    assert again["counts"] == manifest["counts"]
    with pytest.raises(InputError, match="void their error"):
        make(plan, tmp_path / "r", resume=True, blocks=40)


def test_interrupted_sequential_recording_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    plan = drill(("slow", "suspect", {"RCATOOLS_DRILL_EFFECT": "1.004"}), blocks=18)
    make(plan, tmp_path / "whole", stop_early="pocock", looks=3)

    class Stop(Exception):
        """Ends a recording from outside."""

    from rcatools.experiment.runner import Options, record

    def stop_at(number: int, total: int, part: dict[str, Any]) -> None:
        if number == 13:
            raise Stop

    options = Options(out=tmp_path / "r", inspect=(), stop_early="pocock", looks=3)
    with pytest.raises(Stop):
        record(plan, options, stop_at)
    assert json.loads((tmp_path / "r" / "manifest.json").read_text())["state"] == "stopped"
    make(plan, tmp_path / "r", resume=True)
    same_samples(tmp_path / "r", tmp_path / "whole")
    manifests = [json.loads((tmp_path / n / "manifest.json").read_text()) for n in ("r", "whole")]
    assert manifests[0]["looks"] == manifests[1]["looks"]


def test_budget_ends_between_blocks_and_the_counts_say_how_many(tmp_path: Path) -> None:
    clock = iter(range(10**6))
    import rcatools.experiment.runner as runner

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner.time, "monotonic", lambda: float(next(clock)))
        manifest = make(drill(blocks=50), tmp_path / "r", budget_s=30.0)
    assert manifest["stopped_by"] == "budget"
    counts = manifest["counts"]
    assert 0 < counts["blocks_whole"] < 50
    assert counts["blocks_whole"] == counts["blocks_begun"] == counts["blocks_good"] == counts["ok"] / 2


def test_the_first_block_is_measured_whatever_the_budget(tmp_path: Path) -> None:
    manifest = make(drill(blocks=50), tmp_path / "r", budget_s=1e-9)
    assert manifest["stopped_by"] == "budget"
    assert manifest["counts"]["blocks_whole"] == 1


def test_pilot_tells_the_blocks_that_statsmodels_would_ask_for(tmp_path: Path) -> None:
    from statsmodels.stats.power import TTestPower

    make(drill(blocks=8), tmp_path / "p")
    recording = open_recording(tmp_path / "p")
    found = assess(recording, effect=0.004, planned=12)
    values = recording.block_values("step_us")
    d = np.log(values["a2"]) - np.log(values["a"])
    assert found.spread == pytest.approx(d.std(ddof=1))
    assert found.spread_cautious == pytest.approx(d.std(ddof=1) * np.sqrt(7 / stats.chi2.ppf(0.2, 7)))
    for sd, blocks in ((found.spread, found.blocks_needed), (found.spread_cautious, found.blocks_cautious)):
        n = TTestPower().solve_power(np.log(1.004) / sd, alpha=0.05, power=0.8)
        assert blocks == int(np.ceil(n))
    assert any(str(found.blocks_needed) in line for line in sentences(found, 3))


def test_pilot_command_records_the_two_baselines_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data" / "investigations" / "d"
    data.mkdir(parents=True)
    lines = ['workload="drill"', 'baseline="a"', 'metric="step_us"', "margin=0.02", "blocks=9"]
    for name, role in (("a", "baseline"), ("a2", "repeat"), ("s", "suspect")):
        lines += ["[[arm]]", f'name="{name}"', f'role="{role}"', 'summary=""']
    (data / "arms.toml").write_text("\n".join(lines))
    monkeypatch.setenv("RCATOOLS_DATA", str(tmp_path / "data"))
    assert main(["record", "d", "--out", str(tmp_path / "p"), "--pilot", "4"]) == 0
    said = capsys.readouterr().out
    assert set(open_recording(tmp_path / "p").runs["arm"]) == {"a", "a2"}
    assert "4 A/A blocks" in said
    assert "3 arms x" in said
    assert main(["record", "d", "--out", str(tmp_path / "q"), "--pilot", "2"]) == 2
    assert not (tmp_path / "q").exists()
