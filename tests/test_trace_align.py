"""Alignment against a plain quadratic dynamic program, and what may be paired with what."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_support import DATA, chain, event, launch, shared, write

from rcatools.trace import align as module
from rcatools.trace.align import BASES, CONFIDENCE, align
from rcatools.trace.model import Trace
from rcatools.trace.read import load_trace
from rcatools.trace.roles import role_of

NAMES = ["gemm_a", "gemm_b", "attention_x", "attention_y", "strange", "odd", "rms_norm_1"]
WEIGHT = {"exact": 20, "name": 15, "role": 4}


def slow_best(a: list[str], b: list[str]) -> int:
    """Best total weight of an order-keeping alignment."""

    def weight(x: str, y: str) -> int | None:
        if x == y:
            return WEIGHT["exact"]
        role = role_of(x)[0]
        return WEIGHT["role"] if role == role_of(y)[0] != "other" else None

    @cache
    def best(i: int, j: int) -> int:
        if i == len(a) or j == len(b):
            return 0
        pair = weight(a[i], b[j])
        options = [best(i + 1, j), best(i, j + 1)]
        return max([*options, pair + best(i + 1, j + 1)] if pair is not None else options)

    return best(0, 0)


def trace_of(path: Path, names: list[str]) -> Trace:
    return load_trace(write(path, chain([3.0] * len(names), names)))


@settings(max_examples=50, deadline=None)
@given(a=st.lists(st.sampled_from(NAMES), min_size=1, max_size=14), b=st.lists(st.sampled_from(NAMES), min_size=1, max_size=14))  # fmt: skip
def test_alignment_is_the_best_one_that_keeps_order(a: list[str], b: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = align(trace_of(Path(folder) / "a.json", a), trace_of(Path(folder) / "b.json", b))
    pairs = found.pairs.sort_values("a")
    assert (np.diff(pairs["b"]) > 0).all()
    assert sum(WEIGHT[BASES[basis]] for basis in pairs["basis"]) == slow_best(a, b)
    assert len(pairs) + len(found.only_a) == len(a)
    assert len(pairs) + len(found.only_b) == len(b)


def test_a_band_finds_the_same_when_the_traces_are_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(1)
    a = [NAMES[i] for i in generator.integers(0, len(NAMES), 1500)]
    b = [name for name in a if generator.random() > 0.02]
    left, right = trace_of(tmp_path / "a.json", a), trace_of(tmp_path / "b.json", b)
    whole = align(left, right)
    monkeypatch.setattr(module, "MAX_CELLS", 1500 * 600)
    banded = align(left, right)
    assert banded.banded
    assert not whole.banded
    assert (banded.pairs["basis"] == 0).sum() == (whole.pairs["basis"] == 0).sum() == len(b)


def test_replays_are_aligned_one_by_one() -> None:
    found = align(load_trace(DATA / "trace_off.json.gz"), load_trace(DATA / "trace_side.json.gz"))
    assert found.phases == 5
    assert set(found.pairs["basis"]) == {0}
    assert len(found.only_a) == len(found.only_b) == 0


def test_a_kernel_keeps_its_place_among_equals(tmp_path: Path) -> None:
    """The product that vanished is the one between the norms, not simply the last of its name."""
    a = ["rms_norm_1", "gemm_a", "rms_norm_1", "attention_x", "gemm_a"]
    b = ["rms_norm_1", "rms_norm_1", "attention_x", "gemm_a"]
    found = align(trace_of(tmp_path / "a.json", a), trace_of(tmp_path / "b.json", b))
    assert found.only_a.tolist() == [1]


def test_operation_and_shapes_rank_above_the_role(tmp_path: Path) -> None:
    def side(path: Path, rows: list[tuple[str, str, list[list[int]]]]) -> Trace:
        events = []
        for number, (name, op, shape) in enumerate(rows, start=1):
            at = 100.0 * number
            events.append({"ph": "X", "cat": "cpu_op", "name": op, "pid": 1, "tid": 1, "ts": at - 10, "dur": 9,
                           "args": {"External id": number, "Input Dims": shape, "Input type": ["float"] * len(shape)}})  # fmt: skip
            events.append(launch(number, at - 5))
            events.append({**event(name, at, 5, correlation=number), "args": {"device": 0, "stream": 0, "correlation": number, "External id": number}})  # fmt: skip
        return load_trace(write(path, events))

    square, wide = [[8, 8], [8, 8]], [[8, 8], [8, 64]]
    a = side(tmp_path / "a.json", [("nvjet_1", "aten::mm", square), ("nvjet_2", "aten::addmm", wide)])
    b = side(tmp_path / "b.json", [("Cijk_9", "aten::addmm", wide), ("Cijk_8", "aten::addmm", wide)])
    found = align(a, b)
    assert BASES[found.pairs["basis"].iloc[-1]] == "role_op_shapes"
    assert dict(zip(found.pairs["a"], found.pairs["b"], strict=True))[1] in (0, 1)
    assert list(itertools.accumulate(CONFIDENCE.values(), min)) == list(CONFIDENCE.values())


@pytest.mark.parametrize("model", ["Qwen_Qwen1.5-0.5B-Chat__1016005", "gaunernst_bert-small-uncased__1016001", "google_owlv2-large-patch14-ensemble__1016001"])  # fmt: skip
def test_the_same_model_on_two_vendors_aligns_by_role(model: str) -> None:
    a, b = (load_trace(shared(f"real/tracelens/{card}/{model}.json.gz")) for card in ("h100", "mi300"))
    found = align(a, b)
    time_a = a.kernels["dur_ns"].to_numpy()
    time_b = b.kernels["dur_ns"].to_numpy()
    assert time_a[found.pairs["a"]].sum() > 0.98 * time_a.sum()
    assert time_b[found.pairs["b"]].sum() > 0.98 * time_b.sum()
    names = (
        a.kernels["op"].astype(str).to_numpy()[found.pairs["a"]],
        b.kernels["op"].astype(str).to_numpy()[found.pairs["b"]],
    )
    known = (names[0] != "") & (names[1] != "")
    assert (names[0] == names[1])[known].mean() > 0.97


def test_unlinked_kernels_come_before_the_first_launch(tmp_path: Path) -> None:
    early = [event("queued", 100, 50), event("queued2", 151, 50)]
    late = [launch(1, 90.0), event("first", 210, 5, correlation=1)]
    table = load_trace(write(tmp_path / "t.json", [*late, *early])).kernels
    order = module.launch_order(table)
    assert table["name"].astype(str).to_numpy()[order].tolist() == ["queued", "queued2", "first"]
