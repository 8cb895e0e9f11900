"""Small stand-ins for the vLLM modules that the plugin touches, one set per layout.

The bodies that matter (who calls ``graph_capture``, how it makes its stream) are laid out as in the named versions;
streams are objects that are counted, so a test sees on which one a capture ran and how many were made.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

COMMON = """
import contextlib
import inspect
import standin_torch as torch
from dataclasses import dataclass

@dataclass
class GraphCaptureContext:
    stream: object

class Group:
    def __init__(self, name):
        self.name = name
    @contextlib.contextmanager
    def graph_capture(self, graph_capture_context=None):
        torch.log.append(f"enter {self.name}")
        with torch.cuda.stream(graph_capture_context.stream):
            yield graph_capture_context

_TP, _PP, _DP = Group("tp"), Group("pp"), Group("dp")
def get_tp_group(): return _TP
def get_pp_group(): return _PP
def get_dp_group(): return _DP
"""
STATE = {
    "0.25": """
@contextlib.contextmanager
def graph_capture(device):
    context = GraphCaptureContext(torch.cuda.Stream(device=device))
    with get_tp_group().graph_capture(context), get_pp_group().graph_capture(context):
        yield context
""",
    "0.26": """
@contextlib.contextmanager
def graph_capture(device, graph_capture_context=None):
    context = graph_capture_context or GraphCaptureContext(torch.cuda.Stream(device=device))
    with get_tp_group().graph_capture(context), get_pp_group().graph_capture(context):
        yield context
""",
    "0.33": """
@contextlib.contextmanager
def graph_capture(device):
    from contextlib import nullcontext
    tp, pp, dp = get_tp_group(), get_pp_group(), get_dp_group()
    context = GraphCaptureContext(torch.cuda.Stream(device=device))
    with nullcontext(), tp.graph_capture(context), pp.graph_capture(context), dp.graph_capture(context):
        yield context
""",
}
RUNNER = """
import functools
import standin_torch as torch
from vllm.platforms import current_platform
from vllm.distributed.parallel_state import GraphCaptureContext, graph_capture
from vllm.utils.torch_utils import current_stream

class CUDAGraphMode:
    NONE, FULL = "NONE", "FULL"

class Desc:
    num_tokens, uniform, num_active_loras = 8, True, 0

class Dispatcher:
    def get_capture_descs(self):
        return [("PIECEWISE", []), ("FULL", [Desc()])]

def inference_mode(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner

class GPUModelRunner:
    def __init__(self):
        torch.log.append("runner made")
        self.device, self.cudagraph_dispatcher = "dev", Dispatcher()
    def load_model(self):
        torch.log.append("weights loaded")
    def _dummy_run(self, num_tokens, **kwargs):
        torch.log.append(f"forward {num_tokens} on {torch.cuda.current}")
    def capture_model(self):
        with graph_capture(device=self.device):
            torch.log.append(f"real capture on {torch.cuda.current}")
        return 222
    @inference_mode
    def profile_cudagraph_memory(self):
        BODY
        return 111
"""
PLAIN = """with graph_capture(device=self.device):
            torch.log.append(f"profile on {torch.cuda.current}")"""
HANDED = """cap_ctx = GraphCaptureContext(current_stream()) if current_platform.is_rocm() else None
        with graph_capture(device=self.device, graph_capture_context=cap_ctx):
            torch.log.append(f"profile on {torch.cuda.current}")"""
V2_RUNNER = """
import standin_torch as torch
from vllm.v1.worker.gpu.cudagraph_utils import Manager
from vllm.v1.worker.gpu.cudagraph_utils import profile_cudagraph_memory as _profile_cudagraph_memory

class GPUModelRunner:
    def __init__(self):
        torch.log.append("runner made")
        self.manager, self.max_num_reqs = Manager(), 4
        self.compilation_config = type("C", (), {"max_cudagraph_capture_size": 16})
    def _dummy_run(self, num_tokens, **kwargs):
        torch.log.append(f"forward {num_tokens} on {torch.cuda.current}")
    def capture_model(self, *, profile_only=False):
        self.manager.capture()
        return 3 if profile_only else 222
    def profile_cudagraph_memory(self):
        BODY
"""
V2_UTILS = """
import standin_torch as torch
from vllm.distributed.parallel_state import graph_capture

class Manager:
    def capture(self):
        with graph_capture(device="dev"):
            torch.log.append(f"capture on {torch.cuda.current}")

def profile_cudagraph_memory(runner):
    return runner.capture_model(profile_only=True) + 108
"""
WORKER_BASE = """
class WorkerBase:
    def __init__(self, vllm_config, rank):
        self.parallel_config, self.rank = vllm_config, rank
class WorkerWrapperBase:
    global_rank = 0
    def initialize_from_config(self, kv_cache_configs):
        return None
"""
WORKER = """
from vllm.v1.worker.worker_base import WorkerBase
class Worker(WorkerBase):
    def load_model(self): return None
    def compile_or_warm_up_model(self): return None
"""


@dataclass
class Streams:
    """What the stand-in for torch.cuda does with streams."""

    made: int = 0
    current: str = "default"
    runtime: str | None = None
    log: list[str] = field(default_factory=list)

    def Stream(self, device: Any = None) -> str:
        self.made += 1
        return f"stream {self.made}"

    @contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


def install(version: str, *, platform: str = "rocm", runner: str = "V1") -> types.ModuleType:
    """Put the stand-ins of a version into sys.modules; returns the stand-in for torch."""
    torch = types.ModuleType("standin_torch")
    streams = Streams()
    torch.cuda, torch.log = streams, streams.log  # type: ignore[attr-defined]
    torch.accelerator = types.SimpleNamespace(  # type: ignore[attr-defined]
        synchronize=lambda: None, empty_cache=lambda: streams.log.append("empty_cache")
    )
    clear = lambda: streams.log.append("clear_blas")  # noqa: E731
    torch._C = types.SimpleNamespace(_cuda_clearCublasWorkspaces=clear)  # type: ignore[attr-defined]
    sys.modules["standin_torch"] = torch
    sys.modules["torch"] = torch

    def current_stream() -> str:
        if streams.runtime is None:
            streams.runtime = streams.Stream()
            streams.log.append("runtime stream made")
        return streams.runtime

    checks = {
        f"is_{name}": (lambda name=name: name == platform) for name in ("rocm", "cuda", "cpu", "xpu", "tpu")
    }
    for package in (
        "vllm",
        "vllm.v1",
        "vllm.v1.worker",
        "vllm.v1.worker.gpu",
        "vllm.distributed",
        "vllm.utils",
    ):
        add(package, "").__path__ = []  # type: ignore[attr-defined]
    add("vllm.platforms", "").current_platform = types.SimpleNamespace(**checks)  # type: ignore[attr-defined]
    add("vllm.utils.torch_utils", "").current_stream = current_stream  # type: ignore[attr-defined]
    add("vllm.distributed.parallel_state", COMMON + STATE[version])
    add("vllm.v1.worker.worker_base", WORKER_BASE)
    add("vllm.v1.worker.gpu_worker", WORKER)
    body = HANDED if version == "0.26" else PLAIN
    add("vllm.v1.worker.gpu_model_runner", RUNNER.replace("BODY", body))
    if runner == "V2":
        add("vllm.v1.worker.gpu.cudagraph_utils", V2_UTILS)
        body = "return _profile_cudagraph_memory(self)" if version == "0.33" else "return 0"
        add("vllm.v1.worker.gpu.model_runner", V2_RUNNER.replace("BODY", body))
    return torch


def add(name: str, source: str) -> types.ModuleType:
    """A module made from source text, in sys.modules."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    return module
