"""Make small torch memory snapshots whose whole history is known: the truth for the allocator tests.

    python benchmarks/make_ground_truth_snapshots.py OUT

Needs one CUDA device and torch; nothing else. Each case runs in its own forked process, because recorded
history and allocator state belong to a process. Below OUT it writes ``<case>.pickle.gz`` (the snapshot),
``<case>.ops.json.gz`` (the operations that made it, with the address each allocation got) and
``truth.json`` (torch's own statistics per case, the settings, and what failed). A case that fails is
reported there and does not stop the others.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

KIB, MIB = 1 << 10, 1 << 20
TIMEOUT_S = 25.0
PARALLEL = 4
KEPT_STATS = (
    "reserved_bytes.all.current",
    "reserved_bytes.all.peak",
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "active_bytes.all.current",
    "active_bytes.all.peak",
    "requested_bytes.all.current",
    "requested_bytes.all.peak",
    "inactive_split_bytes.all.current",
    "segment.all.current",
    "segment.all.peak",
    "allocation.all.current",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
    "oversize_allocations.current",
    "oversize_segments.current",
)


class Case:
    """Runs allocator operations and writes down each one."""

    def __init__(self, name: str, out: Path) -> None:
        self.name, self.out = name, out
        self.ops: list[list[Any]] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.streams: dict[str, torch.cuda.Stream] = {}
        self.kept: list[Any] = []
        self.extra: dict[str, Any] = {}
        self.files: list[str] = []

    def start(self, context: str | None = None, max_entries: int = 1_000_000, stacks: str = "python") -> None:
        torch.cuda.memory._record_memory_history("all", context, stacks, max_entries)

    def stream(self, label: str) -> torch.cuda.Stream:
        if label not in self.streams:
            self.streams[label] = torch.cuda.default_stream() if label == "0" else torch.cuda.Stream()
        return self.streams[label]

    def alloc(self, name: str, nbytes: int, stream: str | None = "0", pool: str | None = None) -> bool:
        """Allocate; False and an "oom" entry where the allocator gave up. ``stream=None``: the current one."""
        try:
            if stream is None:
                tensor = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
            else:
                with torch.cuda.stream(self.stream(stream)):
                    tensor = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            self.ops.append(["oom", name, nbytes, stream, pool])
            return False
        self.tensors[name] = tensor
        self.ops.append(["alloc", name, nbytes, stream, pool, tensor.data_ptr()])
        return True

    def free(self, *names: str) -> None:
        for name in names:
            del self.tensors[name]
            self.ops.append(["free", name])

    def record_stream(self, name: str, stream: str) -> None:
        self.tensors[name].record_stream(self.stream(stream))
        self.ops.append(["record_stream", name, stream])

    def busy(self, stream: str, cycles: int = 60_000_000) -> None:
        with torch.cuda.stream(self.stream(stream)):
            torch.cuda._sleep(cycles)
        self.ops.append(["busy", stream])

    def sync(self) -> None:
        torch.cuda.synchronize()
        self.ops.append(["sync"])

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()
        self.ops.append(["empty_cache"])

    def fraction(self, nbytes: int) -> None:
        """Limit this process to about ``nbytes`` (the allocator floors fraction * total)."""
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(nbytes / total)
        self.ops.append(["limit", nbytes, total, int(nbytes / total * total)])

    def note(self, *entry: Any) -> None:
        self.ops.append(list(entry))

    def snap(self, suffix: str = "") -> None:
        """Write a snapshot of this moment."""
        name = f"{self.name}{suffix}.pickle.gz"
        stats = torch.cuda.memory_stats()
        snapshot = torch.cuda.memory._snapshot()
        _shorten_paths(snapshot)
        data = pickle.dumps(snapshot, protocol=4)
        (self.out / name).write_bytes(gzip.compress(data, 9, mtime=0))
        self.files.append(name)
        self.extra.setdefault("stats", {})[name] = {k: stats[k] for k in KEPT_STATS if k in stats}

    def finish(self) -> dict[str, Any]:
        handles = {label: s.cuda_stream for label, s in self.streams.items()}
        data = json.dumps({"ops": self.ops, "streams": handles}, separators=(",", ":")).encode()
        (self.out / f"{self.name}.ops.json.gz").write_bytes(gzip.compress(data, 9, mtime=0))
        return {"files": self.files, "ops": len(self.ops), "streams": handles, **self.extra}


def _shorten_paths(snapshot: dict[str, Any]) -> None:
    """Name files by their place in the project or package, not by the folders of the machine."""
    entries = [*snapshot["segments"], *(e for trace in snapshot.get("device_traces", []) for e in trace)]
    entries += [block for segment in snapshot["segments"] for block in segment["blocks"]]
    for entry in entries:
        for frame in entry.get("frames") or ():
            folder, package, rest = frame["filename"].partition("site-packages/")
            if package:
                frame["filename"] = package + rest
            elif folder.endswith(Path(__file__).name):
                frame["filename"] = f"benchmarks/{Path(__file__).name}"


CASES: dict[str, tuple[Callable[[Case], None], dict[str, Any]]] = {}


def case(conf: str = "", env: dict[str, str] | None = None) -> Callable[..., Any]:
    """Register a case with its allocator settings and environment."""

    def register(function: Callable[[Case], None]) -> Callable[[Case], None]:
        CASES[function.__name__] = (function, {"conf": conf, "env": env or {}})
        return function

    return register


EDGES = [
    1,
    511,
    512,
    513,
    4096,
    MIB - 512,
    MIB - 511,
    MIB - 1,
    MIB,
    MIB + 1,
    MIB + 512,
    MIB + 513,
    2 * MIB - 1,
    2 * MIB,
    2 * MIB + 1,
    10 * MIB - 512,
    10 * MIB - 511,
    10 * MIB - 1,
    10 * MIB,
    10 * MIB + 1,
    10 * MIB + 512,
    12 * MIB - 1,
    12 * MIB,
    12 * MIB + 1,
    20 * MIB - 512,
    20 * MIB,
    20 * MIB + 1,
    21 * MIB,
    32 * MIB + 4096,
]


def _edges(c: Case, order_seed: int = 1) -> None:
    for i, n in enumerate(EDGES):
        c.alloc(f"a{i}", n)
    c.free(*[f"a{i}" for i in range(0, len(EDGES), 2)])
    order = list(range(len(EDGES)))
    random.Random(order_seed).shuffle(order)
    for i in order:
        c.alloc(f"b{i}", EDGES[i])
    c.free(*[f"a{i}" for i in range(1, len(EDGES), 2)])
    for i in reversed(order):
        c.alloc(f"c{i}", EDGES[i])
    c.free(*[f"b{i}" for i in range(len(EDGES))])
    c.empty_cache()
    for i in order:
        c.alloc(f"d{i}", EDGES[i])


@case()
def edges(c: Case) -> None:
    c.start()
    _edges(c)
    c.snap()


@case()
def split_threshold(c: Case) -> None:
    """Remainders of exactly 1 MiB (not split) and 512 bytes more (split); small remainders of 512."""
    c.start()
    for i, rest in enumerate((MIB, MIB + 512, MIB - 512, MIB + 1024, 2 * MIB)):
        c.alloc(f"big{i}", 40 * MIB + 2 * MIB * i)
        c.free(f"big{i}")
        c.alloc(f"part{i}", 40 * MIB + 2 * MIB * i - rest)
        c.alloc(f"next{i}", rest)
    for i, rest in enumerate((512, 1024, MIB)):
        c.alloc(f"s{i}", MIB)
        c.alloc(f"t{i}", MIB - rest)
        c.alloc(f"u{i}", min(rest, MIB))
    c.alloc("l0", 2 * MIB)
    c.alloc("l1", 17 * MIB - 512)
    c.alloc("l2", 8 * MIB)
    c.alloc("l3", 9 * MIB)
    c.free("l2", "l3")
    c.alloc("l4", 19 * MIB)
    c.snap()


@case()
def coalesce(c: Case) -> None:
    """Every order of freeing four neighbours; merge with the block before, after, both, none."""
    c.start()
    import itertools

    for k, order in enumerate(itertools.permutations(range(4))):
        for i in range(4):
            c.alloc(f"p{k}_{i}", 100 * KIB + 512 * i)
        for i in order:
            c.free(f"p{k}_{i}")
    for i in range(8):
        c.alloc(f"q{i}", 2 * MIB)
    for i in (1, 3, 5, 2, 6, 4, 7):
        c.free(f"q{i}")
        c.alloc(f"r{i}", 1200 * KIB + 1)
    c.snap()


@case()
def ties(c: Case) -> None:
    """Free blocks of equal size in several segments: the lowest address wins."""
    c.start()
    for i in range(6):
        c.alloc(f"k{i}", 24 * MIB)
    c.free("k3", "k0", "k5", "k1")
    for i in range(4):
        c.alloc(f"m{i}", 24 * MIB - 300)
    c.free("k2", "m1", "m3", "k4")
    c.alloc("n0", 23 * MIB)
    c.alloc("n1", 12 * MIB)
    c.alloc("n2", 11 * MIB)
    for i in range(8):
        c.alloc(f"s{i}", MIB)
    c.free("s1", "s6", "s2", "s4")
    for i in range(4):
        c.alloc(f"t{i}", MIB - 1)
    c.snap()


@case()
def streams4(c: Case) -> None:
    c.start()
    labels = ["0", "a", "b", "c", "d"]
    for label in labels:
        for i, n in enumerate((300, 600 * KIB, 3 * MIB, 11 * MIB, 48 * MIB)):
            c.alloc(f"{label}{i}", n, label)
    c.free("a4", "b4", "c2", "d3", "01")
    for label in labels:
        c.alloc(f"x{label}", 40 * MIB, label)
        c.alloc(f"y{label}", 500 * KIB, label)
    c.free(*[f"{label}0" for label in labels], "b1", "b2", "b3", "xa", "xc")
    c.snap("_before")
    c.empty_cache()
    c.alloc("z0", 48 * MIB, "b")
    c.alloc("z1", 48 * MIB, "0")
    c.snap()


@case()
def streams33(c: Case) -> None:
    """The stream pool holds 32 streams: the 33rd request gives the first one again."""
    c.start()
    for i in range(36):
        c.alloc(f"a{i}", 3 * MIB + 1000 * i, f"s{i}")
        c.free(f"a{i}")
    for i in range(36):
        c.alloc(f"b{i}", 2 * MIB + 1000 * i, f"s{i}")
        c.alloc(f"c{i}", 1000 * i + 1, f"s{i}")
    c.free(*[f"b{i}" for i in range(0, 36, 3)])
    c.empty_cache()
    c.snap()


@case()
def record_stream_late(c: Case) -> None:
    """Frees that wait for other streams: completed only after those streams are done."""
    c.start()
    for i in range(4):
        c.alloc(f"a{i}", 30 * MIB, "0")
    c.busy("x")
    c.busy("y", 120_000_000)
    c.record_stream("a0", "x")
    c.record_stream("a1", "y")
    c.record_stream("a2", "x")
    c.record_stream("a2", "y")
    c.record_stream("a3", "0")
    c.free("a0", "a1", "a2", "a3")
    c.alloc("b0", 30 * MIB, "0")
    c.alloc("b1", 30 * MIB, "0")
    c.sync()
    c.alloc("b2", 30 * MIB, "0")
    c.alloc("b3", 30 * MIB, "0")
    c.busy("x")
    c.record_stream("b1", "x")
    c.free("b1")
    c.empty_cache()
    c.alloc("b4", 2 * MIB, "0")
    for i in range(6):
        c.alloc(f"p{i}", 2 * MIB, "y")
    c.busy("x")
    for i in (4, 1, 2):
        c.record_stream(f"p{i}", "x")
        c.free(f"p{i}")
    c.free("p3")
    c.sync()
    c.alloc("q0", 5 * MIB, "y")
    c.snap()


@case()
def record_stream_pending(c: Case) -> None:
    """A snapshot taken while frees are still waiting."""
    c.start()
    for i in range(3):
        c.alloc(f"a{i}", 6 * MIB, "0")
    c.busy("x", 2_000_000_000)
    for i in (0, 1):
        c.record_stream(f"a{i}", "x")
        c.free(f"a{i}")
    c.alloc("b0", 6 * MIB, "0")
    c.snap()
    c.sync()


def _kernel(x: torch.Tensor) -> None:
    x.add_(1)


@case()
def graph_pools(c: Case) -> None:
    """Two captures sharing a pool, one with its own, one reset, live outputs, empty_cache."""
    c.start()
    x = torch.zeros(1024, device="cuda")
    graphs = [torch.cuda.CUDAGraph() for _ in range(3)]
    pool = torch.cuda.graph_pool_handle()
    for i, (graph, where) in enumerate(zip(graphs, (pool, pool, None), strict=True)):
        with torch.cuda.graph(graph, pool=where):
            for j, n in enumerate((700, 3 * MIB, 12 * MIB, 30 * MIB)):
                c.alloc(f"g{i}_{j}", n, None, str(where))
            _kernel(x)
            c.free(f"g{i}_1", f"g{i}_2")
            c.alloc(f"g{i}_4", 2 * MIB, None, str(where))
        c.note("capture_done", i, list(graph.pool()))
        c.alloc(f"between{i}", 14 * MIB)
    c.free("g0_0", "g0_3", "g0_4", "g2_0", "g2_3", "g2_4")
    c.snap("_before")
    graphs[2].reset()
    c.note("reset", 2)
    c.empty_cache()
    c.snap("_reset")
    graphs[0].reset()
    c.empty_cache()
    graphs[1].reset()
    c.empty_cache()
    c.alloc("after", 30 * MIB)
    c.kept.append(x)
    c.snap()


@case()
def graph_two_streams(c: Case) -> None:
    """Two capture streams share one pool: they do not share blocks."""
    c.start()
    x = torch.zeros(1024, device="cuda")
    pool = torch.cuda.graph_pool_handle()
    for i, label in enumerate(("u", "v", "u")):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=c.stream(label)):
            c.alloc(f"g{i}_0", 24 * MIB, None, "shared")
            c.alloc(f"g{i}_1", 4 * MIB, None, "shared")
            _kernel(x)
            c.free(f"g{i}_0")
            c.alloc(f"g{i}_2", 13 * MIB, None, "shared")
        c.free(f"g{i}_1", f"g{i}_2")
        c.kept.append(graph)
    c.alloc("d", 24 * MIB, "u")
    c.snap()


@case()
def graph_record_stream(c: Case) -> None:
    """record_stream inside a capture: the free is put off until after the capture."""
    c.start()
    x = torch.zeros(1024, device="cuda")
    s, t = c.stream("s"), c.stream("t")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=s):
        c.alloc("a", 24 * MIB, None, "g")
        c.tensors["a"].fill_(1)
        t.wait_stream(s)
        with torch.cuda.stream(t):
            c.tensors["a"].add_(1)
        c.record_stream("a", "t")
        c.free("a")
        c.alloc("b", 24 * MIB, None, "g")
        s.wait_stream(t)
        _kernel(x)
    c.alloc("c", 24 * MIB, "0")
    c.kept.append(graph)
    c.snap()


@case()
def mempools(c: Case) -> None:
    c.start()
    pool, other = torch.cuda.MemPool(), torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        c.alloc("p0", 30 * MIB, "0", "pool")
        c.alloc("p1", 5 * MIB, "0", "pool")
        c.alloc("p2", 5 * MIB, "a", "pool")
        c.alloc("p3", 500, "0", "pool")
    c.alloc("d0", 5 * MIB, "0")
    c.free("p1", "p0")
    c.alloc("d1", 30 * MIB, "0")
    with torch.cuda.use_mem_pool(other):
        for i in range(3):
            c.alloc(f"n{i}", 3 * MIB + i, "0", "no_split")
        c.free("n1")
        c.alloc("n3", 2 * MIB, "0", "no_split")
        c.alloc("n4", 100, "0", "no_split")
    with torch.cuda.use_mem_pool(pool):
        c.alloc("p4", 20 * MIB, "0", "pool")
        c.alloc("p5", 2 * MIB, "0", "pool")
    c.snap("_before")
    c.free("p2", "p3", "p4", "p5", "d0")
    c.empty_cache()
    c.snap("_emptied")
    c.note("delete_pool")
    del pool
    c.empty_cache()
    c.alloc("d2", 7 * MIB, "0")
    c.kept.append(other)
    c.snap()


@case()
def mempool_use_on_oom(c: Case) -> None:
    c.start()
    pool = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        c.alloc("p0", 200 * MIB, "0", "pool")
        c.alloc("p1", 100 * MIB, "0", "pool")
    c.free("p0", "p1")
    c.fraction(600 * MIB)
    c.alloc("d0", 220 * MIB, "0")
    c.alloc("d1", 150 * MIB, "0")
    c.alloc("d2", 90 * MIB, "0")
    c.alloc("d3", 40 * MIB, "0")
    c.alloc("d4", 200 * MIB, "0")
    c.kept.append(pool)
    c.snap()


@case()
def oom_fraction(c: Case) -> None:
    """A memory limit makes the retry ladder run: all cached segments go, then the out-of-memory error."""
    c.start()
    c.fraction(512 * MIB)
    for i in range(8):
        c.alloc(f"a{i}", 50 * MIB, "0" if i % 2 else "s")
    c.alloc("small", 1000)
    c.free("a1", "a2", "a5")
    c.alloc("b0", 120 * MIB)
    c.alloc("b1", 400 * MIB)
    c.free("a0")
    c.alloc("b2", 60 * MIB, "s")
    c.alloc("b3", 70 * MIB, "s")
    c.free("a3", "a4", "a6", "a7", "b0", "small")
    c.alloc("b4", 450 * MIB)
    c.alloc("b5", 200 * MIB)
    c.snap()


@case("max_split_size_mb:21")
def max_split(c: Case) -> None:
    """Blocks of 21 MiB and more are never split; a larger one is reused only within 20 MiB."""
    c.start()
    sizes = (
        20 * MIB,
        21 * MIB - 512,
        21 * MIB,
        21 * MIB + 1,
        30 * MIB,
        41 * MIB,
        42 * MIB,
        60 * MIB,
        90 * MIB,
    )
    for i, n in enumerate(sizes):
        c.alloc(f"a{i}", n)
    c.free(*[f"a{i}" for i in range(len(sizes))])
    for i, n in enumerate(
        (22 * MIB, 25 * MIB, 40 * MIB, 10 * MIB, 15 * MIB, 70 * MIB, 2 * MIB, 21 * MIB, 69 * MIB)
    ):
        c.alloc(f"b{i}", n)
    c.snap()


@case("max_split_size_mb:21")
def max_split_oom(c: Case) -> None:
    """The ladder with a split limit: oversize blocks of the stream are released before everything else."""
    c.start()
    c.fraction(512 * MIB)
    for i, n in enumerate((60, 80, 30, 100, 25, 12, 12, 90)):
        c.alloc(f"a{i}", n * MIB, "s" if i in (2, 7) else "0")
    c.free("a0", "a1", "a2", "a3", "a5")
    c.alloc("b0", 150 * MIB)
    c.alloc("b1", 30 * MIB)
    c.alloc("b2", 130 * MIB)
    c.free("a7", "a4")
    c.alloc("b3", 140 * MIB, "s")
    c.alloc("b4", 300 * MIB, "s")
    c.snap()


@case("garbage_collection_threshold:0.5")
def garbage_collection(c: Case) -> None:
    """Old unsplit blocks are collected once use passes half of the limit."""
    c.start()
    c.fraction(800 * MIB)
    rng = random.Random(5)
    for i in range(120):
        c.alloc(f"a{i}", rng.randrange(11, 90) * MIB, rng.choice("0s"))
        if rng.random() < 0.9 or i > 100:
            for name in sorted(c.tensors)[: rng.randrange(1, 4)]:
                c.free(name)
    c.snap()


@case("garbage_collection_threshold:0.7")
def random_gc(c: Case) -> None:
    c.start()
    c.fraction(1024 * MIB)
    _random_ops(c, 11, 600, ["0", "a"], largest=120 * MIB)
    c.snap()


@case("roundup_power2_divisions:4")
def roundup4(c: Case) -> None:
    c.start()
    _edges(c, 2)
    for i, n in enumerate(
        (1200, 2049, 5000, 700 * KIB, 1500 * KIB, 2 * MIB + 1, 5 * MIB, 13 * MIB, 33 * MIB)
    ):
        c.alloc(f"r{i}", n)
    c.snap()


@case("roundup_power2_divisions:[1:8,4:2,16:4,64:1,>:16]")
def roundup_buckets(c: Case) -> None:
    c.start()
    _edges(c, 3)
    for i, n in enumerate(
        (700 * KIB, 1500 * KIB, 3 * MIB + 1, 5 * MIB, 13 * MIB, 33 * MIB, 70 * MIB, 130 * MIB + 5)
    ):
        c.alloc(f"r{i}", n)
    c.snap()


@case("large_segment_size_mb:40")
def large_segment(c: Case) -> None:
    c.start()
    _edges(c, 4)
    c.snap()


@case()
def empty_cache_pinned(c: Case) -> None:
    """Segments whose neighbour lives stay; whole ones of all streams go."""
    c.start()
    for label in ("0", "a", "b"):
        for i in range(6):
            c.alloc(f"{label}s{i}", 300 * KIB, label)
            c.alloc(f"{label}l{i}", 6 * MIB, label)
    c.free(*[f"{label}{k}{i}" for label in ("0", "a") for k in "sl" for i in (0, 1, 2, 4, 5)])
    c.free(*[f"b{k}{i}" for k in "sl" for i in range(6)])
    c.snap("_before")
    c.empty_cache()
    c.snap()


@case("expandable_segments:True")
def expandable(c: Case) -> None:
    c.start()
    for i, n in enumerate(EDGES):
        c.alloc(f"a{i}", n, "0" if i % 3 else "s")
    c.free(*[f"a{i}" for i in range(0, len(EDGES), 2)])
    for i, n in enumerate(reversed(EDGES)):
        c.alloc(f"b{i}", n, "0" if i % 2 else "s")
    c.snap("_before")
    c.free(*[f"a{i}" for i in range(1, len(EDGES), 2)])
    c.empty_cache()
    c.snap("_emptied")
    for i, n in enumerate((50 * MIB, 3 * MIB, 21 * MIB, 700, 2 * MIB)):
        c.alloc(f"c{i}", n)
    c.free(*[f"b{i}" for i in range(len(EDGES))])
    c.alloc("d", 90 * MIB, "s")
    c.snap()


@case("expandable_segments:True")
def expandable_oom(c: Case) -> None:
    c.start()
    c.fraction(400 * MIB)
    for i in range(6):
        c.alloc(f"a{i}", 50 * MIB, "0" if i % 2 else "s")
    c.free("a1", "a2", "a4")
    c.alloc("b0", 170 * MIB)
    c.alloc("b1", 400 * MIB)
    c.free("b0")
    c.alloc("b2", 120 * MIB, "s")
    c.snap()


def _size(rng: random.Random, largest: int) -> int:
    kind = rng.random()
    if kind < 0.15:
        return min(rng.choice(EDGES), largest)
    if kind < 0.6:
        return int(2 ** rng.uniform(0, 20.2))
    return int(min(2 ** rng.uniform(20, 26.5), largest))


def _random_ops(
    c: Case, seed: int, n: int, streams: list[str], *, largest: int = 64 * MIB, records: bool = False
) -> None:
    rng = random.Random(seed)
    live: list[str] = []
    for i in range(n):
        roll = rng.random()
        if roll < 0.5 or not live:
            if c.alloc(f"t{i}", _size(rng, largest), rng.choice(streams)):
                live.append(f"t{i}")
        elif roll < 0.985:
            for _ in range(rng.choice((1, 1, 1, 2))):
                if not live:
                    break
                name = live.pop(rng.randrange(len(live)))
                if records and rng.random() < 0.2:
                    other = rng.choice(streams)
                    if rng.random() < 0.5:
                        c.busy(other, 200_000)
                    c.record_stream(name, other)
                c.free(name)
        elif roll < 0.995:
            c.empty_cache()
        else:
            half = live[: len(live) // 2]
            del live[: len(half)]
            c.free(*half)


@case()
def random_streams(c: Case) -> None:
    c.start()
    _random_ops(c, 1, 2500, ["0", "a", "b", "c"])
    c.snap()


@case()
def random_records(c: Case) -> None:
    c.start()
    _random_ops(c, 2, 1200, ["0", "a", "b"], records=True)
    c.snap()


@case("expandable_segments:True")
def random_expandable(c: Case) -> None:
    c.start()
    _random_ops(c, 3, 1500, ["0", "a"])
    c.snap()


@case("max_split_size_mb:25")
def random_max_split(c: Case) -> None:
    c.start()
    c.fraction(2048 * MIB)
    _random_ops(c, 4, 1200, ["0", "a"], largest=200 * MIB)
    c.snap()


@case("roundup_power2_divisions:8")
def random_roundup(c: Case) -> None:
    c.start()
    _random_ops(c, 5, 1000, ["0", "a"])
    c.snap()


@case()
def random_oom(c: Case) -> None:
    c.start()
    c.fraction(1024 * MIB)
    _random_ops(c, 6, 1500, ["0", "a", "b"], largest=300 * MIB)
    c.snap()


@case()
def from_middle(c: Case) -> None:
    """Recording starts when memory is already in use: the state at the start is not in the file."""
    _random_ops(c, 7, 600, ["0", "a"])
    c.note("recording_starts")
    c.extra["live_at_start"] = len(c.tensors)
    c.start()
    _random_ops_more(c)
    c.snap()


@case()
def ring_overflow(c: Case) -> None:
    """A ring of 500 entries holds only the newest events."""
    c.start(max_entries=500)
    _random_ops(c, 8, 600, ["0", "a"])
    c.snap()


def _random_ops_more(c: Case) -> None:
    rng = random.Random(70)
    live = sorted(c.tensors)
    for i in range(600):
        if rng.random() < 0.5 and live:
            c.free(live.pop(rng.randrange(len(live))))
        else:
            c.alloc(f"u{i}", _size(rng, 64 * MIB), rng.choice("0a"))
            live.append(f"u{i}")


@case()
def raw_allocations(c: Case) -> None:
    """Tracked blocks without a tensor, by stream object and by handle."""
    c.start("all", stacks="all")
    side = c.stream("s")
    blocks = [
        torch.cuda.caching_allocator_alloc(76 * MIB, 0, side),
        torch.cuda.caching_allocator_alloc(76 * MIB, 0, side.cuda_stream),
        torch.cuda.caching_allocator_alloc(76 * MIB, 0, torch.cuda.default_stream()),
    ]
    torch.cuda.caching_allocator_delete(blocks[1])
    c.note("raw", blocks)
    c.snap()


def _owner(c: Case) -> None:
    """A linear layer with bias on a side stream, then what removes its workspace."""
    c.start("all", stacks="all")
    x = torch.randn(256, 1024, device="cuda", dtype=torch.bfloat16)
    layer = torch.nn.Linear(1024, 1024, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    side = c.stream("s")
    with torch.no_grad(), torch.cuda.stream(side):
        y = layer(x)
        z = x @ layer.weight
    torch.cuda.synchronize()
    del y, z
    c.empty_cache()
    c.snap()
    torch._C._cuda_clearCublasWorkspaces()
    c.empty_cache()
    c.snap("_cleared")
    c.kept += [x, layer]


@case(env={"CUBLASLT_WORKSPACE_SIZE": "77824", "TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0"})
def owner_lt_76(c: Case) -> None:
    _owner(c)


@case(env={"CUBLASLT_WORKSPACE_SIZE": "40960", "TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0"})
def owner_lt_40(c: Case) -> None:
    _owner(c)


@case(env={"CUBLAS_WORKSPACE_CONFIG": ":77824:1"})
def owner_blas_76(c: Case) -> None:
    _owner(c)


@case(env={"CUBLAS_WORKSPACE_CONFIG": ":40960:1"})
def owner_blas_40(c: Case) -> None:
    _owner(c)


def run_case(name: str, out: Path) -> None:
    """Run one case in this process and write its result file."""
    function, setup = CASES[name]
    result: dict[str, Any] = {**setup, "doc": " ".join((function.__doc__ or "").split()), "error": None}
    started = time.monotonic()
    c = Case(name, out)
    try:
        os.environ.update(setup["env"])
        if setup["conf"]:
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = setup["conf"]
            setter = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
            (setter or torch.cuda.memory._set_allocator_settings)(setup["conf"])
        function(c)
    except BaseException:
        result["error"] = traceback.format_exc()[-3000:]
    try:
        result.update(c.finish())
    except BaseException:
        result["error"] = (result["error"] or "") + traceback.format_exc()[-2000:]
    result["seconds"] = round(time.monotonic() - started, 2)
    (out / f"{name}.result.json").write_text(json.dumps(result))


def main() -> int:
    """Run the cases given after OUT (default: all), a few at a time; return how many failed."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    names = sys.argv[2:] or list(CASES)
    waiting, running, truth = list(names), {}, {}
    started = time.monotonic()
    while waiting or running:
        while waiting and len(running) < PARALLEL:
            name = waiting.pop(0)
            pid = os.fork()
            if pid == 0:
                try:
                    run_case(name, out)
                finally:
                    os._exit(0)
            running[pid] = (name, time.monotonic())
        for pid, (name, began) in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done and time.monotonic() - began < TIMEOUT_S:
                continue
            if not done:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            del running[pid]
            result = out / f"{name}.result.json"
            if result.exists():
                truth[name] = json.loads(result.read_text())
                result.unlink()
            else:
                truth[name] = {
                    **CASES[name][1],
                    "error": f"process ended with status {status}" if done else "timeout",
                }
        time.sleep(0.02)
    document = {"torch": torch.__version__, "cuda": torch.version.cuda, "cases": {n: truth[n] for n in names}}
    # asked only now: the parent must not touch the device before it forks
    document["device"] = torch.cuda.get_device_name(0)
    document["total_memory"] = torch.cuda.get_device_properties(0).total_memory
    (out / "truth.json").write_text(json.dumps(document, indent=1))
    failed = {n: t["error"] for n, t in truth.items() if t.get("error")}
    size = sum(f.stat().st_size for f in out.iterdir())
    print(
        f"{len(names) - len(failed)} of {len(names)} cases in {time.monotonic() - started:.1f} s, {size / 1e6:.2f} MB"
    )
    for name, error in failed.items():
        print(f"FAILED {name}: {error.strip().splitlines()[-1]}")
    return len(failed)


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
