"""pyproject.toml, environment.yml and constraints.txt say the same, and none of them names a torch."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_ON_CONDA = {"isal"}


def requirements(group: str | None = None) -> dict[str, Requirement]:
    texts = PROJECT["dependencies"] if group is None else PROJECT["optional-dependencies"][group]
    return {canonicalize_name(item.name): item for item in map(Requirement, texts)}


def pins() -> dict[str, Version]:
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            found[canonicalize_name(name)] = Version(version)
    return found


def everything() -> dict[str, Requirement]:
    groups = [None, *PROJECT["optional-dependencies"]]
    return {name: item for group in groups for name, item in requirements(group).items()}


def conda() -> tuple[dict[str, str], list[str]]:
    document = yaml.safe_load((ROOT / "environment.yml").read_text())
    plain = [item for item in document["dependencies"] if isinstance(item, str)]
    pip = next(item["pip"] for item in document["dependencies"] if isinstance(item, dict))
    return {re.split(r"[<>=]", item)[0]: item[len(re.split(r"[<>=]", item)[0]) :] for item in plain}, pip


def test_every_direct_dependency_is_pinned_to_a_version_it_allows() -> None:
    pinned = pins()
    assert set(pinned) == set(everything())
    wrong = [name for name, item in everything().items() if pinned[name] not in item.specifier]
    assert not wrong


def test_conda_has_the_floors_of_the_project() -> None:
    names, pip = conda()
    wanted = {**requirements(), **requirements("lab")}
    missing = set(wanted) - set(names) - NOT_ON_CONDA
    assert not missing
    for name, item in wanted.items():
        if name in names:
            assert names[name] == str(item.specifier), name
    assert names["python"] == PROJECT["requires-python"]
    assert pip == ["-c constraints.txt", "-e .[lab]"]
    assert set(names) <= set(wanted) | {"python", "pip"}


@pytest.mark.parametrize("name", ["pyproject.toml", "environment.yml", "constraints.txt"])
def test_no_list_of_packages_names_a_torch_or_an_address(name: str) -> None:
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.lstrip().startswith("#")]
    if name == "pyproject.toml":
        texts = [str(item) for item in everything().values()]
    else:
        texts = lines
    assert not [text for text in texts if re.search(r"\b(torch|triton)\b", text)]
    assert not [text for text in texts if "://" in text]


def test_installed_python_is_allowed() -> None:
    assert (
        f"{sys.version_info[0]}.{sys.version_info[1]}"
        in Requirement(f"x{PROJECT['requires-python']}").specifier
    )


def test_package_data_holds_the_templates() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "rcatools"
    ]
    held = {path for pattern in patterns for path in (ROOT / "rcatools").glob(pattern)}
    needed = set((ROOT / "rcatools" / "report" / "templates").iterdir())
    assert needed <= held


@pytest.mark.parametrize("script", ["tools/setup.sh", ".ci/run"])
def test_shell_scripts_are_valid(script: str) -> None:
    done = subprocess.run(["bash", "-n", str(ROOT / script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_makefile_offers_what_the_help_names() -> None:
    done = subprocess.run(
        ["make", "-n", "report", "LIVE=1", "OUT=elsewhere"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rcatools report capture-stream --out elsewhere --live" in done.stdout
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"setup", "report", "test", "lab", "lint", "clean", "bench", "test-serving"} <= targets


def fake_python(folder: Path, name: str, body: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


def test_setup_refuses_an_old_python_with_one_line(tmp_path: Path) -> None:
    fake_python(tmp_path, "oldpython", 'case "$1" in -V) echo "Python 3.10.12";; *) exit 1;; esac')
    done = subprocess.run(
        ["bash", str(ROOT / "tools" / "setup.sh")],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHON": "oldpython"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "setup: oldpython is Python 3.10.12, 3.11 or newer is needed: set PYTHON to one"
    ]
