"""The vLLM command lines of a run, and the environment they get."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rcatools.serving import variants

BENCHES = ("latency", "serve")
_SECRET = ("key", "token", "secret", "password")


@dataclass(frozen=True)
class Workload:
    """What every run does, whatever its arm.

    Attributes:
        model: name or folder.
        bench: "latency" (one process that loads and measures) or "serve" (a server, and a client per load).
        input_len, output_len: tokens of each request.
        batch_size: sequences of a latency iteration.
        iterations, warmup: measured and unmeasured iterations (latency), warm-up requests per load (serve).
        concurrency: requests at a time, one serving benchmark each, in this order.
        prompts: requests per serving benchmark, as a multiple of the concurrency.
        kv_blocks: fixed number of KV blocks, None to let vLLM choose.
        engine_args: further options of the engine, the same in every run.
        bench_args: further options of ``vllm bench``.
    """

    model: str
    bench: str = "latency"
    input_len: int = 32
    output_len: int = 128
    batch_size: int = 1
    iterations: int = 10
    warmup: int = 3
    concurrency: tuple[int, ...] = (1, 8, 32)
    prompts: int = 8
    kv_blocks: int | None = None
    engine_args: tuple[str, ...] = field(default=())
    bench_args: tuple[str, ...] = field(default=())

    def parameters(self) -> dict[str, Any]:
        """The workload for the manifest: no private path, no secret."""
        plain = asdict(self) | {"engine_args": shown(self.engine_args), "bench_args": shown(self.bench_args)}
        plain["concurrency"] = list(self.concurrency) if self.bench == "serve" else None
        if Path(self.model).exists():
            plain["model"] = Path(self.model).name
        return plain


def latency_command(vllm: str, workload: Workload, output: Path) -> list[str]:
    """``vllm bench latency``."""
    return [
        *(vllm, "bench", "latency", "--model", workload.model),
        *("--input-len", str(workload.input_len), "--output-len", str(workload.output_len)),
        *("--batch-size", str(workload.batch_size), "--num-iters", str(workload.iterations)),
        *("--num-iters-warmup", str(workload.warmup), "--output-json", str(output)),
        *_engine(workload),
        *workload.bench_args,
    ]


def server_command(vllm: str, workload: Workload, port: int) -> list[str]:
    """``vllm serve``."""
    return [
        *(vllm, "serve", workload.model, "--host", "127.0.0.1", "--port", str(port)),
        *_engine(workload),
    ]


def client_command(vllm: str, workload: Workload, port: int, concurrency: int, output: Path) -> list[str]:
    """``vllm bench serve`` at one load."""
    return [
        *(vllm, "bench", "serve", "--backend", "openai", "--host", "127.0.0.1", "--port", str(port)),
        *("--model", workload.model, "--dataset-name", "random", "--ignore-eos"),
        *("--input-len", str(workload.input_len), "--output-len", str(workload.output_len)),
        *("--num-prompts", str(workload.prompts * concurrency), "--max-concurrency", str(concurrency)),
        *("--num-warmups", str(workload.warmup), "--percentile-metrics", "ttft,tpot,itl,e2el"),
        *("--save-result", "--result-dir", str(output.parent), "--result-filename", output.name),
        *workload.bench_args,
    ]


def _engine(workload: Workload) -> list[str]:
    fixed = [] if workload.kv_blocks is None else ["--num-gpu-blocks-override", str(workload.kv_blocks)]
    return [*fixed, *workload.engine_args]


def run_environment(
    run: str, arm: Mapping[str, str], markers: Path, snapshots: Path | None, extra: Mapping[str, str]
) -> dict[str, str]:
    """Environment of a run's engine: the arm's settings and where the plugin writes; no saved start-up plan."""
    env = {**os.environ, **extra, **arm}
    env |= {variants.RUN: run, variants.MARKERS: str(markers.resolve())}
    env["VLLM_ENABLE_STARTUP_PLAN"] = "0"  # an applied plan skips the profile that the arms are about
    env.setdefault("VLLM_NO_USAGE_STATS", "1")
    env.pop(variants.SNAPSHOTS, None)
    if snapshots is not None:
        env[variants.SNAPSHOTS] = str(snapshots.resolve())
    return env


def client_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The same for a client, which is no engine and gets no arm."""
    return {
        name: value
        for name, value in env.items()
        if name not in (variants.ARM, variants.MARKERS, variants.SNAPSHOTS)
    }


def shown(words: Sequence[str]) -> list[str]:
    """Options for the manifest: values of options that look secret are withheld, paths keep their last part."""
    result: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        name, sign, value = word.partition("=")
        if word.startswith("--") and sign and _is_secret(name):
            result.append(f"{name}=(withheld)")
        elif (
            before.startswith("--") and "=" not in before and _is_secret(before) and not word.startswith("--")
        ):
            result.append("(withheld)")
        elif word.startswith("/"):
            result.append(Path(word).name)
        elif word.startswith("--") and value.startswith("/"):
            result.append(f"{name}={Path(value).name}")
        else:
            result.append(word)
    return result


def _is_secret(option: str) -> bool:
    parts = option.lower().strip("-").split("-")
    return any(part in _SECRET for part in parts) and "tokens" not in parts
