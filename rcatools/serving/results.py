"""Result files of ``vllm bench latency``, ``throughput``, ``serve`` and ``sweep``, of any version from 0.25 on.

Versions differ in which keys they write, so only the numbers that a kind of result cannot do without are required.
What is missing or odd is told in ``notes``; text that a benchmark generated is never read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rcatools.errors import InputError, UnsafeInputError

MAX_FILE_BYTES = 256 * 2**20
KINDS = ("latency", "throughput", "serve", "pooling", "failure")
_SERVE_MARKS = ("output_throughput", "total_output_tokens", "request_goodput")
_POOLING_MARKS = ("input_sequence_throughput", "total_input_sequences")
_STATISTIC = re.compile(r"(mean|median|std|p\d+(?:\.\d+)?)_([a-z0-9_]+)_ms")
_RATES = ("request_throughput", "output_throughput", "total_token_throughput", "input_sequence_throughput")
_COUNTS = (
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_goodput",
    "max_output_tokens_per_s",
    "max_concurrent_requests",
    "rtfx",
)
_SETUP_TEXT = ("date", "backend", "endpoint_type", "label", "model_id", "tokenizer_id")
_SETUP_NUMBER = ("num_prompts", "request_rate", "max_concurrency", "burstiness", "run_number")


@dataclass(frozen=True)
class BenchResult:
    """One result.

    Attributes:
        kind: one of KINDS ("failure": a run that a sweep could not make).
        source: file name, with the place inside the file where it holds several.
        setup: how it was asked for, as text or numbers; ``request_rate`` is infinite where all requests start at once.
        values: scalars as the file names them (rates per second, ``..._ms`` in milliseconds, the rest in seconds).
        series: ``latencies`` of a latency benchmark, in seconds.
        notes: what is missing or odd, one sentence each.
    """

    kind: str
    source: str
    setup: dict[str, str | float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    series: dict[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> int | None:
        """Requests without an answer, None where the file does not tell."""
        if "failed" in self.values:
            return int(self.values["failed"])
        asked, done = number(self.setup.get("num_prompts")), self.values.get("completed")
        return max(int(asked - done), 0) if asked is not None and done is not None else None

    @property
    def load(self) -> str:
        """The load of a serving result as a short name: "c8", "r4", "c8r4", or "all" (everything at once).

        A sweep's combination is appended where the load alone does not tell its combinations apart.
        """
        concurrency, rate = (number(self.setup.get(key)) for key in ("max_concurrency", "request_rate"))
        text = f"c{concurrency:g}" if concurrency is not None else ""
        text += f"r{rate:g}" if rate is not None and math.isfinite(rate) else ""
        return (text or "all") + (f".{self.setup['combination']}" if "combination" in self.setup else "")


def read_results(path: Path) -> list[BenchResult]:
    """All results of a file: one JSON document, a list of them, or several one after the other.

    Raises:
        InputError: the file is no JSON, or holds no result of ``vllm bench``.
        UnsafeInputError: it is too large.
    """
    if path.stat().st_size > MAX_FILE_BYTES:
        raise UnsafeInputError(
            f"{path.name} is larger than {MAX_FILE_BYTES} bytes: it is not a benchmark result, give a file of 'vllm bench'"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path.name} is not UTF-8 text ({error.reason}): give a file of 'vllm bench'"
        ) from None
    return parse_results(text, path.name)


def parse_results(text: str, source: str) -> list[BenchResult]:
    """The results in a text; errors as in ``read_results``."""
    documents, cut = split_documents(text, source)
    items = [
        item for document in documents for item in (document if isinstance(document, list) else [document])
    ]
    found = []
    for i, item in enumerate(items):
        place = source if len(items) == 1 else f"{source} [{i}]"
        if not isinstance(item, dict):
            raise InputError(f"{place} is not a JSON object: give a file of 'vllm bench'")
        found.append(interpret(item, place))
    if not found:
        raise InputError(f"{source} holds no result: give a file of 'vllm bench'")
    if cut:
        last = found[-1]
        note = f"what follows the first {len(found)} results is cut off and was not read"
        found[-1] = BenchResult(
            last.kind, last.source, last.setup, last.values, last.series, (*last.notes, note)
        )
    return found


def split_documents(text: str, source: str) -> tuple[list[Any], bool]:
    """JSON documents that follow each other, as ``--append-result`` writes them, and whether the last is cut off.

    Raises:
        InputError: not one whole document.
    """
    decoder = json.JSONDecoder(parse_constant=lambda _: math.nan)
    documents: list[Any] = []
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        try:
            document, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            if documents:
                return documents, True
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            raise InputError(f"{source} is no JSON ({reason}): give a file of 'vllm bench'") from None
        documents.append(document)
    return documents, False


def interpret(item: dict[str, Any], source: str) -> BenchResult:
    """One result from its JSON object.

    Raises:
        InputError: it is of no known kind, or lacks what its kind cannot do without.
    """
    setup, notes = _setup(item)
    kind = _kind(item)
    if kind == "failure":
        text = " ".join(str(item.get("error", "")).split())[:300]
        return BenchResult(kind, source, setup, notes=(f"{item.get('error_type')}: {text}",))
    if kind == "latency":
        return _latency(item, source, setup, notes)
    if kind == "throughput":
        values = _numbers(item, ("elapsed_time", "num_requests", "total_num_tokens"), notes)
        values |= _numbers(item, ("requests_per_second", "tokens_per_second"), notes)
        return BenchResult(kind, source, setup, _throughput_rates(values, source), notes=tuple(notes))
    if kind in ("serve", "pooling"):
        wanted = [*_RATES, *_COUNTS, *(key for key in item if _STATISTIC.fullmatch(key))]
        wanted += [key for key in item if key.startswith(("spec_decode_", "diffusion_", "probe_"))]
        values = _numbers(item, wanted, notes)
        if "duration" not in values and not any(rate in values for rate in _RATES):
            raise InputError(
                f"{source} has neither a duration nor a rate: it is no whole serving result, run the benchmark again"
            )
        return BenchResult(kind, source, setup, values, notes=tuple(notes))
    keys = ", ".join(sorted(str(key)[:30] for key in item)[:6])
    raise InputError(
        f"{source} is no result of 'vllm bench' (its keys: {keys or 'none'}): give a file of 'vllm bench'"
    )


def _kind(item: dict[str, Any]) -> str:
    if "error_type" in item and "error" in item:
        return "failure"
    if any(key in item for key in _POOLING_MARKS):
        return "pooling"
    if any(key in item for key in _SERVE_MARKS) or any(_STATISTIC.fullmatch(str(key)) for key in item):
        return "serve"
    if "elapsed_time" in item and ("tokens_per_second" in item or "total_num_tokens" in item):
        return "throughput"
    if "avg_latency" in item or ("latencies" in item and "percentiles" in item):
        return "latency"
    return "serve" if "request_throughput" in item else ""


def _latency(
    item: dict[str, Any], source: str, setup: dict[str, str | float], notes: list[str]
) -> BenchResult:
    values = _numbers(item, ("avg_latency",), notes)
    percentiles = item.get("percentiles")
    for key, value in percentiles.items() if isinstance(percentiles, dict) else ():
        place, found = number(key), number(value)
        if place is not None and found is not None:
            values[f"p{place:g}_latency"] = found
        else:
            notes.append(f"the percentile {str(key)[:20]!r} is no number")
    raw = item.get("latencies")
    listed = [number(value) for value in raw] if isinstance(raw, list) else []
    kept = tuple(value for value in listed if value is not None and value > 0 and math.isfinite(value))
    if len(kept) < len(listed):
        notes.append(f"{len(listed) - len(kept)} of {len(listed)} latencies are no positive numbers")
    if not kept and "avg_latency" not in values:
        raise InputError(
            f"{source} has neither latencies nor their mean: it is no whole latency result, run the benchmark again"
        )
    if not kept:
        notes.append("the single latencies are missing, only their mean is there")
    return BenchResult("latency", source, setup, values, {"latencies": kept} if kept else {}, tuple(notes))


def _throughput_rates(values: dict[str, float], source: str) -> dict[str, float]:
    """The rates, from the counts and the time where the file leaves them out."""
    elapsed = values.get("elapsed_time", 0.0)
    for rate, count in (("tokens_per_second", "total_num_tokens"), ("requests_per_second", "num_requests")):
        if rate not in values and count in values and elapsed > 0:
            values[rate] = values[count] / elapsed
    if "tokens_per_second" not in values and "requests_per_second" not in values:
        raise InputError(
            f"{source} has no rate and not what would give one: it is no whole throughput result, run the benchmark again"
        )
    return values


def _setup(item: dict[str, Any]) -> tuple[dict[str, str | float], list[str]]:
    setup: dict[str, str | float] = {}
    for key in _SETUP_TEXT:
        if isinstance(item.get(key), str | int | float) and not isinstance(item[key], bool):
            setup[key] = " ".join(str(item[key]).split())[:200]
    for key in _SETUP_NUMBER:
        found = number(item.get(key))
        if found is not None:
            setup[key] = found
    return setup, []


def _numbers(
    item: dict[str, Any], keys: Iterator[str] | tuple[str, ...] | list[str], notes: list[str]
) -> dict[str, float]:
    """The finite numbers among these keys; others that are there and not null are noted."""
    values = {}
    for key in keys:
        found = number(item.get(key))
        if found is not None and math.isfinite(found):
            values[key] = found
        elif item.get(key) is not None and not isinstance(item[key], list | dict):
            notes.append(f"{key} is not a finite number")
    return values


def number(value: Any) -> float | None:
    """A number from a number or its text ("inf" included), None for anything else and for NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(found) else found
