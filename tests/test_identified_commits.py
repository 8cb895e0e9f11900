"""Recordings that were made from a copied working tree belong to the commit that they name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import identify_commit  # noqa: E402


def codes() -> dict[str, dict[str, Any]]:
    found = {}
    for file in sorted((ROOT / "data" / "recordings").glob("*/manifest.json")):
        code = json.loads(file.read_text(encoding="utf-8"))["environment"].get("code", {})
        if "identified_from" in code:
            found[file.parent.name] = code
    return found


def there(commit: str) -> bool:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False
    )
    return done.returncode == 0


@pytest.mark.parametrize("name", sorted(codes()))
def test_the_recorded_changes_and_sources_are_those_of_the_commit(name: str) -> None:
    code = codes()[name]
    seen = code["identified_from"] | {"source_sha256": code["source_sha256"]}
    if not (there(seen["commit"]) and there(code["commit"])):
        pytest.skip("this checkout does not hold the history of the recording")
    assert identify_commit.difference(seen, code["commit"]) is None
    assert "is not the one recorded" in str(identify_commit.difference(seen, seen["commit"]))
    other = seen | {"source_sha256": "0" * 64}
    assert "are not the ones recorded" in str(identify_commit.difference(other, code["commit"]))
    assert "untracked" in str(identify_commit.difference(seen | {"untracked_files": 1}, code["commit"]))
