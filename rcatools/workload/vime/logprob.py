"""The log-probability of the chosen word over a sharded vocabulary, in forms that communicate differently.

Every form returns the same bits on every rank. They differ in collectives per call, in whether message
buffers and agreement are kept from call to call, and in how much is copied to pick the target's logit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rcatools.errors import InputError, RunError, UnknownNameError
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
from rcatools.workload.vime.packing import PlanePacking, RowPacking
from rcatools.workload.vime.preflight import (
    AgreedCache,
    CarriedDigest,
    MemberKeyedCache,
    ObjectEveryCall,
    Preflight,
    RankLocalCache,
    TensorEveryCall,
)
from rcatools.workload.vime.tiles import Partials, check_targets, local_partials, merge, owners


@dataclass(frozen=True)
class FormSpec:
    """One named form.

    Attributes:
        text: what it does, for people.
        preflight, buffers: make what one instance of the form keeps.
        packing: how the one message is laid out; None for two gathers.
        flat: gather into one tensor instead of a list.
        parts: in how many gathers the one message is sent.
        times: how many times as long the message is as what it holds.
        readback: read on the host whether the targets are words and the results finite, in every call.
        safe: none of the hazards applies.
    """

    name: str
    text: str
    preflight: Callable[[], Preflight]
    buffers: Callable[[], Buffers] = PerCallBuffers
    packing: RowPacking | PlanePacking | None = None
    flat: bool = False
    parts: int = 1
    times: int = 1
    readback: bool = False
    safe: bool = False


WHOLE, COLUMN, PLANES = RowPacking(column_only=False), RowPacking(column_only=True), PlanePacking()
FORMS: dict[str, FormSpec] = {
    spec.name: spec
    for spec in (
        FormSpec("reference", "two gathers and an object gather for agreement", ObjectEveryCall, safe=True),
        FormSpec("two_gathers", "two gathers and a tensor gather for agreement", TensorEveryCall, safe=True),
        FormSpec(
            "packed",
            "one packed gather and a tensor gather for agreement",
            TensorEveryCall,
            packing=WHOLE,
            safe=True,
        ),
        FormSpec("packed_once", "packed; agreement cached on each rank", RankLocalCache, packing=WHOLE),
        FormSpec(
            "packed_cached", "packed; agreement and buffers cached", RankLocalCache, SharedBuffers, WHOLE
        ),
        FormSpec(
            "packed_cached_column",
            "packed; agreement and buffers cached; only the target column copied",
            RankLocalCache,
            SharedBuffers,
            COLUMN,
        ),
        FormSpec(
            "packed_in_three",
            "packed_cached, its message sent in three gathers",
            RankLocalCache,
            SharedBuffers,
            WHOLE,
            parts=3,
        ),
        FormSpec(
            "packed_padded",
            "packed_cached, its message four times as long",
            RankLocalCache,
            SharedBuffers,
            WHOLE,
            times=4,
        ),
        FormSpec(
            "packed_owned",
            "packed_cached_column with owned buffers",
            RankLocalCache,
            OwnedBuffers,
            COLUMN,
        ),
        FormSpec(
            "packed_keyed",
            "packed_cached_column, its agreement keyed by the group's members and epoch",
            MemberKeyedCache,
            SharedBuffers,
            COLUMN,
        ),
        FormSpec(
            "packed_readback",
            "packed; targets and results checked on the host",
            TensorEveryCall,
            packing=WHOLE,
            readback=True,
            safe=True,
        ),
        FormSpec(
            "safe_agreed",
            "packed by planes; owned buffers; agreement skipped only by agreement",
            AgreedCache,
            OwnedBuffers,
            PLANES,
            safe=True,
        ),
        FormSpec(
            "safe_carried",
            "packed by planes; owned buffers; digest carried in the message",
            CarriedDigest,
            OwnedBuffers,
            PLANES,
            safe=True,
        ),
        FormSpec(
            "safe_carried_flat",
            "as safe_carried, gathered into one tensor",
            CarriedDigest,
            OwnedBuffers,
            PLANES,
            flat=True,
            safe=True,
        ),
    )
}
PUBLISHED_FORMS = ("reference", "packed", "packed_cached", "packed_cached_column")


class SelectedLogprob:
    """One form bound to a layout and a group.

    Args:
        buffers, preflight: replace the form's own, for instance to share a cache between instances.
        before_gather: called between filling a packed message and gathering it; demonstrations hold a
            thread or a stream there.

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
        before_gather: Callable[[], None] = lambda: None,
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
        self.before_gather = before_gather
        self._picks: dict[tuple[str, int], Any] = {}
        self._digests: dict[tuple[str, int], Any] = {}
        self._pieces: dict[int, tuple[Message, list[Any], list[list[Any]]]] = {}

    def __call__(self, logits: Any, targets: Any) -> Any:
        """Log-probabilities ``[rows]`` fp32 of ``targets`` from this rank's ``logits`` shard."""
        return self.exchange(local_partials(logits, targets, self.layout, self.comm.rank), targets)

    def exchange(self, partials: Partials, targets: Any) -> Any:
        """Agree, gather every rank's partials and merge them: all that differs between forms.

        Raises:
            LogprobContractError: ranks disagree.
            InputError: a form that reads back found a target outside the vocabulary.
            RunError: a form that reads back found a result that is not finite.
        """
        if self.spec.readback:
            check_targets(targets, self.layout)
        self.agree(partials.target.shape[0], partials.target.device)
        if self.spec.packing is not None:
            found = self._packed(partials, targets, self.spec.packing)
        else:
            found = self._two_gathers(partials, targets)
        if self.spec.readback and not bool(found.isfinite().all()):
            raise RunError("a log-probability is not finite")
        return found

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

    def _packed(self, partials: Partials, targets: Any, packing: RowPacking | PlanePacking) -> Any:
        rows, device = partials.target.shape[0], partials.target.device
        carries = self.preflight.carries_digest
        shape = MessageShape(rows, self.layout.max_tiles, carries, self.spec.times)
        message = self.buffers.take(shape, self.comm, device)
        packing.fill(message, partials, self._digest(rows, device) if carries else None)
        self.before_gather()
        if self.spec.flat:
            self.comm.all_gather_into_tensor(message.block.view(-1), message.sent)
        elif self.spec.parts > 1:
            self._in_parts(message)
        else:
            self.comm.all_gather(message.gathered, message.sent)
        self.preflight.after(message)
        maxima, sums, by_rank = packing.unpack(message, self.layout.tile_counts)
        return merge(maxima, sums, self._pick(by_rank, targets))

    def _in_parts(self, message: Message) -> None:
        """Gather a message piece by piece; a kept message is cut once, so that only collectives are added."""
        if id(message) not in self._pieces:
            cut = [flat.tensor_split(self.spec.parts) for flat in message.gathered]
            gathered = [[pieces[index] for pieces in cut] for index in range(self.spec.parts)]
            self._pieces[id(message)] = (message, list(message.sent.tensor_split(self.spec.parts)), gathered)
        _, sent, gathered = self._pieces[id(message)]
        for mine, theirs in zip(sent, gathered, strict=True):
            self.comm.all_gather(theirs, mine)

    def _pick(self, by_rank: Any, targets: Any) -> Any:
        """From ``[world, rows]`` what each row's owner sent."""
        import torch

        rows = by_rank.shape[1]
        key = (str(targets.device), rows)
        if key not in self._picks:
            later = torch.tensor(self.layout.shard_starts[1:], dtype=torch.int64, device=targets.device)
            self._picks[key] = (later, torch.arange(rows, device=targets.device))
        later_starts, index = self._picks[key]
        return by_rank[owners(targets, later_starts), index]

    def _digest(self, rows: int, device: Any) -> Any:
        import torch

        key = (str(device), rows)
        if key not in self._digests:
            digest = bytearray(contract_digest(self.layout, rows))
            self._digests[key] = torch.frombuffer(digest, dtype=torch.uint8).to(device)
        return self._digests[key]
