"""From benchmark results to the samples of a recording: times only, in microseconds, larger is slower.

    token_us            wall time per output token: the metric that investigations judge
    token_us.<load>     the same at one load of a serving benchmark ("c8": eight requests at a time)
    ttft_us.<load>, tpot_us.<load>, itl_us.<load>, e2el_us.<load>, with _median, _p99 ... before _us
    request_us.<load>, total_token_us.<load>    wall time per request, per prompt or output token
    latency_us          one iteration of a latency benchmark

A rate becomes the time of one unit, so that ratios of times stay ratios of times everywhere. For ``token_us`` a serving
benchmark counts with one load, the same in every run (``common_load``, ``set_primary``), a latency benchmark with each
iteration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rcatools.errors import InputError
from rcatools.serving.results import BenchResult

PRIMARY = "token_us"
_STATISTIC = re.compile(r"(mean|median|p\d+(?:\.\d+)?)_([a-z0-9_]+)_ms")
_RATES = {
    "output_throughput": "token",
    "total_token_throughput": "total_token",
    "request_throughput": "request",
    "input_sequence_throughput": "sequence",
}


@dataclass(frozen=True)
class Lengths:
    """What a latency or throughput result does not tell: how many tokens it generated.

    Attributes:
        batch: sequences in one iteration.
        output: output tokens of each.
    """

    batch: int | None = None
    output: int | None = None


@dataclass
class RunSamples:
    """One run's samples, and what belongs beside them.

    Attributes:
        samples: metric -> values in microseconds.
        facts: requests asked for, completed and failed, over all results of the run.
        reason: why the run has no usable result, "" where it has.
        notes: what was missing or odd in the files.
    """

    samples: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, int | float | str | None] = field(default_factory=dict)
    reason: str = ""
    notes: list[str] = field(default_factory=list)


def run_samples(results: Sequence[BenchResult], lengths: Lengths | None = None) -> RunSamples:
    """The samples of all results that one server process gave.

    Failed requests make a serving result worthless for comparison: its rate counts only what was answered, and a
    refused request leaves the others more of the machine. Such a run keeps its facts and has no samples.

    Raises:
        InputError: a latency result, and ``lengths`` do not say what it generated.
    """
    run = RunSamples()
    run.notes += _uneven(results)
    lengths = lengths or Lengths()
    failed = 0
    known = False
    for result in results:
        run.notes += [f"{result.source}: {note}" for note in result.notes]
        if result.kind == "failure":
            run.reason = run.reason or f"the sweep could not make this run ({result.notes[0]})"
            continue
        if result.failed is not None:
            known, failed = True, failed + result.failed
        _add_counts(run, result)
        if result.kind == "latency":
            _add_latency(run, result, lengths)
        elif result.kind == "throughput":
            _add_throughput(run, result, lengths)
        else:
            _add_serving(run, result)
    if known:
        run.facts["requests_failed"] = failed
    if failed:
        asked = run.facts.get("requests") or 0
        run.reason = f"{failed} of {asked:g} requests failed: the rate of the others is not comparable"
        run.samples = {}
    elif not run.samples and not run.reason:
        run.reason = "no request was completed" if results else "no result was written"
    return run


def loads(run: RunSamples) -> list[str]:
    """Loads at which a run has a time per output token, in the order they were measured."""
    return [name.partition(".")[2] for name in run.samples if name.startswith(f"{PRIMARY}.")]


def common_load(runs: Sequence[RunSamples]) -> str:
    """The smallest load that every run with serving samples has, "" where there is none.

    Fewest requests at a time first, so that the time is that of decoding rather than of waiting.
    """
    measured = [set(names) for run in runs if (names := loads(run))]
    shared = set.intersection(*measured) if measured else set()
    return min(shared, key=_load_order, default="")


def set_primary(run: RunSamples, load: str) -> None:
    """Let ``token_us`` stand for one load; a run that lacks it gets none."""
    if load and (values := run.samples.get(f"{PRIMARY}.{load}")):
        run.samples[PRIMARY] = list(values)


def _load_order(load: str) -> tuple[float, str]:
    found = re.match(r"c(\d+)", load)
    return (float(found[1]) if found else float("inf"), load)


def _uneven(results: Sequence[BenchResult]) -> list[str]:
    """A note for each load whose results did different amounts of work."""
    work: dict[str, set[float]] = {}
    for result in results:
        if result.kind == "serve" and "num_prompts" in result.setup:
            work.setdefault(result.load, set()).add(float(result.setup["num_prompts"]))
    return [
        f"results at load {load} differ in their number of requests: {', '.join(f'{n:g}' for n in sorted(counts))}"
        for load, counts in work.items()
        if len(counts) > 1
    ]


def _add_latency(run: RunSamples, result: BenchResult, lengths: Lengths) -> None:
    if not lengths.batch or not lengths.output:
        raise InputError(
            f"{result.source}: a result of 'bench latency' does not state batch and output length: "
            "give --batch-size and --output-len"
        )
    seconds = result.series.get("latencies") or (result.values["avg_latency"],)
    times = [1e6 * value for value in seconds]
    _extend(run, "latency_us", times)
    _extend(run, PRIMARY, [value / (lengths.batch * lengths.output) for value in times])


def _add_throughput(run: RunSamples, result: BenchResult, lengths: Lengths) -> None:
    tokens, requests = (result.values.get(key) for key in ("tokens_per_second", "requests_per_second"))
    if tokens:
        _extend(run, "total_token_us", [1e6 / tokens])
    if requests:
        _extend(run, "request_us", [1e6 / requests])
        if lengths.output:
            _extend(run, PRIMARY, [1e6 / (requests * lengths.output)])
    if PRIMARY not in run.samples:
        run.notes.append(
            f"{result.source}: 'bench throughput' counts prompt and output tokens together; "
            "--output-len gives the time per output token"
        )


def _add_serving(run: RunSamples, result: BenchResult) -> None:
    load = result.load
    for key, unit in _RATES.items():
        if (rate := result.values.get(key, 0.0)) > 0:
            _extend(run, f"{unit}_us.{load}", [1e6 / rate])
    for key, value in result.values.items():
        found = _STATISTIC.fullmatch(key)
        if found and value > 0:
            statistic = "" if found[1] == "mean" else f"_{found[1]}"
            _extend(run, f"{found[2]}{statistic}_us.{load}", [1e3 * value])


def _add_counts(run: RunSamples, result: BenchResult) -> None:
    counts = {
        "requests": result.setup.get("num_prompts", result.values.get("num_requests")),
        "requests_completed": result.values.get("completed"),
        "output_tokens": result.values.get("total_output_tokens"),
    }
    for key, value in counts.items():
        if isinstance(value, int | float):
            before = run.facts.get(key)
            run.facts[key] = value + (before if isinstance(before, int | float) else 0)


def _extend(run: RunSamples, metric: str, values: list[float]) -> None:
    run.samples.setdefault(metric, []).extend(values)
