"""The snapshot command: JSON shapes, exit codes, and messages for wrong input."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from rcatools.cli.app import main

DATA = Path(__file__).parent / "data" / "snapshots"
STREAMS = str(DATA / "streams4.pickle.gz")


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["snapshot", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    check_finite(document)
    return document


def check_finite(value: Any) -> None:
    if isinstance(value, dict):
        for part in value.values():
            check_finite(part)
    elif isinstance(value, list):
        for part in value:
            check_finite(part)
    elif isinstance(value, float):
        assert math.isfinite(value)


def test_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, "ledger", STREAMS)
    device = document["devices"][0]
    assert set(device) >= {
        "device", "reserved", "allocated", "active", "awaiting_free", "stranded", "releasable", "rounding",
        "segments", "live_blocks",
    }  # fmt: skip
    assert device["reserved"] == sum(r["reserved"] for r in document["rows"])
    assert set(document["rows"][0]) >= {
        "device", "stream", "pool_id", "size_class", "reserved", "allocated", "active", "awaiting_free", "stranded",
        "releasable", "largest_free", "segments",
    }  # fmt: skip
    assert document["rows"][0]["pool_id"] == [0, 0]
    assert set(document["peak"]) >= {"requested_bytes", "event_index", "complete", "preexisting_bytes"}
    assert document["peak"]["complete"] is True
    assert document["history"]["events"] == 91
    assert document["history"]["recorded"] is True
    assert document["history"]["overflowed"] is False
    assert document["warnings"] == []
    assert document["pins"][0]["stranded"] > 0


def test_ledger_names_blocks_that_would_hold_a_request(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, "ledger", str(DATA / "streams4_before.pickle.gz"), "--request", "40 MiB")
    assert {b["stream"] for b in document["fitting"]} - {0}
    assert all(b["size"] >= 40 << 20 for b in document["fitting"])


def test_owners(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, "owners", str(DATA / "owner_lt_76.pickle.gz"))
    block = document["blocks"][0]
    assert {
        "device", "address", "size", "stream", "owner", "basis", "confidence", "pins_bytes",
    } <= set(block)  # fmt: skip
    assert (block["size"], block["owner"], block["basis"]) == (79_691_776, "blas_lt_workspace", "frames")
    decided = run_json(
        capsys,
        "owners",
        str(DATA / "owner_lt_76.pickle.gz"),
        "--resized",
        str(DATA / "owner_lt_40.pickle.gz"),
        "--cleared",
        str(DATA / "owner_lt_76_cleared.pickle.gz"),
        "--change",
        "CUBLASLT_WORKSPACE_SIZE=77824->40960",
    )
    assert decided["blocks"][0]["basis"] == "intervention"
    assert decided["intervention"]["follows"] is True


def test_replay(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, "replay", STREAMS)
    assert set(document) >= {
        "events", "checked", "exact", "fraction_exact", "unverifiable", "segment_sequence_exact", "end_state_exact",
        "peak_reserved", "first_mismatch", "mode", "torch_rules",
    }  # fmt: skip
    assert document["fraction_exact"] == 1.0
    assert document["first_mismatch"] is None
    assert document["torch_rules"] == "2.11"
    wrong = run_json(capsys, "replay", str(DATA / "random_roundup.pickle.gz"), "--conf", "")
    assert wrong["fraction_exact"] < 1
    assert set(wrong["first_mismatch"]) >= {"index", "action", "expected", "recorded"}


def test_diff(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, "diff", str(DATA / "streams4_before.pickle.gz"), STREAMS)
    assert {row["change"] for row in document["blocks"]} == {"new", "grown"}
    assert document["matched_by"] == "handle"


def test_oom(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(
        "step 1\nRuntimeError: CUDA out of memory. Tried to allocate 7.31 GiB (GPU 0; 11.92 GiB total capacity; "
        "307.86 MiB already allocated; 4.36 GiB free; 6.80 GiB cached)\n"
    )
    document = run_json(capsys, "oom", str(log))
    assert [(m["line"], m["cause"]) for m in document["messages"]] == [(2, "cache_may_cover")]


def test_whatif(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("steps:\n  - alloc: {name: ws, size: 76 MiB, stream: side}\n  - empty_cache\n")
    document = run_json(capsys, "whatif", str(path))
    assert document["devices"][0]["reserved"] == 79_691_776
    assert document["scenario"]["streams"] == {"default": 0, "side": 1}


@pytest.mark.parametrize("action", ["ledger", "owners", "replay"])
def test_tables_for_reading(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", action, str(DATA / "graph_pools.pickle.gz"), "--top", "2"]) == 0
    out = capsys.readouterr().out
    assert "exact" in out if action == "replay" else "MiB" in out or " B" in out
    assert "Traceback" not in out


def test_empty_diff_says_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "diff", STREAMS, STREAMS]) == 0
    assert "none" in capsys.readouterr().out


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("never",))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ledger", "nothing.pickle"], "nothing.pickle"),
        (["ledger", "{evil}"], "nothing was run"),
        (["replay", "{empty}"], "nothing to replay"),
        (["ledger", "{text}"], "text.pickle"),
        (["diff", "{good}"], "required: B (see rcatools snapshot diff"),
        (["ledger", "{good}", "{good}"], "unrecognized arguments"),
        (["ledger", "{good}", "--device", "3"], "nothing for device 3"),
        (["owners", "{good}", "--env", "X"], "NAME=VALUE"),
        (["owners", "{good}", "--resized", "{good}"], "--change"),
        (["owners", "{good}", "--resized", "{good}", "--change", "A=1->2"], "NAME=VALUE->VALUE"),
        (["replay", "{good}", "--conf", "nonsense"], "key:value"),
        (["ledger", "{good}", "--max-gib", "0.000001"], "once unpacked"),
        (["guess", "{good}"], "guess"),
        (["oom", "{text}"], "no out-of-memory line"),
        (["whatif", "{text}"], "steps"),
        (["ledger"], "FILE"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evil.pickle").write_bytes(pickle.dumps({"segments": [Evil()]}))
    (tmp_path / "empty.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
    (tmp_path / "text.pickle").write_text("hello: world")
    names = {"evil": "evil.pickle", "empty": "empty.pickle", "text": "text.pickle"}
    paths = {name: str(tmp_path / file) for name, file in names.items()} | {"good": STREAMS}
    assert main(["snapshot", *[a.format(**paths) for a in arguments]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "--help"]) == 0
    out = capsys.readouterr().out
    assert "example: rcatools snapshot ledger" in out
    for action in ("ledger", "owners", "replay", "diff", "oom", "whatif"):
        assert action in out
