"""``report.zip``: the whole report folder in one file that an issue takes as an attachment."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from rcatools.files import write_bytes

_FIXED_TIME = (2020, 1, 1, 0, 0, 0)
PATTERNS = ("notebooks/*.ipynb", "results/*.json", "evidence/*")
NAMES = ("findings.md", "report.html", "verdict.json", "status.json")


def write_bundle(folder: Path, target: Path, instead: Mapping[str, bytes] | None = None) -> int:
    """Zip the findings, page, verdict, status, executed notebooks, their answers and the measured tables.

    Args:
        folder: the report folder.
        target: the zip file.
        instead: contents that take the place of files, by name.

    Returns:
        the size in bytes; the same files give the same bytes.
    """
    contents = {name: (folder / name).read_bytes() for name in NAMES if (folder / name).is_file()}
    contents |= instead or {}
    for pattern in PATTERNS:
        for file in sorted(folder.glob(pattern)):
            contents[str(file.relative_to(folder))] = file.read_bytes()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, data in contents.items():
            info = zipfile.ZipInfo(name, _FIXED_TIME)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    write_bytes(target, stream.getvalue())
    return len(stream.getvalue())
