"""The table of a sweep: one row, one set of typed parameters, all of it checked before anything runs.

Columns: ``kind`` (report, record, compare or notebook; report where the column is missing), the parameters
of that kind by name, and

    name        how the row is called in lists
    device      auto, cpu, gpu, cuda or rocm, for rows that measure
    accelerator type of card on a cluster, as Ray names it
    group       rows of one comparison: run one after the other on one device
    timeout_s   the row is ended after so many seconds
    p.NAME      parameter of the notebooks or of the workload
    env.NAME    environment of the row's process
    label.NAME  free text that the index keeps, such as commit, model or day

An empty cell is a parameter that is not given. Paths are relative to the table's folder.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rcatools import __version__
from rcatools.batch.kinds import DEFAULT_KIND, KINDS, Kind
from rcatools.batch.parameters import Parameter, convert
from rcatools.errors import InputError, RcaError, UnknownNameError

MAX_TABLE_BYTES = 32 * 2**20
MAX_ROWS = 100_000
DEVICES = ("auto", "cpu", "gpu", "cuda", "rocm")
DEFAULT_TIMEOUT_S = 6 * 3600.0
PREFIXES = ("p.", "env.", "label.")
_COMMON = ("kind", "name", "device", "accelerator", "group", "timeout_s")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL = re.compile(r"[a-z][a-z0-9_]{0,39}")
_OURS = {"PYTHONPATH", "PATH", "HOME", "LD_PRELOAD", "RCATOOLS_JOB"} | {
    f"{vendor}_VISIBLE_DEVICES" for vendor in ("CUDA", "HIP", "ROCR")
}


@dataclass(frozen=True)
class Row:
    """One checked row.

    Attributes:
        number: position in the table, the first row being 1.
        kind: name of its kind.
        name: for lists.
        parameters: all parameters of the kind with their types, defaults filled in.
        settings: values of the ``p.`` columns, checked.
        env: values of the ``env.`` columns.
        labels: values of the ``label.`` columns.
        device: one of DEVICES where the row measures, else "none".
        accelerator: type of card wanted on a cluster, or "".
        group: rows with the same text stay on one device; "": alone.
        timeout_s: limit for the whole row.
        files: SHA-256 of each input file by role.
        job: hash of all inputs, the name of its job folder.
    """

    number: int
    kind: str
    name: str
    parameters: Mapping[str, Any]
    settings: Mapping[str, Any]
    env: Mapping[str, str]
    labels: Mapping[str, str]
    device: str
    accelerator: str
    group: str
    timeout_s: float
    files: Mapping[str, str]
    job: str = ""

    def document(self) -> dict[str, Any]:
        """Everything the job needs, as plain JSON."""
        return {
            "kind": self.kind,
            "parameters": dict(self.parameters),
            "settings": dict(self.settings),
            "env": dict(self.env),
            "labels": dict(self.labels),
            "device": self.device,
            "accelerator": self.accelerator,
            "group": self.group,
            "timeout_s": self.timeout_s,
            "files": dict(self.files),
        }


def read_rows(path: Path) -> list[Row]:
    """Read and check a whole table.

    Raises:
        InputError: the table or one of its rows is wrong; the line names the first wrong row and how many are.
    """
    header, records = _read(path)
    _check_header(path, header)
    rows: list[Row] = []
    problems: list[str] = []
    for number, record in enumerate(records, 1):
        try:
            rows.append(_row(number, record, path.parent))
        except RcaError as error:
            problems.append(f"row {number} of {path.name}: {error}")
    if not problems:
        problems = _between_rows(path, rows)
    if problems:
        more = f" ({len(problems) - 1} more rows are wrong)" if len(problems) > 1 else ""
        raise InputError(problems[0] + more)
    return rows


def _read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    if not path.is_file():
        raise InputError(f"no table at {path}: give a CSV file with one row for each job")
    if path.stat().st_size > MAX_TABLE_BYTES:
        raise InputError(f"{path} is larger than {MAX_TABLE_BYTES} bytes: split it")
    try:
        text = path.read_text(encoding="utf-8-sig")
        lines = csv.reader(io.StringIO(text), delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        cells = [[cell.strip() for cell in line] for line in lines if any(cell.strip() for cell in line)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is no CSV table in UTF-8 ({error}): save it as one") from None
    if len(cells) < 2:
        raise InputError(f"{path} holds no rows: give a header and one row for each job")
    if len(cells) - 1 > MAX_ROWS:
        raise InputError(f"{path} holds more than {MAX_ROWS} rows: split it")
    header = cells[0]
    for number, line in enumerate(cells[1:], 1):
        if len(line) > len(header):
            raise InputError(
                f"row {number} of {path.name} has {len(line)} cells for {len(header)} columns: quote cells with commas"
            )
    return header, [
        {name: value for name, value in zip(header, line, strict=False) if value} for line in cells[1:]
    ]


def _check_header(path: Path, header: Sequence[str]) -> None:
    known = {*_COMMON, *(name for kind in KINDS.values() for name in kind.declared)}
    for name in header:
        if header.count(name) > 1:
            raise InputError(f"{path.name} has the column {name!r} twice: keep one")
        prefix, _, rest = name.partition(".")
        if f"{prefix}." in PREFIXES:
            if not (_LABEL if prefix == "label" else _VARIABLE).fullmatch(rest):
                raise InputError(
                    f"column {name!r} of {path.name} does not end in a name: write one behind the point"
                )
            if prefix == "env" and rest in _OURS:
                raise InputError(
                    f"column {name!r} of {path.name}: {rest} is set by the runner: remove the column"
                )
        elif name not in known:
            raise UnknownNameError(f"column of {path.name}", name, {*known, *PREFIXES})


def _row(number: int, record: Mapping[str, str], folder: Path) -> Row:
    kind_name = record.get("kind", DEFAULT_KIND)
    if kind_name not in KINDS:
        raise UnknownNameError("kind", kind_name, KINDS)
    kind = KINDS[kind_name]
    parameters = _typed(kind, record)
    settings = {name[2:]: value for name, value in record.items() if name.startswith("p.")}
    parameters = kind.resolve(parameters, folder)
    checked = kind.check(parameters, settings)
    measures = kind.measures(parameters)
    device = record.get("device", "auto" if measures else "none")
    if device not in (DEVICES if measures else ("none",)):
        if not measures:
            raise InputError(f"a {kind.name} row measures nothing: leave 'device' empty")
        raise UnknownNameError("device", device, DEVICES)
    if "accelerator" in record and (not measures or device == "cpu"):
        raise InputError("'accelerator' is for rows that measure on a GPU: leave it empty")
    timeout = convert(
        Parameter("timeout_s", "float", "any", False, None, ""), record.get("timeout_s", DEFAULT_TIMEOUT_S)
    )
    if timeout <= 0:
        raise InputError(f"timeout_s must be above 0, got {timeout:g}")
    row = Row(
        number=number,
        kind=kind.name,
        name=record.get("name", f"row-{number}"),
        parameters=parameters,
        settings=checked,
        env={name[4:]: value for name, value in record.items() if name.startswith("env.")},
        labels={name[6:]: value for name, value in record.items() if name.startswith("label.")},
        device=device,
        accelerator=record.get("accelerator", ""),
        group=record.get("group", ""),
        timeout_s=timeout,
        files=kind.inputs(parameters),
    )
    return replace(row, job=job_hash(row.document(), kind.paths))


def _typed(kind: Kind, record: Mapping[str, str]) -> dict[str, Any]:
    for name in record:
        if name not in kind.declared and name not in _COMMON and not name.startswith(PREFIXES):
            raise InputError(f"a {kind.name} row has no parameter {name!r}: leave that cell empty")
    values = {}
    for name, parameter in kind.declared.items():
        if name in record:
            values[name] = convert(parameter, record[name])
        elif name in kind.required:
            raise InputError(f"a {kind.name} row needs {name!r}: fill it in")
        else:
            values[name] = parameter.default
    return values


def _between_rows(path: Path, rows: Sequence[Row]) -> list[str]:
    problems = []
    seen: dict[str, Row] = {}
    leaders: dict[str, Row] = {}
    for row in rows:
        if row.job in seen:
            problems.append(
                f"row {row.number} of {path.name} says the same as row {seen[row.job].number}: "
                "give repeats on purpose different texts in a 'label.' column"
            )
        seen.setdefault(row.job, row)
        leader = leaders.setdefault(row.group, row) if row.group else row
        if (row.device, row.accelerator) != (leader.device, leader.accelerator):
            problems.append(
                f"row {row.number} of {path.name} asks for another device than row {leader.number} of its "
                f"group {row.group!r}: a comparison stays on one device"
            )
    return problems


def job_hash(document: Mapping[str, Any], paths: Sequence[str] = ()) -> str:
    """The hash of a job's inputs, 16 hexadecimal digits.

    Paths count by their last part only: what the files hold is in ``files``, and a sweep may be moved.
    """
    parameters = {
        name: _last_part(value) if name in paths else value for name, value in document["parameters"].items()
    }
    text = json.dumps(
        {"version": __version__, **document, "parameters": parameters}, sort_keys=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _last_part(value: Any) -> Any:
    if isinstance(value, list):
        return [_last_part(item) for item in value]
    return Path(value).name if isinstance(value, str) else value
