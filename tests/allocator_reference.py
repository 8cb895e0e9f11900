"""A slow, separate model of the caching allocator, for tests only.

Written from the rules, not from the package: every segment is a list of blocks, every search looks at all of
them, nothing is kept up to date between calls. Expandable segments are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

KIB, MIB = 1024, 1024 * 1024


@dataclass
class Piece:
    start: int
    size: int
    used: str | None = None  # who holds it
    waiting: set[int] = field(default_factory=set)  # streams a free waits for
    idle_since: int = 0


@dataclass
class Chunk:
    start: int
    size: int
    stream: int
    pool: str
    small: bool
    pieces: list[Piece]


class Reference:
    def __init__(
        self,
        *,
        max_split: float = math.inf,
        limit: float = math.inf,
        divisions: int = 0,
        collect: float = 0.0,
    ):
        self.max_split, self.limit, self.divisions, self.collect = max_split, limit, divisions, collect
        self.chunks: list[Chunk] = []
        self.made = 0
        self.log: list[tuple[str, int, int]] = []
        self.pool_for: list[tuple[str, set[int] | None]] = []
        self.dead_pools: list[str] = []
        self.searches: dict[tuple[str, bool], int] = {}
        self.uses: dict[str, dict[int, None]] = {}
        self.done: dict[int, list[tuple[str, int]]] = {}

    # sizes

    def rounded(self, n: int) -> int:
        if n < 512:
            return 512
        if self.divisions > 1 and n > 512 * self.divisions:
            low = 1
            while low * 2 <= n:
                low *= 2
            if low == n:
                return n
            step = low // self.divisions
            k = 0
            while low + k * step < n:
                k += 1
            return low + k * step
        return math.ceil(n / 512) * 512

    @staticmethod
    def wanted(size: int) -> int:
        if size <= MIB:
            return 2 * MIB
        if size < 10 * MIB:
            return 20 * MIB
        return math.ceil(size / (2 * MIB)) * 2 * MIB

    # requests

    def alloc(self, who: str, n: int, stream: int) -> bool:
        self.settle()
        size = self.rounded(n)
        small = size <= MIB
        pool = next((p for p, streams in self.pool_for if streams is None or stream in streams), "")
        if self.collect and self.limit < math.inf:
            self.searches[pool, small] = self.searches.get((pool, small), 0) + 1
        spot = self.best(pool, small, stream, size)
        if spot is None:
            spot = self.after_a_miss(pool, small, stream, size)
        if spot is None:
            self.log.append(("oom", 0, size))
            return False
        chunk, piece = spot
        rest = piece.size - size
        if (rest >= 512) if small else (size < self.max_split and rest > MIB):
            at = chunk.pieces.index(piece)
            tail = Piece(piece.start + size, rest)
            self.age(chunk, tail)
            chunk.pieces.insert(at + 1, tail)
            piece.size = size
        piece.used = who
        self.log.append(("alloc", chunk.start + piece.start, n))
        return True

    def best(self, pool: str, small: bool, stream: int, size: int) -> tuple[Chunk, Piece] | None:
        fitting = [
            (piece.size, chunk.start + piece.start, chunk, piece)
            for chunk in self.chunks
            if chunk.pool == pool and chunk.small == small and chunk.stream == stream
            for piece in chunk.pieces
            if piece.used is None and piece.size >= size
        ]
        if not fitting:
            return None
        _, _, chunk, piece = min(fitting, key=lambda f: f[:2])
        if size < self.max_split <= piece.size:
            return None
        if size >= self.max_split and piece.size >= size + 20 * MIB:
            return None
        return chunk, piece

    def after_a_miss(self, pool: str, small: bool, stream: int, size: int) -> tuple[Chunk, Piece] | None:
        if self.collect and self.limit < math.inf:
            self.collect_old()
        for attempt in ("plain", "oversize", "everything"):
            if attempt == "oversize" and not self.drop_oversize(pool, small, stream, size):
                continue
            if attempt == "everything":
                self.empty_cache()
            if self.reserved + self.wanted(size) <= self.limit:
                self.made += 1
                chunk = Chunk(self.made << 44, self.wanted(size), stream, pool, small, [])
                chunk.pieces.append(Piece(0, chunk.size))
                self.chunks.append(chunk)
                self.log.append(("segment_alloc", chunk.start, chunk.size))
                return chunk, chunk.pieces[0]
        return None

    def drop_oversize(self, pool: str, small: bool, stream: int, size: int) -> bool:
        if self.max_split == math.inf:
            return False
        need = max(size, self.max_split)
        mine = sorted(
            (
                (p.size, c.start + p.start, c)
                for c in self.chunks
                if c.pool == pool and c.small == small and c.stream == stream
                for p in c.pieces
                if p.used is None
            ),
            key=lambda f: f[:2],
        )
        enough = [f for f in mine if f[0] >= need]
        if enough:
            self.drop(enough[0][2])
            return True
        got = 0
        for free, _, chunk in reversed(mine):
            if got >= need or free < self.max_split:
                break
            self.drop(chunk)
            got += free
        return got >= need

    def collect_old(self) -> None:
        excess = self.reserved - int(self.collect * self.limit)
        if excess <= 0:
            return
        now = self.searches.get(("", False), 0)
        ages = {
            id(c): now - c.pieces[0].idle_since
            for c in self.chunks
            if not c.pool and not c.small and len(c.pieces) == 1 and c.pieces[0].used is None
        }
        while excess > 0 and ages:
            mean = sum(ages.values()) / len(ages)
            old = sorted(
                (c for c in self.chunks if ages.get(id(c), -1) >= mean),
                key=lambda c: (c.stream, c.size, c.start),
            )
            if not old:
                return
            for chunk in old:
                del ages[id(chunk)]
                excess -= chunk.size
                self.drop(chunk)

    # giving back

    def free(self, who: str) -> None:
        chunk, piece = self.where(who)
        self.log.append(("free_requested", chunk.start + piece.start, 0))
        streams = self.uses.pop(who, {})
        if streams:
            piece.waiting = set(streams)
            for stream in streams:
                self.done.setdefault(stream, []).append((who, 0))
        else:
            self.complete(who)

    def record_stream(self, who: str, stream: int) -> None:
        if stream != self.where(who)[0].stream:
            self.uses.setdefault(who, {})[stream] = (
                None  # in order of use; torch's own order is not specified
            )

    def sync(self) -> None:
        self.done = {stream: [(who, 1) for who, _ in queue] for stream, queue in self.done.items()}

    def settle(self, *, all_of_them: bool = False) -> None:
        for stream, queue in self.done.items():
            while queue and (all_of_them or queue[0][1]):
                who = queue.pop(0)[0]
                piece = self.where(who)[1]
                piece.waiting.discard(stream)
                if not piece.waiting:
                    self.complete(who)

    def complete(self, who: str) -> None:
        chunk, piece = self.where(who)
        self.log.append(("free_completed", chunk.start + piece.start, 0))
        piece.used = None
        merged: list[Piece] = []
        touched = piece
        for p in chunk.pieces:
            if merged and merged[-1].used is None and p.used is None:
                if p is piece or merged[-1] is touched:
                    touched = merged[-1]
                merged[-1].size += p.size
            else:
                merged.append(p)
        chunk.pieces = merged
        self.age(chunk, touched)

    def age(self, chunk: Chunk, piece: Piece) -> None:
        piece.idle_since = self.searches.get((chunk.pool, chunk.small), 0)

    def where(self, who: str) -> tuple[Chunk, Piece]:
        return next((c, p) for c in self.chunks for p in c.pieces if p.used == who)

    def drop(self, chunk: Chunk) -> None:
        self.chunks.remove(chunk)
        self.log.append(("segment_free", chunk.start, chunk.size))

    def empty_cache(self) -> None:
        self.settle(all_of_them=True)
        order = [("", False), ("", True)] + [(p, small) for p in self.dead_pools for small in (True, False)]
        for pool, small in order:
            idle = [
                c
                for c in self.chunks
                if c.pool == pool and c.small == small and all(p.used is None for p in c.pieces)
            ]
            for chunk in sorted(idle, key=lambda c: (c.stream, c.size, c.start)):
                self.drop(chunk)

    @property
    def reserved(self) -> int:
        return sum(c.size for c in self.chunks)

    def layout(self) -> list[tuple[int, int, list[tuple[int, int, str]]]]:
        state = {True: "inactive", False: "active_allocated"}
        return [
            (
                c.start,
                c.stream,
                [
                    (c.start + p.start, p.size, "active_pending_free" if p.waiting else state[p.used is None])
                    for p in c.pieces
                ],
            )
            for c in sorted(self.chunks, key=lambda c: c.start)
        ]
