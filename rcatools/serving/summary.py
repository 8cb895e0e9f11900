"""What a serving recording and a server log say, as JSON and as lines. Judges nothing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from rcatools import units
from rcatools.serving.logs import LogFacts


def summary(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """The recording in short: counts, medians per arm, estimate against actual, confounds.

    Returns:
        {"recording", "investigation", "state", "counts", "arms": [{"arm", "runs", "failed", "kv_blocks", "kv_tokens",
        "effect", "medians": {metric: microseconds}, "output_tokens_per_s"}], "estimates", "confounds", "failures"}
    """
    runs = pd.read_parquet(folder / "runs.parquet")
    runs = runs[runs["block"] >= 0]
    samples = pd.read_parquet(folder / "samples.parquet")
    by_run = samples.groupby(["arm", "metric", "run"], sort=False)["value"].median().reset_index()
    arms = []
    for declared in manifest["design"]["arms"]:
        own = runs[runs["arm"] == declared["name"]]
        times = (
            by_run[by_run["arm"] == declared["name"]]
            .groupby("metric", sort=False)["value"]
            .median()
            .to_dict()
        )
        arms.append(
            {
                "arm": declared["name"],
                "runs": int((own["outcome"] == "ok").sum()),
                "failed": int((own["outcome"] != "ok").sum()),
                "kv_blocks": _median(own, "kv_blocks"),
                "kv_tokens": _median(own, "kv_tokens"),
                "effect": _first(own, "arm_effect"),
                "medians": {str(metric): float(value) for metric, value in times.items()},
                "output_tokens_per_s": 1e6 / float(times["token_us"]) if "token_us" in times else None,
            }
        )
    failed = runs[runs["outcome"] != "ok"]
    return {
        "recording": str(folder),
        "investigation": manifest["investigation"],
        "state": manifest["state"],
        "counts": manifest["counts"],
        "arms": arms,
        **manifest.get("serving", {"estimates": [], "confounds": []}),
        "failures": [
            {"run": str(run), "outcome": str(outcome), "reason": str(reason)}
            for run, outcome, reason in failed[["run", "outcome", "reason"]].itertuples(index=False)
        ],
    }


def summary_lines(found: dict[str, Any]) -> list[str]:
    """The summary for people."""
    counts = found["counts"]
    lines = [
        f"{found['recording']}: {found['state']}, {counts['ok']} of {counts.get('planned', counts['ok'])} runs ok, {counts['failed']} failed"
    ]
    for arm in found["arms"]:
        speed = units.significant(arm["output_tokens_per_s"], 4)
        size = next(
            (f", {arm[key]:,} KV {key[3:]}" for key in ("kv_blocks", "kv_tokens") if arm[key] is not None), ""
        )
        lines.append(
            f"  {arm['arm']}: {speed} output tokens/s (median of {arm['runs']} runs, {arm['failed']} failed){size}"
        )
    idle = sorted(
        {str(arm["effect"]) for arm in found["arms"] if arm["effect"] and "nothing to patch" in arm["effect"]}
    )
    lines += [f"  note: {text}; every arm is plain vLLM" for text in idle]
    for row in found["estimates"]:
        if row["estimate_bytes"] is not None or row["actual_bytes"] is not None:
            lines.append(
                f"  graph memory of {row['arm']}: estimated {units.byte_size(row['estimate_bytes'])}, "
                f"actual {units.byte_size(row['actual_bytes'])}{'; ' + row['note'] if row['note'] else ''}"
            )
    lines += [f"  confound: {item['text']}" for item in found["confounds"]]
    lines += [f"  {item['run']}: {item['outcome']}: {item['reason']}" for item in found["failures"]]
    return lines


def log_document(name: str, facts: LogFacts) -> dict[str, Any]:
    """A log's facts as JSON, with the estimate against the actual memory."""
    plain = asdict(facts)
    plain["profiled"] = {
        mode: {"graphs": count, "largest": largest} for mode, (count, largest) in facts.profiled.items()
    }
    found = facts.facts()
    estimate, actual = found["estimate_bytes"], found["graph_bytes"]
    both = isinstance(estimate, int) and isinstance(actual, int)
    return {
        "file": name,
        **plain,
        "estimate_against_actual": {
            "estimate_bytes": estimate,
            "actual_bytes": actual,
            "difference_bytes": actual - estimate if both else None,  # type: ignore[operator]
        },
    }


def log_lines(found: dict[str, Any]) -> list[str]:
    """A log's facts for people."""
    memory = found["estimate_against_actual"]
    kv = min(found["kv_bytes"].values(), default=None)
    lines = [
        f"{found['file']}: vLLM {found['version'] or 'of unknown version'}",
        f"  graph memory: estimated {units.byte_size(memory['estimate_bytes'])}, actual {units.byte_size(memory['actual_bytes'])}",
        f"  KV cache: {units.byte_size(kv)}, {min(found['kv_tokens'].values(), default=units.NOT_AVAILABLE)} tokens",
    ]
    lines += [f"  note: {note}" for note in found["notes"]]
    lines += [f"  out of memory: {found['oom']}"] if found["oom"] else []
    lines += [f"  error: {found['error']}"] if found["error"] else []
    return lines


def _median(runs: pd.DataFrame, figure: str) -> int | None:
    if figure not in runs.columns:
        return None
    values = pd.to_numeric(runs[figure], errors="coerce").dropna()
    return round(float(values.median())) if len(values) else None


def _first(runs: pd.DataFrame, figure: str) -> str | None:
    if figure not in runs.columns:
        return None
    values = runs[figure].dropna()
    return str(values.iloc[0]) if len(values) else None
