"""Measures the decode product on one GPU: arms and their graphs, bit equality, resources, a factor grid.

Imports torch and Triton: only for a process that measures. Not run on ROCm.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from rcatools.workload.vime import product as pr
from rcatools.workload.vime import product_kernels as kernels

ROWS = (1, 4, 8, 16, 64)
ROTATED_BYTES = 320 * 2**20
MOST_COPIES = 40
REPLAYS = 4
GRID = {"block_m": (16, 32), "block_n": (32, 64, 128), "warps": (2, 4), "stages": (2, 4)}
GRID_ROWS = (1, 16, 64)
GRID_BLOCKS = 6
DEEPER = 4  # stages of the arms that only have more loads in flight than the published configurations
READ_BLOCKS = ((4096, 4), (8192, 4), (16384, 8))
BACKEND = "hip" if torch.version.hip else "cuda"


@dataclass(frozen=True)
class Operands:
    """One shape's tensors: ``copies`` equal weights at different addresses, inputs, scratch, output."""

    shape: pr.ProductShape
    weights: list[torch.Tensor]
    x: torch.Tensor
    partial: torch.Tensor
    out: torch.Tensor


class Graphs:
    """Captures calls on one stream and times replays with events."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.kept: list[torch.cuda.CUDAGraph] = []

    def capture(self, call: Any, copies: int) -> tuple[torch.cuda.CUDAGraph, int]:
        """A graph of ``call(i)`` for i below ``copies``; one eager pass first compiles and warms up."""
        with torch.cuda.stream(self.stream):
            for index in range(min(copies, 2)):
                call(index)
            self.stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                for index in range(copies):
                    call(index)
        return graph, copies

    def time_us(self, graph: torch.cuda.CUDAGraph, copies: int, replays: int = REPLAYS) -> float:
        """Microseconds per call over ``replays`` replays, after one untimed replay."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self.stream):
            graph.replay()
            start.record()
            for _ in range(replays):
                graph.replay()
            end.record()
            end.synchronize()
        return 1000.0 * float(start.elapsed_time(end)) / (replays * copies)


def make_operands(shape: pr.ProductShape, generator: torch.Generator) -> Operands:
    """Random operands; the weight is copied until the copies exceed the caches several times."""
    copies = min(MOST_COPIES, max(2, -(-ROTATED_BYTES // shape.weight_bytes)))
    first = torch.randn((shape.cols, shape.depth), generator=generator, device="cuda") / shape.depth**0.5
    weight = first.to(torch.bfloat16)
    return Operands(
        shape=shape,
        weights=[weight] + [weight.clone() for _ in range(copies - 1)],
        x=torch.randn((max(ROWS), shape.depth), generator=generator, device="cuda").to(torch.bfloat16),
        partial=torch.empty(
            (pr.chunk_count(shape.depth) * max(ROWS) * shape.cols,), dtype=torch.float32, device="cuda"
        ),
        out=torch.empty((max(ROWS) * shape.cols,), dtype=torch.bfloat16, device="cuda"),
    )


def views(ops: Operands, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Input, scratch and output of ``rows`` rows, contiguous."""
    chunks = pr.chunk_count(ops.shape.depth)
    partial = ops.partial[: chunks * rows * ops.shape.cols].view(chunks, rows, ops.shape.cols)
    return ops.x[:rows], partial, ops.out[: rows * ops.shape.cols].view(rows, ops.shape.cols)


def product_call(ops: Operands, rows: int, config: pr.ProductConfig, split: bool, part: str = "all") -> Any:
    """A call for ``Graphs.capture``: the product on weight copy i, or one of its two kernels."""
    x, partial, out = views(ops, rows)

    def call(index: int) -> None:
        weight = ops.weights[index]
        if part == "products":
            pr.partial_only(x, weight, partial, config, backend=BACKEND)
        elif part == "sum":
            pr.reduce_only(partial, out)
        else:
            pr.product(x, weight, config, split=split, partial=partial, out=out, backend=BACKEND)

    return call


def planted_call(ops: Operands, rows: int) -> Any:
    """The default product and one empty kernel more: a known cost that the table must show."""
    call = product_call(ops, rows, pr.DEFAULT, pr.splits(rows, ops.shape.depth))
    flag = torch.zeros((1,), device="cuda")

    def both(index: int) -> None:
        call(index)
        kernels.do_nothing[(1,)](flag, num_warps=1)

    return both


def torch_call(ops: Operands, rows: int) -> Any:
    """The vendor library's product through torch."""
    x, _, out = views(ops, rows)
    turned = [weight.t() for weight in ops.weights]
    return lambda index: torch.mm(x, turned[index], out=out)


def read_call(ops: Operands, block: int, warps: int) -> Any:
    """Read one weight copy once: the floor a product cannot beat without caching."""
    count = ops.weights[0].numel()
    programs = -(-count // block)
    sums = torch.empty((programs,), dtype=torch.float32, device="cuda")

    def call(index: int) -> None:
        kernels.read_all[(programs,)](ops.weights[index], sums, count, BLOCK=block, num_warps=warps)

    return call


def resources(kernel: Any, config: pr.ProductConfig) -> dict[str, Any]:
    """Registers, spills, shared memory and how many programs fit on one multiprocessor."""
    props = torch.cuda.get_device_properties(0)
    if hasattr(kernel, "_init_handles"):
        kernel._init_handles()
    registers, shared = int(kernel.n_regs), int(kernel.metadata.shared)
    threads = 32 * config.warps
    limits = {
        "registers": getattr(props, "regs_per_multiprocessor", 65536)
        // (max(8, -(-registers // 8) * 8) * threads),
        "shared": getattr(props, "shared_memory_per_multiprocessor", 233472) // (shared + 1024),
        "threads": props.max_threads_per_multi_processor // threads,
        "programs": 32,
    }
    return {
        "registers": registers,
        "spills": int(kernel.n_spills),
        "shared_bytes": shared,
        "programs_per_sm": min(limits.values()),
        "limited_by": min(limits, key=lambda name: limits[name]),
    }


def deeper(config: pr.ProductConfig) -> pr.ProductConfig:
    """The same tile with more stages: more loads in flight, the same programs and the same bytes."""
    return replace(config, name=f"{config.name}_deeper", stages=DEEPER)


def arms_of(ops: Operands, rows: int) -> dict[str, Any]:
    """The arms of the main table: name to a call; what a name means is in ``describe_arm``."""
    chosen = pr.select_config(rows, ops.shape)
    arms = {
        "default": product_call(ops, rows, pr.DEFAULT, pr.splits(rows, ops.shape.depth)),
        "default_again": product_call(ops, rows, pr.DEFAULT, pr.splits(rows, ops.shape.depth)),
        "default_planted": planted_call(ops, rows),
        "default_whole": product_call(ops, rows, pr.DEFAULT, False),
        "default_deeper": product_call(ops, rows, deeper(pr.DEFAULT), pr.splits(rows, ops.shape.depth)),
        "torch": torch_call(ops, rows),
    }
    if chosen != pr.DEFAULT:
        arms["specialised"] = product_call(ops, rows, chosen, pr.splits(rows, ops.shape.depth))
        arms["specialised_whole"] = product_call(ops, rows, chosen, False)
        arms["specialised_deeper"] = product_call(ops, rows, deeper(chosen), pr.splits(rows, ops.shape.depth))
    if pr.splits(rows, ops.shape.depth):
        for label, config in {"default": pr.DEFAULT, "specialised": chosen}.items():
            if label in arms:
                arms[f"{label}_products"] = product_call(ops, rows, config, True, "products")
        arms["chunk_sum"] = product_call(ops, rows, pr.DEFAULT, True, "sum")
    arms |= {f"read_{block}": read_call(ops, block, warps) for block, warps in READ_BLOCKS}
    return arms


def measure(
    graphs: Graphs, arms: dict[str, Any], copies: int, blocks: int, order: np.random.Generator
) -> dict[str, list[float]]:
    """Per arm one time per block, all arms in each block in random order."""
    captured = {name: graphs.capture(call, copies) for name, call in arms.items()}
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(blocks):
        for name in order.permutation(sorted(arms)):
            times[str(name)].append(graphs.time_us(*captured[str(name)]))
    return times


def main_table(
    ops: Operands, graphs: Graphs, blocks: int, order: np.random.Generator
) -> list[dict[str, Any]]:
    """Every arm at every row count."""
    table = []
    for rows in ROWS:
        chosen = pr.select_config(rows, ops.shape)
        split = pr.splits(rows, ops.shape.depth)
        for arm, times in measure(graphs, arms_of(ops, rows), len(ops.weights), blocks, order).items():
            config = chosen if arm.startswith("specialised") else pr.DEFAULT
            config = deeper(config) if arm.endswith("_deeper") else config
            launch = pr.describe_launch(rows, ops.shape, config, split and not arm.endswith("_whole"))
            if arm.endswith("_products"):
                launch = replace(launch, kernels=1, partial_bytes=launch.partial_bytes // 2, out_bytes=0)
            if arm.endswith("_planted"):
                launch = replace(launch, kernels=launch.kernels + 1, programs=launch.programs + 1)
            ours = arm.startswith(("default", "specialised"))
            table.append(
                {
                    "shape": ops.shape.name,
                    "rows": rows,
                    "arm": arm,
                    "config": config.name if ours else None,
                    "launch": asdict(launch) if ours else None,
                    "weight_bytes": ops.shape.weight_bytes,
                    "copies": len(ops.weights),
                    "us_per_call": rounded(times),
                }
            )
    return table


def rounded(times: list[float]) -> list[float]:
    """Microseconds to the tenth of a nanosecond, which keeps the file small."""
    return [round(value, 4) for value in times]


def grid_configs() -> list[pr.ProductConfig]:
    """Every combination of the factor grid."""
    combos = itertools.product(*GRID.values())
    return [
        replace(pr.DEFAULT, name="_".join(map(str, values)), **dict(zip(GRID, values, strict=True)))
        for values in combos
    ]


def factor_grid(ops: Operands, rows: int, graphs: Graphs, order: np.random.Generator) -> list[dict[str, Any]]:
    """Time the split schedule's first kernel and the whole call for each combination."""
    split = pr.splits(rows, ops.shape.depth)
    configs = {config.name: config for config in grid_configs()}
    arms = {name: product_call(ops, rows, config, split) for name, config in configs.items()}
    times = measure(graphs, arms, len(ops.weights), GRID_BLOCKS, order)
    return [
        {
            "shape": ops.shape.name,
            "rows": rows,
            "config": asdict(configs[name]),
            "launch": asdict(pr.describe_launch(rows, ops.shape, configs[name], split)),
            "us_per_call": rounded(values),
        }
        for name, values in times.items()
    ]


def compiled(ops: Operands, configs: list[pr.ProductConfig]) -> list[dict[str, Any]]:
    """Resources of both kernels of every configuration."""
    x, partial, out = views(ops, 16)
    rows = []
    for config in configs:
        started = time.perf_counter()
        pair = {
            "chunk_products": pr.partial_only(x, ops.weights[0], partial, config, backend=BACKEND),
            "whole_product": pr.whole(x, ops.weights[0], out, config, backend=BACKEND),
        }
        for kernel, handle in pair.items():
            rows.append({"config": asdict(config), "kernel": kernel} | resources(handle, config))
        rows[-1]["compile_s_both"] = time.perf_counter() - started
    torch.cuda.synchronize()
    return rows


def equality(ops: Operands) -> list[dict[str, Any]]:
    """Bits of every configuration and schedule against default split, and rows against a batch of 64."""
    weight = ops.weights[0]
    configs = [*pr.PUBLISHED, *grid_configs()]
    batch = {
        (config.name, split): pr.product(ops.x, weight, config, split=split, backend=BACKEND)
        for config in configs
        for split in (True, False)
    }
    rows = []
    for count in ROWS:
        x = ops.x[:count]
        exact = x.double() @ weight.double().t()
        base = pr.product(x, weight, pr.DEFAULT, split=True, backend=BACKEND)
        for config, split in itertools.product(configs, (True, False)):
            got = pr.product(x, weight, config, split=split, backend=BACKEND)
            rows.append(
                {
                    "shape": ops.shape.name,
                    "rows": count,
                    "config": config.name,
                    "split": split,
                    "equal_to_default": torch.equal(got, base),
                    "different_elements": int((got != base).sum()),
                    "equal_to_batch_of_64": torch.equal(got, batch[config.name, split][:count]),
                    "relative_error": float((got.double() - exact).abs().max() / exact.abs().max()),
                }
            )
        library = torch.mm(x, weight.t())
        rows.append(
            {
                "shape": ops.shape.name,
                "rows": count,
                "config": "torch",
                "split": None,
                "equal_to_default": torch.equal(library, base),
                "different_elements": int((library != base).sum()),
                "equal_to_batch_of_64": torch.equal(library, torch.mm(ops.x, weight.t())[:count]),
                "relative_error": float((library.double() - exact).abs().max() / exact.abs().max()),
            }
        )
    return rows


def ceilings(graphs: Graphs, blocks: int) -> dict[str, Any]:
    """Read bandwidth over 2 GiB, and the cost of an empty kernel inside a graph."""
    big = torch.randn((2**30,), device="cuda", dtype=torch.float32).to(torch.bfloat16)
    sums = torch.empty((2**30 // 4096,), dtype=torch.float32, device="cuda")
    read: dict[str, list[float]] = {}
    for block, warps in READ_BLOCKS:
        grid = (2**30 // block,)
        graph = graphs.capture(
            lambda _, grid=grid, block=block, warps=warps: kernels.read_all[grid](
                big, sums, 2**30, BLOCK=block, num_warps=warps
            ),
            1,
        )
        read[str(block)] = [graphs.time_us(*graph) for _ in range(blocks)]
    flag = torch.zeros((1,), device="cuda")
    empty = graphs.capture(lambda _: kernels.do_nothing[(1,)](flag, num_warps=1), 200)
    return {
        "read_bytes": 2**31,
        "read_us": {block: rounded(times) for block, times in read.items()},
        "empty_kernel_us": rounded([graphs.time_us(*empty) for _ in range(blocks)]),
    }


def measure_table(seed: int, blocks: int) -> dict[str, Any]:
    """One process's share: ceilings and the whole table."""
    order, graphs = np.random.default_rng(seed), Graphs()
    generator = torch.Generator(device="cuda").manual_seed(seed)
    result: dict[str, Any] = {"ceilings": ceilings(graphs, blocks), "table": []}
    for shape in pr.QWEN3_8B_TP4:
        ops = make_operands(shape, generator)
        result["table"] += main_table(ops, graphs, blocks, order)
        del ops
        torch.cuda.empty_cache()
    return result


def measure_once(seed: int, deadline: float) -> Iterator[dict[str, Any]]:
    """What one process suffices for: compiled resources, bit equality, the factor grid.

    Yields the whole result after every stage, so that a caller can keep what was finished; ``not_run`` names
    the stages still missing. The grid ends at ``deadline`` (Unix time); equality is measured first.
    """
    order, graphs = np.random.default_rng(seed), Graphs()
    generator = torch.Generator(device="cuda").manual_seed(seed)
    configs = [*pr.PUBLISHED, *grid_configs()]
    grids = [f"{shape.name} grid {rows}" for shape in pr.QWEN3_8B_TP4 for rows in GRID_ROWS]
    left = [f"{shape.name} equality" for shape in pr.QWEN3_8B_TP4] + grids
    result: dict[str, Any] = {"compiled": [], "equality": [], "grid": [], "not_run": left}
    for shape in pr.QWEN3_8B_TP4:
        ops = make_operands(shape, generator)
        result["compiled"] = result["compiled"] or compiled(ops, configs)
        result["equality"] += equality(ops)
        left.remove(f"{shape.name} equality")
        yield result
        del ops
        torch.cuda.empty_cache()
    for shape in pr.QWEN3_8B_TP4:
        if time.time() > deadline:
            break
        ops = make_operands(shape, generator)
        for rows in GRID_ROWS:
            if time.time() > deadline:
                break
            result["grid"] += factor_grid(ops, rows, graphs, order)
            left.remove(f"{shape.name} grid {rows}")
        yield result
        del ops
        torch.cuda.empty_cache()
    yield result
