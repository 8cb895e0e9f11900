"""Does the work of one job in its own process and writes ``result.json``, the only proof that it is done.

python -m rcatools.batch.execute JOB_FOLDER ATTEMPT
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rcatools.batch.jobs import RESULT, Job
from rcatools.errors import InputError, RcaError, RunError
from rcatools.files import write_json

Outcome = dict[str, Any]
MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def execute(job: Job, number: int) -> Outcome:
    """Do the work and write the result.

    Raises:
        RcaError: what the row's kind raises; there is no result then.
    """
    document = job.document()
    folder = job.attempt(number)
    outcome = RUNNERS[document["kind"]](document, folder, str(job.status()["place"]["backend"]))
    result = {
        "job": job.name,
        "kind": document["kind"],
        "labels": document["labels"],
        **outcome,
        "masks": {name: os.environ.get(name) for name in MASKS},
    }
    write_json(folder / RESULT, result)
    return result


def _report(document: dict[str, Any], folder: Path, backend: str) -> Outcome:
    from rcatools.batch.pipeline import ReportOptions, run_report

    p = document["parameters"]
    words: list[str] = []
    if p["live"]:
        budget = p["budget_s"] or (60 if backend == "cpu" else 900)
        words = ["--budget-s", f"{budget:g}"]
        words += ["--arms", ",".join(p["arms"])] if p["arms"] else []
        words += ["--blocks", str(p["blocks"])] if p["blocks"] else []
    options = ReportOptions(
        investigation=p["investigation"],
        out=folder / "report",
        recordings=p["recordings"],
        live=p["live"],
        check_live=False,
        device="auto" if backend == "none" else backend,
        record_options=words,
        parameters=document["settings"],
        workers=1,
    )
    done = run_report(options, _say)
    if done.state != "done":
        raise RunError(f"notebook {done.failures[0]}" if done.failures else "the report failed")
    return {"verdict": done.verdict, "answer": done.answer, "report": "report"}


def _record(document: dict[str, Any], folder: Path, backend: str) -> Outcome:
    from rcatools.experiment.arms import load_plan
    from rcatools.experiment.runner import Options, record

    p = document["parameters"]
    options = Options(
        out=folder / "recording",
        device="auto" if backend == "none" else backend,
        arms=tuple(p["arms"]) or None,
        blocks=p["blocks"],
        budget_s=p["budget_s"],
        isolation=p["isolation"],
        seed=p["seed"],
        parameters=document["settings"],
        timeout_s=p["run_timeout_s"],
        inspect=tuple(p["inspect"]),
        spawn_share=p["spawn_share"],
        env=document["env"],
        command=_record_command(document, backend),
    )
    manifest = record(load_plan(p["investigation"]), options, _say_run)
    return {
        "verdict": None,
        "recording": "recording",
        "state": manifest["state"],
        "counts": manifest["counts"],
        "device": manifest["device"],
    }


def _record_command(document: dict[str, Any], backend: str) -> str:
    p = document["parameters"]
    words = ["rcatools", "record", p["investigation"], "--out", "recording", "--device", backend]
    words += ["--arms", ",".join(p["arms"])] if p["arms"] else []
    words += ["--blocks", str(p["blocks"])] if p["blocks"] else []
    words += ["--isolation", p["isolation"], "--seed", str(p["seed"])]
    for name, value in document["settings"].items():
        words += ["-p", f"{name}={value}"]
    for name, value in document["env"].items():
        words += ["--env", f"{name}={value}"]
    return " ".join(words)


def _compare(document: dict[str, Any], folder: Path, backend: str) -> Outcome:
    from rcatools.recording.tables import Request
    from rcatools.report.compare_json import to_json
    from rcatools.report.compare_run import judge_tables

    p = document["parameters"]
    request = Request(
        baseline=p["baseline"],
        arms=tuple(p["arms"]),
        metrics=tuple(p["metrics"]),
        value=p["value"],
        higher_is_better=p["higher_is_better"],
    )
    judged = judge_tables([(None, Path(p["table"]))], request, margin=p["margin"], confidence=p["confidence"])
    write_json(folder / "compare.json", to_json(judged.verdict, judged.shown))
    return {"verdict": str(judged.verdict.verdict), "compare": "compare.json"}


def _notebook(document: dict[str, Any], folder: Path, backend: str) -> Outcome:
    from rcatools.batch.notebook import NotebookJob, run_notebook

    source = Path(document["parameters"]["notebook"])
    name = document["parameters"]["result"]
    values = dict(document["settings"])
    job = NotebookJob(
        source=source,
        output=folder / source.name,
        parameters=values,
        timeout_s=document["timeout_s"],
        env={"RCATOOLS_ATTEMPT": str(folder.resolve())},
        result=folder / Path(name).name if name else None,
    )
    run = run_notebook(job)
    for text in run.warnings:
        _say(text)
    if run.state != "done":
        raise RunError(run.error or "the notebook failed")
    return {
        "verdict": None,
        "notebook": source.name,
        "parameters": run.parameters,
        "warnings": list(run.warnings),
    }


RUNNERS: dict[str, Callable[[dict[str, Any], Path, str], Outcome]] = {
    "report": _report,
    "record": _record,
    "compare": _compare,
    "notebook": _notebook,
}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _say_run(number: int, total: int, part: dict[str, Any]) -> None:
    _say(f"[{number}/{total}] {part['run']} {part['outcome']} {part['wall_s']:.1f} s")


def main(words: list[str]) -> int:
    """Entry of the worker's process."""
    from rcatools.batch.processes import end_with_parent

    end_with_parent()
    try:
        execute(Job(Path(words[0])), int(words[1]))
        return 0
    except RcaError as error:
        _say(f"rcatools: {' '.join(str(error).split())}")
        return error.exit_code
    except OSError as error:
        _say(f"rcatools: {InputError(f'cannot use {error.filename}: {error.strerror}')}")
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
