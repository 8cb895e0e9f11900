"""The whole way from recordings to a report folder: measure, judge, run the notebooks, render."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rcatools.batch.folder import recording_name, report_folder
from rcatools.batch.notebook import NotebookJob, NotebookRun
from rcatools.batch.parameters import distribute, read_parameters
from rcatools.batch.run import run_notebooks
from rcatools.batch.status import Status
from rcatools.errors import InputError, RunError
from rcatools.recording.writer import write_bytes, write_json
from rcatools.report import bundle, findings, live, page
from rcatools.report.answers import QUESTIONS
from rcatools.report.evidence import FOLDER, Evidence, Inputs, gather, inputs
from rcatools.report.locate import checkout, investigation_folder
from rcatools.report.session import RESULTS

NOTEBOOKS = tuple(QUESTIONS)
RESERVED = {"investigation": "the first argument", "recordings": "--recording", "out": "--out"}
NOTEBOOK_LIMIT_S = 600.0


@dataclass(frozen=True)
class ReportOptions:
    """What ``rcatools report`` was asked for.

    Attributes:
        investigation: its name.
        out: the report folder.
        recordings: folders or embedded names; none: the embedded ones.
        live: measure all arms on this machine and judge only that.
        check_live: add a short measurement on this machine beside the recordings.
        device: device of a live measurement.
        record_options: further options of the recorder for ``live``.
        parameters: notebook parameters by name, as texts or values.
        workers: notebooks at a time; None: one per core.
    """

    investigation: str
    out: Path
    recordings: Sequence[str] = ()
    live: bool = False
    check_live: bool = True
    device: str = "auto"
    record_options: Sequence[str] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    workers: int | None = None


@dataclass(frozen=True)
class ReportResult:
    """Where the report is and what it says."""

    folder: Path
    state: str
    answer: str
    verdict: str | None
    failures: tuple[str, ...]


Say = Callable[[str], None]


def run_report(options: ReportOptions, say: Say = lambda text: None) -> ReportResult:
    """Make a report folder.

    Raises:
        InputError: a wrong call or input; nothing was run then.
        RunError: the live measurement failed; the status file says so.
    """
    books = {name: notebook_path(name) for name in NOTEBOOKS}
    values = _parameters(books, options.parameters)
    if options.live and options.recordings:
        raise InputError("--live and --recording exclude each other: give one of them")
    investigation_folder(options.investigation)
    settings = _settings(values)
    if not options.live:
        inputs(options.investigation, options.recordings, **settings)
    with report_folder(options.out) as folder:
        status = Status(folder / "status.json", books, {"investigation": options.investigation})
        try:
            return _run(options, folder, status, books, values, settings, say)
        except BaseException as error:
            if status.state == "running":
                status.note_error(str(error) or type(error).__name__)
                status.finish()
            raise


def _run(
    options: ReportOptions,
    folder: Path,
    status: Status,
    books: Mapping[str, Path],
    values: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
    say: Say,
) -> ReportResult:
    live_note: dict[str, Any] | None = None
    if options.live:
        recordings: Sequence[str] = [str(_measure_all(options, folder, say))]
    else:
        recordings = options.recordings
        if options.check_live:
            live_note = _check_live(options, folder, say)
    asked = inputs(options.investigation, recordings, **settings)
    say("judging " + ", ".join(path.name for path in asked.recordings))
    evidence = gather(asked)
    if live_note:
        evidence.document["live"] = live_note
    if options.live:
        evidence.document["reproduce"] = f"rcatools report {options.investigation} --live"
    evidence.save(folder / FOLDER, asked.key())
    _render(folder, evidence)
    say(f"running {len(books)} notebooks")
    jobs = [_job(name, path, folder, asked, values) for name, path in books.items()]
    runs = run_notebooks(jobs, status, workers=options.workers, progress=lambda run: say(_describe(run)))
    failures = tuple(f"{run.name}: {run.error}" for run in runs if run.state != "done")
    if failures:
        evidence.document["warnings"] = [
            *evidence.document["warnings"],
            *(f"notebook {text}" for text in failures),
        ]
        _render(folder, evidence)
    bundle.write_bundle(folder, folder / "report.zip", {"status.json": status.final_bytes()})
    state = status.finish()
    effect = evidence.document["effect"]
    return ReportResult(
        folder, state, str(evidence.document["answer"]), effect["verdict"] if effect else None, failures
    )


def notebook_path(name: str) -> Path:
    """A notebook of the checkout."""
    return checkout() / "notebooks" / f"{name}.ipynb"


def _parameters(books: Mapping[str, Path], given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    for name in given:
        if name in RESERVED:
            raise InputError(f"parameter {name!r} is set by {RESERVED[name]}")
    by_file = distribute([read_parameters(path) for path in books.values()], given)
    return {name: by_file[path.name] for name, path in books.items()}


def _settings(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The parameters that change the judgement itself."""
    together = {name: value for book in values.values() for name, value in book.items()}
    return {"margin": together.get("margin") or None, "drop_arms": tuple(together.get("drop_arms") or ())}


def _measure_all(options: ReportOptions, folder: Path, say: Say) -> Path:
    target = recording_name(folder, f"{Path(options.investigation).name}-live")
    say(f"measuring on this machine into {target.parent.name}/{target.name}")
    run = live.measure(
        options.investigation,
        target,
        device=options.device,
        options=options.record_options,
        limit_s=None,
        quiet=False,
    )
    if run.folder is None:
        raise RunError(f"{run.reason}; see {target} and run 'rcatools doctor'")
    return run.folder


def _check_live(options: ReportOptions, folder: Path, say: Say) -> dict[str, Any]:
    say("live check: a few blocks on this machine")
    run = live.measure(
        options.investigation,
        recording_name(folder, f"{Path(options.investigation).name}-check"),
        device=options.device,
        arms=live.SHORT_ARMS,
        options=live.SHORT,
        log=folder / "logs" / "live.log",
    )
    _, note = live.check(options.investigation, run)
    return note


def _job(
    name: str, path: Path, folder: Path, asked: Inputs, values: Mapping[str, Mapping[str, Any]]
) -> NotebookJob:
    home, root = str(Path.home()), str(checkout())
    replace = {str(item): item.name for item in asked.recordings}
    replace |= {str(folder.resolve()): "report", root: "checkout"}
    if len(home) > 1:
        replace[home] = "~"
    return NotebookJob(
        source=path,
        output=folder / "notebooks" / path.name,
        parameters={
            "investigation": asked.investigation,
            "recordings": [str(item.resolve()) for item in asked.recordings],
            "out": str(folder.resolve()),
            **values[name],
        },
        timeout_s=NOTEBOOK_LIMIT_S,
        env={"PYTHONPATH": live.with_package(""), "JUPYTER_PREFER_ENV_PATH": "1"},
        result=folder / RESULTS / f"{name}.json",
        replace=replace | {str(item.resolve()): item.name for item in asked.recordings},
    )


def _render(folder: Path, evidence: Evidence) -> None:
    write_json(folder / "verdict.json", evidence.document)
    write_bytes(folder / "findings.md", findings.render(evidence.document).encode())
    html = page.render(evidence.document, evidence.measured, evidence.facts)
    write_bytes(folder / "report.html", html.encode())


def _describe(run: NotebookRun) -> str:
    return f"{run.name} {run.state} in {run.seconds:.1f} s" + (f": {run.error}" if run.error else "")


def result_json(result: ReportResult) -> dict[str, Any]:
    """The result for ``--json``."""
    return {
        "report": str(result.folder),
        "state": result.state,
        "answer": result.answer,
        "verdict": result.verdict,
        "failures": list(result.failures),
        "files": sorted(
            name
            for name in ("findings.md", "report.html", "report.zip", "verdict.json", "status.json")
            if (result.folder / name).is_file()
        ),
    }
