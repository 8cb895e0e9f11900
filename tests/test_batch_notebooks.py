"""Runs of notebooks: parameters checked before anything starts, every way to fail told as what it is."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from rcatools.batch.notebook import NotebookJob, check_job, run_notebook
from rcatools.batch.parameters import (
    check_values,
    distribute,
    parse_assignments,
    read_notebook,
    read_parameters,
)
from rcatools.batch.run import run_notebooks
from rcatools.batch.status import Status
from rcatools.errors import InputError, UnknownNameError

CASES = Path(__file__).resolve().parents[1].parent / "shared" / "cases" / "bad-notebooks-a"
PARAMETERS = """\
name: str = "x"  # a name
count: int = 3
rate: float = 0.5  # share, 0 to 1
flag: bool = False
arms: list[str] = []  # names
options: dict = {}
limit: float | None = None
free = 1
"""
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def notebook(
    folder: Path, *cells: str, parameters: str | None = "x: int = 1  # a number", name: str = "book"
) -> Path:
    made = [new_markdown_cell("# question")]
    if parameters is not None:
        made.append(new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    made += [new_code_cell(cell) for cell in cells]
    path = folder / f"{name}.ipynb"
    nbformat.write(new_notebook(cells=made, metadata=KERNEL), path)
    return path


# --- parameters ---------------------------------------------------------------------------------------


def test_declared_parameters_with_type_default_and_help(tmp_path: Path) -> None:
    declared = read_parameters(notebook(tmp_path, parameters=PARAMETERS)).declared
    assert [(p.name, p.kind, p.optional) for p in declared.values()] == [
        ("name", "str", False),
        ("count", "int", False),
        ("rate", "float", False),
        ("flag", "bool", False),
        ("arms", "list", False),
        ("options", "dict", False),
        ("limit", "float", True),
        ("free", "int", True),
    ]
    assert declared["rate"].default == 0.5
    assert declared["rate"].help == "share, 0 to 1"
    assert declared["arms"].item == "str"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("name", "3", "3"),
        ("name", "", ""),
        ("count", "12", 12),
        ("count", "3.0", 3),
        ("rate", "1e-3", 0.001),
        ("flag", "true", True),
        ("flag", "0", False),
        ("arms", "side,off", ["side", "off"]),
        ("arms", '["side"]', ["side"]),
        ("arms", "", None),
        ("options", '{"a": 1}', {"a": 1}),
        ("limit", "none", None),
        ("limit", "2", 2.0),
        ("free", "[1, 2]", None),
    ],
)
def test_texts_become_values_of_the_declared_type(tmp_path: Path, name: str, text: str, value: Any) -> None:
    book = read_parameters(notebook(tmp_path, parameters=PARAMETERS))
    if value is None and name != "limit":
        with pytest.raises(InputError, match=f"parameter '{name}'"):
            check_values(book, {name: text})
    else:
        result = check_values(book, {name: text})[name]
        assert result == value
        assert type(result) is type(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", "many"),
        ("count", "2.5"),
        ("rate", "fast"),
        ("flag", "maybe"),
        ("flag", 2),
        ("options", "[1]"),
        ("count", True),
        ("name", ["a"]),
        ("arms", [{"a": 1}]),
        ("rate", "nan"),
        ("rate", "inf"),
        ("rate", float("nan")),
        ("options", {"a": float("inf")}),
        ("options", {1: 2}),
        ("limit", "-inf"),
        ("free", "x"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(tmp_path: Path, name: str, value: Any) -> None:
    book = read_parameters(notebook(tmp_path, parameters=PARAMETERS))
    with pytest.raises(InputError, match=f"parameter '{name}'"):
        check_values(book, {name: value})


def test_a_mistyped_name_is_refused_with_the_near_one(tmp_path: Path) -> None:
    book = read_parameters(notebook(tmp_path, parameters=PARAMETERS))
    with pytest.raises(UnknownNameError, match=r"'cuont'.*did you mean 'count'"):
        check_values(book, {"cuont": 1})
    with pytest.raises(UnknownNameError, match="did you mean 'rate'"):
        distribute([book], {"rat": 1})


def test_a_value_goes_to_every_notebook_that_declares_it(tmp_path: Path) -> None:
    first = read_parameters(notebook(tmp_path, parameters="a: int = 1\nb: int = 1", name="first"))
    second = read_parameters(notebook(tmp_path, parameters="b: float = 1.0", name="second"))
    assert distribute([first, second], {"b": "2", "a": "3"}) == {
        "first.ipynb": {"a": 3, "b": 2},
        "second.ipynb": {"b": 2.0},
    }


@pytest.mark.parametrize("texts", [["a"], ["=1"], ["a b=1"], ["a=1", "a=2"], ["1a=2"]])
def test_assignments_of_another_form_are_refused(texts: list[str]) -> None:
    with pytest.raises(InputError):
        parse_assignments(texts)


def test_assignments_keep_further_equal_signs() -> None:
    assert parse_assignments(["a=b=c", "d="]) == {"a": "b=c", "d": ""}


@given(st.text(max_size=80))
@settings(max_examples=60, deadline=None)
def test_any_parameters_cell_is_read_or_refused_with_one_line(tmp_path_factory, source: str) -> None:
    path = tmp_path_factory.mktemp("any") / "any.ipynb"
    cells = [{"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": source, "outputs": []}]
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    try:
        told = read_parameters(path).notebook
    except InputError as error:
        told = str(error)
    assert "\n" not in told


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"nbformat": 3, "cells": []}', '{"nbformat": 4, "cells": [1]}']
)
def test_what_is_no_notebook_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.ipynb"
    path.write_text(content)
    with pytest.raises(InputError, match=r"x\.ipynb"):
        read_notebook(path)


# --- runs ---------------------------------------------------------------------------------------------

ENDINGS = {
    "done": (("assert x == 7", "x + 1"), "done", None),
    "raises": (("1 / 0", "2"), "failed", "ZeroDivisionError"),
    "crashes": (("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "2"), "failed", "kernel died"),
    "hangs": (
        ("import subprocess; subprocess.Popen(['sleep', '321'])", "while True: pass"),
        "failed",
        "limit of 6 s",
    ),
    "exits": (("import sys; sys.exit(3)", "2"), "failed", "SystemExit"),
    "exits_well": (("import sys; sys.exit(0)", "2"), "failed", "stopped before its last cell"),
    "leaves": (("import os; os._exit(0)",), "failed", "kernel died"),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All endings run side by side, two at a time, as a report does it."""
    folder = tmp_path_factory.mktemp("endings")
    jobs = [
        NotebookJob(
            notebook(folder, *cells, name=name), folder / "out" / f"{name}.ipynb", {"x": "7"}, timeout_s=6
        )
        for name, (cells, _, _) in ENDINGS.items()
    ]
    status = Status(folder / "status.json", [job.name for job in jobs])
    runs = run_notebooks(jobs, status, workers=2)
    state = status.finish()
    return {"folder": folder, "runs": {run.name: run for run in runs}, "state": state}


@pytest.mark.parametrize("name", ENDINGS)
def test_every_ending_is_told_as_what_it_is(ended: dict[str, Any], name: str) -> None:
    _, state, says = ENDINGS[name]
    run = ended["runs"][name]
    assert run.state == state
    assert (says in run.error) if says else run.error is None
    assert run.parameters == {"x": 7}


def test_the_status_file_agrees_and_is_strict_json(ended: dict[str, Any]) -> None:
    text = (ended["folder"] / "status.json").read_text()
    document = json.loads(text, parse_constant=pytest.fail)
    assert document["state"] == ended["state"] == "failed"
    told = {entry["name"]: (entry["state"], entry["error"]) for entry in document["notebooks"]}
    assert told == {name: (run.state, run.error) for name, run in ended["runs"].items()}
    assert all(entry["seconds"] > 0 for entry in document["notebooks"])


def test_executed_notebooks_are_kept_and_reopen(ended: dict[str, Any]) -> None:
    for name in ENDINGS:
        book = nbformat.read(ended["folder"] / "out" / f"{name}.ipynb", as_version=4)
        assert "injected-parameters" in str(book.cells)
        assert str(ended["folder"]) not in json.dumps(book.metadata)
    assert not list((ended["folder"] / "out").glob(".*"))


def test_no_process_is_left_behind(ended: dict[str, Any]) -> None:
    mine = psutil.Process(os.getpid()).children(recursive=True)
    deadline = time.monotonic() + 10
    while (
        any(child.is_running() and child.status() != "zombie" for child in mine)
        and time.monotonic() < deadline
    ):
        psutil.wait_procs(mine, timeout=1)
    sleeping = [item for item in psutil.process_iter(["cmdline"]) if item.info["cmdline"] == ["sleep", "321"]]
    assert not sleeping


def test_a_run_without_its_result_file_failed(tmp_path: Path) -> None:
    job = NotebookJob(notebook(tmp_path, "1"), tmp_path / "out.ipynb", result=tmp_path / "result.json")
    run = run_notebook(job)
    assert run.state == "failed"
    assert "result.json" in (run.error or "")


def test_nothing_starts_when_one_job_of_many_is_wrong(tmp_path: Path) -> None:
    good = NotebookJob(notebook(tmp_path, "1", name="good"), tmp_path / "out" / "good.ipynb")
    bad = NotebookJob(notebook(tmp_path, "1", name="bad"), tmp_path / "out" / "bad.ipynb", {"y": 1})
    status = Status(tmp_path / "status.json", ["good", "bad"])
    with pytest.raises(UnknownNameError):
        run_notebooks([good, bad], status, runner=lambda job: pytest.fail("started"))
    assert not (tmp_path / "out").exists()


def test_an_interrupt_is_told_and_passed_on(tmp_path: Path) -> None:
    jobs = [NotebookJob(notebook(tmp_path, "1", name=name), tmp_path / f"{name}.out.ipynb") for name in "ab"]
    status = Status(tmp_path / "status.json", ["a", "b"])

    def stop(job: NotebookJob) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_notebooks(jobs, status, runner=stop, workers=1)
    assert {entry.error for entry in status.failed} == {"stopped before it ended"}
    assert status.finish() == "failed"


@pytest.mark.skipif(not CASES.is_dir(), reason="the reference cases are not beside the checkout")
def test_bad_notebooks_of_other_projects(tmp_path: Path) -> None:
    untagged = NotebookJob(CASES / "no_params_tag.ipynb", tmp_path / "a.ipynb", {"trace_path": "mine.json"})
    with pytest.raises(InputError, match=r"no cell tagged 'parameters'.*overwritten"):
        check_job(untagged)
    effective, warnings = check_job(NotebookJob(CASES / "no_params_tag.ipynb", tmp_path / "a.ipynb"))
    assert "its own values" in warnings[0]
    assert effective == {}

    nameless = run_notebook(NotebookJob(CASES / "no_kernelspec.ipynb", tmp_path / "b.ipynb", {"x": 2}))
    assert nameless.state == "done"
    assert nameless.parameters == {"x": 2}
    assert "names no kernel" in nameless.warnings[0]

    values = json.loads((CASES / "nan_param.json").read_text())
    book = notebook(tmp_path, parameters="threshold: float = 1.0\nupper: float = 2.0")
    for name, value in values.items():
        with pytest.raises(InputError, match=f"{name}.*JSON cannot hold"):
            check_job(NotebookJob(book, tmp_path / "c.ipynb", {name: value}))


def test_an_unknown_kernel_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "book.ipynb"
    metadata = {"kernelspec": {"name": "fortran77", "display_name": "F", "language": "fortran"}}
    nbformat.write(new_notebook(cells=[new_code_cell("1")], metadata=metadata), path)
    run = run_notebook(NotebookJob(path, tmp_path / "out.ipynb"))
    assert run.state == "failed"
    assert "fortran77" in (run.error or "")


def test_python3_is_this_interpreter_whatever_kernels_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        json.dumps({"argv": ["/bin/false", "{connection_file}"], "display_name": "x", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    cells = (f"import sys; assert sys.executable == {sys.executable!r}",)
    run = run_notebook(NotebookJob(notebook(tmp_path, *cells), tmp_path / "out.ipynb"))
    assert (run.state, run.error) == ("done", None)
