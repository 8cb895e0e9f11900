"""What an arm can do at a stage of the start-up. One function per action; its docstring is its help."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

from rcatools.experiment.runtime import device_malloc

if TYPE_CHECKING:
    from rcatools.experiment.scenario import Scenario

MIB = 2**20
ACTIONS: dict[str, Callable[[Scenario, int], None]] = {}
NEEDS_ARGUMENT: set[str] = set()


def action(
    *, argument: bool = False
) -> Callable[[Callable[[Scenario, int], None]], Callable[[Scenario, int], None]]:
    """Register a function under its name as an action."""

    def register(function: Callable[[Scenario, int], None]) -> Callable[[Scenario, int], None]:
        ACTIONS[function.__name__] = function
        if argument:
            NEEDS_ARGUMENT.add(function.__name__)
        return function

    return register


@action()
def collect(s: Scenario, _: int) -> None:
    """Run Python's garbage collector."""
    gc.collect()


ACTIONS["gc"] = ACTIONS.pop("collect")


@action()
def empty_cache(s: Scenario, _: int) -> None:
    """Give the allocator's wholly free segments back to the driver."""
    if s.on_gpu:
        s.torch.cuda.empty_cache()


@action()
def clear_blas(s: Scenario, _: int) -> None:
    """Free the BLAS workspaces that torch keeps per handle and stream."""
    if s.on_gpu:
        s.torch.cuda.synchronize()
        s.torch._C._cuda_clearCublasWorkspaces()


@action()
def forward(s: Scenario, _: int) -> None:
    """One eager decode step on the current stream, on a minimal KV cache where there is none yet."""
    s.forward()


@action(argument=True)
def touch_streams(s: Scenario, count: int) -> None:
    """One tiny kernel on each of N further streams."""
    for _ in range(count if s.on_gpu else 0):
        s.touch(s.new_stream())


@action(argument=True)
def launches(s: Scenario, count: int) -> None:
    """N tiny kernels on one further stream, queued one after the other and waited for once."""
    if s.on_gpu:
        s.launch_on(s.new_stream(), count)


@action(argument=True)
def launches_waited(s: Scenario, count: int) -> None:
    """N tiny kernels on one further stream, each waited for before the next is launched."""
    if s.on_gpu:
        stream = s.new_stream()
        for _ in range(count):
            s.touch(stream)


@action(argument=True)
def make_streams(s: Scenario, count: int) -> None:
    """N further streams that run nothing."""
    for _ in range(count if s.on_gpu else 0):
        s.new_stream()


@action(argument=True)
def copy_streams(s: Scenario, count: int) -> None:
    """One host-to-device copy and nothing else on each of N further streams."""
    for _ in range(count if s.on_gpu else 0):
        s.copy_on(s.new_stream())


@action(argument=True)
def high_priority_streams(s: Scenario, count: int) -> None:
    """One tiny kernel on each of N further streams of high priority."""
    for _ in range(count if s.on_gpu else 0):
        s.touch(s.new_stream(priority=-1))


@action(argument=True)
def blas_streams(s: Scenario, count: int) -> None:
    """One small matrix product through BLAS on each of N further streams."""
    for _ in range(count if s.on_gpu else 0):
        s.product_on(s.new_stream())


@action()
def legacy_stream(s: Scenario, _: int) -> None:
    """One tiny kernel on the legacy default stream."""
    if s.on_gpu:
        s.touch(s.torch.cuda.default_stream())


@action(argument=True)
def destroyed_streams(s: Scenario, count: int) -> None:
    """One tiny kernel on each of N streams made through the runtime, which are then destroyed."""
    for _ in range(count if s.on_gpu else 0):
        s.touch_and_destroy()


@action(argument=True)
def pad_untracked(s: Scenario, mib: int) -> None:
    """N MiB taken from the runtime's malloc, which the allocator does not see, kept to the end."""
    if s.on_gpu:
        s.facts["pad_address"] = device_malloc(s.backend, mib * MIB)


@action(argument=True)
def pad_side(s: Scenario, mib: int) -> None:
    """N MiB from the caching allocator under the key of a further stream that runs nothing, kept."""
    if s.on_gpu:
        s.hold(mib * MIB, s.new_stream())


@action(argument=True)
def pad_default(s: Scenario, mib: int) -> None:
    """N MiB from the caching allocator under the runtime stream's key, kept."""
    if s.on_gpu:
        s.hold(mib * MIB, s.runtime_stream)


@action(argument=True)
def pending_wait(s: Scenario, milliseconds: int) -> None:
    """A further stream that waits through decode for an event behind a long kernel on another one."""
    if s.on_gpu:
        s.pending_milliseconds = milliseconds
