"""Where the time of a report goes, and what sharing the evidence and running side by side save.

    python benchmarks/report_speed.py [RECORDING ...]

Prints seconds of each stage, then two ratios: notebooks that judge for themselves against notebooks that read
the shared evidence, and one notebook at a time against one per core.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def timed(name: str, work: Callable[[], Any]) -> tuple[float, Any]:
    """Run and print how long it took."""
    started = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - started
    print(f"{name:<46}{seconds:8.2f} s", flush=True)
    return seconds, result


def main() -> None:
    """Measure every stage once and the two comparisons."""
    for module in (
        "rcatools.cli.report",
        "rcatools.report.session",
        "rcatools.batch.run",
        "rcatools.report.evidence",
    ):
        timed(
            f"import {module}",
            lambda m=module: subprocess.run([sys.executable, "-c", f"import {m}"], cwd=ROOT, check=True),
        )

    from rcatools.batch.notebook import NotebookJob
    from rcatools.batch.pipeline import _job, notebook_path
    from rcatools.batch.run import run_notebooks
    from rcatools.batch.status import Status
    from rcatools.report import findings, page
    from rcatools.report.evidence import FOLDER, gather
    from rcatools.report.inputs import inputs
    from rcatools.report.questions import QUESTIONS

    asked = inputs("capture-stream", sys.argv[1:])
    _, evidence = timed("judge and read the tables", lambda: gather(asked))
    timed("findings.md", lambda: findings.render(evidence.document))
    timed("report.html", lambda: page.render(evidence.document, evidence.measured, evidence.facts))

    def notebooks(shared: bool, workers: int | None) -> float:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            if shared:
                evidence.save(folder / FOLDER, asked.key())
            jobs: list[NotebookJob] = [
                _job(name, notebook_path(name), folder, asked, {}) for name in QUESTIONS
            ]
            status = Status(folder / "status.json", QUESTIONS)
            name = f"notebooks, {'shared' if shared else 'own'} evidence, {workers or 'a core each'}"
            seconds, runs = timed(
                name, lambda: run_notebooks([replace(job) for job in jobs], status, workers=workers)
            )
            assert all(run.state == "done" for run in runs), [run.error for run in runs]
            return seconds

    shared, own, serial = notebooks(True, None), notebooks(False, None), notebooks(True, 1)
    print(f"own / shared evidence                         {own / shared:8.2f}")
    print(f"one at a time / one per core                  {serial / shared:8.2f}")


if __name__ == "__main__":
    main()
