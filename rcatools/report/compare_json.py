"""A comparison as the JSON document that gates and scripts read; every number is finite or null."""

from __future__ import annotations

import math
from typing import Any

from rcatools.report.compare_view import Line, Shown, lines
from rcatools.stats.records import GroupEstimate, NoiseFloor, Result, TableVerdict

Json = dict[str, Any]


def to_json(table: TableVerdict, shown: Shown) -> Json:
    """The document of ``rcatools compare --json``.

    One metric and workload gives its arms at the top; several give one entry each under ``results``, the top's
    ``arms`` then being empty and its verdict the worst.
    """
    by_result: dict[int, list[Line]] = {}
    for line in lines(table, shown):
        by_result.setdefault(id(line.result), []).append(line)
    results = [_result(result, by_result.get(id(result), []), shown) for result in table.results]
    first = table.results[0]
    several = len(results) > 1
    floors = [r.noise.floor for r in table.results if r.noise is not None]
    document: Json = {
        "verdict": str(table.verdict),
        "baseline": table.baseline,
        "unit": first.unit,
        "paired": all(result.paired for result in table.results),
        "noise_floor": number(max(floors, default=None)),
        "arms": [] if several else results[0]["arms"],
        "correction": table.correction,
    }
    if not several:
        document |= {k: v for k, v in results[0].items() if k not in document}
    else:
        document["results"] = results
    return document | {
        "groups": [_group(group) for group in table.groups],
        "excluded": dict(shown.excluded),
        "warnings": list(table.warnings) + ([] if several else list(first.warnings)),
        "notes": list(shown.notes),
        "sources": list(shown.sources),
    }


def _result(result: Result, rows: list[Line], shown: Shown) -> Json:
    rate = shown.rate(result.metric)
    return {
        "metric": result.metric,
        "workload": result.workload,
        "verdict": str(result.verdict),
        "baseline": result.baseline,
        "unit": result.unit,
        "paired": result.paired,
        "noise_floor": number(result.noise.floor if result.noise else None),
        "noise": _noise(result.noise),
        "higher_is_better": rate,
        "value_unit": shown.unit(result.metric),
        "levels": {arm: number(1 / level if rate else level) for arm, level in result.levels.items()},
        "arms": [_arm(line) for line in rows],
        "warnings": list(result.warnings),
    }


def _arm(line: Line) -> Json:
    c, extreme = line.comparison, line.comparison.without_extreme
    return {
        "arm": c.arm,
        "n": c.estimate.n,
        "ratio": number(c.estimate.ratio),
        "ci_low": number(c.estimate.ci_low),
        "ci_high": number(c.estimate.ci_high),
        "p_value": number(c.p_value),
        "mde": number(c.mde),
        "p_floor": number(c.p_floor),
        "verdict": str(c.verdict),
        "reasons": [str(reason) for reason in c.reasons],
        "warnings": list(c.warnings),
        "role": "repeat" if line.repeat else "candidate",
        "n_baseline": c.n_baseline,
        "n_candidate": c.n_candidate,
        "dropped": c.dropped,
        "paired": c.paired,
        "sd_log": number(c.estimate.sd_log),
        "p_exact": number(c.p_exact),
        "p_equivalence": number(c.p_equivalence),
        "p_adjusted": number(c.p_adjusted),
        "margin": number(c.margin),
        "confidence": number(c.confidence),
        "noise_floor": number(c.noise_floor),
        "value_ratio": number(line.ratio),
        "value_ci_low": number(line.low),
        "value_ci_high": number(line.high),
        "without_extreme": None
        if extreme is None
        else {
            "arm": extreme.arm,
            "index": extreme.index,
            "value": number(1 / extreme.value if line.rate and extreme.arm != "pair" else extreme.value),
            "ratio": number(extreme.ratio),
            "robust_z": number(extreme.robust_z),
            "outlier": extreme.is_outlier,
        },
        "sentence": line.sentence,
    }


def _noise(noise: NoiseFloor | None) -> Json | None:
    if noise is None:
        return None
    return {
        "floor": number(noise.floor),
        "ratio": number(noise.ratio),
        "ci_low": number(noise.ci_low),
        "ci_high": number(noise.ci_high),
        "sd_log": number(noise.sd_log),
        "n": noise.n,
        "detectable": number(noise.detectable),
    }


def _group(group: GroupEstimate) -> Json:
    return {
        "metric": group.metric,
        "column": group.column,
        "value": group.value,
        "arm": group.arm,
        "n": group.estimate.n,
        "ratio": number(group.estimate.ratio),
        "ci_low": number(group.estimate.ci_low),
        "ci_high": number(group.estimate.ci_high),
        "p_value": number(group.p_value),
        "lowest": number(group.spread[0]),
        "highest": number(group.spread[1]),
    }


def number(value: float | None) -> float | None:
    """The value, or None where it is not finite."""
    return float(value) if value is not None and math.isfinite(value) else None
