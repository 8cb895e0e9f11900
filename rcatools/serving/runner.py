"""Makes a serving recording: arms in alternating fresh processes, block by block."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from rcatools.errors import InputError, RunError
from rcatools.experiment.arms import Arm, Plan
from rcatools.experiment.design import Run, schedule
from rcatools.files import write_json
from rcatools.recording.capacity import confounds, estimates
from rcatools.recording.reader import read_manifest
from rcatools.recording.writer import exclusive, finish, part_path, read_parts, write_manifest
from rcatools.serving import variants
from rcatools.serving.commands import Workload
from rcatools.serving.installation import Installation
from rcatools.serving.measure import Limits, make_run

WORKLOAD = "vllm"
RETRIED = ("killed", "hung")  # outcomes that say nothing about the arm; made again on --resume
Progress = Callable[[int, int, dict[str, Any]], None]


@dataclass(frozen=True)
class Options:
    """How to record.

    Attributes:
        out: the recording's folder.
        workload: what every run does.
        arms: names, or None for all that exist on the device.
        blocks: number of blocks, or None for the plan's.
        budget_s: no block but the first is begun after this time, or None.
        seed: of the schedule.
        resume: continue what is there.
        limits: time limits.
        snapshots: also make one untimed run per arm with allocator snapshots.
        env: settings for every run.
        command: the command line, for the manifest.
    """

    out: Path
    workload: Workload
    arms: tuple[str, ...] | None = None
    blocks: int | None = None
    budget_s: float | None = None
    seed: int = 1
    resume: bool = False
    limits: Limits = field(default_factory=Limits)
    snapshots: bool = False
    env: dict[str, str] = field(default_factory=dict)
    command: str = ""


def record(plan: Plan, options: Options, vllm: Installation, progress: Progress) -> dict[str, Any]:
    """Make or continue a recording and return its manifest.

    Raises:
        InputError: the plan is none for serving, the folder is in use or holds another recording.
        RunError: not one run of the baseline succeeded.
        KeyboardInterrupt: Ctrl-C; the recording is left resumable.
    """
    check_plan(plan)
    with exclusive(options.out):
        manifest, arms = _prepare(plan, options, vllm)
        design = manifest["design"]
        runs = _schedule(design, arms)
        manifest["counts"] = {"planned": len(runs)}
        write_manifest(options.out, manifest)
        done = _finished(options.out)
        token = uuid.uuid4().hex
        state = "stopped"
        begun = time.monotonic()
        try:
            for number, run in enumerate(runs):
                if run.run in done:
                    continue
                if _over_budget(run, options, time.monotonic() - begun):
                    break
                part = make_run(
                    run,
                    arms[run.arm].env,
                    vllm=vllm.command,
                    workload=options.workload,
                    folder=options.out,
                    token=f"{token}-{run.run}",
                    limits=options.limits,
                    extra=options.env,
                )
                write_json(part_path(options.out, run.run), part)
                progress(number + 1, len(runs), part)
            else:
                state = "complete"
            if state == "stopped":
                state = "complete" if _whole_blocks(options.out, arms) else "stopped"
        finally:
            manifest["finished_utc"] = _now()
            manifest = finish(options.out, manifest, state=state)
            manifest = with_memory(options.out, manifest, plan.baseline)
    if not _baseline_ok(options.out, plan.baseline):
        raise RunError(
            f"no run of the baseline {plan.baseline!r} succeeded: see {options.out}/logs, mend that and record into another --out"
        )
    return manifest


def check_plan(plan: Plan) -> None:
    """InputError where an investigation's arms are none of the plugin's variants."""
    if plan.workload != WORKLOAD:
        raise InputError(
            f"{plan.investigation!r} measures {plan.workload!r}: record it with 'rcatools record', or give an "
            f"investigation with workload = {WORKLOAD!r}"
        )
    for arm in plan.arms:
        variant = arm.env.get(variants.ARM)
        if variant not in variants.VARIANTS:
            raise InputError(
                f"arm {arm.name!r} of {plan.investigation!r}: env needs {variants.ARM} = one of {', '.join(variants.VARIANTS)}"
            )


def with_memory(folder: Path, manifest: dict[str, Any], baseline: str) -> dict[str, Any]:
    """The manifest with estimate against actual and the confounds of its runs, also written."""
    file = folder / "runs.parquet"
    if not file.is_file():
        return manifest
    runs = pd.read_parquet(file)
    runs = runs[runs["block"] >= 0]
    manifest = {
        **manifest,
        "serving": {
            "estimates": [row.as_dict() for row in estimates(runs)],
            "confounds": [item.as_dict() for item in confounds(runs, baseline)],
        },
    }
    write_manifest(folder, manifest)
    return manifest


def _prepare(plan: Plan, options: Options, vllm: Installation) -> tuple[dict[str, Any], dict[str, Arm]]:
    existing = (options.out / "manifest.json").is_file()
    if existing and not options.resume:
        raise InputError(
            f"{options.out} already holds a recording: add --resume to continue it, or choose another --out"
        )
    if existing:
        return _resumed(plan, options)
    backend = str(vllm.device["backend"])
    arms = {arm.name: arm for arm in plan.choose(options.arms, backend)}
    design = {
        "baseline": plan.baseline,
        "metric": plan.metric,
        "margin": plan.margin,
        "confidence": plan.confidence,
        "seed": options.seed,
        "blocks": options.blocks or plan.blocks,
        "isolation": "spawn",
        "looks": plan.looks,
        "budget_s": options.budget_s,
        "ready_s": options.limits.ready_s,
        "timeout_s": options.limits.bench_s,
        "inspect": list(arms) if options.snapshots else [],
        "arms": [arm.as_dict() for arm in arms.values()],
    }
    manifest: dict[str, Any] = {
        "investigation": plan.investigation,
        "state": "running",
        "created_utc": _now(),
        "finished_utc": None,
        "command": options.command,
        "device": vllm.device,
        "environment": {**vllm.environment, "run_env": options.env, "plugin_installed": vllm.plugin},
        "workload": {
            "name": f"vllm bench {options.workload.bench}",
            "parameters": options.workload.parameters(),
            "kernels": [],
        },
        "ceilings": {},
        "design": design,
    }
    return manifest, arms


def _resumed(plan: Plan, options: Options) -> tuple[dict[str, Any], dict[str, Arm]]:
    old = read_manifest(options.out)
    if old.investigation != plan.investigation:
        raise InputError(
            f"{options.out} records {old.investigation!r}, not {plan.investigation!r}: choose another --out"
        )
    if old.workload.get("parameters") != json.loads(json.dumps(options.workload.parameters())):
        raise InputError(
            f"{options.out} was begun with another workload: give the same options, or choose another --out"
        )
    document = json.loads((options.out / "manifest.json").read_text(encoding="utf-8"))
    for key in ("schema", "version", "serving"):
        document.pop(key, None)
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
    return document, arms


def _schedule(design: dict[str, Any], arms: Iterable[str]) -> list[Run]:
    return schedule(
        list(arms),
        blocks=int(design["blocks"]),
        seed=int(design["seed"]),
        isolation="spawn",
        inspect=tuple(design["inspect"]),
    )


def _finished(folder: Path) -> set[str]:
    """Runs that need not be made again; an earlier failed attempt is set aside, not deleted."""
    parts, _ = read_parts(folder)
    done = set(parts)
    for name, part in parts.items():
        attempts = folder / "attempts"
        if part["outcome"] in RETRIED and not (attempts / f"{name}.json").exists():
            attempts.mkdir(exist_ok=True)
            part_path(folder, name).replace(attempts / f"{name}.json")
            done.discard(name)
    file = folder / "runs.parquet"
    tabled = set(pd.read_parquet(file, columns=["run"])["run"]) if file.is_file() else set()
    return done | (tabled - set(parts))


def _over_budget(run: Run, options: Options, elapsed_s: float) -> bool:
    first_of_a_block = run.block > 0 and run.order == 0
    return options.budget_s is not None and first_of_a_block and elapsed_s >= options.budget_s


def _whole_blocks(folder: Path, arms: Iterable[str]) -> bool:
    names = set(arms)
    seen: dict[int, set[str]] = {}
    for part in read_parts(folder)[0].values():
        if part["block"] >= 0:
            seen.setdefault(part["block"], set()).add(part["arm"])
    return bool(seen) and all(found == names for found in seen.values())


def _baseline_ok(folder: Path, baseline: str) -> bool:
    file = folder / "runs.parquet"
    if not file.is_file():
        return False
    runs = pd.read_parquet(file, columns=["arm", "block", "outcome"])
    return bool(((runs["arm"] == baseline) & (runs["outcome"] == "ok") & (runs["block"] >= 0)).any())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
