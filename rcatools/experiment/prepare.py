"""What is fixed before the first run: device, arms, design and schedule, written into the manifest."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcatools.device.backend import describe, import_torch
from rcatools.device.fingerprint import environment
from rcatools.errors import InputError, RunError, UnknownNameError
from rcatools.experiment import looks, provenance
from rcatools.experiment.arms import Arm, Plan
from rcatools.experiment.design import Run, schedule
from rcatools.experiment.worker import arm_from_dict
from rcatools.experiment.workloads import check_parameters, needs_torch, several_ranks
from rcatools.recording.reader import read_manifest
from rcatools.recording.writer import write_manifest
from rcatools.workload.config import DecodeConfig, preset
from rcatools.workload.declared import cache_state, declare, step_totals

STACKED_ROLES = ("baseline", "suspect", "fix")  # whose inspection keeps C++ frames too


@dataclass(frozen=True)
class Options:
    """How to record.

    Attributes:
        out: the recording's folder.
        device: "auto", "cuda", "rocm" or "cpu".
        arms: names, or None for all that exist on the backend.
        blocks: number of blocks, or None for the plan's.
        budget_s: no block but the first is begun after this time, or None.
        isolation: "fork" or "spawn".
        seed: of the schedule.
        resume: continue what is there.
        parameters: workload parameters given by the user.
        timeout_s: a run without answer for so long is ended.
        inspect: arms that also get an untimed run with snapshot and trace; None for all.
        spawn_share: share of blocks run in fresh interpreters, or None for the plan's.
        env: settings for every run's process.
        ranks: processes of one run, one per GPU; they sum over ranks inside the decode step.
        stop_early: "pocock" or "obrien-fleming" to stop at a planned look, or None to run every block.
        looks: number of planned looks, or None for the plan's.
        command: the command line, for the manifest.
        keep_diff: store uncommitted changes of the measured code in the recording.
        checkouts: further git checkouts whose code is measured.
        keep_going: do not stop where every run so far failed.
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
    ranks: int = 1
    stop_early: str | None = None
    looks: int | None = None
    command: str = ""
    keep_diff: bool = False
    checkouts: tuple[Path, ...] = ()
    keep_going: bool = False


@dataclass(frozen=True)
class Prepared:
    """A recording that is about to be made or continued: its manifest, all runs in order, its arms by name."""

    manifest: dict[str, Any]
    runs: list[Run]
    arms: dict[str, Arm]


def prepare(plan: Plan, options: Options) -> Prepared:
    """Write the manifest of a new recording, or read and extend that of an old one.

    Raises:
        InputError: the folder holds another recording, or half of one; an arm has changed.
        UnknownNameError: an arm or a parameter is not known.
        UnavailableError: the device is not there.
    """
    if (options.out / "manifest.json").is_file():
        if not options.resume:
            raise InputError(
                f"{options.out} already holds a recording: add --resume to continue it, or choose another --out"
            )
        return _resumed(plan, options)
    if any((options.out / name).exists() for name in ("parts", "runs.parquet")):
        raise InputError(
            f"{options.out} holds results without a manifest.json: restore it, or choose another --out"
        )
    return _new(plan, options)


def _new(plan: Plan, options: Options) -> Prepared:
    checkouts = provenance.checkout_states(options.checkouts)
    device = probe_device(options.device) if needs_torch(plan.workload) else describe("cpu", None).as_dict()
    backend = str(device["backend"])
    arms = {arm.name: arm for arm in plan.choose(options.arms, backend)}
    given = {**plan.parameters.get(backend, {}), **options.parameters}
    config = preset(backend).with_parameters(given) if plan.workload == "decode" else None
    if config is None:
        check_parameters(plan.workload, given)
    if options.ranks > 1 and not several_ranks(plan.workload):
        raise InputError(f"workload {plan.workload!r} runs in one process: leave out --ranks")
    if options.ranks > 1 and backend != "cpu" and options.ranks > int(device.get("count") or 1):
        raise InputError(
            f"{options.ranks} ranks need as many GPUs, {device.get('count')} are visible: lower --ranks"
        )
    blocks = options.blocks or plan.blocks
    design = {
        "baseline": plan.baseline,
        "metric": plan.metric,
        "margin": plan.margin,
        "confidence": plan.confidence,
        "seed": options.seed,
        "blocks": blocks,
        "isolation": options.isolation,
        "spawn_share": plan.spawn_share if options.spawn_share is None else options.spawn_share,
        "looks": options.looks or plan.looks,
        "budget_s": options.budget_s,
        "timeout_s": options.timeout_s,
        "ranks": options.ranks,
        "inspect": list(_inspected(arms, options.inspect)),
        "arms": [arm.as_dict() for arm in arms.values()],
    }
    if options.stop_early:
        design["sequential"] = looks.declare(
            blocks,
            looks=options.looks or plan.looks,
            kind=options.stop_early,
            alpha=1 - plan.confidence,
            judged=looks.judged(arms.values(), plan.baseline),
        )
    manifest: dict[str, Any] = {
        "investigation": plan.investigation,
        "state": "running",
        "created_utc": now(),
        "finished_utc": None,
        "command": options.command,
        "device": device,
        "environment": {
            **environment(_torch_if_installed() if needs_torch(plan.workload) else None),
            "run_env": options.env,
            "checkouts": checkouts,
        },
        "workload": describe_workload(plan.workload, config, given, device),
        "ceilings": device.pop("ceilings", {}),
        "design": design,
    }
    runs = _schedule(design, arms)
    manifest["counts"] = {"planned": len(runs)}
    if options.keep_diff:
        manifest["diffs"] = provenance.keep_diffs(options.out, options.checkouts)
    write_manifest(options.out, manifest)
    return Prepared(manifest, runs, arms)


def _resumed(plan: Plan, options: Options) -> Prepared:
    old = read_manifest(options.out)
    if old.investigation != plan.investigation:
        raise InputError(
            f"{options.out} records {old.investigation!r}, not {plan.investigation!r}: choose another --out"
        )
    document = json.loads((options.out / "manifest.json").read_text(encoding="utf-8"))
    for key in ("schema", "version"):
        document.pop(key)
    arms = {arm.name: arm for arm in plan.arms if arm.name in old.arm_names}
    for declared in old.design["arms"]:
        name = declared["name"]
        if name not in arms or arms[name] != arm_from_dict(declared):
            raise InputError(
                f"arm {name!r} has changed since {options.out} was begun: record into another --out"
            )
    _check_same_call(plan, options, document)
    document["state"] = "running"
    document.setdefault("resumed_utc", []).append(now())
    if options.blocks and options.blocks > document["design"]["blocks"]:
        if document["design"].get("sequential"):
            raise InputError(
                f"{options.out} stops at looks planned for {document['design']['blocks']} blocks; "
                "more blocks would void their error: choose another --out"
            )
        document["design"]["blocks"] = options.blocks
    runs = _schedule(document["design"], arms)
    document["counts"]["planned"] = len(runs)
    write_manifest(options.out, document)
    return Prepared(document, runs, arms)


def _check_same_call(plan: Plan, options: Options, document: dict[str, Any]) -> None:
    """InputError where a resuming call asks for something else than the recording was begun with."""
    design, usual = document["design"], Options(out=options.out)
    begun: dict[str, Any] = {
        key: design.get(key, getattr(usual, key)) for key in ("seed", "isolation", "ranks")
    }
    asked: dict[str, Any] = {
        key: getattr(options, key) for key in begun if getattr(options, key) != getattr(usual, key)
    }
    if options.arms is not None:
        begun["arms"] = sorted(arm["name"] for arm in design["arms"])
        asked["arms"] = sorted({*options.arms, plan.baseline})
    if options.env:
        begun["env"], asked["env"] = document["environment"].get("run_env", {}), options.env
    parameters = document["workload"]["parameters"]
    for name, value in options.parameters.items():
        begun[name], asked[name] = str(parameters.get(name)), str(value)
    for key, value in asked.items():
        if value != begun[key]:
            raise InputError(
                f"{options.out} was begun with {key} {begun[key]}, not {value}: leave it out, or choose another --out"
            )


def run_environment(options: Options) -> dict[str, str]:
    """Settings for every run's process: those of the call, or on resume those the recording was begun with."""
    if options.env or not options.resume or not (options.out / "manifest.json").is_file():
        return options.env
    return {str(k): str(v) for k, v in read_manifest(options.out).environment.get("run_env", {}).items()}


def task(run: Run, arm: Arm, manifest: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What a worker is told about one run; plain JSON."""
    return {
        **run.as_dict(),
        "arm": arm.as_dict(),
        "backend": manifest["device"]["backend"],
        "uuid": manifest["device"].get("uuid"),
        "config": manifest["workload"]["parameters"],
        "workload": manifest["workload"]["name"],
        "folder": str(folder.resolve()),
        "frames": "all" if arm.role in STACKED_ROLES else "python",
        "ranks": int(manifest["design"].get("ranks", 1)),
        "timeout_s": float(manifest["design"].get("timeout_s", 300.0)),
    }


def describe_workload(
    name: str, config: DecodeConfig | None, parameters: dict[str, Any], device: dict[str, Any]
) -> dict[str, Any]:
    """Name, parameters and declared kernels of a workload, for the manifest.

    "timing_cache" says for every kernel what its isolated timing finds in the cache.
    """
    if config is None:
        return {"name": name, "parameters": parameters, "kernels": []}
    kernels = declare(config)
    last_level = device.get("last_level_cache_bytes")
    return {
        "name": name,
        "parameters": config.as_dict(),
        "kernels": [kernel.as_dict() for kernel in kernels],
        "step": step_totals(kernels),
        "tokens_per_step": config.batch,
        "timing_cache": {k.name: cache_state(k, config, last_level) for k in kernels},
        "last_level_cache_bytes": last_level,
    }


def probe_device(requested: str) -> dict[str, Any]:
    """The device and its measured ceilings, found in a process of its own so that this one stays clean.

    Raises:
        RcaError: as the probe says (unknown or unavailable device).
    """
    root = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rcatools.experiment.probe", requested],
            capture_output=True,
            text=True,
            env=env,
            timeout=300,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunError("the device gave no answer for 300 s; try 'rcatools doctor'") from None
    if done.returncode == 2:
        raise InputError(done.stderr.strip().splitlines()[-1])
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"the device probe failed: {last}; try 'rcatools doctor'")
    return dict(json.loads(done.stdout))


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


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


def _torch_if_installed() -> Any:
    return import_torch() if importlib.util.find_spec("torch") else None
