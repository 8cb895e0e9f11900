"""Agreement on the contract before a call exchanges numbers, and four ways to pay less for it.

``RankLocalCache`` is the published cache with its two hazards: each rank decides alone whether to enter
the collective, and ``id(group)`` may name another group later. ``AgreedCache`` and ``CarriedDigest``
are safe.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Protocol

from rcatools.workload.vime.buffers import CacheCounts, Message
from rcatools.workload.vime.collectives import CountingCollectives
from rcatools.workload.vime.contract import DIGEST_BYTES, LogprobContractError
from rcatools.workload.vime.packing import PlanePacking

PUBLISHED_LIMIT = 32
ROOMY_LIMIT = 8192


class Preflight(Protocol):
    """How a call makes sure that all ranks mean the same thing."""

    carries_digest: bool

    def before(self, comm: CountingCollectives, digest: bytes, words: Any) -> None:
        """Called before the exchange, with the digest also as ``[32]`` uint8 on the call's device.

        May communicate. Raises LogprobContractError on disagreement.
        """
        ...

    def after(self, message: Message) -> None:
        """Called after the packed gather; raises LogprobContractError on disagreement."""
        ...


class ObjectEveryCall:
    """The reference: digests gathered as Python objects before every call."""

    carries_digest = False

    def before(self, comm: CountingCollectives, digest: bytes, words: Any) -> None:
        """One object gather."""
        gathered: list[Any] = [None] * comm.world
        comm.all_gather_object(gathered, digest)
        if any(other != digest for other in gathered):
            raise LogprobContractError(_disagreement(comm.world))

    def after(self, message: Message) -> None:
        """Nothing to do."""


class TensorEveryCall:
    """Digests gathered as 32 bytes before every call."""

    carries_digest = False

    def before(self, comm: CountingCollectives, digest: bytes, words: Any) -> None:
        """One small tensor gather."""
        gather_digests(comm, words)

    def after(self, message: Message) -> None:
        """Nothing to do."""


class RankLocalCache:
    """The published cache of verified digests: a rank that finds its key skips the collective alone.

    Unsafe: ranks whose caches differ enter different collectives, and ``id(group)`` can be given to a
    new group once the old one is gone.
    """

    carries_digest = False

    def __init__(self, limit: int = PUBLISHED_LIMIT) -> None:
        self.limit = limit
        self.counts = CacheCounts()
        self._verified: OrderedDict[tuple[Any, ...], None] = OrderedDict()

    def group_key(self, comm: CountingCollectives) -> tuple[Any, ...]:
        """What names the group, as published."""
        return (id(comm.group),)

    def before(self, comm: CountingCollectives, digest: bytes, words: Any) -> None:
        """Nothing where this rank has seen the key, one small gather otherwise."""
        key = (*self.group_key(comm), str(words.device), digest)
        if key in self._verified:
            self.counts.hits += 1
            self._verified.move_to_end(key)
            return
        self.counts.misses += 1
        gather_digests(comm, words)
        _remember(self._verified, key, self.limit, self.counts)

    def after(self, message: Message) -> None:
        """Nothing to do."""

    def forget(self) -> None:
        """Drop everything this rank has verified."""
        self._verified.clear()


class MemberKeyedCache(RankLocalCache):
    """The published cache, keyed by the group's ranks and epoch: no later group can be taken for an earlier one.

    Still each rank decides alone whether to enter the collective.
    """

    def group_key(self, comm: CountingCollectives) -> tuple[Any, ...]:
        """The ranks, and the epoch that no two groups of a process share."""
        return (comm.ranks, comm.epoch)


class AgreedCache:
    """Skip only where every rank would: one byte's minimum over ranks decides, then the gather or not.

    Keyed by the group's ranks and its epoch. The answer is read back, so it cannot be captured in a graph.
    """

    carries_digest = False

    def __init__(self, limit: int = ROOMY_LIMIT) -> None:
        self.limit = limit
        self.counts = CacheCounts()
        self._verified: OrderedDict[tuple[Any, ...], None] = OrderedDict()

    def before(self, comm: CountingCollectives, digest: bytes, words: Any) -> None:
        """One minimum over a byte, and one small gather where any rank has not seen the key."""
        key = (comm.ranks, comm.epoch, str(words.device), digest)
        if comm.all_agree(key in self._verified, words.device):
            self.counts.hits += 1
            self._verified.move_to_end(key)
            return
        self.counts.misses += 1
        gather_digests(comm, words)
        _remember(self._verified, key, self.limit, self.counts)

    def after(self, message: Message) -> None:
        """Nothing to do."""

    def forget(self) -> None:
        """Drop everything this rank has verified."""
        self._verified.clear()


class CarriedDigest:
    """The digest travels in front of the packed message: always checked, no collective more.

    Ranks that disagree about the message's size are the backend's to report; equal sizes with another
    contract are found here.
    """

    carries_digest = True

    def before(self, comm: CountingCollectives, digest: bytes, words: Any) -> None:
        """Nothing to do."""

    def after(self, message: Message) -> None:
        """Compare every rank's digest with this rank's."""
        mine, theirs = PlanePacking.digests(message)
        _require((theirs == mine).all(), theirs.shape[0])


def gather_digests(comm: CountingCollectives, words: Any) -> None:
    """Gather every rank's ``words`` (its digest, 32 bytes) and compare.

    On a GPU the comparison stays there (an assertion in the stream); on the CPU it raises
    LogprobContractError.
    """
    import torch

    theirs = torch.empty((comm.world * DIGEST_BYTES,), dtype=torch.uint8, device=words.device)
    comm.all_gather_into_tensor(theirs, words)
    _require((theirs.view(comm.world, DIGEST_BYTES) == words).all(), comm.world)


def _require(agreed: Any, world: int) -> None:
    import torch

    if agreed.is_cuda:
        torch._assert_async(agreed, _disagreement(world))
    elif not bool(agreed):
        raise LogprobContractError(_disagreement(world))


def _disagreement(world: int) -> str:
    return (
        f"the {world} ranks of a group disagree about the log-probability contract; "
        "give every rank the same vocabulary, tiles and row count"
    )


def _remember(
    verified: OrderedDict[tuple[Any, ...], None], key: tuple[Any, ...], limit: int, counts: CacheCounts
) -> None:
    verified[key] = None
    while len(verified) > limit:
        verified.popitem(last=False)
        counts.evictions += 1
