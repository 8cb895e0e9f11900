"""Many small recordings with known machines, days and commits, written as the recorder's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ARMS = {"off": "baseline", "off_again": "repeat", "side": "suspect"}


def recording(
    folder: Path,
    *,
    level: float = 1000.0,
    ratio: float = 1.0,
    noise: float = 0.002,
    seed: int = 0,
    machine: str = "card-0",
    day: str = "2026-11-01",
    commit: str = "0" * 40,
    blocks: int = 8,
    **changes: Any,
) -> Path:
    """One recording; ``ratio`` is the suspect's true effect, ``noise`` the spread of a run."""
    rng = np.random.default_rng(seed)
    rows = []
    for order, arm in enumerate(ARMS):
        for block in range(blocks):
            run = level * (ratio if arm == "side" else 1.0) * np.exp(rng.normal(0, noise))
            for sample in range(3):
                rows.append((arm, block, order, f"{block:03d}-{order:02d}-{arm}", "step_us", sample, run))
                rows.append((arm, block, order, f"{block:03d}-{order:02d}-{arm}", "boundary_us", sample, 1.0))
    folder.mkdir(parents=True)
    columns = ["arm", "block", "order", "run", "metric", "sample", "value"]
    pd.DataFrame(rows, columns=columns).to_parquet(folder / "samples.parquet")
    runs = [(f"{b:03d}-{i:02d}-{arm}", arm, b, i, "fork", "ok", None, f"{day}T00:00:00Z", 1.0)
            for i, arm in enumerate(ARMS) for b in range(blocks)]  # fmt: skip
    names = ["run", "arm", "block", "order", "isolation", "outcome", "reason", "started_utc", "wall_s"]
    pd.DataFrame(runs, columns=names).to_parquet(folder / "runs.parquet")
    manifest: dict[str, Any] = {
        "schema": "rcatools-recording",
        "version": 1,
        "investigation": "synthetic",
        "state": "complete",
        "created_utc": f"{day}T02:00:00+00:00",
        "command": "synthetic",
        "device": {"backend": "cuda", "name": "Synthetic GPU", "arch": "none", "uuid": machine},
        "environment": {"packages": {"torch": "2.11.0"}, "code": {"commit": commit, "dirty": False}},
        "workload": {"name": "decode", "parameters": {"batch": 1}},
        "design": {
            "baseline": "off",
            "metric": "step_us",
            "margin": 0.01,
            "confidence": 0.95,
            "arms": [{"name": arm, "role": role} for arm, role in ARMS.items()],
        },
        "counts": {"planned": 3 * blocks, "ok": 3 * blocks, "failed": 0},
        **changes,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
