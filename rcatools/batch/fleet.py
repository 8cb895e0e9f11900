"""Questions across recordings: verdict per row, noise floor per machine, odd machines and days, trends.

Levels of different machines and days are told apart by median polish (Tukey 1977): log value = cell + machine
+ day, where a cell is one investigation, workload and kind of device. A machine or day is odd when its effect
is larger than a margin and more than 3.5 times the scale: the larger of the scaled median absolute deviation of
its peers (Iglewicz and Hoaglin 1993) and the standard error of its own median, 1.2533 * sd / sqrt(recordings).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rcatools.batch.bisect import Location, Settings, locate
from rcatools.errors import InputError, UnknownNameError

STRATA = ("machine", "host", "day")
LIMIT = 3.5
LEAST_PEERS = 4
DEFAULT_MARGIN = 0.01
_POLISH_ROUNDS = 4
_MOST = 99.0
_CELL = ["investigation", "workload", "device", "metric"]


@dataclass(frozen=True)
class Odd:
    """A machine or a day that is not like its peers.

    Attributes:
        what: "machine" or "day".
        name: which one.
        quantity: "level" (the baseline's time), "noise" (spread of A/A pairs) or the arm whose ratio it is.
        deviation: ratio to the median of the peers minus one (0.03: 3 % more).
        z: deviation on the log scale over its scale, 99 at most.
        recordings: recordings it rests on.
        peers: machines or days it was compared with.
    """

    what: str
    name: str
    quantity: str
    deviation: float
    z: float
    recordings: int
    peers: int


def current(tables: Mapping[str, pa.Table]) -> pd.DataFrame:
    """Recordings that count: all but those of broken-off or replaced attempts of a sweep."""
    frame: pd.DataFrame = tables["recordings"].to_pandas()
    return frame[frame["current"].astype(bool)].reset_index(drop=True)


def overview(tables: Mapping[str, pa.Table], margin: float = DEFAULT_MARGIN) -> dict[str, Any]:
    """Everything the fleet page shows, as plain JSON."""
    recordings = current(tables)
    effects = tables["effects"].to_pandas()
    effects = effects[effects["recording"].isin(recordings["recording"])]
    judged = effects[effects["verdict"].notna() & (effects["role"] != "repeat")]
    return {
        "counts": {name: table.num_rows for name, table in tables.items()},
        "superseded": int(tables["recordings"].num_rows - len(recordings)),
        "verdicts": {str(k): int(v) for k, v in judged["verdict"].value_counts().sort_index().items()},
        "arms": arms(judged),
        "machines": machines(recordings),
        "odd": [asdict(item) for item in odd(recordings, effects, margin)],
        "jobs": {str(k): int(v) for k, v in tables["jobs"].to_pandas()["state"].value_counts().items()},
        "problems": tables["problems"].select(["path", "reason"]).slice(0, 50).to_pylist(),
    }


def arms(judged: pd.DataFrame) -> list[dict[str, Any]]:
    """Per arm: recordings, median ratio, its range, and how often each verdict was given."""
    rows = []
    for arm, part in judged.groupby("arm", sort=True):
        logs = np.log(part["ratio"].to_numpy(dtype=float))
        entry: dict[str, Any] = {
            "arm": str(arm),
            "recordings": len(part),
            "ratio": float(np.exp(np.median(logs))),
            "lowest": float(np.exp(logs.min())),
            "highest": float(np.exp(logs.max())),
        }
        counts = part["verdict"].value_counts()
        for verdict in ("slower", "faster", "equivalent", "undecided"):
            entry[verdict] = int(counts.get(verdict, 0))
        rows.append(entry)
    return rows


def machines(recordings: pd.DataFrame) -> list[dict[str, Any]]:
    """Per machine: recordings, days, median noise floor, largest one, failed runs."""
    rows = []
    for (machine, device), part in recordings.groupby(["machine", "device"], sort=True, dropna=False):
        floors = part["noise_floor"].dropna()
        rows.append(
            {
                "machine": str(machine),
                "device": str(device),
                "recordings": len(part),
                "days": int(part["day"].nunique()),
                "noise_floor": float(floors.median()) if len(floors) else None,
                "worst_noise_floor": float(floors.max()) if len(floors) else None,
                "failed_runs": int(part["failed"].fillna(0).sum()),
            }
        )
    return rows


def odd(recordings: pd.DataFrame, effects: pd.DataFrame, margin: float = DEFAULT_MARGIN) -> list[Odd]:
    """Machines and days that stand out, the largest deviation first.

    Args:
        recordings: rows of the index that count.
        effects: effects of these recordings.
        margin: deviations of a level or ratio up to this do not matter; for noise, a factor of 1.5 is asked.
    """
    found: list[Odd] = []
    cells = recordings[_CELL].fillna("").agg("\0".join, axis=1) if len(recordings) else pd.Series(dtype=str)
    frame = recordings.assign(cell=cells)
    for name, column, least in (("level", "baseline_us", margin), ("noise", "noise_sd", 0.5)):
        found += _stand_out(frame.dropna(subset=[column]), column, name, least)
    merged = effects[effects["ratio"].notna()].merge(
        frame[["recording", "cell", "machine", "day"]], on="recording"
    )
    for arm, part in merged.groupby("arm", sort=True):
        found += _stand_out(part, "ratio", str(arm), margin)
    return sorted(found, key=lambda item: -abs(item.z))


def _stand_out(frame: pd.DataFrame, column: str, quantity: str, least: float) -> list[Odd]:
    frame = frame[frame[column] > 0]
    if len(frame) < LEAST_PEERS:
        return []
    found = []
    for _, cell in frame.groupby("cell", sort=True):
        effects, spread = polish(np.log(cell[column].to_numpy(dtype=float)), cell["machine"], cell["day"])
        for what, values in effects.items():
            found += _far(what, values, spread, cell[what].value_counts(), quantity, least)
    return found


def polish(values: np.ndarray, machine: pd.Series, day: pd.Series) -> tuple[dict[str, pd.Series], float]:
    """Effects of machines and of days on log values by median polish, and the spread of what is left.

    Each set of effects has a median of 0. The spread is a standard deviation, the levels that were taken out
    counted as its degrees of freedom.
    """
    left = pd.Series(values - np.median(values), index=machine.index)
    keys = {"machine": machine.fillna("unknown"), "day": day.fillna("unknown")}
    effects = {what: pd.Series(0.0, index=sorted(key.unique())) for what, key in keys.items()}
    for _ in range(_POLISH_ROUNDS):
        for what, key in keys.items():
            step = left.groupby(key).median()
            effects[what] = effects[what].add(step, fill_value=0.0)
            left = left - key.map(step)
    free = max(len(left) - sum(len(series) - 1 for series in effects.values()) - 1, 1)
    spread = math.sqrt(float((left**2).sum()) / free)
    return {what: series - series.median() for what, series in effects.items()}, spread


def _far(
    what: str, effects: pd.Series, spread: float, counts: pd.Series, quantity: str, least: float
) -> list[Odd]:
    if len(effects) < LEAST_PEERS:
        return []
    between = 1.4826 * float((effects - effects.median()).abs().median())
    found = []
    for name, effect in effects.to_dict().items():
        size = int(counts[str(name)])
        scale = max(between, 1.2533 * spread / math.sqrt(size))
        z = float(effect) / scale if scale > 0 else math.copysign(_MOST, effect)
        large = effect if quantity == "noise" else abs(effect)  # less noise than others is no fault
        if abs(z) > LIMIT and large > math.log1p(least):
            z = min(max(z, -_MOST), _MOST)
            found.append(Odd(what, str(name), quantity, math.expm1(effect), z, size, len(effects) - 1))
    return found


@dataclass(frozen=True)
class Trend:
    """A metric over commits.

    Attributes:
        commits: names, oldest first.
        points: commit index, log ratio (or log level) and stratum of each recording.
        location: where the step is.
        left_out: recordings of commits that are not in the list, or without a commit.
        quantity: what the values are.
    """

    commits: tuple[str, ...]
    points: pd.DataFrame
    location: Location
    left_out: int
    quantity: str

    def document(self) -> dict[str, Any]:
        """Plain JSON, for scripts that measure the next commit."""
        found, check = self.location, self.location.check
        by_commit = self.points.groupby("position")["log"]
        rows = []
        for position, name in enumerate(self.commits):
            part = by_commit.get_group(position) if position in by_commit.groups else None
            rows.append(
                {
                    "commit": name,
                    "recordings": 0 if part is None else len(part),
                    "value": None if part is None else float(np.exp(part.mean())),
                    "verdict": found.verdict_of(position),
                    "probability_bad": float(found.bad[position]),
                }
            )
        return {
            "state": found.state,
            "first_bad": None if found.first_bad is None else self.commits[found.first_bad],
            "probability": found.probability,
            "probability_no_step": found.no_step,
            "candidates": [self.commits[i] for i in found.candidates],
            "step": found.step,
            "verdict": str(check.verdict) if check else "undecided",
            "ci_low": check.estimate.ci_low if check else None,
            "ci_high": check.estimate.ci_high if check else None,
            "next": None if found.next is None else self.commits[found.next],
            "recordings": found.runs,
            "left_out": self.left_out,
            "quantity": self.quantity,
            "commits": rows,
        }


def trend(
    tables: Mapping[str, pa.Table],
    commits: Sequence[str],
    *,
    arm: str = "",
    investigation: str = "",
    by: Sequence[str] = (),
    skip: Sequence[str] = (),
    settings: Settings | None = None,
) -> Trend:
    """A metric over commits with the first bad one.

    One recording is one value: its runs share a build, a machine and a day, so they do not repeat each other.

    Args:
        tables: the index.
        commits: oldest first; a name may be shortened to 7 or more characters.
        arm: the value is this arm's ratio to the baseline of its own recording; "": the baseline's level.
        investigation: use its recordings only.
        by: "machine", "host" and "day" whose levels are taken out first.
        skip: commits that cannot be measured.
        settings: of the bisect.

    Raises:
        InputError: fewer than two commits, a name twice, or nothing measured.
        UnknownNameError: an unknown arm, investigation, stratum, or a commit to skip that is not listed.
    """
    names = [name.strip() for name in commits if name.strip()]
    if len(names) < 2 or len(set(names)) != len(names):
        raise InputError("a bisect needs at least two commits, oldest first, each once; correct the list")
    frame = current(tables)
    if investigation:
        if investigation not in set(frame["investigation"]):
            raise UnknownNameError("investigation", investigation, set(frame["investigation"]))
        frame = frame[frame["investigation"] == investigation]
    for name in by:
        if name not in STRATA:
            raise UnknownNameError("stratum", name, STRATA)
    frame, quantity = _values(tables, frame, arm)
    position = frame["commit"].map(lambda name: _position(names, name))
    points = frame.assign(position=position)
    left_out = int(points["position"].isna().sum())
    points = points.dropna(subset=["position"])
    codes = points[list(by)].fillna("").agg("\0".join, axis=1) if by else pd.Series("", index=points.index)
    points = pd.DataFrame(
        {
            "recording": points["recording"],
            "position": points["position"].astype(int),
            "log": np.log(points["value"].to_numpy(dtype=float)),
            "stratum": pd.factorize(codes)[0],
        }
    )
    location = locate(
        points["position"].to_numpy(dtype=np.int64),
        points["log"].to_numpy(dtype=float),
        len(names),
        stratum=points["stratum"].to_numpy(dtype=np.int64),
        excluded=frozenset(_listed(names, name) for name in skip),
        settings=settings,
    )
    return Trend(tuple(names), points, location, left_out, quantity)


def _values(tables: Mapping[str, pa.Table], frame: pd.DataFrame, arm: str) -> tuple[pd.DataFrame, str]:
    if not arm:
        kinds = frame[_CELL].drop_duplicates()
        if len(kinds) > 1:
            raise InputError(
                f"levels of {len(kinds)} different workloads, devices or metrics cannot form one trend: "
                "name an --arm, whose ratio can be compared, or an --investigation"
            )
        return frame.assign(value=frame["baseline_us"]).dropna(subset=["value"]), "time of the baseline, us"
    effects = tables["effects"].to_pandas()
    known = set(effects.loc[effects["ratio"].notna(), "arm"])
    if known and arm not in known:
        raise UnknownNameError("arm", arm, known)
    chosen = effects[(effects["arm"] == arm) & effects["ratio"].notna()][["recording", "ratio"]]
    return frame.merge(chosen.rename(columns={"ratio": "value"}), on="recording"), f"{arm} / baseline"


def _position(names: Sequence[str], commit: Any) -> int | None:
    if not isinstance(commit, str) or not commit:
        return None
    for i, name in enumerate(names):
        if name == commit or (
            min(len(name), len(commit)) >= 7 and (commit.startswith(name) or name.startswith(commit))
        ):
            return i
    return None


def _listed(names: Sequence[str], commit: str) -> int:
    found = _position(names, commit)
    if found is None:
        raise UnknownNameError("commit to skip", commit, names)
    return found
