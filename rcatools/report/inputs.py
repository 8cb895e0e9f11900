"""What a report is asked to judge."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import rcatools
from rcatools.errors import InputError
from rcatools.report.locate import (
    companion_folders,
    investigation_folder,
    names_declared,
    recording_folders,
)


@dataclass(frozen=True)
class Inputs:
    """What is judged and with which settings.

    Attributes:
        investigation: its name or folder.
        recordings: folders, the first decides the device.
        margin: equivalence margin; None: the investigation's own.
        drop_arms: arms left out of every judgement.
        companions: folders of further workloads that the investigation names.
    """

    investigation: str
    recordings: tuple[Path, ...]
    margin: float | None = None
    drop_arms: tuple[str, ...] = ()
    companions: tuple[Path, ...] = ()

    def key(self) -> str:
        """A hash of everything the judgement depends on."""
        digest = hashlib.sha256(f"{rcatools.__version__} {self.margin} {sorted(self.drop_arms)}".encode())
        folder = investigation_folder(self.investigation)
        files = [folder / "investigation.yaml", *sorted(folder.glob("*.csv"))]
        files += [recording / "manifest.json" for recording in (*self.recordings, *self.companions)]
        for file in files:
            try:
                digest.update(file.name.encode() + file.read_bytes())
            except OSError as error:
                raise InputError(
                    f"cannot read {file}: {error.strerror}; give an existing recording"
                ) from None
        return digest.hexdigest()


def inputs(
    investigation: str,
    recordings: Sequence[str | Path] = (),
    margin: float | None = None,
    drop_arms: Sequence[str] = (),
) -> Inputs:
    """Inputs with the recordings found.

    Raises:
        InputError: an unknown investigation or recording, or a margin outside 0 to 1.
    """
    if margin is not None and not 0 < margin < 1:
        raise InputError(f"margin must be between 0 and 1 (0.01 is 1 %), got {margin}")
    investigation_folder(investigation)
    folders = tuple(recording_folders(investigation, recordings))
    for index, folder in enumerate(folders):
        if folder.resolve() in [earlier.resolve() for earlier in folders[:index]]:
            raise InputError(f"recording {folder} is given twice: give it once")
    return Inputs(
        investigation,
        folders,
        margin,
        tuple(drop_arms),
        tuple(companion_folders(names_declared(investigation, "companions"))),
    )
