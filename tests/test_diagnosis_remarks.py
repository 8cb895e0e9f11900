"""Sentences that follow from observations: remarks, predictions made before or after a recording, the boundary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_worlds as worlds
from test_diagnosis_checks import draw, recording
from test_diagnosis_loading import SMALL

from rcatools.diagnosis import judge, load_investigation, parse_investigation
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.engine import diagnose
from rcatools.diagnosis.investigation import Investigation
from rcatools.diagnosis.records import Diagnosis
from rcatools.errors import InputError
from rcatools.recording import Recording

CAPTURE = load_investigation(
    Path(__file__).resolve().parents[1] / "data" / "investigations" / "capture-stream"
)
REMARKS = """
slug: s
title: t
question: q
effect: {suspect: side, baseline: off, metric: step_us, margin: 0.01, repeat: [again]}
arms:
  off: {role: baseline, text: nothing}
  again: {role: repeat, text: nothing again}
  side: {role: suspect, text: a profile}
  x: {text: another}
observations:
  slower: {check: ratio, text: it is slower, arm: side}
  share: {check: effect_share, text: what x shows of it, arm: x}
hypotheses:
  - id: h
    title: a thing
    stands: it is the thing ({slower})
    predicts: {slower: slower}
    written_after: ["2026-01-02T00:00:00+00:00", "2026-01-03T00:00:00+00:00"]
    remarks:
      - {when: {share: carries}, text: "x does it too ({share})."}
      - {when: {share: absent}, text: "x does not do it ({share})."}
      - {when: {share: [not_tested, undecided]}, text: "x is open ({share})."}
  - {id: n, title: noise, stands: noise, is_null: true, predicts: {slower: equivalent}}
"""


def judged(x: float | None, created: str = "2026-02-01T00:00:00+00:00", blocks: int = 12) -> Diagnosis:
    times: dict[str, Any] = draw(3, off=0.0, again=0.0, side=0.05, **({} if x is None else {"x": x}))
    if x is not None and blocks < 12:
        times["x"] = np.where(np.arange(12) < blocks, times["x"], np.nan)
    given = recording(times)
    given = replace(
        given,
        samples=given.samples.dropna(subset=["value"]),
        manifest=replace(given.manifest, created_utc=created),
    )
    return judge(Investigation(parse_investigation(REMARKS)), [given])


@pytest.mark.parametrize(
    ("x", "said"), [(0.05, "x does it too (+"), (0.0, "x does not do it ("), (0.025, "x is open (")]
)
def test_a_remark_is_said_only_where_its_observation_came_out_so(x: float, said: str) -> None:
    details = judged(x).details
    assert sum(text.startswith("x ") for text in details) == 1
    assert any(text.startswith(said) and "12 blocks" in text for text in details)


def test_what_was_not_measured_and_what_was_measured_too_rarely_are_told_apart() -> None:
    assert any(text == "x is open (no timed run of x on D)." for text in judged(None).details)
    (few,) = (text for text in judged(0.05, blocks=2).details if text.startswith("x is open"))
    assert "2 blocks, too few for a verdict" in few


def test_the_answer_fills_figures_into_what_stands() -> None:
    found = judged(0.0)
    assert found.effect is not None
    assert "because it is the thing (+" in found.answer
    assert "12 blocks" in found.answer


def test_a_contradicted_cause_makes_no_remarks() -> None:
    given = recording(draw(4, off=0.0, again=0.0, side=0.0, x=0.0))
    found = judge(Investigation(parse_investigation(REMARKS)), [given])
    assert not any(text.startswith("x ") for text in found.details)


@pytest.mark.parametrize(
    ("created", "said"),
    [
        ("2026-01-02T00:00:00+00:00", "took their present form after r had been seen"),
        (
            "2026-02-01T00:00:00+00:00",
            "r (2026-02-01 00:00 UTC) was recorded after that: this is the test of the predicted outcomes",
        ),
        ("2026-01-01T00:00:00+00:00", "r is older than the predictions"),
    ],
)
def test_a_recording_tests_the_predictions_only_if_it_was_made_after_them(created: str, said: str) -> None:
    (line,) = (text for text in judged(0.0, created).details if "predictions of 'a thing'" in text)
    assert said in line
    assert ("the test of the predicted outcomes" in line) is ("after that" in said)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "share: carries}",
            "shar: carries}",
            "unknown observation in f.yaml at hypotheses[0].remarks[0].when 'shar'",
        ),
        (
            "share: carries}",
            "share: carry}",
            "unknown outcome of check 'effect_share' in f.yaml at hypotheses[0].remarks",
        ),
        (
            "too ({share})",
            "too ({shared})",
            "unknown observation in f.yaml at hypotheses[0].remarks[0].text 'shared'",
        ),
        (
            "thing ({slower})",
            "thing ({slow})",
            "unknown observation in f.yaml at hypotheses[0].stands 'slow'",
        ),
    ],
)
def test_a_remark_about_nothing_is_refused(old: str, new: str, message: str) -> None:
    assert old in REMARKS
    with pytest.raises(InputError) as error:
        parse_investigation(REMARKS.replace(old, new), "f.yaml")
    assert message in str(error.value)


def test_a_prediction_may_not_expect_what_only_a_remark_may_name() -> None:
    with pytest.raises(InputError, match="unknown outcome"):
        parse_investigation(SMALL.replace("predicts: {slower: slower}", "predicts: {slower: not_tested}"))


def cliff(**changes: Any) -> tuple[Recording, dict[tuple[str, str], Any]]:
    data = worlds.make("queue_cliff", 5)
    return worlds.in_memory(replace(data, **changes), "cliff")


def test_the_price_of_a_boundary_explains_kernels_timed_alone_in_a_world_where_it_does() -> None:
    given, steps = cliff()
    found = diagnose(Case(CAPTURE, [given], steps=steps)).boundary
    assert found is not None
    data = worlds.make("queue_cliff", 5)
    own, base = (data.boundary[data.arms.index(name)] for name in ("side", "off"))
    assert found.delta_us == pytest.approx(float((own - base).mean()), rel=1e-9)
    assert found.n == 14
    off = next(item for (_, arm), item in steps.items() if arm == "off")
    median = np.median(data.samples, axis=2)
    longer = float((median[data.arms.index("side")] - median[data.arms.index("off")]).mean())
    assert found.share == pytest.approx(found.delta_us * off.boundaries / longer, rel=0.05)
    assert f"accounts for {100 * (found.share or 0):.0f} % of the effect" in found.sentences[1]
    assert "above" not in found.sentences[2]
    assert "durations and gaps are told apart" in found.sentences[-1]


def test_a_kernel_that_a_boundary_does_not_explain_is_named() -> None:
    data = worlds.make("queue_cliff", 5)
    kernels = {name: table.copy() for name, table in data.kernels.items()}
    place = list(worlds.KERNELS).index("kv_gather")
    kernels["side"][:, place] *= 1.5
    given, steps = cliff(kernels=kernels)
    whole = diagnose(Case(CAPTURE, [given], steps=steps))
    found = whole.boundary
    assert found is not None
    assert any("above: kv_gather" in text for text in found.sentences)
    sides = {item.kernel: item.against_boundary for item in whole.kernels}
    assert [name for name, side in sides.items() if side == "above"] == ["kv_gather"]
    assert set(sides.values()) <= {"below", "within", "above"}


def test_kernels_timed_one_by_one_after_a_flush_hold_no_boundary() -> None:
    given, steps = cliff()
    cold = {**given.manifest.workload, "parameters": {"cache": "cold"}}
    given = replace(given, manifest=replace(given.manifest, workload=cold))
    found = diagnose(Case(CAPTURE, [given], steps=steps)).boundary
    assert found is not None
    assert not any("timed alone" in text for text in found.sentences)


def test_the_share_of_the_ceiling_is_bytes_or_flops_over_time_and_rate() -> None:
    given, steps = cliff()
    work = {
        **given.manifest.workload,
        "kernels": [
            {"name": k, "bound": b, "per_step": c, "bytes": 3_000_000, "flops": 5_000_000_000}
            for k, (b, c, _) in worlds.KERNELS.items()
        ],
    }
    ceilings = {"copy_bytes_per_s": 1e12, "read_bytes_per_s": 2e12, "matmul_flops": 4e14}
    given = replace(given, manifest=replace(given.manifest, workload=work, ceilings=ceilings))
    rows = {item.kernel: item for item in diagnose(Case(CAPTURE, [given], steps=steps)).kernels}
    gather, product = rows["kv_gather"], rows["expert_gemm"]
    assert gather.ceiling == pytest.approx(3e6 / (gather.base_us * 1e-6) / 2e12)
    assert product.ceiling == pytest.approx(5e9 / (product.base_us * 1e-6) / 4e14)
    assert rows["rms_norm"].ceiling is None
    assert gather.share == pytest.approx(gather.base_us * 40 / worlds.STEP_US, rel=0.05)


def test_a_difference_inside_the_margin_is_not_called_none() -> None:
    given = recording(draw(3, off=0.0, again=0.0, side=0.05, x=0.0))
    found = judge(Investigation(parse_investigation(REMARKS)), [given], margin=0.1)
    assert found.effect is not None
    assert found.effect.verdict == "equivalent"
    assert "does not change" not in found.answer
    assert "changes by less than the margin of 10.0 %" in found.answer
    quiet = recording(draw(4, off=0.0, again=0.0, side=0.0, x=0.0))
    told = judge(Investigation(parse_investigation(REMARKS)), [quiet], margin=0.1).answer
    assert "does not change" in told


@pytest.mark.parametrize("stands", ["b is so", "b is so ({share})"])
def test_figures_of_what_stands_are_told_once(stands: str) -> None:
    text = (
        REMARKS
        + f"""  - {{id: b, group: other, title: b, stands: "{stands}", predicts: {{share: carries}}}}
  - {{id: c, group: other, title: c, stands: c, predicts: {{share: absent}}}}
"""
    )
    given = recording(draw(3, off=0.0, again=0.0, side=0.05, x=0.05))
    (line,) = (
        s for s in judge(Investigation(parse_investigation(text)), [given]).details if s.startswith("B is so")
    )
    assert line.count("12 blocks") == 1


def test_a_product_that_is_two_kernels_in_the_trace_is_held_against_two_boundaries() -> None:
    given, steps = cliff()
    declared = list(worlds.KERNELS)
    place = declared.index("kv_gather")
    names = [f"{name}_kernel" for name in declared]
    names.insert(place, "void cublasLt::splitKreduce_kernel<32, 16>")
    steps = {
        key: replace(item, order=tuple(names), kernels=item.kernels + 40) if key[1] == "off" else item
        for key, item in steps.items()
    }
    whole = diagnose(Case(CAPTURE, [given], steps=steps))
    two = [item.kernel for item in whole.kernels if item.against_boundary.endswith(" two")]
    assert two == [declared[place - 1]]
    assert whole.boundary is not None
    told = f"{declared[place - 1]} is a product and its cublasLt::splitKreduce_kernel, two kernels a launch"
    assert any(told in text for text in whole.boundary.sentences)
