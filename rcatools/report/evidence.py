"""What a report is made from: the judged document and the measured tables, made once and shared.

Judging reads every snapshot and trace. The report command does it once and keeps the result in the
report folder; a notebook that is given that folder and the same inputs reads it back in milliseconds,
and judges by itself otherwise.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rcatools.errors import InputError, UnknownNameError
from rcatools.files import write_json
from rcatools.report.inputs import Inputs
from rcatools.report.locate import investigation_folder, names_declared
from rcatools.report.measured import Facts, Measured, harmless_text, load_measured
from rcatools.report.safe import harmless

if TYPE_CHECKING:
    from rcatools.diagnosis.investigation import Investigation
    from rcatools.recording import Recording

FOLDER = "evidence"


@dataclass(frozen=True)
class Evidence:
    """The judged document, the measured tables, and the facts that figures need."""

    document: dict[str, Any]
    measured: Measured
    facts: Facts

    def save(self, folder: Path, key: str) -> None:
        """Keep it for the notebooks of one report; the key is written last."""
        self.measured.save(folder)
        write_json(folder / "document.json", self.document)
        write_json(folder / "key.json", {"key": key, "facts": dataclasses.asdict(self.facts)})


def gather(asked: Inputs) -> Evidence:
    """Judge the inputs.

    Raises:
        InputError: an investigation or recording that cannot be used, or an unknown arm to drop.
    """
    # Imported here: a notebook that reads shared evidence back needs none of it.
    from rcatools.diagnosis import judge
    from rcatools.diagnosis.engine import without_arms
    from rcatools.recording import open_recording
    from rcatools.report.answers import further
    from rcatools.report.reading import measure_tables

    declared, opened = opened_inputs(asked)
    kept = [without_arms(item, asked.drop_arms) for item in opened] if asked.drop_arms else opened
    beside = [open_recording(folder) for folder in asked.companions]
    document = judge(declared, kept, margin=asked.margin, companions=beside).document()
    effect = declared.spec.effect
    facts = Facts(
        recording=harmless_text(kept[0].name),
        metric=harmless_text(effect.metric),
        baseline=harmless_text(effect.baseline),
        margin=kept[0].manifest.margin if asked.margin is None else asked.margin,
        repeats=tuple(harmless_text(arm) for arm in effect.repeat),
    )
    notebooks = names_declared(asked.investigation, "notebooks")
    questions = further(asked.investigation, notebooks, document)
    asked_beside = {"questions": questions} if questions else {}
    return Evidence(
        harmless(document | asked_beside | {"notebooks": list(notebooks)}), measure_tables(kept), facts
    )


def opened_inputs(asked: Inputs) -> tuple[Investigation, list[Recording]]:
    """The investigation and its recordings, read and found to belong together.

    Raises:
        InputError: one of them cannot be used, or an arm to drop is the baseline or not known.
    """
    from rcatools.diagnosis import load_investigation
    from rcatools.recording import open_recording

    declared = load_investigation(investigation_folder(asked.investigation))
    opened = [open_recording(folder) for folder in asked.recordings]
    for recording in opened:
        if recording.manifest.investigation != declared.slug:
            raise InputError(
                f"recording {recording.name} is of {recording.manifest.investigation!r}, not of {declared.slug!r}: "
                f"run 'rcatools report {recording.manifest.investigation}'"
            )
    _check_drop(declared, asked.drop_arms)
    return declared, opened


def check_drop(investigation: str, arms: Sequence[str]) -> None:
    """Refuse arms that cannot be left out; errors as in :func:`opened_inputs`."""
    from rcatools.diagnosis import load_investigation

    _check_drop(load_investigation(investigation_folder(investigation)), arms)


def load(folder: Path, key: str) -> Evidence | None:
    """Evidence kept in a folder, or None where there is none for this key."""
    try:
        kept = json.loads((folder / "key.json").read_text(encoding="utf-8"))
        if kept["key"] != key:
            return None
        return read(folder)
    except (OSError, ValueError, KeyError):
        return None


def read(folder: Path) -> Evidence:
    """Evidence kept in a folder, whatever it was made from.

    Raises:
        InputError: the folder holds no evidence.
    """
    try:
        kept = json.loads((folder / "key.json").read_text(encoding="utf-8"))
        document = json.loads((folder / "document.json").read_text(encoding="utf-8"))
        facts = Facts(**{**kept["facts"], "repeats": tuple(kept["facts"]["repeats"])})
        return Evidence(document, load_measured(folder), facts)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder} holds no readable evidence ({error}): run 'rcatools report' again"
        ) from None


def load_or_gather(asked: Inputs, folder: Path | None) -> Evidence:
    """Evidence from the folder where it fits, judged anew otherwise."""
    kept = load(folder, asked.key()) if folder else None
    return kept or gather(asked)


def _check_drop(declared: Investigation, arms: Sequence[str]) -> None:
    effect = declared.spec.effect
    for arm in arms:
        if arm not in declared.spec.arms:
            raise UnknownNameError("arm to leave out", arm, declared.spec.arms)
        if arm == effect.baseline:
            raise InputError(
                f"the baseline {arm!r} cannot be left out: everything is compared with it; leave it in"
            )
