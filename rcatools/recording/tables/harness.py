"""Result files of benchmark programs: pytest-benchmark, hyperfine, nvbench, google-benchmark, vllm bench, Go text.

Each gives long rows with the columns ``metric``, ``workload``, ``value`` and, where the program repeats inside one
process, ``sample`` or the run's own spread as ``within_sd`` with ``samples``. Neither arm nor run is known inside
such a file: one file is one run of one arm, except where the program itself starts a process per value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from rcatools.errors import InputError
from rcatools.recording.tables.model import Sheet

MAX_ROWS = 20_000_000
Row = dict[str, Any]
_GO_LINE = re.compile(r"^(Benchmark\S*)\s+(\d+)((?:\s+[-+0-9.eE]+(?:inf|nan)?\s+\S+)+)\s*$", re.I)
_GO_PAIR = re.compile(r"([-+0-9.eE]+|[-+]?inf|nan)\s+(\S+)", re.I)
_GO_PROCS = re.compile(r"-\d+$")
_VLLM_MARKS = (
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "mean_ttft_ms",
    "mean_itl_ms",
)
_VLLM_NUMBERS = re.compile(
    r"(?:mean|median|p\d+(?:\.\d+)?)_(?:ttft|tpot|itl|e2el)_ms|.*throughput|request_goodput"
)
_VLLM_SETUP = ("model_id", "backend", "num_prompts", "request_rate", "max_concurrency", "date")


def read_document(document: Any, source: str) -> Sheet | None:
    """The rows of a benchmark program's JSON, or None when the document is not one.

    Raises:
        InputError: the file is one of these but holds no measurement.
    """
    if not isinstance(document, dict):
        return None
    for form, matches, rows in _FORMS:
        if matches(document):
            found = list(rows(document))
            if not found:
                raise InputError(
                    f"{source} is a {form} file without any measurement; run the benchmark again"
                )
            return Sheet(pd.DataFrame(found), form, source)
    return None


def read_go_text(text: str, source: str) -> Sheet | None:
    """The rows of Go-benchmark-like lines ("BenchmarkX-8  100  123 ns/op"), or None when there is none."""
    rows: list[Row] = []
    for line in text.splitlines():
        found = _GO_LINE.match(line.strip())
        if found is None:
            continue
        name = _GO_PROCS.sub("", found[1]).removeprefix("Benchmark") or found[1]
        for value, unit in _GO_PAIR.findall(found[3]):
            rows.append({"workload": name, "metric": unit, "value": _number(value)})
    return Sheet(pd.DataFrame(rows), "go benchmark", source) if rows else None


def _is_pytest(document: Row) -> bool:
    entries = document.get("benchmarks")
    return _dicts(entries) and any("stats" in entry for entry in entries)  # type: ignore[union-attr]


def _pytest_rows(document: Row) -> Iterator[Row]:
    machine = document.get("machine_info")
    node = machine.get("node") if isinstance(machine, dict) else None
    for entry in document["benchmarks"]:
        stats = entry.get("stats")
        if not isinstance(stats, dict):
            continue
        common: Row = {"workload": str(entry.get("fullname") or entry.get("name")), "metric": "time_s"}
        if node:
            common["machine"] = str(node)
        data = stats.get("data")
        if isinstance(data, list) and data:
            yield from ({**common, "sample": i, "value": _number(v)} for i, v in enumerate(data))
        else:
            centre = stats.get("median", stats.get("mean"))
            spread = {"within_sd": _number(stats.get("stddev")), "samples": stats.get("rounds")}
            yield {**common, "sample": 0, "value": _number(centre), **spread}


def _is_hyperfine(document: Row) -> bool:
    entries = document.get("results")
    return _dicts(entries) and all("command" in entry for entry in entries)  # type: ignore[union-attr]


def _hyperfine_rows(document: Row) -> Iterator[Row]:
    for entry in document["results"]:
        codes = entry.get("exit_codes") or []
        for i, value in enumerate(entry.get("times") or []):
            failed = i < len(codes) and codes[i] not in (0, None)
            yield {
                "command": str(entry["command"]),
                "run": i,
                "metric": "time_s",
                "value": math.nan if failed else _number(value),
            }


def _is_google(document: Row) -> bool:
    entries = document.get("benchmarks")
    return _dicts(entries) and any("real_time" in entry for entry in entries)  # type: ignore[union-attr]


def _google_rows(document: Row) -> Iterator[Row]:
    for entry in document["benchmarks"]:
        if entry.get("run_type") == "aggregate" or "real_time" not in entry:
            continue
        unit = str(entry.get("time_unit", "ns"))
        for key in ("real_time", "cpu_time"):
            yield {
                "workload": str(entry.get("run_name") or entry.get("name")),
                "metric": f"{key}_{unit}",
                "sample": entry.get("repetition_index", 0),
                "value": _number(entry.get(key)),
            }


def _is_nvbench(document: Row) -> bool:
    entries = document.get("benchmarks")
    return _dicts(entries) and any(isinstance(entry.get("states"), list) for entry in entries)  # type: ignore[union-attr]


def _nvbench_rows(document: Row) -> Iterator[Row]:
    devices = {d.get("id"): str(d.get("name")) for d in document.get("devices") or [] if isinstance(d, dict)}
    for entry in document["benchmarks"]:
        for state in entry.get("states") or []:
            if not isinstance(state, dict) or state.get("is_skipped"):
                continue
            summaries = {s.get("tag"): s for s in state.get("summaries") or [] if isinstance(s, dict)}
            axes = " ".join(
                f"{a.get('name')}={a.get('value')}"
                for a in state.get("axis_values") or []
                if isinstance(a, dict)
            )
            device = devices.get(state.get("device"), str(state.get("device")))
            name = " ".join(part for part in (str(entry.get("name")), axes, f"on {device}") if part)
            for kind in ("cold", "batch"):
                mean = _nvbench_value(summaries.get(f"nv/{kind}/time/gpu/mean"))
                if math.isnan(mean):
                    continue
                yield {
                    "workload": name,
                    "metric": f"gpu_time_{kind}_s",
                    "sample": 0,
                    "value": mean,
                    "within_sd": mean * _nvbench_value(summaries.get(f"nv/{kind}/time/gpu/stdev/relative")),
                    "samples": _nvbench_value(summaries.get(f"nv/{kind}/sample_size")),
                }


def _nvbench_value(summary: Any) -> float:
    data = summary.get("data") if isinstance(summary, dict) else None
    if not isinstance(data, list):
        return math.nan
    values = [d.get("value") for d in data if isinstance(d, dict) and d.get("name") == "value"]
    return _number(values[0]) if values else math.nan


def _is_vllm(document: Row) -> bool:
    return any(mark in document for mark in _VLLM_MARKS)


def _vllm_rows(document: Row) -> Iterator[Row]:
    setup = {key: document[key] for key in _VLLM_SETUP if isinstance(document.get(key), str | int | float)}
    shown = ("model_id", "request_rate", "max_concurrency", "num_prompts")
    workload = " ".join(f"{key}={setup[key]}" for key in shown if key in setup)
    for key, value in document.items():
        if _VLLM_NUMBERS.fullmatch(key) and isinstance(value, int | float) and not isinstance(value, bool):
            yield {"workload": workload or "serving", "metric": key, "value": float(value)}


def _dicts(entries: Any) -> bool:
    return isinstance(entries, list) and bool(entries) and all(isinstance(entry, dict) for entry in entries)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


_FORMS: tuple[tuple[str, Callable[[Row], bool], Callable[[Row], Iterator[Row]]], ...] = (
    ("nvbench", _is_nvbench, _nvbench_rows),
    ("pytest-benchmark", _is_pytest, _pytest_rows),
    ("google-benchmark", _is_google, _google_rows),
    ("hyperfine", _is_hyperfine, _hyperfine_rows),
    ("vllm bench", _is_vllm, _vllm_rows),
)
