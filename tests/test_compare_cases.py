"""Public reports with numbers: the verdict and the reasons that a careful reader gives.

Files and expected readings lie beside the checkout; without them these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compare_help import arm, compare, result

CASES = Path(__file__).resolve().parents[1].parent / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases at {CASES}")


def case(path: str, baseline: str, *args: object) -> dict[str, Any]:
    return compare(CASES / path, "--baseline", baseline, *args)


def test_bisect_outlier() -> None:
    document = case("bisect-outlier-3v3/runs.csv", "before", "--higher-is-better")
    after = arm(document)
    assert document["verdict"] == "undecided"
    assert {"interval_too_wide", "too_few_runs", "unequal_spread", "outlier_carries_effect"} <= set(
        after["reasons"]
    )
    assert after["p_value"] == pytest.approx(0.426, abs=0.005)
    assert after["p_exact"] == pytest.approx(0.6, abs=0.11)
    assert after["p_floor"] == pytest.approx(0.1)
    assert after["without_extreme"]["value"] == pytest.approx(9228)
    assert after["without_extreme"]["ratio"] == pytest.approx(1 / 1.0002, abs=5e-4)
    assert after["value_ratio"] == pytest.approx(7728 / 8198, abs=0.003)
    assert after["value_ci_high"] - after["value_ci_low"] > 0.4
    assert "20.8 %" in " ".join(after["warnings"])
    assert "baseline" in after["sentence"].split("Next:")[1]
    boards = case("bisect-outlier-3v3/baseline.csv", "baseline_other_board", "--higher-is-better")
    assert boards["verdict"] == "undecided"
    assert all("mixed_machines" in entry["arms"][0]["reasons"] for entry in boards["results"])


def test_moe_only_one_percent() -> None:
    document = case("moe-only-one-percent/decode.csv", "build24", "--higher-is-better")
    assert document["verdict"] == "undecided"
    assert document["noise_floor"] == pytest.approx(0.0055, abs=0.001)
    for workload in ("30B-A3B AWQ", "35B W4A16 VLM", "30B omni AWQ"):
        entry = result(document, workload)["arms"][0]
        assert entry["reasons"][0] == "single_run_per_arm"
        assert "likely real" in " ".join(entry["warnings"])
        assert entry["p_value"] is None
        assert entry["ci_low"] is None
    for workload in ("4B w4a16", "0.5B AWQ"):
        assert result(document, workload)["arms"][0]["reasons"][0] == "within_noise_floor"
    groups = {group["value"]: group for group in document["groups"]}
    assert set(groups) == {"moe", "dense"}
    assert 1 / groups["moe"]["ratio"] - 1 == pytest.approx(-0.0122, abs=1e-4)
    assert groups["moe"]["p_value"] == pytest.approx(0.011, abs=0.001)
    latency = case("moe-only-one-percent/ttft.csv", "build24_ms")
    small = result(latency, "0.5B AWQ")["arms"][0]
    assert small["verdict"] == "undecided"
    assert small["value_ratio"] == pytest.approx(15.8 / 16.2)


def test_bimodal_baseline() -> None:
    document = case("bimodal-baseline/ci_runs.csv", "base")
    assert document["verdict"] == "undecided"
    entries = [entry["arms"][0] for entry in document["results"]]
    assert [entry["ratio"] for entry in entries] == pytest.approx([1.111, 1.115, 1.116, 1.137], abs=5e-4)
    for entry in entries:
        assert {"single_run_per_arm", "modes_in_arm", "pooled_samples_refused"} <= set(entry["reasons"])
        assert entry["p_value"] is None
    assert "66 times" in " ".join(w for entry in entries for w in entry["warnings"])
    assert "machine's state" in " ".join(document["warnings"])
    assert document["groups"] == []


def test_spawn_and_idle_states() -> None:
    idle = case("spawn-and-idle-states/dense12b_idle.csv", "cold", "--higher-is-better")
    assert idle["verdict"] == "equivalent"
    assert idle["unit"] == "block"
    assert all(abs(entry["ratio"] - 1) < 0.005 for entry in idle["arms"])
    modes = case(
        "spawn-and-idle-states/dense12b_idle.csv", "PIECEWISE", "--higher-is-better", "--value", "cold"
    )
    graph = arm(modes)
    assert (graph["verdict"], graph["n"]) == ("undecided", 2)
    assert "too_few_runs" in graph["reasons"]
    assert graph["value_ratio"] == pytest.approx(1.04, abs=0.002)
    moe = case(
        "spawn-and-idle-states/moe26b.csv",
        "cold",
        "--arm-column",
        "when",
        "--ignore",
        "vllm",
        "--higher-is-better",
    )
    assert moe["verdict"] == "undecided"
    assert all("modes_in_arm" in entry["reasons"] for entry in moe["arms"])
    assert arm(moe, "late")["ratio"] == pytest.approx(73.65 / 42.5)


def test_five_published_claims() -> None:
    document = case("five-published-claims/claims.csv", "published")
    found = {entry["workload"]: entry["arms"][0] for entry in document["results"]}
    assert {name: entry["verdict"] for name, entry in found.items()} == {
        "prefill_4h": "slower",
        "sherry_gemv": "equivalent",
        "tq1_gemv": "equivalent",
        "halo_gemv": "equivalent",
        "prefill_i8apre": "undecided",
    }
    drift = {name: entry["value_ratio"] - 1 for name, entry in found.items()}
    expected = {
        "prefill_4h": -0.1657,
        "sherry_gemv": -0.0413,
        "tq1_gemv": -0.062,
        "halo_gemv": 0.0267,
        "prefill_i8apre": -0.1043,
    }
    assert drift == pytest.approx(expected, abs=1e-4)
    assert all(entry["margin"] == 0.15 for entry in found.values())
    for name in ("sherry_gemv", "tq1_gemv", "halo_gemv"):
        assert "interval_excludes_one" in found[name]["reasons"]
        assert "though not equal" in found[name]["sentence"]
    for entry in found.values():
        assert "outside the range" in " ".join(entry["warnings"])
        assert "judges the claim" in " ".join(entry["warnings"])


def test_kernel_win_without_end_to_end() -> None:
    kernel = case("kernel-win-no-e2e/kernel.csv", "before")
    assert kernel["verdict"] == "faster"
    assert arm(kernel)["ratio"] == pytest.approx(19.55 / 23.147)
    end = case("kernel-win-no-e2e/e2e.csv", "before")
    assert end["verdict"] == "undecided"
    for entry in (entry["arms"][0] for entry in end["results"]):
        assert "interval_too_wide" in entry["reasons"]
        assert entry["mde"] is None
        assert entry["p_value"] is None
        assert "no spread is given" in " ".join(entry["warnings"])


def test_fix_variants() -> None:
    document = case("fix-variants-time-memory/variants.csv", "single_stream")
    assert document["verdict"] == "undecided"
    found = {entry["metric"]: {a["arm"]: a for a in entry["arms"]} for entry in document["results"]}
    assert {"gpu_ms", "cpu_ms", "peak_reserved_gb"} <= set(found)
    assert found["gpu_ms"]["multi_stream"]["ratio"] - 1 == pytest.approx(-0.083, abs=5e-4)
    assert found["gpu_ms"]["multi_stream_optimized"]["ratio"] - 1 == pytest.approx(-0.073, abs=5e-4)
    assert found["peak_reserved_gb"]["multi_stream"]["ratio"] - 1 == pytest.approx(0.98, abs=5e-3)
    assert all(a["reasons"] == ["single_run_per_arm"] for arms in found.values() for a in arms.values())


def test_noise_floor_withdrawn() -> None:
    singles = case(
        "noise-floor-withdrawn/singles.csv",
        "2",
        "--arm-column",
        "k",
        "--higher-is-better",
        "--aa-table",
        CASES / "noise-floor-withdrawn/aa_runs.csv",
    )
    entry = arm(singles)
    assert entry["verdict"] == "undecided"
    assert {"within_noise_floor", "single_run_per_arm"} <= set(entry["reasons"])
    assert singles["noise_floor"] == pytest.approx(0.086, abs=0.004)
    engines = arm(case("noise-floor-withdrawn/engines.csv", "B", "--higher-is-better"))
    assert engines["verdict"] == "faster"
    assert engines["value_ratio"] == pytest.approx(1.105, abs=0.001)
    assert engines["value_ci_low"] == pytest.approx(1.056, abs=0.002)
    assert engines["value_ci_high"] == pytest.approx(1.156, abs=0.002)
    assert engines["p_value"] == pytest.approx(0.0057, abs=0.0015)
    assert engines["p_exact"] == pytest.approx(0.1)
    assert "too_few_runs" in engines["reasons"]


def test_timers_disagree_by_size() -> None:
    document = case("two-thirds-of-peak/timers.csv", "in_model_us")
    small = {a["arm"]: a for a in result(document, "1x1024x2048")["arms"]}
    large = {a["arm"]: a for a in result(document, "1x248320x2048")["arms"]}
    assert small["event_us"]["ratio"] - 1 == pytest.approx(0.123, abs=1e-3)
    assert small["graph_replay_us"]["ratio"] - 1 == pytest.approx(0.0075, abs=1e-3)
    assert large["event_us"]["ratio"] - 1 == pytest.approx(-0.016, abs=1e-3)
    assert document["verdict"] == "undecided"


@pytest.mark.parametrize(
    ("path", "baseline", "metric", "ratio"),
    [
        ("one-shot-side-stream/peaks.csv", "M_current_stream", "peak_reserved_mib", 242670 / 221706),
        ("device-counter-vs-allocator/decomposition.csv", "PP1_F", "device_counter", 12244 / 14326),
        ("hot-kernel-is-not-the-gap/totals.csv", "Y", "kernel_ms_per_token", 52.735 / 23.466),
    ],
)
def test_single_readings_of_memory_and_totals_stay_undecided(
    path: str, baseline: str, metric: str, ratio: float
) -> None:
    document = case(path, baseline)
    entry = next(entry for entry in document["results"] if entry["metric"] == metric)
    ratios = [a["ratio"] for a in entry["arms"]]
    assert any(r == pytest.approx(ratio) for r in ratios)
    assert document["verdict"] == "undecided"
    assert all("single_run_per_arm" in a["reasons"] for a in entry["arms"])
