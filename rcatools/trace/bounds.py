"""What limits a kernel: a roofline verdict against ceilings measured on the card.

A verdict says what the figures are consistent with. Fractions are never above 100 %: a kernel that would be faster
than its ceiling shows that the count of bytes or operations is wrong for it, and is reported as such.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rcatools.errors import InputError
from rcatools.trace.model import Trace, distinct_rows
from rcatools.trace.roles import roles
from rcatools.trace.stream import existing_file
from rcatools.trace.work import Work, work_of

NEAR_RIDGE = 1.5  # memory and compute time within this factor
REACHED = 0.6  # of the ceiling: consistent with being bound by it
LATENCY_US = 10.0  # a launch shorter than this that reaches nothing
TOLERANCE = 1.03  # timer and ceiling spread allowed above 100 %
_MAX_FILE = 16 << 20


@dataclass(frozen=True)
class Ceilings:
    """What a device can do at most.

    Attributes:
        bytes_per_s: memory bandwidth.
        flops: floating-point operations per second by number type ("bf16", "fp16", "fp32", ...).
        source: where the figures come from; shown with every verdict.
        measured: measured on a card, not taken from a data sheet.
        upper: data-sheet ceilings that the measured ones must not exceed, if known.
    """

    bytes_per_s: float | None
    flops: Mapping[str, float]
    source: str
    measured: bool = True
    upper: Ceilings | None = None

    def problems(self) -> tuple[str, ...]:
        """Measured figures above the data sheet's; such ceilings cannot be right."""
        if self.upper is None:
            return ()
        out = []
        if self.bytes_per_s and self.upper.bytes_per_s and self.bytes_per_s > self.upper.bytes_per_s:
            out.append(
                f"measured bandwidth is {100 * self.bytes_per_s / self.upper.bytes_per_s:.0f} % of the data sheet's"
            )
        for dtype, rate in self.flops.items():
            limit = self.upper.flops.get(dtype)
            if limit and rate > limit:
                out.append(f"measured {dtype} rate is {100 * rate / limit:.0f} % of the data sheet's")
        return tuple(out)


def bound_of(work: Work | None, duration_us: float, ceilings: Ceilings | None) -> tuple[str, str]:
    """Verdict and basis for launches of one kernel.

    Args:
        work: bytes and operations of one launch.
        duration_us: its duration.
        ceilings: of the device, or None.

    Returns:
        "bandwidth", "compute", "near_ridge", "latency" or "cannot_tell", and a sentence that says why.
    """
    if work is None:
        return "cannot_tell", "bytes and operations are not known"
    if ceilings is None:
        return "cannot_tell", "no ceilings given for this device"
    if duration_us <= 0:
        return "cannot_tell", "no duration"
    memory = 1e6 * work.bytes / ceilings.bytes_per_s if ceilings.bytes_per_s and work.bytes else 0.0
    rate = ceilings.flops.get(work.dtype or "")
    compute = 1e6 * work.flops / rate if rate and work.flops else 0.0
    if not memory and not compute:
        return "cannot_tell", f"no ceiling for this work ({ceilings.source})"
    needed = max(memory, compute)
    fraction = needed / duration_us
    what = "bandwidth" if memory >= compute else f"{work.dtype} rate"
    if fraction > TOLERANCE:
        return "cannot_tell", (
            f"would be {100 * fraction:.0f} % of the {what} ceiling: the count of bytes or operations does not hold for "
            f"this kernel ({ceilings.source})"
        )
    reached = f"{100 * min(fraction, 1.0):.0f} % of the {what} ceiling ({ceilings.source})"
    if fraction < REACHED:
        if duration_us < LATENCY_US:
            return "latency", f"{duration_us:.1f} us long and only {reached}"
        return "cannot_tell", f"only {reached}: neither ceiling explains its time"
    if memory and compute and max(memory, compute) <= NEAR_RIDGE * min(memory, compute):
        return "near_ridge", f"{reached}; the other ceiling is within {NEAR_RIDGE:g} times"
    return ("bandwidth" if memory >= compute else "compute"), reached


def kernel_work(trace: Trace, declared: Mapping[str, Work] | None = None) -> pd.DataFrame:
    """Bytes and operations per kernel name and device, over the launches where they are known.

    Args:
        trace: the trace.
        declared: work of one launch by a part of the kernel's name, for workloads that declare it; it is used
            before shapes.

    Returns:
        Columns name, device, known (launches with known work), known_us, bytes, flops, dtype.
    """
    kernels = trace.only_kernels()
    duration = kernels["dur_ns"].to_numpy()
    group, first = distinct_rows(kernels, ("name", "device", "full_name", "op", "shapes", "dtypes"))
    counts = np.bincount(group, minlength=len(first))
    totals = np.zeros(len(first), dtype=np.int64)
    np.add.at(totals, group, duration)
    kinds = kernels[["full_name", "op", "kind"]].iloc[first]
    sums: dict[tuple[str, int], list[Any]] = {}
    texts = {column: _texts(kernels[column], first) for column in _TEXTS}
    for name, full, op, shapes, dtypes, device, role, count, total in zip(
        *texts.values(),
        kernels["device"].to_numpy()[first].tolist(),
        np.asarray(roles(kinds), dtype=object),
        counts.tolist(),
        totals.tolist(),
        strict=True,
    ):
        work = _declared(full, declared) or work_of(op, shapes, dtypes, role, full)
        if work is not None:
            known = sums.setdefault((name, device), [0, 0, 0.0, 0.0, work.dtype])
            known[0] += count
            known[1] += total
            known[2] += work.bytes * count
            known[3] += work.flops * count
    rows = [(*key, known, ns / 1000, *rest) for key, (known, ns, *rest) in sums.items()]
    return pd.DataFrame(rows, columns=["name", "device", "known", "known_us", "bytes", "flops", "dtype"])


_TEXTS = ("name", "full_name", "op", "shapes", "dtypes")


def _texts(column: pd.Series[Any], rows: npt.NDArray[np.int64]) -> list[str]:
    """Texts of some rows of a categorical column."""
    return column.cat.categories.to_numpy()[column.cat.codes.to_numpy()[rows]].tolist()  # type: ignore[no-any-return]


def _declared(name: str, declared: Mapping[str, Work] | None) -> Work | None:
    """The declaration whose name begins a word of the kernel's name; the longest of several."""
    fitting = [
        part for part in declared or {} if re.search(rf"(?<![a-z0-9]){re.escape(part.lower())}", name.lower())
    ]
    return (declared or {})[max(fitting, key=len)] if fitting else None


def read_ceilings(path: str | Path) -> Ceilings:
    """Ceilings from a file: rocprof-compute's roofline.csv, or JSON.

    The JSON form is ``{"bytes_per_s": ..., "flops": {"bf16": ...}, "source": "..."}``; the names that
    ``rcatools record`` writes (``copy_bytes_per_s``, ``read_bytes_per_s``, ``matmul_flops``) are understood too.

    Raises:
        InputError: neither of the two.
    """
    file = existing_file(path, "the ceilings: roofline.csv or JSON with bytes_per_s")
    if file.stat().st_size > _MAX_FILE:
        raise InputError(f"{file.name}: too large for ceilings; give roofline.csv or a small JSON file")
    text = file.read_text("utf-8", "replace")
    if text.lstrip().startswith("{"):
        try:
            return ceilings_from(json.loads(text), file.name)
        except ValueError as error:
            raise InputError(
                f"{file.name}: not JSON ({error}); give roofline.csv or JSON with bytes_per_s"
            ) from error
    return _roofline_ceilings(text, file.name)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) and number > 0 else None


def ceilings_from(document: Mapping[str, Any], name: str) -> Ceilings:
    """Ceilings from a record: what ``read_ceilings`` takes as JSON, or the ceilings of a recording.

    Raises:
        InputError: it holds none.
    """
    rates = document.get("flops")
    given = {key: document.get(key) for key in (*_BANDWIDTHS, "matmul_flops")}
    given |= {f"flops.{key}": value for key, value in rates.items()} if isinstance(rates, dict) else {}
    for key, value in given.items():
        if value is not None and _number(value) is None:
            raise InputError(
                f"{name}: {key} is {str(value)[:40]}; give a positive number in bytes or FLOPs per second"
            )
    flops = (
        {str(key): rate for key, value in rates.items() if (rate := _number(value))}
        if isinstance(rates, dict)
        else {}
    )
    if "bf16" not in flops and (rate := _number(document.get("matmul_flops"))):
        flops["bf16" if _number(document.get("matmul_dtype_bits")) in (None, 16.0) else "fp32"] = rate
    candidates = [_number(document.get(key)) for key in _BANDWIDTHS]
    bandwidth = max((value for value in candidates if value), default=None)
    if bandwidth is None and not flops:
        raise InputError(f"{name}: no ceilings in it; give bytes_per_s and flops by number type")
    return Ceilings(bandwidth, flops, str(document.get("source") or name))


_BANDWIDTHS = ("bytes_per_s", "read_bytes_per_s", "copy_bytes_per_s")
# rocprof-compute writes GB/s and GFLOP/s.
_ROOFLINE = {"mfmabf16flops": "bf16", "mfmaf16flops": "fp16", "mfmaf32flops": "fp32", "mfmaf64flops": "fp64",
             "mfmaf8flops": "fp8"}  # fmt: skip


def _roofline_ceilings(text: str, name: str) -> Ceilings:
    """The least capable device of the file: each figure is the minimum over its rows."""
    rows = [
        {(key or "").strip().lower(): value for key, value in row.items()}
        for row in csv.DictReader(text.splitlines())
    ]
    bandwidths = [value for row in rows if (value := _number(row.get("hbmbw")))]
    if not bandwidths:
        raise InputError(
            f"{name}: no column HBMBw; give rocprof-compute's roofline.csv or JSON with bytes_per_s"
        )
    flops = {}
    for column, dtype in _ROOFLINE.items():
        rates = [value for row in rows if (value := _number(row.get(column)))]
        if rates:
            flops[dtype] = 1e9 * min(rates)
    return Ceilings(1e9 * min(bandwidths), flops, f"{name}, {len(rows)} devices measured by rocprof-compute")
