"""What the fleet notebook uses: index a folder, show tables and charts, give the answer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rcatools.batch import fleet, fleet_page, fleet_tables, index
from rcatools.batch.bisect import Settings
from rcatools.errors import InputError
from rcatools.files import write_bytes, write_json
from rcatools.report.locate import checkout
from rcatools.report.safe import md
from rcatools.report.session import RESULTS, bundle

QUESTION = "What do all recordings say together, and which machine, day or commit is odd?"


class Fleet:
    """All recordings below a folder, for a notebook.

    Attributes:
        document: of ``fleet.overview``.
        tables: of the index.
        margin: deviation that does not matter.
        out: folder for the page and the result file, or None.
    """

    def __init__(self, tables: Mapping[str, pa.Table], margin: float, out: Path | None = None) -> None:
        self.tables, self.margin, self.out = tables, margin, out
        self.document = fleet.overview(tables, margin)
        self.jobs: list[Mapping[str, Any]] = tables["jobs"].to_pylist()
        self.trend: dict[str, Any] | None = None

    def show(self, item: Any) -> None:
        """Display a chart, a table or a sentence; what is empty says so."""
        from IPython.display import display

        display(bundle(item), raw=True)

    def show_summary(self) -> None:
        """How much was found, what stands out, what could not be read."""
        for text in fleet_tables.sentences(self.document):
            self.show(text)
        if self.document["problems"]:
            self.show(fleet_tables.problems_table(self.document))

    def show_verdicts(self) -> None:
        """Each arm over all recordings."""
        self.show(fleet_tables.arms_chart(self.document, self.margin))
        self.show(fleet_tables.arms_table(self.document))

    def show_rows(self) -> None:
        """State and verdict of every row of the sweeps."""
        self.show(fleet_tables.rows_table(self.jobs))

    def show_machines(self) -> None:
        """Noise floor per machine."""
        self.show(fleet_tables.machines_table(self.document))

    def show_trend(self, commits: Sequence[str], *, arm: str = "", by: Sequence[str] = ()) -> None:
        """A metric over commits with the first bad one; without commits a sentence.

        Raises:
            InputError: see ``fleet.trend``.
        """
        if not commits:
            self.show("No commits were given, so no trend is drawn.")
            return
        settings = Settings(margin=self.margin)
        found = fleet.trend(self.tables, commits, arm=arm, by=by, settings=settings).document()
        self.trend = found
        self.show(fleet_tables.trend_chart(found, self.margin))
        for text in fleet_tables.bisect_sentences(found):
            self.show(text)

    def answer(self, notebook: str) -> None:
        """Display the answer; with a folder also write the page and the notebook's result file."""
        from IPython.display import display

        sentences = fleet_tables.sentences(self.document)
        if self.trend:
            sentences += fleet_tables.bisect_sentences(self.trend)
        text = "\n".join(f"- {md(sentence)}" for sentence in sentences)
        display({"text/markdown": f"**Answer**\n\n{text}", "text/plain": "\n".join(sentences)}, raw=True)
        if self.out:
            write_bytes(
                self.out / "fleet.html", fleet_page.render(self.document, self.jobs, self.margin).encode()
            )
            write_json(
                self.out / RESULTS / f"{notebook}.json",
                {"notebook": notebook, "state": "done", "question": QUESTION, "answer": sentences},
            )


def open_fleet(folder: str = "", *, margin: float = fleet.DEFAULT_MARGIN, out: str = "") -> Fleet:
    """Index a folder and judge all of it.

    Args:
        folder: holds recordings, reports or sweeps; "": the embedded recordings, whose folder is not written to.
        margin: deviation that does not matter.
        out: folder for the page and the result file; "": nothing is written.

    Raises:
        InputError: no such folder, or a margin outside 0 to 1.
    """
    if not 0 < margin < 1:
        raise InputError(f"margin must be between 0 and 1 (0.01 is 1 %), got {margin}")
    if folder:
        root = Path(folder)
        index.update(root)
        return Fleet(index.open_store(root / index.STORE), margin, Path(out) if out else None)
    with tempfile.TemporaryDirectory() as store:
        index.update(checkout() / "data" / "recordings", Path(store))
        return Fleet(index.open_store(Path(store)), margin, Path(out) if out else None)
