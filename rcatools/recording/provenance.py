"""Where two recordings come from different code or surroundings: the first thing to ask of a difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rcatools.recording.schema import Manifest

KINDS = ("code", "package", "setting", "device", "workload")
CODE_KEYS = ("commit", "dirty", "diff_sha256", "untracked_files", "untracked_sha256", "source_sha256")
DEVICE_KEYS = ("backend", "name", "arch", "memory_bytes", "driver", "runtime")
SYSTEM_KEYS = ("python", "os", "machine", "cuda", "hip", "rocm")
NOT_TOLD = "not told"


@dataclass(frozen=True)
class ProvenanceDifference:
    """One thing that differs; ``kind`` is one of KINDS, values are text, "not told" where one is missing."""

    kind: str
    key: str
    first: str
    second: str


def compare_provenance(first: Manifest, second: Manifest) -> tuple[ProvenanceDifference, ...]:
    """Everything that differs between the makings of two recordings, code first.

    Hashes are shortened to 12 characters. Keys that neither manifest tells are left out.
    """
    one, two = _facts(first), _facts(second)
    found = [
        ProvenanceDifference(kind, key, one.get((kind, key), NOT_TOLD), two.get((kind, key), NOT_TOLD))
        for kind, key in {**one, **two}
        if one.get((kind, key)) != two.get((kind, key))
    ]
    return tuple(sorted(found, key=lambda d: (KINDS.index(d.kind), d.key)))


def uncommitted(manifest: Manifest) -> tuple[str, ...]:
    """Names of the checkouts whose measured code is in no commit: changed or untracked files."""
    return tuple(
        name
        for name, state in _checkouts(manifest)
        if state.get("dirty") or state.get("untracked_files") or not state.get("commit")
    )


def _facts(manifest: Manifest) -> dict[tuple[str, str], str]:
    environment, device = manifest.environment, manifest.device
    facts: dict[tuple[str, str], str] = {}
    for name, state in _checkouts(manifest):
        _add(facts, "code", {f"{name} {key}": state.get(key) for key in CODE_KEYS})
    _add(facts, "package", _mapping(environment.get("packages")))
    _add(facts, "package", {key: environment.get(key) for key in SYSTEM_KEYS})
    _add(facts, "setting", _mapping(environment.get("settings")))
    _add(facts, "setting", _mapping(environment.get("run_env")))
    _add(facts, "device", {key: device.get(key) for key in DEVICE_KEYS})
    _add(facts, "workload", _mapping(manifest.workload.get("parameters")))
    return facts


def _checkouts(manifest: Manifest) -> list[tuple[str, Mapping[str, Any]]]:
    environment = manifest.environment
    further = _mapping(environment.get("checkouts"))
    return [
        ("rcatools", _mapping(environment.get("code"))),
        *((str(name), _mapping(further[name])) for name in sorted(further)),
    ]


def _add(facts: dict[tuple[str, str], str], kind: str, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if value is None or isinstance(value, dict | list):
            continue
        text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        facts[kind, str(key)] = text[:12] if key.endswith(("sha256", "commit")) else text


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
