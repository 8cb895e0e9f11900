"""Places of a machine: nobody shares a card, measuring on the CPU is alone, masks of both vendors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcatools.batch.jobs import Job, Place, host
from rcatools.batch.slots import Card, Need, Slots, mask_entries, parse_cards
from rcatools.batch.supervise import worker_environment
from rcatools.errors import InputError, UnavailableError

CARDS = [Card("rocm", "0", "gfx-a"), Card("rocm", "1", "gfx-b"), Card("cuda", "0"), Card("cuda", "3")]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from(["none", "cpu", "gpu", "rocm", "cuda", "auto"])),
        st.tuples(st.just("back"), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(st.sampled_from([CARDS, CARDS[:2], []]), st.integers(1, 3), STEPS)
@settings(max_examples=200, deadline=None)
def test_no_order_of_calls_lets_two_rows_share(
    cards: list[Card], cpus: int, steps: list[tuple[str, object]]
) -> None:
    slots = Slots(cards, cpus)
    held: dict[int, Place] = {}
    for what, value in steps:
        if what == "take":
            got = slots.take(Need(str(value)))
            if got:
                held[got[0]] = got[1]
                assert value in {"gpu", "auto"} or got[1].backend == value
        elif held:
            lease = sorted(held)[int(str(value)) % len(held)]
            slots.give_back(lease)
            del held[lease]
        on_cards = [(place.backend, place.mask) for place in held.values() if place.mask]
        alone = [place for place in held.values() if place.backend == "cpu"]
        assert len(on_cards) == len(set(on_cards))
        assert sum(place.backend == "none" for place in held.values()) <= cpus
        assert not alone or len(held) == 1
    for lease in list(held):
        slots.give_back(lease)
    for card in cards:
        assert slots.take(Need(card.backend)) is not None


def test_a_group_gets_the_card_it_had() -> None:
    slots = Slots(CARDS, 1)
    had = Place("rocm", "1", "gfx-b", host()).identity()
    got = slots.take(Need("rocm", had))
    assert got is not None
    assert got[1].mask == "1"
    other = slots.take(Need("rocm", had))
    assert other is not None
    assert other[1].mask == "0"
    assert slots.take(Need("rocm", had)) is None


def test_a_card_that_is_not_there_is_refused_before_anything_runs() -> None:
    slots = Slots(CARDS[:2], 1)
    slots.check("gpu")
    slots.check("auto")
    with pytest.raises(UnavailableError, match="'cuda' and this machine has rocm"):
        slots.check("cuda")
    with pytest.raises(UnavailableError, match="no card"):
        Slots([], 1).check("gpu")
    with pytest.raises(InputError, match="twice"):
        Slots([Card("cuda", "0"), Card("cuda", "0")], 1)


def environment(place: Place, monkeypatch: pytest.MonkeyPatch, **masks: str) -> dict[str, str | None]:
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in masks.items():
        monkeypatch.setenv(name, value)
    env = worker_environment(place, {"MY_FLAG": "1"}, Path("/job"))
    assert env["MY_FLAG"] == "1"
    return {
        name[:4]: env.get(name)
        for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    }


def test_masks_of_both_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    rocm, cuda = Place("rocm", "2"), Place("cuda", "GPU-5a")
    assert environment(rocm, monkeypatch) == {"ROCR": None, "HIP_": "2", "CUDA": None}
    assert environment(cuda, monkeypatch) == {"ROCR": None, "HIP_": None, "CUDA": "GPU-5a"}
    assert environment(rocm, monkeypatch, ROCR_VISIBLE_DEVICES="4,5", CUDA_VISIBLE_DEVICES="0") == {
        "ROCR": "4,5",
        "HIP_": "2",
        "CUDA": None,
    }
    kept = {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0"}
    for place in (Place("none"), Place("cpu")):
        assert environment(place, monkeypatch, **kept) == {"ROCR": "1", "HIP_": "0", "CUDA": "0"}


def test_entries_of_a_mask_that_is_set_are_used_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    assert mask_entries("cuda", 2) == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b")
    assert mask_entries("cuda", 2) == ["GPU-a", "GPU-b"]
    assert mask_entries("rocm", 2) == ["GPU-a", "GPU-b"]
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,3")
    assert mask_entries("rocm", 2) == ["2", "3"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a, GPU-b"


@pytest.mark.parametrize("text", ["rocm", "tpu:0", "cuda:", "0,1", "rocm:0,,rocm:1"])
def test_a_list_of_cards_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--gpus"):
        parse_cards(text)


def test_a_list_of_cards_is_read() -> None:
    assert parse_cards("auto") is None
    assert parse_cards("none") == []
    assert parse_cards("rocm:0, cuda:GPU-a") == [Card("rocm", "0"), Card("cuda", "GPU-a")]


def test_a_group_that_moves_to_another_card_is_made_again(tmp_path: Path) -> None:
    from rcatools.batch.local import Group

    first, second = Job(tmp_path / "1"), Job(tmp_path / "2")
    here, there = Place("rocm", "0", host="a"), Place("rocm", "1", host="a")
    for job in (first, second):
        job.create({"kind": "record"}, {})
    first.begin_attempt()
    first.write_status("done", attempt=1, place=here.document())
    group = Group((first, second), "rocm")
    assert group.earlier() == here.identity()
    assert group.keep_together(here) == [second]
    assert group.keep_together(there) == [first, second]
    assert [event["event"] for event in first.events()] == ["done", "pending"]
    assert Group((first, second), "none").earlier() is None
