"""Differences of traces: exact sums, comparability, gaps, and the kind of slowdown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_support import DATA, chain, event, launch, shared, write

from rcatools.errors import InputError
from rcatools.trace.diff import TraceDiff, diff
from rcatools.trace.gaps import gaps
from rcatools.trace.intervals import extent
from rcatools.trace.read import load_trace

REAL_PAIRS = [
    ("h100/Qwen_Qwen1.5-0.5B-Chat__1016005", "mi300/Qwen_Qwen1.5-0.5B-Chat__1016005"),
    ("h100/gaunernst_bert-small-uncased__1016001", "mi300/gaunernst_bert-small-uncased__1016001"),
    (
        "h100/google_owlv2-large-patch14-ensemble__1016001",
        "mi300/google_owlv2-large-patch14-ensemble__1016001",
    ),
    ("inference/sglang_Qwen3-8B_decode", "inference/sglang_Qwen3-8B_prefilldecode"),
    ("mi300/resnet_act_checkpoint", "mi210/gpu_only_trace"),
]


def real(path: str) -> Path:
    return shared(f"real/tracelens/{path}.json.gz")


def h200(b: str, a: str = "off") -> TraceDiff:
    return diff(load_trace(DATA / f"trace_{a}.json.gz"), load_trace(DATA / f"trace_{b}.json.gz"))


@pytest.mark.parametrize("pair", REAL_PAIRS, ids=[a.split("/")[-1][:24] for a, _ in REAL_PAIRS])
def test_terms_add_up_on_real_pairs(pair: tuple[str, str]) -> None:
    a, b = (load_trace(real(path)) for path in pair)
    found = diff(a, b)
    spans = [extent(trace.kernels["start_ns"], trace.kernels["dur_ns"]) for trace in (a, b)]
    assert found.decomposition.total_ns == spans[1] - spans[0]
    assert sum(found.terms.values()) == pytest.approx(found.total_delta_us, abs=0.001)
    rows = found.kernels
    assert rows["delta_us"].sum() + found.terms["gaps_us"] == pytest.approx(found.total_delta_us, abs=0.001)
    for side, trace in (("a", a), ("b", b)):
        assert rows[f"count_{side}"].sum() == len(trace.kernels)
        assert rows[f"total_{side}_us"].sum() == pytest.approx(
            trace.kernels["dur_ns"].sum() / 1000, abs=0.001
        )


@pytest.mark.parametrize("pair", REAL_PAIRS[:3], ids=["qwen", "bert", "owlv2"])
def test_vendors_are_compared_by_role_and_the_coverage_is_stated(pair: tuple[str, str]) -> None:
    found = diff(*(load_trace(real(path)) for path in pair))
    assert found.comparable
    assert [reason.code for reason in found.reasons if reason.code == "device_differs"]
    assert found.reading == "undecided"
    roles = found.decomposition.roles.set_index("role")
    both = roles.loc[["matmul", "attention" if "attention" in roles.index else "softmax", "elementwise"]]
    assert (both["count_a"] > 0).all()
    assert (both["count_b"] > 0).all()
    document = found.to_json()
    assert min(document["coverage_a"]["aligned_share"], document["coverage_b"]["aligned_share"]) > 0.98


def test_different_cards_without_the_same_work_are_not_comparable() -> None:
    found = diff(
        load_trace(shared("real/hta/trace_diff/control.json.gz")),
        load_trace(shared("real/hta/trace_diff/test.json.gz")),
    )
    assert not found.comparable
    blocking = [reason.code for reason in found.reasons if reason.blocking]
    assert "device_differs" in blocking
    assert found.reading == "undecided"
    assert found.statements[0].startswith("Not comparable: different devices")
    assert sum(found.terms.values()) == pytest.approx(745239 - 464594, abs=0.001)


def test_slowdown_in_the_gaps_is_found_and_said() -> None:
    found = h200("side")
    assert found.comparable
    assert found.reading == "additive"
    assert found.fit.reading == "neither"
    assert found.boundaries.us_per_boundary == pytest.approx(0.352, abs=0.01)
    low, high = found.boundaries.ci
    assert 0.3 < low <= high < 0.4
    assert found.boundaries.a["median_us"] == 0.096
    assert found.terms["gaps_us"] / found.total_delta_us == pytest.approx(1.05, abs=0.01)
    assert abs(found.terms["slower_us"]) < 0.01 * 12229
    assert found.terms["new_us"] == found.terms["gone_us"] == found.terms["unaligned_us"] == 0
    assert "between them" in found.statements[-1]


def test_two_equal_states_show_no_difference() -> None:
    found = h200("current")
    assert found.reading == "neither"
    assert found.boundaries.us_per_boundary == 0
    assert not found.boundaries.changed


def test_the_way_back_is_a_gain_of_the_same_size() -> None:
    found = h200("off", "side")
    assert found.reading == "additive"
    assert found.boundaries.us_per_boundary == pytest.approx(-0.352, abs=0.01)
    assert found.total_delta_us == -h200("side").total_delta_us


def test_gaps_by_hand(tmp_path: Path) -> None:
    events = [launch(1, 0, "cudaGraphLaunch"), event("a", 10, 2, correlation=1), event("b", 12.5, 3, correlation=1),
              launch(2, 20), event("c", 30, 1, correlation=2), event("other", 10, 1, stream=9), event("other", 14, 1, stream=9)]  # fmt: skip
    table = gaps(load_trace(write(tmp_path / "t.json", events))).table
    assert sorted(zip(table["stream"], table["place"], table["gap_ns"], strict=True)) == [
        (7, "between", 14500), (7, "replay", 500), (9, "eager", 3000),
    ]  # fmt: skip


def test_terms_by_hand(tmp_path: Path) -> None:
    a = chain([10, 20, 5, 3, 7], ["gemm_1", "rms_norm", "strange", "attention_a", "copy_kernel"])
    b = chain(
        [12, 9, 20, 8, 4, 4],
        ["gemm_1", "copy_kernel", "rms_norm", "rms_norm", "attention_b", "unseen"],
        gap=2,
    )
    found = diff(load_trace(write(tmp_path / "a.json", a)), load_trace(write(tmp_path / "b.json", b)))
    assert {name: round(value, 3) for name, value in found.terms.items()} == {
        "slower_us": 2.0,  # gemm_1
        "launches_us": 8.0,  # the second norm
        "replaced_us": 1.0,  # attention_a by attention_b
        "new_us": 4.0,  # unseen
        "gone_us": -5.0,  # strange
        "unaligned_us": 2.0,  # the copy, which moved
        "gaps_us": 6.0,
    }
    assert found.total_delta_us == (57 + 5 * 2) - (45 + 4 * 1)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_terms_always_add_up(data: st.DataObject) -> None:
    import tempfile

    kernel = st.tuples(st.sampled_from(["gemm_a", "gemm_b", "odd", "norm_x", "copy_kernel"]), st.integers(0, 50_000), st.integers(-3000, 9000), st.integers(1, 3))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        traces = []
        for side in "ab":
            at, events = 1_000_000, []
            for name, duration, gap, stream in data.draw(st.lists(kernel, min_size=1, max_size=20)):
                at += gap
                events.append(event(name, f"{at / 1000:.3f}", f"{duration / 1000:.3f}", stream=stream))
                at += duration
            traces.append(load_trace(write(Path(folder) / f"{side}.json", events)))
        found = diff(*traces)
    spans = [extent(trace.kernels["start_ns"], trace.kernels["dur_ns"]) for trace in traces]
    assert sum(found.decomposition.terms_ns.values()) == spans[1] - spans[0]


def planted(
    folder: Path, seed: int, cost: float, share: float, launches: int = 600, kernels: int = 40
) -> TraceDiff:
    """Two traces under 5 % noise with a tenth of the kernels replaced by others."""
    generator = np.random.default_rng(seed)
    base = np.exp(generator.uniform(np.log(2), np.log(200), kernels))
    kind = np.arange(launches) % kernels
    roles = ("gemm", "attention", "rms_norm", "elementwise", "strange")
    names = [f"{roles[i % 5]}_{i}" for i in kind]
    noise = 1 + 0.05 * generator.standard_normal((2, launches))
    left, right = base[kind] * noise[0], (base[kind] * (1 + share) + cost) * noise[1]
    others = list(names)
    for row in generator.choice(launches, launches // 10, replace=False):
        others[row] = f"replacement_of_{names[row]}"
        right[row] *= generator.uniform(0.5, 1.5)
    a = write(folder / "a.json", chain(left, names))
    b = write(folder / "b.json", chain(right, others))
    return diff(load_trace(a), load_trace(b))


@pytest.mark.parametrize(
    ("cost", "share", "reading"),
    [(1.0, 0.0, "additive"), (0.0, 0.2, "multiplicative"), (1.0, 0.2, "both"), (0.0, 0.0, "neither")],
)
def test_planted_change_is_read_from_traces(tmp_path: Path, cost: float, share: float, reading: str) -> None:
    """Of 25 seeds here; benchmarks/trace_planted.py does 100 of each in nine sorts of traces."""
    found = [planted(tmp_path, seed, cost, share) for seed in range(25)]
    assert Counter(one.reading for one in found)[reading] >= 24
    assert sum(one.fit.us_ci[0] <= cost <= one.fit.us_ci[1] for one in found) >= 24
    assert sum(one.fit.ratio_ci[0] <= 1 + share <= one.fit.ratio_ci[1] for one in found) >= 24
    assert all(one.comparable for one in found)


def test_more_launches_are_a_fixed_cost(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    names, durations = [f"gemm_{i % 9}" for i in range(300)], generator.uniform(3, 40, 300)
    more_names = [
        name for base in names for name in ([base, "empty"] if generator.random() < 0.3 else [base])
    ]
    more = [durations[0]] * len(more_names)
    it = iter(durations)
    more = [1.2 if name == "empty" else next(it) for name in more_names]
    found = diff(load_trace(write(tmp_path / "a.json", chain(durations, names, gap=0.1))), load_trace(write(tmp_path / "b.json", chain(more, more_names, gap=0.1))))  # fmt: skip
    assert found.comparable
    assert found.reading == "additive"
    assert found.terms["new_us"] == pytest.approx(1.2 * more_names.count("empty"))
    assert any("kernels: a cost per launch" in text for text in found.statements)


def test_a_change_of_one_kernel_is_no_fixed_cost(tmp_path: Path) -> None:
    """A fifth more for the longest kernel only, which is a tenth of the launches and most of the time."""
    generator = np.random.default_rng(0)
    names = [f"gemm_{i % 9}" if i % 10 else "kv_gather" for i in range(600)]
    base = np.array([60.0 if name == "kv_gather" else 3.0 + int(name[-1]) for name in names])
    a = base * (1 + 0.02 * generator.standard_normal(600))
    b = base * np.where(base == 60, 1.2, 1.0) * (1 + 0.02 * generator.standard_normal(600))
    found = diff(
        load_trace(write(tmp_path / "a.json", chain(a, names))),
        load_trace(write(tmp_path / "b.json", chain(b, names))),
    )
    assert found.reading == "multiplicative"
    changed = found.kernels[found.kernels["changed"].astype(bool)]
    assert changed["name_a"].tolist() == ["kv_gather"]
    assert changed["ratio"].iloc[0] == pytest.approx(1.2, abs=0.02)
    assert any("attention" in text and "the others did not" in text for text in found.statements)


def test_shorter_gaps_behind_longer_kernels_are_no_cost_at_boundaries(tmp_path: Path) -> None:
    """Kernels start on a fixed schedule: what they last longer, the gaps lose."""
    generator = np.random.default_rng(0)
    base = generator.uniform(5, 60, 400)
    sides = []
    for factor in (1.0, 1.2):
        events = []
        for number, duration in enumerate(base, start=1):
            events += [
                launch(number, 100.0 * number - 5),
                event(f"gemm_{number % 20}", 100.0 * number, round(duration * factor, 3), correlation=number),
            ]
        sides.append(load_trace(write(tmp_path / f"{factor}.json", events)))
    found = diff(*sides)
    assert found.boundaries.us_per_boundary < -3
    assert found.reading == "multiplicative"


def test_false_discoveries_are_held_back(tmp_path: Path) -> None:
    """200 kernels, ten launches each, nothing changed: hardly any may be called changed."""
    generator = np.random.default_rng(3)
    names = [f"gemm_{i % 200}" for i in range(2000)]
    sides = [load_trace(write(tmp_path / f"{i}.json", chain(20 * np.exp(0.05 * generator.standard_normal(2000)), names))) for i in range(2)]  # fmt: skip
    rows = diff(*sides).kernels
    assert (rows["p_value"] < 0.05).sum() >= 3  # some are, uncorrected
    assert rows["changed"].astype(bool).sum() <= 1


def test_a_trace_without_gpu_work_cannot_be_compared(tmp_path: Path) -> None:
    empty = load_trace(write(tmp_path / "e.json", []))
    with pytest.raises(InputError, match="no GPU activity"):
        diff(empty, load_trace(DATA / "trace_off.json.gz"))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("device", "device_differs"),
        ("replays", "replays_differ"),
        ("clock", "health_clock_jump"),
        ("giant", "health_dominant_event"),
    ],
)
def test_the_gate_names_what_stands_against(tmp_path: Path, change: str, code: str) -> None:
    names, durations = [f"gemm_{i % 5}" for i in range(60)], [5.125 + i % 7 for i in range(60)]
    a = load_trace(write(tmp_path / "a.json", chain(durations, names)))
    events, card = chain(durations, names), "Card"
    if change == "device":
        card = "Other card"
    if change == "replays":
        a = load_trace(write(tmp_path / "a.json", [{**e, "name": "cudaGraphLaunch"} if e["cat"] == "cuda_runtime" else e for e in chain(durations, names)]))  # fmt: skip
        events = [
            {**e, "name": "cudaGraphLaunch"}
            if e["cat"] == "cuda_runtime" and e["args"]["correlation"] > 30
            else e
            for e in events
        ]
    if change == "clock":
        events = [*events, launch(99, 9e9), event("gemm_1", 9e9 + 5, 5, correlation=99)]
    if change == "giant":
        events = [
            *events,
            launch(99, 1900),
            event("gemm_1", 2000, 90_000, correlation=99),
            event("end", 99_999, 1),
        ]
    found = diff(a, load_trace(write(tmp_path / "b.json", events, card)))
    assert code in [reason.code for reason in found.reasons]
