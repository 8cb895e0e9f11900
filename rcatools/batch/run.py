"""Runs several notebooks side by side, one kernel each, and keeps the status file true."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from rcatools.batch.notebook import NotebookJob, NotebookRun, check_job, run_notebook
from rcatools.batch.status import Status


def default_workers() -> int:
    """Kernels at a time: one per usable core, two at least (they mostly wait), eight at most."""
    return min(8, max(2, len(os.sched_getaffinity(0))))


def check_jobs(jobs: Sequence[NotebookJob]) -> None:
    """Check every job before the first one runs.

    Raises:
        InputError: the first job that cannot run.
    """
    for job in jobs:
        check_job(job)


def run_notebooks(
    jobs: Sequence[NotebookJob],
    status: Status,
    *,
    workers: int | None = None,
    progress: Callable[[NotebookRun], None] = lambda run: None,
    runner: Callable[[NotebookJob], NotebookRun] = run_notebook,
) -> list[NotebookRun]:
    """Run independent notebooks and record each change in the status.

    A notebook that fails does not stop the others. Ctrl-C stops the start of further notebooks, marks
    what was not finished as failed and is raised again.

    Returns:
        the runs in the order of the jobs.

    Raises:
        InputError: a job that cannot run; nothing has been started then.
    """
    check_jobs(jobs)
    runs: dict[str, NotebookRun] = {}
    with ThreadPoolExecutor(max_workers=workers or default_workers(), thread_name_prefix="notebook") as pool:

        def start(job: NotebookJob) -> NotebookRun:
            status.update(job.name, state="running")
            return runner(job)

        waiting: set[Future[NotebookRun]] = {pool.submit(start, job) for job in jobs}
        try:
            while waiting:
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    run = future.result()
                    runs[run.name] = run
                    status.update(run.name, **_entry(run))
                    progress(run)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for job in jobs:
                if job.name not in runs:
                    status.update(job.name, state="failed", error="stopped before it ended")
            raise
    return [runs[job.name] for job in jobs]


def _entry(run: NotebookRun) -> dict[str, Any]:
    return {
        "state": run.state,
        "seconds": run.seconds,
        "error": run.error,
        "parameters": run.parameters,
        "warnings": list(run.warnings),
    }
