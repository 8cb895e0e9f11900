"""The engine's benchmark: figures from the embedded recordings, and no script that stands alone in the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rcatools.recording.reader import open_recording

ROOT = Path(__file__).resolve().parents[1]
H200 = ROOT / "data" / "recordings" / "capture-stream-h200"


def test_figures_of_the_readme_are_those_of_the_recording() -> None:
    pytest.importorskip("torch")
    from benchmarks import engine

    recording = open_recording(H200)
    rows = engine.ceiling_shares(recording) + engine.blocks_and_boundary(recording)
    told = {re.sub(r"( of \d+ MiB)? \(.*", "", row["what"]): row["value"] for row in rows}
    assert told["blocks to see 0.5 %"] == "3 to 3"
    assert told["one boundary between graph kernels, side"] == pytest.approx(1.145, abs=0.001)
    kernel = recording.kernels[
        (recording.kernels["kernel"] == "kv_gather") & (recording.kernels["arm"] == "off")
    ]
    declared = next(k for k in recording.manifest.workload["kernels"] if k["name"] == "kv_gather")
    share = declared["bytes"] / kernel["us"].median() * 1e6 / recording.manifest.ceilings["copy_bytes_per_s"]
    assert told["share of the copy ceiling, kv_gather"] == pytest.approx(share)
    text = (ROOT / "benchmarks" / "README.md").read_text()
    assert f"{share:.2f}, " in text
    minutes = 60 / recording.timed_runs().groupby("isolation")["wall_s"].median()
    assert f"{minutes['fork']:.1f} and {minutes['spawn']:.1f}" in text


def test_every_benchmark_is_in_the_table_and_every_default_exists() -> None:
    from benchmarks import __main__ as everything

    text = (ROOT / "benchmarks" / "README.md").read_text()
    listed = set(re.findall(r"`(\w+)\.py", text))
    scripts = {file.stem for file in (ROOT / "benchmarks").glob("*.py")} - {"__main__"}
    assert set(everything.BY_DEFAULT) <= scripts
    assert listed <= scripts
    assert {"engine", "queue_cliff", "placement"} <= listed
