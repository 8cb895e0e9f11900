"""Functions that every rank of a worker group calls: equal bits, counted collectives, timed calls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rcatools.workload.vime.collectives import CountingCollectives
from rcatools.workload.vime.contract import VocabLayout
from rcatools.workload.vime.logprob import FORMS, SelectedLogprob
from rcatools.workload.vime.tiles import local_partials


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
    every cache has seen every row count.
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
    }


def timed_forms(
    rank: int,
    world: int,
    device: Any,
    *,
    layout: VocabLayout,
    forms: Sequence[str],
    rows: int,
    seed: int,
    calls: int,
    blocks: int,
    warmup: int = 5,
) -> dict[str, Any]:
    """Time ``calls`` calls of each form in each of ``blocks`` blocks, forms in random order per block.

    Returns per form ``exchange_us`` and ``call_us`` as float32 arrays ``[blocks, calls]`` (this rank's
    clock: exchange alone, and with the tile statistics before it), the collectives and bytes per call,
    cache counts, and whether all forms gave equal bits on this rank.
    """
    import numpy as np
    import torch

    logits, targets = inputs(layout, rows, seed, device, rank)
    bound = {form: SelectedLogprob(form, layout, CountingCollectives()) for form in forms}
    first = {form: call(logits, targets) for form, call in bound.items()}
    base = next(iter(first.values()))
    equal = all(torch.equal(base, other) for other in first.values())
    exchange = {form: np.zeros((blocks, calls), dtype=np.float32) for form in forms}
    whole = {form: np.zeros((blocks, calls), dtype=np.float32) for form in forms}
    order = np.random.default_rng(seed)
    for block in range(blocks):
        for name in order.permutation(list(forms)):
            call = bound[str(name)]
            for _ in range(warmup):
                call(logits, targets)
            call.comm.calls.clear()
            call.comm.bytes_sent = 0
            for index in range(calls):
                started = time.perf_counter_ns()
                partials = local_partials(logits, targets, layout, rank)
                _settle(device)
                between = time.perf_counter_ns()
                got = call.exchange(partials, targets)
                _settle(device)
                ended = time.perf_counter_ns()
                exchange[str(name)][block, index] = (ended - between) / 1000
                whole[str(name)][block, index] = (ended - started) / 1000
            equal &= torch.equal(base, got)
    return {
        "forms": {
            form: {
                "exchange_us": exchange[form],
                "call_us": whole[form],
                "collectives_per_call": sum(call.comm.calls.values()) / calls,
                "bytes_per_call": call.comm.bytes_sent / calls,
            }
            for form, call in bound.items()
        },
        "equal": bool(equal),
        "logprobs": base.cpu().numpy(),
    }


def _settle(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
