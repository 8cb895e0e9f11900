"""What CUDA and HIP graphs do to the forms: capture, evicted buffers, streams that share a buffer.

Functions for the ranks of a worker group on GPUs (see ``group.run_group``). A failed capture poisons its
process, so forms that are expected to fail are each tried in a group of their own. Not run on ROCm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from rcatools.workload.vime.buffers import Message, MessageShape, OwnedBuffers
from rcatools.workload.vime.checks import inputs
from rcatools.workload.vime.collectives import CountingCollectives
from rcatools.workload.vime.contract import VocabLayout
from rcatools.workload.vime.logprob import SelectedLogprob
from rcatools.workload.vime.tiles import Partials, local_partials

SLEEP_CYCLES = 50_000_000
ROWS = 8
SENTINEL = 12345.0
MOST_NEIGHBOURS = 4096
HOW = ("graph", "eager")


class Captured:
    """A form captured for fixed input tensors; ``replay`` after changing them in place."""

    def __init__(self, call: SelectedLogprob, partials: Partials, targets: Any, stream: Any) -> None:
        import torch

        self.partials, self.targets, self.stream = partials, targets, stream
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(2):
                call.exchange(partials, targets)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        call.comm.calls.clear()
        keeper: AbstractContextManager[list[Message]]
        keeper = call.buffers.pinning() if isinstance(call.buffers, OwnedBuffers) else nullcontext([])
        with keeper as self.pins, torch.cuda.graph(self.graph, stream=stream):
            self.out = call.exchange(partials, targets)
        self.issued = dict(call.comm.calls)
        call.comm.calls.clear()

    def replay(self) -> Any:
        """A copy of the log-probabilities after one replay."""
        import torch

        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            self.graph.replay()
        torch.cuda.synchronize()
        return self.out.clone()


def capture_forms(
    rank: int, world: int, device: Any, *, vocab: int, forms: Sequence[str], seed: int
) -> dict[str, Any]:
    """Capture each form, change its inputs, replay, and compare with an eager call on the new inputs.

    Returns per form ``{"captured": bool, "error", "collectives_at_capture", "collectives_at_replay",
    "replay_equal": bool}``. Stops at the first failed capture.
    """
    import torch

    layout = VocabLayout.even(vocab, world)
    report: dict[str, Any] = {}
    for form in forms:
        call = SelectedLogprob(form, layout, CountingCollectives())
        logits, targets = inputs(layout, ROWS, seed, device, rank)
        partials = local_partials(logits, targets, layout, rank)
        try:
            captured = Captured(call, partials, targets, torch.cuda.Stream())
        except RuntimeError as error:
            report[form] = {"captured": False, "error": " ".join(str(error).split())[:300]}
            return report
        other_logits, other_targets = inputs(layout, ROWS, seed + 1, device, rank)
        expected = SelectedLogprob("reference", layout, CountingCollectives())(other_logits, other_targets)
        _overwrite(captured, local_partials(other_logits, other_targets, layout, rank), other_targets)
        got = captured.replay()
        report[form] = {
            "captured": True,
            "error": None,
            "collectives_at_capture": captured.issued,
            "collectives_at_replay": dict(call.comm.calls),
            "replay_equal": torch.equal(got, expected),
        }
    return report


def gather_capture(rank: int, world: int, device: Any, *, form: str) -> dict[str, Any]:
    """Capture one bare gather ("list" or "flat") and replay it on new numbers."""
    import torch

    comm = CountingCollectives()
    sent = torch.full((1024,), float(rank), device=device)
    flat = torch.empty((world * 1024,), device=device)
    gathered = list(flat.split(1024)) if form == "flat" else [torch.empty_like(sent) for _ in range(world)]

    def issue() -> None:
        if form == "flat":
            comm.all_gather_into_tensor(flat, sent)
        else:
            comm.all_gather(gathered, sent)

    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        issue()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=stream):
            issue()
    except RuntimeError as error:
        return {"captured": False, "error": " ".join(str(error).split())[:300]}
    sent.fill_(100.0 + rank)
    graph.replay()
    torch.cuda.synchronize()
    right = all(bool((part == 100.0 + other).all()) for other, part in enumerate(gathered))
    return {"captured": True, "error": None, "replay_equal": right}


def evicted_buffer(rank: int, world: int, device: Any, *, vocab: int, form: str, seed: int) -> dict[str, Any]:
    """Capture, push the buffer out of its cache, let a neighbour have its address, replay.

    Returns ``address_reused`` (a later tensor of ours got the captured send buffer's address),
    ``neighbour_changed`` (its elements overwritten by the replay) and ``replay_equal``.
    """
    import torch

    layout = VocabLayout.even(vocab, world)
    little = VocabLayout.even(layout.num_tiles, world)
    call = SelectedLogprob(form, layout, CountingCollectives())
    logits, targets = inputs(layout, ROWS, seed, device, rank)
    partials = local_partials(logits, targets, layout, rank)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        expected = call.exchange(partials, targets).clone()
    captured = Captured(call, partials, targets, stream)
    with torch.cuda.stream(stream):
        shape = MessageShape(ROWS, layout.max_tiles, call.preflight.carries_digest)
        start, end = _span(call.buffers.take(shape, call.comm, device).sent)
        others = SelectedLogprob(form, little, call.comm, buffers=call.buffers)
        for count in range(ROWS + 1, ROWS + 41):
            others(*inputs(little, count, seed, device, rank))
        torch.cuda.synchronize()
        neighbours: list[Any] = []
        while len(neighbours) < MOST_NEIGHBOURS and not _overlap(neighbours[-1:], start, end):
            neighbours.append(torch.full((shape.words,), SENTINEL, device=device))
    got = captured.replay()
    return {
        "address_reused": _overlap(neighbours[-1:], start, end),
        "neighbours": len(neighbours),
        "neighbour_changed": sum(int((other != SENTINEL).sum()) for other in neighbours),
        "replay_equal": torch.equal(got, expected),
        "evictions": call.buffers.counts.evictions,
    }


def shared_by_streams(
    rank: int, world: int, device: Any, *, vocab: int, form: str, seed: int
) -> dict[str, Any]:
    """Two streams call with equal shapes; the first is held between filling its message and gathering it.

    Returns per stream whether its log-probabilities are right.
    """
    import torch

    layout = VocabLayout.even(vocab, world)
    call = SelectedLogprob(form, layout, CountingCollectives())
    jobs = []
    for index in range(2):
        logits, targets = inputs(layout, ROWS, seed + index, device, rank)
        stream = torch.cuda.Stream()
        partials = local_partials(logits, targets, layout, rank)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            expected = call.exchange(partials, targets).clone()
        jobs.append((stream, partials, targets, expected))
        torch.cuda.synchronize()
    results = []
    for index, (stream, partials, targets, _) in enumerate(jobs):
        call.before_gather = partial(torch.cuda._sleep, 0 if index else SLEEP_CYCLES)
        with torch.cuda.stream(stream):
            results.append(call.exchange(partials, targets))
    torch.cuda.synchronize()
    right = [torch.equal(got, job[3]) for got, job in zip(results, jobs, strict=True)]
    return {"first_right": right[0], "second_right": right[1]}


def timed_replays(
    rank: int,
    world: int,
    device: Any,
    *,
    vocab: int,
    forms: Sequence[str],
    rows: Sequence[int],
    blocks: int,
    seed: int,
    eager_only: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Microseconds per exchange inside a replayed graph and eagerly, one number per block.

    ``eager_only`` names forms that no graph takes; a name that ends in "_again" is that form once more (A/A).
    Forms come in random order within each block. World size 1 has no transport: its numbers are launch
    and copy cost alone. A replay holds one exchange, so its time is never less than one graph launch.
    """
    import numpy as np
    import torch

    layout = VocabLayout.even(vocab, world)
    order = np.random.default_rng(seed)
    names = [*forms, *eager_only]
    table = []
    for count in rows:
        logits, targets = inputs(layout, count, seed, device, rank)
        partials = local_partials(logits, targets, layout, rank)
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        calls = {
            name: SelectedLogprob(name.removesuffix("_again"), layout, CountingCollectives())
            for name in names
        }
        graphs = {name: Captured(calls[name], partials, targets, stream) for name in forms}
        times: dict[tuple[str, str], list[float]] = {
            (name, how): [] for name in names for how in HOW if name in graphs or how == "eager"
        }
        for _ in range(blocks):
            for name in map(str, order.permutation(names)):
                if name in graphs:
                    times[name, "graph"].append(_time_us(graphs[name].graph.replay, stream, 100))
                eager = partial(calls[name].exchange, partials, targets)
                times[name, "eager"].append(_time_us(eager, stream, 20))
        for (name, how), values in times.items():
            table.append({"form": name, "how": how, "rows": count, "world": world, "us_per_call": values})
    return table


def _span(tensor: Any) -> tuple[int, int]:
    start = int(tensor.data_ptr())
    return start, start + tensor.numel() * tensor.element_size()


def _overlap(tensors: Sequence[Any], start: int, end: int) -> bool:
    return any(first < end and start < last for first, last in map(_span, tensors))


def _time_us(call: Callable[[], Any], stream: Any, repeats: int) -> float:
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        call()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
    end.synchronize()
    return 1000.0 * float(start.elapsed_time(end)) / repeats


def _overwrite(captured: Captured, partials: Partials, targets: Any) -> None:
    captured.partials.maxima.copy_(partials.maxima)
    captured.partials.sums.copy_(partials.sums)
    captured.partials.target.copy_(partials.target)
    captured.targets.copy_(targets)
