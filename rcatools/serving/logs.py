"""What a vLLM server log says about memory: estimate, actual, KV cache, graphs, and whether profiling ran at all.

Sizes are bytes. The log rounds them to 0.01 GiB, so small differences cannot be read from it.
Every worker of a server logs its own numbers; they are kept apart by the process name that vLLM puts before a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rcatools.errors import UnsafeInputError

MAX_LOG_BYTES = 512 * 2**20
MAX_LINE = 20_000
GIB = 2**30
_NUMBER = r"(-?[0-9][0-9,]*(?:\.[0-9]+)?)"
_WORKER = re.compile(r"\(([A-Za-z][\w-]*) pid=(\d+)\)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_START = re.compile(r"Initializing a V1 LLM engine \(v([^)\s]+)\)")
_PLATFORM = re.compile(r"Automatically detected platform (\w+)")
_PROFILED = re.compile(r"Profiling CUDA graph memory: (.+)")
_GROUP = re.compile(r"([A-Z_]+)=(\d+) \(largest=(\d+)\)")
_ESTIMATE = re.compile(rf"Estimated CUDA graph memory: {_NUMBER} GiB total")
_KV = re.compile(rf"Available KV cache memory: {_NUMBER} GiB")
_KV_TOKENS = re.compile(rf"\bKV cache size: {_NUMBER} tokens")
_OVERRIDE = re.compile(rf"Overriding num_gpu_blocks={_NUMBER} with num_gpu_blocks_override={_NUMBER}")
_BLOCKS = re.compile(rf"# (?:GPU|CUDA|rocm|cpu) blocks: {_NUMBER}", re.I)
_APPLIED = re.compile(
    rf"CUDA graph memory profiling is (enabled|disabled).*?--gpu-memory-utilization(?:=| from ){_NUMBER}"
)
_EQUIVALENT = re.compile(rf"is equivalent to --gpu-memory-utilization={_NUMBER}")
_CAPTURE = re.compile(rf"Graph capturing finished in {_NUMBER} secs, took {_NUMBER} GiB")
_POOL = re.compile(
    rf"CUDA graph pool memory: {_NUMBER} GiB \(actual\), {_NUMBER} GiB \(estimated\), difference: {_NUMBER} GiB"
)
_PLAN = re.compile(r"Applying persisted startup plan \(fingerprint ([^)\s]+)\)")
_EAGER = re.compile(r"Cudagraph is disabled under eager mode|[Ee]nforce eager set")
_OOM = re.compile(r"out of memory", re.I)
_HARMLESS = re.compile(r"\b(?:WARNING|INFO|DEBUG)\b")
_ERROR = re.compile(r"(?:^|\s)([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)): (.+)")
_COUNTED = re.compile(r"\d+ validation errors? for \S+$")
_PREFIX = re.compile(r"^\(.*?pid=\d+\).*?\]\s*")
_OUTER = ("Engine core initialization failed", "Worker failed with error", "Engine process failed to start")


@dataclass(frozen=True)
class LogFacts:
    """What one log says, from its last server start on.

    Attributes:
        version, platform: vLLM version and detected platform, "" where not told.
        starts: server starts in the log.
        profiled: graphs that the profile meant, by mode: (count, largest size).
        estimate_bytes: estimate of the graphs' memory, by worker.
        estimate_applied: whether the estimate was taken from the KV cache, None where not told.
        utilization, equivalent_utilization: memory fraction, and the one without the estimate.
        kv_bytes: memory left for the KV cache, by worker.
        kv_tokens: tokens that fit into it, by process.
        kv_blocks: number of blocks, None where the log does not tell it.
        capture_s, actual_bytes: time and memory of the real capture, by worker.
        profiling_skipped: a saved start-up plan replaced all memory profiling.
        eager: no graphs at all.
        oom: the first out-of-memory line, "" without one.
        error: the error that the others follow from, "" without one.
        notes: what a reader must know.
    """

    version: str = ""
    platform: str = ""
    starts: int = 0
    profiled: dict[str, tuple[int, int]] = field(default_factory=dict)
    estimate_bytes: dict[str, int] = field(default_factory=dict)
    estimate_applied: bool | None = None
    utilization: float | None = None
    equivalent_utilization: float | None = None
    kv_bytes: dict[str, int] = field(default_factory=dict)
    kv_tokens: dict[str, int] = field(default_factory=dict)
    kv_blocks: int | None = None
    capture_s: dict[str, float] = field(default_factory=dict)
    actual_bytes: dict[str, int] = field(default_factory=dict)
    profiling_skipped: bool = False
    eager: bool = False
    oom: str = ""
    error: str = ""
    notes: tuple[str, ...] = ()

    def facts(self) -> dict[str, int | float | bool | str | None]:
        """The log as facts of one run; several workers by the one that decides (least KV memory, median else)."""
        return {
            "vllm_version": self.version or None,
            "platform": self.platform or None,
            "estimate_bytes": _middle(self.estimate_bytes),
            "estimate_applied": self.estimate_applied,
            "graph_bytes": _middle(self.actual_bytes),
            "kv_bytes": min(self.kv_bytes.values(), default=None),
            "kv_tokens": min(self.kv_tokens.values(), default=None),
            "kv_blocks": self.kv_blocks,
            "capture_s": max(self.capture_s.values(), default=None),
            "profiling_skipped": self.profiling_skipped,
            "eager": self.eager,
        }


def read_log(path: Path) -> LogFacts:
    """The facts in a log file.

    Raises:
        UnsafeInputError: the file is too large.
    """
    if path.stat().st_size > MAX_LOG_BYTES:
        raise UnsafeInputError(
            f"{path.name} is larger than {MAX_LOG_BYTES} bytes: cut it to the server's start"
        )
    with path.open(encoding="utf-8", errors="replace") as stream:
        return parse_log(stream)


def parse_log(lines: Iterable[str]) -> LogFacts:
    """The facts in the lines of a log; a new server start replaces what the earlier ones said."""
    state = _State()
    for raw in lines:
        for line in raw[:MAX_LINE].replace("\r", "\n").split("\n"):
            state.read(_COLOUR.sub("", line))
    return state.facts()


class _State:
    """Facts under construction."""

    def __init__(self) -> None:
        self.starts, self.version, self.platform = 0, "", ""
        self._clear()

    def _clear(self) -> None:
        self.profiled: dict[str, tuple[int, int]] = {}
        self.estimate: dict[str, int] = {}
        self.applied: bool | None = None
        self.utilization: float | None = None
        self.equivalent: float | None = None
        self.kv: dict[str, int] = {}
        self.tokens: dict[str, int] = {}
        self.blocks: int | None = None
        self.seconds: dict[str, float] = {}
        self.actual: dict[str, int] = {}
        self.skipped = self.eager = False
        self.oom = self.error = self.outer = ""
        self.unfinished = False  # the last error line only counts problems, the next line names the first

    def read(self, line: str) -> None:
        """Take in one line."""
        prefix = _WORKER.search(line)
        worker = f"{prefix[1]} {prefix[2]}" if prefix else ""
        if found := _START.search(line):
            if self.starts and (self.kv or self.tokens or self.actual or self.error):
                self._clear()
            self.starts, self.version = self.starts + 1, found[1]
        elif found := _PLATFORM.search(line):
            self.platform = found[1].lower()
        elif found := _PROFILED.search(line):
            self.profiled = {g[1]: (int(g[2]), int(g[3])) for g in _GROUP.finditer(found[1])}
        elif found := _ESTIMATE.search(line):
            self.estimate[worker] = _gib(found[1])
        elif found := _POOL.search(line):
            self.actual[worker] = _gib(found[1])
            self.estimate.setdefault(worker, _gib(found[2]))
        elif found := _KV.search(line):
            self.kv[worker] = _gib(found[1])
        elif found := _APPLIED.search(line):
            self.applied, self.utilization = found[1] == "enabled", _number(found[2])
            same = _EQUIVALENT.search(line)
            self.equivalent = _number(same[1]) if same else None
        elif found := _CAPTURE.search(line):
            self.seconds[worker], self.actual[worker] = _number(found[1]), _gib(found[2])
        else:
            self._read_rest(line, worker)

    def _read_rest(self, line: str, worker: str) -> None:
        if found := _KV_TOKENS.search(line):
            self.tokens[worker] = int(_number(found[1]))
        elif found := _OVERRIDE.search(line):
            self.blocks = int(_number(found[2]))
        elif found := _BLOCKS.search(line):
            self.blocks = int(_number(found[1]))
        elif _PLAN.search(line):
            self.skipped = True
        elif _EAGER.search(line):
            self.eager = True
        if not self.oom and _OOM.search(line):
            self.oom = " ".join(line.split())[-400:]
        if self.unfinished and line.strip():
            what = " ".join(_PREFIX.sub("", line).partition(" [type=")[0].split())
            self.error, self.unfinished = f"{self.error}: {what}"[:400], False
        if not _HARMLESS.search(line) and (found := _ERROR.search(line)):
            text = f"{found[1]}: {found[2]}"
            if any(sign in text for sign in _OUTER):
                self.outer = self.outer or text[:400]
            else:
                self.error = text[:400]
                self.unfinished = bool(_COUNTED.search(text))

    def facts(self) -> LogFacts:
        """What was read."""
        notes = []
        if self.starts > 1:
            notes.append(f"the log holds {self.starts} server starts; the facts are those of the last one")
        if self.skipped:
            notes.append(
                "a saved start-up plan was applied: memory profiling was skipped, so no arm could act on it"
            )
        if len(set(self.kv.values())) > 1:
            notes.append("workers have different KV cache memory; the smallest decides")
        return LogFacts(
            version=self.version,
            platform=self.platform,
            starts=self.starts,
            profiled=self.profiled,
            estimate_bytes=self.estimate,
            estimate_applied=self.applied,
            utilization=self.utilization,
            equivalent_utilization=self.equivalent,
            kv_bytes=self.kv,
            kv_tokens=self.tokens,
            kv_blocks=self.blocks,
            capture_s=self.seconds,
            actual_bytes=self.actual,
            profiling_skipped=self.skipped,
            eager=self.eager,
            oom=self.oom,
            error=self.error or self.outer,
            notes=tuple(notes),
        )


def _middle(values: dict[str, int]) -> int | None:
    return round(median(values.values())) if values else None


def _gib(text: str) -> int:
    return round(_number(text) * GIB)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
