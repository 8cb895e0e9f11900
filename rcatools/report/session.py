"""What the notebooks use: open a case, show tables and charts, give the answer.

case = session.open_case("capture-stream")
case.show(fix_table.fixes(case.document))
case.answer("04_compare_fixes")
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rcatools.files import write_json
from rcatools.report import answers
from rcatools.report.charts import Bars, Chart, Curve, Drawn, Forest, Strip, is_empty
from rcatools.report.evidence import FOLDER, Evidence, load_or_gather
from rcatools.report.inputs import inputs
from rcatools.report.plot import figure
from rcatools.report.questions import QUESTIONS
from rcatools.report.safe import clean, md
from rcatools.report.svg import draw
from rcatools.report.table import Table, to_html, to_markdown

RESULTS = "results"


class Case:
    """One investigation with its evidence, for a notebook.

    Attributes:
        document: verdict.json.
        measured: tables read from the recordings.
        facts: name of the first recording, metric, baseline, margin, A/A arms.
        out: report folder, or None.
    """

    def __init__(self, evidence: Evidence, out: Path | None = None) -> None:
        self.document, self.measured, self.facts = evidence.document, evidence.measured, evidence.facts
        self.out = out

    @property
    def margin(self) -> float | None:
        """The equivalence margin as a fraction."""
        return self.facts.margin

    @property
    def recording(self) -> str:
        """Name of the recording that decides the device."""
        return self.facts.recording

    @property
    def suspect(self) -> str:
        """The suspect arm, "" where it was not measured."""
        return str(self.document["effect"]["arm"]) if self.document["effect"] else ""

    def show(self, item: Chart | Drawn | Table | str) -> None:
        """Display a chart, a table or a sentence; what is empty says so."""
        from IPython.display import display

        display(bundle(item), raw=True)

    def sentences(self, notebook: str) -> list[str]:
        """The answer of a notebook as the case gives it."""
        return list(answers.ANSWERS[notebook](self.document, self.measured))

    def answer(self, notebook: str, sentences: Sequence[str] | None = None) -> None:
        """Display the answer of a notebook; with a report folder also write its result file.

        ``sentences``: the answer, where the notebook made it from more than the case.
        """
        from IPython.display import display

        sentences = sentences or self.sentences(notebook)
        text = "\n".join(f"- {md(sentence)}" for sentence in sentences)
        display({"text/markdown": f"**Answer**\n\n{text}", "text/plain": "\n".join(sentences)}, raw=True)
        if self.out:
            write_json(
                self.out / RESULTS / f"{notebook}.json",
                {
                    "notebook": notebook,
                    "state": "done",
                    "question": QUESTIONS[notebook],
                    "answer": sentences,
                },
            )


def open_case(
    investigation: str,
    recordings: Sequence[str] = (),
    *,
    margin: float = 0.0,
    drop_arms: Sequence[str] = (),
    out: str = "",
) -> Case:
    """Judge an investigation, or read what a report run has judged already.

    Args:
        investigation: folder name in data/investigations.
        recordings: folders or names of embedded recordings; none: the embedded ones.
        margin: equivalence margin as a fraction; 0: the investigation's own.
        drop_arms: arms to leave out.
        out: report folder for the result file and shared evidence; "": none.

    Raises:
        InputError: an unknown investigation, recording or arm, or a recording that cannot be used.
    """
    asked = inputs(investigation, recordings, margin or None, drop_arms)
    folder = Path(out) if out else None
    return Case(load_or_gather(asked, folder / FOLDER if folder else None), folder)


def bundle(item: Chart | Drawn | Table | str) -> Mapping[str, Any]:
    """A display bundle: the richest form first, and one that every viewer can show."""
    if isinstance(item, Forest | Bars | Strip | Curve):
        if is_empty(item):
            return _sentence(f"{item.title}: nothing was recorded to draw.")
        plotly = json.loads(figure(item).to_json())
        return {
            "application/vnd.plotly.v1+json": plotly,
            "image/svg+xml": draw(item, standalone=True),
            "text/plain": f"{clean(item.title)}\n{item.table().frame().to_string(index=False)}",
        }
    if isinstance(item, Drawn):
        return {"application/vnd.plotly.v1+json": json.loads(item.figure.to_json()), **_of_table(item.table)}
    if isinstance(item, Table):
        if not item.rows:
            return _sentence(f"{item.title}: nothing was recorded.")
        return _of_table(item)
    return _sentence(item)


def _of_table(table: Table) -> Mapping[str, Any]:
    return {
        "text/html": to_html(table),
        "text/markdown": to_markdown(table),
        "text/plain": f"{clean(table.title)}\n{table.frame().to_string(index=False)}",
    }


def _sentence(text: str) -> Mapping[str, Any]:
    return {"text/markdown": md(text), "text/plain": clean(text)}
