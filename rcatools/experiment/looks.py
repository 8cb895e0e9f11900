"""Stopping a recording early without cheating: looks are planned before the first run.

At each look an arm is judged once, on block log-ratios against the baseline, at the level its look is allowed
(``stats.sequential``): different, equivalent within the margin, futile (neither can be expected any more with the
blocks that are left), or open. A decision stands; the recording ends when no judged arm is open.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from rcatools.errors import InputError
from rcatools.experiment.arms import Arm
from rcatools.stats.sequential import bounds
from rcatools.stats.ttest import LogDifference, from_pairs

LEAST_BLOCKS = 6  # with fewer, the t-test's bounds are not those of the normal distribution
FUTILE_BELOW = 0.1
KINDS = ("pocock", "obrien-fleming")


def declare(blocks: int, *, looks: int, kind: str, alpha: float, judged: tuple[str, ...]) -> dict[str, Any]:
    """The sequential design as the manifest holds it.

    Returns:
        "kind", "blocks" (after how many blocks each look comes), "p" (two-sided level of a difference at each
        look), "p_equivalence" (level of both one-sided tests), "judged" (arms), "futile_below".

    Raises:
        InputError: an unknown kind, fewer blocks than one look needs, or no arm to judge.
    """
    if kind not in KINDS:
        raise InputError(f"a sequential stop is one of {', '.join(KINDS)}, got {kind!r}")
    if blocks < LEAST_BLOCKS:
        raise InputError(
            f"a sequential stop needs at least {LEAST_BLOCKS} blocks, got {blocks}: raise --blocks"
        )
    if not judged:
        raise InputError(
            "a sequential stop needs an arm beside the baseline and its repeats: add one to --arms"
        )
    planned = look_blocks(blocks, looks)
    of_kind = cast(Literal["pocock", "obrien-fleming"], kind)
    return {
        "kind": kind,
        "alpha": alpha,
        "blocks": planned,
        "p": list(bounds(planned, of_kind, alpha).p),
        "p_equivalence": [p / 2 for p in bounds(planned, of_kind, 2 * alpha).p],
        "judged": list(judged),
        "futile_below": FUTILE_BELOW,
    }


def look_blocks(blocks: int, looks: int) -> list[int]:
    """Block counts of the looks: as many as asked for, evenly spread, at least six blocks before each."""
    count = max(1, min(looks, blocks // LEAST_BLOCKS))
    return [round(blocks * (i + 1) / count) for i in range(count)]


def judged(arms: Iterable[Arm], baseline: str) -> tuple[str, ...]:
    """The arms a stop waits for: the suspects, or where there is none all but the baseline and its repeats."""
    others = [arm for arm in arms if arm.name != baseline and arm.role not in {"baseline", "repeat"}]
    suspects = tuple(arm.name for arm in others if arm.role == "suspect")
    return suspects or tuple(arm.name for arm in others)


def evaluate(
    declared: dict[str, Any],
    samples: pd.DataFrame,
    *,
    baseline: str,
    margin: float,
    blocks: int,
    before: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """What the look after ``blocks`` blocks says about every judged arm that is still open.

    Args:
        declared: the design of ``declare``.
        samples: samples of the judged metric (schema's SAMPLE_COLUMNS).
        before: rows of earlier looks.

    Returns:
        One row per arm: "blocks", "arm", "n", "ratio", "p_value", "p_needed", "p_equivalence", "decision"
        ("different", "equivalent", "futile" or "open").
    """
    look = declared["blocks"].index(blocks)
    closed = {row["arm"] for row in before if row["decision"] != "open"}
    rows = []
    for arm in declared["judged"]:
        if arm in closed:
            continue
        d = block_log_ratios(samples, baseline, arm)
        rows.append({"blocks": blocks, "arm": arm} | judge(d, declared, look, margin))
    return rows


def judge(d: NDArray[np.float64], declared: dict[str, Any], look: int, margin: float) -> dict[str, Any]:
    """What one look decides from block log-ratios: "n", "ratio", "p_value", "p_needed", "p_equivalence", "decision"."""
    row: dict[str, Any] = {"n": int(d.size), "ratio": None, "p_value": None}
    row |= {"p_needed": declared["p"][look], "p_equivalence": None, "decision": "open"}
    if d.size >= LEAST_BLOCKS:
        found = from_pairs(d)
        row |= {"ratio": found.ratio, "p_value": found.p_value()}
        row |= {"p_equivalence": found.p_equivalence(margin)}
        row |= {"decision": _decision(found, declared, look, margin)}
    return row


def all_decided(declared: dict[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Whether no judged arm is open any more."""
    return {row["arm"] for row in rows if row["decision"] != "open"} >= set(declared["judged"])


def block_log_ratios(samples: pd.DataFrame, baseline: str, arm: str) -> NDArray[np.float64]:
    """log(arm / baseline) of each block that holds both, from the medians of their runs."""
    wide = samples.groupby(["block", "arm"])["value"].median().unstack("arm")
    if baseline not in wide or arm not in wide:
        return np.empty(0)
    pairs = wide[[baseline, arm]].dropna()
    return np.asarray(np.log(pairs[arm].to_numpy()) - np.log(pairs[baseline].to_numpy()))


def _decision(found: LogDifference, declared: dict[str, Any], look: int, margin: float) -> str:
    p_difference, p_equivalence = found.p_value(), found.p_equivalence(margin)
    if p_difference is None or p_equivalence is None:
        return "open"
    if p_difference < declared["p"][look]:
        return "different"
    if p_equivalence < declared["p_equivalence"][look]:
        return "equivalent"
    last = declared["blocks"][-1]
    if declared["blocks"][look] == last:
        return "open"
    chance = chance_of_a_decision(
        found, last, p=declared["p"][-1], p_equivalence=declared["p_equivalence"][-1], margin=margin
    )
    return "futile" if chance < declared["futile_below"] else "open"


def chance_of_a_decision(
    found: LogDifference, final: int, *, p: float, p_equivalence: float, margin: float
) -> float:
    """Chance that the last look finds a difference or equivalence, given what was seen so far.

    The final mean is predicted from a flat prior: normal around the mean so far, with the variance of the
    blocks to come and of the mean itself (Spiegelhalter, Freedman and Blackburn 1986).
    """
    if found.sd is None or found.sd <= 0 or found.n >= final:
        return 1.0
    left = final - found.n
    spread = found.sd * math.sqrt(left / final / found.n)
    error = found.sd / math.sqrt(final)
    reach = -float(special.stdtrit(final - 1, p / 2)) * error
    room = math.log1p(margin) + float(special.stdtrit(final - 1, p_equivalence)) * error

    def below(x: float) -> float:
        return float(special.ndtr((x - found.mean) / spread))

    different = below(-reach) + 1 - below(reach)
    equivalent = max(0.0, below(min(room, reach)) - below(-min(room, reach)))
    return different + equivalent
