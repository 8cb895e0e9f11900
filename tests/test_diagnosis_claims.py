"""Published claims: the history of capture-stream replayed, and the kinds of public reports."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import synthetic_worlds as worlds

from rcatools.diagnosis import judge, load_investigation, parse_investigation
from rcatools.diagnosis.investigation import Investigation
from rcatools.diagnosis.records import ClaimResult, ClaimStatus, Diagnosis, Status
from rcatools.errors import InputError, UnknownNameError

SHARED = Path(__file__).resolve().parents[1].parent / "shared"
CASES = SHARED / "cases"
CAPTURE = load_investigation(
    Path(__file__).resolve().parents[1] / "data" / "investigations" / "capture-stream"
)

BASE = """
slug: case
title: t
question: q
effect: {suspect: b, baseline: a, metric: m, margin: 0.05}
arms: {a: {text: a}, b: {text: b}}
"""
NO_HYPOTHESES = "observations: {}\nhypotheses: []\n"


@pytest.fixture(scope="module")
def cliff() -> Diagnosis:
    recording, _ = worlds.in_memory(worlds.make("queue_cliff", 3), "cliff")
    return judge(CAPTURE, [recording])


def claim(diagnosis: Diagnosis, name: str) -> ClaimResult:
    return next(item for item in diagnosis.claims if item.id == name)


def test_the_july_claim_is_not_attributable_and_says_why(cliff: Diagnosis) -> None:
    found = claim(cliff, "july_side_stream")
    assert found.status is ClaimStatus.NOT_ATTRIBUTABLE
    assert any("without the named cause" in text for text in found.reasons)
    assert {item.key for item in found.environment} >= {"card", "backend", "vllm"}
    assert found.pending is not None
    assert "--device rocm" in found.pending


def test_the_revert_is_neutral_now_and_not_never_real(cliff: Diagnosis) -> None:
    neutral = claim(cliff, "revert_neutral")
    assert neutral.status is ClaimStatus.SUPPORTED
    assert "8 cells" in neutral.measured
    never = claim(cliff, "revert_never_real")
    assert never.status is ClaimStatus.NOT_ATTRIBUTABLE
    assert "ROCm runtime: before the cross-stream backport there" in never.measured
    assert any("cannot refute 'profiling on a new stream costs" in text for text in never.reasons)


def test_the_aiter_attribution_falls_by_size_and_behaviour(cliff: Diagnosis) -> None:
    found = claim(cliff, "aiter_owner")
    assert found.status is ClaimStatus.CONTRADICTED
    failed = [p for p in cliff.hypothesis("aiter_scratch").predictions if p.holds is False]
    assert {p.observation for p in failed} >= {
        "published_block_is_aiter",
        "block_after_clear",
        "block_follows_ws_32",
    }
    assert cliff.hypothesis("blas_workspace").status is Status.SUPPORTED
    assert found.pending is not None
    assert "side_ws_32" in found.pending


def test_the_history_can_be_replayed_without_any_recording() -> None:
    found = judge(CAPTURE, [])
    statuses = {item.id: item.status for item in found.claims}
    assert statuses["july_side_stream"] is ClaimStatus.NOT_TESTABLE
    assert statuses["revert_neutral"] is ClaimStatus.SUPPORTED
    assert statuses["revert_never_real"] is ClaimStatus.NOT_ATTRIBUTABLE
    assert statuses["aiter_owner"] is ClaimStatus.CONTRADICTED


def test_a_cause_refuted_here_is_not_refuted_on_the_claim_s_own_device(cliff: Diagnosis) -> None:
    assert cliff.hypothesis("placement").status is Status.CONTRADICTED
    found = claim(cliff, "cause_placement")
    assert found.status is ClaimStatus.NOT_REPRODUCED
    assert any("another device" in text for text in found.reasons)


def test_in_a_world_without_an_effect_the_july_number_is_not_reproduced() -> None:
    recording, _ = worlds.in_memory(worlds.make("nothing", 3), "quiet")
    found = claim(judge(CAPTURE, [recording]), "july_side_stream")
    assert found.status is ClaimStatus.NOT_REPRODUCED
    assert any("detection limit" in text for text in found.reasons)


def judged(yaml: str, tables: dict[str, pd.DataFrame]) -> Diagnosis:
    return judge(Investigation(parse_investigation(BASE + yaml)), [], tables)


TABLE = NO_HYPOTHESES + (
    "tables: {claims: ''}\n"
    "claim_tables: [{table: claims, id: claim, published: published, measured: median, low: min, high: max, "
    "repeats: repeats, unit: unit, tolerance_percent: tolerance_pct, source: the report}]\n"
)


def rows(*values: tuple[str, float, float, float, float]) -> pd.DataFrame:
    frame = pd.DataFrame(values, columns=["claim", "published", "median", "min", "max"])
    return frame.assign(unit="GB/s", repeats=3, tolerance_pct=15)


def test_values_inside_the_tolerance_are_not_confirmations() -> None:
    found = judged(
        TABLE,
        {
            "claims": rows(
                ("far_below", 100.0, 80.0, 79.0, 81.0),
                ("below", 100.0, 95.0, 94.0, 96.0),
                ("covered", 100.0, 99.0, 97.0, 101.0),
                ("above", 100.0, 103.0, 102.0, 104.0),
            )
        },
    )
    statuses = {item.id: item.status for item in found.claims}
    assert statuses == {
        "far_below": ClaimStatus.CONTRADICTED,
        "below": ClaimStatus.NOT_REPRODUCED,
        "covered": ClaimStatus.SUPPORTED,
        "above": ClaimStatus.SUPPORTED,
    }
    assert "drift -5.0 % (worse than published)" in claim(found, "below").reasons
    assert "drift +3.0 % (better than published)" in claim(found, "above").reasons
    assert any("not a confirmation" in text for text in claim(found, "below").reasons)


def test_missing_measurements_and_single_runs_say_so() -> None:
    yaml = NO_HYPOTHESES + (
        "tables: {t: ''}\n"
        "claims:\n"
        + "".join(
            f"  - {{id: {name}, text: returned, source: s, published: all of it, judged: {{by: value, at_least: 0.9, "
            f"measured: {{ratio: [{{table: t, column: freed, where: {{fix: {number}}}}}, {{sum: [{{table: t, column: freed, "
            f"where: {{fix: {number}}}}}, {{table: t, column: kept, where: {{fix: {number}}}}}]}}]}}, "
            f"repeats: {{table: t, column: runs, where: {{fix: {number}}}}}}}}}\n"
            for name, number in (("one", 1), ("two", 2), ("three", 3))
        )
    )
    table = pd.DataFrame(
        {"fix": [1, 2, 3], "freed": [None, 2.03, 176.16], "kept": [None, 178.23, 3.94], "runs": [None, 1, 3]}
    )
    found = judged(yaml, {"t": table})
    assert [item.status for item in found.claims] == [
        ClaimStatus.NOT_TESTABLE,
        ClaimStatus.CONTRADICTED,
        ClaimStatus.SUPPORTED,
    ]
    assert any("one run" in text for text in claim(found, "two").reasons)
    assert not any("one run" in text for text in claim(found, "three").reasons)


def test_a_kernel_gain_that_the_step_does_not_show_is_not_explained() -> None:
    yaml = (
        "tables: {kernel: '', step: ''}\n"
        "observations:\n"
        "  shown:\n"
        "    check: reconcile\n"
        "    text: the measured change against the predicted one\n"
        "    part: {difference: [{table: step, column: us, where: {arm: before}}, {table: step, column: us, where: {arm: after}}]}\n"
        "    whole: {product: [{difference: [{table: kernel, column: us, where: {arm: before}}, {table: kernel, column: us, where: {arm: after}}]}, {table: kernel, column: calls, where: {arm: after}}]}\n"
        "hypotheses: [{id: gain, title: gain, stands: it helps, predicts: {shown: explained}}]\n"
        "claims: [{id: faster, text: decode is faster, source: s, published: 1 %, judged: {by: hypothesis, hypothesis: gain}}]\n"
    )
    kernel = pd.DataFrame({"arm": ["before", "after"], "us": [50.0, 40.0], "calls": [20, 20]})
    step = pd.DataFrame({"arm": ["before", "after"], "us": [10_000.0, 9_805.0]})
    assert judged(yaml, {"kernel": kernel, "step": step}).hypothesis("gain").status is Status.SUPPORTED
    quiet = judged(
        yaml,
        {"kernel": kernel, "step": pd.DataFrame({"arm": ["before", "after"], "us": [10_000.0, 10_009.0]})},
    )
    assert quiet.hypothesis("gain").status is Status.CONTRADICTED
    assert quiet.claims[0].status is ClaimStatus.CONTRADICTED
    value = quiet.observations[0].outcome.evidence[0].value
    assert value == pytest.approx(-9 / 200)


def test_wrong_tables_are_one_line() -> None:
    with pytest.raises(UnknownNameError, match="column of table claims 'median'"):
        judged(TABLE, {"claims": rows(("x", 1, 1, 1, 1)).drop(columns="median")})
    with pytest.raises(InputError, match="matches 2 rows"):
        judged(TABLE, {"claims": rows(("x", 1, 1, 1, 1), ("x", 2, 2, 2, 2))})
    with pytest.raises(InputError, match="'fast' is not a number"):
        judged(TABLE, {"claims": rows(("x", 1, 1, 1, 1)).assign(median="fast")})
    with pytest.raises(UnknownNameError, match="table 'claims'"):
        judged(TABLE, {})


needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not here")


def case_table(case: str, name: str) -> pd.DataFrame:
    return pd.read_csv(CASES / case / name)


@needs_cases
def test_case_five_published_claims() -> None:
    found = judged(TABLE, {"claims": case_table("five-published-claims", "claims.csv")})
    assert {item.id: item.status.value for item in found.claims} == {
        "prefill_4h": "contradicted",
        "sherry_gemv": "not_reproduced",
        "tq1_gemv": "not_reproduced",
        "halo_gemv": "supported",
        "prefill_i8apre": "not_reproduced",
    }
    drifts = {item.id: item.reasons[0].split(" (")[0] for item in found.claims}
    assert drifts["prefill_4h"] == "drift -16.6 %"
    assert drifts["halo_gemv"] == "drift +2.7 %"
    expected = json.loads((CASES / "five-published-claims" / "expected.json").read_text(encoding="utf-8"))
    assert expected["right_output"]["numbers"]["tq1"] == "-6.20%"
    assert drifts["tq1_gemv"] == "drift -6.2 %"


@needs_cases
def test_case_hot_kernel_is_not_the_gap() -> None:
    yaml = (
        "tables: {totals: ''}\n"
        "observations:\n"
        "  whole_gap:\n"
        "    check: reconcile\n"
        "    text: the quantizer explains the gap\n"
        "    share: 0.9\n"
        "    part: {difference: [{table: totals, column: quantize_ms_per_token, where: {engine: X}}, {table: totals, column: quantize_ms_per_token, where: {engine: Y}}]}\n"
        "    whole: {difference: [{table: totals, column: kernel_ms_per_token, where: {engine: X}}, {table: totals, column: kernel_ms_per_token, where: {engine: Y}}]}\n"
        "hypotheses: [{id: quantizer, title: the quantizer, stands: the quantizer is the gap, predicts: {whole_gap: explained}}]\n"
    )
    found = judged(yaml, {"totals": case_table("hot-kernel-is-not-the-gap", "totals.csv")})
    assert found.hypothesis("quantizer").status is Status.CONTRADICTED
    assert found.observations[0].outcome.evidence[0].value == pytest.approx(0.409, abs=0.0005)


@needs_cases
def test_case_kernel_win_without_end_to_end() -> None:
    yaml = (
        "tables: {kernel: '', e2e: ''}\n"
        "observations:\n"
        "  shown:\n"
        "    check: reconcile\n"
        "    text: the measured saving against the predicted one\n"
        "    part: {product: [1000, {difference: [{table: e2e, column: tpot_ms, where: {arm: before}}, {table: e2e, column: tpot_ms, where: {arm: after}}]}]}\n"
        "    whole: {product: [{difference: [{table: kernel, column: median_us, where: {arm: before}}, {table: kernel, column: median_us, where: {arm: after}}]}, {table: kernel, column: calls_per_step, where: {arm: after}}]}\n"
        "  kernel_faster: {check: compare, text: the kernel is faster, left: {table: kernel, column: median_us, where: {arm: after}}, right: {table: kernel, column: median_us, where: {arm: before}}, tolerance: 0.02}\n"
        "hypotheses: [{id: end_to_end, title: e, stands: it helps, predicts: {shown: explained}}]\n"
        "claims:\n"
        "  - {id: kernel, text: the kernel is faster, source: s, published: 15.5 %, judged: {by: observation, observation: kernel_faster, outcomes: less}}\n"
        "  - {id: decode, text: decode is faster, source: s, published: 1 %, judged: {by: hypothesis, hypothesis: end_to_end}}\n"
    )
    tables = {name: case_table("kernel-win-no-e2e", f"{name}.csv") for name in ("kernel", "e2e")}
    found = judged(yaml, tables)
    assert {item.id: item.status.value for item in found.claims} == {
        "kernel": "supported",
        "decode": "contradicted",
    }
    assert "248" in found.observations[0].outcome.observed
