"""Checks on memory facts of the runs and on allocator snapshots: ledger, owner."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rcatools import units
from rcatools.diagnosis.case import Case, replicate_of
from rcatools.diagnosis.checks_time import not_tested
from rcatools.diagnosis.parts import Evidence, Outcome
from rcatools.diagnosis.vocabulary import LedgerFigure, Owner
from rcatools.diagnosis.wording import owner as owner_text
from rcatools.diagnosis.wording import replicated, said
from rcatools.memory.owners import BlockOwner, owners
from rcatools.recording import Recording
from rcatools.recording.schema import RUN_FACTS
from rcatools.units import counted

Floats = NDArray[np.float64]
NOTEBOOK = "03_allocator"
MOST = 0.9
GIB = 2**30


def ledger(case: Case, check: LedgerFigure) -> Outcome:
    """A fact of one arm against another arm block by block, or against a number."""
    own = [check.arm] if check.bytes is not None else [check.arm, check.against or case.baseline]
    for recording, values in _most_first(case, check, own):
        table = case.facts(recording, check.figure)
        place = Evidence(
            "",
            recording.name,
            tuple(own),
            f"runs.{check.figure}",
            check.notebook or NOTEBOOK,
            replicate=replicate_of(recording),
            device=case.tag_of(recording),
        )
        if check.bytes is not None:
            return _against_number(check, values.to_numpy(dtype=float)[:, 0], place)
        steady = _steady(case, check, table).reindex(values.index, fill_value=True).to_numpy(dtype=bool)
        pairs = values.to_numpy(dtype=float)
        return _against_arm(check, pairs[steady], int((~steady).sum()), place)
    return not_tested(f"no run of {' and '.join(own)} recorded {check.figure}")


def _most_first(case: Case, check: LedgerFigure, own: list[str]) -> Iterator[tuple[Recording, pd.DataFrame]]:
    """Recordings whose runs tell the figure of these arms, with its values; the one with most blocks first."""
    found = []
    for recording in case.sources(check.recording):
        table = case.facts(recording, check.figure)
        if set(own) <= set(table.columns):
            values = table[own].apply(pd.to_numeric, errors="coerce")
            values = values[np.isfinite(values).all(axis=1)]
            found += [] if values.empty else [(recording, values)]
    yield from sorted(found, key=lambda item: -len(item[1]))


def _against_number(check: LedgerFigure, values: Floats, place: Evidence) -> Outcome:
    equal = int((np.abs(values - float(check.bytes or 0)) <= check.tolerance).sum())
    name = "matches" if equal == values.size else "differs" if equal == 0 else "varies"
    wanted = units.byte_count(check.bytes) if check.unit == "bytes" else check.bytes
    text = (
        f"{_label(check)}: {_list(values, check)} in {check.arm}; {equal} of {counted(values.size, 'run')} "
        f"equal to {wanted}"
    )
    return _outcome(name, text, float(np.median(values)), values.size, place, check.unit)


def _steady(case: Case, check: LedgerFigure, table: pd.DataFrame) -> pd.Series:
    """Whether equal arms agree in the figure, block by block; blocks without a repeat count as steady."""
    steady = pd.Series(data=True, index=table.index)
    if check.recording or case.baseline not in table.columns:
        return steady
    for repeat in case.spec.effect.repeat:
        if repeat in table.columns:
            pair = table[[case.baseline, repeat]].apply(pd.to_numeric, errors="coerce")
            if check.modulo:
                pair = pair % check.modulo
            steady &= ~((pair[repeat] - pair[case.baseline]).abs() > check.tolerance)
    return steady


def _against_arm(check: LedgerFigure, pairs: Floats, unsteady: int, place: Evidence) -> Outcome:
    if check.modulo:
        pairs = pairs % check.modulo
    n = len(pairs)
    left = f", while equal arms differ in {unsteady} of {n + unsteady}" if unsteady else ""
    if n == 0:
        text = f"{_label(check)}: in none of {counted(unsteady, 'block')} do equal arms agree"
        return _outcome("varies", text, math.nan, unsteady, place, check.unit)
    address = "address" in check.figure
    arm, against = pairs[:, 0], pairs[:, 1]
    difference = arm - against
    more, less = int((difference > check.tolerance).sum()), int((difference < -check.tolerance).sum())
    equal = n - more - less
    if equal >= MOST * n:
        name = "equal"
    elif more >= MOST * n and less == 0:
        name = "more"
    elif less >= MOST * n and more == 0:
        name = "less"
    else:
        name = "changes" if address and 2 * (more + less) >= n else "varies"
    seen = {"different": more + less} if address else {"larger": more, "smaller": less}
    seen["equal"] = equal
    blocks = replicated(n, place.replicate)
    if unsteady:
        blocks = f"the {blocks} in which equal arms agree"
    counts = ", ".join(f"{word} in {count}" for word, count in seen.items() if count)
    text = (
        f"{_label(check)}: {_list(arm, check)} in {place.arms[0]}, {_list(against, check)} in {place.arms[1]}; "
        f"{counts} of {blocks}{left}"
    )
    return _outcome(name, text, float(np.median(difference)), n, place, check.unit)


def _label(check: LedgerFigure) -> str:
    """What the figure is, in words."""
    label = check.label or RUN_FACTS.get(check.figure, check.figure.replace("_", " "))
    return label + (f" modulo {units.exact_size(check.modulo)}" if check.modulo else "")


def _list(values: Floats, check: LedgerFigure) -> str:
    distinct = np.unique(values)
    if "address" in check.figure:
        shown = [f"{v / GIB:.4g} GiB" for v in distinct[:3]]
    else:
        shown = [f"{v:,.0f}" + (" B" if check.unit == "bytes" else "") for v in distinct[:3]]
    return ", ".join(shown) + (f" and {distinct.size - 3} more values" if distinct.size > 3 else "")


def _outcome(name: str, text: str, value: float, n: int, place: Evidence, unit: str) -> Outcome:
    text += f", {place.device}" if place.device else ""
    evidence = replace(place, text=text, value=value if math.isfinite(value) else None, unit=unit, n=n)
    definite = name != "varies"
    reason = "" if definite else "the blocks do not agree"
    return Outcome(name, definite, f"{said(name)}: {text}", (evidence,), reason)


def owner(case: Case, check: Owner) -> Outcome:
    """Who holds the live blocks of a size."""
    found = case.snapshot(check.arm)
    if found is None:
        return not_tested(f"no readable snapshot of {check.arm}")
    snapshot, recording = found
    settings = recording.manifest.environment.get("settings", {})
    variables = {str(k): str(v) for k, v in settings.items()} if isinstance(settings, dict) else {}
    blocks = [block for block in owners(snapshot, variables) if _is_asked(block, check)]
    names = sorted({block.owner for block in blocks})
    place = Evidence("", recording.name, (check.arm,), "snapshot", check.notebook or NOTEBOOK)
    size = units.byte_count(check.bytes)
    if not blocks:
        where = {"any": "", "default": " on the default stream", "side": " on a stream of its own"}[
            check.stream
        ]
        text = f"the snapshot of {check.arm} has no live block of {size}{where}"
        return Outcome(
            "gone",
            True,
            f"{said('gone')}: {text}",
            (replace(place, text=text, value=0.0, unit="count", n=1),),
            "",
        )
    name = names[0] if len(names) == 1 else "several"
    text = (
        f"{counted(len(blocks), 'live block')} of {size} in the snapshot of {check.arm}, {_because(blocks)}"
    )
    evidence = replace(place, text=text, value=float(len(blocks)), unit="count", n=1)
    by_frames = any(block.basis == "frames" for block in blocks)
    definite = name not in ("several", "unknown") and by_frames
    reason = "" if definite else "named by its size only: frames or another size of the workspace decide"
    return Outcome(name, definite, f"{said(name)}: {text}", (evidence,), reason)


def _is_asked(block: BlockOwner, check: Owner) -> bool:
    on_side = block.stream != 0
    wanted = check.stream == "any" or (check.stream == "side") == on_side
    return wanted and check.bytes in (block.size, block.requested_size)


def _because(blocks: Sequence[BlockOwner]) -> str:
    reasons = dict.fromkeys(
        f"{owner_text(block.owner)} by its {block.basis} ({block.reason})" for block in blocks
    )
    return "; ".join(list(reasons)[:3])
