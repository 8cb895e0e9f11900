"""What a recording folder holds.

    manifest.json        what was planned, on which machine, with which code; written before the first run
    runs.parquet         one row per run (RUN_COLUMNS, then facts the workload adds)
    samples.parquet      one row per timed repetition (SAMPLE_COLUMNS)
    kernels.parquet      one row per timed repetition of a single kernel (KERNEL_COLUMNS); may be absent
    snapshots/<arm>.pickle.gz   torch allocator snapshot of one inspection run; may be absent
    traces/<arm>.json.gz        profiler trace of one inspection run; may be absent
    parts/<run>.json     results of single runs while a recording is being made
    logs/<run>.log       what a run printed

Times are in microseconds, sizes in bytes. A run that failed has a row in runs.parquet with its outcome
and no rows in samples.parquet; a run with
outcome "mismatch" (output outside its tolerance) keeps its samples under "<metric>_mismatch".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SCHEMA = "rcatools-recording"
VERSION = 1

RUN_COLUMNS = (
    "run",  # unique id, "<block>-<order>-<arm>"
    "arm",
    "block",  # int; inspection runs (snapshot and trace, never timed) have block -1
    "order",  # position inside the block
    "isolation",  # "fork" or "spawn"
    "outcome",  # "ok" or one of FAILED_OUTCOMES
    "reason",  # one line when the outcome is not "ok"
    "started_utc",
    "wall_s",
)
SAMPLE_COLUMNS = ("arm", "block", "order", "run", "metric", "sample", "value")
KERNEL_COLUMNS = ("arm", "block", "run", "kernel", "sample", "us")
FAILED_OUTCOMES = ("error", "out_of_memory", "device_lost", "capture_failed", "hung", "killed", "mismatch")
QUIET = ("none", "not readable")  # values of "throttle" that name no reason for reduced clocks
STATES = ("running", "stopped", "complete")

# Facts about a run that the readers know by name; all may be missing (None).
RUN_FACTS = {
    "kv_bytes": "size of the KV cache",
    "kv_blocks": "number of KV pages",
    "kv_address": "device address of the KV cache",
    "kv_segment_address": "address of the allocator segment that holds it",
    "kv_offset": "offset of the KV cache inside its segment",
    "estimate_bytes": "graph memory estimated by the throwaway capture",
    "reserved_bytes": "allocator bytes reserved when decode starts",
    "allocated_bytes": "allocator bytes allocated when decode starts",
    "stranded_bytes": "inactive bytes in segments pinned by a live block when decode starts",
    "side_live_bytes": "live bytes keyed to the profiling stream when decode starts",
    "streams_used": "streams on which this process ran at least one kernel",
    "output_sha256": "hash of the decode output",
    "output_rel_error": "largest relative error of the output against float64",
    "output_tolerance": "largest relative error that the number format explains",
    "start_s": "host seconds of the start-up: weights, compiling kernels, profile, KV cache, capture",
    "warmup_s": "host seconds of the warm-up after it",
    "timing_s": "host seconds of the timed steps and of the boundary price",
    "check_s": "host seconds of the comparison with float64",
    "kernels_s": "host seconds of timing the kernels alone",
    "warmup_steps": "replays until the trend test called the series flat",
    "warmup_flat": "whether it did before the limit",
    "clock": "what timed the run: device_events, thread_cpu (CPU time of its one thread) or wall",
    "flush_bytes": "bytes written before each isolated kernel launch in cold mode, None in hot mode",
    "env_padding": "bytes of environment added to a spawned run, varied so that layout is no constant",
    "sm_clock_mhz": "SM or GFX clock, median over the run",
    "memory_clock_mhz": "memory clock",
    "temperature_c": "device temperature",
    "power_w": "device power",
    "throttle": "reasons for reduced clocks, or 'none', or 'not readable'",
    "other_processes": "other processes on the device",
    "load_1m": "load average of the host",
    "ranks": "processes of the run; absent where there was one",
    "rank_spread": "largest distance between the ranks' median step times, over the smallest",
    "ranks_equal": "whether all ranks computed the same output bit for bit",
}


@dataclass(frozen=True)
class Manifest:
    """The manifest as read; every mapping is plain JSON.

    Attributes:
        investigation: slug, such as "capture-stream".
        state: one of STATES.
        device: backend ("cuda", "rocm" or "cpu"), name, arch, memory_bytes, driver, runtime, uuid.
        environment: versions, git commit and dirty-diff hash, masks.
        workload: name, parameters, kernels (name, bound, per_step, bytes, flops), tokens_per_step.
        design: baseline, margin, confidence, seed, blocks, isolation, looks, arms, ranks, sequential (None or
            the planned looks).
        ceilings: measured rates of the device (bytes or FLOPs per second), or empty.
        counts: planned, ok, failed, throttled, shared_device (runs); blocks_begun, blocks_whole, blocks_good.
        extra: whatever else the file held, such as "stopped_by" and the "looks" taken.
    """

    investigation: str
    state: str
    created_utc: str
    command: str
    device: dict[str, Any]
    environment: dict[str, Any]
    workload: dict[str, Any]
    design: dict[str, Any]
    ceilings: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    finished_utc: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def baseline(self) -> str:
        """Name of the baseline arm."""
        return str(self.design["baseline"])

    @property
    def margin(self) -> float:
        """Declared equivalence margin as a ratio minus one."""
        return float(self.design["margin"])

    @property
    def arm_names(self) -> tuple[str, ...]:
        """Declared arms in their declared order."""
        return tuple(str(arm["name"]) for arm in self.design["arms"])

    def arm(self, name: str) -> dict[str, Any]:
        """The declaration of one arm; KeyError where it was not declared."""
        for arm in self.design["arms"]:
            if arm["name"] == name:
                return dict(arm)
        raise KeyError(name)
