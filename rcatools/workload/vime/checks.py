"""Functions that every rank of a worker group calls: equal bits, counted collectives, timed calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rcatools.workload.vime.collectives import CountingCollectives, Totals
from rcatools.workload.vime.contract import VocabLayout
from rcatools.workload.vime.logprob import FORMS, SelectedLogprob
from rcatools.workload.vime.tiles import local_partials, merge


def inputs(layout: VocabLayout, rows: int, seed: int, device: Any, rank: int) -> tuple[Any, Any]:
    """This rank's shard of random logits ``[rows, shard]`` and all targets ``[rows]``.

    Logits are drawn for the whole padded vocabulary from ``seed`` on the CPU, so every rank and every
    world size sees the same numbers.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn((rows, layout.padded), generator=generator) * 4
    targets = torch.randint(0, layout.vocab, (rows,), generator=generator)
    start, end = layout.bounds(rank)
    return logits[:, start:end].contiguous().to(device), targets.to(device)


def all_forms(
    rank: int,
    world: int,
    device: Any,
    *,
    layout: VocabLayout,
    rows: Sequence[int],
    seed: int,
    forms: Sequence[str] = tuple(FORMS),
    calls: int = 2,
) -> dict[str, Any]:
    """Log-probabilities, collectives per call and cache counts of every form.

    Returns ``{"logprobs": {(form, rows): float32 array}, "collectives": {form: {name: per call}},
    "backend": {form: per call or None}, "repeat_equal": bool}``. Counts are of the last call, after
    every cache has seen every row count. ``"serial"`` holds by row count what one rank computes alone.
    """
    import numpy as np

    logprobs: dict[tuple[str, int], Any] = {}
    collectives: dict[str, dict[str, int]] = {}
    backend: dict[str, int | None] = {}
    repeat_equal = True
    for form in forms:
        comm = CountingCollectives()
        call = SelectedLogprob(form, layout, comm)
        for count in rows:
            logits, targets = inputs(layout, count, seed, device, rank)
            for _ in range(calls):
                comm.calls.clear()
                before = comm.backend_sequence()
                got = call(logits, targets).cpu().numpy()
                after = comm.backend_sequence()
                seen = logprobs.setdefault((form, count), got)
                repeat_equal &= bool(np.array_equal(seen, got))
            collectives[form] = dict(comm.calls)
            backend[form] = after - before if before is not None and after is not None else None
    return {
        "logprobs": logprobs,
        "collectives": collectives,
        "backend": backend,
        "repeat_equal": repeat_equal,
        "serial": {count: serial(layout, count, seed, device).cpu().numpy() for count in rows},
    }


def one_target(rank: int, world: int, device: Any, *, form: str, target: int, vocab: int = 4096) -> float:
    """The log-probability of one word, from a form that may refuse it."""
    layout = VocabLayout.even(vocab, world)
    logits, targets = inputs(layout, 1, 0, device, rank)
    partials = local_partials(logits, targets, layout, rank)
    call = SelectedLogprob(form, layout, CountingCollectives())
    return float(call.exchange(partials, targets.fill_(target)))


@dataclass(frozen=True)
class Variant:
    """A form as it is timed; ``extra_gathers`` and ``repeats`` plant a known cost in every call.

    ``extra_gathers`` adds that many gathers of one number (an additive cost), ``repeats`` makes the whole
    exchange so many times (a multiplicative one).
    """

    form: str
    extra_gathers: int = 0
    repeats: int = 1


def timed_calls(
    rank: int,
    world: int,
    device: Any,
    *,
    layout: VocabLayout,
    variants: Mapping[str, Variant],
    rows: int,
    seed: int,
    calls: int,
    blocks: int = 1,
    warmup: int = 10,
) -> dict[str, Any]:
    """Time ``calls`` calls of each variant in each of ``blocks`` blocks, in random order per block.

    Returns per variant ``exchange_us`` and ``call_us`` as float32 arrays ``[blocks, calls]`` (this rank's
    clock: the exchange alone, and with the tile statistics before it), and per call: the collectives
    issued, what the backend counted (or None) and the bytes this rank sent. ``equal`` says whether every
    result had the bits of a computation on one rank without any communication; ``logprobs`` is that.
    """
    import numpy as np
    import torch

    logits, targets = inputs(layout, rows, seed, device, rank)
    truth = serial(layout, rows, seed, device)
    order = np.random.default_rng(seed)
    bound = {name: _bind(variant, layout) for name, variant in variants.items()}
    timed: dict[str, dict[str, Any]] = {
        name: {
            "exchange_us": np.zeros((blocks, calls), dtype=np.float32),
            "call_us": np.zeros((blocks, calls), dtype=np.float32),
        }
        for name in variants
    }
    equal = True
    for block in range(blocks):
        for name in map(str, order.permutation(list(variants))):
            comm, exchange = bound[name]
            for _ in range(warmup):
                exchange(local_partials(logits, targets, layout, rank), targets)
            before = comm.totals()
            for index in range(calls):
                started = time.perf_counter_ns()
                partials = local_partials(logits, targets, layout, rank)
                _settle(device)
                between = time.perf_counter_ns()
                got = exchange(partials, targets)
                _settle(device)
                ended = time.perf_counter_ns()
                timed[name]["exchange_us"][block, index] = (ended - between) / 1000
                timed[name]["call_us"][block, index] = (ended - started) / 1000
                equal &= torch.equal(truth, got)
            timed[name] |= per_call(before, comm.totals(), calls)
    return {"variants": timed, "equal": bool(equal), "logprobs": truth.cpu().numpy()}


def serial(layout: VocabLayout, rows: int, seed: int, device: Any) -> Any:
    """The log-probabilities ``[rows]`` computed by one rank that holds every tile."""
    whole = VocabLayout(layout.vocab, layout.padded, (layout.num_tiles,), layout.num_tiles)
    partials = local_partials(*inputs(whole, rows, seed, device, 0), whole, 0)
    return merge(partials.maxima, partials.sums, partials.target)


def per_call(before: Totals, after: Totals, calls: int) -> dict[str, float | None]:
    """Collectives, backend collectives and bytes per call between two counts."""
    counted = None
    if before.backend is not None and after.backend is not None:
        counted = (after.backend - before.backend) / calls
    return {
        "collectives_per_call": (after.calls - before.calls) / calls,
        "backend_collectives_per_call": counted,
        "bytes_per_call": (after.bytes_sent - before.bytes_sent) / calls,
    }


def _bind(variant: Variant, layout: VocabLayout) -> tuple[CountingCollectives, Callable[..., Any]]:
    import torch

    comm = CountingCollectives()
    call = SelectedLogprob(variant.form, layout, comm)

    def exchange(partials: Any, targets: Any) -> Any:
        for _ in range(variant.extra_gathers):
            one = torch.zeros((1,), device=targets.device)
            comm.all_gather([torch.empty_like(one) for _ in range(comm.world)], one)
        for _ in range(variant.repeats - 1):
            call.exchange(partials, targets)
        return call.exchange(partials, targets)

    return comm, exchange


def _settle(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
