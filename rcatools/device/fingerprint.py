"""What machine and what code made a measurement."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "numpy", "pandas", "pyarrow", "scipy", "vllm", "aiter", "rcatools")
MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
SETTINGS_PREFIXES = (
    "CUBLAS",
    "CUDA_",
    "GPU_MAX_HW_QUEUES",
    "HIP",
    "HSA_",
    "MIOPEN_",
    "NCCL_",
    "PYTORCH_",
    "RCCL_",
    "ROCBLAS_",
    "ROCR_",
    "TORCH_",
    "TORCHINDUCTOR_",
    "TRITON_",
    "VLLM_",
    "OMP_NUM_THREADS",
)
HASHED_BYTES = 2**20
SECRET_PARTS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


def environment(torch: Any | None = None) -> dict[str, Any]:
    """Versions, settings and code state of this process, plain JSON, without host or user names."""
    return {
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "packages": package_versions(),
        "hip": getattr(torch.version, "hip", None) if torch is not None else None,
        "cuda": getattr(torch.version, "cuda", None) if torch is not None else None,
        "rocm": rocm_version(),
        "settings": settings(),
        "code": code_state(Path(__file__).resolve().parents[2]),
    }


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that can change a measurement."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name == "rcatools":
                found[name] = sys.modules["rcatools"].__version__
    return found


def settings() -> dict[str, str]:
    """Environment variables that steer GPU libraries; values that look secret are withheld."""
    return {
        name: "(withheld)" if any(part in name.upper() for part in SECRET_PARTS) else value[:200]
        for name, value in sorted(os.environ.items())
        if name.startswith(SETTINGS_PREFIXES)
    }


def rocm_version() -> str | None:
    """Version of the installed ROCm, or None."""
    for place in (Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / ".info" / "version",):
        try:
            return place.read_text(encoding="utf-8").strip()[:60]
        except OSError:
            continue
    return None


def code_state(folder: Path) -> dict[str, Any]:
    """Git commit, whether the tree is dirty, hash of the diff, number and hash of untracked files.

    Outside a repository or without git the commit is that of RCATOOLS_COMMIT, marked as declared, or None
    with a reason. A hash over the library's own source files identifies the code in every case.
    """
    state: dict[str, Any] = {"source_sha256": source_hash(Path(__file__).resolve().parents[1])}
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        declared = os.environ.get("RCATOOLS_COMMIT")
        if declared and re.fullmatch(r"[0-9a-f]{7,40}", declared):
            return {
                **state,
                "commit": declared,
                "declared": True,
                "reason": "from RCATOOLS_COMMIT, no git here",
            }
        return {**state, "commit": None, "reason": "not a git checkout, or git is not installed"}
    diff = uncommitted_diff(folder)
    untracked = untracked_files(folder)
    return {
        **state,
        "commit": commit.strip(),
        "dirty": diff is not None,
        "diff_sha256": hashlib.sha256(diff.encode(errors="surrogateescape")).hexdigest() if diff else None,
        "untracked_files": len(untracked),
        "untracked_sha256": files_hash(folder, untracked) if untracked else None,
    }


def untracked_files(folder: Path) -> list[str]:
    """Paths of files that git neither tracks nor ignores, sorted; empty without git."""
    listed = _git(folder, "ls-files", "--others", "--exclude-standard", "-z") or ""
    return sorted(filter(None, listed.split("\0")))


def uncommitted_diff(folder: Path) -> str | None:
    """The difference of tracked files to the commit, as text; None where there is none or no git."""
    diff = _git(folder, "diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color") or ""
    return diff if diff.strip() else None


def files_hash(folder: Path, names: list[str]) -> str:
    """SHA-256 over names, sizes and the first megabyte of each file's content."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode(errors="surrogateescape") + b"\0")
        try:
            with (folder / name).open("rb") as stream:
                digest.update(str(os.fstat(stream.fileno()).st_size).encode() + b"\0")
                digest.update(stream.read(HASHED_BYTES))
        except OSError:
            digest.update(b"unreadable")
    return digest.hexdigest()


def source_hash(package: Path) -> str:
    """SHA-256 over the names and contents of a package's Python files, in sorted order."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
