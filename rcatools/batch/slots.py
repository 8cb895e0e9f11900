"""Places for jobs on one machine: one for each card, some for work that needs none, and who may have which.

A row that measures on a card has that card alone. A row that measures on the CPU has the machine alone.
Rows that measure nothing share the CPU places.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rcatools.batch.jobs import Place, host
from rcatools.errors import InputError, UnavailableError

PROBE = """
import json, sys
try:
    import torch
    count = torch.cuda.device_count()
except Exception:
    print("[]"); sys.exit()
vendor = "rocm" if torch.version.hip else "cuda"
cards = []
for i in range(count):
    p = torch.cuda.get_device_properties(i)
    cards.append({"vendor": vendor, "uuid": str(getattr(p, "uuid", "") or ""), "name": p.name})
print(json.dumps(cards))
"""


@dataclass(frozen=True)
class Card:
    """One card.

    Attributes:
        backend: "cuda" or "rocm".
        mask: entry of the visibility mask that shows it.
        uuid: its identity, "" where unknown.
        name: marketing name, "" where unknown.
    """

    backend: str
    mask: str
    uuid: str = ""
    name: str = ""


@dataclass(frozen=True)
class Need:
    """What a group of rows needs: "none", or a device to measure on, and which one it had before."""

    device: str
    earlier: tuple[str, str, str] | None = None


class Slots:
    """The places of one machine.

    Args:
        cards: its cards.
        cpus: how many rows that measure nothing may run at a time.
    """

    def __init__(self, cards: Sequence[Card], cpus: int) -> None:
        if cpus < 1:
            raise InputError(f"at least one CPU slot is needed, got {cpus}")
        masks = [(card.backend, card.mask) for card in cards]
        if len(set(masks)) != len(masks):
            raise InputError("a card is listed twice: list it once, each may hold one row at a time")
        self.cards, self.cpus = tuple(cards), cpus
        self._free = list(cards)
        self._shared = 0
        self._alone = False
        self._taken: dict[int, Card | str] = {}
        self._next = 0

    def total(self) -> int:
        """Most rows that can run at a time."""
        return len(self.cards) + self.cpus

    def check(self, device: str) -> None:
        """Refuse what this machine can never offer.

        Raises:
            UnavailableError: there is no such card.
        """
        if device in {"none", "cpu", "auto"} or any(_fits(card, device) for card in self.cards):
            return
        have = sorted({card.backend for card in self.cards}) or ["no card"]
        raise UnavailableError(
            f"a row asks for device {device!r} and this machine has {', '.join(have)}: name cards with --gpus, "
            "or use 'rcatools doctor' to see why none is found"
        )

    def take(self, need: Need) -> tuple[int, Place] | None:
        """A lease and its place, or None while nothing fits.

        A group that ran before gets the card it had, if that is free.
        """
        device = need.device
        if device == "none":
            return (
                self._lease("shared", Place("none")) if not self._alone and self._shared < self.cpus else None
            )
        if device == "cpu" or (device == "auto" and not self.cards):
            idle = not self._alone and not self._shared and len(self._free) == len(self.cards)
            return self._lease("alone", Place("cpu")) if idle else None
        fitting = [card for card in self._free if _fits(card, device)]
        if self._alone or not fitting:
            return None
        same = [card for card in fitting if self._identity(card) == need.earlier]
        card = (same or fitting)[0]
        return self._lease(card, Place(card.backend, card.mask, card.uuid))

    def give_back(self, lease: int) -> None:
        """End a lease."""
        held = self._taken.pop(lease)
        if isinstance(held, Card):
            self._free.append(held)
            self._free.sort(key=self.cards.index)
        elif held == "shared":
            self._shared -= 1
        else:
            self._alone = False

    def _lease(self, what: Card | str, place: Place) -> tuple[int, Place]:
        if isinstance(what, Card):
            self._free.remove(what)
        elif what == "shared":
            self._shared += 1
        else:
            self._alone = True
        self._next += 1
        self._taken[self._next] = what
        return self._next, replace(place, host=host())

    def _identity(self, card: Card) -> tuple[str, str, str]:
        return Place(card.backend, card.mask, card.uuid, host()).identity()


def _fits(card: Card, device: str) -> bool:
    return device in {"gpu", "auto", card.backend}


def lane(device: str) -> str:
    """Rows of one lane wait for each other, so that none waits for ever: "cpu" or the wanted kind of card."""
    return "cpu" if device in {"none", "cpu"} else device


def default_cpus(cards: int) -> int:
    """Rows without a card at a time: the usable cores less one for each card."""
    return max(1, len(os.sched_getaffinity(0)) - cards)


def find_cards() -> list[Card]:
    """The cards torch sees, asked in a process of its own so that this one holds no context.

    Entries of a mask that is set already are used as they are; otherwise cards count from 0.
    """
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=300, check=False, cwd=root
    )
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else []
    except (ValueError, IndexError):
        found = []
    if not found:
        return []
    masks = mask_entries(found[0]["vendor"], len(found))
    return [
        Card(card["vendor"], mask, card["uuid"], card["name"])
        for card, mask in zip(found, masks, strict=True)
    ]


def mask_entries(vendor: str, count: int) -> list[str]:
    """What to write into the mask for each of the visible cards."""
    names = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES") if vendor == "rocm" else ("CUDA_VISIBLE_DEVICES",)
    for name in names:
        entries = [entry.strip() for entry in os.environ.get(name, "").split(",") if entry.strip()]
        if len(entries) == count:
            return entries
    return [str(i) for i in range(count)]


def parse_cards(text: str) -> list[Card] | None:
    """The cards of ``--gpus``: "auto" (None: look), "none", or entries such as "rocm:0,rocm:1,cuda:GPU-5a".

    Raises:
        InputError: another form.
    """
    if text == "auto":
        return None
    if text == "none":
        return []
    cards = []
    for entry in text.split(","):
        backend, sign, mask = entry.strip().partition(":")
        if backend not in {"cuda", "rocm"} or not sign or not mask.strip():
            raise InputError(f"--gpus takes auto, none or entries like rocm:0 or cuda:1, got {entry!r}")
        cards.append(Card(backend, mask.strip()))
    return cards
