"""Runs one notebook through papermill with a time limit that holds and a verdict that does not trust it.

papermill's default engine gives every cell its own limit, leaves grandchildren of a killed kernel
running, and reports a dead kernel only by an exception while the saved notebook looks complete. The
engine here gives the whole notebook one limit and ends the kernel's process group.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import papermill
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillException
from traitlets.config import Config

from rcatools.batch.parameters import check_values, read_notebook, read_parameters
from rcatools.errors import InputError
from rcatools.files import finite, write_bytes

ENGINE = "rcatools"
START_TIMEOUT_S = 90
DEFAULT_KERNEL = "python3"


@dataclass(frozen=True)
class NotebookJob:
    """One notebook to run.

    Attributes:
        source: the notebook file; it is never written.
        output: where the executed notebook goes, whole, when it has ended.
        parameters: values for its parameters cell.
        timeout_s: limit for the whole notebook.
        env: environment variables added for the kernel.
        result: file that the notebook must write; without it the run counts as failed. None: not asked.
        replace: texts replaced in the executed notebook, such as personal paths.
        name: its name in the status.
    """

    source: Path
    output: Path
    parameters: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 600.0
    env: Mapping[str, str] = field(default_factory=dict)
    result: Path | None = None
    replace: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """File name without its suffix."""
        return self.source.stem


@dataclass(frozen=True)
class NotebookRun:
    """How a notebook ended: ``state`` is "done" or "failed", ``error`` one line or None."""

    name: str
    state: str
    seconds: float
    error: str | None
    parameters: dict[str, Any]
    warnings: tuple[str, ...]


class _OwnPython(KernelSpecManager):
    """Takes this interpreter for ``python3``: a kernel of that name in the user's home may be another one,
    without this package, and where packages lie on PYTHONPATH alone none is installed."""

    def get_kernel_spec(self, kernel_name: str) -> Any:
        """The kernel of that name; jupyter_client asks."""
        if kernel_name != DEFAULT_KERNEL:
            return super().get_kernel_spec(kernel_name)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


class _Kernels(AsyncKernelManager):
    """Starts kernels by the specs of :class:`_OwnPython`."""

    def _kernel_spec_manager_default(self) -> KernelSpecManager:
        return _OwnPython(parent=self)


class GuardedEngine(NBClientEngine):  # type: ignore[misc]
    """papermill's engine with one limit for the whole notebook and no process left behind."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> Any:
        """Execute the cells; papermill calls this."""
        limit = _Limit(kwargs["time_limit_s"])
        client = PapermillNotebookClient(
            nb_man,
            kernel_name=kernel_name,
            kernel_manager_class=_Kernels,
            startup_timeout=START_TIMEOUT_S,
            timeout_func=limit.left,
            shutdown_kernel="immediate",
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{kwargs['sockets']}/k"}}),
            **({"resources": {"metadata": {"path": str(kwargs["folder"])}}} if kwargs.get("folder") else {}),
        )
        try:
            return client.execute(env={**os.environ, **kwargs["kernel_env"]})
        finally:
            _end_process_group(client)
            _end_tasks()


class _Limit:
    """Seconds that are left for the whole notebook, counted from its first cell."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline: float | None = None

    def left(self, cell: Any) -> int:
        """Whole seconds left, at least one; nbclient asks before each cell."""
        if self.deadline is None:
            self.deadline = time.monotonic() + self.seconds
        return max(1, math.ceil(self.deadline - time.monotonic()))


papermill_engines.register(ENGINE, GuardedEngine)


def _end_process_group(client: Any) -> None:
    """End what the kernel started and left running."""
    group = getattr(getattr(client.km, "provisioner", None), "pgid", None)
    if isinstance(group, int) and group > 1 and group != os.getpgrp():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _end_tasks() -> None:
    """Cancel what nbclient leaves waiting on this thread's event loop after a time-out."""
    loop = ensure_event_loop()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks and not loop.is_running():
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def check_job(job: NotebookJob) -> tuple[dict[str, Any], list[str]]:
    """The effective parameters of a job and what is odd about its notebook, before anything runs.

    Raises:
        InputError: the notebook cannot be read, or a parameter is unknown, mistyped or not JSON.
    """
    book = read_parameters(job.source)
    given = check_values(book, job.parameters)
    effective = {
        **{name: parameter.default for name, parameter in book.declared.items()},
        **given,
    }
    warnings = []
    if not book.tagged:
        warnings.append(f"{job.source.name} has no parameters cell: it ran with its own values")
    if not _kernel_name(job.source):
        warnings.append(f"{job.source.name} names no kernel: ran with {DEFAULT_KERNEL}")
    return finite(effective), warnings


def run_notebook(job: NotebookJob) -> NotebookRun:
    """Run one notebook to its end and say how it ended; only a wrong job raises.

    The executed notebook is written to ``job.output`` in every case in which a kernel started.

    Raises:
        InputError: see :func:`check_job`.
    """
    effective, warnings = check_job(job)
    started = time.monotonic()
    partial = job.output.with_name(f".partial-{job.output.name}")
    job.output.parent.mkdir(parents=True, exist_ok=True)
    if job.result:
        job.result.unlink(missing_ok=True)
    error: str | None = None
    # Unix sockets: no port is shared with other kernels. Their default name is the same for every kernel
    # of a folder, and a path must stay under about 100 characters.
    sockets = tempfile.mkdtemp(prefix="rca-")
    try:
        papermill.execute_notebook(
            job.source,
            partial,
            parameters=check_values(read_parameters(job.source), job.parameters),
            engine_name=ENGINE,
            kernel_name=_kernel_name(job.source) or DEFAULT_KERNEL,
            language="python",
            progress_bar=False,
            time_limit_s=job.timeout_s,
            kernel_env=dict(job.env),
            sockets=sockets,
        )
    except Exception as caught:  # whatever a notebook raises is its result, not ours
        error = _one_line(caught, job.timeout_s)
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
    error = error or _unfinished(partial) or _missing_result(job)
    try:
        _publish(partial, job)
    except (OSError, ValueError) as caught:
        error = error or f"the executed notebook could not be written: {caught}"
    return NotebookRun(
        job.name,
        "failed" if error else "done",
        round(time.monotonic() - started, 2),
        error,
        effective,
        tuple(warnings),
    )


def _kernel_name(path: Path) -> str:
    spec = read_notebook(path).get("metadata", {}).get("kernelspec")
    name = spec.get("name") if isinstance(spec, dict) else None
    return name if isinstance(name, str) else ""


def _one_line(error: Exception, timeout_s: float) -> str:
    name = type(error).__name__
    if name == "CellTimeoutError":
        return f"stopped after its limit of {timeout_s:g} s"
    if name == "DeadKernelError":
        return "its kernel died (killed, out of memory or crashed)"
    if name == "NoSuchKernel":
        return (
            f"the kernel it names is not installed ({error}): run 'python -m ipykernel install --sys-prefix'"
        )
    if isinstance(error, PapermillException) and hasattr(error, "ename"):
        return _shorten(f"{error.ename} in cell {error.cell_index + 1}: {error.evalue}")
    return _shorten(f"{name}: {error}")


def _shorten(text: str, limit: int = 400) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _unfinished(executed: Path) -> str | None:
    """Why an executed notebook that raised nothing is not finished, or None."""
    try:
        cells = read_notebook(executed)["cells"]
    except InputError as error:
        return f"its output cannot be read back: {error}"
    code = [cell for cell in cells if cell.get("cell_type") == "code" and "".join(cell.get("source", ""))]
    left = [cell for cell in code if cell.get("execution_count") is None]
    return f"stopped before its last cell: {len(left)} of {len(code)} cells never ran" if left else None


def _missing_result(job: NotebookJob) -> str | None:
    if job.result and not job.result.is_file():
        return f"it ended without its result file {job.result.name}"
    return None


def _publish(partial: Path, job: NotebookJob) -> None:
    """Put the executed notebook in place: strict JSON, machine paths replaced."""
    if not partial.is_file():
        return
    document = finite(json.loads(partial.read_text(encoding="utf-8")))
    facts = document.get("metadata", {}).get("papermill", {})
    facts.update(input_path=job.source.name, output_path=job.output.name)
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    for old, new in sorted(job.replace.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(json.dumps(old, ensure_ascii=False)[1:-1], new)
    write_bytes(job.output, text.encode())
    partial.unlink()
