"""The environment of the recordings, and how that of a published claim differs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rcatools.diagnosis import soundness
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.records import Difference
from rcatools.recording import Recording
from rcatools.recording.reader import file_sha256
from rcatools.units import counted

DEVICE_KEYS = ("backend", "name", "arch", "memory_bytes", "driver", "runtime", "uuid")
UNCOMMITTED = "uncommitted"
# What a table may tell of how it was made, in columns of these names.
TABLE_FACTS = ("made_utc", "torch", "python", "os", "source_sha256", "commit")


def here(case: Case, recording: Recording | None = None) -> dict[str, str | None]:
    """What is known of a recording's environment (the primary one's by default), by the keys that claims use."""
    used = recording or case.primary
    if used is None:
        return {}
    device, environment = used.manifest.device, used.manifest.environment
    known: dict[str, str | None] = {
        "card": _text(device.get("name")),
        "backend": _text(device.get("backend")),
        "arch": _text(device.get("arch")),
        "driver": _text(device.get("driver")),
        "rocm": _text(environment.get("rocm") or environment.get("hip")),
        "cuda": _text(environment.get("cuda")),
        "code": code_state(used),
    }
    packages = environment.get("packages", {})
    if isinstance(packages, dict):
        known.update({str(key): _text(value) for key, value in packages.items()})
    settings = environment.get("settings", {})
    if isinstance(settings, dict):
        known.update({str(key): _text(value) for key, value in settings.items()})
    parameters = used.manifest.workload.get("parameters", {})
    known["workload"] = _text(used.manifest.workload.get("name"))
    if isinstance(parameters, dict):
        known.update({key: _text(value) for key, value in parameters.items() if key not in known})
    return known


def differences(
    published: Mapping[str, str], known: Mapping[str, str | None], keys: tuple[str, ...] = ()
) -> tuple[Difference, ...]:
    """Keys of a claim's environment whose value here is another one, or unknown."""
    found = []
    for key, value in published.items():
        if keys and key not in keys:
            continue
        own = known.get(key)
        if own is None or not same_value(value, own):
            found.append(Difference(key, value, own))
    return tuple(found)


def same_value(a: str, b: str) -> bool:
    """Whether two values name the same thing: local version parts ("+cu130") and letter case are ignored."""
    left, right = a.strip().lower(), b.strip().lower()
    return left == right or left.split("+")[0] == right.split("+")[0]


def code_state(recording: Recording) -> str | None:
    """ "committed", "uncommitted", or None where the manifest does not tell."""
    code = recording.manifest.environment.get("code", {})
    if isinstance(code, dict) and code.get("source_commit"):
        return "committed"
    if not isinstance(code, dict) or not code.get("commit"):
        return None
    return UNCOMMITTED if code.get("dirty") else "committed"


def _text(value: Any) -> str | None:
    return None if value is None or isinstance(value, dict | list) else str(value)


def document(case: Case) -> dict[str, Any]:
    """The environment part of verdict.json: device, versions and every recording with its state and hashes."""
    if case.primary is None:
        return {"device": None, "recordings": []}
    manifest = case.primary.manifest
    environment = manifest.environment
    kept = ("python", "os", "packages", "rocm", "hip", "cuda", "settings", "code")
    return {
        "device": manifest.device.get("name"),
        **{key: manifest.device.get(key) for key in DEVICE_KEYS if key != "name"},
        **{key: environment.get(key) for key in kept},
        "workload": manifest.workload.get("name"),
        "parameters": manifest.workload.get("parameters"),
        "kv_bytes": _median_fact(case, "kv_bytes"),
        "devices": devices(case),
        "checks": soundness.document(case),
        "tables": tables(case),
        "recordings": [_recording(item, used=True) for item in case.recordings]
        + [_recording(item, used=True) for item in case.companions.values()]
        + [_recording(item, used=False) for item, _ in case.others],
    }


def devices(case: Case) -> list[dict[str, Any]]:
    """Every device that evidence comes from, in order of use, with its recordings."""
    found: dict[str, dict[str, Any]] = {}
    for recording in (*case.recordings, *case.companions.values()):
        device, environment = recording.manifest.device, recording.manifest.environment
        own = found.setdefault(
            str(device.get("name")),
            {
                "device": device.get("name"),
                **{key: device.get(key) for key in ("backend", "arch", "driver", "runtime")},
                "torch": _torch(recording),
                "python": environment.get("python"),
                "recordings": [],
            },
        )
        own["recordings"].append(recording.name)
    for table in tables(case):
        for name in table["devices"]:
            told = {key: table[key] for key in ("torch", "python")}
            own = found.setdefault(name, {"device": name, **told, "recordings": []})
            own.setdefault("tables", []).append(table["name"])
    return list(found.values())


def tables(case: Case) -> list[dict[str, Any]]:
    """The investigation's tables of things met on a device: file, devices, rows, SHA-256 and what made them."""
    found = []
    for name, file in case.spec.tables.items():
        table = case.tables.get(name)
        if table is None or "device" not in table.columns or not len(table):
            continue
        kept = case.investigation.tables.get(name) is table
        found.append(
            {
                "name": file or name,
                "devices": [str(item) for item in dict.fromkeys(table["device"].dropna())],
                "rows": len(table),
                "sha256": case.investigation.sums.get(name) if kept else None,
                "made_by": case.spec.made_by.get(name, "") if kept else "",
                **{key: _one(table, key) for key in TABLE_FACTS},
            }
        )
    return found


def _one(table: pd.DataFrame, column: str) -> str | None:
    """The one value that a column holds; None where it is missing, empty or not the same in all rows."""
    values: set[str] = set(table[column].dropna().astype(str)) if column in table.columns else set()
    return values.pop() if len(values) == 1 else None


def _median_fact(case: Case, figure: str) -> float | None:
    assert case.primary is not None
    table = case.facts(case.primary, figure)
    if case.baseline not in table.columns:
        return None
    value = float(pd.to_numeric(table[case.baseline], errors="coerce").median())
    return value if math.isfinite(value) else None


def _recording(recording: Recording, *, used: bool) -> dict[str, Any]:
    manifest = recording.manifest
    runs = recording.timed_runs()
    code = manifest.environment.get("code", {})
    return {
        "name": recording.name,
        "used": used,
        "device": manifest.device.get("name"),
        "uuid": manifest.device.get("uuid"),
        "backend": manifest.device.get("backend"),
        "state": manifest.state,
        "created_utc": manifest.created_utc,
        "stopped_by": manifest.extra.get("stopped_by"),
        "blocks": int(runs["block"].nunique()) if len(runs) else 0,
        "blocks_planned": manifest.design.get("blocks"),
        "runs_ok": int((runs["outcome"] == "ok").sum()) if len(runs) else 0,
        "runs_failed": int((runs["outcome"] != "ok").sum()) if len(runs) else 0,
        "arms": list(manifest.arm_names),
        "command": manifest.command,
        "replicate": str(manifest.design.get("replicate", "block")),
        "git": code if isinstance(code, dict) else None,
        "sessions": sessions(recording),
        "files": dict(manifest.files),
        "manifest_sha256": _manifest_hash(recording),
    }


def _manifest_hash(recording: Recording) -> str | None:
    """SHA-256 of the manifest, which holds those of all other files; None for a recording without a folder."""
    file = recording.path / "manifest.json"
    return file_sha256(file) if file.is_file() else None


def warnings(case: Case) -> list[str]:
    """What the environments of the recordings make doubtful."""
    found = []
    for recording in (*case.recordings, *case.companions.values()):
        state = code_state(recording)
        if state == UNCOMMITTED:
            found.append(
                f"{recording.name} was measured with uncommitted changes: its numbers belong to no commit"
            )
        elif state is None:
            found.append(f"{recording.name} does not tell which commit was measured")
        found += _unknown_sessions(recording)
    found += [
        f"the companion recording {name} is not there: what rests on it was not tested"
        for name in case.spec.companions
        if name not in case.companions
    ]
    first = case.primary
    for recording in case.recordings[1:]:
        for key in ("driver", "runtime", "uuid"):
            if first is not None and recording.manifest.device.get(key) != first.manifest.device.get(key):
                found.append(f"{recording.name} and {first.name} differ in the device's {key}")
        if first is not None and _torch(recording) != _torch(first):
            found.append(f"{recording.name} and {first.name} were made with different torch versions")
    return found


def _unknown_sessions(recording: Recording) -> list[str]:
    """A sentence where a recording was joined from sessions and one of them does not tell its commit."""
    known = sessions(recording)
    if all(item["commit"] for item in known):
        return []
    return [f"{recording.name}: {session_text(known)}"]


def sessions(recording: Recording) -> list[dict[str, Any]]:
    """Processes and commit of each session that a recording was joined from; commit None where it was not recorded.

    A session whose package source is that of the recording's named commit was measured at that commit.
    """
    whole = recording.manifest.environment.get("code")
    whole = whole if isinstance(whole, dict) else {}
    found = []
    for item in recording.manifest.design.get("sessions") or ():
        code = item.get("code") or {}
        same = code.get("source_sha256") and code.get("source_sha256") == whole.get("source_sha256")
        commit = (whole.get("source_commit") if same else None) or code.get("commit")
        found.append({"processes": int(item.get("processes") or 0), "commit": commit})
    return found


def session_text(found: Sequence[Mapping[str, Any]]) -> str:
    """Which processes were measured at which commit: "2 of 3 processes: commit a6fc0a1; 1: commit not recorded"."""
    whole = sum(item["processes"] for item in found)
    parts: dict[str, int] = {}
    for item in sorted(found, key=lambda one: one["commit"] is None):
        name = f"commit {str(item['commit'])[:7]}" if item["commit"] else "commit not recorded"
        parts[name] = parts.get(name, 0) + item["processes"]
    texts = [f"{number}: {name}" for name, number in parts.items()]
    first = f"{next(iter(parts.values()))} of {counted(whole, 'process', 'processes')}"
    texts[0] = f"{first}: {next(iter(parts))}"
    return "; ".join(texts)


def _torch(recording: Recording) -> Any:
    packages = recording.manifest.environment.get("packages")
    return packages.get("torch") if isinstance(packages, dict) else None
