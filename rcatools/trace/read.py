"""One entry for every trace format."""

from __future__ import annotations

from pathlib import Path

from rcatools.trace.kineto import read_kineto
from rcatools.trace.model import Trace
from rcatools.trace.stream import DEFAULT_LIMITS, Limits, existing_file


def load_trace(path: str | Path, limits: Limits = DEFAULT_LIMITS) -> Trace:
    """Read a profile of any known format.

    Args:
        path: kineto .json or .json.gz.
        limits: what the file may cost.

    Returns:
        The trace as one table of GPU activities.

    Raises:
        InputError: missing, empty or not a trace.
        UnsafeInputError: beyond the limits.
    """
    return read_kineto(existing_file(path), limits)
