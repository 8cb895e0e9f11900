"""What a serving engine does between its start and its first decode step, in an arm's way.

The order is vLLM's (``gpu_worker.determine_available_memory`` and ``compile_or_warm_up_model``):
weights, profile run, throwaway capture, cache release, KV cache sized and allocated, real capture on a
fresh stream, decode. On a CPU there are no streams and no graphs; the same steps run eagerly.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator
from typing import Any

from rcatools.errors import RunError
from rcatools.experiment.actions import ACTIONS
from rcatools.experiment.arms import Arm
from rcatools.workload.config import DecodeConfig
from rcatools.workload.step import DecodeStep, Variation

SCRATCH_BYTES = 76 * 1024 * 1024  # 79,691,776, the block reported for the side-stream profile
PROFILE_SAMPLES = 2  # vLLM profiles the two largest graphs of a mode
LEAST_GRAPH_BYTES = 2**20  # vLLM counts at least 1 MiB for every further graph


class Scenario:
    """The start-up of one process under one arm, up to a step that can be replayed.

    Attributes:
        facts: what was seen on the way (addresses, sizes, streams), JSON values.
    """

    def __init__(self, torch: Any, backend: str, config: DecodeConfig, arm: Arm) -> None:
        self.torch = torch
        self.backend = backend
        self.config = config
        self.arm = arm
        self.on_gpu = backend != "cpu"
        self.device = "cuda" if self.on_gpu else "cpu"
        self.facts: dict[str, Any] = {}
        self.kept: list[Any] = []
        self.pending_milliseconds = 0
        self.used_streams: set[int] = set()
        self.runtime_stream: Any = None
        self.side_stream: Any = None
        self.graph: Any = None
        self.capture_stream: Any = None
        self.scratch_taken = False
        self.estimate = 0
        self.begun = time.monotonic()

    def start(self) -> None:
        """Go through all stages; afterwards ``replay`` runs the decode step.

        Raises:
            RunError: the KV cache does not fit.
        """
        if self.on_gpu:
            self.runtime_stream = self.torch.cuda.Stream()
            self.torch.cuda.set_stream(self.runtime_stream)
            self.used_streams.add(self.runtime_stream.cuda_stream)
            self.tiny = self.torch.ones(64, device=self.device)
        self.stage("start")
        variation = Variation(
            int(self.arm.step.get("empty_kernels", 0)), float(self.arm.step.get("kv_read", 1.0))
        )
        self.step = DecodeStep(self.torch, self.device, self.config, variation)
        self.step.run()  # the profile run: a forward without attention
        self.synchronize()
        if self.arm.kv == "first":
            self.make_cache()
        self.stage("before_profile")
        self.profile()
        self.stage("after_profile")
        self.stage("before_kv")
        if self.arm.empty_cache and self.on_gpu:
            gc.collect()
            self.torch.cuda.empty_cache()
        if self.arm.kv != "first":
            self.make_cache()
        self.stage("after_kv")
        self.stage("before_capture")
        self.capture()
        self.stage("after_capture")
        self.synchronize()
        self.facts["streams_used"] = len(self.used_streams)
        if self.on_gpu:
            self.facts.update(allocator_facts(self.torch, self.facts, self._handle(self.side_stream)))

    def stage(self, name: str) -> None:
        """Do the arm's actions of one stage, in order; the time since the start is a fact."""
        self.facts[f"seconds_{name}"] = round(time.monotonic() - self.begun, 4)
        for item in self.arm.actions.get(name, ()):
            ACTIONS[item.name](self, int(item.argument or 0))

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def forward(self) -> None:
        """One eager step; a minimal cache is attached for its time where none is there yet."""
        if self.arm.scratch and self.on_gpu and not self.scratch_taken:
            self.scratch_taken = True
            self.kept.append(self.torch.cuda.caching_allocator_alloc(SCRATCH_BYTES))
        with self.minimal_cache():
            self.step.run()
        self.synchronize()

    @contextlib.contextmanager
    def minimal_cache(self) -> Iterator[None]:
        """A KV cache of one page per layer while there is no real one, dropped at the end."""
        if self.step.kv is not None:
            yield
            return
        size = self.config.layers * self.config.page_bytes // self.config.dtype_bytes
        cache = self.torch.empty(size, dtype=self.step.dtype, device=self.device).normal_()
        self.step.attach(cache, 1)
        try:
            yield
        finally:
            self.step.detach()

    def profile(self) -> None:
        """The throwaway capture: two graphs on the arm's stream, measured by free memory, then dropped."""
        if self.arm.profile == "none":
            return
        with self.minimal_cache(), self.on_stream(self._profile_stream()):
            self.forward()
            if not self.on_gpu:
                return
            deltas, pool, graphs = [], self.torch.cuda.graph_pool_handle(), []
            for _ in range(PROFILE_SAMPLES):
                before = self.torch.cuda.mem_get_info()[0]
                graphs.append(self.capture_graph(pool))
                self.synchronize()
                deltas.append(max(before - self.torch.cuda.mem_get_info()[0], 0))
            self.estimate = deltas[0] + max(deltas[1], LEAST_GRAPH_BYTES)
            self.facts["estimate_bytes"] = self.estimate
            del graphs
        self.synchronize()

    def _profile_stream(self) -> Any:
        if not self.on_gpu:
            return None
        if self.arm.profile == "side":
            self.side_stream = self.new_stream()
            return self.side_stream
        return self.torch.cuda.default_stream() if self.arm.profile == "legacy" else self.runtime_stream

    def make_cache(self) -> None:
        """Size, allocate and fill the KV cache; its address and its place in its segment are facts."""
        size = self.cache_bytes()
        pages = self.step.pages_for(size)
        if pages < self.step.least_pages:
            raise RunError(
                f"the KV cache would hold {pages} pages per layer and the step needs {self.step.least_pages}: "
                "free device memory, raise kv_fraction or lower context"
            )
        used = pages * self.config.layers * self.config.page_bytes
        self.cache = self.torch.empty(
            used // self.config.dtype_bytes, dtype=self.step.dtype, device=self.device
        )
        self.step.attach(self.cache, pages)
        self.step.fill()
        self.synchronize()
        self.facts |= {"kv_bytes": used, "kv_blocks": pages, "kv_address": int(self.cache.data_ptr())}

    def cache_bytes(self) -> int:
        """Bytes left for the KV cache: the share of memory, less what is in use and what was estimated."""
        if not self.on_gpu:
            return self.config.kv_limit
        free, total = (int(value) for value in self.torch.cuda.mem_get_info())
        if self.arm.kv == "fixed":
            return min(int(total * self.config.kv_fraction * 0.9), self.config.kv_limit)
        return min(
            int(total * self.config.kv_fraction) - (total - free) - self.estimate, self.config.kv_limit
        )

    def capture(self) -> None:
        """The real capture; its warm-up runs on the runtime stream, or on the capture stream itself."""
        if self.arm.capture != "fresh_warm" or not self.on_gpu:
            self.forward()
        if not self.on_gpu or self.arm.capture == "eager":
            return
        self.capture_stream = self.runtime_stream if self.arm.capture == "runtime" else self.new_stream()
        if self.arm.capture == "fresh_warm":
            with self.on_stream(self.capture_stream):
                self.forward()
        self.graph = self.capture_on(self.capture_stream)

    def capture_on(self, stream: Any, body: Any = None) -> Any:
        """Capture the step on a stream without running anything there; returns the graph."""
        self.synchronize()
        with self.torch.cuda.stream(stream):
            return self.capture_graph(None, body)

    def capture_graph(self, pool: Any, body: Any = None) -> Any:
        """Capture the step (or another launch sequence) on the current stream; returns the graph.

        Uses the graph's own begin and end: ``torch.cuda.graph`` would also collect garbage and empty
        the cache, which is an arm here.
        """
        graph = self.torch.cuda.CUDAGraph()
        # With a collective inside, the communicator's own threads may call the runtime during the capture.
        mode = "thread_local" if self.step.world > 1 else "global"
        graph.capture_begin(pool, capture_error_mode=mode)
        try:
            (body or self.step.run)()
        finally:
            graph.capture_end()
        return graph

    def replay(self) -> None:
        """Run one decode step on the current stream."""
        if self.graph is not None:
            self.graph.replay()
        else:
            self.step.run()

    @contextlib.contextmanager
    def on_stream(self, stream: Any) -> Iterator[None]:
        """Make a stream current, ordered after and before the one that was."""
        if stream is None or stream == self.torch.cuda.current_stream():
            yield
            return
        outer = self.torch.cuda.current_stream()
        self.used_streams.add(stream.cuda_stream)
        stream.wait_stream(outer)
        with self.torch.cuda.stream(stream):
            yield
        outer.wait_stream(stream)

    def new_stream(self, priority: int = 0) -> Any:
        """A further stream from torch's pool, kept to the end."""
        stream = self.torch.cuda.Stream(priority=priority)
        self.kept.append(stream)
        return stream

    def touch(self, stream: Any) -> None:
        """One tiny kernel on a stream."""
        self.launch_on(stream, 1)

    def launch_on(self, stream: Any, count: int) -> None:
        """Tiny kernels on a stream, queued one after the other and waited for once."""
        self.used_streams.add(stream.cuda_stream)
        with self.torch.cuda.stream(stream):
            for _ in range(count):
                self.tiny.add_(1)
        stream.synchronize()

    def product_on(self, stream: Any) -> None:
        """One small BLAS product on a stream."""
        self.used_streams.add(stream.cuda_stream)
        matrix = self.step.qkv_weight[0][:64, :64].contiguous()
        self.torch.cuda.synchronize()
        with self.torch.cuda.stream(stream):
            self.kept.append(self.torch.mm(matrix, matrix))
        stream.synchronize()

    def copy_on(self, stream: Any) -> None:
        """One small host-to-device copy on a stream, no kernel."""
        host = self.torch.ones(64, pin_memory=True)
        with self.torch.cuda.stream(stream):
            self.tiny.copy_(host, non_blocking=True)
        stream.synchronize()

    def touch_and_destroy(self) -> None:
        """One tiny kernel on a stream made through the runtime, which is destroyed afterwards."""
        runtime = self.torch.cuda.cudart()
        import ctypes

        handle = ctypes.c_size_t()
        status = runtime.cudaStreamCreate(ctypes.addressof(handle))
        if int(status) != 0:
            raise RunError(f"the runtime could not make a stream ({status})")
        self.touch(self.torch.cuda.ExternalStream(handle.value))
        runtime.cudaStreamDestroy(handle.value)

    def hold(self, size: int, stream: Any) -> None:
        """Take bytes from the caching allocator under a stream's key and keep them."""
        self.kept.append(self.torch.cuda.caching_allocator_alloc(size, stream=stream))

    @staticmethod
    def _handle(stream: Any) -> int | None:
        return None if stream is None else int(stream.cuda_stream)


def allocator_facts(torch: Any, facts: dict[str, Any], side: int | None) -> dict[str, Any]:
    """Bytes by state from the allocator's segment list, and where in its segment the KV cache lies."""
    result: dict[str, Any] = {
        "reserved_bytes": 0,
        "allocated_bytes": 0,
        "stranded_bytes": 0,
        "side_live_bytes": 0,
    }
    address = facts.get("kv_address", -1)
    for segment in torch.cuda.memory_snapshot():
        live = int(segment["active_size"])
        result["reserved_bytes"] += int(segment["total_size"])
        result["allocated_bytes"] += int(segment["allocated_size"])
        if live:
            result["stranded_bytes"] += int(segment["total_size"]) - live
        if side is not None and int(segment["stream"]) == side:
            result["side_live_bytes"] += live
        if segment["address"] <= address < segment["address"] + segment["total_size"]:
            result["kv_segment_address"] = int(segment["address"])
            result["kv_offset"] = address - int(segment["address"])
    return result
