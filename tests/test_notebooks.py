"""The notebooks: readable sources, no outputs, and one whole report made from them."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import papermill
import pytest
import synthetic_worlds as worlds
import test_diagnosis_third as third
from test_report_findings import ALLOWED
from test_report_safe import github

from rcatools.batch import pipeline
from rcatools.batch.parameters import read_parameters
from rcatools.cli import main
from rcatools.report import document
from rcatools.report.answers import ANSWERS
from rcatools.report.questions import GENERAL, QUESTIONS

ROOT = Path(__file__).resolve().parents[1]
ACROSS_RUNS = "07_fleet"  # asks about many reports, is not part of one; tests/test_index_fleet.py
BOOKS = [path for path in sorted((ROOT / "notebooks").glob("*.ipynb")) if path.stem != ACROSS_RUNS]
ARMS = ("off", "off_again", "side", "side_gc", "clear_blas", "current", "pad_untracked", "touch_stream",
        "plant_additive", "plant_multiplicative")  # fmt: skip
SHARED = {"investigation", "recordings", "margin", "drop_arms", "out"}


def sources(book: Any) -> list[tuple[str, str, list[str]]]:
    return [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in book.cells]


def test_every_question_has_its_notebook() -> None:
    assert [path.stem for path in BOOKS] == list(QUESTIONS) == list(ANSWERS)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_both_forms_of_a_notebook_are_the_same(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    script = jupytext.read(path.with_suffix(".py"))
    assert sources(book) == sources(script)
    assert book.metadata.kernelspec.name == "python3"
    nbformat.validate(book)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_committed_notebooks_carry_no_output(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_the_first_cell_asks_and_the_last_answers(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert cells[0].cell_type == "markdown"
    assert f"**Question:** {QUESTIONS[path.stem]}" in cells[0].source
    assert cells[-1].source.startswith(f'case.answer("{path.stem}"')
    assert cells[-1].source.count("\n") == 0


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_every_parameter_has_type_default_and_help(path: Path) -> None:
    declared = read_parameters(path).declared
    assert set(declared) >= SHARED
    for parameter in declared.values():
        assert parameter.kind != "any", parameter.name
        assert len(parameter.help) > 8, parameter.name
    seen = papermill.inspect_notebook(str(path))
    assert set(seen) == set(declared)
    for name, parameter in declared.items():
        assert seen[name]["inferred_type_name"] == parameter.kind
        assert seen[name]["help"] == parameter.help


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_cells_are_short_and_define_nothing(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            tree = ast.parse(cell.source)
            assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
            assert len(cell.source.splitlines()) <= 8


# --- one whole report -------------------------------------------------------------------------------------


def rcatools(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rcatools", *words]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300, **options
    )


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in") / "synthetic-cliff"
    worlds.write(worlds.make("queue_cliff", 5, arms=ARMS), folder)
    return folder


@pytest.fixture(scope="module")
def report(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("out") / "report"
    done = rcatools(
        "report", "capture-stream", "--recording", str(recording), "--no-live-check", "--out", str(out),
        "-p", "top=5", "--json", "--fail-on", "slower",
    )  # fmt: skip
    return {"out": out, "done": done}


def test_the_report_is_made_and_the_verdict_sets_the_exit_code(report: dict[str, Any]) -> None:
    done = report["done"]
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)
    assert said["state"] == "done"
    assert said["verdict"] == "slower"
    assert said["report"] == str(report["out"])
    assert said["files"] == ["findings.md", "report.html", "report.zip", "status.json", "verdict.json"]
    assert "Traceback" not in done.stderr


def test_the_status_tells_every_notebook(report: dict[str, Any]) -> None:
    status = json.loads((report["out"] / "status.json").read_text())
    assert status["state"] == "done"
    assert [(item["name"], item["state"], item["error"]) for item in status["notebooks"]] == [
        (name, "done", None) for name in GENERAL
    ]
    assert status["notebooks"][2]["parameters"]["top"] == 5


def test_executed_notebooks_show_charts_tables_and_the_answer(report: dict[str, Any]) -> None:
    verdict = document.read(report["out"])
    kinds: set[str] = set()
    for name in GENERAL:
        book = nbformat.read(report["out"] / "notebooks" / f"{name}.ipynb", as_version=4)
        outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
        kinds |= {kind for output in outputs for kind in output.get("data", {})}
        assert "Answer" in outputs[-1]["data"]["text/markdown"]
    assert {"application/vnd.plotly.v1+json", "image/svg+xml", "text/html", "text/plain"} <= kinds
    assert verdict["answer"] in outputs[-1]["data"]["text/plain"]


def test_answers_agree_with_the_verdict(report: dict[str, Any]) -> None:
    verdict = document.read(report["out"])
    answer = json.loads((report["out"] / "results" / "01_reproduce.json").read_text())["answer"]
    assert answer[0].startswith("There is a regression: side against off is +")
    ratio = verdict["effect"]["ratio"]
    shown = float(re.findall(r"is ([+-][\d.]+) %", answer[0])[0])
    assert shown == pytest.approx(100 * (ratio - 1), abs=0.06)


def test_nothing_in_the_report_tells_where_it_was_made(report: dict[str, Any], recording: Path) -> None:
    places = [str(ROOT), str(recording), str(report["out"])]
    for file in [*report["out"].glob("*.*"), *(report["out"] / "notebooks").iterdir()]:
        if file.suffix in {".md", ".html", ".ipynb"} or file.name == "verdict.json":
            text = file.read_text()
            assert not [place for place in places if place in text], file.name


def test_the_bundle_holds_the_report(report: dict[str, Any]) -> None:
    with zipfile.ZipFile(report["out"] / "report.zip") as archive:
        names = set(archive.namelist())
        made = {str(file.relative_to(report["out"])) for file in report["out"].rglob("*") if file.is_file()}
        assert names == made - {"report.zip", ".lock"}
        assert json.loads(archive.read("status.json"))["state"] == "done"
        assert archive.read("findings.md") == (report["out"] / "findings.md").read_bytes()


def test_findings_are_shown_by_github_as_written(report: dict[str, Any]) -> None:
    text = (report["out"] / "findings.md").read_text()
    assert set(github(text).tags) <= ALLOWED | {"blockquote"}
    assert len(text) <= 60_000


def test_findings_can_be_rendered_again(report: dict[str, Any]) -> None:
    file = report["out"] / "findings.md"
    before = file.read_text()
    file.write_text("lost")
    done = rcatools("findings", str(report["out"]), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"findings": str(file), "characters": len(before)}
    assert file.read_text() == before


def test_nothing_in_the_bundle_names_a_folder_of_this_machine(
    report: dict[str, Any], recording: Path
) -> None:
    with zipfile.ZipFile(report["out"] / "report.zip") as bundle:
        told = {name for name in bundle.namelist() if str(recording.parent).encode() in bundle.read(name)}
        status = json.loads(bundle.read("status.json"))
    assert not told
    assert {tuple(book["parameters"]["recordings"]) for book in status["notebooks"]} == {(recording.name,)}


@pytest.mark.parametrize("damaged", ["manifest.json", "samples.parquet"])
def test_a_damaged_recording_is_refused_before_anything_is_made(
    recording: Path, tmp_path: Path, damaged: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(recording, tmp_path / "cut")
    file = tmp_path / "cut" / damaged
    file.write_bytes(file.read_bytes()[:100])
    assert (
        main(
            ["report", "capture-stream", "--recording", str(tmp_path / "cut"), "--out", str(tmp_path / "out")]
        )
        == 2
    )
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert damaged in said.err
    assert not (tmp_path / "out").exists()


def test_a_second_report_sets_the_first_aside(
    report: dict[str, Any], recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = report["out"]
    first = (out / "verdict.json").read_text()
    monkeypatch.setattr(pipeline, "NOTEBOOKS", ("04_compare_fixes",))
    options = pipeline.ReportOptions(
        "capture-stream", out, [str(recording)], check_live=False, parameters={"drop_arms": "side_gc"}
    )
    result = pipeline.run_report(options)
    assert result.state == "done"
    assert result.answer == document.read(out)["answer"]
    assert (out / "previous" / "verdict.json").read_text() == first
    assert "side_gc" not in {item["arm"] for item in document.read(out)["arms"]}


def test_an_investigation_of_ones_own_is_reported_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "investigation.yaml").write_text(third.YAML)
    (folder / "published.csv").write_text(
        "id,source,url,label,value,unit,note\nslowdown,s,,four threads,1.5,ratio,\n"
    )
    (folder / "log.csv").write_text("what,us\nlookup,50\n")
    third.write_recording(tmp_path / "measured")
    monkeypatch.setattr(pipeline, "NOTEBOOKS", ("05_findings",))
    options = pipeline.ReportOptions(
        str(folder), tmp_path / "out", [str(tmp_path / "measured")], check_live=False
    )
    result = pipeline.run_report(options)
    assert result.state == "done", result.failures
    assert result.answer.endswith("because threads wait for each other.")
    text = (tmp_path / "out" / "findings.md").read_text()
    assert "Threads fight" in text
    assert set(github(text).tags) <= ALLOWED


def test_plain_papermill_runs_a_notebook_and_leaves_its_result(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    executed = papermill.execute_notebook(
        str(ROOT / "notebooks" / "04_compare_fixes.ipynb"),
        str(tmp_path / "executed.ipynb"),
        parameters={"recordings": [str(recording)], "out": str(out), "margin": 0.02},
        cwd=str(ROOT),
        progress_bar=False,
    )
    assert not [
        o for c in executed.cells if c.cell_type == "code" for o in c.outputs if o.output_type == "error"
    ]
    result = json.loads((out / "results" / "04_compare_fixes.json").read_text())
    assert result["state"] == "done"
    assert result["answer"]


def test_two_trace_files_are_compared_in_the_notebook(recording: Path, tmp_path: Path) -> None:
    files = [str(ROOT / "tests" / "data" / "traces" / f"trace_{name}.json.gz") for name in ("off", "side")]
    executed = papermill.execute_notebook(
        str(ROOT / "notebooks" / "02_profile_kernels.ipynb"),
        str(tmp_path / "executed.ipynb"),
        parameters={"recordings": [str(recording)], "traces": files},
        cwd=str(ROOT),
        progress_bar=False,
    )
    outputs = [o for c in executed.cells if c.cell_type == "code" for o in c.outputs]
    texts = [output["data"]["text/plain"] for output in outputs]
    drawn = [output["data"] for output in outputs if "application/vnd.plotly.v1+json" in output["data"]]
    titles = [data["text/plain"].splitlines()[0] for data in drawn]
    assert {"Kernels of trace_off.json.gz", "Kernels of trace_side.json.gz", "Duration of each launch, by run",
            "Where the difference comes from", "Change of kernels that both have", "Each kernel alone, run by run"} <= set(titles)  # fmt: skip
    assert "trace_side.json.gz against trace_off.json.gz" in texts[-1]
    assert "read as additive" in texts[-1]


# --- wrong calls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report", "capture-steam"], "did you mean 'capture-stream'"),
        (["report", "capture-stream", "-p", "marin=0.02"], "did you mean 'margin'"),
        (["report", "capture-stream", "-p", "margin=wide"], "parameter 'margin' must be of type float"),
        (["report", "capture-stream", "-p", "margin=nan"], "JSON cannot hold"),
        (["report", "capture-stream", "-p", "margin=2"], "between 0 and 1"),
        (["report", "capture-stream", "-p", "margin"], "name=value"),
        (["report", "capture-stream", "-p", "recordings=a"], "--recording"),
        (["report", "capture-stream", "--recording", "/absent/recording"], "no recording at"),
        (["report", "capture-stream", "--live", "--recording", "x"], "exclude each other"),
        (["report", "capture-stream", "--blocks", "3"], "need --live"),
        (["report", "capture-stream", "--workers", "0"], "from 1 to 4096"),
        (["findings", "/absent/report"], "no report folder"),
    ],
)
def test_wrong_calls_are_one_line_and_start_nothing(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    extra = ["--out", str(out)] if words[0] == "report" else []
    assert main([*words, *extra]) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert not out.exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, recording: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    done = rcatools("report", "capture-stream", "--recording", str(recording), "--out", str(tmp_path))
    assert done.returncode == 2
    assert "holds other files (thesis.txt)" in done.stderr
    assert [item.name for item in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_failing_notebook_fails_the_report_and_keeps_the_rest(
    tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = tmp_path / "books"
    books.mkdir()
    for path in BOOKS[:2]:
        (books / path.name).write_text(path.read_text())
    broken = json.loads((books / BOOKS[1].name).read_text())
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "carried.py").write_text("word = 'planted'")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))  # kernels see what the caller's Python sees
    broken["cells"][-1]["source"] = ["import carried; raise RuntimeError(carried.word)"]
    (books / BOOKS[1].name).write_text(json.dumps(broken))
    monkeypatch.setattr(pipeline, "NOTEBOOKS", tuple(path.stem for path in BOOKS[:2]))
    monkeypatch.setattr(pipeline, "notebook_path", lambda name: books / f"{name}.ipynb")
    result = pipeline.run_report(
        pipeline.ReportOptions("capture-stream", tmp_path / "out", [str(recording)], check_live=False)
    )
    assert result.state == "failed"
    assert len(result.failures) == 1
    assert re.fullmatch(r"01_reproduce: RuntimeError in cell \d+: planted", result.failures[0])
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert [item["state"] for item in status["notebooks"]] == ["done", "failed"]
    assert "planted" in (tmp_path / "out" / "findings.md").read_text()
    assert (tmp_path / "out" / "report.zip").is_file()
