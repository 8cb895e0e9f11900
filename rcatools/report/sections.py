"""The sections of the page, as data for the template."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rcatools import units
from rcatools.report import answers, figures, fix_table, present, provenance, serving_view, words
from rcatools.report.charts import Chart, is_empty
from rcatools.report.findings import METHOD
from rcatools.report.measured import Facts, Measured
from rcatools.report.questions import OF_A_GAIN, QUESTIONS
from rcatools.report.safe import clean
from rcatools.report.section_tables import failed_runs_table, ledger_table, overview_arms, pins_table
from rcatools.report.svg import draw
from rcatools.report.table import Cell, Table, make, to_html

Document = Mapping[str, Any]
MOST_STACKED = 7  # columns up to which a row reads well as a block


@dataclass
class Section:
    """One section: plain sentences, then HTML blocks made of escaped text only."""

    id: str
    title: str
    question: str = ""
    sentences: Sequence[str] = ()
    blocks: list[str] = field(default_factory=list)
    chain: Sequence[Mapping[str, Any]] = ()


class Builder:
    """Collects sections and the charts they use."""

    def __init__(self, document: Document, measured: Measured, facts: Facts) -> None:
        self.document, self.measured, self.facts = document, measured, facts
        self.charts: dict[str, Chart] = {}

    def sections(self) -> list[Section]:
        """All sections that have something to say."""
        asked = self.document.get("notebooks") or ()
        made = [
            self._questions(),
            self._chain(),
            self._causes(),
            self._fixes(),
            *([self._time()] if not asked or "02_profile_kernels" in asked else []),
            *([self._memory()] if not asked or "03_allocator" in asked else []),
            self._arms(),
            *self._further(asked),
            self._claims(),
            self._open(),
            self._preflight(),
            self._data(),
            Section(
                "method",
                "Method and its limits",
                sentences=list(filter(None, [METHOD, provenance.fork_sentence(self.document)])),
            ),
        ]
        return [item for item in made if item.blocks or item.chain or item.sentences]

    def figure(self, chart: Chart, *, wide_table: bool = True) -> str:
        """A figure with its static drawing, room for the interactive one, and its table."""
        if is_empty(chart):
            return ""
        self.charts[chart.id] = chart
        key = html.escape(chart.id, quote=True)
        title, text = html.escape(clean(chart.title)), html.escape(clean(self._placed(chart.description)))
        table = to_html(chart.table(), caption=False) if wide_table else ""
        numbers = f"<details><summary>Numbers of this figure</summary>{table}</details>" if table else ""
        return (
            f'<figure id="fig-{key}"><figcaption>{title}<span>{text}</span></figcaption>'
            f'<div data-chart="{key}"><div class="plot" role="img" aria-label="{title}" hidden></div>{draw(chart)}</div>'
            f'<div class="tools"><button type="button" data-save="{key}" aria-label="Save as PNG: {title}" hidden>'
            f"Save as PNG</button></div>{numbers}</figure>"
        )

    def _placed(self, description: str) -> str:
        """A figure's description with its device, where the evidence comes from several and it names none."""
        environment = self.document["environment"]
        names = [str(item["device"]) for item in environment.get("devices") or ()]
        if len(names) < 2 or any(name in description for name in names):
            return description
        return f"{description} Measured on {environment['device']}."

    def _questions(self) -> Section:
        blocks = []
        for item in self.document.get("questions") or ():
            answers = "".join(
                f"<li>{html.escape(clean(words.sentence(text)))}</li>" for text in item["sentences"]
            )
            blocks.append(
                f'<h3>{html.escape(clean(item["question"]))}</h3><ul class="details">{answers}</ul>'
            )
        return Section("asked", "What was asked", "", (), blocks)

    def _further(self, notebooks: Sequence[str]) -> list[Section]:
        """Sections of the investigation's own notebooks."""
        if "06_vime_decode" not in notebooks:
            return []
        from rcatools.report import vime_page

        return vime_page.sections(self)

    def _asked(self, notebook: str) -> str:
        """A notebook's question, as it reads for a loss or a gain."""
        return OF_A_GAIN[notebook] if words.is_gain(self.document) else QUESTIONS[notebook]

    def _answer(self, notebook: str) -> list[str]:
        return [words.sentence(text) for text in answers.ANSWERS[notebook](self.document, self.measured)]

    def _chain(self) -> Section:
        ends = self.document["chain"]["ends_at"]
        steps = [
            {
                "id": link["id"],
                "text": link["text"],
                "verdict": words.link(link["verdict"]),
                "tone": words.LINK_TONE.get(link["verdict"], "open"),
                "why": clean(present.why(link)),
                "as_cause": link["as_cause"],
                "ends": link["id"] == ends,
            }
            for link in self.document["links"]
        ]
        evidence = [
            [Cell(f"({link['id']})"), item["text"], _place(item), _limit(item)]
            for link in self.document["links"]
            for item in link["evidence"]
        ]
        table = make("Evidence of the links", ["Link", "Seen", "Where", "Detection limit"], evidence)
        return Section(
            "chain",
            "Causal chain",
            "Every link is tested by itself; the first that is not shown ends the chain as a cause.",
            [words.sentence(text) for text in [present.chain_text(self.document)] if text],
            [folded("Evidence of every link", table)] if evidence else [],
            steps,
        )

    def _causes(self) -> Section:
        document = self.document
        blocks = []
        if document["hypotheses"]:
            table = to_html(present.hypotheses(document), caption=False, stacked=True)
            blocks.append(f'<div class="causes">{table}</div>')
        for run, texts in present.deciding(document).items():
            said = "".join(f"<p>{html.escape(clean(text))}</p>" for text in texts)
            blocks.append(f"<p><strong>What would decide:</strong></p>{said}{command(run)}")
        for group in present.groups(document):
            matrix = present.matrix(document, group, tested_only=True)
            if matrix.rows:
                blocks.append(f"<h3>Evidence matrix: {html.escape(clean(group.replace('_', ' ')))}</h3>")
                blocks.append(f'<div class="matrix">{to_html(matrix, caption=False, stacked=True)}</div>')
        if document["observations"]:
            blocks.append(
                folded("Every check, tested or not, with its figures", present.observations(document))
            )
        for item in document["hypotheses"]:
            if item["predictions"]:
                reason = f"<p>{html.escape(clean(words.sentence(item['reason'])))}</p>"
                title = f"Predictions of: {item['title']}"
                names = present.titles(document)
                blocks.append(folded(title, present.predictions(item, names=names), before=reason))
        return Section("causes", "Rival causes", QUESTIONS["05_findings"], (), blocks)

    def _fixes(self) -> Section:
        blocks = [self.figure(figures.fixes(self.document, self.facts.margin))]
        if self.document["fixes"]:
            blocks.append(to_html(fix_table.fixes(self.document), stacked=True))
        return Section(
            "fixes",
            "Fix variants",
            self._asked("04_compare_fixes"),
            self._answer("04_compare_fixes") if self.document["fixes"] else (),
            [block for block in blocks if block],
        )

    def _time(self) -> Section:
        blocks = [
            self.figure(figures.where_time_went(self.document)),
            self.figure(figures.gaps(self.measured, self.facts.recording)),
            self.figure(figures.kernels(self.document, self.facts.margin)),
            self.figure(figures.kernel_differences(self.document)),
            self.figure(figures.ceiling_share(self.document)),
        ]
        for table in (present.reconcile, present.mechanisms, present.kernels, present.plants):
            made = table(self.document)
            if made.rows:
                blocks.append(folded(made.title, made))
        return Section(
            "time",
            "Kernels and gaps",
            QUESTIONS["02_profile_kernels"],
            self._answer("02_profile_kernels"),
            [block for block in blocks if block],
        )

    def _memory(self) -> Section:
        arms = overview_arms(self.document, self.measured, self.facts)
        blocks = [self.figure(figures.allocator(self.measured, self.facts.recording, arms))]
        for title, table in (
            ("Allocator ledger, every arm and stream", ledger_table(self.measured)),
            ("Live blocks and who holds them", pins_table(self.measured)),
        ):
            if table.rows:
                blocks.append(folded(title, table))
        return Section(
            "memory",
            "Allocator",
            QUESTIONS["03_allocator"],
            self._answer("03_allocator"),
            [block for block in blocks if block],
        )

    def _arms(self) -> Section:
        facts = self.facts
        blocks = [self.figure(curve) for curve in figures.families(self.document, facts.margin)]
        blocks += [to_html(table) for table in serving_view.tables(self.measured, facts)]
        blocks.append(self.figure(figures.arms(self.document, facts.margin)))
        blocks.append(self.figure(figures.blocks(self.document, self.measured, facts)))
        if self.document["arms"]:
            blocks.append(folded("All arms with detection limits and reasons", present.arms(self.document)))
        return Section(
            "arms",
            "The effect, arm by arm",
            self._asked("01_reproduce"),
            self._answer("01_reproduce"),
            [b for b in blocks if b],
        )

    def _claims(self) -> Section:
        blocks = []
        for made, caption in (
            (provenance.claims(self.document), False),
            (provenance.published(self.document), True),
        ):
            if made.rows:
                blocks.append(to_html(made, caption=caption, stacked=True))
        for made in (provenance.claims_in_full(self.document), provenance.claim_differences(self.document)):
            if made.rows:
                blocks.append(folded(made.title, made))
        blocks += [
            f"<p>Pending: {html.escape(clean(item['source']))}, {html.escape(clean(item['text']))}</p>{command(item['pending'])}"
            for item in self.document["claims"]
            if item["pending"]
        ]
        return Section(
            "claims",
            "Published claims",
            "What was published elsewhere, and what this recording says to it.",
            (),
            blocks,
        )

    def _open(self) -> Section:
        table = provenance.open_questions(self.document)
        blocks = [to_html(table, caption=False, stacked=True)] if table.rows else []
        return Section("open", "Not tested", "", (), blocks)

    def _preflight(self) -> Section:
        chart = figures.baseline_series(self.measured, self.facts)
        blocks = [self.figure(chart)]
        for made in (provenance.devices(self.document), provenance.environment(self.document)):
            if made.rows:
                blocks.append(to_html(made, caption=False))
        checks = provenance.checks(self.document)
        if checks.rows:
            blocks.append(folded(checks.title, checks))
        live = self.document.get("live")
        sentences = self._answer("00_preflight")
        if live:
            sentences = [*sentences, *live["sentences"]]
        return Section(
            "machine",
            "Machine and noise",
            QUESTIONS["00_preflight"],
            sentences,
            [b for b in blocks if b],
        )

    def _data(self) -> Section:
        blocks = ["<h3>Judge the recordings again</h3>", command(self.document["reproduce"])]
        made = provenance.commands(self.document)
        if made:
            blocks += ["<h3>Record again, on such a machine</h3>", *(command(text) for text in made)]
        recordings, hashes = provenance.recordings(self.document), provenance.hashes(self.document)
        if recordings.rows:
            blocks.append(to_html(recordings, stacked=True))
        if hashes.rows:
            blocks.append(folded(hashes.title, hashes))
        failed = failed_runs_table(self.measured)
        if failed.rows:
            blocks.append(folded(failed.title, failed))
        problems = self.measured.problems
        if len(problems):
            rows = [[str(value) for value in row] for row in problems.itertuples(index=False, name=None)]
            blocks.append(to_html(make("Files that could not be read", list(problems.columns), rows)))
        return Section("data", "Raw data", "", (), blocks)


def folded(title: str, table: Table, before: str = "") -> str:
    """A table behind a summary; ``before`` is HTML made of escaped text."""
    body = before + to_html(table, caption=False, stacked=len(table.columns) <= MOST_STACKED)
    return f"<details><summary>{html.escape(clean(title))}</summary>{body}</details>"


def command(text: str) -> str:
    """A command in a block."""
    return f'<pre tabindex="0"><code>{html.escape(clean(text))}</code></pre>' if text else ""


def _place(item: Mapping[str, Any]) -> str:
    parts = [item["recording"], item["source"], "/".join(item["arms"]), item["notebook"]]
    return ", ".join(part for part in parts if part)


def _limit(item: Mapping[str, Any]) -> str:
    value = item["detection_limit"]
    if value is None:
        return ""
    forms: dict[str, Callable[[float | None], str]] = {
        "us": units.duration_us,
        "bytes": units.byte_size,
        "ratio": units.percent,
        "share": units.percent,
    }
    return forms.get(item["unit"], units.significant)(value)
