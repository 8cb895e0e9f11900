"""The decision rule on recorded A/A data, resampled: real noise, where the truth is known to be "no difference"."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from rcatools.experiment import looks
from rcatools.recording.reader import open_recording
from rcatools.stats.paired import compare_blocks

RECORDINGS = Path(__file__).resolve().parents[1] / "data" / "recordings"
TRIALS = 400
LIMIT = 0.07 + 2 * np.sqrt(0.07 * 0.93 / TRIALS)  # at most 7 %, with twice the error of the simulation


@lru_cache
def residuals() -> np.ndarray:
    """Logs of the runs of both baselines on the H200 without their blocks' levels, both signs, shape (2 * 2 * blocks,)."""
    wide = open_recording(RECORDINGS / "capture-stream-h200").block_values("step_us")[["off", "off_again"]]
    half = np.log(wide.to_numpy() / np.exp(np.log(wide.to_numpy()).mean(axis=1, keepdims=True)))
    noise = np.sqrt(2) * half.ravel()  # a difference of two runs has twice the variance of one
    return np.concatenate([noise, -noise])


def draw(rng: np.random.Generator, n: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Two arms of n blocks from the recorded noise, under a common drift of 3 %."""
    drift = 0.03 * np.cumsum(rng.normal(size=n)) / np.sqrt(n)
    pool = residuals()
    return tuple(np.exp(drift + scale * rng.choice(pool, n)) for _ in "ab")  # type: ignore[return-value]


def test_recorded_noise_is_there_and_small() -> None:
    pool = residuals()
    blocks = open_recording(RECORDINGS / "capture-stream-h200").manifest.counts["blocks_whole"]
    assert pool.size == 4 * blocks >= 48
    assert 1e-5 < pool.std() < 2e-3


@pytest.mark.parametrize("n", [6, 12, 30])
def test_false_alarms_on_resampled_recorded_baselines(n: int) -> None:
    rng = np.random.default_rng(n)
    verdicts = Counter(compare_blocks(*draw(rng, n)).verdict for _ in range(TRIALS))
    assert (verdicts["slower"] + verdicts["faster"]) / TRIALS <= LIMIT


def test_planted_two_percent_is_found_in_recorded_noise_blown_up_to_one_percent() -> None:
    rng, found = np.random.default_rng(2), 0
    scale = 0.01 / (np.sqrt(2) * residuals().std())
    for _ in range(TRIALS):
        a, b = draw(rng, 12, scale)
        found += compare_blocks(a, 1.02 * b).verdict == "slower"
    assert found / TRIALS >= 0.8


@pytest.mark.parametrize("kind", looks.KINDS)
def test_sequential_error_on_resampled_recorded_baselines(kind: str) -> None:
    rng, alarms = np.random.default_rng(3), 0
    declared = looks.declare(30, looks=5, kind=kind, alpha=0.05, judged=("b",))
    for _ in range(TRIALS):
        a, b = draw(rng, 30)
        d = np.log(b) - np.log(a)
        for look, blocks in enumerate(declared["blocks"]):
            decision = looks.judge(d[:blocks], declared, look, margin=1e-5)["decision"]
            if decision != "open":
                alarms += decision == "different"
                break
    assert alarms / TRIALS <= LIMIT
