"""Finding the step in curves whose place is known, and the recordings and processes they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fake_gpu
import numpy as np
import pytest

from rcatools.experiment import cliff, streams
from rcatools.experiment.arms import load_plan
from rcatools.experiment.cliff import Condition, find_step, places_used, summarize, sweep
from rcatools.recording.reader import open_recording

ROOT = Path(__file__).resolve().parents[1]


def noisy(
    at: int | None, seed: int = 0, *, n: int = 17, low: float = 0.967, high: float = 1.143
) -> list[float]:
    """A curve that steps at a known place, with the noise of real ones."""
    rng = np.random.default_rng(seed)
    level = np.where(np.arange(n) >= (n if at is None else at), high, low)
    return list(level + rng.normal(0, 0.003, n))


@pytest.mark.parametrize("at", [1, 2, 7, 8, 15, 16])
@pytest.mark.parametrize("seed", range(3))
def test_a_step_is_found_where_it_is(at: int, seed: int) -> None:
    step = find_step(noisy(at, seed))
    assert step.at == at
    assert step.low == pytest.approx(0.967, abs=0.005)
    assert step.high == pytest.approx(1.143, abs=0.005)


@pytest.mark.parametrize("seed", range(10))
def test_noise_is_no_step(seed: int) -> None:
    assert find_step(noisy(None, seed)).at is None
    assert find_step([0.9, 0.9, 0.94, 0.9]).at is None
    assert find_step([1.0]).at is None


def test_processes_are_summed_up_with_an_interval_of_their_costs() -> None:
    found = summarize([noisy(7, 1), noisy(8, 2), noisy(8, 3), noisy(8, 4), noisy(None, 5)])
    assert found["at"] == [7, 8, 8, 8, None]
    assert (found["at_low"], found["at_high"], found["at_median"]) == (7, 8, 8.0)
    assert found["cost_us"] == pytest.approx(0.176, abs=0.003)
    low, high = found["cost_ci"]
    assert low < 0.176 < high
    assert summarize([noisy(3)])["cost_ci"] is None
    none = summarize([noisy(None, 1)])
    assert (none["at_median"], none["high_us"], none["cost_us"]) == (None, None, None)


def test_an_act_uses_as_many_places_as_the_step_comes_earlier() -> None:
    reference, earlier = summarize([noisy(8, 1)] * 3), summarize([noisy(6, 2)] * 3)
    assert places_used(reference, earlier) == 2
    assert places_used(reference, summarize([noisy(None)])) is None


def test_every_act_has_a_name_and_conditions_have_different_ones() -> None:
    assert not set(cliff.ACTS) & set(cliff.SPECIAL)
    names = [Condition().name, Condition(act="add").name, Condition(late=True, act="add").name]
    names += [Condition(warm=("norm",)).name, Condition(capture="fresh").name, Condition(env={"A": "1"}).name]
    assert len(set(names)) == 6


class Torch:
    """As much of torch as starting a process asks for."""

    class cuda:
        """No context yet."""

        @staticmethod
        def is_initialized() -> bool:
            return False


def test_curves_come_from_processes_of_their_own_and_errors_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    def fake(torch: Any, condition: Condition) -> list[float]:
        if condition.act == "add":
            raise ValueError("no such device")
        if condition.act == "sum":
            os._exit(9)
        if condition.act == "event":
            os.kill(os.getpid(), 19)  # stops, and so never answers
        return [float(os.getpid()), float(os.environ.get("K", "0"))]

    monkeypatch.setattr(cliff, "curve", fake)
    monkeypatch.setattr(cliff, "TIMEOUT_S", 0.5)
    conditions = [Condition(env={"K": "7"}), Condition(act="add"), Condition(act="sum")]
    seen: list[dict[str, Any]] = []
    rows = sweep(Torch, conditions, 2, seen.append)
    assert rows == seen
    assert [row["process"] for row in rows] == [0, 0, 0, 1, 1, 1]
    pids = {row["curve"][0] for row in rows if "curve" in row}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert {row["curve"][1] for row in rows if "curve" in row} == {7.0}
    assert "K" not in os.environ
    assert "no such device" in rows[1]["error"]
    assert "error" in rows[2]
    with pytest.raises(Exception, match=r"no answer for 0\.5 s"):
        cliff.measure(Torch, Condition(act="event"), timeout_s=0.5)


@pytest.mark.parametrize(
    ("condition", "places"),
    [
        (Condition(), 0),
        *(
            (Condition(act=name), 1)
            for name in ("add", "product", "norm", "sum", "copy", "high", "legacy", "add40", "add40_waited")
        ),
        *((Condition(act=name), 0) for name in ("unused", "event", "wait", "capture")),
        (Condition(act="add+add+add"), 3),
        (Condition(act="add", late=True), 1),
        (Condition(capture="fresh"), 0),
        (Condition(warm=("linear_bias", "norm")), 0),
    ],
)
def test_curves_of_a_modelled_device_have_the_step_that_the_model_has(
    condition: Condition, places: int
) -> None:
    values = cliff.measure(fake_gpu, condition, timeout_s=20.0)
    assert len(values) == cliff.MOST_STREAMS + 1
    step = find_step(values)
    assert step.at == fake_gpu.PLACES - places  # the runtime stream has one place already
    assert step.low == pytest.approx(fake_gpu.LOW)
    assert step.high == pytest.approx(fake_gpu.HIGH)


def test_measured_limit_is_told_with_its_safe_count() -> None:
    limit = streams.measure_limit(fake_gpu, "Model", lambda row: None)
    assert (limit.safe, limit.stepped) == (fake_gpu.PLACES - 1, fake_gpu.PLACES)
    assert limit.cost_us == pytest.approx(fake_gpu.HIGH - fake_gpu.LOW)
    said = streams.sentences(limit)
    assert "up to 5 further streams that ran one kernel each, and from 6 on 1.143 us" in said[0]
    # The model counts streams, not launches: 40 launches on one take one place.
    assert limit.one_stream["reached"] is False
    assert limit.one_stream["us"] == pytest.approx(fake_gpu.LOW)
    assert "does not reach the high price" in said[1]
    assert "176 us" in said[2]


def test_a_device_on_which_launches_count_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_gpu, "LAUNCHES_COUNT", True)
    limit = streams.measure_limit(fake_gpu, "Model", lambda row: None)
    assert (limit.safe, limit.stepped) == (fake_gpu.PLACES - 1, fake_gpu.PLACES)
    assert limit.one_stream["reached"] is True
    assert limit.one_stream["us"] == pytest.approx(fake_gpu.HIGH)
    assert "launches count and not streams alone" in streams.sentences(limit)[1]
    for launches in (4, 8):
        curve = cliff.measure(fake_gpu, Condition(act=f"add{launches}"), timeout_s=20.0)
        assert find_step(curve).at == (fake_gpu.PLACES - launches if launches < fake_gpu.PLACES else None)


def test_the_benchmark_sums_up_every_condition_against_its_own_reference() -> None:
    from benchmarks import queue_cliff

    wanted = queue_cliff.conditions("cuda")
    assert len({condition.name for condition in wanted}) == len(wanted)
    assert wanted[0] == Condition()
    rows = sweep(fake_gpu, wanted, 2, lambda row: None)
    table = {row["condition"]: row for row in queue_cliff.summary(rows, wanted)}
    assert all(row["processes"] == 2 and not row["errors"] for row in table.values())
    assert table["add+add"]["places_used"] == 2
    assert table[Condition(act="add", warm=queue_cliff.WARM).name]["places_used"] == 1
    assert table["unused"]["places_used"] == 0
    assert any("GPU_MAX_HW_QUEUES" in condition.name for condition in queue_cliff.conditions("rocm"))


def test_only_arms_that_touch_streams_and_nothing_else_count() -> None:
    counts = {arm.name: streams.touched(arm.as_dict()) for arm in load_plan("capture-stream").arms}
    assert {name: k for name, k in counts.items() if k is not None} == {
        "off": 0,
        "off_again": 0,
        "touch_stream": 1,
        "streams_2": 2,
        "streams_4": 4,
        "streams_6": 6,
        "streams_8": 8,
        "streams_16": 16,
        "stream_late": 1,
    }


def test_recorded_limit_is_that_of_the_raw_table() -> None:
    recording = open_recording(ROOT / "data/recordings/capture-stream-h200-rivals")
    limit = streams.recorded_limit(recording)
    values = recording.block_values("boundary_us")
    assert limit.low_us == pytest.approx(
        values[["off", "off_again", "streams_2", "streams_4"]].stack().mean(), rel=2e-3
    )
    high = values[["streams_6", "streams_8", "streams_16"]].stack().mean()
    assert limit.high_us == pytest.approx(high, rel=1e-6)
    assert limit.one_stream["us"] == pytest.approx(values["launches_40"].median(), rel=1e-6)
    assert limit.one_stream["processes"] == len(values["launches_40"])
    assert json.dumps(limit.as_dict(), allow_nan=False)


def test_words_say_when_no_step_was_seen() -> None:
    points = [{"streams": k, "us": 0.9, "low": 0.9, "high": 0.9, "processes": 1} for k in (0, 16)]
    flat = streams.Limit("measured here", "Card", points, None, None, 0.9, None, None, None)
    assert "no step was seen" in streams.sentences(flat)[0]
