"""Whether two recordings can speak about the same thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rcatools.recording import Recording

# Workload parameters that came after the first recordings, with what every run did before.
ADDED_LATER: dict[str, dict[str, Any]] = {"decode": {"cache": "hot"}}


def unlike(a: Recording, b: Recording) -> str:
    """Why two recordings cannot speak about the same thing: another device or another workload; "" if they can."""
    for key in ("backend", "name", "arch"):
        if a.manifest.device.get(key) != b.manifest.device.get(key):
            return f"on another device ({a.manifest.device.get('name')})"
    if a.manifest.workload.get("name") != b.manifest.workload.get("name"):
        return f"with another workload ({a.manifest.workload.get('name')})"
    own, other = (_parameters(r) for r in (a, b))
    if own != other:
        keys = [key for key in {**other, **own} if own.get(key) != other.get(key)]
        told = ", ".join(
            f"{key} {own.get(key, 'not told')} against {other.get(key, 'not told')}" for key in keys[:4]
        )
        return f"with other parameters of the workload ({told or 'not told'})"
    return ""


def _parameters(recording: Recording) -> dict[str, Any]:
    """The workload's parameters; one that an older recording does not tell had the value of ADDED_LATER."""
    workload = recording.manifest.workload
    told = workload.get("parameters")
    return {**ADDED_LATER.get(str(workload.get("name")), {}), **(told if isinstance(told, Mapping) else {})}
