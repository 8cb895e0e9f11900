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
from rcatools.report import vime_card, vime_review, vime_tiles
from rcatools.report.locate import embedded_recordings, investigation_folder, recording_folder
from rcatools.report.vime_told import ratio

PRODUCT, GRAPHS = "vime-matmul-h200", "vime-graphs-h200"
CAPTURES = "capture_hazards.json"
# From the clean checkout's form to the published one: observation, and what the step takes away.
LADDER = (
    ("pickled", "agreement by a tensor instead of pickled objects"),
    ("packing", "one packed gather instead of two"),
    ("preflight", "agreement kept instead of gathered before each call"),
    ("buffers", "message buffers kept instead of made anew"),
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
        "Which of the four review findings are real?": vime_review.review(extras.all_hazards()),
        "What does each cost to fix?": vime_review.safety(document, extras.graphs),
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
        found += vime_card.sentences(document, extras.graphs, extras.product)
    found.append(
        "So the exchange became cheaper here, for the reasons named; how much of the gap in throughput that is was not "
        "measured, because no rollout was run."
    )
    return found


def _ladder(document: Mapping[str, Any]) -> list[str]:
    whole = ratio(document, "exchange")
    steps = [(ratio(document, name), text) for name, text in LADDER]
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
        "backend three collectives (two gathers become one, and an object gather is two): at that price they make about "
        f"{units.share(3 * each / (1 - one))} of the gap; the rest is work around them (pickling, allocation, tensor "
        "operations), which these arms do not tell apart further."
    ]


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
