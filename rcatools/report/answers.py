"""What each notebook answers, in words made from the data: lists of plain sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rcatools import units
from rcatools.diagnosis import wording
from rcatools.report import fix_table, words
from rcatools.report.figures import records, side_streams, stream_name
from rcatools.report.measured import Measured
from rcatools.units import counted

Document = Mapping[str, Any]


def preflight(document: Document, measured: Measured) -> list[str]:
    """Noise, failures, sensitivity."""
    sentences = []
    noise = document["noise"]
    if noise:
        limit = f"; smallest effect that would have been seen {units.percent(noise['detectable'])}"
        sentences.append(
            f"Two arms of the same build differ by {words.effect(noise)} over "
            f"{counted(noise['n'], 'block')} "
            f"(noise floor {units.percent(noise['floor'])}{limit if noise['detectable'] is not None else ''})."
        )
    else:
        sentences.append("No arm was measured twice, so the noise floor is unknown.")
    sentences.append(
        {
            True: f"Planted regressions: {words.planted(document)}, so this set-up can see what it looks for.",
            False: "A planted regression was missed: no 'no difference' of this recording can be relied on.",
            None: "No regression was planted, so the sensitivity of this set-up is not shown.",
        }[document["sensitive"]]
    )
    runs = measured.runs[measured.runs["outcome"].notna()]
    failed = runs[runs["outcome"] != "ok"]
    if len(failed):
        kinds = ", ".join(f"{count} {kind}" for kind, count in failed["outcome"].value_counts().items())
        sentences.append(
            f"{len(failed)} of {counted(len(runs), 'run')} failed ({kinds}); what failed is listed, not replaced."
        )
    else:
        sentences.append(f"Every run ended well: {len(runs)}.")
    sentences += list(document["warnings"])
    return sentences


def reproduce(document: Document, _: Measured) -> list[str]:
    """The headline effect."""
    effect = document["effect"]
    if not effect or effect["ratio"] is None:
        return ["The suspect and the baseline were not both measured: there is no answer."]
    what = {
        "slower": "There is a regression",
        "faster": "A gain, not a regression",
        "equivalent": "There is no regression within the margin",
        "undecided": "The data do not decide",
    }.get(effect["verdict"], effect["verdict"])
    sentences = [
        f"{what}: {effect['arm']} against {effect['against']} is {words.effect(effect)} in time over "
        f"{counted(effect['n'], 'block')}."
    ]
    if effect["mde"] is not None:
        sentences.append(f"The smallest effect that would have been seen is {units.percent(effect['mde'])}.")
    if effect["reasons"]:
        sentences.append(f"Why: {wording.reasons(effect['reasons'])}.")
    sentences += [str(text) for text in effect["warnings"]]
    return sentences


def profile_kernels(document: Document, _: Measured) -> list[str]:
    """Kernels or gaps."""
    sentences = []
    suspect = document["effect"]["arm"] if document["effect"] else None
    for item in document["mechanisms"]:
        if item["arm"] == suspect:
            kind = words.MECHANISM_TEXT.get(item["kind"], item["kind"])
            sentences.append(f"In {suspect}, {item['text']} (read as: {kind})")
    sentences += (document.get("boundary") or {}).get("sentences", ())
    for bound in ("bandwidth", "compute"):
        chosen = [item for item in document["kernels"] if item["bound"] == bound]
        if chosen:
            slower = [f"{k['kernel']} ({_launch(k)})" for k in chosen if k["verdict"] == "slower"]
            limits = [item["mde"] for item in chosen if item["mde"] is not None]
            limit = f"; largest detection limit {units.percent(max(limits))}" if limits else ""
            text = f"longer: {', '.join(slower)}" if slower else "none is longer"
            kernels = counted(len(chosen), f"{bound}-bound kernel")
            sentences.append(f"Of {kernels} timed alone, {text}{limit}.")
    return sentences or ["No trace and no isolated kernel times were recorded: there is no answer."]


def _launch(item: Mapping[str, Any]) -> str:
    return f"{units.change(item['ratio'])}, {units.signed_duration_us(item['delta_us'])} a launch"


def allocator(document: Document, measured: Measured) -> list[str]:
    """Links on memory, and who holds the largest block of the suspect's side streams."""
    sentences = [
        f"Link ({item['id']}), {item['text']}: {words.LINK_TEXT.get(item['verdict'], item['verdict'])}. {item['reason']}"
        for item in document["links"]
        if any(
            evidence["source"] == "snapshot" or evidence["notebook"] == "03_allocator"
            for evidence in item["evidence"]
        )
    ]
    suspect = document["effect"]["arm"] if document["effect"] else None
    for recording in measured.ledger["recording"].unique() if suspect else ():
        for row in records(side_streams(measured, recording, str(suspect))):
            held = measured.pins[
                (measured.pins["recording"] == recording)
                & (measured.pins["arm"] == suspect)
                & (measured.pins["stream"] == row["stream"])
            ]
            if len(held):
                largest = held.sort_values("size", ascending=False).iloc[0]
                sentences.append(
                    f"In {suspect}, {stream_name(row['stream'])} keeps {units.byte_size(row['active'])} live; its largest "
                    f"block ({units.byte_count(int(largest['size']))}) belongs to {wording.owner(str(largest['owner']))} "
                    f"(by {largest['basis']})."
                )
    baseline = document["effect"]["against"] if document["effect"] else ""
    for recording in measured.ledger["recording"].unique() if suspect else ():
        own = side_streams(measured, recording, str(baseline))
        held = int((own["active"] > 0).sum()) if len(own) else 0
        if held:
            streams = counted(held, "stream")
            sentences.append(
                f"The baseline ({baseline}) has {streams} with live bytes of that kind without any profile."
            )
    return sentences or [
        "No allocator snapshot was recorded (the device has none, or --no-inspect): no answer."
    ]


def compare_fixes(document: Document, _: Measured) -> list[str]:
    """Which variants work."""
    unclear = [item for item in document["fixes"] if item["verdict"] == "undecided"]
    sentences = [f"{words.capital(text)}." for text in fix_table.fixes_that_work(document)]
    if unclear:
        sentences.append(f"Undecided: {', '.join(item['arm'] for item in unclear)}.")
    wrong = [item["arm"] for item in document["fixes"] if item["correct"] is False]
    if wrong:
        sentences.append(f"Output differs from the baseline's: {', '.join(wrong)}.")
    best = [item for item in document["fixes"] if item["best"]]
    sentences += [f"Best: {item['arm']}, {item['text']}" for item in best]
    return sentences


def findings(document: Document, _: Measured) -> list[str]:
    """The answer of the whole."""
    sentences = [document["answer"], *document["details"], document["chain"]["text"]]
    for item in document["hypotheses"]:
        sentences.append(
            f"{words.capital(item['title'])}: {words.STATUS_TEXT.get(item['status'], item['status'])}. {item['reason']}"
        )
    if document["open"]:
        count = counted(len(document["open"]), "question")
        was, names = ("was", "it names") if len(document["open"]) == 1 else ("were", "each names")
        sentences.append(f"{count} {was} not tested; {names} the run that would.")
    return [text for text in sentences if text]


def vime_decode(document: Document, _: Measured) -> list[str]:
    """The forms, the products and the hazards, from the embedded tables."""
    from rcatools.report import vime_findings

    return vime_findings.sentences(document, vime_findings.load_extras(str(document["investigation"])))


def further(investigation: str, notebooks: Sequence[str], document: Document) -> list[dict[str, Any]]:
    """What an investigation answers beyond verdict.json: ``[{"question", "sentences"}]``, by its own notebooks."""
    if "06_vime_decode" not in notebooks:
        return []
    from rcatools.report import vime_findings

    return vime_findings.questions(document, vime_findings.load_extras(investigation))


ANSWERS: dict[str, Callable[[Document, Measured], list[str]]] = {
    "00_preflight": preflight,
    "01_reproduce": reproduce,
    "02_profile_kernels": profile_kernels,
    "03_allocator": allocator,
    "04_compare_fixes": compare_fixes,
    "05_findings": findings,
    "06_vime_decode": vime_decode,
}
