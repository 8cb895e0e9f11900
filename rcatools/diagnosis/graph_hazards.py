"""What ``benchmarks/capture_hazards.py`` saw on a GPU: captures, hazards in graphs, time inside a replay.

    python -m rcatools.diagnosis.graph_hazards capture_hazards.json --out data/investigations/vime-decode

writes the tables that investigation.yaml quotes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rcatools.errors import InputError

FORMAT = "rcatools-capture-hazards-2"
FIRST_FORMAT = "rcatools-capture-hazards-1"
# What a form of the first format is called today: its message was laid out by rows then.
FIRST_NAMES = {"safe_carried": "safe_carried_by_rows"}
MAX_BYTES = 16 * 2**20
HAZARD_FORMS = {"unsafe": "packed_cached_column", "safe": "safe_carried"}


@dataclass(frozen=True)
class GraphHazards:
    """Results of one world size.

    Attributes:
        world: number of ranks.
        device: name of the GPU; a column of each table too.
        captures: one row per form or bare gather: form, captured, replay_equal, collectives at capture and at
            replay, error.
        hazards: rows of the hazards table (hazard, form, safe, device, harmed, seen).
        times: microseconds per exchange: form, how ("graph" or "eager"), rows, process, block, us.
    """

    world: int
    device: str
    captures: pd.DataFrame
    hazards: pd.DataFrame
    times: pd.DataFrame


def load_graph_hazards(path: Path) -> GraphHazards:
    """Read the benchmark's JSON; rank 0 speaks where all ranks report.

    Raises:
        InputError: the file is missing, too large, damaged or of another format.
    """
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise InputError(f"no usable file at {path}: give the JSON written by benchmarks/capture_hazards.py")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.get("format") not in {FORMAT, FIRST_FORMAT}:
            raise InputError(f"{path} is not a result of benchmarks/capture_hazards.py ({FORMAT})")
        scenarios = document["scenarios"]
        names = FIRST_NAMES if document["format"] == FIRST_FORMAT else {}
        device = str((document.get("device") or {}).get("name") or "a GPU whose name was not recorded")
        tables = [
            table.replace({"form": names})
            for table in (_captures(scenarios), _hazards(scenarios), _times(scenarios))
        ]
        captures, hazards, times = (table.assign(device=device) for table in tables)
        return GraphHazards(int(document["world"]), device, captures, hazards, times)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}: {error}): run it again") from None


def _result(scenario: dict[str, Any] | None) -> Any:
    return scenario["results"].get("0") if scenario else None


def _captures(scenarios: dict[str, Any]) -> pd.DataFrame:
    found: dict[str, Any] = {}
    for name, scenario in scenarios.items():
        result = _result(scenario)
        if result is None:
            continue
        if name.startswith("gather_"):
            found[f"bare {name.removeprefix('gather_')} gather"] = result
        elif name.startswith("capture_"):
            found |= result
    rows = [
        {
            "form": form,
            "captured": bool(item["captured"]),
            "replay_equal": item.get("replay_equal"),
            "at_capture": _sum(item.get("collectives_at_capture")),
            "at_replay": _sum(item.get("collectives_at_replay")),
            "error": item.get("error") or "",
        }
        for form, item in found.items()
    ]
    return pd.DataFrame(
        rows, columns=["form", "captured", "replay_equal", "at_capture", "at_replay", "error"]
    )


def _sum(counts: dict[str, int] | None) -> int | None:
    return None if counts is None else sum(counts.values())


def _hazards(scenarios: dict[str, Any]) -> pd.DataFrame:
    rows = []
    for kind, form in HAZARD_FORMS.items():
        evicted = _result(scenarios.get(f"evicted_{kind}"))
        if evicted is not None:
            changed = int(evicted["neighbour_changed"])
            seen = (
                f"replay overwrote {changed} numbers of another tensor"
                if changed
                else f"no other tensor touched, {evicted['neighbours']} allocated"
            )
            rows.append(_row("evicted_buffer", form, kind, changed > 0, seen))
        streams = _result(scenarios.get(f"streams_{kind}"))
        if streams is not None:
            wrong = [name for name in ("first", "second") if not streams[f"{name}_right"]]
            seen = f"{' and '.join(wrong)} stream wrong" if wrong else "both streams right"
            rows.append(_row("shared_by_streams", form, kind, bool(wrong), seen))
    return pd.DataFrame(rows, columns=["hazard", "form", "safe", "harmed", "seen"])


def _row(hazard: str, form: str, kind: str, harmed: bool, seen: str) -> dict[str, Any]:
    return {
        "hazard": hazard,
        "form": form,
        "safe": int(kind == "safe"),
        "harmed": int(harmed),
        "seen": seen,
    }


def _times(scenarios: dict[str, Any]) -> pd.DataFrame:
    parts = [_result(item) for name, item in scenarios.items() if name.startswith("timed_replays")]
    rows = [
        {
            "form": row["form"],
            "how": row["how"],
            "rows": int(row["rows"]),
            "process": process,
            "block": block,
            "us": float(us),
        }
        for process, part in enumerate(item for item in parts if item)
        for row in part
        for block, us in enumerate(row["us_per_call"])
    ]
    return pd.DataFrame(rows, columns=["form", "how", "rows", "process", "block", "us"])


def _capture_seen(row: dict[Any, Any]) -> str:
    if not row["captured"]:
        return f"refused: {str(row['error']).partition('.')[0]}"
    return f"captured; a replay on new inputs is {'right' if row['replay_equal'] is True else 'wrong'}"


def write_tables(source: Path, folder: Path) -> None:
    """Write the tables that an investigation quotes: hazards, captures and median times, as CSV.

    Raises:
        InputError: the source cannot be read.
    """
    found = load_graph_hazards(source)
    each = found.times.groupby(["how", "form", "rows", "process"])["us"].median()
    times = each.groupby(["how", "form", "rows"]).agg(us="median", processes="count").reset_index()
    times = times.assign(us=times["us"].round(3), device=found.device)
    captures = found.captures.assign(
        captured=found.captures["captured"].astype(int),
        replay_equal=[int(value is True) for value in found.captures["replay_equal"]],
        seen=[_capture_seen(dict(row)) for row in found.captures.to_dict("records")],
    )
    for name, table in (("hazards_gpu", found.hazards), ("captures", captures), ("graph_times", times)):
        (folder / f"{name}.csv").write_text(table.to_csv(index=False, lineterminator="\n"), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the tables of one result."""
    parser = argparse.ArgumentParser(prog="python -m rcatools.diagnosis.graph_hazards", description=__doc__)
    parser.add_argument("source", type=Path, help="capture_hazards.json")
    parser.add_argument("--out", type=Path, required=True, help="folder of the investigation")
    args = parser.parse_args(argv)
    write_tables(args.source, args.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
