"""The code that made a recording: what the manifest keeps, and what two recordings do not share."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rcatools.device.fingerprint import code_state, uncommitted_diff
from rcatools.errors import InputError
from rcatools.experiment import provenance as kept
from rcatools.recording.provenance import ProvenanceDifference, compare_provenance, uncommitted
from rcatools.recording.schema import Manifest


def git(folder: Path, *words: str) -> str:
    env = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.invalid",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.invalid",
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, env=env
    )
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "gemm.py").write_text("BLOCK_N = 32\n")
    git(folder, "add", "gemm.py")
    git(folder, "commit", "-qm", "first")
    return folder


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    state = code_state(checkout)
    assert state["commit"] == git(checkout, "rev-parse", "HEAD").strip()
    assert (state["dirty"], state["diff_sha256"], state["untracked_files"]) == (False, None, 0)
    assert state["untracked_sha256"] is None
    assert uncommitted_diff(checkout) is None


def test_a_change_that_is_not_committed_is_hashed(checkout: Path) -> None:
    (checkout / "gemm.py").write_bytes(b"BLOCK_N = 64  # \xe9\n")
    state = code_state(checkout)
    raw = subprocess.run(
        ["git", "-C", str(checkout), "diff", "HEAD", "--binary"], capture_output=True, check=True
    ).stdout
    assert state["dirty"] is True
    assert state["diff_sha256"] == hashlib.sha256(raw).hexdigest()


def test_untracked_files_are_counted_and_their_content_tells_states_apart(checkout: Path) -> None:
    hashes = set()
    for content in ("tuned = 1\n", "tuned = 2\n"):
        (checkout / "tuned.py").write_text(content)
        state = code_state(checkout)
        assert (state["dirty"], state["untracked_files"]) == (False, 1)
        hashes.add(state["untracked_sha256"])
    (checkout / "tuned.py").rename(checkout / "other name.py")
    hashes.add(code_state(checkout)["untracked_sha256"])
    assert len(hashes) == 3


def test_a_kept_diff_makes_the_code_again(checkout: Path, tmp_path: Path) -> None:
    (checkout / "gemm.py").write_text("BLOCK_N = 64\n")
    names = [name for name in kept.keep_diffs(tmp_path / "out", [checkout]) if "kernels" in name]
    assert names == ["diffs/kernels.diff"]
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(checkout), str(clone))
    git(clone, "apply", str(tmp_path / "out" / names[0]))
    assert (clone / "gemm.py").read_text() == "BLOCK_N = 64\n"


def test_checkouts_are_named_and_must_be_checkouts(checkout: Path, tmp_path: Path) -> None:
    assert list(kept.checkout_states([checkout])) == ["kernels"]
    with pytest.raises(InputError, match="not a folder"):
        kept.checkout_states([tmp_path / "nowhere"])
    with pytest.raises(InputError, match="two checkouts"):
        kept.checkout_states([checkout, checkout])


def test_a_diff_too_large_is_refused(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "LARGEST_DIFF", 10)
    monkeypatch.setattr(kept, "HERE", tmp_path)
    (checkout / "gemm.py").write_text("BLOCK_N = 64\n")
    with pytest.raises(InputError, match="kernels are larger"):
        kept.keep_diffs(tmp_path / "out", [checkout])


def manifest(**environment: Any) -> Manifest:
    return Manifest(
        investigation="vime-decode",
        state="complete",
        created_utc="2026-12-01T00:00:00",
        command="rcatools record vime-decode",
        device={"backend": "cpu", "name": "a CPU", "uuid": "1"},
        environment={"python": "3.11.7", "packages": {"torch": "2.13.0"}} | environment,
        workload={"name": "vime", "parameters": {"rows": 8}},
        design={"baseline": "reference", "margin": 0.05, "arms": []},
    )


CLEAN = {"commit": "a" * 40, "dirty": False, "diff_sha256": None, "untracked_files": 0}


def test_equal_makings_have_no_difference() -> None:
    one, two = manifest(code=CLEAN), manifest(code=dict(CLEAN))
    assert compare_provenance(one, replace(two, device=two.device | {"uuid": "2"})) == ()


def test_code_comes_first_and_every_kind_is_found() -> None:
    dirty = CLEAN | {"dirty": True, "diff_sha256": "b" * 64}
    one = manifest(code=CLEAN, checkouts={"kernels": CLEAN})
    two = manifest(
        code=CLEAN,
        checkouts={"kernels": dirty},
        packages={"torch": "2.13.1"},
        settings={"NCCL_ALGO": "Ring"},
    )
    two = replace(two, workload={"name": "vime", "parameters": {"rows": 16}})
    two = replace(two, device=two.device | {"name": "another CPU"})
    assert compare_provenance(one, two) == (
        ProvenanceDifference("code", "kernels diff_sha256", "not told", "b" * 12),
        ProvenanceDifference("code", "kernels dirty", "no", "yes"),
        ProvenanceDifference("package", "torch", "2.13.0", "2.13.1"),
        ProvenanceDifference("setting", "NCCL_ALGO", "not told", "Ring"),
        ProvenanceDifference("device", "name", "a CPU", "another CPU"),
        ProvenanceDifference("workload", "rows", "8", "16"),
    )
    assert compare_provenance(two, one)[0].second == "not told"


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (CLEAN, ()),
        (CLEAN | {"dirty": True}, ("rcatools",)),
        (CLEAN | {"untracked_files": 2}, ("rcatools",)),
        ({"commit": None}, ("rcatools",)),
        ({}, ("rcatools",)),
    ],
)
def test_code_in_no_commit_is_named(code: dict[str, Any], named: tuple[str, ...]) -> None:
    assert uncommitted(manifest(code=code)) == named
