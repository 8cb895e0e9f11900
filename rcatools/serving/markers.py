"""One marker file per vLLM process: what the plugin saw and patched there. Written by the plugin, checked by the runner.

vLLM only logs a plugin that fails to load and goes on without it, so a result counts only with every worker's marker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rcatools.serving.variants import NOTHING_TO_PATCH

MAX_MARKER_BYTES = 2**20
MAX_MARKERS = 4096


@dataclass
class Marker:
    """The state of the plugin in one process.

    Attributes:
        arm, run: what the environment asked for.
        pid: the process.
        vllm, platform: version and platform name, "" until known.
        rank, world_size: of the worker in this process, None elsewhere.
        model_runner: "V1" or "V2" once it was made.
        patched: what was replaced, as "module.name" texts.
        effect: in words, what the arm could do here.
        profile_calls, captures: how often the profile was called, and graph_capture inside it.
        estimate_bytes: what the profile returned last.
        graph_bytes: what the real capture returned.
        kv_blocks: blocks of the KV cache.
        snapshots: allocator snapshots that were written.
        error: why the plugin refused.
    """

    arm: str
    run: str = ""
    pid: int = field(default_factory=os.getpid)
    vllm: str = ""
    platform: str = ""
    rank: int | None = None
    world_size: int | None = None
    model_runner: str = ""
    patched: list[str] = field(default_factory=list)
    effect: str = ""
    profile_calls: int = 0
    captures: int = 0
    estimate_bytes: int | None = None
    graph_bytes: int | None = None
    kv_blocks: int | None = None
    snapshots: list[str] = field(default_factory=list)
    error: str = ""

    def write(self, folder: str) -> None:
        """Write the marker whole; a folder that cannot be written stops the process, for nothing would count."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{self.pid}.json"
        temporary = place / f".{self.pid}.tmp"
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")
        temporary.replace(file)


def read_markers(folder: Path) -> list[Marker]:
    """All readable markers of a run, by process id; files that are none are passed over."""
    found = []
    for file in sorted(folder.glob("*.json"))[:MAX_MARKERS] if folder.is_dir() else ():
        try:
            if file.stat().st_size > MAX_MARKER_BYTES:
                continue
            document = json.loads(file.read_text(encoding="utf-8"))
            found.append(Marker(**document))
        except (OSError, ValueError, TypeError):
            continue
    return sorted(found, key=lambda marker: marker.pid)


def problem(markers: Iterable[Marker], *, arm: str, run: str) -> str:
    """Why these markers do not prove that the arm was in force in every worker, "" where they do.

    On a platform without anything to patch (the CPU) every arm is plain vLLM; the markers say so and are accepted.
    """
    own = [marker for marker in markers if marker.run == run]
    if not own:
        return (
            "no marker was written: the plugin was not loaded; install this package into vLLM's environment "
            "(pip install --no-deps) and let VLLM_PLUGINS allow 'rcatools'"
        )
    for marker in own:
        if marker.error:
            return f"the plugin refused: {marker.error}"
        if marker.arm != arm:
            return f"process {marker.pid} ran the arm {marker.arm!r}, not {arm!r}"
    workers = [marker for marker in own if marker.rank is not None]
    if not workers:
        return "no worker wrote a marker: the plugin reached the front end only"
    ranks = {marker.rank for marker in workers}
    missing = sorted(set(range(max(marker.world_size or 1 for marker in workers))) - ranks)
    if missing:
        return f"no marker of worker rank {', '.join(map(str, missing))}"
    return next((text for worker in workers if (text := _worker_problem(worker))), "")


def _worker_problem(worker: Marker) -> str:
    if worker.effect.startswith(NOTHING_TO_PATCH):
        return (
            ""
            if not worker.patched
            else f"worker rank {worker.rank} says both that it patched and that it could not"
        )
    if not worker.model_runner:
        return f"worker rank {worker.rank} made a model runner that the plugin does not know"
    if worker.arm == "stock":
        return ""
    if not worker.profile_calls:
        return (
            f"worker rank {worker.rank} never profiled its graphs, so the arm {worker.arm!r} changed nothing: run "
            "with graphs, without --kv-cache-memory-bytes and with VLLM_ENABLE_STARTUP_PLAN=0"
        )
    if worker.arm != "off" and not worker.captures:
        return f"worker rank {worker.rank} had no graph to profile, so the arm {worker.arm!r} changed nothing"
    return ""


def marker_facts(markers: Iterable[Marker], *, run: str) -> dict[str, Any]:
    """Facts of a run from its workers' markers, in the names of ``logs.LogFacts.facts``."""
    workers = [marker for marker in markers if marker.run == run and marker.rank is not None]
    if not workers:
        return {}
    estimates = [marker.estimate_bytes for marker in workers if marker.estimate_bytes is not None]
    graphs = [marker.graph_bytes for marker in workers if marker.graph_bytes is not None]
    blocks = [marker.kv_blocks for marker in workers if marker.kv_blocks is not None]
    return {
        "vllm_version": workers[0].vllm or None,
        "platform": workers[0].platform or None,
        "model_runner": workers[0].model_runner or None,
        "workers": len(workers),
        "arm_effect": workers[0].effect or None,
        "patched": ", ".join(sorted({name for marker in workers for name in marker.patched})) or None,
        "estimate_bytes": _middle(estimates),
        "graph_bytes": _middle(graphs),
        "kv_blocks": min(blocks, default=None),
        "memory_exact": bool(estimates and graphs),
    }


def _middle(values: list[int]) -> int | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None
