"""A run of a form as the engine makes it: metrics per world size, counts, bits checked, bad input refused."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from rcatools.errors import InputError, RunError, UnknownNameError
from rcatools.experiment.arms import load_plan
from rcatools.workload.vime import bench
from rcatools.workload.vime.checks import Variant, inputs
from rcatools.workload.vime.contract import VocabLayout

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SMALL: dict[str, Any] = {"vocab": "4000", "rows": "4", "worlds": "1,2", "calls": "3"}


def task(block: int = 0, **settings: Any) -> dict[str, Any]:
    return {"config": SMALL, "arm": {"settings": settings}, "backend": "cpu", "block": block}


@pytest.fixture
def forkserver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run in a process that has threads by now: start workers the safe way."""
    real = bench.run_group
    monkeypatch.setattr(bench, "run_group", lambda *a, **k: real(*a, **k | {"start": "forkserver"}))


def test_a_run_has_metrics_for_each_world_size_and_counts(forkserver: None) -> None:
    result = bench.run(torch, task(form="reference", extra_gathers=1))
    assert set(result["samples"]) == {"exchange_us", "call_us", "exchange_1_us", "call_1_us"}
    for world, label in ((1, "_1"), (2, "")):
        exchange, call = (np.array(result["samples"][f"{what}{label}_us"]) for what in ("exchange", "call"))
        assert exchange.shape == call.shape == (3,)
        assert (exchange > 0).all()
        assert (call > exchange).all()
        assert result["facts"][f"collectives_per_call_{world}"] == 4
        assert result["facts"][f"backend_collectives_per_call_{world}"] == 5


def test_a_sample_is_the_fastest_of_so_many_calls() -> None:
    assert bench.fastest([5.0, 3.0, 4.0, 9.0, 8.0, 7.0, 6.0], 3) == [3.0, 7.0, 6.0]
    assert bench.fastest([5.0, 3.0], 1) == [5.0, 3.0]


def test_planted_repeats_multiply_the_collectives(forkserver: None) -> None:
    result = bench.run(torch, task(form="packed", repeats=2))
    assert result["facts"]["collectives_per_call_2"] == 4


def test_the_hash_is_of_what_one_rank_computes(forkserver: None) -> None:
    facts = bench.run(torch, task(form="safe_carried"))["facts"]
    layout = VocabLayout(4000, 4032, (64,))
    logits, targets = inputs(layout, 4, 1, "cpu", 0)
    exact = torch.log_softmax(logits[:, :4000].double(), -1).gather(1, targets[:, None])[:, 0]
    got = bench.time_variants(bench.BenchConfig.from_mapping(SMALL), 2, {"x": Variant("safe_carried")})
    assert got["output_sha256"] == facts["output_sha256"]
    from rcatools.workload.vime.checks import serial

    alone = serial(layout, 4, 1, "cpu")
    assert facts["output_sha256"] == hashlib.sha256(alone.numpy().tobytes()).hexdigest()
    assert torch.allclose(alone.double(), exact, rtol=1e-6)


def test_a_wrong_result_is_an_error_of_the_run(forkserver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = bench.run_group

    def corrupted(*args: Any, **kwargs: Any) -> Any:
        outcome = real(*args, **kwargs)
        outcome.results[0]["equal"] = False
        return outcome

    monkeypatch.setattr(bench, "run_group", corrupted)
    with pytest.raises(RunError, match="differ"):
        bench.run(torch, task(form="packed"))


def test_an_inspection_checks_bits_instead_of_timing(forkserver: None) -> None:
    result = bench.run(torch, task(block=-1, form="packed_cached"))
    assert result["samples"] == {}
    # per vocabulary: one rank, then even and uneven shards on two
    assert result["facts"] == {"layouts_checked": 6, "bits_equal": True}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"row": 8}, "did you mean 'rows'"),
        ({"rows": "many"}, "rows must be int"),
        ({"calls": 0}, "positive"),
        ({"watchdog_s": "-1"}, "positive"),
    ],
)
def test_wrong_parameters_are_refused(values: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        bench.BenchConfig.from_mapping(values)


@pytest.mark.parametrize("worlds", ["3", "0", "two", "1,,2", ""])
def test_world_sizes_must_divide_the_tiles(worlds: str) -> None:
    with pytest.raises(InputError, match="world size"):
        bench.BenchConfig(worlds=worlds).world_sizes()


def test_the_judged_world_size_must_be_measured() -> None:
    with pytest.raises(InputError, match="judged"):
        bench.BenchConfig(worlds="1,4").world_sizes()


@pytest.mark.parametrize("settings", [{}, {"form": "packd"}, {"form": "packed", "repeat": 2}])
def test_arms_must_name_a_form_and_nothing_unknown(settings: dict[str, Any]) -> None:
    with pytest.raises(UnknownNameError):
        bench.variant_of(settings)


def test_every_arm_of_the_investigation_can_be_run() -> None:
    plan = load_plan("vime-decode")
    variants = {arm.name: bench.variant_of(arm.settings) for arm in plan.arms}
    assert variants["plant_additive"].extra_gathers == 1
    assert variants["plant_multiplicative"].repeats == 2
    on_gpus_only = {"packed_readback"}  # a readback costs nothing where the numbers lie on the host already
    assert {variant.form for variant in variants.values()} == set(bench.FORMS) - on_gpus_only
    for backend in ("cpu", "cuda", "rocm"):
        config = bench.BenchConfig.from_mapping(plan.parameters[backend])
        assert plan.metric in {f"exchange{config.label(world)}_us" for world in config.world_sizes()}
