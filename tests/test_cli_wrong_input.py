"""Every command and option with wrong input: one line that says what, where and what to do; exit code 2; nothing made."""

from __future__ import annotations

import argparse
import gzip
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rcatools.cli import app
from rcatools.cli.app import COMMANDS, main

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(__file__).parent / "data"
RECORDING = ROOT / "data" / "recordings" / "capture-stream-h200"
GARBAGE = bytes((i * 167 + 13) % 256 for i in range(3000))
ADVICE = re.compile(
    r"\b(accepted|add|ask|choose|convert|copy|correct|did you mean|export|free|give|install|keep|known|leave|make|measure|"
    r"mend|must|name|needs?|put|quote|raise|record|restore|run|save|see|select|set|takes?|use|write)\b",
    re.I,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one of everything that is no input, as the working directory."""
    for name, content in {
        "garbage": GARBAGE,
        "garbage.csv": GARBAGE,
        "garbage.json": GARBAGE,
        "garbage.json.gz": gzip.compress(GARBAGE)[:100],
        "garbage.parquet": b"PAR1" + GARBAGE,
        "garbage.sqlite": b"SQLite format 3\0" + GARBAGE,
        "empty": b"",
        "text": b"hello\n",
        "list.json": b"[1, 2]",
        "object.json": b'{"a": 1}',
        "deep.json": b"[" * 100_000,
        "cut.json": b'{"traceEvents": [{"ph": "X"',
        "nan.json": b'{"bytes_per_s": NaN}',
        "good.csv": b"arm,value\na,1.0\na,1.1\na,1.05\nb,1.2\nb,1.3\nb,1.25\n",
        "zeros.csv": b"arm,value\na,0\nb,0\n",
        "words.csv": b"arm,value\na,fast\nb,slow\n",
        "plain.csv": b"colour,value\nred,1\nblue,2\n",
        "headless.csv": b"1,2\n3,4\n",
        "rows.csv": b"kind,investigation\nreport,nothing\n",
        "n\xc3\xa4m\xe2\x82\xac \xf0\x9f\xa6\x80.csv": b"\xff\xfe",
        "\xff\xfe".encode("latin-1"): b"\xff",
        b"new\nline": GARBAGE,
    }.items():
        (tmp_path / os.fsdecode(name if isinstance(name, bytes) else name.encode("latin-1"))).write_bytes(
            content
        )
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    shutil.copy(DATA / "snapshots" / "streams4.pickle.gz", tmp_path / "good.pickle.gz")
    shutil.copy(next((RECORDING / "traces").iterdir()), tmp_path / "good.json.gz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(words: list[str], capsys: pytest.CaptureFixture[str], here: Path, code: int = 2) -> str:
    """Run a wrong call in this process; its one line, checked for form."""
    before = {item.name for item in here.iterdir()}
    assert main(words) == code, capsys.readouterr().err
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("rcatools: ")
    assert shown.err.count("\n") == 1
    assert shown.err.rstrip("\n").isprintable()
    assert "a fault of rcatools" not in shown.err
    assert ADVICE.search(shown.err), shown.err
    assert {item.name for item in here.iterdir()} == before, "something was made"
    return shown.err


# --- files --------------------------------------------------------------------------------------------

FILES = [
    "missing", "../../../../no/such/file", "", "folder", "loop", "dangling", "pipe", "/dev/zero", "/dev/null", "x" * 300,
    "a/b/c" * 900, "/proc/self/mem", "garbage", "garbage.csv", "garbage.json", "garbage.json.gz", "garbage.parquet",
    "garbage.sqlite", "empty", "text", "list.json", "object.json", "deep.json", "näm€ 🦀.csv", "\udcff\udcfe", "new\nline",
    "/etc/passwd",
]  # fmt: skip
READERS = {
    "compare": ["compare", "{}", "--baseline", "a"],
    "compare second": ["compare", "a=good.csv", "b={}", "--baseline", "a"],
    "compare aa": ["compare", "good.csv", "--baseline", "a", "--aa-table", "{}"],
    "trace summary": ["trace", "summary", "{}"],
    "trace health": ["trace", "health", "{}", "--json"],
    "trace diff": ["trace", "diff", "good.json.gz", "{}"],
    "trace ceilings": ["trace", "summary", "good.json.gz", "--ceilings", "{}"],
    "trace declared": ["trace", "summary", "good.json.gz", "--declared", "{}"],
    "snapshot ledger": ["snapshot", "ledger", "{}"],
    "snapshot owners": ["snapshot", "owners", "{}", "--json"],
    "snapshot replay": ["snapshot", "replay", "{}"],
    "snapshot diff": ["snapshot", "diff", "good.pickle.gz", "{}"],
    "snapshot oom": ["snapshot", "oom", "{}"],
    "snapshot whatif": ["snapshot", "whatif", "{}"],
    "serving log": ["serving", "log", "{}"],
    "serving ingest": ["serving", "ingest", "off={}", "--out", "out"],
    "sweep": ["sweep", "{}", "--out", "out"],
    "report recording": ["report", "capture-stream", "--out", "out", "--recording", "{}"],
    "report table": [
        "report", "capture-stream", "--out", "out", "--recording", str(RECORDING), "-p", "table_baseline=a", "-p", "table={}",
    ],
    "findings": ["findings", "{}"],
    "doctor": ["doctor", "--streams", "--recording", "{}"],
    "record checkout": ["record", "capture-stream", "--device", "cpu", "--out", "out", "--checkout", "{}"],
}  # fmt: skip
ACCEPTED = {  # a list of commits and a table without arms are what these files can be
    ("report table", ""),  # no table
    ("doctor", ""),
    ("compare second", ""),
}


@pytest.mark.parametrize("reader", READERS)
def test_files_that_are_no_input(reader: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = FILES if reader not in {"record checkout", "report recording"} else FILES[:10]
    for file in files:
        if (reader, file) not in ACCEPTED:
            refused([word.format(file) for word in READERS[reader]], capsys, here)


# --- places to write ----------------------------------------------------------------------------------

WRITERS = {
    "record": ["record", "capture-stream", "--device", "cpu", "--out", "{}"],
    "report": ["report", "capture-stream", "--recording", str(RECORDING), "--no-live-check", "--out", "{}"],
    "sweep": ["sweep", "rows.csv", "--out", "{}"],
    "serving ingest": ["serving", "ingest", "off=list.json", "--out", "{}"],
    "index store": ["index", "folder", "--store", "{}"],
    "bisect store": ["bisect", "folder", "--commits", "good.csv", "--store", "{}"],
    "trace cache": ["trace", "summary", "good.json.gz", "--cache", "{}"],
    "compare figure": ["compare", "good.csv", "--baseline", "a", "--figure", "{}/x.svg"],
    "index page": ["index", "folder", "--page", "{}/x.html"],
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    "place", ["good.csv", "good.csv/below", "/proc/nothing", "/dev/null", "loop", "", "x" * 300]
)
def test_places_that_cannot_be_written(
    writer: str, place: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.format(place) for word in WRITERS[writer]]
    if place == "" and "/x." in words[-1]:
        words[-1] = ""
    refused(words, capsys, here)


@pytest.mark.parametrize("name", ["x.png", "folder", "no/such/folder/x.svg"])
def test_a_figure_or_page_is_refused_before_any_work(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(["compare", "good.csv", "--baseline", "a", "--figure", name], capsys, here)
    refused(["index", "folder", "--page", name], capsys, here)


# --- options ------------------------------------------------------------------------------------------

BASE = {  # a right call of each command, to which one wrong option is added
    "doctor": ["doctor"],
    "record": ["record", "capture-stream", "--out", "out", "--device", "cpu"],
    "report": ["report", "capture-stream", "--out", "out"],
    "compare": ["compare", "good.csv", "--baseline", "a"],
    "trace summary": ["trace", "summary", "good.json.gz"],
    "trace health": ["trace", "health", "good.json.gz"],
    "trace diff": ["trace", "diff", "good.json.gz", "good.json.gz"],
    "snapshot ledger": ["snapshot", "ledger", "good.pickle.gz"],
    "snapshot owners": ["snapshot", "owners", "good.pickle.gz"],
    "snapshot replay": ["snapshot", "replay", "good.pickle.gz"],
    "snapshot diff": ["snapshot", "diff", "good.pickle.gz", "good.pickle.gz"],
    "snapshot oom": ["snapshot", "oom", "text"],
    "snapshot whatif": ["snapshot", "whatif", "text"],
    "serving record": ["serving", "record", "--model", "m", "--out", "out"],
    "serving ingest": ["serving", "ingest", "off=list.json", "--out", "out"],
    "serving log": ["serving", "log", "text"],
    "sweep": ["sweep", "rows.csv", "--out", "out"],
    "index": ["index", "folder"],
    "bisect": ["bisect", "folder", "--commits", "good.csv"],
    "findings": ["findings", "folder"],
}


def options(command: str) -> Iterator[argparse.Action]:
    """Every option of a command or of its action, as its own parser declares them."""
    name, _, action = command.partition(" ")
    module = importlib.import_module(f"rcatools.cli.{name}")
    parser = app.new_parser(name, module.SUMMARY, module.EXAMPLE)
    module.add_arguments(parser)
    if action:
        choices = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices
        parser = choices[action]
    yield from (item for item in parser._actions if item.option_strings and item.dest != "help")


def is_numeric(item: argparse.Action) -> bool:
    """Whether the option reads a number: it refuses a word."""
    if item.type in (int, float):
        return True
    try:
        item.type("word") if callable(item.type) else None
    except (argparse.ArgumentTypeError, ValueError):
        return True
    return False


def test_the_table_knows_every_command() -> None:
    assert {name.split()[0] for name in BASE} == set(COMMANDS)
    for name in ("trace", "snapshot", "serving"):
        module = importlib.import_module(f"rcatools.cli.{name}")
        parser = app.new_parser(name, module.SUMMARY)
        module.add_arguments(parser)
        actions = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices
        assert {f"{name} {action}" for action in actions} == {
            key for key in BASE if key.startswith(f"{name} ")
        }


@pytest.mark.parametrize("command", BASE)
def test_options_with_values_that_mean_nothing(
    command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = 0
    for item in options(command):
        option = max(item.option_strings, key=len)
        if item.nargs == 0:
            said = refused([*BASE[command], f"{option}=yes"], capsys, here)  # a flag takes no value
            assert option in said
            continue
        values = ["word", "nan", "inf", "-inf", "1e999", "", "-1", "9" * 40] if is_numeric(item) else []
        values += ["no-such-choice"] if item.choices else []
        for value in values:
            if command == "record" and option == "--seed" and value == "9" * 40:
                continue  # any whole number is a seed
            said = refused([*BASE[command], *live(command, option), f"{option}={value}"], capsys, here)
            assert option.strip("-").split("-")[0] in said, said
            tried += 1
    assert tried or command in {"doctor", "serving log"}


def live(command: str, option: str) -> list[str]:
    """What some options need beside them."""
    if command == "report" and option in {"--blocks", "--budget-s"}:
        return ["--live"]
    if command == "record" and option == "--effect":
        return ["--pilot", "3"]
    if command == "trace diff" and option.startswith("--measured"):
        other = "--measured-b-us" if option == "--measured-a-us" else "--measured-a-us"
        return ["--steps", "5", other, "5"]
    if command == "trace diff" and option == "--steps":
        return ["--measured-a-us", "5", "--measured-b-us", "5"]
    return []


@pytest.mark.parametrize("command", [*BASE, *COMMANDS])
def test_help_shows_its_own_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    example = shown.out.rpartition("example: ")[2]
    assert f"rcatools {command}" in example
    assert example.count("\n") == 1


WRONG = {
    "no such command": ["frobnicate"],
    "an option as command": ["--blocks"],
    "no such option": ["compare", "good.csv", "--baseline", "a", "--zzz"],
    "option of another action": ["snapshot", "ledger", "good.pickle.gz", "--resized", "x"],
    "shortened option": ["record", "capture-stream", "--ou", "out"],
    "too many files": ["snapshot", "ledger", "good.pickle.gz", "good.pickle.gz"],
    "no such investigation": ["record", "nothing", "--out", "out"],
    "empty investigation": ["record", "", "--out", "out"],
    "investigation with a path": ["record", "../../etc", "--out", "out"],
    "no such arm": ["record", "capture-stream", "--device", "cpu", "--out", "out", "--arms", "sidde"],
    "no arm at all": ["record", "capture-stream", "--device", "cpu", "--out", "out", "--arms", ",,"],
    "arms empty": ["record", "capture-stream", "--device", "cpu", "--out", "out", "--arms", ""],
    "no such parameter": ["record", "capture-stream", "--device", "cpu", "--out", "out", "-p", "bacth=1"],
    "parameter twice": ["record", "capture-stream", "--device", "cpu", "--out", "out", "-p", "batch=1", "-p", "batch=2"],
    "parameter without value": ["record", "capture-stream", "--device", "cpu", "--out", "out", "-p", "batch"],
    "parameter below zero": ["record", "capture-stream", "--device", "cpu", "--out", "out", "-p", "batch=-1"],
    "parameter not finite": ["record", "capture-stream", "--device", "cpu", "--out", "out", "-p", "kv_fraction=nan"],
    "no such arm to inspect": ["record", "capture-stream", "--device", "cpu", "--out", "out", "--inspect", "zzz"],
    "effect without pilot": ["record", "capture-stream", "--device", "cpu", "--out", "out", "--effect", "0.1"],
    "pilot with arms": ["record", "capture-stream", "--out", "out", "--pilot", "3", "--arms", "side"],
    "early stop with few blocks": ["record", "capture-stream", "--device", "cpu", "--out", "out", "--stop-early", "--blocks", "3"],
    "vLLM's arms": ["record", "vllm-capture-stream", "--out", "out"],
    "parameter of another workload": ["record", "vime-decode", "--device", "cpu", "--out", "out", "-p", "zzz=1"],
    "impossible world size": ["record", "vime-decode", "--device", "cpu", "--out", "out", "-p", "worlds=3"],
    "device that is not there": ["record", "capture-stream", "--out", "out", "--device", "cuda"],
    "arm to drop": ["report", "capture-stream", "--out", "out", "-p", "drop_arms=zzz"],
    "baseline to drop": ["report", "capture-stream", "--out", "out", "-p", "drop_arms=off"],
    "arm to show": ["report", "capture-stream", "--out", "out", "-p", "arms=zzz"],
    "no such notebook parameter": ["report", "capture-stream", "--out", "out", "-p", "margn=0.1"],
    "margin of a report": ["report", "capture-stream", "--out", "out", "-p", "margin=5"],
    "rows of a table": ["report", "capture-stream", "--out", "out", "-p", "top=-1"],
    "table without baseline": ["report", "capture-stream", "--out", "out", "-p", "table=good.csv"],
    "recording of another question": ["report", "capture-stream", "--out", "out", "--recording", "vime-decode-cpu"],
    "recording twice": ["report", "capture-stream", "--out", "out", "--recording", str(RECORDING), "--recording", str(RECORDING)],
    "live and a recording": ["report", "capture-stream", "--out", "out", "--live", "--recording", str(RECORDING)],
    "live arms without live": ["report", "capture-stream", "--out", "out", "--arms", "side"],
    "no such live arm": ["report", "capture-stream", "--out", "out", "--live", "--device", "cpu", "--arms", "zzz"],
    "vLLM live": ["report", "vllm-capture-stream", "--out", "out", "--live"],
    "product recording": ["report", "vime-decode", "--out", "out", "-p", "product=zzz"],
    "no such baseline": ["compare", "good.csv", "--baseline", "zzz"],
    "no arm column": ["compare", "plain.csv", "--baseline", "a"],
    "no header": ["compare", "headless.csv", "--baseline", "a"],
    "no measurement": ["compare", "zeros.csv", "--baseline", "a"],
    "words for numbers": ["compare", "words.csv", "--baseline", "a"],
    "no such column": ["compare", "good.csv", "--baseline", "a", "--value", "zzz"],
    "no such column to ignore": ["compare", "good.csv", "--baseline", "a", "--ignore", "zzz"],
    "arm is the baseline": ["compare", "good.csv", "--baseline", "a", "--arm", "a"],
    "repeat is the baseline": ["compare", "good.csv", "--baseline", "a", "--aa", "a"],
    "no such repeat": ["compare", "good.csv", "--baseline", "a", "--not-aa", "zzz"],
    "file twice": ["compare", "good.csv", "good.csv", "--baseline", "a"],
    "A/A table is the table": ["compare", "good.csv", "--baseline", "a", "--aa-table", "good.csv"],
    "two output forms": ["compare", "good.csv", "--baseline", "a", "--json", "--markdown"],
    "ceilings not finite": ["trace", "summary", "good.json.gz", "--ceilings", "nan.json"],
    "one of three measured": ["trace", "diff", "good.json.gz", "good.json.gz", "--steps", "5"],
    "device without memory": ["snapshot", "ledger", "good.pickle.gz", "--device", "9"],
    "no size": ["snapshot", "ledger", "good.pickle.gz", "--request", "plenty"],
    "variable without value": ["snapshot", "owners", "good.pickle.gz", "--env", "X"],
    "variable of no workspace": ["snapshot", "owners", "good.pickle.gz", "--env", "CUBLASLT_WORKSPACE_SIZ=1"],
    "workspace of no size": ["snapshot", "owners", "good.pickle.gz", "--env", "CUBLASLT_WORKSPACE_SIZE=big"],
    "change without file": ["snapshot", "owners", "good.pickle.gz", "--change", "CUBLASLT_WORKSPACE_SIZE=1->2"],
    "no torch version": ["snapshot", "replay", "good.pickle.gz", "--torch", "new"],
    "no allocator setting": ["snapshot", "replay", "good.pickle.gz", "--conf", "max_split_sise_mb:64"],
    "allocator setting below zero": ["snapshot", "replay", "good.pickle.gz", "--conf", "max_split_size_mb:-1"],
    "no loads": ["serving", "record", "--model", "m", "--out", "out", "--concurrency", "a"],
    "open quote": ["serving", "record", "--model", "m", "--out", "out", "--engine-args", "'"],
    "no such vllm": ["serving", "record", "--model", "m", "--out", "out", "--vllm", "good.csv"],
    "arms of torch for vLLM": ["serving", "record", "capture-stream", "--model", "m", "--out", "out"],
    "arm with a space": ["serving", "ingest", "a b=list.json", "--out", "out"],
    "row of another table": ["sweep", "good.csv", "--out", "out"],
    "unknown card": ["sweep", "rows.csv", "--out", "out", "--gpus", "all"],
    "address without ray": ["sweep", "rows.csv", "--out", "out", "--address", "x"],
    "index of nothing": ["index", "missing"],
    "index of a file": ["index", "good.csv"],
    "query before indexing": ["index", "folder", "--query", "SELECT 1"],
    "query and page": ["index", "folder", "--query", "SELECT 1", "--page", "x.html"],
    "bisect of nothing": ["bisect", "missing", "--commits", "good.csv"],
    "no commits": ["bisect", "folder", "--commits", "empty"],
    "commits in a folder": ["bisect", "folder", "--commits", "folder"],
    "recording without streams": ["doctor", "--recording", str(RECORDING)],
    "surplus word": ["doctor", "now"],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(WRONG[name], capsys, here)


def test_empty_query_is_told_what_to_ask(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    assert main(["index", "folder"]) == 0
    capsys.readouterr()
    for sql in ("", "  ", ";", "garbage (", "SELECT * FROM read_csv('/etc/passwd')", "COPY runs TO 'x.csv'"):
        said = refused(["index", "folder", "--query", sql], capsys, here)
        assert "recordings, effects, runs" in said


# --- the last net -------------------------------------------------------------------------------------


def test_a_fault_of_our_own_is_one_line_too(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("planted\nfault")

    monkeypatch.setattr("rcatools.cli.compare.run", broken)
    assert main(["compare", "good.csv", "--baseline", "a"]) == 3
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "a fault of rcatools" in said
    assert "test_cli_wrong_input.py, line" in said
    monkeypatch.setenv("RCATOOLS_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["compare", "good.csv", "--baseline", "a"])


@pytest.mark.parametrize("code", [28, 5, 36, 40])  # no space, I/O error, name too long, too many links
def test_what_the_system_refuses_is_one_line(
    code: int, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for names in ((), ("somewhere",)):

        def refuse(*_: object, names: tuple[str, ...] = names) -> None:
            raise OSError(code, os.strerror(code), *names)

        monkeypatch.setattr("rcatools.cli.compare.run", refuse)
        monkeypatch.setattr("rcatools.cli.app._drop_output", lambda: None)
        said = refused(["compare", "good.csv", "--baseline", "a"], capsys, here)
        assert os.strerror(code) in said


def test_a_full_or_closed_output_ends_without_a_traceback(here: Path) -> None:
    words = [sys.executable, "-m", "rcatools", "compare", "good.csv", "--baseline", "a"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, env=env, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "free space" in done.stderr
    shell = ["sh", "-c", '"$@" >&-', "sh", *words]  # closed
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, env=env, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_pipes_of_the_shell_are_read(here: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "rcatools", "compare", "/dev/stdin", "--baseline", "a"]
    text = (here / "good.csv").read_text()
    done = subprocess.run(words, input=text, capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("slower")
