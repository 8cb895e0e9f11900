"""Ceilings for the roofline of a trace: measured ones, with the data sheet of its device as the upper check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rcatools.device.ceilings import datasheet
from rcatools.errors import InputError
from rcatools.trace.bounds import Ceilings, ceilings_from, read_ceilings


def for_devices(names: Iterable[str | None], path: str | Path | None = None) -> Ceilings | None:
    """Ceilings from a file, or those of the data sheet; None where neither knows the device.

    Args:
        names: of the devices in a trace; the data sheet is used where they are of one kind.
        path: rocprof-compute's roofline.csv or JSON; None for none.

    Raises:
        InputError: the file holds no ceilings.
    """
    upper = _datasheet(names)
    return upper if path is None else replace(read_ceilings(path), upper=upper)


def of_recording(ceilings: Mapping[str, Any], device: str | None, source: str) -> Ceilings | None:
    """Ceilings that a recording measured on its device; those of the data sheet where it measured none."""
    upper = _datasheet([device])
    try:
        return replace(ceilings_from(ceilings, source), upper=upper)
    except InputError:
        return upper


def _datasheet(names: Iterable[str | None]) -> Ceilings | None:
    kinds = {name for name in names if name}
    sheet = datasheet(kinds.pop()) if len(kinds) == 1 else None
    if not sheet:
        return None
    return Ceilings(sheet["bytes_per_s"], {"bf16": sheet["bf16_flops"]}, str(sheet["source"]), measured=False)
