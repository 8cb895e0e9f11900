"""What a row of a sweep can be: a report, a recording, a comparison of a table, or one notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rcatools.batch.parameters import Parameter, check_values, distribute, read_parameters
from rcatools.errors import InputError, UnknownNameError
from rcatools.experiment.design import MOST_BLOCKS
from rcatools.recording.reader import file_sha256

DEFAULT_KIND = "report"
Values = Mapping[str, Any]


def _parameter(name: str, kind: str, default: Any = None, item: str = "any") -> Parameter:
    return Parameter(name, kind, item, default is None, default, "")


@dataclass(frozen=True)
class Kind:
    """One kind of row.

    Attributes:
        name: as in the table's ``kind`` column.
        declared: its parameters by name.
        required: those without which the row is wrong.
        check: checks everything and returns the ``p.`` values with their types.
        inputs: hashes of the files it reads, by role.
        paths: parameters that are paths, relative to the table.
        measures: whether a row with these parameters needs a quiet device.
    """

    name: str
    declared: Mapping[str, Parameter]
    required: tuple[str, ...]
    check: Callable[[Values, Values], dict[str, Any]]
    inputs: Callable[[Values], dict[str, str]]
    paths: tuple[str, ...] = ()
    measures: Callable[[Values], bool] = field(default=lambda parameters: False)

    def resolve(self, parameters: Values, folder: Path) -> dict[str, Any]:
        """The parameters with relative paths made absolute."""
        return {
            name: _absolute(value, folder) if name in self.paths and value else value
            for name, value in parameters.items()
        }


def _absolute(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_absolute(item, folder) for item in value]
    inside = folder / str(value)
    return str(inside.resolve()) if inside.exists() else value


MOST = {"blocks": MOST_BLOCKS}


@lru_cache(maxsize=4096)
def _hash(path: str, size: int, changed_ns: int) -> str:
    return file_sha256(Path(path))


def content_hash(path: Path) -> str:
    """SHA-256 of a file, read once while it does not change."""
    if not path.is_file():
        raise InputError(f"no file at {path}: give a path relative to the table")
    facts = path.stat()
    return _hash(str(path.resolve()), facts.st_size, facts.st_mtime_ns)


def _positive(parameters: Values, *names: str) -> None:
    for name in names:
        value = parameters.get(name)
        if value is not None and not 0 < value <= MOST.get(name, 10**9):
            raise InputError(f"{name} must be above 0 and at most {MOST.get(name, 10**9):g}, got {value}")


# --- report -------------------------------------------------------------------------------------------


def _check_report(parameters: Values, settings: Values) -> dict[str, Any]:
    from rcatools.batch.pipeline import NOTEBOOKS, RESERVED, notebook_path
    from rcatools.report.evidence import check_drop
    from rcatools.report.inputs import inputs

    for name in settings:
        if name in RESERVED:
            raise InputError(f"parameter 'p.{name}' is set by the row itself: remove that column")
    _positive(parameters, "blocks", "budget_s")
    if parameters["live"] and parameters["recordings"]:
        raise InputError("'live' and 'recordings' exclude each other: leave one empty")
    if not parameters["live"] and (parameters["arms"] or parameters["blocks"] or parameters["budget_s"]):
        raise InputError("'arms', 'blocks' and 'budget_s' need 'live': set it to true, or leave them empty")
    if parameters["live"]:
        _check_arms(parameters["investigation"], parameters["arms"])
    books = [read_parameters(notebook_path(name)) for name in NOTEBOOKS]
    checked: dict[str, Any] = {}
    for values in distribute(books, settings).values():
        checked |= values
    if not parameters["live"]:
        inputs(
            parameters["investigation"],
            parameters["recordings"],
            checked.get("margin") or None,
            tuple(checked.get("drop_arms") or ()),
        )
    if checked.get("drop_arms"):
        check_drop(parameters["investigation"], tuple(checked["drop_arms"]))
    return checked


def _report_inputs(parameters: Values) -> dict[str, str]:
    from rcatools.batch.pipeline import NOTEBOOKS, notebook_path
    from rcatools.report.locate import recording_folders

    files = _investigation_files(parameters["investigation"])
    files |= {f"notebook {name}": content_hash(notebook_path(name)) for name in NOTEBOOKS}
    if not parameters["live"]:
        for i, folder in enumerate(
            recording_folders(parameters["investigation"], parameters["recordings"]), 1
        ):
            files[f"recording {i}"] = content_hash(folder / "manifest.json")
    return files


# --- record -------------------------------------------------------------------------------------------


def _check_record(parameters: Values, settings: Values) -> dict[str, Any]:
    from rcatools.experiment.arms import load_plan
    from rcatools.experiment.workloads import check_parameters, needs_torch
    from rcatools.workload.config import preset

    _positive(parameters, "blocks", "budget_s", "run_timeout_s")
    if parameters["isolation"] not in {"fork", "spawn"}:
        raise UnknownNameError("isolation", parameters["isolation"], {"fork", "spawn"})
    share = parameters["spawn_share"]
    if share is not None and not 0 <= share <= 1:
        raise InputError(f"spawn_share must be between 0 and 1, got {share:g}")
    _check_arms(parameters["investigation"], [*parameters["arms"], *parameters["inspect"]])
    workload = load_plan(parameters["investigation"]).workload
    needs_torch(workload)  # refuses what no recording is made of
    if workload != "decode":
        check_parameters(workload, dict(settings))
        return dict(settings)
    config = preset("cpu").with_parameters(dict(settings)).as_dict()
    return {name: config[name] for name in settings}


def _check_arms(investigation: str, names: list[str]) -> None:
    from rcatools.experiment.arms import load_plan

    known = {arm.name for arm in load_plan(investigation).arms}
    for name in names:
        if name not in known:
            raise UnknownNameError("arm", name, known)


def _investigation_files(name: str) -> dict[str, str]:
    from rcatools.report.locate import investigation_folder

    folder = investigation_folder(name)
    return {
        file.name: content_hash(file)
        for file in (folder / "investigation.yaml", folder / "arms.toml")
        if file.is_file()
    }


# --- compare ------------------------------------------------------------------------------------------


def _check_compare(parameters: Values, settings: Values) -> dict[str, Any]:
    if settings:
        raise InputError("a compare row takes no 'p.' column: leave it empty")
    for name in ("margin", "confidence"):
        if not 0 < parameters[name] < 1:
            raise InputError(f"{name} must be between 0 and 1, got {parameters[name]:g}")
    content_hash(Path(parameters["table"]))
    return {}


# --- notebook -----------------------------------------------------------------------------------------


def _check_notebook(parameters: Values, settings: Values) -> dict[str, Any]:
    return check_values(read_parameters(Path(parameters["notebook"])), settings)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "report",
            {
                p.name: p
                for p in (
                    _parameter("investigation", "str", ""),
                    _parameter("recordings", "list", [], "str"),
                    _parameter("live", "bool", False),
                    _parameter("arms", "list", [], "str"),
                    _parameter("blocks", "int"),
                    _parameter("budget_s", "float"),
                )
            },
            ("investigation",),
            _check_report,
            _report_inputs,
            ("recordings",),
            lambda parameters: bool(parameters["live"]),
        ),
        Kind(
            "record",
            {
                p.name: p
                for p in (
                    _parameter("investigation", "str", ""),
                    _parameter("arms", "list", [], "str"),
                    _parameter("blocks", "int"),
                    _parameter("budget_s", "float"),
                    _parameter("isolation", "str", "fork"),
                    _parameter("seed", "int", 1),
                    _parameter("inspect", "list", [], "str"),
                    _parameter("spawn_share", "float"),
                    _parameter("run_timeout_s", "float", 300.0),
                )
            },
            ("investigation",),
            _check_record,
            lambda parameters: _investigation_files(parameters["investigation"]),
            (),
            lambda parameters: True,
        ),
        Kind(
            "compare",
            {
                p.name: p
                for p in (
                    _parameter("table", "str", ""),
                    _parameter("baseline", "str", ""),
                    _parameter("arms", "list", [], "str"),
                    _parameter("metrics", "list", [], "str"),
                    _parameter("value", "str"),
                    _parameter("margin", "float", 0.02),
                    _parameter("confidence", "float", 0.95),
                    _parameter("higher_is_better", "bool"),
                )
            },
            ("table", "baseline"),
            _check_compare,
            lambda parameters: {"table": content_hash(Path(parameters["table"]))},
            ("table",),
        ),
        Kind(
            "notebook",
            {p.name: p for p in (_parameter("notebook", "str", ""), _parameter("result", "str"))},
            ("notebook",),
            _check_notebook,
            lambda parameters: {"notebook": content_hash(Path(parameters["notebook"]))},
            ("notebook",),
        ),
    )
}
