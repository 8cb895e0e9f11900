"""Every hazard of the review fails as described on the published form and is absent in the safe ones."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from rcatools.errors import RunError
from rcatools.workload.vime.buffers import MessageShape, OwnedBuffers, SharedBuffers
from rcatools.workload.vime.contract import VocabLayout
from rcatools.workload.vime.group import GroupOutcome, run_group
from rcatools.workload.vime.preflight import AgreedCache, RankLocalCache

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TWO = VocabLayout.even(4096, 2)
ONE = VocabLayout.even(4096, 1)
CACHED = ("packed_once", "packed_cached", "packed_cached_column")
SAFE = ("safe_agreed", "safe_carried", "safe_carried_flat")


def hazard(name: str, world: int = 2, watchdog_s: float = 10.0, **arguments: Any) -> GroupOutcome:
    job = {"rows": 8, "seed": 3} | arguments
    return run_group(f"hazards.{name}", world, watchdog_s=watchdog_s, arguments=job)


class StubGroup:
    """What buffers and caches need to know of a group."""

    def __init__(self, ranks: tuple[int, ...] = (0, 1), epoch: int = 1, group: object = None) -> None:
        self.ranks, self.epoch, self.group = ranks, epoch, group
        self.world = len(ranks)
        self.gathers = 0

    def all_gather_into_tensor(self, gathered: Any, tensor: Any) -> None:
        self.gathers += 1
        gathered.copy_(tensor.repeat(self.world))

    def all_agree(self, flag: bool, device: Any) -> bool:
        return flag


@pytest.mark.parametrize("form", ["packed_cached", "packed_cached_column"])
def test_threads_that_share_a_buffer_get_a_wrong_result(form: str) -> None:
    results = hazard("threads_share_buffer", layout=TWO, form=form).require()
    assert results == {rank: {"first": False, "second": True} for rank in (0, 1)}


@pytest.mark.parametrize("form", ["packed", *SAFE])
def test_threads_with_their_own_buffers_get_the_right_result(form: str) -> None:
    results = hazard("threads_share_buffer", layout=TWO, form=form).require()
    assert results == {rank: {"first": True, "second": True} for rank in (0, 1)}


def evict(buffers: Any, comm: Any) -> None:
    for rows in range(9, 49):
        buffers.take(MessageShape(rows, 64), comm, "cpu")
    gc.collect()


def test_an_evicted_buffer_is_freed_while_its_address_is_still_in_use() -> None:
    comm, buffers = StubGroup(), SharedBuffers()
    message = buffers.take(MessageShape(8, 64), comm, "cpu")  # type: ignore[arg-type]
    memory = weakref.ref(message.sent)
    address = message.sent.data_ptr()
    del message  # a captured graph keeps the address, not the tensor
    gc.collect()
    assert memory() is not None
    assert memory().data_ptr() == address
    evict(buffers, comm)
    assert memory() is None


def test_a_pinned_buffer_outlives_eviction_and_growth_as_long_as_its_graph() -> None:
    comm, buffers = StubGroup(), OwnedBuffers()
    with buffers.pinning() as pins:
        address = buffers.take(MessageShape(8, 64), comm, "cpu").sent.data_ptr()  # type: ignore[arg-type]
    evict(buffers, comm)
    assert [pin.sent.data_ptr() for pin in pins] == [address]
    later = buffers.take(MessageShape(8, 64), comm, "cpu")  # type: ignore[arg-type]
    assert later.sent.data_ptr() != address
    memory = weakref.ref(pins[0].sent)
    pins.clear()
    gc.collect()
    assert memory() is None


def test_pins_belong_to_the_thread_that_captures() -> None:
    comm, buffers = StubGroup(), OwnedBuffers()

    def other() -> None:
        buffers.take(MessageShape(4, 64), comm, "cpu")  # type: ignore[arg-type]

    with buffers.pinning() as pins:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(10)
        assert pins == []
        buffers.take(MessageShape(4, 64), comm, "cpu")  # type: ignore[arg-type]
    assert len(pins) == 1


def test_a_capture_that_pins_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rcatools.workload.vime.buffers._capturing", lambda device: True)
    with pytest.raises(RunError, match="pin"):
        OwnedBuffers().take(MessageShape(4, 64), StubGroup(), "cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", CACHED)
def test_a_rank_that_forgot_hangs_the_group_in_another_collective(form: str) -> None:
    outcome = hazard("one_rank_forgets", watchdog_s=1.5, layout=TWO, form=form, then="barrier")
    assert outcome.state == "hang"


@pytest.mark.parametrize("form", CACHED)
def test_a_rank_that_forgot_pairs_unlike_collectives(form: str) -> None:
    outcome = hazard("one_rank_forgets", layout=TWO, form=form)
    assert outcome.state in {"error", "hang"}
    assert not any("LogprobContractError" in text for text in outcome.errors.values())
    assert not any(result["right"] for result in outcome.results.values())


@pytest.mark.parametrize("form", ["reference", "packed", *SAFE])
@pytest.mark.parametrize("then", ["gather", "barrier"])
def test_a_rank_that_forgot_does_no_harm_where_ranks_agree_first(form: str, then: str) -> None:
    results = hazard("one_rank_forgets", layout=TWO, form=form, then=then).require()
    assert all(result["right"] for result in results.values())
    assert results[0]["collectives"] == results[1]["collectives"]


@pytest.mark.parametrize("form", ["reference", "packed", *SAFE])
def test_ranks_of_different_vocabularies_all_raise_the_contract_error(form: str) -> None:
    layouts = [VocabLayout(4000, 4096, (32, 32)), VocabLayout(4001, 4096, (32, 32))]
    outcome = hazard("ranks_disagree", layouts=layouts, form=form)
    assert outcome.state == "error"
    assert sorted(outcome.errors) == [0, 1]
    assert all("LogprobContractError" in text for text in outcome.errors.values())


def test_a_new_group_with_an_old_id_is_taken_for_verified() -> None:
    (report,) = hazard("groups_come_and_go", world=1, layout=ONE, form="packed_once").require().values()
    assert report["unchecked"] == report["reused_ids"]
    if not report["reused_ids"]:
        pytest.skip(f"no group id came back in {report['rounds']} rounds")


def test_a_key_with_members_and_epoch_never_takes_a_new_group_for_verified() -> None:
    (report,) = hazard("groups_come_and_go", world=1, layout=ONE, form="safe_agreed").require().values()
    assert report["unchecked"] == 0


def test_the_same_id_for_another_group_skips_the_check_in_one_key_and_not_in_the_other() -> None:
    same_id = object()
    old, new = StubGroup(epoch=1, group=same_id), StubGroup(ranks=(2, 3), epoch=2, group=same_id)
    words = torch.zeros(32, dtype=torch.uint8)
    for cache, checks in ((RankLocalCache(), 0), (AgreedCache(), 1)):
        new.gathers = 0
        cache.before(old, b"digest", words)  # type: ignore[arg-type]
        cache.before(new, b"digest", words)  # type: ignore[arg-type]
        assert new.gathers == checks


@pytest.mark.parametrize(("counts", "rate"), [(40, 0.0), (33, 0.0), (32, 1.0)])
def test_row_counts_in_turn_against_32_entries(counts: int, rate: float) -> None:
    rows = list(range(1, counts + 1))
    outcome = run_group(
        "hazards.visit_row_counts",
        1,
        watchdog_s=20.0,
        arguments={"layout": ONE, "row_counts": rows, "passes": 3},
    )
    (report,) = outcome.require().values()
    assert report["shared_buffers"]["hit_rate"] == rate
    assert report["rank_local_cache"]["hit_rate"] == rate
    assert report["owned_buffers"]["hit_rate"] == report["agreed_cache"]["hit_rate"] == 1.0


def test_row_counts_share_the_front_of_one_owned_buffer() -> None:
    comm, buffers = StubGroup(), OwnedBuffers()
    big = buffers.take(MessageShape(64, 16), comm, "cpu")  # type: ignore[arg-type]
    small = buffers.take(MessageShape(3, 16, digest=True), comm, "cpu")  # type: ignore[arg-type]
    assert small.sent.data_ptr() == big.sent.data_ptr()
    assert (small.sent.shape, small.block.shape) == ((3 * 33 + 8,), (2, 3 * 33 + 8))
    assert [flat.data_ptr() for flat in small.gathered] == [row.data_ptr() for row in small.block]
    other = buffers.take(MessageShape(3, 16), StubGroup(epoch=2), "cpu")  # type: ignore[arg-type]
    assert other.sent.data_ptr() != big.sent.data_ptr()


def test_an_owner_that_loses_its_buffer_keeps_what_it_holds() -> None:
    buffers = OwnedBuffers(limit=2)
    first = buffers.take(MessageShape(4, 16), StubGroup(epoch=1), "cpu")  # type: ignore[arg-type]
    first.sent.fill_(7.0)
    others = [
        buffers.take(MessageShape(4, 16), StubGroup(epoch=epoch), "cpu")  # type: ignore[arg-type]
        for epoch in (2, 3)
    ]
    assert buffers.counts.evictions == 1
    for other in others:
        other.sent.zero_()
    assert (first.sent == 7.0).all()
    again = buffers.take(MessageShape(4, 16), StubGroup(epoch=1), "cpu")  # type: ignore[arg-type]
    assert again.sent.data_ptr() != first.sent.data_ptr()
