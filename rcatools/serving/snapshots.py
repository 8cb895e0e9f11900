"""Allocator snapshots at three points of a worker's start: after the profile, after the KV cache, after the capture."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

from rcatools.serving.markers import Marker
from rcatools.serving.variants import POINTS

HISTORY_EVENTS = 200_000


class SnapshotPoints:
    """Takes snapshots of this process where a folder is given; does nothing otherwise.

    Args:
        folder: where they go, "" for nowhere.
        marker: names the worker and keeps the list of files.
    """

    def __init__(self, folder: str, marker: Marker) -> None:
        self.folder, self.marker = folder, marker

    def begin(self) -> None:
        """Record the allocator's history from here on, if there is a device."""
        torch = self._torch()
        if torch is not None:
            torch.cuda.memory._record_memory_history(max_entries=HISTORY_EVENTS, stacks="all")

    def take(self, point: str) -> None:
        """Write ``rank<R>-<point>.pickle.gz``; a point that comes again (a second profile) is numbered."""
        assert point in POINTS
        torch = self._torch()
        if torch is None or self.marker.rank is None:
            return
        torch.cuda.synchronize()
        name = f"rank{self.marker.rank}-{point}"
        earlier = sum(1 for file in self.marker.snapshots if file.startswith(name))
        file = f"{name}{f'-{earlier + 1}' if earlier else ''}.pickle.gz"
        place = Path(self.folder)
        place.mkdir(parents=True, exist_ok=True)
        with gzip.open(place / file, "wb", compresslevel=6) as stream:
            pickle.dump(torch.cuda.memory._snapshot(), stream)
        self.marker.snapshots.append(file)

    def _torch(self) -> Any:
        if not self.folder:
            return None
        import torch

        return torch if torch.cuda.is_available() and torch.cuda.is_initialized() else None
