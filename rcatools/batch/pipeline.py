"""The whole way from recordings to a report folder: measure, judge, run the notebooks, render.

The live check measures in a process of its own while this one imports what judging needs; nothing else
runs beside it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rcatools.batch.folder import recording_name, report_folder
from rcatools.batch.parameters import distribute, read_parameters
from rcatools.batch.status import Status
from rcatools.errors import InputError, RunError, UnknownNameError
from rcatools.files import write_bytes, write_json
from rcatools.report import live
from rcatools.report.inputs import Inputs, inputs
from rcatools.report.locate import checkout, investigation_folder, names_declared, recording_folder
from rcatools.report.questions import GENERAL, QUESTIONS

if TYPE_CHECKING:
    from rcatools.batch.notebook import NotebookJob, NotebookRun
    from rcatools.report.evidence import Evidence

NOTEBOOKS = GENERAL
RESERVED = {"investigation": "the first argument", "recordings": "--recording", "out": "--out"}
NOTEBOOK_LIMIT_S = 600.0
FILES = ("findings.md", "report.html", "report.zip", "verdict.json", "status.json")


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


@dataclass(frozen=True)
class _Plan:
    """A checked call: the notebooks, their parameters, and what changes the judgement itself."""

    options: ReportOptions
    books: Mapping[str, Path]
    values: Mapping[str, Mapping[str, Any]]

    @property
    def together(self) -> dict[str, Any]:
        """The values that were given, of all notebooks."""
        return {name: value for book in self.values.values() for name, value in book.items()}

    def asked(self, recordings: Sequence[str]) -> Inputs:
        """What is judged, from these recordings."""
        return inputs(
            self.options.investigation,
            recordings,
            margin=self.together.get("margin") or None,
            drop_arms=tuple(self.together.get("drop_arms") or ()),
        )


def run_report(options: ReportOptions, say: Say = lambda text: None) -> ReportResult:
    """Make a report folder.

    Raises:
        InputError: a wrong call or input; nothing was run then.
        RunError: the live measurement failed; the status file says so.
    """
    plan = _check(options)
    with report_folder(options.out) as folder:
        status = Status(folder / "status.json", plan.books, {"investigation": options.investigation})
        try:
            return _run(plan, folder, status, say)
        except BaseException as error:
            if status.state == "running":
                status.note_error(str(error) or type(error).__name__)
                status.finish()
            raise


def _check(options: ReportOptions) -> _Plan:
    if options.live and options.recordings:
        raise InputError("--live and --recording exclude each other: give one of them")
    for name in options.parameters:
        if name in RESERVED:
            raise InputError(f"parameter {name!r} is set by {RESERVED[name]}: use that")
    investigation_folder(options.investigation)
    books = notebooks_of(options.investigation)
    by_file = distribute([read_parameters(path) for path in books.values()], options.parameters)
    plan = _Plan(options, books, {name: by_file[path.name] for name, path in books.items()})
    _check_inputs(plan)
    return plan


def _check_inputs(plan: _Plan) -> None:
    """Refuse what judging or a notebook would refuse later, before a folder is made."""
    from rcatools.report.evidence import opened_inputs

    options, together = plan.options, plan.together
    asked = Inputs(options.investigation, ()) if options.live else plan.asked(options.recordings)
    declared, _ = opened_inputs(replace(asked, drop_arms=tuple(together.get("drop_arms") or ())))
    for arm in together.get("arms") or ():
        if arm not in declared.spec.arms:
            raise UnknownNameError("arm to show", str(arm), declared.spec.arms)
    if together.get("top", 1) < 1:
        raise InputError(f"parameter 'top' must be 1 or more, got {together['top']}")
    if together.get("product"):
        recording_folder(str(together["product"]))
    if together.get("table"):
        from rcatools.report.compare_items import judge_table

        judge_table(
            str(together["table"]),
            str(together.get("table_baseline") or ""),
            float(together.get("margin") or 0),
        )


def notebooks_of(investigation: str) -> dict[str, Path]:
    """The notebooks of an investigation's report, in order.

    Raises:
        UnknownNameError: there is no such investigation, or it names a notebook that does not exist.
    """
    named = names_declared(investigation, "notebooks")
    for name in named:
        if name not in QUESTIONS:
            raise UnknownNameError(f"notebook of {investigation}", name, QUESTIONS)
    return {name: notebook_path(name) for name in named or NOTEBOOKS}


def notebook_path(name: str) -> Path:
    """A notebook of the checkout."""
    return checkout() / "notebooks" / f"{name}.ipynb"


def _run(plan: _Plan, folder: Path, status: Status, say: Say) -> ReportResult:
    options = plan.options
    with ThreadPoolExecutor(1) as pool:
        checking = None
        if options.check_live and not options.live:
            say("live check: a few blocks on this machine")
            checking = pool.submit(_measure_short, options, folder)
        _load_ahead()
        from rcatools.batch.run import run_notebooks
        from rcatools.report import bundle, livecheck
        from rcatools.report.evidence import FOLDER, gather

        recordings = [str(_measure_all(options, folder, say))] if options.live else options.recordings
        asked = plan.asked(recordings)
        note = livecheck.check(options.investigation, checking.result())[1] if checking else None
    say("judging " + ", ".join(path.name for path in asked.recordings))
    evidence = gather(asked)
    if note:
        evidence.document["live"] = note
    if options.live:
        evidence.document["reproduce"] = f"rcatools report {options.investigation} --live"
    evidence.save(folder / FOLDER, asked.key())
    _render(folder, evidence)
    say(f"running {len(plan.books)} notebooks")
    runs = run_notebooks(
        [_job(name, path, folder, asked, plan.values[name]) for name, path in plan.books.items()],
        status,
        workers=options.workers,
        progress=lambda run: say(_describe(run)),
    )
    failures = tuple(f"{run.name}: {run.error}" for run in runs if run.state != "done")
    if failures:
        told = [f"notebook {text}" for text in failures]
        evidence.document["warnings"] = [*evidence.document["warnings"], *told]
        _render(folder, evidence)
    bundle.write_bundle(folder, folder / "report.zip", {"status.json": status.final_bytes()})
    state = status.finish()
    effect = evidence.document["effect"]
    verdict = effect["verdict"] if effect else None
    return ReportResult(folder, state, str(evidence.document["answer"]), verdict, failures)


def _load_ahead() -> None:
    """Import what judging and rendering need while the live check measures."""
    for name in ("diagnosis", "report.reading", "report.page", "report.findings"):
        importlib.import_module(f"rcatools.{name}")


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
    if run.folder is None and run.code == 2:
        raise InputError(f"{run.reason}: nothing was measured; correct what the line above says")
    if run.folder is None:
        raise RunError(f"{run.reason}; see {target} and run 'rcatools doctor'")
    return run.folder


def _measure_short(options: ReportOptions, folder: Path) -> live.LiveRun:
    try:
        arms, short = live.short(options.investigation)
    except InputError as error:
        return live.LiveRun(None, str(error))
    return live.measure(
        options.investigation,
        folder / "live" / f"{Path(options.investigation).name}-check",
        device=options.device,
        arms=arms,
        options=short,
        log=folder / "logs" / "live.log",
    )


def _job(name: str, path: Path, folder: Path, asked: Inputs, values: Mapping[str, Any]) -> NotebookJob:
    from rcatools.batch.notebook import NotebookJob
    from rcatools.report.session import RESULTS

    out = str(folder.resolve())
    replace = {str(item): item.name for item in asked.recordings}
    replace |= {str(item.resolve()): item.name for item in asked.recordings}
    given = [item for value in values.values() for item in (value if isinstance(value, list) else [value])]
    paths = [item for item in given if isinstance(item, str) and Path(item).is_absolute()]
    replace |= {path: Path(path).name for path in paths}
    replace |= {out: "report", str(checkout()): "checkout", str(Path.home()): "~"}
    return NotebookJob(
        source=path,
        output=folder / "notebooks" / path.name,
        parameters={
            "investigation": asked.investigation,
            "recordings": [str(item.resolve()) for item in asked.recordings],
            "out": out,
            **values,
        },
        timeout_s=NOTEBOOK_LIMIT_S,
        env={
            "PYTHONPATH": live.with_package(os.environ.get("PYTHONPATH", "")),
            "JUPYTER_PREFER_ENV_PATH": "1",
        },
        result=folder / RESULTS / f"{name}.json",
        replace={old: new for old, new in replace.items() if len(old) > 1},
    )


def _render(folder: Path, evidence: Evidence) -> None:
    from rcatools.report import findings, page

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
        "files": sorted(name for name in FILES if (result.folder / name).is_file()),
    }
