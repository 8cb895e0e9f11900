"""The parts a diagnosis is made of: evidence, outcomes of checks, estimates and table rows.

``records`` documents them field by field, in the form of verdict.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mechanism(StrEnum):
    """How an arm differs from the baseline, read from measurements."""

    NONE = "none"
    MORE_KERNELS = "more_kernels"
    SLOWER_KERNELS = "slower_kernels"
    LONGER_GAPS = "longer_gaps"
    MIXED = "mixed"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Evidence:
    """One thing seen and the place where anyone can see it again.

    Attributes:
        text: a sentence with the figures.
        recording: name of the recording, "" for tables and published numbers.
        arms: arms it speaks about.
        source: "samples", "kernels", "runs", "trace", "snapshot", "manifest", "table" or "published".
        notebook: notebook that shows it, such as "03_allocator", or "".
        value: the figure, in ``unit``.
        ci_low: lower bound of its interval.
        ci_high: upper bound.
        unit: "ratio", "us", "bytes", "share", "count" or "".
        n: replicates (blocks or processes) behind it.
        detection_limit: smallest true difference that would have been seen with 80 % power, in ``unit``
            (for ratios: as |ratio - 1|).
        replicate: what one of ``n`` is: "block", "process", or "block of one process".
        device: the device it was seen on, where a case has evidence of several; else "".
        note: what must stand beside the figure (runs that did not settle, a control of its own), part of ``text``.
    """

    text: str
    recording: str = ""
    arms: tuple[str, ...] = ()
    source: str = ""
    notebook: str = ""
    value: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    unit: str = ""
    n: int | None = None
    detection_limit: float | None = None
    replicate: str = "block"
    device: str = ""
    note: str = ""

    @property
    def place(self) -> str:
        """Device, recording, source, arms and notebook in one line."""
        arms = "/".join(self.arms)
        parts = [
            self.device,
            self.recording,
            " ".join(part for part in (self.source, arms) if part),
            self.notebook,
        ]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Outcome:
    """What one check found.

    Attributes:
        name: one of the outcomes that the check's vocabulary lists, or None where it was not tested.
        definite: whether the data decide; "undecided" and a lone run are not definite.
        observed: the finding in words.
        evidence: where it was seen.
        reason: why it was not tested or not decided, "" otherwise.
        detection_limit: smallest difference that would have been seen, as the check's unit has it.
    """

    name: str | None
    definite: bool
    observed: str
    evidence: tuple[Evidence, ...] = ()
    reason: str = ""
    detection_limit: float | None = None


@dataclass(frozen=True)
class Difference:
    """An environment key in which a claim and our recording differ; None = not told."""

    key: str
    published: str | None
    here: str | None


@dataclass(frozen=True)
class ArmEstimate:
    """One arm against another: the paired comparison in the form of the document."""

    arm: str
    against: str
    metric: str
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    mde: float | None
    p_value: float | None
    verdict: str
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    role: str = ""
    summary: str = ""
    recording: str = ""
    live_bytes: int | None = None
    caveat: str = ""


@dataclass(frozen=True)
class Noise:
    """The A/A comparison."""

    arms: tuple[str, ...]
    ratio: float
    ci_low: float
    ci_high: float
    floor: float
    detectable: float | None
    n: int
    verdict: str
    text: str


@dataclass(frozen=True)
class FixResult:
    """A fix variant: time, memory, correctness, verdict."""

    arm: str
    role: str
    summary: str
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    mde: float | None
    n: int
    verdict: str
    reasons: tuple[str, ...]
    recovered: float | None
    memory_bytes: int | None
    memory_delta_bytes: int | None
    live_bytes: int | None
    correct: bool | None
    output_rel_error: float | None
    best: bool
    text: str
    kv_delta_bytes: int | None = None
    output: str = ""


@dataclass(frozen=True)
class MechanismResult:
    """How an arm differs from the baseline, from measurements alone."""

    arm: str
    kind: Mechanism
    share: float | None
    text: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class PlantResult:
    """A planted regression: what was planted, whether it was seen, what it was taken for; ``named``: for what it is."""

    arm: str
    planted: str
    found: bool | None
    diagnosed: str
    text: str
    named: bool = False


@dataclass(frozen=True)
class KernelResult:
    """One kernel timed alone, suspect against baseline, over blocks.

    ``share``: its part of the baseline's step; ``ceiling``: the part of the device's measured rate that it reaches
    in the baseline (bandwidth of a copy, or matrix rate), None where its kind has none.
    """

    kernel: str
    bound: str
    per_step: float | None
    base_us: float
    delta_us: float
    ratio: float
    ci_low: float | None
    ci_high: float | None
    mde: float | None
    share: float | None
    verdict: str
    ceiling: float | None = None
    against_boundary: str = ""  # "below", "within", "above", of one boundary or of " two"; "" where not known


@dataclass(frozen=True)
class Boundary:
    """The price of one kernel boundary, and what it explains.

    Attributes:
        base_us: price in the baseline, microseconds between tiny kernels of a graph.
        delta_us: what the suspect pays more, mean over blocks.
        ci_low_us: lower bound of its interval.
        ci_high_us: upper bound.
        n: blocks.
        gap_us: what a gap of the suspect's traced step is longer, or None.
        share: what ``delta_us`` at each boundary of the traced step makes of the step's difference, or None.
        boundaries: boundaries of the traced step, or None.
        recording: where it was measured.
        sentences: the same in words, and what it says about kernels timed alone.
    """

    base_us: float
    delta_us: float
    ci_low_us: float
    ci_high_us: float
    n: int
    gap_us: float | None
    recording: str
    sentences: tuple[str, ...]
    share: float | None = None
    boundaries: float | None = None


@dataclass(frozen=True)
class Reconciliation:
    """Whether what changed inside a trace explains what changed in the timed step, microseconds a step.

    ``kernels_us``: kernels that both have; ``launches_us``: kernels that only one has, each with one gap of the
    baseline; ``gaps_us``: the other gaps. With ``unexplained_us`` they add up to ``measured_us``.
    """

    arm: str
    measured_us: float | None
    gaps_us: float | None
    kernels_us: float | None
    explained: float | None
    unexplained_us: float | None
    text: str
    launches_us: float | None = None


@dataclass(frozen=True)
class PublishedNumber:
    """A number from elsewhere with its source."""

    id: str
    source: str
    url: str
    label: str
    value: float
    unit: str
    note: str = ""


@dataclass(frozen=True)
class OpenQuestion:
    """Something that was not tested, the run that would test it, and what that run needs."""

    text: str
    run: str
    needs: str = ""
