"""How many blocks an investigation needs, from a few A/A blocks recorded first."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from scipy import special

from rcatools.errors import InputError
from rcatools.experiment.arms import Plan
from rcatools.experiment.looks import block_log_ratios
from rcatools.recording.reader import Recording
from rcatools.stats.detection import blocks_needed, smallest_detectable
from rcatools.stats.ttest import from_pairs

POWER = 0.8
CAUTION = 0.8  # one-sided confidence of the cautious spread


@dataclass(frozen=True)
class Pilot:
    """What the A/A blocks say.

    Attributes:
        blocks: A/A block pairs seen.
        spread: standard deviation of a block's log-ratio.
        spread_cautious: upper 80 % bound of it (chi-squared), since few blocks know the spread badly.
        effect: ratio minus one that shall be seen.
        blocks_needed, blocks_cautious: blocks for 80 % power at either spread.
        planned: blocks the investigation plans.
        detectable: effect that the planned blocks see with 80 % power.
        seconds_per_run: median wall time of a timed run.
    """

    blocks: int
    spread: float
    spread_cautious: float
    effect: float
    blocks_needed: int
    blocks_cautious: int
    planned: int
    detectable: float | None
    seconds_per_run: float

    def as_dict(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def pilot_arms(plan: Plan) -> tuple[str, ...]:
    """The baseline and its repeats.

    Raises:
        InputError: the investigation declares no repeat of its baseline.
    """
    repeats = tuple(arm.name for arm in plan.arms if arm.role == "repeat")
    if not repeats:
        raise InputError(
            f"{plan.investigation} has no arm of role 'repeat', so its noise cannot be measured: declare one"
        )
    return (plan.baseline, repeats[0])


def assess(recording: Recording, *, effect: float, planned: int) -> Pilot:
    """Blocks needed to see an effect, from a recording with a baseline and one repeat of it.

    Args:
        effect: wanted ratio minus one.
        planned: blocks the investigation plans.

    Raises:
        InputError: fewer than three blocks hold both arms.
    """
    manifest = recording.manifest
    repeat = next((a["name"] for a in manifest.design["arms"] if a["role"] == "repeat"), None)
    if repeat is None:
        raise InputError(f"recording {recording.name} has no arm of role 'repeat': record one")
    metric = str(manifest.design["metric"])
    samples: pd.DataFrame = recording.samples[recording.samples["metric"] == metric]
    d = block_log_ratios(samples, manifest.baseline, repeat)
    if d.size < 3:
        raise InputError(
            f"a pilot needs 3 A/A blocks or more, recording {recording.name} has {d.size}: record more"
        )
    spread = float(from_pairs(d).sd or 0.0)
    cautious = spread * math.sqrt((d.size - 1) / float(special.chdtri(d.size - 1, CAUTION)))
    timed = recording.timed_runs()
    return Pilot(
        blocks=int(d.size),
        spread=spread,
        spread_cautious=cautious,
        effect=effect,
        blocks_needed=blocks_needed(spread, effect, POWER),
        blocks_cautious=blocks_needed(cautious, effect, POWER),
        planned=planned,
        detectable=smallest_detectable(spread, planned, POWER),
        seconds_per_run=float(timed["wall_s"].median()),
    )


def sentences(pilot: Pilot, arms: int) -> list[str]:
    """What to tell a person before device time is spent."""
    cost = arms * pilot.blocks_cautious * pilot.seconds_per_run
    seen = "n/a" if pilot.detectable is None else f"{100 * pilot.detectable:.2f} %"
    return [
        f"pilot: {pilot.blocks} A/A blocks, spread of a block's ratio {100 * pilot.spread:.3f} % "
        f"(at most {100 * pilot.spread_cautious:.3f} % with 80 % confidence)",
        f"to see {100 * pilot.effect:.2f} % in 4 of 5 recordings: {pilot.blocks_needed} blocks, "
        f"{pilot.blocks_cautious} to be careful; a sequential stop takes at least 6",
        f"the {pilot.planned} planned blocks see {seen}",
        f"{arms} arms x {pilot.blocks_cautious} blocks x {pilot.seconds_per_run:.1f} s: "
        f"about {max(cost / 60, 0.1):.1f} min",
    ]
