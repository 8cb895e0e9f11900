"""Who owns a block, decided by changing something: it follows the setting of its owner, or it does not.

Three snapshots of the same program: with a workspace size, with another one, and after the workspaces were
cleared and the cache emptied. A block that takes the other size on the same stream, and goes when the
workspaces are cleared, belongs to the library whose variable was changed, whatever its size suggests.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from rcatools.errors import InputError
from rcatools.memory.diff import stream_labels, stream_order
from rcatools.memory.owners import BlockOwner, owners
from rcatools.memory.snapshot import Snapshot
from rcatools.memory.workspaces import (
    BLAS,
    BLAS_LT,
    BLAS_VARIABLES,
    KIB,
    LT_VARIABLES,
    blas_config_bytes,
    known_sizes,
)

CONFIDENCE = 0.99
SETTLE_COMMAND = "python benchmarks/owner_intervention.py OUT"
"""Makes and compares the three snapshots on a CUDA or ROCm machine (not run on ROCm)."""


@dataclass(frozen=True)
class Change:
    """A workspace variable with two settings.

    Attributes:
        variable: its name.
        before, after: its values as text.
        bytes_before, bytes_after: the workspace sizes they ask for.
        owner: whose workspace it is.
    """

    variable: str
    before: str
    after: str
    bytes_before: int
    bytes_after: int
    owner: str


def parse_change(text: str) -> Change:
    """A change written as ``CUBLASLT_WORKSPACE_SIZE=77824->40960`` (values as the variable takes them).

    Raises:
        InputError: unknown variable, or values that set no two different sizes.
    """
    name, _, values = text.partition("=")
    before, arrow, after = values.partition("->")
    known = (*BLAS_VARIABLES, *LT_VARIABLES)
    if not arrow or name not in known:
        raise InputError(
            f"a change is written NAME=VALUE->VALUE with NAME one of {', '.join(known)}; got {text!r}"
        )
    sizes = [_bytes(name, v) for v in (before, after)]
    if sizes[0] is None or sizes[1] is None or sizes[0] == sizes[1]:
        raise InputError(
            f"{text!r}: both values must set a size, and two different ones; write them as the variable takes them"
        )
    return Change(name, before, after, sizes[0], sizes[1], BLAS if name in BLAS_VARIABLES else BLAS_LT)


def _bytes(name: str, value: str) -> int | None:
    if name in BLAS_VARIABLES:
        return blas_config_bytes(value)
    return int(value) * KIB if value.isdigit() else None


@dataclass(frozen=True)
class Intervention:
    """What a change did to blocks of the size in question.

    Attributes:
        change: what was changed.
        streams: streams (by label) that hold such a block before the change.
        follows: whether each of them holds a block of the other size instead after it; None if there was no
            such block to begin with.
        cleared: whether clearing the workspaces and emptying the cache removed the blocks; None if not tried.
    """

    change: Change
    streams: tuple[str, ...]
    follows: bool | None
    cleared: bool | None

    @property
    def owner(self) -> str | None:
        """The owner it proves, or None."""
        return self.change.owner if self.follows and self.cleared is not False else None

    @property
    def text(self) -> str:
        """The outcome in one sentence."""
        c = self.change
        if self.follows is None:
            return f"no block of {c.bytes_before} bytes with {c.variable}={c.before}: nothing to decide"
        moved = "take" if self.follows else "do not take"
        gone = {True: ", and go", False: ", but stay", None: ""}[self.cleared]
        end = f"{gone} when the workspaces are cleared" if gone else ""
        return (
            f"blocks of {c.bytes_before} bytes on {', '.join(self.streams)} {moved} {c.bytes_after} bytes with "
            f"{c.variable}={c.after}{end}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "variable": self.change.variable,
            "before": self.change.before,
            "after": self.change.after,
            "bytes_before": self.change.bytes_before,
            "bytes_after": self.change.bytes_after,
            "streams": list(self.streams),
            "follows": self.follows,
            "cleared": self.cleared,
            "owner": self.owner,
            "text": self.text,
        }


def intervene(base: Snapshot, resized: Snapshot, cleared: Snapshot | None, change: Change) -> Intervention:
    """Compare the three snapshots.

    Args:
        base: with the variable's first value.
        resized: the same program with the second value.
        cleared: as ``base``, after clearing the workspaces and emptying the cache; None if not taken.
        change: what was changed.
    """
    before = _blocks_by_stream(base, change.bytes_before)
    if not before:
        return Intervention(change, (), None, None)
    follows = (
        _blocks_by_stream(resized, change.bytes_after) == before
        and _blocks_by_stream(base, change.bytes_after).total() == 0
        and _blocks_by_stream(resized, change.bytes_before).total() == 0
    )
    gone = None if cleared is None else not _blocks_by_stream(cleared, change.bytes_before)
    return Intervention(change, tuple(sorted(before)), follows, gone)


def _blocks_by_stream(snapshot: Snapshot, size: int) -> Counter[str]:
    labels = stream_labels(stream_order(snapshot))
    return Counter(labels[b.stream] for b in owners(snapshot) if size in (b.size, b.requested_size))


def apply_intervention(blocks: list[BlockOwner], outcome: Intervention) -> list[BlockOwner]:
    """The owners with what an intervention proved or excluded for blocks of its size."""
    change, out = outcome.change, []
    for block in blocks:
        if change.bytes_before not in (block.size, block.requested_size) or outcome.follows is None:
            out.append(block)
        elif outcome.owner is not None:
            out.append(
                replace(
                    block,
                    owner=outcome.owner,
                    basis="intervention",
                    confidence=CONFIDENCE,
                    reason=outcome.text,
                )
            )
        elif block.owner == change.owner and block.basis == "size":
            out.append(
                replace(block, owner="unknown", basis="intervention", confidence=0.0, reason=outcome.text)
            )
        else:
            out.append(block)
    return out


@dataclass(frozen=True)
class Agreement:
    """Three independent answers to who owns the blocks of one size.

    Attributes:
        size: bytes.
        by_frames: from call stacks; None where none is recorded or it names no library.
        by_size: from known workspace sizes and the environment; None where the size is not known.
        by_intervention: from the change; None where it did not decide.
    """

    size: int
    by_frames: str | None
    by_size: str | None
    by_intervention: str | None

    @property
    def agreed(self) -> str | None:
        """The owner if every answer that there is names the same one and the intervention is among them."""
        answers = {a for a in (self.by_frames, self.by_size, self.by_intervention) if a is not None}
        return answers.pop() if self.by_intervention is not None and len(answers) == 1 else None

    @property
    def text(self) -> str:
        """What the answers are and what they mean for a claim about such a block."""
        answers = (
            f"owner of the {self.size}-byte blocks: by call stack {self.by_frames or 'not named'}, by size "
            f"{self.by_size or 'not known'}, by intervention {self.by_intervention or 'not decided'}"
        )
        if self.agreed is None:
            return f"{answers}. They do not settle it."
        return (
            f"{answers}. They agree: on this machine such a block is the {self.agreed.replace('_', ' ')} of torch "
            "itself, and no other library is needed to explain it. On a machine where this was not run the owner "
            f"stays open; there, run: {SETTLE_COMMAND}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {**self.__dict__, "agreed": self.agreed, "text": self.text}


def agreement(base: Snapshot, outcome: Intervention) -> Agreement:
    """Ask all three ways about the blocks that an intervention concerned."""
    change = outcome.change
    mine = [b for b in owners(base) if change.bytes_before in (b.size, b.requested_size)]
    named = {b.owner for b in mine if b.basis == "frames"}
    sizes = [k for k in known_sizes({change.variable: change.before}) if k.size == change.bytes_before]
    return Agreement(
        change.bytes_before,
        named.pop() if len(named) == 1 else None,
        sizes[0].owner if sizes else None,
        outcome.owner,
    )
