"""Each check of the vocabulary against what another route, or a hand, computes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import synthetic_worlds as worlds
from scipy import stats

from rcatools import units
from rcatools.diagnosis import parse_investigation
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.checks import observe
from rcatools.diagnosis.checks_fit import fit_per_block
from rcatools.diagnosis.checks_kernels import above, trace_terms
from rcatools.diagnosis.checks_trend import best_cut
from rcatools.diagnosis.investigation import Investigation
from rcatools.diagnosis.parts import Outcome
from rcatools.diagnosis.steps import StepFigures, step_figures
from rcatools.diagnosis.verdicts import holds
from rcatools.recording import Manifest, Recording
from rcatools.trace.read import load_trace

SHARED = Path(__file__).resolve().parents[1].parent / "shared"
HEAD = """
slug: s
title: t
question: q
effect: {suspect: side, baseline: off, metric: step_us, margin: 0.01, repeat: [again]}
hypotheses: [{id: h, title: h, stands: h, predicts: {}}]
"""


def investigation(check: str, arms: list[str]) -> Investigation:
    listed = "\n".join(
        f"  {name}: {{text: {name}}}" for name in dict.fromkeys([*arms, "off", "side", "again"])
    )
    return Investigation(parse_investigation(f"{HEAD}arms:\n{listed}\nobservations:\n  o: {check}\n"))


def recording(
    times: dict[str, Any], facts: dict[str, dict[str, list[Any]]] | None = None, kernels: Any = None
) -> Recording:
    """One sample per run; ``times`` maps an arm to one time per block."""
    arms = list(times)
    rows = [
        {
            "arm": a,
            "block": b,
            "order": 0,
            "run": f"{b}-{a}",
            "metric": "step_us",
            "sample": 0,
            "value": float(v),
        }
        for a, values in times.items()
        for b, v in enumerate(values)
    ]
    runs = [
        {
            "run": f"{b}-{a}",
            "arm": a,
            "block": b,
            "order": 0,
            "isolation": "fork",
            "outcome": "ok",
            "reason": None,
            "started_utc": "",
            "wall_s": 1.0,
            **{key: values[b] for key, values in (facts or {}).get(a, {}).items()},
        }
        for a, values in times.items()
        for b in range(len(values))
    ]
    declared = [{"name": k, "bound": b, "per_step": c} for k, (b, c, _) in worlds.KERNELS.items()]
    manifest = Manifest(
        investigation="s",
        state="complete",
        created_utc="",
        command="",
        device={"backend": "cuda", "name": "D", "arch": "sm_90"},
        environment={},
        workload={"kernels": declared},
        design={"baseline": "off", "margin": 0.01, "confidence": 0.95, "arms": [{"name": a} for a in arms]},
    )
    table = pd.DataFrame(kernels or [], columns=["arm", "block", "run", "kernel", "sample", "us"])
    return Recording(Path("r"), manifest, pd.DataFrame(runs), pd.DataFrame(rows), table, {}, {}, ())


def outcome(
    check: str, given: Recording, arms: list[str] | None = None, steps: dict[str, StepFigures] | None = None
) -> Outcome:
    figures = {("r", arm): value for arm, value in (steps or {}).items()}
    case = Case(investigation(check, arms or list(given.manifest.arm_names)), [given], steps=figures)
    return observe(case, "o", case.spec.observations["o"], sensitive=None).outcome


def draw(seed: int, **effects: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drift = rng.normal(0, 0.01, 12)
    return {
        name: 1000 * np.exp(effect + drift + rng.normal(0, 0.003, 12)) for name, effect in effects.items()
    }


def test_ratio_agrees_with_a_paired_t_test_of_scipy() -> None:
    times = draw(1, off=0.0, side=0.05)
    found = outcome("{check: ratio, text: t, arm: side}", recording(times))
    test = stats.ttest_rel(np.log(times["side"]), np.log(times["off"]))
    interval = test.confidence_interval(0.95)
    assert found.name == "slower"
    evidence = found.evidence[0]
    assert evidence.ci_low == pytest.approx(math.exp(interval.low), rel=1e-9)
    assert evidence.ci_high == pytest.approx(math.exp(interval.high), rel=1e-9)
    assert evidence.detection_limit is not None
    assert 0 < evidence.detection_limit < 0.01


@pytest.mark.parametrize(("effect", "name"), [(0.0, "equivalent"), (0.05, "different"), (-0.05, "different")])
def test_equivalence_asks_the_other_way_round(effect: float, name: str) -> None:
    assert (
        outcome("{check: equivalence, text: t, arm: side}", recording(draw(2, off=0.0, side=effect))).name
        == name
    )


@pytest.mark.parametrize(
    ("share", "name"),
    [(0.0, "absent"), (1.0, "carries"), (1.4, "carries"), (0.5, "partial"), (-0.5, "absent")],
)
@pytest.mark.parametrize("effect", [0.05, -0.05])
def test_effect_share_decides_at_half_of_the_effect(share: float, name: str, effect: float) -> None:
    times = draw(3, off=0.0, side=effect, pad=share * effect)
    found = outcome("{check: effect_share, text: t, arm: pad}", recording(times))
    assert found.name == name
    assert found.definite is (name != "partial")
    pair, whole = np.log(times["pad"] / times["off"]), np.log(times["side"] / times["off"])
    error = math.hypot(stats.sem(pair), 0.5 * stats.sem(whole))
    p = 2 * stats.t.sf(abs(pair.mean() - 0.5 * whole.mean()) / error, 11)
    assert bool(p < 0.05) is (name != "partial")


def test_effect_share_is_not_tested_without_an_effect_or_arm() -> None:
    none = outcome(
        "{check: effect_share, text: t, arm: pad}", recording(draw(4, off=0.0, side=0.0, pad=0.05))
    )
    assert none.name is None
    assert "no effect" in none.reason
    missing = outcome(
        "{check: effect_share, text: t, arm: pad}", recording(draw(4, off=0.0, side=0.05)), ["pad"]
    )
    assert missing.name is None
    assert "pad" in missing.reason


def test_wide_noise_is_undecided_not_absent() -> None:
    rng = np.random.default_rng(5)
    times = {
        name: 1000 * np.exp(e + rng.normal(0, 0.05, 6))
        for name, e in {"off": 0, "side": 0.3, "pad": 0.1}.items()
    }
    found = outcome("{check: effect_share, text: t, arm: pad}", recording(times))
    assert not found.definite


def test_modes_names_two_levels_and_not_one() -> None:
    rng = np.random.default_rng(6)
    slow = rng.random(24) < 0.4
    base = {"off": slow[:12] * 0.2, "again": slow[12:] * 0.2, "side": np.zeros(12)}
    two = {name: 1000 * np.exp(level + rng.normal(0, 0.004, 12)) for name, level in base.items()}
    check = "{check: modes, text: t, arms_together: [off, again]}"
    found = outcome(check, recording(two))
    assert (found.name, found.definite) == ("two_modes", True)
    assert found.evidence[0].value == pytest.approx(math.exp(0.2), abs=0.02)
    one = outcome(check, recording(draw(7, off=0.0, again=0.0, side=0.05)))
    assert one.name == "one_mode"


@pytest.mark.parametrize(("slope", "name"), [(0.0, "flat"), (0.03, "rises"), (-0.03, "falls")])
def test_dose_follows_the_trend_of_the_arms(slope: float, name: str) -> None:
    times = draw(8, off=0.0, side=0.05, d1=0.0, d2=slope, d3=2 * slope, d4=3 * slope)
    found = outcome("{check: dose, text: t, doses: {d1: 1, d3: 30, d2: 10, d4: 400}}", recording(times))
    assert found.name == name
    ranks = np.arange(4)
    fitted = [
        np.polyfit(ranks, [math.log(times[f"d{k}"][b]) for k in (1, 2, 3, 4)], 1)[0] * 3 for b in range(12)
    ]
    assert found.evidence[0].value == pytest.approx(math.exp(np.mean(fitted)), rel=1e-9)


@pytest.mark.parametrize(
    ("levels", "name", "says"),
    [
        ([0, 0, 0.05, 0.05, 0.05], "step", "between 2 and 4"),
        ([0.05, 0.05, 0.05, 0.05, 0.05], "step", "between 0 and 1"),
        ([0, 0, 0, 0, 0.05], "step", "between 8 and 16"),
        ([0, 0, 0, 0, 0], "flat", ""),
        ([0.004, 0.007, 0.013, 0.025, 0.05], "ramp", ""),
        ([0.05, 0, 0.05, 0, 0.05], "irregular", ""),
        ([0.05, 0.05, 0, 0, 0], "irregular", ""),
    ],
)
def test_step_tells_a_jump_from_a_ramp_and_from_ups_and_downs(
    levels: list[float], name: str, says: str
) -> None:
    times = draw(9, off=0.0, side=0.05, **{f"s{k}": v for k, v in zip((1, 2, 4, 8, 16), levels, strict=True)})
    found = outcome("{check: step, text: t, counts: {s1: 1, s2: 2, s4: 4, s8: 8, s16: 16}}", recording(times))
    assert (found.name, found.definite) == (name, True), found.observed
    assert says in found.observed


def test_best_cut_minimizes_the_squares() -> None:
    levels = np.array([0.0, 0.1, 0.0, 1.0, 1.1])
    assert best_cut(levels) == 3


def kernel_rows(change: Any, blocks: int = 12, noise: float = 0.005) -> list[dict[str, Any]]:
    rng = np.random.default_rng(10)
    rows = []
    for name, (bound, _, us) in worlds.KERNELS.items():
        for arm in ("off", "side"):
            for b in range(blocks):
                time = change(bound, us) if arm == "side" else us
                value = time * math.exp(rng.normal(0, noise))
                rows.append({"arm": arm, "block": b, "run": "", "kernel": name, "sample": 0, "us": value})
    return rows


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda bound, us: us + 0.5, ("grows", "zero", "zero")),
        (lambda bound, us: us * (1.2 if bound == "bandwidth" else 1.0), ("zero", "grows", "zero")),
        (lambda bound, us: us * 1.2 + 0.5, ("grows", "grows", "grows")),
        (lambda bound, us: us, ("zero", "zero", "zero")),
    ],
    ids=["fixed", "bandwidth", "both", "nothing"],
)
def test_delta_fit_tells_a_fixed_cost_from_a_share(change: Any, expected: tuple[str, ...]) -> None:
    given = recording(draw(11, off=0.0, side=0.08), kernels=kernel_rows(change))
    checks = ("term: intercept", "term: slope, bound: bandwidth", "term: slope, bound: compute")
    found = [outcome(f"{{check: delta_fit, text: t, {c}}}", given) for c in checks]
    assert tuple(item.name for item in found) == expected
    assert all(item.definite for item in found)


def test_a_change_smaller_than_what_counts_has_an_outcome_of_its_own() -> None:
    launches = sum(count for _, count, _ in worlds.KERNELS.values())
    cost = 0.76 * math.expm1(0.08 / 2) * 1000.0 / launches
    rows = kernel_rows(lambda bound, us: us + cost, noise=1e-5)
    given = recording(draw(11, off=0.0, side=0.08), kernels=rows)
    check = "{check: delta_fit, text: t, term: intercept}"
    case = Case(investigation(check, ["off", "side"]), [given])
    found = outcome(check, given)
    assert (found.name, found.definite) == ("some", True)
    assert case.step_us is not None
    assert found.evidence[0].value == pytest.approx(cost, rel=0.01)
    need = math.expm1(case.half_effect) * case.step_us / launches
    assert f", {100 * cost / need:.0f} % of what would count, side against off" in found.observed
    assert f"spread over the {launches} launches of a step that the workload declares)" in found.observed
    assert holds(found, ["grows"], necessary=False) is False
    assert holds(found, ["grows"], necessary=True) is None
    assert holds(found, ["zero"], necessary=True) is None


@pytest.mark.parametrize(
    ("value", "half", "name"),
    [
        (164, 1, "some"),
        (-164, 1, "some"),
        (107, 1, "inside"),
        (164, 60, "undecided"),
        (120, 130, "undecided"),
        (215, 1, "above"),
        (-216, 1, "below"),
    ],
)
def test_where_a_value_lies_against_what_counts(value: float, half: float, name: str) -> None:
    assert above(value, half, 215)[0] == name


def test_fit_per_block_equals_least_squares_of_numpy() -> None:
    rng = np.random.default_rng(12)
    base, delta = rng.uniform(1, 30, (3, 8)), rng.normal(0, 1, (3, 8))
    classes = np.array([[1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0, 0, 0]], dtype=float)
    fit = fit_per_block(base, delta, classes)
    assert fit is not None
    for row in range(3):
        design = np.column_stack([np.ones(8), *(base[row] * c for c in classes)]) / base[row][:, None]
        wanted = np.linalg.lstsq(design, delta[row] / base[row], rcond=None)[0]
        assert fit[row] == pytest.approx(wanted)
    assert fit_per_block(np.full((3, 4), 5.0), delta[:, :4], np.ones((1, 4))) is None


def test_kernel_ratio_weighs_by_time_per_step() -> None:
    given = recording(draw(13, off=0.0, side=0.05), kernels=kernel_rows(lambda b, us: us * 1.1, noise=1e-9))
    found = outcome("{check: kernel_ratio, text: t, bound: bandwidth}", given)
    assert found.name == "slower"
    assert found.evidence[0].value == pytest.approx(1.1, rel=1e-6)
    assert outcome("{check: kernel_ratio, text: t, kernels: [no_such]}", given).name is None


def figures(
    gap: float, kernel: float = 5.0, names: dict[str, tuple[float, float]] | None = None
) -> StepFigures:
    names = names or {"a": (100.0, 100 * kernel)}
    launches = sum(c for c, _ in names.values())
    wobble = np.array([0.99, 1.0, 1.01, 1.0, 1.0])
    return StepFigures(
        kernel_us=sum(us for _, us in names.values()) * np.ones(5),
        gap_us=gap * (launches - 1) * wobble,
        kernels=launches,
        boundaries=launches - 1,
        median_gap_us=gap,
        by_name=names,
    )


def test_gap_compares_with_what_the_effect_needs_and_with_equal_arms() -> None:
    given = recording(draw(14, off=0.0, side=0.05))
    check = "{check: gap, text: t}"
    steps = {"off": figures(0.5), "side": figures(1.0)}
    found = outcome(check, given, steps=steps)
    assert found.name == "grows"
    assert found.evidence[0].value == pytest.approx(0.5)
    assert outcome(check, given, steps={"off": figures(0.5), "side": figures(0.51)}).name == "same"
    shaky = outcome(check, given, steps={**steps, "again": figures(1.1)})
    assert not shaky.definite
    assert outcome(check, given, steps={"off": figures(0.5)}).name is None


def test_terms_of_two_steps_add_up_to_the_difference_of_their_spans() -> None:
    a = figures(0.5, names={"x": (10.0, 50.0), "gone": (5.0, 20.0)})
    b = figures(0.9, names={"x": (10.0, 70.0), "new": (8.0, 8.0)})
    terms = {key: float(value.mean()) for key, value in trace_terms(a, b).items()}
    assert sum(terms.values()) == pytest.approx(float(b.span_us.mean() - a.span_us.mean()))
    assert terms["kernels"] == pytest.approx(20.0)


def test_reconcile_says_what_explains_the_step() -> None:
    given = recording({"off": np.full(12, 1000.0), "side": np.full(12, 1050.0) + np.arange(12) % 3})
    steps = {"off": figures(0.5), "side": figures(1.0)}
    arms = ["off", "side"]
    assert outcome("{check: reconcile, text: t, term: gaps}", given, arms, steps).name == "explained"
    assert outcome("{check: reconcile, text: t, term: kernels}", given, arms, steps).name == "not_explained"
    far = outcome("{check: reconcile, text: t, term: gaps}", given, arms, {**steps, "side": figures(4.0)})
    assert far.name == "overshoots"
    assert (
        outcome("{check: reconcile, text: t, part: 12, whole: 30, share: 0.9}", given).name == "not_explained"
    )
    assert outcome("{check: reconcile, text: t, part: 12, whole: 0}", given).name is None


@pytest.mark.parametrize(
    ("own", "other", "name"),
    [
        ([5] * 10, [3] * 10, "more"),
        ([1] * 10, [3] * 10, "less"),
        ([3] * 10, [3] * 10, "equal"),
        ([5] * 5 + [1] * 5, [3] * 10, "varies"),
        ([5] * 9 + [3], [3] * 10, "more"),
        ([5] * 9 + [1], [3] * 10, "varies"),
        ([None] * 9 + [5], [3] * 10, "more"),
    ],
)
def test_ledger_compares_block_by_block(own: list[Any], other: list[Any], name: str) -> None:
    facts = {"side": {"kv_bytes": own}, "off": {"kv_bytes": other}}
    given = recording(draw(15, off=0.0, side=0.05) | {}, None)
    given = replace(given, runs=recording({k: [1.0] * 10 for k in ("off", "side")}, facts).runs)
    found = outcome("{check: ledger, text: t, figure: kv_bytes, arm: side, against: off}", given)
    assert found.name == name
    assert found.definite is (name != "varies")


def test_ledger_modulo_bytes_and_text_figures() -> None:
    facts = {
        "side": {"kv_address": [2**30 * (k + 1) + 7 for k in range(12)], "output": ["x"] * 12},
        "off": {"kv_address": [2**30 * (11 - k) + 7 for k in range(12)], "output": ["x"] * 12},
    }
    given = recording(draw(16, off=0.0, side=0.0), facts)
    base = "{check: ledger, text: t, figure: kv_address, arm: side"
    assert outcome(base + ", against: off, modulo: 1073741824}", given).name == "equal"
    assert outcome(base + ", bytes: 7}", given).name == "differs"
    assert outcome("{check: ledger, text: t, figure: output, arm: side}", given).name is None


def test_compare_is_equal_up_to_its_tolerance() -> None:
    given = recording(draw(17, off=0.0, side=0.0))
    assert outcome("{check: compare, text: t, left: 79691776, right: 79691776}", given).name == "equal"
    assert outcome("{check: compare, text: t, left: 100, right: 103, tolerance: 0.05}", given).name == "equal"
    assert outcome("{check: compare, text: t, left: 100, right: 103, tolerance: 0.01}", given).name == "less"


def test_another_device_is_not_asked() -> None:
    found = outcome(
        "{check: ratio, text: t, arm: side, needs: rocm}", recording(draw(18, off=0.0, side=0.05))
    )
    assert found.name is None
    assert "AMD" in found.reason


def test_missed_plants_take_the_force_from_no_difference() -> None:
    given = recording(draw(19, off=0.0, side=0.05, pad=0.0))
    case = Case(investigation("{check: effect_share, text: t, arm: pad}", ["pad"]), [given])
    check = case.spec.observations["o"]
    assert observe(case, "o", check, sensitive=True).outcome.definite
    blind = observe(case, "o", check, sensitive=False).outcome
    assert (blind.name, blind.definite) == ("absent", False)
    assert "planted" in blind.reason


def test_written_trace_gives_back_the_figures_it_was_made_of(tmp_path: Path) -> None:
    wanted = figures(0.75, names={"a": (10.0, 50.0), "b": (4.0, 10.0)})
    path = tmp_path / "t.json"
    path.write_bytes(worlds.trace_json(wanted))
    found = step_figures(load_trace(path))
    assert found is not None
    assert found.steps == 5
    assert found.kernel_us == pytest.approx(wanted.kernel_us, abs=0.02)
    assert found.gap_us == pytest.approx(wanted.gap_us, abs=0.02)
    assert found.by_name["b"] == pytest.approx((4.0, 10.0), abs=0.01)


@pytest.mark.skipif(not (SHARED / "h200").is_dir(), reason="the shared H200 measurements are not here")
def test_h200_traces_give_the_figures_written_beside_them() -> None:
    folder = SHARED / "h200" / "decode_traces"
    found = {
        name: step_figures(load_trace(folder / f"trace_{name}.json.gz"))
        for name in ("off", "side", "current")
    }
    assert [round(float(f.kernel_us.mean()), 1) for f in found.values() if f] == [2445.8, 2438.8, 2435.6]
    assert [round(f.median_gap_us, 3) for f in found.values() if f] == [0.096, 0.448, 0.096]
    assert [round(float(f.gap_us.mean())) for f in found.values() if f] == [265, 396, 258]


def test_addresses_are_told_in_gib_with_the_blocks_that_equal_arms_leave() -> None:
    gib = 2**30
    own = [gib + gib // 2] * 4 + [gib // 4] * 2
    base = [gib // 8] * 4 + [gib // 4] * 2
    again = [gib // 8] * 3 + [0] + [gib // 4] * 2
    facts = {
        name: {"kv_address": values} for name, values in (("side", own), ("off", base), ("again", again))
    }
    given = recording({name: [1.0] * 6 for name in facts}, facts)
    found = outcome(
        "{check: ledger, text: t, figure: kv_address, modulo: 1073741824, arm: side, against: off}", given
    )
    assert "0.25 GiB, 0.5 GiB in side" in found.observed
    counted = "different in 3, equal in 2 of the 5 blocks in which equal arms agree, while equal arms differ in 1 of 6"
    assert counted in found.observed
    assert "0x" not in found.observed


def test_a_fact_is_taken_from_the_recording_with_most_blocks() -> None:
    def runs(blocks: int, live: int, name: str) -> Recording:
        facts = {"side": {"side_live_bytes": [live] * blocks}, "off": {"side_live_bytes": [0] * blocks}}
        return replace(recording({arm: [1.0] * blocks for arm in facts}, facts), path=Path(name))

    check = "{check: ledger, text: t, figure: side_live_bytes, arm: side, against: off}"
    case = Case(investigation(check, ["side", "off"]), [runs(2, 5, "early"), runs(6, 7, "whole")])
    found = observe(case, "o", case.spec.observations["o"], sensitive=None).outcome
    assert found.evidence[0].recording == "whole"
    assert found.evidence[0].n == 6


def control_case(flat: list[bool], levels: list[float]) -> Case:
    times = draw(21, off=0.0, side=0.05, own=0.03, own_side=0.08)
    blocks = len(times["off"])
    times["own"] = times["own"] * np.exp([levels[k % len(levels)] for k in range(blocks)])
    facts = {
        name: {"warmup_flat": [flat[k % len(flat)] for k in range(blocks)]} for name in ("own", "own_side")
    }
    facts |= {name: {"warmup_flat": [True] * blocks} for name in ("off", "side")}
    check = "{check: effect_share, text: t, arm: own_side, against: own}"
    return Case(investigation(check, list(times)), [recording(times, facts)])


def test_a_control_of_its_own_is_named_with_its_difference_to_the_baseline() -> None:
    case = control_case([True], [0.0])
    found = observe(case, "o", case.spec.observations["o"], sensitive=None).outcome
    own = case.compare("own")
    assert own is not None
    e = own[0].estimate
    wanted = f'own ("own") itself {units.estimate(e.ratio, e.ci_low, e.ci_high)} against off'
    assert found.evidence[0].note == wanted
    assert found.evidence[0].text.endswith(f"; {wanted}")


def test_runs_that_did_not_settle_or_fall_on_two_levels_are_told_beside_the_figure() -> None:
    case = control_case([True, False], [0.0, 0.2])
    found = observe(case, "o", case.spec.observations["o"], sensitive=None).outcome
    note = found.evidence[0].note
    half = len(case.logs(case.recordings[0], "step_us")) // 2
    assert f"{half} of {2 * half} runs of own did not settle in warm-up" in note
    logs = case.logs(case.recordings[0], "step_us")["own"].to_numpy()
    gap = math.expm1(logs[1::2].mean() - logs[::2].mean())
    assert f"the runs of own fall on two levels {units.percent(gap)} apart" in note
    assert "of off did not settle" not in note
    quiet = control_case([True], [0.0])
    calm = observe(quiet, "o", quiet.spec.observations["o"], sensitive=None).outcome
    assert "settle" not in calm.evidence[0].note
    assert "two levels" not in calm.evidence[0].note


def test_levels_that_both_arms_change_between_in_the_same_blocks_are_no_caveat() -> None:
    jump = np.exp([0.2 * (k % 2) for k in range(12)])
    times = {name: values * jump for name, values in draw(22, off=0.0, side=0.05).items()}
    case = Case(investigation("{check: ratio, text: t, arm: side}", ["off", "side"]), [recording(times)])
    found = observe(case, "o", case.spec.observations["o"], sensitive=None).outcome
    assert found.evidence[0].note == ""
