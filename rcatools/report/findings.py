"""``findings.md``: what is pasted into the issue. Markdown that GitHub shows, safe whatever the files held."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from rcatools import units
from rcatools.report import fix_table, present, provenance, words
from rcatools.report.safe import harmless, md, md_block, md_code, mermaid, web_address
from rcatools.report.table import Table, to_markdown
from rcatools.units import counted

MAX_CHARACTERS = 60_000
MOST_ROWS = 300
LABEL_CHARACTERS, LABEL_WIDTH = 120, 26
CUT = "> **Cut to fit the size of an issue; the full report is in report.html.**"

Document = Mapping[str, Any]


@dataclass(frozen=True)
class _Part:
    """One section; parts of a higher ``priority`` number are shortened first."""

    title: str
    render: Callable[[int], str]
    priority: int = 0


def render(document: Document, limit: int = MAX_CHARACTERS) -> str:
    """The findings as Markdown, at most ``limit`` characters.

    Long tables lose rows, the least needed section first; each cut says so.
    """
    document = harmless(document)
    parts = _parts(document)
    head = _head(document)
    bodies = [part.render(MOST_ROWS) for part in parts]
    text = _join(head, parts, bodies)
    for priority in sorted({part.priority for part in parts} - {0}, reverse=True):
        for keep in (40, 12, 4, 0):
            if len(text) <= limit:
                return text
            for index, part in enumerate(parts):
                if part.priority == priority:
                    bodies[index] = part.render(keep)
            text = _join(head, parts, bodies)
    return text if len(text) <= limit else _hard_cut(text, limit)


def _hard_cut(text: str, limit: int) -> str:
    """The text up to the last whole line that fits, with every fold and fence closed and a note."""
    lines: list[str] = []
    size = 0
    room = limit - len(CUT) - 60
    for line in text.splitlines():
        if size + len(line) + 1 > room:
            break
        lines.append(line)
        size += len(line) + 1
    fence = ""
    folds = 0
    for line in lines:
        if line.startswith("```"):
            marks = line[: len(line) - len(line.lstrip("`"))]
            fence = "" if fence and marks == fence else (fence or marks)
        folds += (line == "<details>") - (line == "</details>")
    closing = ([fence] if fence else []) + ["", "</details>"] * max(folds, 0)
    return "\n".join([*lines, *closing, "", CUT, ""])


def _join(head: str, parts: list[_Part], bodies: list[str]) -> str:
    sections = [head]
    for part, body in zip(parts, bodies, strict=True):
        if body:
            sections.append(f"{part.title}\n\n{body}" if part.title else body)
    return "\n\n".join(sections) + "\n"


def _head(document: Document) -> str:
    lines = [f"## {md(document['title'])}", "", f"**{md(document['answer'])}**"]
    effect = document["effect"]
    if effect and effect["ratio"] is not None:
        lines += [
            "",
            f"- **Effect:** {md_code(effect['arm'])} against {md_code(effect['against'])}: "
            f"{md(words.effect(effect))} in time, {counted(effect['n'], 'block')}, "
            f"{md(words.verdict(effect['verdict']))}",
            f"- **Detection limit:** {md(words.detection(effect['mde']))} (the smallest change that would have been seen "
            "with 80 % power)",
        ]
    noise = document["noise"]
    if noise:
        lines.append(f"- **Noise floor (A/A):** {md(units.percent(noise['floor']))}. {md(noise['text'])}")
    if document["sensitive"] is not None:
        said = words.planted(document)
        if not document["sensitive"]:
            said += ": **'no difference' cannot be relied on**"
        lines.append(f"- **Planted regressions:** {said}")
    if document["fixes"]:
        variants = "; ".join(fix_table.fixes_that_work(document))
        lines += [f"- **Fix variants:** {md(variants)}"] if variants else []
    measured_on = words.devices(document)
    if measured_on:
        lines.append(f"- **Measured on:** {md(measured_on)}")
    lines += [f"- {md(text)}" for text in document["details"] if text != document["chain"]["text"]]
    lines += [f"- ⚠ {md(text)}" for text in document["warnings"]]
    return "\n".join(lines)


def _parts(document: Document) -> list[_Part]:
    return [
        _Part("### How to reproduce", lambda rows: _reproduce(document)),
        _Part("### What was asked", lambda rows: _questions(document)),
        _Part("### Causal chain", lambda rows: _chain(document, rows)),
        _Part("### Rival causes", lambda rows: _causes(document, rows)),
        _Part("", lambda rows: _matrices(document, rows), 3),
        _Part("", lambda rows: _fold(present.observations(document), rows), 2),
        _Part("### Fix variants", lambda rows: _table(fix_table.fixes(document, bars=True), rows), 1),
        _Part("### Live check", lambda rows: _live(document)),
        _Part("", lambda rows: _fold(present.arms(document, bars=True), rows), 3),
        _Part("", lambda rows: _kernels(document, rows), 3),
        _Part("", lambda rows: _fold(present.reconcile(document), rows), 4),
        *(
            [_Part("", lambda rows: _fold(present.mechanisms(document), rows), 6)]
            if _asks_where(document)
            else []
        ),
        _Part("", lambda rows: _fold(present.plants(document), rows), 2),
        _Part("### Published claims", lambda rows: _table(provenance.claims(document), rows), 2),
        _Part("", lambda rows: _pending(document)),
        _Part("", lambda rows: _fold(provenance.claims_in_full(document), rows), 5),
        _Part("", lambda rows: _fold(provenance.claim_differences(document), rows), 5),
        _Part("", lambda rows: _fold(provenance.published(document), rows), 4),
        _Part("", lambda rows: _sources(document, rows), 4),
        _Part("### Not tested", lambda rows: _open(document, rows), 2),
        _Part("### Environment", lambda rows: _environment(document, rows), 2),
        _Part("### Raw data", lambda rows: _table(provenance.recordings(document), rows), 2),
        _Part("", lambda rows: _fold(provenance.hashes(document), rows), 5),
        _Part("", lambda rows: _fold_predictions(document, rows), 7),
        _Part("", lambda rows: _method(document)),
    ]


def _reproduce(document: Document) -> str:
    """The command that judges again, and those that made the recordings judged."""
    parts = [f"Judge the recordings again:\n\n{md_block(document['reproduce'], 'sh')}"]
    made = provenance.commands(document)
    if made:
        parts.append(
            "Record again, on such a machine, each into a folder of its own (else as it was made for this verdict):"
        )
        parts.append(md_block("\n".join(made), "sh"))
    return "\n\n".join(parts) if made else md_block(document["reproduce"], "sh")


def _matrices(document: Document, rows: int) -> str:
    """A fold for each group of explanations, and once what the marks mean."""
    tables = {group: present.matrix(document, group) for group in present.groups(document)}
    folds = [
        _fold(replace(table, note=""), rows, f"Evidence matrix, {group.replace('_', ' ')}")
        for group, table in tables.items()
        if table.rows
    ]
    legend = next((md(table.note) for table in tables.values() if table.rows), "")
    return "\n\n".join(part for part in (*folds, legend) if part)


def _kernels(document: Document, rows: int) -> str:
    table = present.kernels(document)
    body = _table(table, rows)
    if not body:
        return ""
    said = [f"- {md(text)}" for text in (document.get("boundary") or {}).get("sentences", ())]
    return fold(f"{table.title} ({len(table.rows)})", "\n".join([*said, "", body] if said else [body]))


def _open(document: Document, rows: int) -> str:
    """Every question with what it needs and its command, those that need the same command together."""
    items = document["open"]
    parts = []
    for item in items[:rows]:
        needs = f" Needs {item['needs']}." if item["needs"] else ""
        asked = md(words.sentence(item["text"]) + needs)
        parts.append(f"- {asked}\n\n{_indented(md_block(item['run'], 'sh'))}")
    if len(items) > rows:
        parts.append(f"{len(items) - rows} more are in report.html")
    return "\n\n".join(parts)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _table(table: Table, rows: int) -> str:
    if not table.rows:
        return ""
    return to_markdown(table.head(rows)) if rows else md(table.head(0).note)


def _fold(table: Table, rows: int, title: str | None = None) -> str:
    body = _table(table, rows)
    return fold(f"{title or table.title} ({len(table.rows)})", body) if body else ""


def fold(title: str, body: str) -> str:
    """A part that GitHub shows closed."""
    return f"<details>\n<summary>{md(title)}</summary>\n\n{body}\n\n</details>"


def _asks_where(document: Document) -> bool:
    """Whether the investigation looks inside the step at all: it names the notebook of kernels, or none."""
    notebooks = document.get("notebooks") or ()
    return not notebooks or "02_profile_kernels" in notebooks


def _environment(document: Document, rows: int) -> str:
    parts = [_table(made(document), rows) for made in (provenance.devices, provenance.environment)]
    return "\n\n".join(part for part in parts if part)


def _questions(document: Document) -> str:
    parts = []
    for item in document.get("questions") or ():
        answers = "\n".join(f"- {md(text)}" for text in item["sentences"])
        parts.append(f"**{md(item['question'])}**\n\n{answers}")
    return "\n\n".join(parts)


def _chain(document: Document, rows: int) -> str:
    if not document["links"]:
        return ""
    return "\n\n".join(
        [
            chain_diagram(document),
            _table(present.links(document), MOST_ROWS),
            md(present.chain_text(document)),
        ]
    )


def chain_diagram(document: Document) -> str:
    """The causal chain as a mermaid diagram that GitHub draws."""
    lines = ["```mermaid", "flowchart LR"]
    names = []
    for index, link in enumerate(document["links"]):
        sign, word = words.LINK_SIGN.get(link["verdict"], "?"), words.LINK_TEXT.get(link["verdict"], "?")
        names.append(f"L{index}")
        text = "<br>".join(textwrap.wrap(mermaid(link["text"], LABEL_CHARACTERS), LABEL_WIDTH))
        label = f"{mermaid(link['id'], 12)}: {text}<br>{sign} {word}"
        lines.append(f'  L{index}["{label}"]:::{_diagram_class(link)}')
    lines += [f"  {a} --> {b}" for a, b in pairwise(names)]
    lines += [
        "  classDef seen stroke:#b5410f,stroke-width:2px",
        "  classDef not stroke:#0b6e63,stroke-width:2px,stroke-dasharray:5 3",
        "  classDef unclear stroke:#7a5b00,stroke-dasharray:2 2",
        "```",
    ]
    return "\n".join(lines)


def _diagram_class(link: Mapping[str, Any]) -> str:
    return {"shown": "seen", "not_shown": "not"}.get(link["verdict"], "unclear")


def _causes(document: Document, rows: int) -> str:
    if not document["hypotheses"]:
        return ""
    lines = [_table(present.hypotheses(document), MOST_ROWS)]
    ruled_out = [item for item in document["hypotheses"] if item["status"] == "contradicted"]
    if ruled_out:
        lines.append("**Ruled out, and by what:**")
        items = []
        for item in ruled_out:
            failed = [p for p in item["predictions"] if p["holds"] is False and p["necessary"]]
            seen = "; ".join(
                f"{md(present.failed_prediction(p))} ({md(figures_of(p))}; {md(_recordings(p))})"
                for p in failed[:2]
            )
            items.append(f"- {md(words.capital(item['title']))}: {seen or md(item['reason'])}")
        lines.append("\n".join(items))
    decide = present.deciding(document)
    if decide:
        lines.append("**What would decide:**")
        lines += [
            "\n".join([*(f"- {md(text)}" for text in texts), "", md_block(run, "sh")])
            for run, texts in decide.items()
        ]
    return "\n\n".join(lines)


def figures_of(prediction: Mapping[str, Any]) -> str:
    """What was observed without the outcome in front of it."""
    _, _, figures = str(prediction["observed"]).partition(": ")
    return figures or str(prediction["observed"])


def _recordings(prediction: Mapping[str, Any]) -> str:
    """Recordings that a prediction was judged on; where there is none, the place as it stands."""
    named = dict.fromkeys(
        str(place["recording"]) for place in prediction.get("places") or () if place["recording"]
    )
    return ", ".join(named) or str(prediction["evidence"])


def _fold_predictions(document: Document, rows: int) -> str:
    if not rows and document["hypotheses"]:
        return "What each cause predicts, one by one, is in report.html."
    folds = []
    for item in document["hypotheses"]:
        if item["predictions"]:
            table = _table(present.predictions(item, short=True, names=present.titles(document)), rows)
            folds.append(fold(f"Predictions of: {item['title']} ({len(item['predictions'])})", table))
    return "\n\n".join(folds)


def _pending(document: Document) -> str:
    """The commands that claims wait for."""
    pending = [item for item in document["claims"] if item["pending"]]
    parts = ["Pending, one command each:"] if pending else []
    parts += [
        f"- {md(item['source'])}, {md(item['text'])}\n\n{_indented(md_block(item['pending'], 'sh'))}"
        for item in pending
    ]
    return "\n\n".join(parts)


def _sources(document: Document, rows: int) -> str:
    """Addresses of what was published."""
    addresses = dict.fromkeys(
        web_address(item["url"]) for item in [*document["claims"], *document["published"]]
    )
    sources = [f"- <{address}>" for address in addresses if address]
    if not sources:
        return ""
    left = [f"- {len(sources) - rows} more are in report.html"] if len(sources) > rows else []
    return fold(f"Sources ({len(sources)})", "\n".join(sources[:rows] + left))


def _live(document: Document) -> str:
    live = document.get("live")
    if not live:
        return ""
    lines = [md(text) for text in live["sentences"]]
    return "\n".join(f"- {line}" for line in lines)


METHOD = (
    "One process per arm and block, arms in random order inside a block, median of each run, paired t on block "
    "log-ratios. Ratios are times: +5 % is slower. The detection limit is the smallest true change that "
    "would have been seen with 80 % power. A cause is supported only where a prediction holds that its rivals do not "
    "share, and contradicted only where a necessary one fails within the detection limit. Published numbers are "
    "quoted, never mixed with measured ones. Nothing was run on ROCm unless the environment above says so."
)


def _method(document: Document) -> str:
    said = provenance.fork_sentence(document)
    return fold("Method and its limits", f"{METHOD}\n\n{md(said)}" if said else METHOD)
