"""When times may be judged: outputs that agree, the level of planned looks, enough blocks, steady addresses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from test_diagnosis_checks import draw, investigation, outcome, recording

from rcatools.diagnosis.answer import not_judged
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.conditions import p_needed
from rcatools.recording import Recording
from rcatools.stats.records import Reason, Verdict
from rcatools.stats.sequential import bounds

OUTPUT = {"output_rel_error": [0.01] * 12, "output_tolerance": [0.05] * 12}


def with_outputs(given: dict[str, Any], **hashes: str | list[str]) -> Recording:
    facts = {
        arm: {"output_sha256": [value] * 12 if isinstance(value, str) else value, **OUTPUT}
        for arm, value in hashes.items()
    }
    return recording(given, facts)


def case_of(given: Recording, check: str = "{check: ratio, text: t, arm: side}") -> Case:
    return Case(investigation(check, list(given.manifest.arm_names)), [given])


@pytest.mark.parametrize(
    "check",
    [
        "{check: ratio, text: t, arm: x}",
        "{check: equivalence, text: t, arm: x}",
        "{check: effect_share, text: t, arm: x}",
    ],
)
def test_an_arm_with_another_output_gets_no_verdict_on_time(check: str) -> None:
    times = draw(1, off=0.0, side=0.06, x=0.06)
    same = outcome(check, with_outputs(times, off="a", side="a", x="a"))
    assert same.definite
    other = outcome(check, with_outputs(times, off="a", side="a", x="b"))
    assert not other.definite
    assert "not that of off bit for bit" in other.reason
    assert other.evidence[0].value == same.evidence[0].value  # the estimate is shown all the same


def test_a_comparison_of_other_outputs_is_undecided_and_says_so_in_the_answer() -> None:
    case = case_of(with_outputs(draw(2, off=0.0, side=0.06, x=0.16), off="a", side="a", x="b"))
    found = case.compare("x")
    assert found is not None
    assert found[0].verdict is Verdict.UNDECIDED
    assert found[0].reasons == (Reason.OUTPUTS_DIFFER,)
    (line,) = not_judged(case)
    assert "x (+1" in line
    assert "its time is not judged" in line
    assert case.compare("side")[0].verdict is Verdict.SLOWER  # type: ignore[index]


def test_outputs_are_compared_with_the_arm_that_an_arm_is_set_against() -> None:
    given = with_outputs(draw(3, off=0.0, side=0.06, x=0.0, y=0.06), off="a", side="a", x="b", y="b")
    assert outcome("{check: effect_share, text: t, arm: y, against: x}", given).definite
    assert not outcome("{check: effect_share, text: t, arm: y, against: off}", given).definite


def test_a_baseline_that_varies_by_itself_holds_nobody_to_its_bits() -> None:
    changing = [f"{k % 3}" for k in range(12)]
    assert outcome(
        "{check: ratio, text: t, arm: side}",
        with_outputs(draw(4, off=0.0, side=0.06), off=changing, side="b"),
    ).definite


def test_a_run_outside_its_tolerance_stops_the_verdict_even_of_varying_outputs() -> None:
    given = with_outputs(draw(5, off=0.0, side=0.06), off=[str(k) for k in range(12)], side="b")
    runs = given.runs.copy()
    runs.loc[runs["arm"] == "side", "output_rel_error"] = 0.2
    found = outcome("{check: ratio, text: t, arm: side}", replace(given, runs=runs))
    assert not found.definite
    assert "12 runs of side outside the tolerance" in found.reason


def test_planted_arms_may_compute_something_else() -> None:
    given = with_outputs(draw(6, off=0.0, side=0.06, p=0.1), off="a", side="a", p="b")
    case = case_of(given)
    spec = case.spec
    planted = replace_arm(spec.arms, "p")
    object.__setattr__(case, "conditions", type(case.conditions)(planted))
    found = case.compare("p")
    assert found is not None
    assert found[0].verdict is Verdict.SLOWER


def replace_arm(arms: dict[str, Any], name: str) -> dict[str, Any]:
    from rcatools.diagnosis.investigation import Arm

    return {**arms, name: Arm(text="planted", role="plant_additive")}


def sequential(given: Recording, blocks: list[int], kind: str = "pocock", **extra: Any) -> Recording:
    planned = {"kind": kind, "blocks": blocks, "p": list(bounds(blocks, kind).p)}  # type: ignore[arg-type]
    manifest = replace(
        given.manifest,
        design={**given.manifest.design, "sequential": planned},
        counts=extra.get("counts", {}),
    )
    return replace(given, manifest=manifest)


def test_planned_looks_set_the_level_of_every_interval() -> None:
    times = draw(7, off=0.0, side=0.02)
    plain = case_of(recording(times)).compare("side")
    looked = case_of(sequential(recording(times), [6, 12, 18, 24, 30])).compare("side")
    assert plain is not None
    assert looked is not None
    level = bounds([6, 12, 18, 24, 30], "pocock").p[1]
    d = np.log(times["side"]) - np.log(times["off"])
    interval = stats.ttest_1samp(d, 0.0).confidence_interval(1 - level)
    assert np.log(looked[0].estimate.ci_low) == pytest.approx(interval.low, rel=1e-6)
    assert looked[0].estimate.ci_low < plain[0].estimate.ci_low  # type: ignore[operator]


def test_a_difference_that_only_an_unplanned_test_would_see_stays_undecided() -> None:
    # p of these twelve differences lies between the level of a Pocock look and five percent
    d = np.array([0.9, -0.7, 1.6, 0.4, -0.2, 1.3, 0.1, 0.8, -0.6, 1.1, 0.2, 0.9]) / 100
    p = stats.ttest_1samp(d, 0.0).pvalue
    assert bounds([6, 12, 18, 24, 30], "pocock").p[1] < p < 0.05
    given = recording({"off": np.full(12, 1000.0), "side": 1000 * np.exp(d)})
    case = Case(investigation("{check: ratio, text: t, arm: side, margin: 0.001}", ["off", "side"]), [given])
    assert case.compare("side", margin=0.001)[0].verdict is Verdict.SLOWER  # type: ignore[index]
    strict = sequential(given, [6, 12, 18, 24, 30])
    case = Case(investigation("{check: ratio, text: t, arm: side}", ["off", "side"]), [strict])
    assert case.compare("side", margin=0.001)[0].verdict is Verdict.UNDECIDED  # type: ignore[index]


@pytest.mark.parametrize(("whole", "look"), [(3, 0), (6, 0), (11, 0), (12, 1), (17, 1), (30, 4)])
def test_what_ends_between_looks_is_held_to_the_last_one_passed(whole: int, look: int) -> None:
    given = sequential(
        recording(draw(8, off=0.0, side=0.0)),
        [6, 12, 18, 24, 30],
        "obrien-fleming",
        counts={"blocks_whole": whole},
    )
    assert p_needed(given) == pytest.approx(bounds([6, 12, 18, 24, 30], "obrien-fleming").p[look])


def test_without_planned_looks_the_declared_confidence_holds() -> None:
    assert p_needed(recording(draw(9, off=0.0, side=0.0))) is None


@pytest.mark.parametrize("check", ["ratio", "equivalence", "effect_share"])
def test_too_few_blocks_show_the_figure_and_no_verdict(check: str) -> None:
    times = draw(10, off=0.0, side=0.06)
    times["x"] = np.where(np.arange(12) < 2, times["off"] * 1.073, np.nan)
    given = recording(times)
    given = replace(given, samples=given.samples.dropna(subset=["value"]))
    found = outcome(f"{{check: {check}, text: t, arm: x}}", given)
    assert found.name is None
    assert not found.definite
    assert "+7.3" in found.reason
    assert "2 blocks, too few for a verdict" in found.reason
    assert found.observed.startswith("too few blocks: ")
    (line,) = not_judged(case_of(given))
    assert line == "Measured in too few blocks for a verdict (3 are needed): x +7.3 % (2 blocks)."


def addresses(own: list[int], base: list[int], again: list[int]) -> Recording:
    facts = {
        name: {"kv_address": values} for name, values in (("side", own), ("off", base), ("again", again))
    }
    return recording({name: [1000.0] * len(own) for name in facts}, facts)


LEDGER = "{check: ledger, text: t, figure: kv_address, arm: side, against: off, modulo: 1073741824}"


def test_an_address_counts_only_where_equal_arms_agree() -> None:
    """Three processes of a fresh interpreter land anywhere; of the nine others two coincide."""
    base = [100] * 9 + [7, 8, 9]
    own = [50] * 7 + [100] * 2 + [1, 2, 3]
    found = outcome(LEDGER, addresses(own, base, [100] * 9 + [70, 80, 90]))
    assert found.name == "changes"
    assert found.definite
    counted = "different in 7, equal in 2 of the 9 blocks in which equal arms agree, while equal arms differ in 3 of 12"
    assert counted in found.observed
    kept = outcome(LEDGER, addresses(own, base, base))
    assert "different in 10, equal in 2 of 12 blocks" in kept.observed


def test_where_equal_arms_never_agree_an_address_says_nothing() -> None:
    found = outcome(LEDGER, addresses([1] * 6, [2] * 6, [3, 4, 5, 6, 7, 8]))
    assert found.name == "varies"
    assert not found.definite
    assert "in none of 6 blocks do equal arms agree" in found.observed


def test_an_address_that_rarely_differs_does_not_change() -> None:
    found = outcome(LEDGER, addresses([5] * 2 + [9] * 10, [9] * 12, [9] * 12))
    assert found.name == "varies"
    assert outcome(LEDGER, addresses([9] * 12, [9] * 12, [9] * 12)).name == "equal"
