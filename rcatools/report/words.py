"""Words and signs of verdicts, in one place; a sign always stands beside its word, never alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rcatools import units
from rcatools.report.table import Cell

VERDICT_SIGN = {"slower": "▲", "faster": "▼", "equivalent": "≈", "undecided": "?"}
VERDICT_TONE = {"slower": "bad", "faster": "good", "equivalent": "good", "undecided": "open"}
LINK_TEXT = {
    "shown": "shown",
    "not_shown": "not shown",
    "undecided": "undecided",
    "not_tested": "not tested",
}
LINK_SIGN = {"shown": "✓", "not_shown": "✗", "undecided": "?", "not_tested": "–"}
LINK_TONE = {"shown": "yes", "not_shown": "calm", "undecided": "open", "not_tested": "open"}
STATUS_TEXT = {
    "supported": "supported",
    "contradicted": "contradicted",
    "undecided": "undecided",
    "not_tested": "not tested",
    "not_reproduced": "not reproduced",
    "not_attributable": "not attributable",
    "not_testable": "not testable",
}
STATUS_SIGN = {
    "supported": "✓",
    "contradicted": "✗",
    "undecided": "?",
    "not_tested": "–",
    "not_reproduced": "≠",
    "not_attributable": "?",
    "not_testable": "–",
}
STATUS_TONE = {"supported": "yes", "contradicted": "calm"}
MECHANISM_TEXT = {
    "none": "no difference",
    "more_kernels": "more kernels",
    "slower_kernels": "kernels slower",
    "longer_gaps": "gaps longer",
    "mixed": "kernels and gaps",
    "undecided": "undecided",
}


def verdict(value: str) -> str:
    """A verdict with its sign, such as "▲ slower"."""
    return f"{VERDICT_SIGN.get(value, '?')} {value}"


def status(value: str) -> str:
    """A status of a hypothesis or claim with its sign."""
    return f"{STATUS_SIGN.get(value, '?')} {STATUS_TEXT.get(value, value)}"


def link(value: str) -> str:
    """A link's verdict with its sign."""
    return f"{LINK_SIGN.get(value, '?')} {LINK_TEXT.get(value, value)}"


def verdict_cell(value: str) -> Cell:
    """A verdict as a toned cell."""
    return Cell(verdict(value), tone=VERDICT_TONE.get(value, "open"))


def status_cell(value: str) -> Cell:
    """A status as a toned cell."""
    return Cell(status(value), tone=STATUS_TONE.get(value, "open"))


def link_cell(value: str) -> Cell:
    """A link's verdict as a toned cell."""
    return Cell(link(value), tone=LINK_TONE.get(value, "open"))


def holds(value: bool | None) -> Cell:
    """Whether a prediction holds."""
    if value is None:
        return Cell("– not tested", tone="open")
    return Cell("✓ holds", tone="yes") if value else Cell("✗ fails", tone="calm")


def capital(text: str) -> str:
    """A title with a capital first letter."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """A sentence with its full stop."""
    text = text.strip()
    return text if not text or text[-1] in ".!?:…" else f"{text}."


def outcome(observed: str) -> str:
    """The outcome in front of an observation's figures, such as "slower" of "slower: side against off ..."."""
    return observed.partition(":")[0].strip()


def seen(prediction: Mapping[str, Any]) -> str:
    """What was seen of a prediction, in short: the outcome, or why there is none."""
    return outcome(prediction["observed"]) or "not tested"


def effect(estimate: Mapping[str, Any]) -> str:
    """An estimate as "+5.0 % [+4.9 %, +5.1 %]", or "n/a"."""
    if estimate.get("ratio") is None:
        return units.NOT_AVAILABLE
    return units.estimate(estimate["ratio"], estimate.get("ci_low"), estimate.get("ci_high"))


def detection(mde: float | None) -> str:
    """The detection limit of a ratio, or "n/a"."""
    return units.percent(mde) if mde is not None else units.NOT_AVAILABLE


def is_gain(document: Mapping[str, Any]) -> bool:
    """Whether the suspect is faster than the baseline, so that a fix keeps a gain and does not remove a loss."""
    effect = document["effect"]
    return bool(effect) and effect["verdict"] == "faster"


def devices(document: Mapping[str, Any]) -> str:
    """Every device that evidence comes from; with its recordings where there are several."""
    environment = document["environment"]
    used = environment.get("devices") or []
    if len(used) < 2:
        return str(environment.get("device") or "")
    return "; ".join(
        f"{item['device']} ({', '.join(item['recordings'] or item.get('tables') or ())})" for item in used
    )


def planted(document: Mapping[str, Any]) -> str:
    """How many planted regressions were seen, and how many of them were named as what was planted."""
    plants = document["plants"]
    seen = sum(1 for item in plants if item["found"])
    named = sum(1 for item in plants if item.get("named"))
    if not plants:
        return "seen"
    text = f"{seen} of {len(plants)} seen"
    if named:
        text += " and named" if named == seen else f", {named} of them named"
    return text


def bar(value: float | None, scale: float, width: int = 12) -> str:
    """A signed bar of block characters around a middle line, for tables in plain text."""
    if value is None or scale <= 0:
        return ""
    filled = min(width, round(abs(value) / scale * width))
    blank = "·"
    left = blank * (width - filled) + "█" * filled if value < 0 else blank * width
    right = "█" * filled + blank * (width - filled) if value > 0 else blank * width
    return f"{left}│{right}"
