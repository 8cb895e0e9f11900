"""Under which conditions times may be judged: the level that planned looks leave, and outputs that agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rcatools.diagnosis.investigation import Arm
from rcatools.recording import Recording
from rcatools.recording.conditions import output_agreement
from rcatools.units import counted

DEFAULT_CONFIDENCE = 0.95


class Conditions:
    """Conditions of recordings, read once.

    Args:
        arms: the declared arms; planted ones are made different on purpose, so their outputs may differ.
    """

    def __init__(self, arms: Mapping[str, Arm]) -> None:
        self._planted = {name for name, arm in arms.items() if arm.role.startswith("plant_")}
        self._levels: dict[int, tuple[Recording, float]] = {}
        self._agreement: dict[tuple[int, str], tuple[Recording, dict[str, Mapping[Any, Any]]]] = {}

    def confidence(self, recording: Recording) -> float:
        """The confidence that the recording declared, or 1 - p of the look it ended at, where looks were planned.

        A recording that could stop at a look has spent error at each one. What it ends with is judged at the
        level of the last planned look it passed (of the first, where it passed none).
        """
        if id(recording) not in self._levels:
            self._levels[id(recording)] = recording, level(recording)
        return self._levels[id(recording)][1]

    def outputs_apart(self, recording: Recording, arms: Sequence[str]) -> str:
        """Why the times of these arms cannot be compared: their outputs differ; "" where they do not.

        The last arm is what the others are compared with. Arms without a recorded output are let pass.
        """
        reference = arms[-1]
        asked = [arm for arm in arms[:-1] if not {arm, reference} & self._planted]
        if not asked:
            return ""
        key = (id(recording), reference)
        if key not in self._agreement:
            rows = output_agreement(recording, reference).to_dict("records")
            self._agreement[key] = recording, {str(row["arm"]): row for row in rows}
        table = self._agreement[key][1]
        if reference not in table:
            return ""
        steady = table[reference]["outputs"] == 1
        known = [name for name in (*asked, reference) if name in table]
        texts = [_difference(table[name], name, reference, steady=steady) for name in known]
        return "; ".join(text for text in dict.fromkeys(texts) if text)


def _difference(row: Mapping[Any, Any], arm: str, reference: str, *, steady: bool) -> str:
    """``steady``: the reference itself computes the same bits in every run, so that others can be held to them."""
    if row["mismatches"]:
        return f"{counted(int(row['mismatches']), 'run')} of {arm} outside the tolerance of its number format"
    if not steady or pd.isna(row["equal"]) or bool(row["equal"]):
        return ""
    right = ", though right by float64" if row["verdict"] == "within_tolerance" else ""
    return f"the output of {arm} is not that of {reference} bit for bit{right}: its time is not judged"


def level(recording: Recording) -> float:
    """Confidence of a recording's verdicts; see ``Conditions.confidence``."""
    design = recording.manifest.design
    declared = design.get("confidence", DEFAULT_CONFIDENCE)
    plain = (
        float(declared) if isinstance(declared, int | float) and 0.5 <= declared < 1 else DEFAULT_CONFIDENCE
    )
    p = p_needed(recording)
    return plain if p is None else 1 - p


def p_needed(recording: Recording) -> float | None:
    """The p-value that a difference must fall below after planned looks; None where no look was planned."""
    planned = recording.manifest.design.get("sequential")
    if not isinstance(planned, Mapping):
        return None
    looks = [
        (int(n), float(p)) for n, p in zip(planned.get("blocks", ()), planned.get("p", ()), strict=False)
    ]
    looks = [(n, p) for n, p in looks if 0 < p <= 0.5]
    if not looks:
        return None
    blocks = recording.manifest.counts.get("blocks_whole", int(recording.timed_runs()["block"].nunique()))
    passed = [p for n, p in looks if n <= blocks]
    return passed[-1] if passed else looks[0][1]
