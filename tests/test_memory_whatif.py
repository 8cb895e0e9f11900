"""What-if scenarios: the questions a person asks without a GPU, with answers known from the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from rcatools.errors import InputError, RcaError, UnknownNameError
from rcatools.memory.ledger import ledger
from rcatools.memory.peak import peak
from rcatools.memory.replay import replay
from rcatools.memory.rules import parse_settings, rules_for_version, rules_from_settings, rules_from_snapshot
from rcatools.memory.scenario_file import load_scenario
from rcatools.memory.whatif import Scenario, parse_size

MIB = 1 << 20
WORKSPACE = 79_691_776


def side_stream_profile(*, prewarm: bool, empty: bool) -> Scenario:
    """A forward on a side stream before the KV cache, as a profiling run does it."""
    w = Scenario()
    w.alloc("weights", "512 MiB")
    if prewarm:
        w.alloc("workspace", WORKSPACE)
    else:
        w.alloc("workspace", WORKSPACE, stream="side")
    w.alloc("activations", "200 MiB", stream="side")
    w.free("activations")
    if empty:
        w.empty_cache()
    w.alloc("kv", "2 GiB")
    return w


def test_a_side_stream_workspace_stays_and_the_cache_is_not_moved_by_it() -> None:
    arms = {p: side_stream_profile(prewarm=p, empty=True) for p in (False, True)}
    for prewarm, scenario in arms.items():
        table = scenario.segments().set_index("name")
        assert (
            table.loc["workspace", "segment_size"] == WORKSPACE
        )  # a segment of exactly its own size, unsplit
        assert table.loc["workspace", "stream"] == ("default" if prewarm else "side")
        assert table.loc["kv", "offset"] == 0
        assert table.loc["kv", "segment_size"] == 2048 * MIB
        assert int(ledger(scenario.snapshot()).devices["releasable"].iloc[0]) == 0
    totals = [arms[p].summary()["reserved"] for p in (False, True)]
    assert totals[0] == totals[1]


def test_without_empty_cache_side_stream_memory_stays_cached_for_its_stream() -> None:
    w = side_stream_profile(prewarm=False, empty=False)
    rows = ledger(w.snapshot()).rows
    side = rows[rows["stream"] != 0]
    assert int(side["releasable"].sum()) == 200 * MIB
    again = side_stream_profile(prewarm=False, empty=False)
    reserved = again.summary()["reserved"]
    again.alloc("other", "150 MiB")  # the default stream cannot have it
    assert again.summary()["reserved"] == reserved + 150 * MIB
    again.alloc("mine", "150 MiB", stream="side")
    assert again.summary()["reserved"] == reserved + 150 * MIB


def test_a_cached_segment_moves_a_later_block_off_its_start() -> None:
    w = Scenario()
    w.alloc("keep", "2 MiB")
    w.alloc("next", "4 MiB")
    placed = w.segments().set_index("name")
    assert placed.loc["next", "segment"] == placed.loc["keep", "segment"]
    assert placed.loc["next", "offset"] == 2 * MIB


def test_streams_that_come_and_go_strand_up_to_a_working_set_each() -> None:
    w = Scenario()
    for i in range(32):
        w.alloc("buffer", "64 MiB", stream=f"s{i}")
        w.free("buffer")
    assert w.summary()["reserved"] == 32 * 64 * MIB
    w.empty_cache()
    assert w.summary()["reserved"] == 0


def test_capture_pools_pin_memory_until_every_graph_is_gone() -> None:
    w = Scenario()
    for name in ("a", "b"):
        with w.capture("shared", "capture", rng_state=False):
            w.alloc(name, "24 MiB")
            w.free(name)
    assert w.summary()["reserved"] == 24 * MIB  # the second capture reuses the first one's block
    w.alloc("outside", "24 MiB", stream="capture")
    assert w.summary()["reserved"] == 48 * MIB  # other requests cannot, even on the same stream
    w.release("shared")
    w.empty_cache()
    assert w.summary()["reserved"] == 48 * MIB
    w.release("shared")
    w.empty_cache()
    assert w.summary()["reserved"] == 24 * MIB
    with pytest.raises(InputError, match="was released"), w.capture("shared", "capture"):
        pass


def test_recorded_streams_delay_a_free_until_they_are_done() -> None:
    w = Scenario()
    w.alloc("x", "30 MiB")
    w.record_stream("x", "side")
    w.free("x")
    w.alloc("y", "30 MiB")
    assert w.summary()["reserved"] == 60 * MIB
    assert "waiting" in w.segments()["state"].tolist()
    w.sync("side")
    w.alloc("z", "30 MiB")
    assert w.summary()["reserved"] == 60 * MIB


def test_a_limit_makes_requests_fail_and_releases_the_cache_first() -> None:
    w = Scenario(limit="100 MiB")
    w.alloc("a", "60 MiB", stream="side")
    w.free("a")
    assert w.alloc("b", "80 MiB")
    assert not w.alloc("c", "30 MiB")
    assert w.summary()["failed"] == ["c"]
    assert (w.summary()["retries"], w.summary()["ooms"]) == (2, 1)


def test_overflow_pools_are_used_in_the_order_of_the_version() -> None:
    found = {}
    for version in ("2.9", "2.11"):
        w = Scenario(torch=version, limit="200 MiB")
        with w.mempool("spare", use_on_oom=True):
            w.alloc("p", "60 MiB")
            w.free("p")
        w.alloc("a", "80 MiB")
        w.alloc("cached", "40 MiB")
        w.free("cached")
        w.alloc("b", "50 MiB")
        found[version] = (
            w.segments().set_index("name").loc["b", "pool"],
            "segment_free" in set(w.events()["action"]),
        )
    assert found["2.9"] == ("default", True)  # everything cached went first, and that was enough
    assert found["2.11"] == ("spare", False)


def test_an_active_mempool_counted_as_a_capture_before_2_13() -> None:
    held = {}
    for version in ("2.11", "2.13"):
        w = Scenario(torch=version)
        w.alloc("a", "30 MiB")
        w.free("a")
        with w.mempool("pool"):
            w.empty_cache()
        held[version] = w.summary()["reserved"]
    assert held == {"2.11": 30 * MIB, "2.13": 0}


def test_a_scenario_is_a_snapshot_like_any_other() -> None:
    w = side_stream_profile(prewarm=False, empty=True)
    snapshot = w.snapshot()
    result = replay(snapshot)
    assert result.exact == result.checked == len(w.events())
    top = peak(snapshot, 0)
    assert top is not None
    assert top.complete
    assert top.requested_bytes == 512 * MIB + WORKSPACE + 2048 * MIB


def test_ties_that_only_addresses_decide_are_counted() -> None:
    w = Scenario()
    for i in range(3):
        w.alloc(f"k{i}", "24 MiB")
    w.free("k0", "k2")
    w.alloc("m", "24 MiB")
    assert w.summary()["address_ties"] == 1


def test_wrong_calls_are_named() -> None:
    w = Scenario()
    w.alloc("a", 5)
    with pytest.raises(InputError, match="already in use"):
        w.alloc("a", 5)
    with pytest.raises(UnknownNameError, match="did you mean 'a'"):
        w.free("aa")
    with pytest.raises(InputError, match="positive size"):
        w.alloc("b", 0)
    with pytest.raises(InputError, match="default stream"), w.capture("p", "default"):
        pass
    with pytest.raises(UnknownNameError):
        w.release("nothing")
    with w.mempool("m"):
        pass
    with pytest.raises(InputError, match="belongs to a MemPool"), w.capture("m", "s"):
        pass
    w.release("m")
    with pytest.raises(InputError, match="no owner left"):
        w.release("m")


@pytest.mark.parametrize(
    ("text", "size"),
    [(5, 5), ("5", 5), ("76 MiB", 79_691_776), ("1.5 GiB", 3 << 29), ("2GB", 2 * 10**9), ("3 kib", 3072)],
)
def test_sizes(text: int | str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-5", "5 parsecs", "1e9", "9999999 TiB", True, None, 1.5])
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(InputError):
        parse_size(text)  # type: ignore[arg-type]


SCENARIO = """
title: side stream profile
settings: max_split_size_mb:512
limit: 8 GiB
steps:
  - alloc: {name: weights, size: 512 MiB}
  - repeat:
      times: 3
      steps:
        - alloc: {name: "ws{i}", size: 76 MiB, stream: "side{i}"}
  - capture:
      pool: g
      stream: side0
      steps:
        - alloc: {name: inside, size: 30 MiB}
        - free: inside
  - record_stream: {name: ws1, stream: side2}
  - free: [ws1, ws2]
  - sync
  - empty_cache
  - release: g
  - empty_cache:
  - mempool: {pool: m, steps: [{alloc: {name: q, size: 5 MiB}}]}
"""


def test_a_scenario_file(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    w = load_scenario(path)
    names = [n for n in w.segments()["name"].tolist() if n]
    assert sorted(names) == ["q", "weights", "ws0"]
    # what is left: weights, one workspace, the random-number state of the first capture, the MemPool's block
    assert w.summary()["reserved"] == 512 * MIB + 76 * MIB + 2 * MIB + 20 * MIB
    assert w.simulator.rules.max_split_size == 512 * MIB


def test_the_scenarios_that_come_along() -> None:
    """Would prewarming have helped? The block changes its stream; the cache lies as before."""
    folder = Path(__file__).resolve().parents[1] / "data" / "allocator"
    side, warm = (load_scenario(folder / f"{name}.yaml") for name in ("side_stream", "prewarmed"))
    tables = [w.segments().set_index("name") for w in (side, warm)]
    assert [t.loc["workspace", "stream"] for t in tables] == ["side", "default"]
    assert [t.loc["kv", "offset"] for t in tables] == [0, 0]
    assert side.summary()["reserved"] == warm.summary()["reserved"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: 5", "needs a 'steps' list"),
        ("[]", "needs a 'steps' list"),
        ("steps: [alloc]", "alloc misses"),
        ("steps: [{alloc: {name: a}}]", r"steps\[0\]"),
        ("steps: [{alloc: {name: a, size: x}}]", "not a size"),
        ("steps: [{alok: 1}]", "did you mean 'alloc'"),
        ("steps: [{free: a}]", "unknown block"),
        ("steps: [5]", "a step is a mapping"),
        ("limits: 5\nsteps: []", "did you mean 'limit'"),
        ("settings: max_split_size_mb\nsteps: []", "key:value"),
        ("steps: [{repeat: {times: 1000000, steps: [sync]}}]", "more than"),
        ("steps: [{repeat: {times: 9999, steps: [{repeat: {times: 9999, steps: []}}]}}]", "more than"),
        ("a: [", "not valid YAML"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("steps: [{repeat: {times: x, steps: []}}]", "repeat misses"),
    ],
)
def test_files_that_are_no_scenario(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    with pytest.raises(RcaError, match=message):
        load_scenario(path)


# rules


@pytest.mark.parametrize(
    ("nbytes", "divisions", "size"),
    [
        (1, 0, 512),
        (512, 0, 512),
        (513, 0, 1024),
        (1200, 4, 1536),  # not above 512 * 4: ordinary rounding
        (2049, 4, 2560),
        (3000, 4, 3072),
        (4096, 4, 4096),
        (5 * MIB + 1, 4, 6 * MIB),
        (5 * MIB + 1, 8, 5 * MIB + MIB // 2),
    ],
)
def test_rounding_by_hand(nbytes: int, divisions: int, size: int) -> None:
    rules = rules_from_settings(f"roundup_power2_divisions:{divisions}" if divisions else "")
    assert rules.round_size(nbytes) == size


@pytest.mark.parametrize(
    ("size", "driver"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
    ],
)
def test_driver_requests_by_hand(size: int, driver: int) -> None:
    assert rules_from_settings("").driver_size(size) == driver


def test_settings_of_a_snapshot_and_of_a_string_agree() -> None:
    text = "max_split_size_mb:64,roundup_power2_divisions:[1:2,4:8,>:1],garbage_collection_threshold:0.8,expandable_segments:True"
    rules = rules_from_settings(text)
    # keys as torch writes them: powers of two in MiB
    written = {
        "max_split_size": 64 * MIB,
        "garbage_collection_threshold": 0.8,
        "expandable_segments": True,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {str(1 << i): v for i, v in enumerate((2, 0, 8, *[1] * 13))},
    }
    assert rules_from_snapshot(written) == rules
    assert parse_settings("backend:native, pinned_use_background_threads:True") == {
        "backend": "native",
        "pinned_use_background_threads": "True",
    }


def test_versions_switch_the_ladder() -> None:
    assert not rules_for_version("2.9.1").overflow_first
    assert rules_for_version("2.11.0+cu130").overflow_first
    assert rules_for_version("who knows").overflow_first


@pytest.mark.parametrize("text", ["a", "max_split_size_mb:x", "a:b:c", ",", "roundup_power2_divisions:[a:b]"])
def test_settings_that_are_none(text: str) -> None:
    with pytest.raises(InputError):
        rules_from_settings(text)
