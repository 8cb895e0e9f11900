"""Makes a recording: plan first, then one isolated run after the other, then the tables."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcatools.device.backend import import_torch
from rcatools.device.fingerprint import environment
from rcatools.errors import InputError, RunError, UnknownNameError
from rcatools.experiment.arms import Arm, Plan
from rcatools.experiment.design import INSPECTION_BLOCK, Run, schedule
from rcatools.experiment.process import run_worker
from rcatools.recording.reader import read_manifest
from rcatools.recording.writer import exclusive, finish, part_path, read_parts, write_manifest
from rcatools.workload.config import DecodeConfig, preset
from rcatools.workload.declared import declare, step_totals

RETRIED = ("killed", "hung")  # outcomes that say nothing about the arm
ATTEMPTS = 2
Progress = Callable[[int, int, dict[str, Any]], None]


@dataclass(frozen=True)
class Options:
    """How to record.

    Attributes:
        out: the recording's folder.
        device: "auto", "cuda", "rocm" or "cpu".
        arms: names, or None for all that exist on the backend.
        blocks: number of blocks, or None for the plan's.
        budget_s: no block is begun after this time, or None.
        isolation: "fork" or "spawn".
        seed: of the schedule.
        resume: continue what is there.
        parameters: workload parameters given by the user.
        timeout_s: a run without answer for so long is ended.
        inspect: arms that also get an untimed run with snapshot and trace; None for all.
        spawn_share: share of blocks run in fresh interpreters, or None for the plan's.
        env: settings for every run's process.
        command: the command line, for the manifest.
    """

    out: Path
    device: str = "auto"
    arms: tuple[str, ...] | None = None
    blocks: int | None = None
    budget_s: float | None = None
    isolation: str = "fork"
    seed: int = 1
    resume: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    timeout_s: float = 300.0
    inspect: tuple[str, ...] | None = None
    spawn_share: float | None = None
    env: dict[str, str] = field(default_factory=dict)
    command: str = ""


def record(plan: Plan, options: Options, progress: Progress) -> dict[str, Any]:
    """Make or continue a recording and return its manifest.

    Raises:
        InputError: the folder is in use or holds another recording, or a name is not known.
        UnavailableError: the device is not there.
        RunError: not one run of the baseline succeeded.
        KeyboardInterrupt: Ctrl-C; the recording is left resumable.
    """
    os.environ.update(options.env)
    with exclusive(options.out):
        manifest, runs, arms = _prepare(plan, options)
        tasks = {run.run: _task(run, arms, manifest, options) for run in runs}
        done = _finished_parts(options.out)
        state = "stopped"
        begun = time.monotonic()
        warm_parent()
        try:
            for number, run in enumerate(runs):
                if run.run in done:
                    continue
                if _over_budget(run, options, time.monotonic() - begun):
                    break
                part = run_worker(tasks[run.run], timeout_s=options.timeout_s)
                progress(number + 1, len(runs), part)
            else:
                state = "complete"
            if _over_budget(None, options, time.monotonic() - begun):
                state = "complete" if _whole_blocks(options.out, arms) else "stopped"
        finally:
            manifest["finished_utc"] = _now()
            manifest = finish(options.out, manifest, state=state)
    if not _baseline_ok(options.out, plan.baseline):
        raise RunError(
            f"no run of the baseline {plan.baseline!r} succeeded: see {options.out}/runs.parquet and {options.out}/logs"
        )
    return manifest


def warm_parent() -> None:
    """Import what workers need, once, so that forked ones start at once; touches no device."""
    import_torch()
    importlib.import_module("rcatools.experiment.decode")
    with contextlib.suppress(ImportError):
        importlib.import_module("rcatools.workload.triton_kernels")


def _prepare(plan: Plan, options: Options) -> tuple[dict[str, Any], list[Run], dict[str, Arm]]:
    existing = (options.out / "manifest.json").is_file()
    if existing and not options.resume:
        raise InputError(
            f"{options.out} already holds a recording: add --resume to continue it, or choose another --out"
        )
    if existing:
        return _resumed(plan, options)
    device = probe_device(options.device)
    backend = str(device["backend"])
    arms = {arm.name: arm for arm in plan.choose(options.arms, backend)}
    given = {**plan.parameters.get(backend, {}), **options.parameters}
    config = preset(backend).with_parameters(given) if plan.workload == "decode" else None
    design = {
        "baseline": plan.baseline,
        "metric": plan.metric,
        "margin": plan.margin,
        "confidence": plan.confidence,
        "seed": options.seed,
        "blocks": options.blocks or plan.blocks,
        "isolation": options.isolation,
        "spawn_share": plan.spawn_share if options.spawn_share is None else options.spawn_share,
        "looks": plan.looks,
        "budget_s": options.budget_s,
        "timeout_s": options.timeout_s,
        "inspect": list(_inspected(arms, options.inspect)),
        "arms": [arm.as_dict() for arm in arms.values()],
    }
    manifest: dict[str, Any] = {
        "investigation": plan.investigation,
        "state": "running",
        "created_utc": _now(),
        "finished_utc": None,
        "command": options.command,
        "device": device,
        "environment": {**environment(import_torch()), "run_env": options.env},
        "workload": describe_workload(plan.workload, config, given),
        "ceilings": device.pop("ceilings", {}),
        "design": design,
    }
    runs = _schedule(design, arms)
    manifest["counts"] = {"planned": len(runs)}
    write_manifest(options.out, manifest)
    return manifest, runs, arms


def _resumed(plan: Plan, options: Options) -> tuple[dict[str, Any], list[Run], dict[str, Arm]]:
    old = read_manifest(options.out)
    if old.investigation != plan.investigation:
        raise InputError(
            f"{options.out} records {old.investigation!r}, not {plan.investigation!r}: choose another --out"
        )
    document = json.loads((options.out / "manifest.json").read_text(encoding="utf-8"))
    for key in ("schema", "version"):
        document.pop(key)
    arms = {arm.name: arm for arm in plan.arms if arm.name in old.arm_names}
    declared = {arm["name"]: arm for arm in old.design["arms"]}
    changed = [name for name in declared if name not in arms or arms[name].as_dict() != declared[name]]
    if changed:
        raise InputError(
            f"arm {changed[0]!r} has changed since {options.out} was begun: record into another --out"
        )
    document["state"] = "running"
    document.setdefault("resumed_utc", []).append(_now())
    if options.blocks and options.blocks > document["design"]["blocks"]:
        document["design"]["blocks"] = options.blocks
    runs = _schedule(document["design"], arms)
    document["counts"]["planned"] = len(runs)
    write_manifest(options.out, document)
    return document, runs, arms


def _schedule(design: dict[str, Any], arms: dict[str, Arm]) -> list[Run]:
    return schedule(
        list(arms),
        blocks=int(design["blocks"]),
        seed=int(design["seed"]),
        isolation=str(design["isolation"]),
        spawn_share=float(design["spawn_share"]),
        spawn_only=frozenset(name for name, arm in arms.items() if arm.isolation == "spawn"),
        inspect=tuple(design["inspect"]),
    )


def _inspected(arms: Iterable[str], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    names = tuple(arms)
    if wanted is None:
        return names
    for name in wanted:
        if name not in names:
            raise UnknownNameError("arm to inspect", name, names)
    return tuple(name for name in names if name in wanted)


def describe_workload(name: str, config: DecodeConfig | None, parameters: dict[str, Any]) -> dict[str, Any]:
    """Name, parameters and declared kernels of a workload, for the manifest."""
    if config is None:
        return {"name": name, "parameters": parameters, "kernels": []}
    kernels = declare(config)
    return {
        "name": name,
        "parameters": config.as_dict(),
        "kernels": [kernel.as_dict() for kernel in kernels],
        "step": step_totals(kernels),
        "tokens_per_step": config.batch,
    }


def _task(run: Run, arms: dict[str, Arm], manifest: dict[str, Any], options: Options) -> dict[str, Any]:
    arm = arms[run.arm]
    frames = "all" if arm.role in {"baseline", "suspect", "fix"} else "python"
    return {
        **run.as_dict(),
        "arm": arm.as_dict(),
        "backend": manifest["device"]["backend"],
        "uuid": manifest["device"].get("uuid"),
        "config": manifest["workload"]["parameters"],
        "workload": manifest["workload"]["name"],
        "folder": str(options.out.resolve()),
        "frames": frames,
    }


def probe_device(requested: str) -> dict[str, Any]:
    """The device and its measured ceilings, found in a process of its own so that this one stays clean.

    Raises:
        RcaError: as the probe says (unknown or unavailable device).
    """
    root = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = subprocess.run(
        [sys.executable, "-m", "rcatools.experiment.probe", requested],
        capture_output=True,
        text=True,
        env=env,
        timeout=300,
        check=False,
    )
    if done.returncode == 2:
        raise InputError(done.stderr.strip().splitlines()[-1])
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"the device probe failed: {last}; try 'rcatools doctor'")
    return dict(json.loads(done.stdout))


def _finished_parts(folder: Path) -> set[str]:
    """Ids of the runs that need not be made again; earlier failed attempts are set aside, not deleted."""
    parts, _ = read_parts(folder)
    done = set(parts)
    attempts = folder / "attempts"
    for name, part in parts.items():
        if part["outcome"] in RETRIED:
            earlier = len(list(attempts.glob(f"{name}.*.json"))) if attempts.is_dir() else 0
            if earlier + 1 < ATTEMPTS:
                attempts.mkdir(exist_ok=True)
                shutil.move(part_path(folder, name), attempts / f"{name}.{earlier}.json")
                done.discard(name)
    return done | (_tabled_runs(folder) - set(parts))


def _tabled_runs(folder: Path) -> set[str]:
    import pandas as pd

    if not (folder / "runs.parquet").is_file():
        return set()
    return set(pd.read_parquet(folder / "runs.parquet", columns=["run"])["run"])


def _over_budget(run: Run | None, options: Options, elapsed: float) -> bool:
    if options.budget_s is None or elapsed < options.budget_s:
        return False
    return run is None or (run.block != INSPECTION_BLOCK and run.order == 0)


def _whole_blocks(folder: Path, arms: Iterable[str]) -> bool:
    parts, _ = read_parts(folder)
    names = set(arms)
    seen: dict[int, set[str]] = {}
    for part in parts.values():
        if part["block"] >= 0:
            seen.setdefault(part["block"], set()).add(part["arm"])
    return bool(seen) and all(found == names for found in seen.values())


def _baseline_ok(folder: Path, baseline: str) -> bool:
    import pandas as pd

    if not (folder / "runs.parquet").is_file():
        return False
    runs = pd.read_parquet(folder / "runs.parquet", columns=["arm", "block", "outcome"])
    return bool(((runs["arm"] == baseline) & (runs["outcome"] == "ok") & (runs["block"] >= 0)).any())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
