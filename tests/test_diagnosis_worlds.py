"""Worlds whose cause is known: the right hypothesis, no rival, and honest silence where arms are missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import synthetic_worlds as worlds

from rcatools import units
from rcatools.diagnosis import judge, judge_causes, load_investigation
from rcatools.diagnosis.alike import ADDED_LATER, unlike
from rcatools.diagnosis.records import Diagnosis, Mechanism, Status
from rcatools.recording import Recording
from rcatools.workload.config import DecodeConfig

INVESTIGATION = load_investigation(
    Path(__file__).resolve().parents[1] / "data" / "investigations" / "capture-stream"
)
RIGHT = {name: name for name in worlds.WORLDS} | {"nothing": "noise"}
CORE = (
    "off",
    "off_again",
    "side",
    "side_gc",
    "prewarm",
    "reset_ws",
    "clear_blas",
    "current",
    "touch_stream",
    "plant_additive",
    "plant_multiplicative",
)
SEEDS = 100


def supported(world: str, seed: int, arms: tuple[str, ...] = worlds.ARMS, **options: object) -> list[str]:
    recording, steps = worlds.in_memory(worlds.make(world, seed, arms=arms, **options), world)  # type: ignore[arg-type]
    found = judge_causes(INVESTIGATION, [recording], steps)
    return [item.id for item in found if item.group == "cause" and item.status is Status.SUPPORTED]


@pytest.mark.parametrize("world", worlds.WORLDS)
def test_the_true_cause_is_supported_and_no_rival_is(world: str) -> None:
    found = [supported(world, seed) for seed in range(SEEDS)]
    assert max(map(len, found)) <= 1
    right = Counter(names == [RIGHT[world]] for names in found)
    assert right[True] >= 95, Counter(map(tuple, found))


@pytest.mark.parametrize("world", worlds.WORLDS)
def test_with_the_core_arms_alone_nothing_false_is_supported(world: str) -> None:
    found = [supported(world, seed, CORE) for seed in range(20)]
    wrong = [names for names in found if names not in ([], [RIGHT[world]])]
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize("world", ["placement", "queue_cliff", "cross_stream_wait"])
def test_with_thirty_times_the_noise_nothing_false_is_supported(world: str) -> None:
    loud = worlds.Noise(run=0.1, block=0.05, kernel=0.1)
    found = [supported(world, seed, noise=loud, blocks=6) for seed in range(20)]
    assert sum(names not in ([], [RIGHT[world]]) for names in found) <= 1


def test_two_causes_at_once_are_not_sold_as_one() -> None:
    """A cliff with a lottery on top: both pass, so neither is supported and both say why."""
    for seed in range(5):
        drawn = worlds.make("queue_cliff", seed)
        truth = replace(drawn.truth, effect=float(np.log1p(0.05)), lottery=0.5)
        recording, steps = worlds.in_memory(worlds.make("queue_cliff", seed, truth=truth), "both")
        found = {item.id: item for item in judge_causes(INVESTIGATION, [recording], steps)}
        assert found["queue_cliff"].status is not Status.SUPPORTED
        assert found["placement"].status is not Status.SUPPORTED


def test_an_undecided_hypothesis_names_the_run_that_would_decide() -> None:
    arms = tuple(name for name in worlds.ARMS if name != "cross_wait")
    recording, steps = worlds.in_memory(worlds.make("queue_cliff", 1, arms=arms), "cliff")
    found = {item.id: item for item in judge_causes(INVESTIGATION, [recording], steps)}
    assert found["queue_cliff"].status is Status.UNDECIDED
    decide = found["queue_cliff"].decide
    assert decide is not None
    assert "cross_wait" in decide.run
    assert decide.run.startswith("rcatools record capture-stream")
    assert "'waits between hardware queues'" in decide.text


def test_a_prediction_not_tested_is_never_counted_as_failed() -> None:
    recording, steps = worlds.in_memory(worlds.make("queue_cliff", 1, arms=("off", "side")), "two")
    for item in judge_causes(INVESTIGATION, [recording], steps):
        for prediction in item.predictions:
            if prediction.observed == "not tested":
                assert prediction.holds is None
                assert prediction.reason


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return worlds.write(worlds.make("queue_cliff", 7, samples=4), tmp_path_factory.mktemp("w") / "cliff")


@pytest.fixture(scope="module")
def diagnosis(written: Recording) -> Diagnosis:
    return judge(INVESTIGATION, [written])


def test_a_written_recording_gives_the_whole_diagnosis(diagnosis: Diagnosis) -> None:
    assert diagnosis.hypothesis("queue_cliff").status is Status.SUPPORTED
    assert "takes the process over a limit" in diagnosis.answer
    assert "Synthetic GPU" in diagnosis.answer
    assert diagnosis.chain_ends_at == "c"
    assert [link.as_cause for link in diagnosis.links] == [True, True, False, False, False]
    assert diagnosis.links[-1].verdict == "shown"
    assert diagnosis.sensitive is True
    slope = next(o for o in diagnosis.observations if o.id == "bandwidth_slope")
    assert slope.outcome.name == "zero"
    assert slope.outcome.detection_limit is not None
    assert slope.outcome.detection_limit < 0.01


def test_every_no_difference_tells_its_detection_limit(diagnosis: Diagnosis) -> None:
    quiet = [
        o
        for o in diagnosis.observations
        if o.outcome.name in ("absent", "equivalent", "zero", "flat", "same")
    ]
    assert len(quiet) >= 8
    for item in quiet:
        assert item.outcome.detection_limit is not None, item.id
        assert all(e.detection_limit is not None for e in item.outcome.evidence), item.id


def test_every_decided_prediction_names_its_place(diagnosis: Diagnosis) -> None:
    for item in diagnosis.hypotheses:
        for prediction in item.predictions:
            if prediction.holds is not None:
                assert prediction.evidence not in ("", "not tested")
                assert all(e.text for e in prediction.places)


def test_plants_are_diagnosed_with_their_labels_hidden(written: Recording, diagnosis: Diagnosis) -> None:
    open_kinds = {item.arm: item.kind for item in diagnosis.mechanisms}
    assert open_kinds["plant_additive"] is Mechanism.MORE_KERNELS
    assert open_kinds["plant_multiplicative"] is Mechanism.SLOWER_KERNELS
    assert open_kinds["side"] is Mechanism.LONGER_GAPS
    assert open_kinds["off_again"] is Mechanism.NONE
    names = {"plant_additive": "x1", "plant_multiplicative": "x2", "side_gc": "plant_additive"}
    hidden = judge(INVESTIGATION, [worlds.renamed(written, names)])
    kinds = {item.arm: item.kind for item in hidden.mechanisms}
    assert kinds["x1"] is Mechanism.MORE_KERNELS
    assert kinds["x2"] is Mechanism.SLOWER_KERNELS
    detail = next(item.text for item in hidden.mechanisms if item.arm == "x2")
    assert "kv_gather" in detail
    # an arm that carries a plant's name but is none is not taken for one
    assert kinds["plant_additive"] is not Mechanism.MORE_KERNELS


def test_gaps_reconcile_with_the_measured_step(diagnosis: Diagnosis) -> None:
    side = next(item for item in diagnosis.reconcile if item.arm == "side")
    assert side.explained == pytest.approx(1.0, abs=0.1)
    assert side.gaps_us is not None
    assert side.kernels_us is not None
    assert abs(side.kernels_us) < 0.1 * side.gaps_us


def test_the_parts_of_a_trace_add_up_and_added_launches_are_one_of_them(diagnosis: Diagnosis) -> None:
    told = {item.arm: item.text for item in diagnosis.mechanisms}
    for item in diagnosis.reconcile:
        parts = (item.kernels_us, item.launches_us, item.gaps_us, item.unexplained_us)
        assert sum(part or 0.0 for part in parts) == pytest.approx(item.measured_us)
        if "the traces show" in told[item.arm]:  # the same figures wherever they are told
            assert f"kernels {units.duration_us(item.kernels_us)}" in told[item.arm]
            assert f"gaps {units.duration_us(item.gaps_us)}" in told[item.arm]
    plant = next(item for item in diagnosis.reconcile if item.arm == "plant_additive")
    assert plant.launches_us is not None
    assert plant.measured_us is not None
    assert plant.launches_us > 0.5 * plant.measured_us
    assert abs(plant.kernels_us or 0.0) < 0.3 * plant.launches_us
    assert next(item for item in diagnosis.reconcile if item.arm == "side").launches_us == 0


def test_fixes_have_time_memory_correctness_and_a_best_one(diagnosis: Diagnosis) -> None:
    rows = {row.arm: row for row in diagnosis.fixes}
    assert rows["current"].best
    assert rows["current"].verdict == "equivalent"
    assert rows["current"].recovered == pytest.approx(1.0, abs=0.1)
    assert rows["clear_blas"].verdict == "slower"
    assert rows["side_gc"].live_bytes == worlds.BLOCK_BYTES
    assert rows["side_gc"].memory_delta_bytes == worlds.BLOCK_BYTES
    assert all(row.correct is True for row in rows.values())


def test_the_verdict_moves_with_a_margin_or_a_dropped_arm(written: Recording, diagnosis: Diagnosis) -> None:
    wide = judge(INVESTIGATION, [written], margin=0.5)
    assert wide.effect is not None
    assert wide.effect.verdict == "equivalent"
    assert any("margin" in text for text in wide.warnings)
    fewer = judge(INVESTIGATION, [written], without=["cross_wait"])
    assert fewer.hypothesis("queue_cliff").status is Status.UNDECIDED
    assert any("judged without cross_wait" in text for text in fewer.warnings)


def test_other_devices_are_listed_and_not_mixed_in(written: Recording, diagnosis: Diagnosis) -> None:
    device = {**written.manifest.device, "backend": "cpu", "name": "A CPU"}
    other = replace(written, path=Path("cpu"), manifest=replace(written.manifest, device=device))
    both = judge(INVESTIGATION, [written, other])
    assert both.arms == diagnosis.arms
    assert [item["used"] for item in both.environment["recordings"]] == [True, False]
    assert any("another device" in text for text in both.warnings)
    assert "A CPU" in judge(INVESTIGATION, [other, written]).answer


def test_another_card_of_the_kind_is_named_with_what_it_shows(written: Recording) -> None:
    def on_card(uuid: str, path: str) -> Recording:
        device = {**written.manifest.device, "uuid": uuid}
        return replace(written, path=Path(path), manifest=replace(written.manifest, device=device))

    found = judge(INVESTIGATION, [on_card("a", "first"), on_card("b", "second")])
    assert found.answer.startswith("On one ")
    (line,) = (text for text in found.details if "another card" in text)
    assert line.startswith("second was made on another card of this kind: side against off there +")
    assert "blocks" in line
    same = judge(INVESTIGATION, [on_card("a", "first"), on_card("a", "second")])
    assert not any("another card" in text for text in same.details)


def test_a_parameter_that_an_older_recording_does_not_tell_had_its_default(written: Recording) -> None:
    def with_parameters(**values: object) -> Recording:
        workload = {**written.manifest.workload, "name": "decode", "parameters": values}
        return replace(written, manifest=replace(written.manifest, workload=workload))

    assert unlike(with_parameters(batch=1), with_parameters(batch=1, cache="hot")) == ""
    assert asdict(DecodeConfig()) == asdict(DecodeConfig()) | ADDED_LATER["decode"]
    assert "cache hot against cold" in unlike(with_parameters(), with_parameters(cache="cold"))
    assert "batch 1 against 2" in unlike(with_parameters(batch=1), with_parameters(batch=2))


def test_a_second_recording_of_the_device_adds_its_arms(written: Recording) -> None:
    def only(names: set[str], path: str) -> Recording:
        return replace(
            written,
            path=Path(path),
            runs=written.runs[written.runs["arm"].isin(names)],
            samples=written.samples[written.samples["arm"].isin(names)],
        )

    base = {"off", "off_again", "side"}
    first = only(base, "one")
    second = only({*base, "pad_untracked"}, "two")
    found = judge(INVESTIGATION, [first, second])
    pad = next(o for o in found.observations if o.id == "pad_without_stream")
    assert pad.outcome.name == "absent"
    assert pad.outcome.evidence[0].recording == "two"


def test_missed_plants_keep_silence_from_deciding(written: Recording) -> None:
    """Plants as fast as the baseline: nothing that rests on no difference may decide."""
    samples = written.samples.copy()
    timed = samples["metric"] == "step_us"
    off = samples[timed & (samples["arm"] == "off_again")].set_index(["block", "sample"])["value"]
    mask = timed & (samples["arm"] == "plant_multiplicative")
    keys = samples.loc[mask, ["block", "sample"]].itertuples(index=False)
    samples.loc[mask, "value"] = [off[(block, sample)] for block, sample in keys]
    found = judge(INVESTIGATION, [replace(written, samples=samples)])
    assert found.sensitive is False
    assert found.hypothesis("placement").status is not Status.SUPPORTED
    pad = next(o for o in found.observations if o.id == "pad_without_stream")
    assert (pad.outcome.name, pad.outcome.definite) == ("absent", False)
    assert found.hypothesis("spawn_lottery").status is not Status.CONTRADICTED


def test_without_traces_the_price_of_a_boundary_names_the_gaps(written: Recording) -> None:
    bare = judge(INVESTIGATION, [replace(written, traces={})])
    kinds = {item.arm: item.kind for item in bare.mechanisms}
    assert kinds["side"] is Mechanism.LONGER_GAPS
    assert kinds["streams_16"] is Mechanism.LONGER_GAPS
    assert kinds["plant_additive"] is Mechanism.UNDECIDED
    assert kinds["pad_untracked"] is Mechanism.NONE


def test_another_workload_is_not_mixed_in_and_uncommitted_code_is_told(written: Recording) -> None:
    manifest = written.manifest
    other = replace(
        written,
        path=Path("batch-32"),
        manifest=replace(manifest, workload={**manifest.workload, "parameters": {"batch": 32}}),
    )
    found = judge(INVESTIGATION, [written, other])
    told = "batch-32 was made with other parameters of the workload (batch 32 against not told)"
    assert any(told in text for text in found.warnings)
    dirty = {**manifest.environment, "code": {"commit": "1" * 40, "dirty": True}}
    found = judge(INVESTIGATION, [replace(written, manifest=replace(manifest, environment=dirty))])
    assert any("uncommitted changes" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("same_bits", "error", "right"),
    [(True, 0.01, True), (False, 0.01, True), (False, 0.3, False), (True, 0.3, False), (False, None, False)],
)
def test_an_output_is_right_by_its_bits_or_within_its_tolerance(
    written: Recording, same_bits: bool, error: float | None, right: bool
) -> None:
    runs = written.runs.copy()
    mine = runs["arm"] == "current"
    if not same_bits:
        runs.loc[mine, "output_sha256"] = "c" * 64
    runs["output_rel_error"] = error
    runs["output_tolerance"] = 0.08
    found = judge(INVESTIGATION, [replace(written, runs=runs)])
    row = next(item for item in found.fixes if item.arm == "current")
    assert row.correct is right
    assert row.best is right
