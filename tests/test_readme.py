"""What the READMEs say is so: commands run, names exist, recordings are listed with their commands."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from rcatools.cli.app import COMMANDS, main, new_parser
from rcatools.report.questions import QUESTIONS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.S)
LINES = [line.partition("#")[0].strip() for block in BLOCKS for line in block.splitlines()]
COMMAND_LINES = [
    re.sub(r"^python -m ", "", line) for line in LINES if re.match(r"(python -m )?rcatools ", line)
]


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_commands_of_the_readme_are_understood(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every option is one that the command's own parser takes: its first missing file ends the call, no option does."""
    words = shlex.split(line)[1:]
    name = words[0]
    assert name in COMMANDS
    if importlib.util.find_spec(f"rcatools.cli.{name}") is None:
        pytest.skip(f"rcatools {name} is not in this checkout")
    module = importlib.import_module(f"rcatools.cli.{name}")
    parser = new_parser(name, module.SUMMARY, module.EXAMPLE)
    module.add_arguments(parser)
    parser.parse_args(words[1:])
    assert main([name, "--help"]) == 0
    assert "example: rcatools" in capsys.readouterr().out


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`?make ([a-z-]+)", README)) | {"setup"}
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.M))


def test_notebooks_are_listed_with_their_questions() -> None:
    rows = dict(re.findall(r"^\| `(0\d_\w+)` \| (.*) \|$", README, re.M))
    assert rows == QUESTIONS


def test_every_package_is_in_the_architecture_table() -> None:
    listed = set(re.findall(r"^\| `rcatools/(\w+)` \|", README, re.M))
    assert listed == {path.parent.name for path in (ROOT / "rcatools").glob("*/__init__.py")}


def test_arms_of_the_runbook_exist() -> None:
    arms = (ROOT / "data/investigations/capture-stream/arms.toml").read_text()
    known = set(re.findall(r'^name = "(\w+)"', arms, re.M))
    runbook = README.partition("## On a ROCm machine")[2].partition("## How it is built")[0]
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", runbook, re.M)
        for name in re.findall(r"`([a-z_0-9]+)`", row)
    }
    assert len(named) >= 10
    assert named <= known


def test_files_that_the_readme_names_exist() -> None:
    named = re.findall(r"`((?:rcatools|tests|data|tools|docs)/[\w./-]+\.\w+)`", README)
    named += re.findall(r"\]\((?!http)([\w./-]+)\)", README)
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def recordings_readme() -> Any:
    spec = importlib.util.spec_from_file_location("data_readme", ROOT / "tools" / "data_readme.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_recordings_are_listed_as_their_manifests_say() -> None:
    assert (ROOT / "data" / "README.md").read_text() == recordings_readme().text()


def test_embedded_recordings_are_small() -> None:
    files = [file for file in (ROOT / "data" / "recordings").rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 12 * 2**20


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs" / "report.png").stat().st_size < 300_000
