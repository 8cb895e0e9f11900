"""What must stand beside a figure of two arms: runs that did not settle, two levels, a control that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.parts import Evidence
from rcatools.recording import Recording
from rcatools.stats.modes import find_modes
from rcatools.units import counted


def with_caveats(case: Case, recording: Recording, evidence: Evidence, metric: str = "") -> Evidence:
    """The evidence of an arm against another one with what must stand beside its figure, as ``note`` and in its text."""
    found = [
        *control(case, recording, evidence.arms, metric),
        *unsteady(case, recording, evidence.arms, metric),
    ]
    if not found:
        return evidence
    note = "; ".join(found)
    return replace(evidence, text=f"{evidence.text}; {note}", note=note)


def unsteady(case: Case, recording: Recording, arms: Sequence[str], metric: str = "") -> list[str]:
    """Clauses about arms with runs that did not settle in their warm-up, or that fall on two levels.

    Levels that all the arms change between in the same blocks are left out: pairs cancel them.
    """
    flat, table = case.facts(recording, "warmup_flat"), case.logs(recording, metric or case.metric)
    known = [arm for arm in dict.fromkeys(arms) if arm in table.columns]
    levels = {arm: find_modes(np.exp(table[arm].to_numpy()), min_gap=case.margin) for arm in known}
    if len(known) > 1 and len({item.members if item.found else None for item in levels.values()}) == 1:
        levels = {}
    found = []
    for arm in known:
        told = [str(v) for v in flat[arm] if str(v) in ("True", "False")] if arm in flat.columns else []
        if "False" in told:
            found.append(
                f"{told.count('False')} of {counted(len(told), 'run')} of {arm} did not settle in warm-up"
            )
        if arm in levels and levels[arm].found:
            found.append(f"the runs of {arm} fall on two levels {units.percent(levels[arm].gap)} apart")
    return found


def control(case: Case, recording: Recording, arms: Sequence[str], metric: str = "") -> list[str]:
    """A clause about a control that is not the baseline: what it is, and what it differs by from the baseline."""
    if len(arms) != 2 or arms[1] == case.baseline or recording.name in case.companions:
        return []
    own = arms[1]
    declared = case.spec.arms.get(own)
    named = f'{own} ("{declared.text}")' if declared is not None and declared.text else own
    found = case.compare(own, case.baseline, metric) if own != case.baseline else None
    if found is None or found[1] is not recording:
        return [f"{named} is the control, not {case.baseline}"]
    e = found[0].estimate
    return [f"{named} itself {units.estimate(e.ratio, e.ci_low, e.ci_high)} against {case.baseline}"]
