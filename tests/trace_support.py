"""Building small traces and finding the real ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data" / "traces"
SHARED = Path(__file__).resolve().parents[1].parent / "shared"


def shared(path: str) -> Path:
    """A reference file beside the checkout; the test is skipped where there is none."""
    file = SHARED / path
    if not file.exists():
        pytest.skip(f"needs {path} of the reference files, which are not beside this checkout")
    return file


def event(
    name: str,
    start: float | str,
    duration: float | str,
    *,
    category: str = "kernel",
    stream: int = 7,
    correlation: int | None = None,
    device: int = 0,
    **args: Any,
) -> dict[str, Any]:
    """One complete event as kineto writes it."""
    values: dict[str, Any] = {"device": device, "stream": stream, **args}
    if correlation is not None:
        values["correlation"] = correlation
    return {
        "ph": "X", "cat": category, "name": name, "pid": device, "tid": stream, "ts": start, "dur": duration,
        "args": values,
    }  # fmt: skip


def launch(correlation: int, start: float, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    """The call that starts the activity with this correlation number."""
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": 1.5,
        "args": {"correlation": correlation},
    }  # fmt: skip


def document(events: Iterable[Mapping[str, Any]], device: str | None = "Card") -> dict[str, Any]:
    """A whole trace document."""
    properties = [{"id": 0, "name": device}] if device else []
    return {"schemaVersion": 1, "deviceProperties": properties, "traceEvents": list(events)}


def write(path: Path, events: Iterable[Mapping[str, Any]], device: str | None = "Card") -> Path:
    """Write a trace document and return its path."""
    path.write_text(json.dumps(document(events, device)))
    return path


def chain(
    durations: Sequence[float],
    names: Sequence[str],
    *,
    gap: float = 1.0,
    start: float = 1000.0,
    linked: bool = True,
) -> list[dict[str, Any]]:
    """Kernels one after another on one stream, with their launches."""
    events = []
    for number, (duration, name) in enumerate(zip(durations, names, strict=True), start=1):
        if linked:
            events.append(launch(number, round(start - 5, 3)))
        events.append(event(name, round(start, 3), round(float(duration), 3), correlation=number))
        start += round(float(duration), 3) + gap
    return events
