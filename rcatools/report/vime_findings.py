"""What vime-decode answers beyond verdict.json, in words made from its tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from rcatools import units
from rcatools.diagnosis import decode_product as dp
from rcatools.diagnosis.graph_hazards import GraphHazards, load_graph_hazards
from rcatools.errors import InputError
from rcatools.recording import open_recording
from rcatools.report.figures import records
from rcatools.report.locate import investigation_folder, recording_folder

PRODUCT = "vime-matmul-h200"
CAPTURES = "capture_hazards.json"
SMALL_ROWS, LARGE_ROWS = 16, 64
# The four findings of the review of RL-Kernel#403 and the demonstrations that speak about each.
REVIEW = {
    "Copying every rank's whole message to pick one column": (),
    "Shared buffers overwritten by concurrent calls, or freed under a captured graph": (
        "shared_buffer",
        "shared_by_streams",
        "evicted_buffer",
    ),
    "A rank-local cache that lets one rank skip a collective": (
        "rank_skips_then_gather",
        "rank_skips_then_barrier",
    ),
    "A key from the group's id that a new group may have": ("reused_group_id",),
}


@dataclass(frozen=True)
class Extras:
    """What the investigation has beside its recordings of the forms.

    Attributes:
        product: the decode product's recording, or None where there is none.
        graphs: graph captures and hazards on a GPU, or None.
        hazards: the CPU's demonstrations (hazard, form, safe, device, harmed, seen).
        assembly: what the compiler made for AMD cards.
    """

    product: dp.ProductData | None
    graphs: GraphHazards | None
    hazards: pd.DataFrame
    assembly: pd.DataFrame

    def all_hazards(self) -> pd.DataFrame:
        """Demonstrations on the CPU and on the GPU together."""
        parts = [self.hazards] + ([self.graphs.hazards] if self.graphs is not None else [])
        return pd.concat(parts, ignore_index=True)


def load_extras(investigation: str, product: str = PRODUCT, *, live: bool = False) -> Extras:
    """Read the tables beside an investigation and the product recording.

    With ``live`` the CPU's hazards are met now, where torch is installed, instead of read.

    Raises:
        InputError: a named recording or table cannot be read; an empty ``product`` names none.
    """
    folder = investigation_folder(investigation)
    found = recording_folder(product) if product else None
    captures = found / CAPTURES if found else None
    return Extras(
        product=dp.load_product(open_recording(found)) if found else None,
        graphs=load_graph_hazards(captures) if captures and captures.is_file() else None,
        hazards=_live_hazards() if live and find_spec("torch") else _table(folder / "hazards.csv"),
        assembly=_table(folder / "offline_gfx.csv"),
    )


def _live_hazards() -> pd.DataFrame:
    from rcatools.workload.vime.demonstrate import demonstrate

    return pd.DataFrame([asdict(item) for item in demonstrate()])


def _table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path.name} of the investigation ({error}): restore it") from None


def sentences(document: Mapping[str, Any], extras: Extras) -> list[str]:
    """The answer: the gap, what cannot be known, the review's findings, what safety costs."""
    return [
        *gap(document, extras),
        *products(extras.product),
        *unknowable(document),
        *review(document, extras),
        *safety(document, extras.graphs),
    ]


def gap(document: Mapping[str, Any], extras: Extras) -> list[str]:
    """Clean checkout against published run: what was counted and timed here."""
    found = [str(document["answer"])]
    graphs = extras.graphs
    if graphs is not None and len(graphs.captures):
        refused = graphs.captures[~graphs.captures["captured"].astype(bool)]["form"].tolist()
        kept = [row["form"] for row in records(graphs.captures) if row["replay_equal"] is True]
        if refused:
            found.append(
                f"In a graph on the GPU {', '.join(map(str, refused))} cannot be captured at all; captured and right "
                f"on replay: {', '.join(map(str, kept))}. A form that cannot be captured runs eagerly for every token."
            )
        time = _medians(graphs, 8)
        if {("graph", "packed"), ("eager", "packed")} <= set(time):
            found.append(
                f"One exchange of 8 rows takes {units.duration_us(time['eager', 'packed'])} launched eagerly and "
                f"{units.duration_us(time['graph', 'packed'])} in a replayed graph, {graphs.world} rank: launches cost "
                "more than anything the forms differ in."
            )
            found += _against_products(extras.product, time)
    return found


def _against_products(data: dp.ProductData | None, time: Mapping[tuple[str, str], float]) -> list[str]:
    """How much an exchange is beside the products of a decode step."""
    step = dp.token_times(data) if data is not None else pd.DataFrame({"rows": []})
    return [
        f"Beside the products of one decode step of 8 rows ({units.duration_us(row['default'])}) that is "
        f"{units.percent(time['eager', 'packed'] / row['default'])} launched eagerly and "
        f"{units.percent(time['graph', 'packed'] / row['default'])} in a replay."
        for row in records(step[step["rows"] == 8])
    ]


def _medians(graphs: GraphHazards, rows: int) -> dict[tuple[str, str], float]:
    chosen = graphs.times[graphs.times["rows"] == rows]
    table = chosen.groupby(["how", "form"])["us"].median().reset_index()
    return {(str(row["how"]), str(row["form"])): float(row["us"]) for row in records(table)}


def products(data: dp.ProductData | None) -> list[str]:
    """The products' configurations: launched, timed, explained."""
    if data is None:
        return ["The decode products were not measured."]
    name = str(data.recording.manifest.device.get("name"))
    changes, cells = dp.launch_changes(data), dp.product_table(data)
    fewer = int((changes["programs_published"] < changes["programs_default"]).sum())
    found = [
        f"The published configurations launch fewer programs than the default in {fewer} of {len(changes)} cells where "
        "they differ, so 'more N-parallel programs' is not what they do."
    ]
    for low, high in ((1, SMALL_ROWS), (SMALL_ROWS + 1, LARGE_ROWS)):
        part = cells[(cells["rows"] >= low) & (cells["rows"] <= high) & (cells["specialised_verdict"] != "")]
        if len(part):
            counts = ", ".join(f"{n} {v}" for v, n in part["specialised_verdict"].value_counts().items())
            found.append(
                f"On {name} with {_rows(part['rows'])} the published configurations against the default: {counts} of "
                f"{len(part)} cells, {_range(part['specialised_ratio'])}."
            )
    effects = dp.factor_effects(data.grid)
    for rows in (SMALL_ROWS, LARGE_ROWS):
        chosen = effects[effects["rows"] == rows]
        if len(chosen):
            found.append(f"The property that moves the time of {rows} rows most: {_largest_steps(chosen)}.")
    step = dp.token_times(data)
    for row in records(step[step["rows"] == SMALL_ROWS]):
        found.append(
            f"All products of one decode step of {SMALL_ROWS} rows: default {units.duration_us(row['default'])}, published "
            f"{units.duration_us(row['published'])}, default with four stages {units.duration_us(row['deeper'])}, torch "
            f"{units.duration_us(row['torch'])}, weights read once {units.duration_us(row['read'])}."
        )
    if data.replicate != "process":
        found.append(
            "These product times come from one process: their intervals cover nothing that differs between processes."
        )
    checked = data.equality[data.equality["config"] != "torch"]
    equal = int(checked["equal_to_default"].sum())
    found.append(
        f"{equal} of {len(checked)} products of ours, over configurations, schedules, shapes and rows, are equal in "
        "every bit."
    )
    return found


def _rows(counts: pd.Series[Any]) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low} rows" if low == high else f"{low} to {high} rows"


def _range(ratios: pd.Series[Any]) -> str:
    return f"{units.change(float(ratios.min()))} to {units.change(float(ratios.max()))}"


def _largest_steps(effects: pd.DataFrame) -> str:
    """For each shape the step of one property that changes its time most."""
    names = {"block_m": "rows per tile", "block_n": "columns per tile", "warps": "warps", "stages": "stages"}
    texts = []
    for shape, part in effects.groupby("shape", sort=False):
        row = records(part.loc[[part["ratio"].map(math.log).abs().idxmax()]])[0]
        texts.append(f"{shape}: {names[row['factor']]} {row['step']} ({units.change(row['ratio'])})")
    return "; ".join(texts)


def unknowable(document: Mapping[str, Any]) -> list[str]:
    """What the public record leaves open."""
    missing = [str(item["label"]) for item in document["published"] if item["value"] is None]
    found = []
    if missing:
        found.append(
            f"Not in the public record that could be read: {len(missing)} of {len(document['published'])} published "
            f"numbers ({', '.join(missing)}), so the size of the gap itself is not known here."
        )
    found.append(
        "Not known either: what a collective costs over RCCL, whether a list gather is captured on ROCm, and the time "
        "of these products on an MI300X; nothing here was run on ROCm."
    )
    return found


def review(document: Mapping[str, Any], extras: Extras) -> list[str]:
    """Which findings of the review are real."""
    table = extras.all_hazards()
    found = []
    for finding, hazards in REVIEW.items():
        if not hazards:
            copied = next((h for h in document["hypotheses"] if h["id"] == "copy_cost"), None)
            status = copied["status"].replace("_", " ") if copied else "not tested"
            found.append(
                f"{finding}: that it takes time is {status} here. {copied['reason'] if copied else ''}"
            )
            continue
        part = table[table["hazard"].isin(hazards)]
        published, safe = part[part["safe"] == 0], part[part["safe"] == 1]
        real = "real" if (published["harmed"] == 1).any() else "not seen"
        seen = "; ".join(f"{row['hazard'].replace('_', ' ')}: {row['seen']}" for row in records(published))
        still = int((safe["harmed"] == 1).sum())
        found.append(
            f"{finding}: {real} ({seen}). Harm in the safe forms: {still} of {len(safe)} demonstrations."
        )
    return found


def safety(document: Mapping[str, Any], graphs: GraphHazards | None) -> list[str]:
    """What the safe forms cost per call."""
    found = []
    for name in ("safe_by_agreement", "safe_by_digest"):
        item = next((o for o in document["observations"] if o["id"] == name), None)
        if item is not None:
            found.append(f"{item['text']}: {item['observed']}.")
    found += _pair(graphs, "packed", "packed_once")
    for form in ("safe_carried_by_rows", "safe_carried", "safe_carried_flat"):
        found += _pair(graphs, form, "packed_cached_column")
    return found


def _pair(graphs: GraphHazards | None, form: str, against: str) -> list[str]:
    """Two forms inside a replayed graph, as a sentence; none where one was not timed."""
    time = _medians(graphs, 8) if graphs is not None else {}
    own, base = time.get(("graph", form)), time.get(("graph", against))
    if graphs is None or own is None or base is None:
        return []
    return [
        f"Inside a replayed graph on the GPU, 8 rows, {graphs.world} rank, {form} takes {units.duration_us(own)} "
        f"against {units.duration_us(base)} of {against}."
    ]
