"""Describes the device in a process of its own: ``python -m rcatools.experiment.probe auto``."""

from __future__ import annotations

import json
import sys
from typing import Any

from rcatools.device import ceilings
from rcatools.device.backend import choose_backend, describe, device_count, import_torch
from rcatools.errors import RcaError


def read_kernel(torch: Any) -> Any:
    """The Triton reduction as a function of (source, target), or None without Triton."""
    try:
        from rcatools.workload import triton_kernels
    except ImportError:
        return None

    def launch(source: Any, target: Any) -> None:
        values = source.view(torch.float32)
        programs = values.numel() // 2048
        triton_kernels.reduce_kernel[(programs,)](values, target.view(torch.float32), BLOCK=2048, num_warps=8)

    return launch


def main() -> int:
    """Print the device and its ceilings as JSON; exit code 2 with one line where it is not there."""
    requested = sys.argv[1] if len(sys.argv) > 1 else "auto"
    try:
        torch = import_torch()
        backend = choose_backend(requested, torch)
        device = describe(backend, torch).as_dict()
        device["count"] = device_count(torch) if backend != "cpu" else None
        kernel = read_kernel(torch) if backend != "cpu" else None
        device["ceilings"] = ceilings.measure(torch, backend, read_kernel=kernel)
        device["ceilings"] |= {"datasheet": ceilings.datasheet(device["name"])}
    except RcaError as error:
        print(str(error), file=sys.stderr)
        return 2
    print(json.dumps(device))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
