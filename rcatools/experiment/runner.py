"""Makes a recording: plan first, then one isolated run after the other, then the tables."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from rcatools.device.backend import import_torch
from rcatools.errors import RunError, UnavailableError
from rcatools.experiment import looks
from rcatools.experiment.arms import Plan
from rcatools.experiment.design import INSPECTION_BLOCK
from rcatools.experiment.prepare import Options, Prepared, now, prepare, run_environment, task
from rcatools.experiment.process import run_worker
from rcatools.experiment.workloads import needs_torch
from rcatools.files import write_json
from rcatools.recording.writer import (
    clean_leftovers,
    exclusive,
    finish,
    part_path,
    read_parts,
    read_tabled,
    samples_of,
)

__all__ = ["Options", "record"]

RETRIED = ("killed", "hung")  # outcomes that say nothing about the arm
ATTEMPTS = 2
WHOLE_ENDS = ("schedule", "budget", "looks")  # all of them end between two blocks
LEAST_FAILED = 3  # timed runs that must have failed before the recording gives up
WHAT_TO_CHANGE = {
    "out_of_memory": "ask for less with -p (batch, context, layers, kv_limit) or free the device",
    "hung": "raise --timeout-s or ask for less with -p",
    "device_lost": "reset the device and run 'rcatools doctor'",
}
Progress = Callable[[int, int, dict[str, Any]], None]


def record(plan: Plan, options: Options, progress: Progress) -> dict[str, Any]:
    """Make or continue a recording and return its manifest.

    Raises:
        InputError: the folder is in use or holds another recording, or a name is not known.
        UnavailableError: the device is not there.
        RunError: the disk is full, every run of the first block failed alike, or no run of the baseline succeeded.
        KeyboardInterrupt: Ctrl-C; the recording is left resumable.
    """
    needs_torch(plan.workload)
    with exclusive(options.out), environment_with(run_environment(options)):
        prepared = prepare(plan, options)
        clean_leftovers(options.out)
        if needs_torch(plan.workload):
            warm_parent(prepared.manifest["design"]["isolation"])
        manifest = prepared.manifest
        stopped_by = "error"
        try:
            stopped_by = _measure(prepared, options, progress)
        except KeyboardInterrupt:
            stopped_by = "interrupt"
            raise
        finally:
            manifest["finished_utc"] = now()
            manifest = _finish(prepared, options.out, stopped_by)
    if stopped_by == "all_failed":
        raise RunError(_why_given_up(options.out))
    if not _baseline_ok(options.out, plan.baseline):
        failed = _timed(options.out, plan.baseline)
        raise RunError(
            f"no run of the baseline {plan.baseline!r} succeeded{_common_failure(failed)}: what is there is kept in "
            f"{options.out}; {_what_to_change(failed, options.out)}, then record into another --out"
        )
    return manifest


def _measure(prepared: Prepared, options: Options, progress: Progress) -> str:
    """Run what is not done yet; returns why it ended: "schedule", "budget", "looks" or "all_failed"."""
    manifest, runs = prepared.manifest, prepared.runs
    done = _finished_runs(options.out)
    hopeful = options.keep_going
    begun = time.monotonic()
    for number, run in enumerate(runs):
        opens_block = run.order == 0 and run.block != INSPECTION_BLOCK
        if opens_block and _decided(manifest, options.out, run.block):
            return "looks"
        if opens_block and not hopeful:
            outcomes = _outcomes(options.out)
            hopeful = bool((outcomes["outcome"] == "ok").any())
            if is_hopeless(outcomes, blocks=run.block):
                return "all_failed"
        if run.run in done:
            continue
        past = options.budget_s is not None and time.monotonic() - begun >= options.budget_s
        if opens_block and run.block > 0 and past:
            return "budget"
        work = task(run, prepared.arms[run.arm], manifest, options.out)
        part = run_worker(work, timeout_s=options.timeout_s)
        progress(number + 1, len(runs), part)
    return "looks" if _decided(manifest, options.out, int(manifest["design"]["blocks"])) else "schedule"


def is_hopeless(outcomes: pd.DataFrame, *, blocks: int) -> bool:
    """Whether every run so far failed, so that the blocks to come would only fail as well.

    One block is enough where all its runs failed with the same outcome, two are where they failed in several
    ways; one bad arm never is, nor are fewer than ``LEAST_FAILED`` runs, nor anything after one success.

    Args:
        outcomes: "block" and "outcome" of all runs so far, untimed inspections (block -1) among them.
        blocks: whole blocks so far.
    """
    timed = outcomes[outcomes["block"] >= 0]
    if (outcomes["outcome"] == "ok").any() or blocks < 1 or len(timed) < LEAST_FAILED:
        return False
    return blocks >= 2 or timed["outcome"].nunique() == 1


def _outcomes(folder: Path) -> pd.DataFrame:
    """Block, arm, outcome and reason of every run so far, from the table and the parts beside it."""
    parts, _ = read_parts(folder)
    keys = ["run", "block", "arm", "outcome", "reason"]
    fresh = pd.DataFrame([{key: part.get(key) for key in keys} for part in parts.values()], columns=keys)
    tabled = read_tabled(folder)
    return pd.concat([tabled.loc[~tabled["run"].isin(set(parts)), keys].astype(object), fresh.astype(object)])


def _timed(folder: Path, arm: str) -> pd.DataFrame:
    found = _outcomes(folder)
    return found[(found["arm"] == arm) & (found["block"] >= 0)]


def _common_failure(outcomes: pd.DataFrame) -> str:
    """The outcome that most runs had and its most frequent reason, in brackets; empty without a run."""
    failed = Counter(zip(outcomes["outcome"], outcomes["reason"], strict=True))
    if not failed:
        return ""
    (outcome, reason), _ = failed.most_common(1)[0]
    return f" ({outcome}: {str(reason)[:200]})" if reason else f" ({outcome})"


def _what_to_change(outcomes: pd.DataFrame, folder: Path) -> str:
    most = str(outcomes["outcome"].mode().iloc[0]) if len(outcomes) else ""
    return WHAT_TO_CHANGE.get(most, f"see {folder}/logs and mend what they say")


def _why_given_up(folder: Path) -> str:
    outcomes = _outcomes(folder)
    return (
        f"all {len(outcomes)} runs so far failed{_common_failure(outcomes)}: stopped, and kept in {folder}; "
        f"{_what_to_change(outcomes, folder)}, then record into another --out; or go on regardless with --resume "
        "--keep-going"
    )


def _decided(manifest: dict[str, Any], folder: Path, blocks: int) -> bool:
    """Whether the planned look after so many blocks ends the recording; its findings go into the manifest."""
    declared = manifest["design"].get("sequential")
    if not declared or blocks not in declared["blocks"]:
        return False
    design = manifest["design"]
    values = samples_of(folder, design["metric"])
    values = values[values["block"] < blocks]
    history = [row for row in manifest.get("looks", []) if row["blocks"] < blocks]
    found = looks.evaluate(
        declared, values, baseline=design["baseline"], margin=design["margin"], blocks=blocks, before=history
    )
    manifest["looks"] = history + found
    return looks.all_decided(declared, manifest["looks"])


@contextlib.contextmanager
def environment_with(settings: dict[str, str]) -> Any:
    """Set environment variables for the duration of a recording."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def warm_parent(isolation: str) -> None:
    """Import what workers need, once, so that forked ones start at once; touches no device.

    Raises:
        UnavailableError: this process holds a device context already, so that a fork would inherit it.
    """
    torch = import_torch()
    if isolation == "fork" and torch.cuda.is_initialized():
        raise UnavailableError(
            "this process holds a device context, which a forked run would inherit: use isolation 'spawn'"
        )
    importlib.import_module("rcatools.experiment.decode")
    with contextlib.suppress(ImportError):
        importlib.import_module("rcatools.workload.triton_kernels").warm()


def _finish(prepared: Prepared, folder: Path, stopped_by: str) -> dict[str, Any]:
    """Write tables and manifest; a failure here never hides what is already under way."""
    under_way = sys.exc_info()[0] is not None
    manifest = prepared.manifest
    manifest["stopped_by"] = stopped_by
    try:
        return finish(folder, manifest, state="complete" if stopped_by in WHOLE_ENDS else "stopped")
    except RunError:
        if under_way:
            return manifest
        raise


def _finished_runs(folder: Path) -> set[str]:
    """Ids of the runs that need not be made again; earlier failed attempts are set aside, not deleted."""
    parts, _ = read_parts(folder)
    tabled = read_tabled(folder)
    done = set(parts) | set(tabled["run"])
    outcomes = dict(zip(tabled["run"], tabled["outcome"], strict=True))
    outcomes |= {name: part["outcome"] for name, part in parts.items()}
    attempts = folder / "attempts"
    for name, outcome in outcomes.items():
        if outcome not in RETRIED:
            continue
        earlier = len(list(attempts.glob(f"{name}.*.json"))) if attempts.is_dir() else 0
        if earlier + 1 < ATTEMPTS:
            done.discard(name)
            place = attempts / f"{name}.{earlier}.json"
            attempts.mkdir(exist_ok=True)
            if name in parts:
                shutil.move(part_path(folder, name), place)
            else:
                row = tabled[tabled["run"] == name].iloc[0].dropna()
                write_json(
                    place, {key: getattr(value, "item", lambda v=value: v)() for key, value in row.items()}
                )
    return done


def _baseline_ok(folder: Path, baseline: str) -> bool:
    runs: pd.DataFrame = read_tabled(folder)
    good = (runs["arm"] == baseline) & (runs["outcome"] == "ok") & (runs["block"] >= 0)
    return bool(good.any())
