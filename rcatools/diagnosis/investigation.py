"""An investigation as data: the form of investigation.yaml.

    slug, title, question
    effect:        suspect, baseline, metric, unit, margin, repeat (A/A arms), noun, boundary_metric,
                   scope, beside
    arms:          name -> {role, text}
    tables:        name -> CSV file beside the investigation, or "" for one that the caller brings
    made_by:       name of a table -> the command that made it, or the companion recording it was taken from
    observations:  id -> a check (see ``vocabulary``), each asked once
    links:         the causal chain in order: {id, text, all: {observation: outcomes}, any: {...}}
    hypotheses:    {id, group, title, stands, mechanism, source, predicts, suggests, remarks, written_after}
    plants:        arm -> mechanisms it may be taken for
    claims:        {id, source, url, date, text, published, environment, cause, judged, pending}
    claim_tables:  published values in a table, one claim a row
    companions:    recording of a further workload -> what it adds; checks name it in ``recording``
    notebooks:     notebooks of the report, where they are not the general ones
    published:     name of the table of published numbers (id, source, url, label, value, unit, note)
    open:          {text, run, needs}
    reproduce:     one command

A hypothesis *predicts* (necessary: if it fails, the hypothesis falls) or *suggests* (not necessary) outcomes of
observations. What it does not mention it allows. Rivals are the other hypotheses of its group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import pandas as pd

from rcatools.diagnosis.vocabulary import AnyCheck, Quantity

Outcomes = str | list[str]
Expectations = dict[str, Outcomes]


class _Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every mapping of the file: unknown keys are refused."""


class Effect(_Form, frozen=True, kw_only=True):
    """The comparison the investigation is about; times, so larger is slower. ``boundary_metric``: the metric that
    holds the price of one kernel boundary, where runs measure it. ``noun``: what is timed; ``{name}`` in it becomes
    a workload parameter, or a fact that all runs share. ``scope``: what the comparison does not cover.
    ``beside``: ratios that belong beside the headline figure, as observation -> what it is the time of."""

    suspect: str
    baseline: str
    metric: str
    margin: float
    unit: str = "us"
    repeat: list[str] = []
    noun: str = "the measured time"
    boundary_metric: str = ""
    scope: str = ""
    beside: dict[str, str] = {}

    def __post_init__(self) -> None:
        if not 0 < self.margin < 1:
            raise ValueError(f"the margin must lie between 0 and 1 (0.01 = 1 %), got {self.margin}")


class Arm(_Form, frozen=True, kw_only=True):
    """What an arm is for; how it is run stands in arms.toml."""

    text: str
    role: Literal[
        "baseline", "repeat", "suspect", "fix", "probe", "plant_additive", "plant_multiplicative"
    ] = "probe"


class Link(_Form, frozen=True, kw_only=True):
    """One link of the chain: every expectation of ``all`` and one of ``any`` must be seen."""

    id: str
    text: str
    all: Expectations = {}
    any: Expectations = {}

    def __post_init__(self) -> None:
        if not self.all and not self.any:
            raise ValueError("a link needs 'all' or 'any'")


class Remark(_Form, frozen=True, kw_only=True):
    """A sentence that is said only where every observation of ``when`` came out as named.

    ``{observation}`` in the text becomes its figures. Beside the outcomes of a check, ``not_tested`` and
    ``undecided`` may be named, so that what is unknown is said too.
    """

    when: Expectations
    text: str


class Hypothesis(_Form, frozen=True, kw_only=True):
    """A cause (or an owner): what must be seen if it holds. ``stands``: a clause for the answer, in which
    ``{observation}`` becomes its figures.

    ``remarks``: what observations say beyond it, in reading order.
    ``written_after`` names recordings (by ``created_utc``) that had been seen when the predictions took
    their present form: on those they are a description, on others a test.
    """

    id: str
    title: str
    stands: str
    mechanism: str = ""
    group: str = "cause"
    source: str = ""
    is_null: bool = False
    predicts: Expectations
    suggests: Expectations = {}
    remarks: list[Remark] = []
    written_after: tuple[str, ...] = ()


class ByEffect(_Form, frozen=True, kw_only=True, tag_field="by", tag="effect"):
    """A published effect: time ratio candidate / baseline, against the same pair of arms here."""

    ratio: float | Quantity
    arm: str
    against: str = ""
    tolerance: float = 0.02


class ByObservation(_Form, frozen=True, kw_only=True, tag_field="by", tag="observation"):
    """A statement that an observation settles."""

    observation: str
    outcomes: Outcomes


class ByHypothesis(_Form, frozen=True, kw_only=True, tag_field="by", tag="hypothesis"):
    """A statement that a hypothesis is the cause or the owner."""

    hypothesis: str


class ByDeltas(_Form, frozen=True, kw_only=True, tag_field="by", tag="deltas"):
    """ "No difference" stated with relative differences (0.01 = 1 %): judged from the published numbers alone."""

    table: str
    column: str
    where: dict[str, str] = {}
    margin: float = 0.02
    scale: float = 1.0


class BySpeaksAbout(_Form, frozen=True, kw_only=True, tag_field="by", tag="speaks_about"):
    """A statement about another claim's measurement: only measurements under the same ``keys`` can carry it."""

    claim: str
    keys: list[str]


class ByValue(_Form, frozen=True, kw_only=True, tag_field="by", tag="value"):
    """A published value against a measured one, with the spread of the measurement where it is known."""

    measured: float | Quantity
    published: float | Quantity | None = None
    low: float | Quantity | None = None
    high: float | Quantity | None = None
    repeats: float | Quantity | None = None
    tolerance: float | Quantity = 0.05
    at_least: float | None = None
    higher_is_better: bool = True
    unit: str = ""


class ByNothing(_Form, frozen=True, kw_only=True, tag_field="by", tag="nothing"):
    """A statement that nothing here can speak about, and why."""

    because: str


Judged = ByEffect | ByObservation | ByHypothesis | ByDeltas | BySpeaksAbout | ByValue | ByNothing


class Claim(_Form, frozen=True, kw_only=True):
    """A published claim with its source. ``environment``: what is known of where it was measured; the key
    "code" with "uncommitted" says that the measured code is in no commit. ``reading``: a sentence to add, by the
    status it belongs to."""

    id: str
    text: str
    source: str
    published: str
    judged: Judged
    url: str = ""
    date: str = ""
    environment: dict[str, str] = {}
    cause: str = ""
    reading: dict[str, str] = {}
    pending: str = ""


class ClaimTable(_Form, frozen=True, kw_only=True):
    """Published values in a table, one claim a row; the entries name columns. ``tolerance`` (a share) holds where
    ``tolerance_percent`` names no column."""

    table: str
    id: str
    published: str
    measured: str
    source: str
    low: str = ""
    high: str = ""
    repeats: str = ""
    unit: str = ""
    tolerance: float = 0.05
    tolerance_percent: str = ""
    higher_is_better: bool = True


class Open(_Form, frozen=True, kw_only=True):
    """A question no recording here can answer."""

    text: str
    run: str
    needs: str = ""


class Spec(_Form, frozen=True, kw_only=True):
    """investigation.yaml as typed data."""

    slug: str
    title: str
    question: str
    effect: Effect
    arms: dict[str, Arm]
    observations: dict[str, AnyCheck]
    hypotheses: list[Hypothesis]
    links: list[Link] = []
    tables: dict[str, str] = {}
    made_by: dict[str, str] = {}
    plants: dict[str, list[str]] = {}
    claims: list[Claim] = []
    claim_tables: list[ClaimTable] = []
    companions: dict[str, str] = {}
    notebooks: list[str] = []
    published: str = ""
    open: list[Open] = []
    reproduce: str = ""


@dataclass(frozen=True)
class Investigation:
    """A checked investigation and the tables that stand beside it."""

    spec: Spec
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    source: str = ""
    sums: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each table's file

    @property
    def slug(self) -> str:
        """Its short name."""
        return self.spec.slug

    def arms_with_role(self, role: str) -> tuple[str, ...]:
        """Names of the arms of a role, in declared order."""
        return tuple(name for name, arm in self.spec.arms.items() if arm.role == role)

    def rivals(self, hypothesis: Hypothesis) -> tuple[Hypothesis, ...]:
        """The other hypotheses of its group."""
        return tuple(
            item
            for item in self.spec.hypotheses
            if item.group == hypothesis.group and item.id != hypothesis.id
        )


def outcomes_of(expected: Outcomes) -> tuple[str, ...]:
    """An expectation as a tuple of outcome names."""
    return (expected,) if isinstance(expected, str) else tuple(expected)


def expectations(spec: Spec) -> Iterator[tuple[str, str, Outcomes]]:
    """(place, observation, outcomes) of every expectation in links, hypotheses and claims."""
    for i, link in enumerate(spec.links):
        for part in ("all", "any"):
            for name, expected in getattr(link, part).items():
                yield f"links[{i}].{part}", name, expected
    for i, hypothesis in enumerate(spec.hypotheses):
        for part in ("predicts", "suggests"):
            for name, expected in getattr(hypothesis, part).items():
                yield f"hypotheses[{i}].{part}", name, expected
        for k, remark in enumerate(hypothesis.remarks):
            for name, expected in remark.when.items():
                yield f"hypotheses[{i}].remarks[{k}].when", name, expected
    for i, claim in enumerate(spec.claims):
        if isinstance(claim.judged, ByObservation):
            yield f"claims[{i}].judged", claim.judged.observation, claim.judged.outcomes
