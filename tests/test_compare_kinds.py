"""The kinds behind the public reports, with fresh numbers: each must be read right for its own reason."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from compare_help import arm, compare, result, run, write

RNG = np.random.default_rng(20261201)


def noise(sd: float, n: int) -> np.ndarray:
    return np.exp(RNG.normal(0, sd, n))


def blocks(
    path: Path, effects: dict[str, float], n: int = 12, sd: float = 0.005, drift: float = 0.03
) -> Path:
    level = 100 * np.exp(drift * np.cumsum(RNG.normal(size=n)) / np.sqrt(n))
    rows = [
        (name, i, value)
        for name, effect in effects.items()
        for i, value in enumerate(level * effect * noise(sd, n))
    ]
    return write(path, "arm,block,value", rows)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def test_pairs_see_what_drift_hides(table: Path) -> None:
    document = compare(blocks(table, {"off": 1, "on": 1.02}), "--baseline", "off")
    assert (document["verdict"], document["unit"], document["paired"]) == ("slower", "block", True)
    assert arm(document)["reasons"] == ["interval_excludes_one"]
    assert arm(document)["ratio"] == pytest.approx(1.02, abs=0.006)
    assert compare(blocks(table, {"off": 1, "on": 0.97}), "--baseline", "off")["verdict"] == "faster"
    assert compare(blocks(table, {"off": 1, "on": 1}), "--baseline", "off")["verdict"] == "equivalent"


def test_rates_are_turned_into_times(table: Path) -> None:
    rows = [(a, i, v) for a, m in (("old", 40.0), ("new", 44.0)) for i, v in enumerate(m * noise(0.01, 8))]
    document = compare(write(table, "arm,run,tok_s", rows), "--baseline", "old", "--higher-is-better")
    assert document["verdict"] == "faster"
    assert arm(document)["ratio"] == pytest.approx(40 / 44, rel=0.02)
    assert arm(document)["value_ratio"] == pytest.approx(1.1, rel=0.02)
    assert document["levels"]["new"] == pytest.approx(44, rel=0.02)
    assert compare(table, "--baseline", "old")["verdict"] == "faster"  # by the column's name
    assert compare(table, "--baseline", "old", "--lower-is-better")["verdict"] == "slower"


@pytest.mark.parametrize("columns", ["arm,run,sample,value", "arm,process,iteration,value"])
def test_one_process_an_arm_is_one_run(table: Path, columns: str) -> None:
    rows = [(a, 1, s, v) for a, m in (("a", 100), ("b", 104)) for s, v in enumerate(m * noise(0.005, 60))]
    document = compare(write(table, columns, rows), "--baseline", "a")
    entry = arm(document)
    assert entry["verdict"] == "undecided"
    assert entry["reasons"][0] == "single_run_per_arm"
    assert "pooled_samples_refused" in entry["reasons"]
    assert entry["p_value"] is None
    assert entry["n"] == 1


def test_samples_without_runs_are_refused(table: Path) -> None:
    rows = [(a, s, v) for a, m in (("a", 100), ("b", 104)) for s, v in enumerate(m * noise(0.005, 200))]
    entry = arm(compare(write(table, "arm,sample,value", rows), "--baseline", "a"))
    assert (entry["verdict"], entry["n"]) == ("undecided", 1)
    assert "pooled_samples_refused" in entry["reasons"]
    nameless = write(table, "arm,value", [(a, v) for a, _, v in rows])
    assert "pooled_samples_refused" in arm(compare(nameless, "--baseline", "a"))["reasons"]
    assert arm(compare(nameless, "--baseline", "a", "--unit", "row"))["verdict"] == "slower"


def test_runs_not_samples_decide_and_the_reader_is_told(table: Path) -> None:
    levels = {"a": [1.00, 1.03, 0.98, 1.02, 0.99], "b": [1.02, 1.04, 0.99, 1.05, 1.01]}
    rows = [
        (a, r, s, v)
        for a, runs in levels.items()
        for r, level in enumerate(runs)
        for s, v in enumerate(100 * level * noise(0.002, 50))
    ]
    document = compare(write(table, "arm,run,sample,value", rows), "--baseline", "a")
    assert (document["unit"], arm(document)["n"], document["verdict"]) == ("run", 5, "undecided")
    assert "pooled_samples_refused" in arm(document)["reasons"]


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_a_spawn_lottery_gives_no_verdict(table: Path, share: float) -> None:
    n = 12
    slow = np.arange(n) % round(1 / share) == 0
    rows = [
        (a, i, v)
        for a in ("a", "b")
        for i, v in enumerate(33 * np.where(RNG.permutation(slow), 1.21, 1.0) * noise(0.004, n))
    ]
    document = compare(write(table, "arm,process,value", rows), "--baseline", "a")
    assert document["verdict"] == "undecided"
    assert arm(document)["reasons"][0] == "modes_in_arm"


def test_levels_in_one_arm_only(table: Path) -> None:
    rows = [("a", i, v) for i, v in enumerate(50 * noise(0.01, 12))]
    rows += [
        ("b", i, v) for i, v in enumerate(50 * noise(0.01, 12) * np.where(np.arange(12) % 3 == 0, 1.2, 1.0))
    ]
    entry = arm(compare(write(table, "arm,run,value", rows), "--baseline", "a"))
    assert entry["verdict"] == "undecided"
    assert entry["reasons"][0] == "modes_in_arm"
    assert "4 of 12" in " ".join(entry["warnings"])


def test_a_bimodal_baseline_with_few_runs(table: Path) -> None:
    rows = [("base", i, v) for i, v in enumerate([11.21, 12.74, 11.19, 11.23])]
    rows += [("head", i, v) for i, v in enumerate([12.71, 12.69, 12.77, 12.75])]
    entry = arm(compare(write(table, "arm,run,ms", rows), "--baseline", "base"))
    assert entry["verdict"] == "undecided"
    assert "modes_in_arm" in entry["reasons"]


@pytest.mark.parametrize("numbers", ["run", "order"])
def test_a_drift_is_no_effect(table: Path, numbers: str) -> None:
    values = 200 * 1.006 ** np.arange(16) * noise(0.001, 16)
    if numbers == "order":
        rows = [("a" if i < 8 else "b", i % 8, i, v) for i, v in enumerate(values)]
        write(table, "arm,run,order,value", rows)
    else:
        write(table, "arm,run,value", [("a" if i < 8 else "b", i % 8, v) for i, v in enumerate(values)])
    entry = arm(compare(table, "--baseline", "a"))
    assert entry["verdict"] == "undecided"
    assert entry["reasons"][0] == "order_or_drift"


def test_a_drift_that_always_favours_the_first_of_a_block(table: Path) -> None:
    values = 200 * 1.012 ** np.arange(20) * noise(0.001, 20)
    rows = [("ab"[i % 2], i // 2, i, v) for i, v in enumerate(values)]
    entry = arm(compare(write(table, "arm,block,order,value", rows), "--baseline", "a"))
    assert entry["verdict"] == "undecided"
    assert entry["reasons"][0] == "order_or_drift"


def test_alternating_arms_survive_a_drift(table: Path) -> None:
    turns = [RNG.permutation(["a", "b"]) for _ in range(12)]
    rows = [
        (name, block, 2 * block + turn, 100 * (1.04 if name == "b" else 1) * 1.002 ** (2 * block + turn) * v)
        for block, names in enumerate(turns)
        for turn, (name, v) in enumerate(zip(names, noise(0.002, 2), strict=True))
    ]
    entry = arm(compare(write(table, "arm,block,order,value", rows), "--baseline", "a"))
    assert entry["verdict"] == "slower"
    assert "order_or_drift" not in entry["reasons"]


def test_a_position_in_the_block_that_explains_the_effect(table: Path) -> None:
    rows = [
        (name, block, turn, 100 * (1.03 if turn else 1) * v)
        for block in range(12)
        for turn, (name, v) in enumerate(zip("ba" if block in (3, 7) else "ab", noise(0.003, 2), strict=True))
    ]
    entry = arm(compare(write(table, "arm,block,order,value", rows), "--baseline", "a"))
    assert entry["verdict"] == "undecided"
    assert entry["reasons"][0] == "order_or_drift"


def test_a_fixed_order_in_every_block_is_mentioned(table: Path) -> None:
    rows = [
        (name, block, turn, 100 * (1.04 if name == "b" else 1) * v)
        for block in range(8)
        for turn, (name, v) in enumerate(zip("ab", noise(0.003, 2), strict=True))
    ]
    entry = arm(compare(write(table, "arm,block,order,value", rows), "--baseline", "a"))
    assert entry["verdict"] == "slower"
    assert "order_or_drift" in entry["reasons"]
    assert "always ran after" in " ".join(entry["warnings"])
    words = write(table, "arm,block,order,value", [(a, b, "AB", v) for a, b, _, v in rows])
    assert "the order stays unknown" in " ".join(compare(words, "--baseline", "a")["notes"])


def test_few_blocks_of_many_runs_are_strata(table: Path) -> None:
    rows = [
        (a, block, f"{block}-{i}", level * v * (1.03 if a == "b" else 1))
        for block, level in enumerate((10, 12))
        for a in "ab"
        for i, v in enumerate(noise(0.005, 6))
    ]
    document = compare(write(table, "arm,block,run,value", rows), "--baseline", "a")
    assert (document["verdict"], document["unit"], document["paired"]) == ("slower", "run", False)
    assert arm(document)["n"] == 12
    assert arm(document)["reasons"] == ["interval_excludes_one"]


@pytest.mark.parametrize("n", [3, 4, 6])
def test_one_run_carries_the_effect(table: Path, n: int) -> None:
    before = [9100.0, *(7700 * np.linspace(0.992, 1.008, n - 1))]
    after = list(7690 * np.linspace(0.993, 1.009, n))
    rows = [(a, i, v) for a, values in (("before", before), ("after", after)) for i, v in enumerate(values)]
    document = compare(write(table, "arm,run,tok_s", rows), "--baseline", "before", "--higher-is-better")
    entry = arm(document)
    assert entry["verdict"] == "undecided"
    assert {"outlier_carries_effect", "unequal_spread"} <= set(entry["reasons"])
    assert entry["without_extreme"]["value"] == pytest.approx(9100)
    assert abs(math.log(entry["without_extreme"]["ratio"])) < 0.005
    assert entry["n"] == n


def test_clear_separation_of_three_runs_an_arm(table: Path) -> None:
    rows = [("B", i, v) for i, v in enumerate([21.3, 21.6, 21.1])] + [
        ("A", i, v) for i, v in enumerate([18.9, 19.2, 19.0])
    ]
    entry = arm(compare(write(table, "arm,rep,ms", rows), "--baseline", "B"))
    assert entry["verdict"] == "faster"
    assert entry["p_floor"] == pytest.approx(0.1)
    assert "too_few_runs" in entry["reasons"]


@pytest.mark.parametrize("name", ["off_again", "off2", "off (2)", "OFF-rerun", "A/A", "off earlier run"])
def test_an_arm_repeated_is_the_noise_floor(table: Path, name: str) -> None:
    document = compare(blocks(table, {"off": 1, name: 1, "on": 1.004}, sd=0.006), "--baseline", "off")
    assert document["noise_floor"] > 0.001
    assert [entry["role"] for entry in document["arms"]] == ["candidate", "repeat"]
    assert arm(document)["arm"] == "on"
    assert arm(document)["verdict"] in ("undecided", "equivalent")
    strong = compare(blocks(table, {"off": 1, name: 1, "on": 1.05}), "--baseline", "off")
    assert strong["verdict"] == "slower"


def test_an_effect_inside_a_biased_control_is_undecided(table: Path) -> None:
    path = blocks(table, {"off": 1, "off_again": 1.03, "on": 1.029}, sd=0.003)
    document = compare(path, "--baseline", "off")
    assert arm(document, "on")["reasons"][0] == "within_noise_floor"
    assert "differs from the baseline by itself" in " ".join(document["warnings"])
    free = compare(path, "--baseline", "off", "--not-aa", "off_again", "--arm", "on")
    assert arm(free, "on")["verdict"] == "slower"


def test_a_label_repeated_in_each_block_is_the_noise_floor(table: Path) -> None:
    rows = [
        (block, name, level * effect * v)
        for block, level in enumerate(100 * noise(0.03, 10))
        for name, effect, v in zip(("off", "on", "off"), (1, 1.05, 1), noise(0.004, 3), strict=True)
    ]
    document = compare(write(table, "block,arm,value", rows), "--baseline", "off")
    assert document["noise_floor"] is not None
    assert [entry["arm"] for entry in document["arms"]] == ["on", "off (again)"]
    assert arm(document)["verdict"] == "slower"


def test_two_files_of_one_build_are_the_noise_floor(tmp_path: Path) -> None:
    path = blocks(tmp_path / "ab.csv", {"off": 1, "on": 1.05})
    files = [
        write(tmp_path / f"{name}.csv", "run,value", [(i, v) for i, v in enumerate(100 * noise(0.004, 8))])
        for name in ("monday", "tuesday")
    ]
    document = compare(path, "--baseline", "off", "--aa-table", files[0], "--aa-table", files[1])
    assert 0.001 < document["noise_floor"] < 0.02
    assert document["verdict"] == "slower"


def test_a_floor_from_loose_runs_is_not_that_of_pairs(tmp_path: Path) -> None:
    runs = [100.0, 101.0, 99.0, 102.0, 98.5, 100.5]
    loose = write(tmp_path / "aa.csv", "run,value", enumerate(runs))
    path = blocks(tmp_path / "ab.csv", {"off": 1, "on": 1.05}, n=9)
    floor = compare(path, "--baseline", "off", "--aa-table", loose)["noise_floor"]
    sd = np.std(np.log(runs), ddof=1)
    assert floor == pytest.approx(math.expm1(2.5706 * sd * math.sqrt(2 / 9)), rel=1e-3)


def test_names_that_only_look_like_repeats(table: Path) -> None:
    document = compare(blocks(table, {"fa": 1, "fa2": 1.05, "k22": 1}), "--baseline", "fa")
    assert [entry["role"] for entry in document["arms"]] == ["candidate", "candidate"]
    assert document["noise_floor"] is None


def test_singles_against_repeated_runs_of_the_baseline(table: Path) -> None:
    rows = [("k2", i, v) for i, v in enumerate([41.0, 40.2, 42.1, 41.5, 40.8])] + [("k3", 0, 40.1)]
    document = compare(write(table, "arm,run,value", rows), "--baseline", "k2")
    assert {"within_noise_floor", "single_run_per_arm"} <= set(arm(document)["reasons"])
    assert document["noise_floor"] == pytest.approx(2.776 * 0.0176 * math.sqrt(1 / 5 + 1), rel=0.05)


def test_arms_on_different_machines(table: Path) -> None:
    rows = [("a", "m1", v) for v in 10 * noise(0.01, 6)] + [("b", "m2", v) for v in 11 * noise(0.01, 6)]
    entry = arm(compare(write(table, "arm,machine,value", rows), "--baseline", "a"))
    assert entry["verdict"] == "undecided"
    assert entry["reasons"][0] == "mixed_machines"
    assert entry["p_value"] is None
    assert entry["ci_low"] is None
    assert entry["ratio"] == pytest.approx(1.1, rel=0.02)


def test_unbalanced_machines_are_compared_inside_each(table: Path) -> None:
    rows = [
        ("a", m, i, s * v)
        for m, s, n in (("m1", 10, 8), ("m2", 13, 3))
        for i, v in enumerate(noise(0.005, n))
    ]
    rows += [
        ("b", m, i, s * v)
        for m, s, n in (("m1", 10, 3), ("m2", 13, 8))
        for i, v in enumerate(noise(0.005, n))
    ]
    entry = arm(compare(write(table, "arm,machine,run,value", rows), "--baseline", "a"))
    assert entry["verdict"] in ("equivalent", "undecided")
    assert "mixed_machines" in entry["reasons"]
    assert entry["ratio"] == pytest.approx(1, abs=0.01)


def test_arms_on_different_days(table: Path) -> None:
    rows = [("a", "mon", v) for v in 10 * noise(0.01, 5)] + [("b", "tue", v) for v in 10.5 * noise(0.01, 5)]
    entry = arm(compare(write(table, "arm,day,value", rows), "--baseline", "a"))
    assert entry["verdict"] == "undecided"
    assert entry["reasons"][0] == "order_or_drift"


def test_blocks_whose_arms_ran_on_different_machines(table: Path) -> None:
    fixed = [
        (a, i, m, v)
        for i in range(8)
        for a, m, v in zip("ab", ("m1", "m2"), 10 * noise(0.01, 2), strict=True)
    ]
    entry = arm(compare(write(table, "arm,block,machine,value", fixed), "--baseline", "a"))
    assert entry["reasons"][0] == "mixed_machines"
    swapped = [(a, i, f"m{(i + j) % 2}", (1.1 if a == "b" else 1) * v)
               for i in range(8) for j, (a, v) in enumerate(zip("ab", 10 * noise(0.01, 2), strict=True))]  # fmt: skip
    entry = arm(compare(write(table, "arm,block,machine,value", swapped), "--baseline", "a"))
    assert entry["verdict"] == "slower"


def test_several_arms_are_corrected(table: Path) -> None:
    paired = compare(blocks(table, {"off": 1, "x": 1.05, "y": 1, "z": 1}), "--baseline", "off")
    assert paired["correction"] == "holm"
    assert all(entry["p_adjusted"] >= entry["p_value"] for entry in paired["arms"])
    rows = [
        (a, i, v) for a, m in (("off", 100), ("x", 104), ("y", 100)) for i, v in enumerate(m * noise(0.01, 8))
    ]
    unpaired = compare(write(table, "arm,run,value", rows), "--baseline", "off")
    assert unpaired["correction"] == "dunnett"
    assert {entry["arm"]: entry["verdict"] for entry in unpaired["arms"]}["x"] == "slower"


def test_many_kernels_are_controlled_together(table: Path) -> None:
    rows = [
        (f"k{k}", a, block, level * v * (1.06 if a == "on" and k < 4 else 1))
        for k in range(60)
        for block, level in enumerate(10 * noise(0.02, 8))
        for a, v in zip(("off", "on"), noise(0.01, 2), strict=True)
    ]
    document = compare(write(table, "kernel,arm,block,value", rows), "--baseline", "off", "--margin", "0.01")
    verdicts = {entry["workload"]: entry["verdict"] for entry in document["results"]}
    assert document["correction"] == "benjamini-hochberg"
    assert document["verdict"] == "slower"
    slower = {name for name, verdict in verdicts.items() if verdict == "slower"}
    assert slower >= {"k0", "k1", "k2", "k3"}
    assert sum(verdict in ("slower", "faster") for verdict in verdicts.values()) <= 5


def test_summaries_are_judged_as_far_as_they_allow(table: Path) -> None:
    from scipy import stats

    write(table, "arm,mean_ms,sd_ms,n", [("a", 100, 2.0, 8), ("b", 106, 2.5, 8)])
    entry = arm(compare(table, "--baseline", "a"))
    assert entry["verdict"] == "slower"
    logs = [
        (math.log(m) - 0.5 * math.log1p((s / m) ** 2), math.sqrt(math.log1p((s / m) ** 2)))
        for m, s in ((100, 2), (106, 2.5))
    ]
    reference = stats.ttest_ind_from_stats(
        logs[1][0], logs[1][1], 8, logs[0][0], logs[0][1], 8, equal_var=False
    )
    assert entry["p_value"] == pytest.approx(reference.pvalue, rel=1e-6)
    write(table, "arm,mean_ms,sd_ms,rounds", [("a", 100, 2.0, 5000), ("b", 106, 2.5, 5000)])
    entry = arm(compare(table, "--baseline", "a"))
    assert entry["verdict"] == "undecided"
    assert {"single_run_per_arm", "pooled_samples_refused"} <= set(entry["reasons"])
    write(table, "arm,mean_ms,sd_ms,n", [("a", 100, 2.0, 8), ("a_again", 104, 2.0, 8), ("b", 104.5, 2.0, 8)])
    document = compare(table, "--baseline", "a")
    assert arm(document, "b")["reasons"][0] == "within_noise_floor"
    assert document["noise_floor"] > 0.045
    write(table, "arm,median_ms,runs", [("a", 100, 3), ("b", 103, 3)])
    entry = arm(compare(table, "--baseline", "a"))
    assert entry["reasons"][0] == "interval_too_wide"
    assert "would be shown if runs spread by less than" in " ".join(entry["warnings"])


def test_a_published_number_is_a_claim_not_an_arm(table: Path) -> None:
    rows = [("w1", 50.0, 40.0, 39.8, 40.1, 5, 10), ("w2", 50.0, 51.0, 50.9, 51.2, 5, 10)]
    write(table, "claim,published,median,min,max,repeats,tolerance_pct", rows)
    document = compare(table, "--baseline", "published", "--higher-is-better")
    assert result(document, "w1")["verdict"] == "slower"
    assert result(document, "w2")["verdict"] == "equivalent"
    assert result(document, "w2")["arms"][0]["value_ratio"] == pytest.approx(1.02)


def test_gate(table: Path) -> None:
    path = blocks(table, {"off": 1, "on": 1.05, "off_again": 1})
    assert run(path, "--baseline", "off", "--fail-on", "slower")[0] == 1
    assert run(path, "--baseline", "off", "--fail-on", "faster", "--fail-on", "undecided")[0] == 0
    assert run(path, "--baseline", "off")[0] == 0
