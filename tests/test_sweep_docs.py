"""The examples of the documentation: tables that are tables, commands that the command line knows."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from sweep_support import comparison, table

from rcatools.batch.jobs import Job
from rcatools.batch.kinds import KINDS
from rcatools.batch.rows import read_rows
from rcatools.cli.app import COMMANDS, new_parser

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ("batch.md", "slurm.md", "ci-github-actions.md")


def commands(text: str) -> list[str]:
    """Calls of rcatools in a text, whatever stands around them."""
    names = "|".join(COMMANDS)
    found = re.findall(rf"(?:^|[\s(\"/])rcatools ((?:{names}) [^|>)\n]*)", text, re.M)
    return [re.sub(r"[\"`]?\s*(?:\|\|.*|#.*)?$", "", item) for item in found]


def test_the_example_table_is_a_table_of_every_kind_of_place() -> None:
    rows = read_rows(DOCS / "examples" / "nightly.csv")
    assert [(row.kind, row.device, row.group) for row in rows] == [
        ("report", "none", ""),
        ("record", "auto", "pair-1"),
        ("record", "auto", "pair-1"),
        ("record", "cpu", ""),
    ]


def test_every_column_is_explained() -> None:
    text = (DOCS / "batch.md").read_text()
    for kind in KINDS.values():
        for name in (kind.name, *kind.declared):
            assert f"`{name}`" in text, name


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_are_known_with_their_options(page: str) -> None:
    found = commands((DOCS / page).read_text())
    calls = [words for words in map(shlex_or_none, found) if words and any(w.startswith("-") for w in words)]
    assert calls
    for words in calls:
        module = importlib.import_module(f"rcatools.cli.{words[0]}")
        parser = new_parser(words[0], module.SUMMARY, module.EXAMPLE)
        module.add_arguments(parser)
        if "--out" in words or words[0] != "sweep":
            parser.parse_args([word for word in words[1:] if word])


def shlex_or_none(text: str) -> list[str] | None:
    try:
        return shlex.split(text)
    except ValueError:
        return None


def test_the_workflow_fails_on_slower_and_comments_the_findings() -> None:
    document = yaml.safe_load((DOCS / "examples" / "rcatools-gate.yml").read_text())
    steps = {step.get("name", step.get("uses")): step for step in document["jobs"]["gate"]["steps"]}
    check = shlex.split(steps["small check"]["run"])
    from rcatools.cli import report

    parser = new_parser("report", report.SUMMARY, report.EXAMPLE)
    report.add_arguments(parser)
    args = parser.parse_args(check[2:])
    assert (args.fail_on, str(args.out)) == ("slower", "report")
    assert "--body-file report/findings.md" in steps["comment"]["run"]
    assert steps["comment"]["if"].startswith("${{ !cancelled()")
    assert "github.event" not in "".join(step.get("run", "") for step in steps.values())
    assert document["permissions"] == {"contents": "read", "pull-requests": "write"}


def test_the_slurm_script_runs_row_by_row_and_ends_with_the_code_of_its_row(tmp_path: Path) -> None:
    rows = [{"kind": "compare", "table": comparison(tmp_path, f"{i}.csv", step, i), "baseline": "before"}
            for i, step in enumerate((1.0, 1.05))]  # fmt: skip
    path = table(tmp_path, rows)
    shim = tmp_path / "rcatools"
    shim.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m rcatools "$@"\n')
    shim.chmod(0o755)
    codes = []
    for task in ("1", "2", "1"):
        env = {**os.environ, "SLURM_ARRAY_TASK_ID": task, "RCATOOLS": str(shim)}
        script = ["bash", str(DOCS / "examples" / "sweep.sbatch"), str(path), str(tmp_path / "out")]
        codes.append(
            subprocess.run(script, env=env, capture_output=True, check=False, timeout=120).returncode
        )
    assert codes == [0, 1, 0]
    jobs = [Job(folder) for folder in (tmp_path / "out" / "jobs").iterdir()]
    assert [job.attempts() for job in jobs] == [1, 1]
