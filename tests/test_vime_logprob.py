"""The log-probability forms: right, equal in every bit over ranks and forms, collectives counted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rcatools.errors import InputError
from rcatools.workload.vime.contract import VocabLayout, contract_digest
from rcatools.workload.vime.group import run_group
from rcatools.workload.vime.logprob import FORMS, PUBLISHED_FORMS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from rcatools.workload.vime.checks import Variant, inputs  # noqa: E402
from rcatools.workload.vime.collectives import CountingCollectives  # noqa: E402
from rcatools.workload.vime.preflight import MemberKeyedCache, RankLocalCache  # noqa: E402
from rcatools.workload.vime.tiles import local_partials, merge  # noqa: E402

WATCHDOG_S = 60.0
QWEN3 = 151_936


def exact(layout: VocabLayout, rows: int, seed: int) -> np.ndarray:
    """float64 log-softmax over the real vocabulary, by torch."""
    whole = VocabLayout(layout.vocab, layout.padded, (layout.num_tiles,), layout.num_tiles)
    logits, targets = inputs(whole, rows, seed, "cpu", 0)
    table = torch.log_softmax(logits[:, : layout.vocab].double(), dim=-1)
    return table.gather(1, targets[:, None])[:, 0].numpy()


def run_forms(layout: VocabLayout, rows: list[int], seed: int = 5) -> dict[int, Any]:
    arguments = {"layout": layout, "rows": rows, "seed": seed}
    return run_group("checks.all_forms", layout.world, watchdog_s=WATCHDOG_S, arguments=arguments).require()


CASES = {
    "even": [VocabLayout.even(4096, world) for world in (1, 2, 4)],
    "uneven": [
        VocabLayout(4096, 4096, counts) for counts in ((64,), (40, 24), (17, 15, 16, 16), (1, 61, 1, 1))
    ],
    "padded": [VocabLayout(4000, 4096, counts) for counts in ((64,), (32, 32), (17, 15, 16, 16))],
    "padding_fills_a_shard": [VocabLayout(3000, 4096, counts) for counts in ((64,), (16, 16, 16, 16))],
    "qwen3": [VocabLayout.even(QWEN3, world) for world in (1, 2, 4)],
}


@pytest.mark.parametrize("case", CASES)
def test_every_form_and_world_size_gives_the_same_bits(case: str) -> None:
    rows = [1, 8] if case == "qwen3" else [1, 8, 64]
    seen: dict[int, np.ndarray] = {}
    for layout in CASES[case]:
        results = run_forms(layout, rows)
        assert sorted(results) == list(range(layout.world))
        for result in results.values():
            assert result["repeat_equal"]
            assert set(result["logprobs"]) == {(form, count) for form in FORMS for count in rows}
            for (_, count), got in result["logprobs"].items():
                assert np.array_equal(seen.setdefault(count, got), got)
    for count, got in seen.items():
        truth = exact(CASES[case][0], count, 5)
        assert np.abs(got - truth).max() <= 4 * np.finfo(np.float32).eps * np.abs(truth).max()
        assert np.ptp(truth) > 1 or count == 1


def test_collectives_per_call_are_counted_by_us_and_by_the_backend() -> None:
    results = run_forms(VocabLayout.even(4096, 2), [8])
    for result in results.values():
        called = {form: sum(result["collectives"][form].values()) for form in FORMS}
        assert [called[form] for form in PUBLISHED_FORMS] == [3, 2, 1, 1]
        assert (called["safe_agreed"], called["safe_carried"], called["safe_carried_flat"]) == (2, 1, 1)
        assert (called["two_gathers"], called["packed_in_three"], called["packed_padded"]) == (3, 3, 1)
        pickled = {form: result["collectives"][form].get("all_gather_object", 0) for form in FORMS}
        # an object gather is two collectives of the backend: sizes, then payloads
        assert result["backend"] == {form: called[form] + pickled[form] for form in FORMS}
        assert pickled["reference"] == 1


def test_rivals_change_only_what_they_name() -> None:
    """Three gathers carry the bytes of one, a padded message four times as many, both the published form's numbers."""
    layout = VocabLayout.even(4096, 2)
    names = ("packed_cached", "packed_in_three", "packed_padded", "two_gathers", "reference")
    variants = {name: Variant(name) for name in names}
    arguments = {"layout": layout, "variants": variants, "rows": 8, "seed": 5, "calls": 5}
    ranks = run_group("checks.timed_calls", 2, watchdog_s=60.0, arguments=arguments).require()
    for result in ranks.values():
        assert result["equal"]
        sent = {name: result["variants"][name]["bytes_per_call"] for name in names}
        issued = {name: result["variants"][name]["collectives_per_call"] for name in names}
        width = 2 * 32 + 1
        assert sent["packed_cached"] == sent["packed_in_three"] == 4 * 8 * width
        assert sent["packed_padded"] == 4 * sent["packed_cached"]
        assert sent["two_gathers"] == sent["reference"] + 32  # the digest; pickled objects are not counted
        assert [issued[name] for name in names] == [1, 3, 1, 3, 3]


def test_a_key_of_members_and_epoch_is_not_shared_by_two_groups() -> None:
    cache = MemberKeyedCache()
    first, second = FakeComm((0, 1), 1), FakeComm((0, 1), 2)
    assert first.group is second.group  # what an id would be taken from
    assert cache.group_key(first) != cache.group_key(second)
    assert RankLocalCache().group_key(first) == RankLocalCache().group_key(second)


class FakeComm(CountingCollectives):
    """A group without a process group: its members and epoch are what is asked for."""

    def __init__(self, ranks: tuple[int, ...], epoch: int) -> None:
        self.ranks, self.epoch, self.group = ranks, epoch, FakeComm


@pytest.mark.parametrize(("target", "error"), [(4095, None), (4096, "InputError"), (-1, "InputError")])
def test_the_form_that_reads_back_finds_words_outside_the_vocabulary(target: int, error: str | None) -> None:
    arguments = {"form": "packed_readback", "target": target}
    outcome = run_group("checks.one_target", 1, watchdog_s=60.0, arguments=arguments)
    assert outcome.state == ("error" if error else "done")
    assert all(error in text for text in outcome.errors.values()) if error else outcome.results[0] < 0


def test_tile_statistics_against_hand_computed_values() -> None:
    layout = VocabLayout(vocab=3, padded=4, tile_counts=(1, 1), num_tiles=2)
    logits = torch.tensor([[0.0, math.log(3.0), math.log(4.0), 99.0]])
    first = local_partials(logits[:, :2], torch.tensor([2]), layout, 0)
    second = local_partials(logits[:, 2:], torch.tensor([2]), layout, 1)
    assert first.sums.item() == pytest.approx(1 + 1 / 3)
    assert (second.maxima.item(), second.sums.item()) == (pytest.approx(math.log(4)), 1.0)
    assert (first.target.item(), second.target.item()) == (0.0, pytest.approx(math.log(4)))
    got = merge(
        torch.cat([first.maxima, second.maxima], 1),
        torch.cat([first.sums, second.sums], 1),
        second.target,
    )
    assert got.item() == pytest.approx(math.log(4 / 8))


def test_a_tile_of_padding_is_the_identity() -> None:
    layout = VocabLayout(vocab=2, padded=4, tile_counts=(2,), num_tiles=2)
    part = local_partials(torch.full((1, 4), 7.0), torch.tensor([0]), layout, 0)
    assert part.maxima.tolist() == [[7.0, -math.inf]]
    assert part.sums.tolist() == [[2.0, 0.0]]
    assert merge(part.maxima, part.sums, part.target).item() == pytest.approx(math.log(0.5))


@pytest.mark.parametrize(
    ("vocab", "padded", "counts", "named"),
    [
        (4096, 4096, (32, 31), "tile counts"),
        (4096, 4096, (64, 0), "tile counts"),
        (4000, 4000, (64,), "multiple of 64"),
        (5000, 4096, (64,), "5000"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(vocab: int, padded: int, counts: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        VocabLayout(vocab, padded, counts)


def test_the_digest_depends_on_everything_ranks_must_share() -> None:
    base = VocabLayout(4000, 4096, (32, 32))
    others = [
        VocabLayout(4001, 4096, (32, 32)),
        VocabLayout(4000, 4160, (32, 32)),
        VocabLayout(4000, 4096, (33, 31)),
        VocabLayout(4000, 4096, (16, 16), 32),
    ]
    digests = {contract_digest(base, 8), contract_digest(base, 9)} | {contract_digest(o, 8) for o in others}
    assert len(digests) == 6


def test_qwen3_tiles() -> None:
    layout = VocabLayout.even(QWEN3, 4)
    assert (layout.padded, layout.tile_size, layout.max_tiles) == (151_936, 2374, 16)
    assert layout.bounds(3) == (113_952, 151_936)
