"""Worker groups end: with results, with an error, or by their watchdog."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from rcatools.errors import InputError, RunError
from rcatools.workload.vime.contract import VocabLayout
from rcatools.workload.vime.group import run_group

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


def test_a_call_that_is_no_function_is_refused() -> None:
    with pytest.raises(InputError, match=r"module\.function"):
        run_group("nothing", 2, watchdog_s=1.0)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
