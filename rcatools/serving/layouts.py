"""Recognises how a vLLM version profiles its graphs' memory, from the code of its modules.

Known are the V1 and V2 model runners of 0.25 to 0.33. Anything else is refused: an arm that silently does nothing, or
half of what its name says, would be worse than none.

    V1, 0.25 and 0.33   gpu_model_runner: profile_cudagraph_memory enters graph_capture(device=...)
    V1, 0.26            the same, and on ROCm hands it GraphCaptureContext(current_stream())
    V2, 0.33            gpu.model_runner hands over to gpu.cudagraph_utils, whose manager enters graph_capture
    V2, 0.25 and 0.26   profile_cudagraph_memory returns 0 and captures nothing
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

PROFILE = "profile_cudagraph_memory"
V1_MODULE = "vllm.v1.worker.gpu_model_runner"
V2_MODULE = "vllm.v1.worker.gpu.model_runner"
V2_CAPTURE_MODULE = "vllm.v1.worker.gpu.cudagraph_utils"
STATE_MODULE = "vllm.distributed.parallel_state"


class LayoutError(RuntimeError):
    """The modules of this vLLM are not laid out in a way that is known here."""


@dataclass(frozen=True)
class Layout:
    """One known way.

    Attributes:
        runner: "V1" or "V2".
        captures: False where the profile captures nothing.
        capture_module: name of the module whose ``graph_capture`` the profile calls.
        hands_context: the profile itself chooses a stream on ROCm and hands it over.
    """

    runner: str
    captures: bool
    capture_module: str
    hands_context: bool = False


def recognise_v1(module: ModuleType) -> Layout:
    """The layout of ``gpu_model_runner``.

    Raises:
        LayoutError: it is none that is known.
    """
    code = _method_code(module, PROFILE)
    names = _all_names(code)
    if "graph_capture" not in names or not callable(getattr(module, "graph_capture", None)):
        raise LayoutError(f"{module.__name__}: {PROFILE} does not enter the module's graph_capture")
    hands = "GraphCaptureContext" in names
    if hands and ("current_stream" not in names or not callable(getattr(module, "current_stream", None))):
        raise LayoutError(f"{module.__name__}: {PROFILE} chooses its stream in an unknown way")
    return Layout("V1", True, module.__name__, hands)


def recognise_v2(module: ModuleType, capture_module: ModuleType) -> Layout:
    """The layout of ``gpu.model_runner`` with ``gpu.cudagraph_utils``.

    Raises:
        LayoutError: it is none that is known.
    """
    code = _method_code(module, PROFILE)
    names = _all_names(code)
    if not names:  # "return 0"
        return Layout("V2", False, capture_module.__name__)
    shared = getattr(capture_module, PROFILE, None)
    handed = [name for name in names if getattr(module, name, None) is shared and shared is not None]
    if not handed:
        raise LayoutError(f"{module.__name__}: {PROFILE} does not hand over to {capture_module.__name__}")
    if not callable(getattr(capture_module, "graph_capture", None)) or not any(
        "graph_capture" in _all_names(function.__code__) for function in _functions(capture_module)
    ):
        raise LayoutError(f"{capture_module.__name__} does not enter its graph_capture")
    return Layout("V2", True, capture_module.__name__)


def capture_generator(graph_capture: Any) -> FunctionType:
    """The function behind ``parallel_state.graph_capture``, which makes a stream and enters the groups.

    Raises:
        LayoutError: it is not that any more.
    """
    function = inspect.unwrap(graph_capture)
    if not isinstance(function, FunctionType):
        raise LayoutError("graph_capture is no Python function")
    parameters = list(inspect.signature(function).parameters)
    if parameters not in (["device"], ["device", "graph_capture_context"]):
        raise LayoutError(f"graph_capture takes {', '.join(parameters) or 'nothing'}: unknown form")
    wanted = {"torch", "cuda", "Stream", "GraphCaptureContext", "get_tp_group"}
    missing = sorted(wanted - set(function.__code__.co_names))
    if missing or not inspect.isgeneratorfunction(function):
        raise LayoutError(f"graph_capture makes its stream in an unknown way (no {', '.join(missing)})")
    return function


def _method_code(module: ModuleType, name: str) -> CodeType:
    runner = getattr(module, "GPUModelRunner", None)
    method = inspect.unwrap(vars(runner)[name]) if isinstance(runner, type) and name in vars(runner) else None
    if not isinstance(method, FunctionType):
        raise LayoutError(f"{module.__name__} has no GPUModelRunner.{name}")
    return method.__code__


def _functions(module: ModuleType) -> list[FunctionType]:
    found = []
    for value in vars(module).values():
        values = (
            vars(value).values()
            if isinstance(value, type) and value.__module__ == module.__name__
            else [value]
        )
        for item in values:
            plain = inspect.unwrap(item) if callable(item) else item
            if isinstance(plain, FunctionType) and plain.__module__ == module.__name__:
                found.append(plain)
    return found


def _all_names(code: CodeType) -> set[str]:
    """Global and attribute names that a function and the functions inside it use."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _all_names(constant)
    return names
