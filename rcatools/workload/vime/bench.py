"""One timed run of a log-probability form over fresh worker groups, for the engine or by hand.

    python -m rcatools.workload.vime.bench --world 2 --forms reference,packed_cached --blocks 10

A run starts one group of processes per world size. A call ends when its slowest rank ends, so each
sample is the largest over ranks. On the CPU the transport is gloo over loopback: ratios between forms say
nothing about NCCL or RCCL.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from rcatools.errors import InputError, RunError, UnknownNameError
from rcatools.workload.vime.checks import Variant
from rcatools.workload.vime.contract import NUM_TILES, VocabLayout
from rcatools.workload.vime.group import run_group
from rcatools.workload.vime.logprob import FORMS

SETTINGS = {"form", "extra_gathers", "repeats"}


@dataclass(frozen=True)
class BenchConfig:
    """Size of a run.

    Attributes:
        vocab: words of the vocabulary.
        rows: rows per call (sequences decoded together).
        worlds: world sizes, comma-separated; each gets its own metrics.
        judged: the world size whose metrics carry no number in their name.
        calls: timed calls per run and world size.
        best_of: a sample is the fastest of so many calls in a row. Other processes can only add time, and
            on a shared CPU they add it to most calls; 1 keeps every call.
        watchdog_s: seconds after which a group is ended.
        seed: of logits and targets.
    """

    vocab: int = 151_936
    rows: int = 8
    worlds: str = "1,2,4"
    judged: int = 2
    calls: int = 100
    best_of: int = 1
    watchdog_s: float = 60.0
    seed: int = 1

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> BenchConfig:
        """From names and values, text converted to the field's type.

        Raises:
            UnknownNameError: a name is not a field.
            InputError: a value is not of the field's type or not positive.
        """
        kinds: dict[str, type] = {item.name: type(getattr(cls(), item.name)) for item in fields(cls)}
        chosen: dict[str, Any] = {}
        for name, value in values.items():
            if name not in kinds:
                raise UnknownNameError("workload parameter", name, kinds)
            try:
                chosen[name] = kinds[name](value)
            except (TypeError, ValueError):
                raise InputError(
                    f"workload parameter {name} must be {kinds[name].__name__}, got {value!r}"
                ) from None
            if name not in {"worlds", "seed"} and not 0 < chosen[name] < math.inf:
                raise InputError(f"workload parameter {name} must be positive, got {value!r}")
        return cls(**chosen)

    def world_sizes(self) -> tuple[int, ...]:
        """The world sizes as numbers.

        Raises:
            InputError: one is not a whole number that divides the tiles.
        """
        sizes = []
        for text in self.worlds.split(","):
            if not text.strip().isdigit() or int(text) < 1 or NUM_TILES % int(text):
                raise InputError(f"world size {text!r} must divide {NUM_TILES} tiles, as in worlds=1,2,4")
            sizes.append(int(text))
        if self.judged not in sizes:
            raise InputError(f"the judged world size {self.judged} is not among worlds={self.worlds}")
        return tuple(sizes)

    def label(self, world: int) -> str:
        """What stands before "_us" in a metric of that world size: nothing for the judged one."""
        return "" if world == self.judged else f"_{world}"


def check_parameters(values: Mapping[str, Any]) -> None:
    """Refuse what :func:`run` would refuse; errors as in :meth:`BenchConfig.from_mapping`."""
    BenchConfig.from_mapping(values).world_sizes()


def variant_of(settings: Mapping[str, Any]) -> Variant:
    """The variant an arm's settings name.

    Raises:
        UnknownNameError: a setting or the form is not known.
    """
    for name in settings:
        if name not in SETTINGS:
            raise UnknownNameError("arm setting", name, SETTINGS)
    if settings.get("form") not in FORMS:
        raise UnknownNameError("form", str(settings.get("form")), FORMS)
    return Variant(
        str(settings["form"]), int(settings.get("extra_gathers", 0)), int(settings.get("repeats", 1))
    )


def run(torch: Any, task: Mapping[str, Any]) -> dict[str, Any]:
    """One run of an arm, in the engine's form.

    Metrics are ``exchange_us`` and ``call_us`` at the judged world size and ``exchange_<world>_us`` and
    ``call_<world>_us`` at the others. An untimed inspection checks bits over ranks, uneven shards and
    padded vocabularies instead.

    Raises:
        RunError: a group did not end well, or a result differs from the computation on one rank.
    """
    config = BenchConfig.from_mapping(task["config"])
    variant = variant_of(task["arm"].get("settings", {}))
    device = "cpu" if task["backend"] == "cpu" else "cuda"
    if task["block"] < 0:
        return {"samples": {}, "kernels": {}, "facts": check_bits(config, variant.form, device)}
    samples: dict[str, list[float]] = {}
    facts: dict[str, Any] = {"transport": "gloo" if device == "cpu" else "nccl"}
    facts["processors"] = len(os.sched_getaffinity(0))
    hashes = set()
    for world in config.world_sizes():
        timed = time_variants(config, world, {"arm": variant}, device=device, start="fork")
        arm = timed["variants"]["arm"]
        label = config.label(world)
        samples[f"exchange{label}_us"] = fastest(arm["exchange_us"][0], config.best_of)
        samples[f"call{label}_us"] = fastest(arm["call_us"][0], config.best_of)
        for name in ("collectives_per_call", "backend_collectives_per_call", "bytes_per_call"):
            facts[f"{name}_{world}"] = arm[name]
        hashes.add(timed["output_sha256"])
    if len(hashes) != 1:
        raise RunError("log-probabilities differ between world sizes")
    return {"samples": samples, "kernels": {}, "facts": facts | {"output_sha256": hashes.pop()}}


def fastest(times: Sequence[float], best_of: int) -> list[float]:
    """The smallest of each ``best_of`` consecutive times; a rest that is shorter is one sample too."""
    return [min(times[first : first + best_of]) for first in range(0, len(times), best_of)]


def time_variants(
    config: BenchConfig,
    world: int,
    variants: Mapping[str, Variant],
    *,
    device: str = "cpu",
    blocks: int = 1,
    start: str = "forkserver",
) -> dict[str, Any]:
    """Time variants side by side in one group of ``world`` processes.

    Returns {"variants": {name: {"exchange_us": [block][call], "call_us": ..., per-call counts}},
    "output_sha256"}; times are the slowest rank's.

    Raises:
        RunError: the group did not end well, or bits differ.
    """
    import numpy as np

    arguments = {
        "layout": VocabLayout.even(config.vocab, world),
        "variants": dict(variants),
        "rows": config.rows,
        "seed": config.seed,
        "calls": config.calls,
        "blocks": blocks,
    }
    ranks = run_group(
        "checks.timed_calls",
        world,
        watchdog_s=config.watchdog_s,
        device=device,
        arguments=arguments,
        start=start,
    ).require()
    if not all(result["equal"] for result in ranks.values()):
        raise RunError(f"log-probabilities of {world} ranks differ from those of one rank")
    merged = {}
    for name in variants:
        parts = [result["variants"][name] for result in ranks.values()]
        merged[name] = dict(parts[0]) | {
            metric: np.max([part[metric] for part in parts], axis=0).tolist()
            for metric in ("exchange_us", "call_us")
        }
    digest = hashlib.sha256(ranks[0]["logprobs"].tobytes()).hexdigest()
    return {"variants": merged, "output_sha256": digest}


def check_bits(config: BenchConfig, form: str, device: str = "cpu") -> dict[str, Any]:
    """Compare a form's bits over world sizes, even and uneven shards, whole and padded vocabularies.

    Returns {"layouts_checked", "bits_equal"}.

    Raises:
        RunError: any result differs from the reference form on one rank.
    """
    checked = 0
    for vocab, padded in ((config.vocab, None), (4000, 4096)):
        seen: set[bytes] = set()
        for world in config.world_sizes():
            for layout in layouts(vocab, padded, world):
                arguments = {"layout": layout, "rows": [config.rows], "seed": config.seed, "forms": [form]}
                outcome = run_group(
                    "checks.all_forms",
                    world,
                    watchdog_s=config.watchdog_s,
                    device=device,
                    arguments=arguments,
                    start="fork",
                )
                for result in outcome.require().values():
                    seen.add(result["logprobs"][form, config.rows].tobytes())
                    seen.add(result["serial"][config.rows].tobytes())
                checked += 1
        if len(seen) != 1:
            raise RunError(f"form {form}: {len(seen)} different results for one vocabulary of {vocab}")
    return {"layouts_checked": checked, "bits_equal": True}


def layouts(vocab: int, padded: int | None, world: int) -> list[VocabLayout]:
    """The even layout and, from two ranks on, one whose first rank holds a tile more than its share."""
    even = VocabLayout.even(vocab, world)
    if padded is not None:
        even = VocabLayout(vocab, padded, even.tile_counts)
    if world == 1:
        return [even]
    counts = list(even.tile_counts)
    counts[0], counts[-1] = counts[0] + 1, counts[-1] - 1
    return [even, VocabLayout(even.vocab, even.padded, tuple(counts))]


def main(argv: Sequence[str] | None = None) -> int:
    """Time forms by hand and print one JSON document."""
    parser = argparse.ArgumentParser(prog="python -m rcatools.workload.vime.bench", description=__doc__)
    parser.add_argument("--forms", default=",".join(FORMS), help="comma-separated")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    args = parser.parse_args(argv)
    config = BenchConfig(vocab=args.vocab, rows=args.rows, calls=args.calls, seed=args.seed)
    variants = {name: variant_of({"form": name}) for name in args.forms.split(",")}
    timed = time_variants(config, args.world, variants, device=args.device, blocks=args.blocks)
    timed |= {"config": asdict(config) | {"worlds": str(args.world)}, "device": args.device}
    json.dump(timed, sys.stdout, allow_nan=False)
    print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
