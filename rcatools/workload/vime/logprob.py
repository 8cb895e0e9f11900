"""The log-probability of the chosen word over a sharded vocabulary, in forms that communicate differently.

Every form returns the same bits on every rank. They differ in collectives per call, in whether message
buffers and agreement are kept from call to call, and in how much is copied to pick the target's logit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rcatools.errors import InputError, UnknownNameError
from rcatools.workload.vime.buffers import (
    Buffers,
    Message,
    MessageShape,
    OwnedBuffers,
    PerCallBuffers,
    SharedBuffers,
)
from rcatools.workload.vime.collectives import CountingCollectives
from rcatools.workload.vime.contract import VocabLayout, contract_digest
from rcatools.workload.vime.preflight import (
    AgreedCache,
    CarriedDigest,
    ObjectEveryCall,
    Preflight,
    RankLocalCache,
    TensorEveryCall,
)
from rcatools.workload.vime.tiles import Partials, local_partials, merge, owners


@dataclass(frozen=True)
class FormSpec:
    """One named form: how many gathers, which agreement, which buffers, what is copied for the target."""

    name: str
    text: str
    packed: bool
    preflight: Callable[[], Preflight]
    buffers: Callable[[], Buffers]
    column_only: bool
    safe: bool


FORMS: dict[str, FormSpec] = {
    spec.name: spec
    for spec in (
        FormSpec(
            "reference",
            "two gathers and an object gather for agreement",
            False,
            ObjectEveryCall,
            PerCallBuffers,
            False,
            True,
        ),
        FormSpec(
            "packed",
            "one packed gather and a tensor gather for agreement",
            True,
            TensorEveryCall,
            PerCallBuffers,
            False,
            True,
        ),
        FormSpec(
            "packed_once",
            "packed; agreement cached on each rank",
            True,
            RankLocalCache,
            PerCallBuffers,
            False,
            False,
        ),
        FormSpec(
            "packed_cached",
            "packed; agreement and buffers cached",
            True,
            RankLocalCache,
            SharedBuffers,
            False,
            False,
        ),
        FormSpec(
            "packed_cached_column",
            "packed; agreement and buffers cached; only the target column copied",
            True,
            RankLocalCache,
            SharedBuffers,
            True,
            False,
        ),
        FormSpec(
            "safe_agreed",
            "packed; owned buffers; agreement skipped only by agreement; target column",
            True,
            AgreedCache,
            OwnedBuffers,
            True,
            True,
        ),
        FormSpec(
            "safe_carried",
            "packed; owned buffers; digest carried in the message; target column",
            True,
            CarriedDigest,
            OwnedBuffers,
            True,
            True,
        ),
    )
}
PUBLISHED_FORMS = ("reference", "packed", "packed_cached", "packed_cached_column")


class SelectedLogprob:
    """One form bound to a layout and a group.

    Args:
        buffers, preflight: replace the form's own, for instance to share a cache between instances.

    Raises:
        UnknownNameError: there is no form of that name.
        InputError: the group's size is not the layout's.
    """

    def __init__(
        self,
        form: str,
        layout: VocabLayout,
        comm: CountingCollectives,
        *,
        buffers: Buffers | None = None,
        preflight: Preflight | None = None,
    ) -> None:
        if form not in FORMS:
            raise UnknownNameError("form", form, FORMS)
        if layout.world != comm.world:
            raise InputError(f"the layout is for {layout.world} ranks, the group has {comm.world}")
        self.spec = FORMS[form]
        self.layout = layout
        self.comm = comm
        self.buffers = buffers if buffers is not None else self.spec.buffers()
        self.preflight = preflight if preflight is not None else self.spec.preflight()
        self._starts: dict[str, Any] = {}
        self._digests: dict[tuple[str, int], Any] = {}

    def __call__(self, logits: Any, targets: Any) -> Any:
        """Log-probabilities ``[rows]`` fp32 of ``targets`` from this rank's ``logits`` shard."""
        return self.exchange(local_partials(logits, targets, self.layout, self.comm.rank), targets)

    def exchange(self, partials: Partials, targets: Any) -> Any:
        """Agree, gather every rank's partials and merge them: all that differs between forms."""
        self.agree(partials.target.shape[0], partials.target.device)
        if self.spec.packed:
            return self._packed(partials, targets)
        return self._two_gathers(partials, targets)

    def agree(self, rows: int, device: Any) -> None:
        """The form's agreement alone, as a warm-up does for a row count to come."""
        digest = contract_digest(self.layout, rows)
        self.preflight.before(self.comm, digest, self._digest(rows, device))

    def _two_gathers(self, partials: Partials, targets: Any) -> Any:
        import torch

        rows, device = partials.target.shape[0], partials.target.device
        counts = self.layout.tile_counts
        stats = torch.zeros((rows, self.layout.max_tiles, 2), dtype=torch.float32, device=device)
        mine = counts[self.comm.rank]
        stats[:, :mine, 0] = partials.maxima
        stats[:, :mine, 1] = partials.sums
        gathered = [torch.empty_like(stats) for _ in range(self.comm.world)]
        self.comm.all_gather(gathered, stats)
        owned = [torch.empty_like(partials.target) for _ in range(self.comm.world)]
        self.comm.all_gather(owned, partials.target.contiguous())
        maxima = torch.cat([part[:, :n, 0] for part, n in zip(gathered, counts, strict=True)], dim=1)
        sums = torch.cat([part[:, :n, 1] for part, n in zip(gathered, counts, strict=True)], dim=1)
        return merge(maxima, sums, self._pick(torch.stack(owned), targets))

    def _packed(self, partials: Partials, targets: Any) -> Any:
        import torch

        rows, device = partials.target.shape[0], partials.target.device
        shape = MessageShape(rows, self.layout.max_tiles, self.preflight.carries_digest)
        message = self.buffers.take(shape, self.comm, device)
        self._fill(message, partials)
        self.comm.all_gather(message.gathered, message.sent)
        self.preflight.after(message)
        parts = [message.rows_of(flat) for flat in message.gathered]
        counts, wide = self.layout.tile_counts, self.layout.max_tiles
        maxima = torch.cat([part[:, :n] for part, n in zip(parts, counts, strict=True)], dim=1)
        sums = torch.cat([part[:, wide : wide + n] for part, n in zip(parts, counts, strict=True)], dim=1)
        if self.spec.column_only:
            target = self._pick(torch.stack([part[:, -1] for part in parts]), targets)
        else:
            target = self._pick(torch.stack(parts)[:, :, -1], targets)
        return merge(maxima, sums, target)

    def _fill(self, message: Message, partials: Partials) -> None:
        mine, wide = self.layout.tile_counts[self.comm.rank], self.layout.max_tiles
        rows = message.rows_of(message.sent)
        rows[:, :mine] = partials.maxima
        rows[:, wide : wide + mine] = partials.sums
        rows[:, -1] = partials.target
        if message.shape.digest:
            message.digest_of(message.sent).copy_(self._digest(message.shape.rows, message.sent.device))

    def _pick(self, by_rank: Any, targets: Any) -> Any:
        """From ``[world, rows, ...]`` what each row's owner sent."""
        import torch

        device = str(targets.device)
        if device not in self._starts:
            self._starts[device] = torch.tensor(
                self.layout.shard_starts, dtype=torch.int64, device=targets.device
            )
        index = torch.arange(by_rank.shape[1], device=targets.device)
        return by_rank[owners(targets, self._starts[device]), index]

    def _digest(self, rows: int, device: Any) -> Any:
        import torch

        key = (str(device), rows)
        if key not in self._digests:
            digest = bytearray(contract_digest(self.layout, rows))
            self._digests[key] = torch.frombuffer(digest, dtype=torch.uint8).to(device)
        return self._digests[key]
