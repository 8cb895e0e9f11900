"""``report.zip``: the whole report folder in one file that an issue takes as an attachment."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

from rcatools.recording.writer import write_bytes

_FIXED_TIME = (2020, 1, 1, 0, 0, 0)
NAMES = ("findings.md", "report.html", "verdict.json", "status.json")


def write_bundle(folder: Path, target: Path, extra: Iterable[Path] = ()) -> int:
    """Zip the findings, the page, the verdict, the status and the executed notebooks of a folder.

    The same files give the same bytes. Returns the size in bytes.
    """
    files = [folder / name for name in NAMES] + sorted((folder / "notebooks").glob("*.ipynb")) + list(extra)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for file in files:
            if file.is_file():
                info = zipfile.ZipInfo(str(file.relative_to(folder)), _FIXED_TIME)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                archive.writestr(info, file.read_bytes())
    write_bytes(target, stream.getvalue())
    return len(stream.getvalue())
