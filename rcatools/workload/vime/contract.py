"""The vocabulary cut into tiles and shards: what every rank must agree on before it exchanges numbers.

The tile count is part of the numbers' identity: tiles are summed one by one in global order, so the
result does not depend on how many ranks hold them. Constants and rules come from RL-Kernel
(``rl_engine/contracts/operators/logprob.py``).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import accumulate

from rcatools.errors import InputError, RunError

NUM_TILES = 64
BACKEND_ID = "rcatools.selected_logprob.tiles.v1"
DIGEST_BYTES = 32


class LogprobContractError(RunError):
    """Ranks disagree about the layout, the row count or the backend."""


@dataclass(frozen=True)
class VocabLayout:
    """A vocabulary of ``vocab`` words padded to ``padded`` and cut into tiles shared out over ranks.

    ``tile_counts[r]`` tiles belong to rank ``r``, in order. Columns from ``vocab`` on are padding.

    Raises:
        InputError: the counts do not sum to ``num_tiles``, a rank has none, the padded size is not a
            multiple of the tile count, or the vocabulary does not fit.
    """

    vocab: int
    padded: int
    tile_counts: tuple[int, ...]
    num_tiles: int = NUM_TILES

    def __post_init__(self) -> None:
        if sum(self.tile_counts) != self.num_tiles or min(self.tile_counts, default=0) < 1:
            raise InputError(
                f"tile counts {self.tile_counts} must be positive and sum to {self.num_tiles}; "
                "give each rank whole tiles"
            )
        if self.padded % self.num_tiles:
            raise InputError(f"padded vocabulary {self.padded} is not a multiple of {self.num_tiles} tiles")
        if not 0 < self.vocab <= self.padded:
            raise InputError(f"vocabulary {self.vocab} must lie between 1 and its padded size {self.padded}")

    @classmethod
    def even(cls, vocab: int, world: int, num_tiles: int = NUM_TILES) -> VocabLayout:
        """Pad ``vocab`` to whole tiles and share them evenly over ``world`` ranks."""
        if world < 1 or num_tiles % world:
            raise InputError(f"{num_tiles} tiles cannot be shared evenly over {world} ranks")
        padded = -(-vocab // num_tiles) * num_tiles
        return cls(vocab, padded, (num_tiles // world,) * world, num_tiles)

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.tile_counts)

    @property
    def tile_size(self) -> int:
        """Words per tile."""
        return self.padded // self.num_tiles

    @property
    def max_tiles(self) -> int:
        """Tiles of the fullest rank: the width every rank's message is padded to."""
        return max(self.tile_counts)

    @property
    def shard_starts(self) -> tuple[int, ...]:
        """First column of each rank's shard."""
        return tuple(self.tile_size * first for first in accumulate((0, *self.tile_counts[:-1])))

    def bounds(self, rank: int) -> tuple[int, int]:
        """First column and end column of one rank's shard."""
        start = self.shard_starts[rank]
        return start, start + self.tile_counts[rank] * self.tile_size


@lru_cache(maxsize=8192)
def contract_digest(layout: VocabLayout, rows: int) -> bytes:
    """SHA-256 of everything that must be equal on all ranks for a call of ``rows`` rows."""
    agreed = asdict(layout) | {"rows": rows, "backend": BACKEND_ID, "order": "ascending tiles, fp32"}
    return hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).digest()
