"""What code made a recording: the state of every checkout it measured, and their uncommitted changes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rcatools.device.fingerprint import code_state, uncommitted_diff
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
