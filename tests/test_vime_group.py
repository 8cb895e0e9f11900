"""Worker groups end: with results, with an error, or by their watchdog."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from rcatools.errors import InputError, RunError
from rcatools.workload.vime.contract import VocabLayout
from rcatools.workload.vime.group import processors_of, run_group

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LAYOUT = VocabLayout.even(4096, 2)
FORGETS: dict[str, Any] = {"layout": LAYOUT, "rows": 8, "seed": 1}


def test_a_hang_ends_with_the_watchdog_and_leaves_no_process() -> None:
    started = time.monotonic()
    outcome = run_group(
        "hazards.one_rank_forgets",
        2,
        watchdog_s=2.0,
        arguments=FORGETS | {"form": "packed_once", "then": "barrier"},
    )
    assert outcome.state == "hang"
    assert outcome.silent == (0, 1)
    assert 2.0 <= outcome.seconds <= time.monotonic() - started
    assert len(outcome.pids) == 2
    assert not any(alive(pid) for pid in outcome.pids)
    with pytest.raises(RunError, match="hang"):
        outcome.require()


def test_a_rank_that_raises_ends_the_group_with_its_message() -> None:
    wrong = FORGETS | {"form": "no_such_form"}
    outcome = run_group("hazards.one_rank_forgets", 2, watchdog_s=20.0, arguments=wrong)
    assert outcome.state == "error"
    assert any("no_such_form" in text for text in outcome.errors.values())


def test_a_rank_that_dies_leaves_its_last_words(capfd: pytest.CaptureFixture[str]) -> None:
    outcome = run_group(
        "hazards.one_rank_forgets", 2, watchdog_s=20.0, arguments=FORGETS | {"form": "packed_once"}
    )
    assert outcome.state == "error"
    assert "doesn't match expected size" in outcome.errors[1]
    assert capfd.readouterr().err == ""


def test_a_call_that_is_no_function_is_refused() -> None:
    with pytest.raises(InputError, match=r"module\.function"):
        run_group("nothing", 2, watchdog_s=1.0)


@pytest.mark.parametrize(
    ("world", "allowed", "shares"),
    [
        (2, {5, 3}, [[3], [5]]),
        (2, {0, 1, 2, 3, 4}, [[0, 1], [2, 3]]),
        (4, {0, 1}, [[0, 1]] * 4),
        (1, {0, 1}, [[0, 1]]),
    ],
)
def test_ranks_share_out_the_processors(world: int, allowed: set[int], shares: list[list[int]]) -> None:
    assert [processors_of(rank, world, allowed) for rank in range(world)] == shares


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
