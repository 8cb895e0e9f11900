"""Recordings of other cards of the same kind: what they add, and whether they show the same."""

from __future__ import annotations

import math

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.means import mean_over_blocks
from rcatools.recording import Recording
from rcatools.units import counted


def other_cards(case: Case) -> list[str]:
    """One sentence for each recording of another card than the first recording's; none where no card is told."""
    first = case.primary
    own = first.manifest.device.get("uuid") if first is not None else None
    if own is None:
        return []
    return [
        f"{recording.name} was made on another card of this kind: {_effect_there(case, recording)}."
        for recording in case.recordings
        if recording.manifest.device.get("uuid") not in (None, own)
    ]


def _effect_there(case: Case, recording: Recording) -> str:
    logs = case.logs(recording, case.metric)
    if case.suspect not in logs or case.baseline not in logs:
        return f"it adds arms and holds no pair of {case.suspect} and {case.baseline}"
    found = (logs[case.suspect] - logs[case.baseline]).dropna().to_numpy()
    if not found.size:
        return f"no block of it holds both {case.suspect} and {case.baseline}"
    mean = mean_over_blocks(found, case.confidence(recording))
    ratio = math.exp(float(found.mean()))
    size = units.estimate(ratio, math.exp(mean.low), math.exp(mean.high)) if mean else units.change(ratio)
    return f"{case.suspect} against {case.baseline} there {size}, {counted(found.size, 'block')}"
