"""The arms: how the profiling capture is done, and what is done around it. Not run on a GPU with vLLM so far.

Nothing of vLLM is copied. ``current`` re-runs vLLM's own ``graph_capture`` with one name replaced, so that it enters
whatever this version enters, on another stream.
"""

from __future__ import annotations

import contextlib
import gc
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rcatools.serving.layouts import Layout, LayoutError, capture_generator
from rcatools.serving.markers import Marker
from rcatools.serving.variants import ON_SIDE_STREAM

Capture = Callable[..., AbstractContextManager[Any]]


def on_stream(graph_capture: Any, make_stream: Callable[[], Any]) -> Capture:
    """vLLM's ``graph_capture``, capturing on the stream that ``make_stream`` gives instead of a new one.

    Raises:
        LayoutError: its code is not of a known form.
    """
    function = capture_generator(graph_capture)
    scope = {**function.__globals__, "torch": _Torch(function.__globals__["torch"], make_stream)}
    again = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    again.__kwdefaults__ = function.__kwdefaults__
    return contextlib.contextmanager(again)


class _Torch:
    """torch, except that ``cuda.Stream(...)`` gives one certain stream."""

    def __init__(self, torch: Any, make_stream: Callable[[], Any]) -> None:
        self._torch = torch
        self.cuda = _Cuda(torch.cuda, make_stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


class _Cuda:
    def __init__(self, cuda: Any, make_stream: Callable[[], Any]) -> None:
        self._cuda = cuda
        self.Stream = lambda *_, **__: make_stream()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cuda, name)


@dataclass(frozen=True)
class Parts:
    """What of vLLM the arms touch.

    Attributes:
        runner: module of the model runner.
        capture: module whose ``graph_capture`` the profile calls.
        state: ``vllm.distributed.parallel_state``.
        runtime_stream: vLLM's ``current_stream``.
        torch: the torch module.
    """

    runner: ModuleType
    capture: ModuleType
    state: ModuleType
    runtime_stream: Callable[[], Any]
    torch: Any


def profile_arm(
    layout: Layout, marker: Marker, original: Callable[[Any], int], parts: Parts
) -> Callable[[Any], int]:
    """The method that takes the place of ``profile_cudagraph_memory`` for the marker's arm.

    Args:
        layout: the recognised layout.
        marker: counts calls and captures, and keeps the estimate.
        original: the method as it was.
        parts: what of vLLM the arm touches.

    Raises:
        LayoutError: the arm needs a capture and this layout makes none, or in an unknown way.
    """
    arm = marker.arm
    if arm not in ("stock", "off") and not layout.captures:
        raise LayoutError(
            f"the {layout.runner} model runner of this version profiles no graphs, so the arm {arm!r} has nothing to "
            "act on: set VLLM_USE_V2_MODEL_RUNNER=0"
        )
    capture: Capture | None = None
    if arm in ON_SIDE_STREAM:
        capture_generator(parts.state.graph_capture)
        capture = parts.state.graph_capture
    elif arm == "current":
        capture = on_stream(parts.state.graph_capture, parts.runtime_stream)
    clear = getattr(parts.torch._C, "_cuda_clearCublasWorkspaces", None) if arm == "clear_blas" else None
    if arm == "clear_blas" and clear is None:
        raise LayoutError("this torch has no _cuda_clearCublasWorkspaces: the arm 'clear_blas' cannot be run")

    def profile(runner: Any) -> int:
        marker.profile_calls += 1
        if arm == "off":
            marker.estimate_bytes = 0
            return 0
        with _chosen_capture(capture, marker, runner, parts):
            estimate = int(original(runner))
        if clear is not None:
            clear()
        if arm in ("side_gc", "clear_blas"):
            gc.collect()
            parts.torch.accelerator.empty_cache()
        marker.estimate_bytes = estimate
        return estimate

    return profile


@contextlib.contextmanager
def _chosen_capture(capture: Capture | None, marker: Marker, runner: Any, parts: Parts) -> Iterator[None]:
    """While the profile runs, every way to ``graph_capture`` leads to the arm's; the real capture stays vLLM's own."""
    if capture is None:
        yield
        return
    warm = [marker.arm == "prewarm"]

    @contextlib.contextmanager
    def chosen(device: Any, graph_capture_context: Any = None) -> Iterator[Any]:
        del graph_capture_context  # what the profile itself would have chosen on ROCm
        marker.captures += 1
        if warm[0]:
            warm[0] = False
            with parts.torch.cuda.stream(parts.runtime_stream()):
                forward(runner, parts.runner)
            parts.torch.accelerator.synchronize()
        with capture(device=device) as context:
            yield context

    places: dict[tuple[ModuleType, str], Any] = {
        (parts.capture, "graph_capture"): chosen,
        (parts.state, "graph_capture"): chosen,
    }
    if parts.capture is parts.runner and hasattr(parts.runner, "current_stream"):
        # The 0.26 profile calls it only for the context that is ignored above, and the first call makes a stream.
        places[(parts.runner, "current_stream")] = lambda: None
    before = {(module, name): getattr(module, name) for module, name in places}
    try:
        for (module, name), value in places.items():
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


def forward(runner: Any, module: ModuleType) -> None:
    """The eager forwards with which the capture warms up, on the stream that is current; attention included."""
    dispatcher = getattr(runner, "cudagraph_dispatcher", None)
    if dispatcher is not None and hasattr(dispatcher, "get_capture_descs"):
        modes = module.CUDAGraphMode
        for mode, descs in dispatcher.get_capture_descs():
            if descs:
                runner._dummy_run(
                    descs[0].num_tokens,
                    cudagraph_runtime_mode=modes.NONE,
                    force_attention=mode == modes.FULL,
                    uniform_decode=descs[0].uniform,
                    allow_microbatching=False,
                    skip_eplb=True,
                    remove_lora=False,
                    num_active_loras=descs[0].num_active_loras,
                )
        return
    size = runner.compilation_config.max_cudagraph_capture_size or 1
    runner._dummy_run(min(size, runner.max_num_reqs), skip_eplb=True)
