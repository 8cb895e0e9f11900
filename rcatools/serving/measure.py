"""One run: a fresh vLLM with an arm in force, its benchmark, its markers and log, and nothing left of it afterwards."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcatools.errors import InputError
from rcatools.experiment.design import INSPECTION_BLOCK, Run
from rcatools.experiment.worker import classify
from rcatools.serving import variants
from rcatools.serving.commands import (
    Workload,
    client_command,
    client_environment,
    latency_command,
    run_environment,
    server_command,
)
from rcatools.serving.logs import LogFacts, read_log
from rcatools.serving.markers import marker_facts, problem, read_markers
from rcatools.serving.metrics import Lengths, RunSamples, run_samples, set_primary
from rcatools.serving.processes import Running, end_rest, free_port, wait_ready
from rcatools.serving.results import BenchResult, read_results

FOLDER = "serving"  # raw results, markers and snapshots of each run, below the recording


@dataclass(frozen=True)
class Limits:
    """Times after which something counts as hung, seconds.

    Attributes:
        ready_s: from the start of a server until it answers.
        bench_s: one benchmark, with its start where it is one process.
        grace_s: between asking a process to end and killing it.
    """

    ready_s: float = 900.0
    bench_s: float = 1800.0
    grace_s: float = 20.0


@dataclass
class Outcome:
    """How a run went."""

    name: str = "ok"
    reason: str | None = None
    results: list[BenchResult] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def make_run(
    run: Run,
    arm_env: Mapping[str, str],
    *,
    vllm: str,
    workload: Workload,
    folder: Path,
    token: str,
    limits: Limits,
    extra: Mapping[str, str],
) -> dict[str, Any]:
    """Make one run and return its part document; never raises for what vLLM does wrong.

    Args:
        run: what is planned.
        arm_env: environment of its arm, with RCATOOLS_VLLM_ARM.
        vllm: the command.
        workload: what is measured.
        folder: the recording.
        token: an id that no other run on this machine has.
        limits: time limits.
        extra: environment of every run.

    Raises:
        KeyboardInterrupt: Ctrl-C; everything of the run is ended first.
    """
    started, begun = datetime.now(UTC), time.monotonic()
    place = folder / FOLDER / run.run
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    log = folder / "logs" / f"{run.run}.log"
    log.unlink(missing_ok=True)
    inspection = run.block == INSPECTION_BLOCK
    env = run_environment(
        token, arm_env, place / "markers", place / "snapshots" if inspection else None, extra
    )
    context = _Context(run, vllm, workload, place, log, env, token, limits, inspection)
    try:
        outcome = _latency(context) if workload.bench == "latency" else _serve(context)
    finally:
        rest = end_rest(token)
    facts = read_log(log) if log.is_file() else LogFacts()
    samples = _judge(context, outcome, facts, arm_env[variants.ARM])
    if inspection:
        _keep_snapshot(folder, place, run.arm)
    return {
        **{key: getattr(run, key) for key in ("run", "arm", "block", "order", "isolation")},
        "started_utc": started.isoformat(timespec="milliseconds"),
        "wall_s": time.monotonic() - begun,
        "outcome": outcome.name,
        "reason": outcome.reason,
        "samples": {} if inspection or outcome.name != "ok" else samples.samples,
        "kernels": {},
        "facts": {
            **_together(facts, _marker_facts(context)),
            **samples.facts,
            **outcome.facts,
            "killed_after_end": len(rest),
            "notes": "; ".join([*samples.notes, *facts.notes])[:2000] or None,
        },
    }


@dataclass(frozen=True)
class _Context:
    run: Run
    vllm: str
    workload: Workload
    place: Path
    log: Path
    env: dict[str, str]
    token: str
    limits: Limits
    inspection: bool


def _latency(context: _Context) -> Outcome:
    output = context.place / "latency.json"
    running = Running(latency_command(context.vllm, context.workload, output), context.env, context.log)
    try:
        if not running.wait(context.limits.bench_s):
            return Outcome("hung", f"no result within {context.limits.bench_s:g} s, ended")
    finally:
        running.end(context.limits.grace_s)
    if running.code != 0:
        return _failed(running, context.log, "vllm bench latency")
    return _with_results(Outcome(), [output])


def _serve(context: _Context) -> Outcome:
    port = free_port()
    begun = time.monotonic()
    server = Running(server_command(context.vllm, context.workload, port), context.env, context.log)
    try:
        state = wait_ready(server, port, context.limits.ready_s)
        ready_s = time.monotonic() - begun
        if state == "ended":
            return _failed(server, context.log, "the server")
        if state == "hung":
            return Outcome("hung", f"the server was not ready within {context.limits.ready_s:g} s, ended")
        outcome = Outcome(facts={"ready_s": ready_s})
        arm = context.env[variants.ARM]
        if text := problem(read_markers(context.place / "markers"), arm=arm, run=context.token):
            return Outcome("mismatch", text, facts=outcome.facts)
        return outcome if context.inspection else _clients(context, server, port, outcome)
    finally:
        server.end(context.limits.grace_s)


def _clients(context: _Context, server: Running, port: int, outcome: Outcome) -> Outcome:
    outputs = []
    for concurrency in context.workload.concurrency:
        output = context.place / f"serve.c{concurrency}.json"
        log = context.log.with_name(f"{context.run.run}.client.log")
        command = client_command(context.vllm, context.workload, port, concurrency, output)
        client = Running(command, client_environment(context.env), log)
        try:
            ended = client.wait(context.limits.bench_s)
        finally:
            client.end(context.limits.grace_s)
        if server.code is not None:
            failed = _failed(server, context.log, f"the server, at concurrency {concurrency},")
            return Outcome(failed.name, failed.reason, facts=outcome.facts)
        if not ended:
            return Outcome(
                "hung",
                f"no result within {context.limits.bench_s:g} s at concurrency {concurrency}",
                facts=outcome.facts,
            )
        if client.code != 0:
            reason = f"'vllm bench serve' at concurrency {concurrency} failed: {_last_line(log)}"
            return Outcome("error", reason, facts=outcome.facts)
        outputs.append(output)
    return _with_results(outcome, outputs)


def _with_results(outcome: Outcome, outputs: list[Path]) -> Outcome:
    try:
        for output in outputs:
            outcome.results += read_results(output)
    except (InputError, OSError) as error:
        outcome.name, outcome.reason = "error", " ".join(str(error).split())[:500]
    return outcome


def _judge(context: _Context, outcome: Outcome, log: LogFacts, arm: str) -> RunSamples:
    """The samples of a run, after everything that forbids counting it was looked at."""
    workload = context.workload
    samples = RunSamples()
    if outcome.name == "ok":
        text = problem(read_markers(context.place / "markers"), arm=arm, run=context.token)
        if text:
            outcome.name, outcome.reason = "mismatch", text
        elif log.profiling_skipped and arm != "stock":
            outcome.name, outcome.reason = (
                "mismatch",
                "a saved start-up plan was applied: memory profiling was skipped",
            )
    if outcome.results:
        samples = run_samples(outcome.results, Lengths(workload.batch_size, workload.output_len))
        if outcome.name == "ok" and samples.reason:
            outcome.name, outcome.reason = "error", samples.reason
        if workload.bench == "serve":
            set_primary(samples, f"c{min(workload.concurrency)}")
    return samples


def _failed(running: Running, log: Path, what: str) -> Outcome:
    """Outcome of a process that ended by itself before its work was done."""
    facts = read_log(log)
    code = running.code or 0
    if facts.oom:
        return Outcome("out_of_memory", facts.oom)
    how = (
        f"{what} was ended by {signal.Signals(-code).name}"
        if code < 0
        else f"{what} left with exit code {code}"
    )
    if code < 0:
        return Outcome("killed", how)
    name, _ = classify(RuntimeError(facts.error or how))
    return Outcome(name, f"{how}: {facts.error or _last_line(log)}"[:500])


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1][:300] if lines else "it printed nothing"


def _marker_facts(context: _Context) -> dict[str, Any]:
    return marker_facts(read_markers(context.place / "markers"), run=context.token)


def _together(log: LogFacts, markers: dict[str, Any]) -> dict[str, Any]:
    """Facts of the log and of the markers; where both know one, the process itself is right, not its rounded log."""
    logged: dict[str, Any] = log.facts()
    return {**logged, **{key: logged.get(key) if value is None else value for key, value in markers.items()}}


def _keep_snapshot(folder: Path, place: Path, arm: str) -> None:
    """The snapshot at the start of decode becomes the recording's for that arm."""
    last = place / "snapshots" / f"rank0-{variants.POINTS[-1]}.pickle.gz"
    if last.is_file():
        (folder / "snapshots").mkdir(exist_ok=True)
        shutil.copyfile(last, folder / "snapshots" / f"{arm}.pickle.gz")
