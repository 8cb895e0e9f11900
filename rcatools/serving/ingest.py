"""Makes an ordinary recording of results that vLLM wrote elsewhere, so that everything else works on them.

One process is one run: a result file, or a folder that holds what was measured on one server with its log. Files of the
same arm are its runs in the order given; the first run of every arm is block 0, the second block 1, and so on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcatools.errors import InputError
from rcatools.experiment.arms import Plan
from rcatools.experiment.worker import classify
from rcatools.files import write_json
from rcatools.recording.writer import exclusive, finish, part_path, write_manifest
from rcatools.serving.logs import LogFacts, read_log
from rcatools.serving.metrics import Lengths, RunSamples, common_load, run_samples, set_primary
from rcatools.serving.results import BenchResult, read_results
from rcatools.serving.runner import with_memory
from rcatools.serving.sweep import SweepServer, is_sweep, read_sweep

MAX_RUNS = 10_000
_NAME = re.compile(r"[A-Za-z0-9_]{1,60}")
_TWIN = ".pytorch.json"


@dataclass(frozen=True)
class Source:
    """One run as it was given.

    Attributes:
        arm: its arm.
        path: a result file, or a folder with the results and log of one server.
    """

    arm: str
    path: Path


@dataclass(frozen=True)
class Settings:
    """What result files do not tell.

    Attributes:
        baseline: baseline arm, "" for the investigation's, or the first arm given where that was not measured.
        margin: equivalence margin, None for the investigation's.
        lengths: batch and output length of latency and throughput results.
        device: name of the card, "" if unknown.
        backend: "rocm", "cuda" or "cpu", "" to take it from the logs.
        command: the command line, for the manifest.
    """

    baseline: str = ""
    margin: float | None = None
    lengths: Lengths = field(default_factory=Lengths)
    device: str = ""
    backend: str = ""
    command: str = ""


@dataclass
class _Read:
    arm: str
    source: str
    digest: str
    results: list[BenchResult]
    log: LogFacts
    notes: list[str]
    samples: RunSamples = field(default_factory=RunSamples)


def parse_sources(words: Sequence[str]) -> list[Source]:
    """``ARM=PATH`` words, or paths alone: then the arm has the path's name without a run number at its end.

    The folder of a sweep gives one run for each of its servers, with their own names.

    Raises:
        InputError: a word names nothing that exists, or no usable arm.
    """
    return [_parse_source(word) for word in words]


def _parse_source(word: str) -> Source:
    path = Path(word)
    if path.exists():
        name = path.name if path.is_dir() else path.stem
        sweep = path.is_dir() and is_sweep(path)
        arm = "" if sweep else _arm_name(re.sub(r"([-_.](run)?[-_.=]?\d+)+$", "", name) or name)
        return Source(arm, path)
    arm, sign, rest = word.partition("=")
    if not sign:
        raise InputError(
            f"there is no {word}: give ARM=PATH, a result file or folder, or the folder of a sweep"
        )
    if not Path(rest).exists():
        raise InputError(f"{word}: there is no {rest}; give ARM=PATH of a result file or folder")
    if not _NAME.fullmatch(arm):
        raise InputError(
            f"{word}: the arm's name may hold letters, digits and underscores only: give another"
        )
    return Source(arm, Path(rest))


def ingest(plan: Plan, sources: Sequence[Source], out: Path, settings: Settings) -> dict[str, Any]:
    """Write the recording and return its manifest.

    Raises:
        InputError: a file cannot be read, the folder holds a recording, or no run has a usable result.
    """
    if (out / "manifest.json").exists():
        raise InputError(f"{out} already holds a recording: choose another --out")
    runs = [run for source in sources for run in _read(source)]
    if not runs or len(runs) > MAX_RUNS:
        raise InputError(
            f"{len(runs)} runs were given: at least one and at most {MAX_RUNS} can be ingested, give fewer or more"
        )
    for run in runs:
        run.samples = run_samples(run.results, settings.lengths)
    load = common_load([run.samples for run in runs])
    for run in runs:
        set_primary(run.samples, load)
    if not any(run.samples.samples for run in runs):
        reasons = "; ".join(dict.fromkeys(run.samples.reason for run in runs if run.samples.reason))
        raise InputError(f"no run has a usable result: {reasons[:300]} (logs alone: 'rcatools serving log')")
    arms = list(dict.fromkeys(run.arm for run in runs))
    with exclusive(out):
        manifest = _manifest(plan, runs, arms, load, settings)
        write_manifest(out, manifest)
        for part in _parts(runs, arms):
            write_json(part_path(out, part["run"]), part)
        manifest = finish(out, manifest, state="complete")
        return with_memory(out, manifest, str(manifest["design"]["baseline"]))


def _read(source: Source) -> list[_Read]:
    path = source.path
    if path.suffix == ".log":
        return [_Read(source.arm, path.name, _digest([path]), [], read_log(path), [])]
    if path.is_file():
        log = path.with_suffix(".log")
        facts = read_log(log) if log.is_file() else LogFacts()
        return [_Read(source.arm, path.name, _digest([path]), read_results(path), facts, [])]
    if is_sweep(path):
        return [
            _Read(
                source.arm or _arm_name(server.name),
                f"{path.name}/{server.name or 'server'}",
                "",
                [*_told_apart(server), *server.failures],
                LogFacts(),
                [*server.notes, "one server made all repetitions of a sweep: they are samples of one run"],
            )
            for server in read_sweep(path)
        ]
    return [_read_folder(source)]


def _told_apart(server: SweepServer) -> list[BenchResult]:
    """All results of a sweep's server; combinations of the same load get different names."""
    first = {name: results[0].load for name, results in server.results.items() if results}
    unclear = len(set(first.values())) < len(first)
    return [
        replace(item, setup={**item.setup, "combination": _arm_name(name)}) if unclear else item
        for name, results in server.results.items()
        for item in results
    ]


def _read_folder(source: Source) -> _Read:
    files = sorted(file for file in source.path.glob("*.json") if not file.name.endswith(_TWIN))
    logs = sorted(source.path.glob("*.log"))
    notes, results, used = [], [], []
    for file in files:
        try:
            results += read_results(file)
            used.append(file)
        except InputError as error:
            notes.append(f"left out: {error}")
    twins = len(list(source.path.glob(f"*{_TWIN}")))
    if twins:
        notes.append(f"left out: {twins} files in PyTorch benchmark form, which repeat the others")
    facts = LogFacts()
    for log in logs:
        found = read_log(log)
        if found.starts or not facts.starts:
            facts = found
    if not results and not logs:
        raise InputError(
            f"{source.path} holds neither a result of 'vllm bench' nor a log: give a file or folder that does"
        )
    if len(logs) > 1:
        notes.append(f"{len(logs)} logs; the facts are those of the last one that starts a server")
    return _Read(source.arm, source.path.name, _digest([*used, *logs]), results, facts, notes)


def _parts(runs: Iterable[_Read], arms: Sequence[str]) -> Iterable[dict[str, Any]]:
    seen = dict.fromkeys(arms, 0)
    orders: dict[int, int] = {}
    for run in runs:
        block = seen[run.arm]
        seen[run.arm] += 1
        order = orders.setdefault(block, 0)
        orders[block] += 1
        outcome, reason = _outcome(run)
        yield {
            "run": f"{block:03d}-{order:02d}-{run.arm}",
            "arm": run.arm,
            "block": block,
            "order": order,
            "isolation": "spawn",
            "started_utc": None,
            "wall_s": None,
            "outcome": outcome,
            "reason": reason,
            "samples": run.samples.samples if outcome == "ok" else {},
            "kernels": {},
            "facts": {
                **run.log.facts(),
                **run.samples.facts,
                "source": run.source,
                "source_sha256": run.digest or None,
                "notes": "; ".join([*run.notes, *run.samples.notes, *run.log.notes])[:2000] or None,
            },
        }


def _outcome(run: _Read) -> tuple[str, str | None]:
    if run.samples.samples:
        return "ok", None
    if run.log.oom:
        return "out_of_memory", run.log.oom
    if run.log.error and not run.results:
        return classify(RuntimeError(run.log.error))[0], run.log.error
    return "error", run.samples.reason or "no result"


def _manifest(
    plan: Plan, runs: Sequence[_Read], arms: Sequence[str], load: str, settings: Settings
) -> dict[str, Any]:
    baseline = settings.baseline or (plan.baseline if plan.baseline in arms else arms[0])
    if baseline not in arms:
        raise InputError(
            f"the baseline {baseline!r} was not given: the arms are {', '.join(arms)}; give one with --baseline"
        )
    platforms = {run.log.platform for run in runs if run.log.platform}
    backend = settings.backend or (platforms.pop() if len(platforms) == 1 else "unknown")
    versions = sorted({run.log.version for run in runs if run.log.version})
    models = sorted(
        {str(item.setup["model_id"]) for run in runs for item in run.results if "model_id" in item.setup}
    )
    kinds = sorted({item.kind for run in runs for item in run.results if item.kind != "failure"})
    declared = {arm.name: arm for arm in plan.arms}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "investigation": plan.investigation,
        "state": "running",
        "created_utc": now,
        "finished_utc": now,
        "command": settings.command,
        "device": {"backend": backend, "name": settings.device or "unknown (ingested results)", "arch": ""},
        "environment": {"packages": {"vllm": ", ".join(versions)} if versions else {}},
        "workload": {
            "name": f"vllm bench {', '.join(kinds)}",
            "parameters": {
                "model": ", ".join(Path(model).name for model in models) or None,
                "batch_size": settings.lengths.batch,
                "output_len": settings.lengths.output,
                "primary_load": load or None,
            },
            "kernels": [],
        },
        "ceilings": {},
        "design": {
            "baseline": baseline,
            "metric": plan.metric,
            "margin": settings.margin or plan.margin,
            "confidence": plan.confidence,
            "blocks": max(sum(run.arm == arm for run in runs) for arm in arms),
            "isolation": "spawn",
            "arms": [
                declared[arm].as_dict() if arm in declared else {"name": arm, "role": "probe", "summary": ""}
                for arm in arms
            ],
        },
        "counts": {"planned": len(runs)},
        "ingested": True,
    }


def _arm_name(combination: str) -> str:
    """An arm's name from a sweep's combination, which may hold any character."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", combination).strip("_")[:60] or "server"


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
