"""What code made a recording: the state of every checkout it measured, and their uncommitted changes."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rcatools.device.fingerprint import code_state, source_hash, uncommitted_diff
from rcatools.errors import InputError
from rcatools.files import write_bytes

DIFF_FOLDER = "diffs"
LARGEST_DIFF = 4 * 2**20
HERE = Path(__file__).resolve().parents[2]


def checkout_states(folders: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """The code state of each folder, by its last name.

    Raises:
        InputError: a folder does not exist, is no git checkout, or two have one name.
    """
    states: dict[str, dict[str, Any]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"--checkout {folder} is not a folder: give the top of a git checkout")
        name = folder.resolve().name
        if name in states:
            raise InputError(f"two checkouts are called {name!r}: rename one")
        state = code_state(folder)
        state.pop("source_sha256", None)  # of this library, not of that checkout
        if state["commit"] is None:
            raise InputError(
                f"--checkout {folder} is not a git checkout, or git is not installed: give the top of one"
            )
        states[name] = state
    return states


def with_source_commit(code: Mapping[str, Any], commit: str) -> dict[str, Any]:
    """A code state that also names the commit whose package source was measured.

    For a recording from a copy whose git stood elsewhere or was absent: the package's source is identified by its
    hash, which is compared with that of the commit. Files outside the package are not covered by it.

    Raises:
        InputError: the commit is not in this repository, or its source is another.
    """
    done = subprocess.run(
        ["git", "-C", str(HERE), "archive", "--format=tar", commit, "rcatools"],
        capture_output=True,
        check=False,
    )
    full = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", f"{commit}^{{commit}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or full.returncode:
        raise InputError(f"commit {commit!r} is not in this repository: fetch it first")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        found = source_hash(Path(folder) / "rcatools")
    if found != code.get("source_sha256"):
        raise InputError(
            f"the package source of commit {commit} is not what was measured (SHA-256 {found[:12]}, recorded "
            f"{str(code.get('source_sha256'))[:12]})"
        )
    return {**code, "source_commit": full.stdout.strip()}


def keep_diffs(out: Path, checkouts: Iterable[Path]) -> list[str]:
    """Write the uncommitted changes of this checkout and the others; returns the files' names.

    A checkout without changes gets no file. Untracked files are hashed in the manifest, never copied.

    Raises:
        InputError: a difference is larger than ``LARGEST_DIFF`` bytes.
    """
    kept = []
    for folder in (HERE, *checkouts):
        diff = uncommitted_diff(folder)
        if diff is None:
            continue
        data = diff.encode(errors="surrogateescape")
        name = "rcatools" if folder == HERE else folder.resolve().name
        if len(data) > LARGEST_DIFF:
            raise InputError(
                f"the uncommitted changes of {name} are larger than {LARGEST_DIFF} bytes: commit them"
            )
        write_bytes(out / DIFF_FOLDER / f"{name}.diff", data)
        kept.append(f"{DIFF_FOLDER}/{name}.diff")
    return kept
