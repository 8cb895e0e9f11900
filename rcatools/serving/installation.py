"""The vLLM that is measured: where its command and its Python are, and what they run on.

``python -m rcatools.serving.installation`` describes the environment it runs in, as JSON; it is run with vLLM's own
Python, which may be another one than this command's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rcatools.errors import InputError, RunError, UnavailableError

PROBE_S = 300
PLUGIN = "rcatools"
GROUP = "vllm.general_plugins"


@dataclass(frozen=True)
class Installation:
    """One vLLM.

    Attributes:
        command: path of ``vllm``.
        device: backend, name, arch and so on, as a recording names them.
        environment: versions, settings and code state in vLLM's environment.
        plugin: whether the plugin is installed there.
    """

    command: str
    device: dict[str, Any]
    environment: dict[str, Any]
    plugin: bool


def find_vllm(given: str | None) -> str:
    """Path of the ``vllm`` command: the given one, the one beside this Python, or the first on PATH.

    Raises:
        InputError: the given one is not there.
        UnavailableError: there is none.
    """
    if given:
        found = shutil.which(given)
        if found is None:
            raise InputError(f"--vllm {given}: there is no such command; give the path of 'vllm'")
        return found
    beside = Path(sys.executable).parent / "vllm"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("vllm")
    if found is None:
        raise UnavailableError(
            "no 'vllm' command beside this Python or on PATH: install vLLM, or give --vllm PATH"
        )
    return found


def python_of(command: str) -> str:
    """The Python that a command's first line names, else one beside it, else this one."""
    with Path(command).open("rb") as stream:
        first = stream.readline(4096)
    if first.startswith(b"#!"):
        words = first[2:].decode(errors="replace").split()
        if words and Path(words[0]).name.startswith("python") and os.access(words[0], os.X_OK):
            return words[0]
    beside = Path(command).parent / "python"
    return str(beside) if os.access(beside, os.X_OK) else sys.executable


def inspect_vllm(command: str, extra: dict[str, str]) -> Installation:
    """Describe the environment of a ``vllm`` command, in a process of its own.

    Raises:
        UnavailableError: vLLM or torch cannot be used there.
        RunError: the probe failed.
    """
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            [python_of(command), "-m", "rcatools.serving.installation"],
            capture_output=True,
            text=True,
            env={**os.environ, **extra, "PYTHONPATH": path},
            timeout=PROBE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{command}: its environment gave no answer within {PROBE_S} s") from None
    last = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
    if done.returncode == 2:
        raise UnavailableError(last)
    if done.returncode != 0:
        raise RunError(
            f"{command}: its environment cannot be described ({last}): mend it, or give --vllm PATH"
        )
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return Installation(command, found["device"], found["environment"], bool(found["plugin"]))


def describe_here() -> dict[str, Any]:
    """Device, versions and plugin of the environment that this runs in.

    Raises:
        RcaError: torch or the device is not there.
    """
    from rcatools.device.backend import choose_backend, describe, import_torch
    from rcatools.device.fingerprint import environment

    torch = import_torch()
    found = environment(torch)
    version = found["packages"].get("vllm", "")
    if not version:
        raise UnavailableError(
            "vLLM is not installed for the Python of the 'vllm' command: install it there, or give --vllm PATH"
        )
    backend = "cpu" if "cpu" in version else choose_backend("auto", torch)
    names = {entry.name for entry in entry_points(group=GROUP)}
    return {
        "device": describe(backend, torch).as_dict(),
        "environment": found,
        "plugin": PLUGIN in names,
    }


def main() -> int:
    """Print the description as JSON on the last line; exit code 2 with one line where something is not there."""
    from rcatools.errors import RcaError

    try:
        found = describe_here()
    except RcaError as error:
        print(str(error), file=sys.stderr)
        return 2
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
