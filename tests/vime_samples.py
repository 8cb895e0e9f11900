"""Made-up results of the vime-decode benchmarks, whose right readings are known."""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict
from typing import Any

from rcatools.experiment import product_recording as conversion
from rcatools.workload.vime import product as pr

ROWS = (8, 64)
# What each arm takes against the default, and each factor's step against the level before it.
ARM_RATIOS = {"default": 1.0, "default_again": 1.0, "default_deeper": 0.6, "torch": 0.5, "default_whole": 3.0}
LEVELS: dict[str, dict[int, float]] = {
    "block_m": {16: 1.0, 32: 1.1},
    "block_n": {32: 1.0, 64: 1.2, 128: 1.8},
    "warps": {2: 1.0, 4: 0.9},
    "stages": {2: 1.0, 4: 0.5},
}
READ_SHARE = 0.25
DEVICE = {"backend": "cuda", "name": "a card", "arch": "sm_90", "memory_bytes": 1, "multiprocessors": 132}


def made_up(processes: int = 4, blocks: int = 3) -> dict[str, Any]:
    """A benchmark result whose times are products of the numbers above and a common drift per process."""

    def times(value: float) -> list[list[float]]:
        return [[value * (1 + 0.01 * p) * (1 + 0.001 * b) for b in range(blocks)] for p in range(processes)]

    table, grid, equality = [], [], []
    for shape, rows in itertools.product(pr.QWEN3_8B_TP4, ROWS):
        base = shape.weight_bytes / 1e6
        chosen, split = pr.select_config(rows, shape), pr.splits(rows, shape.depth)
        arms = dict(ARM_RATIOS)
        if chosen != pr.DEFAULT:
            arms |= {"specialised": 1.1 if rows == 8 else 0.8, "specialised_deeper": 0.7}
        for arm, ratio in arms.items():
            config = chosen if arm.startswith("specialised") else pr.DEFAULT
            launch = pr.describe_launch(rows, shape, config, split)
            name = config.name + ("_deeper" if arm.endswith("_deeper") else "")
            table.append(row(shape, rows, arm, times(base * ratio), name, launch.__dict__))
        table[-1 * len(arms) :] = [
            item | ({"launch": None, "config": None} if item["arm"] == "torch" else {})
            for item in table[-1 * len(arms) :]
        ]
        for block, slower in ((4096, 1.5), (8192, 1.0)):
            table.append(row(shape, rows, f"read_{block}", times(base * READ_SHARE * slower), None, None))
        for levels in itertools.product(*LEVELS.values()):
            config_values = dict(zip(LEVELS, levels, strict=True))
            factor = math.prod(LEVELS[name][level] for name, level in config_values.items())
            config = {"name": "_".join(map(str, levels)), **config_values, "group_m": 1, "waves_per_eu": 0}
            launch = pr.describe_launch(rows, shape, pr.ProductConfig(**config), split)
            drifting = [base * factor * (1 + 0.02 * b) for b in range(5)]
            grid.append(
                {
                    "shape": shape.name,
                    "rows": rows,
                    "config": config,
                    "launch": launch.__dict__,
                    "us_per_call": drifting,
                }
            )
        for config_name, schedule in (("default", True), ("default", False), ("torch", None)):
            equality.append(
                {
                    "shape": shape.name,
                    "rows": rows,
                    "config": config_name,
                    "split": schedule,
                    "equal_to_default": config_name != "torch",
                    "different_elements": 0,
                    "equal_to_batch_of_64": True,
                    "relative_error": 0.003,
                }
            )
    ceilings = {"read_bytes": 2**31, "read_us": {"4096": [500.0], "8192": [400.0]}, "empty_kernel_us": [0.5]}
    return {
        "format": conversion.FORMAT,
        "not_run": [],
        "device": DEVICE,
        "environment": {"python": "3.12.3", "packages": {"torch": "2.11.0"}},
        "processes": [{"seed": p, "clocks": None, "unix_time": 1.8e9 + p} for p in range(processes)],
        "ceilings": [ceilings] * processes,
        "compiled": compiled(),
        "equality": equality,
        "table": table,
        "grid": grid,
    }


def compiled() -> list[dict[str, Any]]:
    """Resources by a rule that a hand can follow: shared memory as the tiles need, 8 programs for each two warps."""
    tiles = [asdict(config) for config in pr.PUBLISHED]
    for levels in itertools.product(*LEVELS.values()):
        tile = dict(zip(LEVELS, levels, strict=True))
        tiles.append({"name": "_".join(map(str, levels)), **tile, "group_m": 1, "waves_per_eu": 0})
    return [
        {
            "config": tile,
            "kernel": kernel,
            "registers": 56,
            "shared_bytes": 2 * pr.BLOCK_K * (tile["block_m"] + tile["block_n"]) * (tile["stages"] - 1),
            "programs_per_sm": 16 // tile["warps"],
        }
        for tile in tiles
        for kernel in ("chunk_products", "whole_product")
    ]


def row(shape: Any, rows: int, arm: str, us: Any, config: str | None, launch: Any) -> dict[str, Any]:
    return {
        "shape": shape.name,
        "rows": rows,
        "arm": arm,
        "config": config,
        "launch": launch,
        "weight_bytes": shape.weight_bytes,
        "copies": 2,
        "us_per_call": us,
    }


def graph_result(processes: int = 1) -> dict[str, Any]:
    """A result of the graph benchmark: one form refused, one hazard met by the published form alone."""

    def scenario(result: Any, state: str = "done") -> dict[str, Any]:
        results = {} if result is None else {"0": result}
        return {"state": state, "errors": {}, "results": results, "seconds": 1.0}

    kept = {
        "captured": True,
        "error": None,
        "replay_equal": True,
        "collectives_at_capture": {"all_gather": 1},
        "collectives_at_replay": {},
    }
    evicted = {"address_reused": True, "neighbours": 8, "replay_equal": True, "evictions": 9}
    return {
        "format": "rcatools-capture-hazards-2",
        "world": 1,
        "device": DEVICE,
        "environment": {"python": "3.12.3", "packages": {"torch": "2.11.0"}, "code": {"commit": "a" * 40}},
        "unix_time": 1.8e9,
        "not_run": [],
        "scenarios": {
            "gather_list": scenario({"captured": True, "error": None, "replay_equal": True}),
            "capture_forms": scenario({"packed": kept, "packed_cached_column": kept, "safe_carried": kept}),
            "capture_reference": scenario({"reference": {"captured": False, "error": "no <b>copy</b>"}}),
            "capture_lost": scenario(None, "hang"),
            "evicted_unsafe": scenario(evicted | {"neighbour_changed": 1032}),
            "evicted_safe": scenario(evicted | {"neighbour_changed": 0}),
            "streams_unsafe": scenario({"first_right": False, "second_right": True}),
            "streams_safe": scenario({"first_right": True, "second_right": True}),
            "timed_replays_lost": scenario(None, "hang"),
            **{f"timed_replays_{process}": scenario(replay_times(process)) for process in range(processes)},
        },
    }


# What each form takes beyond the launch, in a graph (20 us) and eagerly (300 us).
FORM_US = {"packed": 10.0, "packed_cached": 5.0, "packed_cached_again": 5.0, "packed_cached_column": 4.0}
FORM_US |= {"safe_carried": 5.0, "packed_readback": 60.0}


def replay_times(process: int) -> list[dict[str, Any]]:
    """Times of one process: a drift of 1 % a process that all forms share, and three blocks."""
    return [
        {"form": form, "how": how, "rows": rows, "us_per_call": [us, us + 0.02, us + 0.01]}
        for form, offset in FORM_US.items()
        for how, base in (("graph", 20.0), ("eager", 300.0))
        if (form, how) != ("packed_readback", "graph")
        for rows in (1, 8)
        for us in ((base + offset) * (1 + 0.01 * process),)
    ]
