"""Synthetic recordings of worlds in which the cause is known, with the noise of real ones.

The numbers are made up; what they imitate: blocks drift together, runs of one arm differ by a third of a percent with
heavy tails and now and then an outlier, samples inside a run are skewed, isolated kernels are noisier than the step.
``world_parts`` gives the results of single runs; ``in_memory`` makes a Recording of them without files and
``write`` a folder through the project's own writer, with traces.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rcatools.diagnosis.steps import StepFigures
from rcatools.files import write_json
from rcatools.recording import Manifest, Recording, open_recording
from rcatools.recording.writer import finish

WORLDS = ("kv_shrink", "placement", "cross_stream_wait", "queue_cliff", "spawn_lottery", "nothing")

KERNELS: dict[str, tuple[str, int, float]] = {
    # name: bound, launches per step, microseconds alone
    "rms_norm": ("latency", 40, 2.1),
    "qkv_linear": ("bandwidth", 40, 8.5),
    "cache_write": ("latency", 40, 1.9),
    "kv_gather": ("bandwidth", 40, 14.0),
    "kv_merge": ("latency", 40, 2.6),
    "out_linear": ("bandwidth", 40, 6.0),
    "add_allreduce": ("latency", 40, 2.2),
    "expert_gemm": ("compute", 10, 28.0),
}
GAP_US = 0.8
LAUNCHES = sum(count for _, count, _ in KERNELS.values())
STEP_US = sum(count * us for _, count, us in KERNELS.values()) + GAP_US * LAUNCHES

STRANDED = (
    "side",
    "side_gc",
    "prewarm",
    "side_scratch",
    "fixed_kv_side",
    "side_eager",
    "one_stream_side",
    "warm_capture_side",
)
PADS = ("pad_untracked", "pad_side", "pad_default", "dose_512", "dose_4096")
SIDE_PROFILES = (
    "side",
    "side_gc",
    "prewarm",
    "reset_ws",
    "clear_blas",
    "kv_first",
    "fixed_kv_side",
    "side_scratch",
    "side_ws_32",
    "side_ws_0",
    "one_stream_side",
    "side_eager",
    "warm_capture_side",
)
FORWARDS = (*SIDE_PROFILES, "warm_capture")
STREAMS = {
    "touch_stream": 1,
    "stream_late": 1,
    "blas_stream": 1,
    "streams_2": 2,
    "cross_wait": 2,
    "streams_4": 4,
    "streams_8": 8,
    "streams_16": 16,
}
TOUCHED = ("touch_stream", "streams_2", "streams_4", "streams_8", "streams_16", "stream_late")
ARMS = tuple(
    dict.fromkeys(
        (
            "off",
            "off_again",
            *SIDE_PROFILES,
            "current",
            *PADS,
            "dose_16",
            "fixed_kv_off",
            *TOUCHED,
            "stream_unused",
            "blas_stream",
            "warm_capture",
            "one_stream",
            "off_eager",
            "cross_wait",
            "plant_additive",
            "plant_multiplicative",
        )
    )
)
BLOCK_BYTES = 79_691_776
KV_BYTES = 74_000_000_000


@dataclass(frozen=True)
class Truth:
    """What a world does to each arm.

    Attributes:
        share: arm -> share of the effect it carries.
        effect: the effect as a log-ratio.
        kernels: how the isolated kernels of a slow arm grow: "none", "fixed" or "bandwidth".
        trace: where a slow arm's time sits in its trace: "gaps", "kernels" or "launches".
        smaller_cache: arms whose KV cache is smaller.
        moved: arms whose KV cache lies elsewhere.
        lottery: chance of the slow state in each process, 0 for none.
    """

    share: dict[str, float]
    effect: float
    kernels: str = "none"
    trace: str = "gaps"
    smaller_cache: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    lottery: float = 0.0


@dataclass(frozen=True)
class Noise:
    """Standard deviations on the log scale, and the chance of an outlying run."""

    block: float = 0.004
    run: float = 0.003
    sample: float = 0.002
    kernel: float = 0.006
    outliers: float = 0.01
    outlier_size: float = 0.02


@dataclass(frozen=True)
class Synthetic:
    """A world's runs: log times and facts per arm (rows) and block (columns), kernels, steps."""

    truth: Truth
    arms: tuple[str, ...]
    samples: np.ndarray  # arms x blocks x samples, microseconds
    boundary: np.ndarray  # arms x blocks, microseconds per kernel boundary
    kernels: dict[str, np.ndarray]  # arm -> blocks x kernels x samples
    facts: dict[str, dict[str, list[Any]]]
    order: np.ndarray
    steps: dict[str, StepFigures] = field(default_factory=dict)


def truth_of(world: str, rng: np.random.Generator) -> Truth:
    """The world's effects, its size drawn between 3 and 20 percent."""
    effect = float(np.log1p(rng.uniform(0.03, 0.20)))
    share = dict.fromkeys(ARMS, 0.0)
    if world == "kv_shrink":
        slow = [name for name in SIDE_PROFILES if name not in ("kv_first", "fixed_kv_side")] + ["current"]
        share |= dict.fromkeys(slow, 1.0)
        return Truth(share, effect, "none", "launches", smaller_cache=(*slow, "fixed_kv_side", "kv_first"))
    if world == "placement":
        slow = (*STRANDED, "pad_untracked", "pad_side", "pad_default")
        share |= dict.fromkeys(slow, 1.0) | {
            "dose_16": 0.3,
            "dose_512": 1.2,
            "dose_4096": 1.5,
            "side_ws_32": 0.6,
        }
        return Truth(share, effect, "bandwidth", "kernels", moved=slow)
    if world == "cross_stream_wait":
        slow = [*SIDE_PROFILES, "cross_wait"]
        mapping = dict(zip(TOUCHED, rng.integers(0, 2, len(TOUCHED)).astype(float), strict=True))
        share |= dict.fromkeys(slow, 1.0) | mapping | {"streams_2": 0.0}
        return Truth(share, effect, "fixed", "gaps")
    if world == "queue_cliff":
        limit = int(
            rng.choice([1, 2, 4, 8, 16])
        )  # the count from which on streams cost; a forward counts for all
        slow = [*FORWARDS, *(name for name, count in STREAMS.items() if count >= limit)]
        share |= dict.fromkeys(slow, 1.0) | {"side_eager": 0.0}
        return Truth(share, effect, "fixed", "gaps")
    if world == "spawn_lottery":
        return Truth(share, effect, "none", "gaps", lottery=float(rng.uniform(0.3, 0.7)))
    return Truth(share, effect)


def make(
    world: str,
    seed: int,
    *,
    blocks: int = 14,
    samples: int = 3,
    noise: Noise | None = None,
    truth: Truth | None = None,
    arms: tuple[str, ...] = ARMS,
) -> Synthetic:
    """Draw one recording of a world."""
    rng = np.random.default_rng([WORLDS.index(world), seed])
    noise = noise or Noise()
    drawn = truth_of(world, rng)
    truth = truth or drawn
    n = len(arms)
    drift = np.cumsum(rng.normal(0, noise.block / 3, blocks)) + rng.normal(0, noise.block, blocks)
    order = np.argsort(rng.random((n, blocks)), axis=0)
    run = rng.standard_t(5, (n, blocks)) * noise.run / np.sqrt(5 / 3)
    run += (rng.random((n, blocks)) < noise.outliers) * noise.outlier_size
    share = np.array([truth.share.get(name, 0.0) for name in arms])
    level = share[:, None] * truth.effect + drift + run + (order - n / 2) * 1e-5
    level += (rng.random((n, blocks)) < truth.lottery) * truth.effect
    planted = {"plant_additive": np.log1p(0.11), "plant_multiplicative": np.log1p(0.06)}
    for name, size in planted.items():
        if name in arms:
            level[arms.index(name)] += size
    within = rng.gamma(2.0, noise.sample, (n, blocks, samples))
    times = STEP_US * np.exp(level[:, :, None] + within)
    dearer = np.expm1(truth.effect) * STEP_US / LAUNCHES if truth.trace == "gaps" else 0.0
    boundary = (0.95 + dearer * share[:, None]) * np.exp(rng.normal(0, 0.005, (n, blocks)))
    return Synthetic(
        truth=truth,
        arms=arms,
        samples=times,
        boundary=boundary,
        kernels=_kernels(rng, truth, noise, blocks),
        facts={name: _facts(rng, truth, name, blocks) for name in arms},
        order=order,
        steps={
            name: _steps(rng, truth, name) for name in (*arms[:3], "plant_additive", "plant_multiplicative")
        },
    )


def _kernels(rng: np.random.Generator, truth: Truth, noise: Noise, blocks: int) -> dict[str, np.ndarray]:
    base = np.array([us for _, _, us in KERNELS.values()])
    bandwidth = np.array([bound == "bandwidth" for bound, _, _ in KERNELS.values()])
    table = {}
    for name in ("off", "off_again", "side"):
        times = base.copy()
        if name == "side" and truth.kernels == "fixed":
            times = times + STEP_US * np.expm1(truth.effect) / LAUNCHES
        if name == "side" and truth.kernels == "bandwidth":
            weight = sum(c * us for b, c, us in KERNELS.values() if b == "bandwidth")
            times = times * (1 + bandwidth * np.expm1(truth.effect) * STEP_US / weight)
        spread = rng.normal(0, noise.kernel, (blocks, base.size))
        table[name] = (times * np.exp(spread))[:, :, None]
    return table


def _facts(rng: np.random.Generator, truth: Truth, arm: str, blocks: int) -> dict[str, list[Any]]:
    live = 0
    if arm in SIDE_PROFILES and arm not in ("clear_blas", "reset_ws"):
        live = {"side_ws_32": 2**25, "side_ws_0": 0}.get(arm, BLOCK_BYTES)
    smaller = 3_000_000_000 if arm in truth.smaller_cache and arm not in ("fixed_kv_side", "kv_first") else 0
    address = 0x7F00_0000_0000 + (BLOCK_BYTES if arm in truth.moved else 0)
    return {
        "kv_bytes": [KV_BYTES - smaller] * blocks,
        "kv_address": [address + int(k) * 2**30 for k in rng.integers(0, 4, blocks)],
        "kv_offset": [0] * blocks,
        "side_live_bytes": [live] * blocks,
        "reserved_bytes": [KV_BYTES + live + 10**9] * blocks,
        "output_sha256": ["a" * 64 if "plant" not in arm else "b" * 64] * blocks,
        "output_rel_error": [0.01] * blocks,
    }


def _steps(rng: np.random.Generator, truth: Truth, arm: str, count: int = 5) -> StepFigures:
    """What five replays under the profiler look like; the profiled process is one process."""
    added = STEP_US * np.expm1(truth.effect * truth.share.get(arm, 0.0))
    gaps, names = np.full(count, GAP_US * LAUNCHES), {k: (c, c * us) for k, (_, c, us) in KERNELS.items()}
    if arm == "plant_additive":
        names["empty"] = (120.0, 120.0 * 1.3)
        gaps = gaps + 120 * GAP_US
    elif arm == "plant_multiplicative":
        names["kv_gather"] = (40.0, 40 * 14.0 + STEP_US * 0.06)
    elif truth.trace == "gaps":
        gaps = gaps + added
    elif truth.trace == "launches" and added:
        names["copy_blocks"] = (20.0, added)
    elif truth.trace == "kernels":
        weight = sum(c * us for b, c, us in KERNELS.values() if b == "bandwidth")
        for name, (bound, launches, us) in KERNELS.items():
            if bound == "bandwidth":
                names[name] = (float(launches), launches * us * (1 + added / weight))
    gaps = gaps * (1 + rng.normal(0, 0.01, count))
    kernels = sum(us for _, us in names.values()) * (1 + rng.normal(0, 0.002, count))
    launches = sum(c for c, _ in names.values())
    return StepFigures(kernels, gaps, launches, launches - 1, float(gaps.mean() / launches), names)


def manifest(data: Synthetic, name: str) -> dict[str, Any]:
    """The manifest of a synthetic recording as a JSON document."""
    return {
        "investigation": "capture-stream",
        "created_utc": "2026-12-01T00:00:00Z",
        "command": f"synthetic world {name}",
        "device": {
            "backend": "cuda",
            "name": "Synthetic GPU",
            "arch": "sm_90",
            "memory_bytes": 150_000_000_000,
        },
        "environment": {
            "packages": {"torch": "2.11.0"},
            "settings": {},
            "code": {"commit": "0" * 40, "dirty": False},
        },
        "workload": {
            "name": "decode",
            "parameters": {},
            "tokens_per_step": 1,
            "kernels": [
                {"name": k, "bound": b, "per_step": c, "bytes": 1, "flops": 1}
                for k, (b, c, _) in KERNELS.items()
            ],
        },
        "design": {
            "baseline": "off",
            "metric": "step_us",
            "margin": 0.01,
            "confidence": 0.95,
            "seed": 1,
            "blocks": data.samples.shape[1],
            "isolation": "fork",
            "arms": [{"name": arm, "role": "probe", "summary": arm} for arm in data.arms],
        },
    }


def in_memory(data: Synthetic, name: str) -> tuple[Recording, dict[tuple[str, str], StepFigures]]:
    """A Recording without files, and its traces already reduced to steps."""
    n, blocks, count = data.samples.shape
    arm, block, sample = (
        a.ravel() for a in np.meshgrid(range(n), range(blocks), range(count), indexing="ij")
    )
    labels = np.array(data.arms, dtype=object)
    run_labels = np.array([[f"{b}-{a}" for b in range(blocks)] for a in data.arms], dtype=object)
    samples = pd.DataFrame(
        {
            "arm": labels[arm],
            "block": block,
            "order": data.order[arm, block],
            "run": run_labels[arm, block],
            "metric": "step_us",
            "sample": sample,
            "value": data.samples.ravel(),
        }
    )
    price = samples[samples["sample"] == 0].assign(metric="boundary_us", value=data.boundary.ravel())
    samples = pd.concat([samples, price], ignore_index=True)
    facts = {
        key: np.concatenate([np.asarray(data.facts[a][key]) for a in data.arms])
        for key in data.facts[data.arms[0]]
    }
    runs = pd.DataFrame(
        {
            "run": run_labels.ravel(),
            "arm": np.repeat(labels, blocks),
            "block": np.tile(np.arange(blocks), n),
            "order": data.order.ravel(),
            "isolation": "fork",
            "outcome": "ok",
            "reason": None,
            "started_utc": "",
            "wall_s": 1.0,
            **facts,
        }
    )
    names = np.array(list(KERNELS), dtype=object)
    kernels = pd.concat(
        [
            pd.DataFrame(
                {
                    "arm": a,
                    "block": np.repeat(np.arange(table.shape[0]), table.shape[1]),
                    "run": "",
                    "kernel": np.tile(names, table.shape[0]),
                    "sample": 0,
                    "us": table[:, :, 0].ravel(),
                }
            )
            for a, table in data.kernels.items()
            if a in data.arms
        ]
    )
    document = manifest(data, name)
    recording = Recording(
        path=Path(name),
        manifest=Manifest(state="complete", **document),
        runs=runs,
        samples=samples,
        kernels=kernels,
        snapshots={},
        traces={},
        warnings=(),
    )
    return recording, {(name, a): figures for a, figures in data.steps.items() if a in data.arms}


def write(data: Synthetic, folder: Path) -> Recording:
    """The same recording as a folder, made through the project's writer and read back."""
    blocks = data.samples.shape[1]
    for i, arm in enumerate(data.arms):
        for block in range(blocks):
            run = f"{block:03d}-{data.order[i, block]:02d}-{arm}"
            part = {
                "run": run,
                "arm": arm,
                "block": block,
                "order": int(data.order[i, block]),
                "isolation": "fork",
                "outcome": "ok",
                "reason": None,
                "started_utc": "2026-12-01T00:00:00Z",
                "wall_s": 1.0,
                "samples": {
                    "step_us": data.samples[i, block].tolist(),
                    "boundary_us": [float(data.boundary[i, block])],
                },
                "kernels": {
                    kernel: data.kernels[arm][block, j].tolist()
                    for j, kernel in enumerate(KERNELS)
                    if arm in data.kernels
                },
                "facts": {key: values[block] for key, values in data.facts[arm].items()},
            }
            write_json(folder / "parts" / f"{run}.json", part)
    (folder / "traces").mkdir(parents=True, exist_ok=True)
    for arm, figures in data.steps.items():
        if arm in data.arms:
            (folder / "traces" / f"{arm}.json.gz").write_bytes(gzip.compress(trace_json(figures), 1))
    finish(folder, manifest(data, folder.name), state="complete")
    return open_recording(folder)


def trace_json(figures: StepFigures) -> bytes:
    """A kineto document with one graph launch per step and the figures' kernels and gaps."""
    events: list[dict[str, Any]] = []
    time = 1000.0
    for step in range(figures.steps):
        correlation = step + 1
        events.append(
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaGraphLaunch",
                "pid": 1,
                "tid": 1,
                "ts": time - 50,
                "dur": 20.0,
                "args": {"correlation": correlation},
            }
        )
        scale = figures.kernel_us[step] / sum(us for _, us in figures.by_name.values())
        gap = figures.gap_us[step] / figures.boundaries
        for name, (count, us) in figures.by_name.items():
            for _ in range(round(count)):
                duration = us / count * scale
                events.append(
                    {
                        "ph": "X",
                        "cat": "kernel",
                        "name": name,
                        "pid": 0,
                        "tid": 7,
                        "ts": round(time, 3),
                        "dur": round(duration, 3),
                        "args": {"device": 0, "stream": 7, "correlation": correlation},
                    }
                )
                time += duration + gap
        time += 200.0
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


def renamed(recording: Recording, names: dict[str, str]) -> Recording:
    """The recording with other arm names and no roles."""
    manifest = recording.manifest
    arms = [{"name": names.get(arm["name"], arm["name"]), "role": "probe"} for arm in manifest.design["arms"]]

    def swap(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(arm=frame["arm"].map(lambda name: names.get(name, name)))

    return replace(
        recording,
        manifest=replace(manifest, design={**manifest.design, "arms": arms}),
        runs=swap(recording.runs),
        samples=swap(recording.samples),
        kernels=swap(recording.kernels),
        traces={names.get(arm, arm): path for arm, path in recording.traces.items()},
    )
