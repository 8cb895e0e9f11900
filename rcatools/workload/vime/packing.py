"""Where a packed message's numbers stand in it: by rows, as published, or by planes.

By rows, each row holds its maxima, its sums and its target, padded to the fullest rank's tiles. By planes,
the digest comes first, then all targets, all maxima and all sums, and any rest is unused: one copy fills
it, and digest and targets are read where they lie, without a further copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rcatools.workload.vime.buffers import DIGEST_WORDS, Message, MessageShape
from rcatools.workload.vime.tiles import Partials

Unpacked = tuple[Any, Any, Any]


class RowPacking:
    """The published order.

    Args:
        column_only: copy only the target's column of every rank, not the whole message.
    """

    def __init__(self, *, column_only: bool) -> None:
        self.column_only = column_only

    def fill(self, message: Message, partials: Partials, digest: Any) -> None:
        """Write this rank's numbers into ``message.sent``; ``digest`` must be None."""
        assert digest is None
        mine, wide = partials.maxima.shape[1], message.shape.max_tiles
        rows = _by_rows(message.sent, message.shape)
        rows[:, :mine] = partials.maxima
        rows[:, wide : wide + mine] = partials.sums
        rows[:, -1] = partials.target

    def unpack(self, message: Message, tile_counts: Sequence[int]) -> Unpacked:
        """Maxima and sums ``[rows, all tiles]`` in global order, and targets ``[world, rows]`` by rank."""
        import torch

        wide = message.shape.max_tiles
        parts = [_by_rows(flat, message.shape) for flat in message.gathered]
        pairs = list(zip(parts, tile_counts, strict=True))
        maxima = torch.cat([part[:, :n] for part, n in pairs], dim=1)
        sums = torch.cat([part[:, wide : wide + n] for part, n in pairs], dim=1)
        if self.column_only:
            return maxima, sums, torch.stack([part[:, -1] for part in parts])
        return maxima, sums, torch.stack(parts)[:, :, -1]


def _by_rows(flat: Any, shape: MessageShape) -> Any:
    """One rank's message ``[rows, width]``, without what only makes it longer."""
    used = flat if shape.times == 1 else flat[: shape.rows * shape.width]
    return used.view(shape.rows, shape.width)


class PlanePacking:
    """Digest, targets, maxima, sums, each in one piece."""

    def fill(self, message: Message, partials: Partials, digest: Any) -> None:
        """Write this rank's numbers into ``message.sent`` with one copy.

        ``digest`` is ``[32]`` uint8 where the message carries one, else None.
        """
        import torch

        pieces = [partials.target, partials.maxima.reshape(-1), partials.sums.reshape(-1)]
        if digest is not None:
            pieces.insert(0, digest.view(torch.float32))
        torch.cat(pieces, out=message.sent[: sum(piece.numel() for piece in pieces)])

    def unpack(self, message: Message, tile_counts: Sequence[int]) -> Unpacked:
        """Maxima and sums ``[rows, all tiles]`` in global order, and targets ``[world, rows]`` by rank."""
        import torch

        rows = message.shape.rows
        first = DIGEST_WORDS if message.shape.digest else 0
        after = first + rows
        maxima, sums = [], []
        for flat, n in zip(message.gathered, tile_counts, strict=True):
            maxima.append(flat[after : after + rows * n].view(rows, n))
            sums.append(flat[after + rows * n : after + 2 * rows * n].view(rows, n))
        return torch.cat(maxima, dim=1), torch.cat(sums, dim=1), message.block[:, first:after]

    @staticmethod
    def digests(message: Message) -> tuple[Any, Any]:
        """This rank's digest ``[8]`` and every rank's ``[world, 8]``, as int32, read where they lie."""
        import torch

        mine, block = message.sent[:DIGEST_WORDS], message.block[:, :DIGEST_WORDS]
        return mine.view(torch.int32), block.view(torch.int32)
