"""The review's hazards on purpose: each function lets a form meet one, and reports what came out.

Functions for the ranks of a worker group (see ``group.run_group``); a hang is seen by the group's
watchdog, not here. The hazards that need a captured graph are in ``capture``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from rcatools.errors import RunError
from rcatools.workload.vime.buffers import Buffers, MessageShape, OwnedBuffers, SharedBuffers
from rcatools.workload.vime.checks import inputs
from rcatools.workload.vime.collectives import CountingCollectives
from rcatools.workload.vime.contract import VocabLayout
from rcatools.workload.vime.logprob import SelectedLogprob
from rcatools.workload.vime.preflight import AgreedCache, RankLocalCache

STEP_S = 10.0


def threads_share_buffer(
    rank: int, world: int, device: Any, *, layout: VocabLayout, form: str, rows: int, seed: int
) -> dict[str, bool]:
    """Two threads with their own groups and inputs, one set of buffers; both fill before either gathers.

    Returns whether each thread's log-probabilities equal those of a call of its own ("first", "second").
    The first thread fills first, so whoever shares its memory has overwritten it when it gathers.
    """
    import torch
    import torch.distributed as dist

    filled = [threading.Event(), threading.Event()]

    def first_waits() -> None:
        filled[0].set()
        _wait(filled[1], "the second thread's message")

    groups = [dist.new_group(list(range(world))) for _ in range(3)]
    buffers: Buffers | None = None
    hooks: list[Callable[[], None]] = [first_waits, filled[1].set]
    calls, jobs, expected = [], [], []
    for index in range(2):
        comm = CountingCollectives(groups[index])
        call = SelectedLogprob(form, layout, comm, buffers=buffers, before_gather=hooks[index])
        buffers = call.buffers
        job = inputs(layout, rows, seed + index, device, rank)
        calls.append(call)
        jobs.append(job)
        expected.append(SelectedLogprob("reference", layout, CountingCollectives(groups[2]))(*job))
    got: dict[int, Any] = {}
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            if index == 1:
                _wait(filled[0], "the first thread's message")
            got[index] = calls[index](*jobs[index])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * STEP_S)
    if failures or len(got) < 2:
        raise RunError(f"a thread did not finish: {failures[0] if failures else 'it still runs'}")
    return {name: torch.equal(got[index], expected[index]) for index, name in enumerate(("first", "second"))}


def one_rank_forgets(
    rank: int,
    world: int,
    device: Any,
    *,
    layout: VocabLayout,
    form: str,
    rows: int,
    seed: int,
    forgetful: int = 1,
    then: str = "gather",
) -> dict[str, Any]:
    """All ranks call once; then rank ``forgetful`` loses what it had verified, and all call again.

    With ``then="barrier"`` the second call is the agreement alone, followed by a barrier in another
    group: ranks that skip the agreement wait there for the one that did not.
    Returns whether the second call was right and what this rank issued in it.
    """
    import torch
    import torch.distributed as dist

    elsewhere = dist.new_group(list(range(world)))
    call = SelectedLogprob(form, layout, CountingCollectives())
    job = inputs(layout, rows, seed, device, rank)
    first = call(*job)
    if rank == forgetful and isinstance(call.preflight, RankLocalCache | AgreedCache):
        call.preflight.forget()
    call.comm.calls.clear()
    if then == "barrier":
        call.agree(rows, device)
        dist.barrier(group=elsewhere)
        return {"right": True, "collectives": dict(call.comm.calls)}
    second = call(*job)
    return {"right": torch.equal(first, second), "collectives": dict(call.comm.calls)}


def ranks_disagree(
    rank: int,
    world: int,
    device: Any,
    *,
    layouts: Sequence[VocabLayout],
    form: str,
    rows: int,
    seed: int,
) -> dict[str, Any]:
    """Rank r believes in ``layouts[r]``. A form that checks raises LogprobContractError on every rank.

    Returns the log-probabilities where nobody objected.
    """
    layout = layouts[rank]
    call = SelectedLogprob(form, layout, CountingCollectives())
    return {"logprobs": call(*inputs(layout, rows, seed, device, rank)).cpu().numpy()}


def groups_come_and_go(
    rank: int,
    world: int,
    device: Any,
    *,
    layout: VocabLayout,
    form: str,
    rows: int,
    seed: int,
    rounds: int = 40,
) -> dict[str, Any]:
    """Make a group, call once with a cache that outlives groups, destroy the group, and again.

    Returns ``reused_ids`` (rounds whose group had the id of an earlier one) and ``unchecked`` (rounds
    whose first call was taken for verified). A key that names the group leaves ``unchecked`` at 0.
    """
    import torch.distributed as dist

    preflight = SelectedLogprob(form, layout, CountingCollectives()).preflight
    if not isinstance(preflight, RankLocalCache | AgreedCache):
        raise RunError(f"form {form} keeps no cache of verified groups")
    job = inputs(layout, rows, seed, device, rank)
    seen: set[int] = set()
    reused = unchecked = 0
    for _ in range(rounds):
        group = dist.new_group(list(range(world)))
        reused += id(group) in seen
        seen.add(id(group))
        hits = preflight.counts.hits
        SelectedLogprob(form, layout, CountingCollectives(group), preflight=preflight)(*job)
        unchecked += preflight.counts.hits - hits
        dist.destroy_process_group(group)
        del group
    return {"reused_ids": reused, "unchecked": unchecked, "rounds": rounds}


def visit_row_counts(
    rank: int, world: int, device: Any, *, layout: VocabLayout, row_counts: Sequence[int], passes: int
) -> dict[str, dict[str, float]]:
    """Hit rates after the first pass when calls visit ``row_counts`` in turn.

    Returns for the shared and the owned buffers, and for the rank-local and the agreed cache of
    verified digests, ``{"hit_rate", "evictions"}``.
    """
    comm = CountingCollectives()
    buffers: dict[str, Buffers] = {"shared_buffers": SharedBuffers(), "owned_buffers": OwnedBuffers()}
    report = {}
    for name, kept in buffers.items():
        for _ in range(passes):
            before = kept.counts.hits
            for rows in row_counts:
                kept.take(MessageShape(rows, layout.max_tiles), comm, device)
        report[name] = _rates(kept.counts.hits - before, len(row_counts), kept.counts.evictions)
    caches: dict[str, RankLocalCache | AgreedCache] = {
        "rank_local_cache": RankLocalCache(),
        "agreed_cache": AgreedCache(),
    }
    for name, cache in caches.items():
        form = "packed_once" if isinstance(cache, RankLocalCache) else "safe_agreed"
        call = SelectedLogprob(form, layout, comm, preflight=cache)
        jobs = [inputs(layout, rows, 0, device, rank) for rows in row_counts]
        for _ in range(passes):
            before = cache.counts.hits
            for job in jobs:
                call(*job)
        report[name] = _rates(cache.counts.hits - before, len(row_counts), cache.counts.evictions)
    return report


def _rates(hits: int, asked: int, evictions: int) -> dict[str, float]:
    return {"hit_rate": hits / asked, "evictions": float(evictions)}


def _wait(event: threading.Event, what: str) -> None:
    if not event.wait(STEP_S):
        raise RunError(f"waited {STEP_S:.0f} s for {what}")
