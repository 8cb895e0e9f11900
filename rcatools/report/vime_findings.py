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
from rcatools.diagnosis.wording import counted, replicated
from rcatools.errors import InputError
from rcatools.recording import open_recording
from rcatools.report import vime_tiles, words
from rcatools.report.figures import records
from rcatools.report.locate import embedded_recordings, investigation_folder, recording_folder

PRODUCT, GRAPHS = "vime-matmul-h200", "vime-graphs-h200"
CAPTURES = "capture_hazards.json"
# From the clean checkout's form to the published one: observation, and what the step takes away.
LADDER = (
    ("pickled", "agreement by a tensor instead of pickled objects"),
    ("packing", "one packed gather instead of two"),
    ("preflight", "agreement kept instead of gathered before each call"),
    ("buffers", "message buffers kept instead of made anew"),
)
# The four findings of the review of RL-Kernel#403: demonstrations that speak about each, and checks of the fix's price.
BETWEEN, IN_A_GRAPH = "between ranks", "in a graph, one rank"
REVIEW: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "The whole message is copied to pick one column": (
        (),
        (("copy", f"only the column copied, {BETWEEN}"), ("graph_copy", IN_A_GRAPH)),
    ),
    "Shared buffers are overwritten by concurrent calls, or freed under a captured graph": (
        ("shared_buffer", "shared_by_streams", "evicted_buffer"),
        (("owned", f"owned buffers, {BETWEEN}"), ("graph_owned", IN_A_GRAPH)),
    ),
    "A rank-local cache lets one rank skip a collective": (
        ("rank_skips_then_gather", "rank_skips_then_barrier"),
        (
            ("safe_by_digest", f"digest carried in the message and owned buffers, {BETWEEN}"),
            ("graph_digest", IN_A_GRAPH),
            ("safe_by_agreement", f"all ranks asked before each skip and owned buffers, {BETWEEN}"),
        ),
    ),
    "A key from the group's id fits a later group": (
        ("reused_group_id",),
        (("keyed", f"members and epoch as key, {BETWEEN}"), ("graph_keyed", IN_A_GRAPH)),
    ),
}
ON_THE_CARD = (
    ("eager_exchange", "published form against the one before, launched eagerly"),
    ("eager_pickled", "agreement by a tensor instead of pickled objects, launched eagerly"),
    ("eager_readback", "two checks read back on the host, launched eagerly"),
    ("graph_split", "one message in three gathers, in a graph"),
    ("graph_preflight", "agreement kept instead of gathered, in a graph"),
)


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


def load_extras(
    investigation: str, product: str = PRODUCT, graphs: str = GRAPHS, *, live: bool = False
) -> Extras:
    """Read the tables beside an investigation, the product recording and the graph recording.

    With ``live`` the CPU's hazards are met now, where torch is installed, instead of read. An empty name names no
    recording.

    Raises:
        InputError: a named recording or table cannot be read.
    """
    folder = investigation_folder(investigation)
    found = recording_folder(product) if product else None
    captures = (
        recording_folder(graphs) / CAPTURES if graphs in embedded_recordings() or "/" in graphs else None
    )
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


def questions(document: Mapping[str, Any], extras: Extras) -> list[dict[str, Any]]:
    """What the investigation was asked, each with its answer: ``{"question", "sentences"}``."""
    asked = {
        "What explains the gap between clean main and the published run?": gap(document, extras),
        "What do the published tile configurations do, and why?": vime_tiles.sentences(extras.product),
        "What cannot be known from the public record?": unknowable(document),
        "Which of the four review findings are real?": review(extras),
        "What does each cost to fix?": safety(document, extras.graphs),
    }
    return [{"question": question, "sentences": sentences} for question, sentences in asked.items()]


def sentences(document: Mapping[str, Any], extras: Extras) -> list[str]:
    """All answers in a row, the one of the whole first."""
    return [
        str(document["answer"]),
        *(text for item in questions(document, extras) for text in item["sentences"]),
    ]


def gap(document: Mapping[str, Any], extras: Extras) -> list[str]:
    """Clean checkout against published run: whose code, what each step takes away, what was not measured."""
    found = [
        "Code first: by the pull request's own statement the published run's workspace held optimisations that were in "
        "no commit, so clean main and the published run are two programs. Their throughputs were not measured here."
    ]
    found.append(
        "The form timed as the one before follows the operator as a public fork held it before the pull request "
        "(Flink-ddd/RL-Kernel, commit 81acc90): two gathers of lists and an agreement by pickled objects. Which commit "
        "clean main was measured at is not told."
    )
    found += _ladder(document) + _per_collective(document)
    if extras.graphs is not None:
        found += _on_the_card(document) + _captured(extras.graphs) + _against_products(extras)
    found.append(
        "So the exchange became cheaper here, for the reasons named; how much of the gap in throughput that is was not "
        "measured, because no rollout was run."
    )
    return found


def _observation(document: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    return next((item for item in document["observations"] if item["id"] == name), None)


def _ratio(document: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The evidence of a ratio that was measured, else None."""
    item = _observation(document, name)
    places = item["evidence"] if item else []
    return places[0] if places and places[0]["unit"] == "ratio" and places[0]["value"] else None


def _ladder(document: Mapping[str, Any]) -> list[str]:
    whole = _ratio(document, "exchange")
    steps = [(_ratio(document, name), text) for name, text in LADDER]
    if whole is None or math.log(whole["value"]) == 0 or any(step is None for step, _ in steps):
        return []
    total = math.log(whole["value"])
    told = [
        f"{text} {units.estimate(step['value'], step['ci_low'], step['ci_high'])} "
        f"({units.share(math.log(step['value']) / total)})"
        for step, text in steps
        if step
    ]
    ends = (
        f"{whole['arms'][1]} to {whole['arms'][0]}",
        f"{whole['n']} blocks, {whole['device']}".rstrip(", "),
    )
    return [
        f"Step by step from {ends[0]} (change of the exchange's time, and its share of the whole change in logarithms; "
        f"{ends[1]}): {'; '.join(told)}."
    ]


def _per_collective(document: Mapping[str, Any]) -> list[str]:
    """What two further collectives cost at the same bytes, beside what the missing ones would have to explain."""
    ratios = {item["arm"]: item["ratio"] for item in document.get("arms", ())}
    one, three = ratios.get("packed_cached"), ratios.get("packed_in_three")
    if one is None or three is None or three <= one or one >= 1:
        return []
    each = (three - one) / 2
    return [
        "The same bytes in three gathers instead of one cost "
        f"{units.percent(each)} of the clean form's exchange for each collective more. The published form spares the "
        "backend three collectives (two gathers become one, and an object gather is two): at that price they make "
        f"{units.share(3 * each / (1 - one))} of the gap; the rest is work around them (pickling, allocation, tensor "
        "operations), which these arms do not tell apart further."
    ]


def _captured(graphs: GraphHazards) -> list[str]:
    refused = graphs.captures[~graphs.captures["captured"].astype(bool)]["form"].tolist()
    kept = [row["form"] for row in records(graphs.captures) if row["replay_equal"] is True]
    where = f"On {graphs.device}, {counted(graphs.world, 'rank')}"
    found = []
    if refused:
        found.append(
            f"{where}: no CUDA graph takes {', '.join(map(str, refused))}; captured, and right on replay: "
            f"{', '.join(map(str, kept))}. Whether the published rollout captured this call is not known."
        )
    time = _medians(graphs, 8)
    if {("graph", "packed"), ("eager", "packed")} <= set(time):
        processes = graphs.times["process"].nunique()
        found.append(
            f"{where}, 8 rows, {counted(processes, 'process', 'processes')}: one exchange of packed takes "
            f"{units.duration_us(time['eager', 'packed'])} launched eagerly and {units.duration_us(time['graph', 'packed'])} "
            "in a replayed graph. One rank has no transport: this is launches and copies alone."
        )
    return found


def _on_the_card(document: Mapping[str, Any]) -> list[str]:
    """What the forms take away where no transport is in it: launches, copies and host work of one rank."""
    told = [text for name, label in ON_THE_CARD if (text := _told(document, name, label, silent=True))]
    if not told:
        return []
    return [
        f"Without transport, one rank, 8 rows: {'; '.join(told)}. Code before the pull request read two checks back in "
        "each call; it moved them to the device."
    ]


def _told(document: Mapping[str, Any], name: str, label: str, *, silent: bool = False) -> str:
    """A comparison in short: what, verdict, estimate, replicates, device; ``silent``: nothing where not measured."""
    item = _observation(document, name)
    if item is None or not item["evidence"]:
        return "" if silent or item is None else f"{label}: not measured"
    e = item["evidence"][0]
    text = f"{label}: {item['outcome'] or 'too few for a verdict'}"
    if item["outcome"] and not item["definite"] and item["reason"]:
        text += f" ({item['reason']})"
    figures = [
        units.estimate(e["value"], e["ci_low"], e["ci_high"]),
        replicated(int(e["n"]), str(e.get("replicate", "block"))),
        str(e.get("device", "")),
    ]
    return f"{text}, {', '.join(part for part in figures if part)}"


def _against_products(extras: Extras) -> list[str]:
    """How much an exchange is beside the products of a decode step, on the same card."""
    if extras.product is None or extras.graphs is None:
        return []
    time, step = _medians(extras.graphs, 8), dp.token_times(extras.product)
    if not {("graph", "packed"), ("eager", "packed")} <= set(time):
        return []
    return [
        f"For scale: the decode products of one step of 8 rows take {units.duration_us(row['default'])} on that card with "
        f"the default tiles, without attention, norms and transport; one exchange is "
        f"{units.percent(time['eager', 'packed'] / row['default'])} of that launched eagerly and "
        f"{units.percent(time['graph', 'packed'] / row['default'])} in a replay."
        for row in records(step[step["rows"] == 8])
    ]


def _medians(graphs: GraphHazards, rows: int) -> dict[tuple[str, str], float]:
    """Median over processes of each process's median, by (how, form)."""
    chosen = graphs.times[graphs.times["rows"] == rows]
    each = chosen.groupby(["how", "form", "process"])["us"].median()
    table = each.groupby(["how", "form"]).median().reset_index()
    return {(str(row["how"]), str(row["form"])): float(row["us"]) for row in records(table)}


def unknowable(document: Mapping[str, Any]) -> list[str]:
    """What the public record leaves open."""
    missing = [str(item["label"]) for item in document["published"] if item["value"] is None]
    found = []
    if missing:
        found.append(
            f"The size of the gap: {len(missing)} of {len(document['published'])} published numbers could not be read "
            f"({', '.join(missing)})."
        )
    found += _step_time(document)
    found += [
        "The code of the published run: its changes were in no commit, so no checkout can be held to its number.",
        "Not measured here, because it needs AMD cards: what a collective costs over RCCL, which form a HIP graph takes, "
        "and the time of these products on an MI300X. Nothing here was run on ROCm.",
    ]
    return found


def _step_time(document: Mapping[str, Any]) -> list[str]:
    """What the one throughput that could be read says about a decode step."""
    item = next((p for p in document["published"] if p.get("id") == "clean_main_step_0"), None)
    if item is None or not item["value"]:
        return []
    longest = 1e6 / float(item["value"])
    return [
        f"The share of the exchange in a rollout. {item['value']:g} tokens per second and GPU, with 8 samples on 8 GPUs, "
        f"is a decode step of at most {units.duration_us(longest)} if it counts the rollout alone, which the record does "
        "not say. What an exchange took on those cards is not published; a profiler trace of one rollout step of clean "
        "main would tell (rcatools trace summary TRACE)."
    ]


def review(extras: Extras) -> list[str]:
    """Which findings of the review are real: what the demonstrations showed."""
    table = extras.all_hazards()
    found = []
    for finding, (hazards, _) in REVIEW.items():
        if not hazards:
            found.append(
                f"{finding}: real by counting (on four ranks 33 numbers a row and rank are copied, one is needed); "
                "whether that takes time stands under the costs."
            )
            continue
        part = table[table["hazard"].isin(hazards)]
        published, safe = part[part["safe"] == 0], part[part["safe"] == 1]
        if published.empty:
            found.append(f"{finding}: not tested.")
            continue
        real = "real" if (published["harmed"] == 1).any() else "not seen"
        seen = "; ".join(
            f"{row['hazard'].replace('_', ' ')}: {row['seen']}, {row['device']}" for row in records(published)
        )
        still = int((safe["harmed"] == 1).sum())
        found.append(
            f"{finding}: {real} ({seen}). Harm in the safe forms: {still} of {counted(len(safe), 'demonstration')}."
        )
    found.append(
        "Each was met on purpose, in forms written here after the published ones. Whether the published run met one is "
        "not known; its three steps reported no mismatch."
    )
    return found


def safety(document: Mapping[str, Any], graphs: GraphHazards | None) -> list[str]:
    """What closing each finding costs: time of the safe form against the form with the hazard."""
    found = []
    for finding, (_, prices) in REVIEW.items():
        told = [
            text + _other_rows(document, name, graphs)
            for name, label in prices
            if (text := _told(document, name, label))
        ]
        if told:
            found.append(f"{finding}. {words.capital('; '.join(told))}.")
    same = _other_rows(document, "graph_keyed", graphs)
    if same:
        found.append(
            "In a graph the row count is 8 where no other is named. The new key changes nothing that a graph replays, so what "
            f"it differs by{same} is chance, and so may be anything of that size."
        )
    found.append(
        "A digest carried in the message closes the last two findings together: no cache is left that a rank could hit "
        "alone or by an old id."
    )
    return found


def _other_rows(document: Mapping[str, Any], name: str, graphs: GraphHazards | None) -> str:
    """The same comparison at the other row counts that were timed in a graph: medians over processes."""
    item = _observation(document, name)
    if graphs is None or not name.startswith("graph_") or item is None or not item["evidence"]:
        return ""
    arm, against = item["evidence"][0]["arms"]
    told = []
    for rows in sorted(set(graphs.times["rows"]) - {8}):
        time = _medians(graphs, int(rows))
        if {("graph", arm), ("graph", against)} <= set(time):
            change = units.change(time["graph", arm] / time["graph", against])
            told.append(f"{counted(int(rows), 'row')} {change}")
    return f" ({', '.join(told)})" if told else ""
