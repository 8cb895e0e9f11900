"""What a report says about a short measurement on the machine it was made on."""

from __future__ import annotations

from typing import Any

from rcatools.errors import RcaError
from rcatools.report import answers
from rcatools.report.evidence import Evidence, gather
from rcatools.report.inputs import Inputs
from rcatools.report.live import LiveRun


def check(investigation: str, run: LiveRun) -> tuple[Evidence | None, dict[str, Any]]:
    """Judge a short live recording; returns its evidence and what the report says about it."""
    if run.folder is None:
        return None, {"state": "absent", "sentences": [f"Live check: {run.reason}."]}
    try:
        evidence = gather(Inputs(investigation, (run.folder,)))
    except RcaError as error:
        return None, {
            "state": "failed",
            "sentences": [f"Live check: the recording cannot be judged ({error})."],
        }
    document = evidence.document
    device = document["environment"].get("device") or "this machine"
    sentences = [
        f"Live check on this machine ({device}), a few blocks only, kept apart from the recording above.",
        *answers.reproduce(document, evidence.measured)[:2],
    ]
    noise = document["noise"]
    if noise:
        sentences.append(noise["text"])
    return evidence, {
        "state": "done",
        "device": device,
        "effect": document["effect"],
        "noise": noise,
        "sentences": sentences,
    }
