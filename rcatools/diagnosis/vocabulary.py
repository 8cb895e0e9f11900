"""The checks a prediction, a link or a claim can name: parameters and possible outcomes of each.

A check looks at recordings (or tables) and ends in one of its outcomes, or in none: "not tested" where the
arm, the file or the device is missing, "undecided" where the interval is too wide. ``list_checks()`` prints
what stands here. How each one decides is told in its docstring; the code is in the modules ``checks`` and
``checks_*``.

The *effect* below is the suspect against the baseline on the declared metric.
"""

from __future__ import annotations

import typing
from typing import ClassVar, Literal

import msgspec


class Quantity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number from a table, or made of others; exactly one of the forms.

    ``value``; or ``table`` + ``column`` + ``where`` (one row must match); or ``sum``, ``product``, ``ratio``,
    ``difference`` (the last two of exactly two) of further quantities.
    """

    value: float | None = None
    table: str = ""
    column: str = ""
    where: dict[str, str | float | int] = {}
    sum: list[float | int | Quantity] = []
    product: list[float | int | Quantity] = []
    ratio: list[float | int | Quantity] = []
    difference: list[float | int | Quantity] = []

    def __post_init__(self) -> None:
        forms = [
            name
            for name in ("value", "table", "sum", "product", "ratio", "difference")
            if getattr(self, name) not in (None, "", [])
        ]
        if len(forms) != 1:
            raise ValueError(
                "a quantity needs exactly one of value, table, sum, product, ratio, difference; "
                f"got {', '.join(forms) or 'none'}"
            )
        if self.table and not self.column:
            raise ValueError("a quantity from a table needs its column")
        for name in ("ratio", "difference"):
            if getattr(self, name) and len(getattr(self, name)) != 2:
                raise ValueError(f"a {name} needs exactly two quantities")


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="check"):
    """What every check has.

    ``text``: what is looked at, as a sentence. ``needs``: "rocm", "cuda" or "gpu" where only such a device can
    answer. ``run``: the command that answers it, where it is not the plain ``rcatools record`` of its arms.
    ``notebook``: the notebook that shows it.
    """

    OUTCOMES: ClassVar[dict[str, str]] = {}

    text: str
    needs: Literal["", "rocm", "cuda", "gpu"] = ""
    run: str = ""
    notebook: str = ""

    def __post_init__(self) -> None:
        margin = getattr(self, "margin", None)
        if margin is not None and not 0 < margin < 1:
            raise ValueError(f"the margin must lie between 0 and 1 (0.01 = 1 %), got {margin}")

    @property
    def kind(self) -> str:
        """Name of the check in the vocabulary."""
        return str(type(self).__struct_config__.tag)

    def arms(self) -> tuple[str, ...]:
        """Arms the check reads, beside the suspect and the baseline."""
        names = [getattr(self, "arm", ""), getattr(self, "against", "")]
        names += getattr(self, "arms_together", [])
        names += list(getattr(self, "doses", {})) + list(getattr(self, "counts", {}))
        return tuple(dict.fromkeys(name for name in names if name))


class Ratio(Check, frozen=True, kw_only=True, tag="ratio"):
    """Time of one arm against another, paired by block, with the verdict of the declared margin.

    ``against`` defaults to the baseline, ``metric`` to the declared one, ``margin`` to the declared one.
    ``recording`` names a companion of the investigation (another workload, perhaps another device) to look in;
    the margin is then the one it declared.
    """

    OUTCOMES: ClassVar[dict[str, str]] = {
        "slower": "the interval excludes no difference, upwards",
        "faster": "the interval excludes no difference, downwards",
        "equivalent": "the interval lies inside the margin",
    }
    arm: str
    against: str = ""
    metric: str = ""
    margin: float | None = None
    recording: str = ""


class Equivalence(Check, frozen=True, kw_only=True, tag="equivalence"):
    """Whether two arms take the same time: the same test as ``ratio``, asked the other way round."""

    OUTCOMES: ClassVar[dict[str, str]] = {
        "equivalent": "the interval lies inside the margin",
        "different": "the interval excludes no difference and is not inside the margin",
    }
    arm: str
    against: str = ""
    metric: str = ""
    margin: float | None = None
    recording: str = ""


class EffectShare(Check, frozen=True, kw_only=True, tag="effect_share"):
    """How much of the effect a pair of arms shows: (arm - against) / (suspect - baseline), in logarithms.

    Decided by the t-interval over blocks of ``arm - against`` against half of the effect, whose own error counts.
    Equality at a fixed KV size is this check with the two fixed arms. Not tested while there is no effect.
    """

    OUTCOMES: ClassVar[dict[str, str]] = {
        "carries": "the pair shows more than half of the effect",
        "absent": "the pair shows less than half of it, and the interval excludes half",
        "partial": "between a quarter and three quarters: decides nothing",
    }
    arm: str
    against: str = ""


class KernelRatio(Check, frozen=True, kw_only=True, tag="kernel_ratio"):
    """Isolated time of a class of kernels (by ``bound`` or by name), suspect against baseline, paired by block.

    The class is summed per step (declared calls per step x median), so long kernels weigh most.
    """

    OUTCOMES: ClassVar[dict[str, str]] = {
        "slower": "the class is slower",
        "faster": "the class is faster",
        "equivalent": "the interval lies inside the margin",
    }
    bound: Literal["", "bandwidth", "compute", "latency"] = ""
    kernels: list[str] = []
    arm: str = ""
    against: str = ""
    margin: float | None = None


class DeltaFit(Check, frozen=True, kw_only=True, tag="delta_fit"):
    """Intercept or slope of delta = a + b x base duration over isolated kernels, fitted in every block.

    The intercept (us per kernel) is a fixed cost, the slope a share of the duration: a fixed cost makes short
    kernels look hit and long ones not. With ``bound`` the slope is that class's own: bandwidth-bound and
    compute-bound kernels each get one, the fixed cost is common. ``at_least`` (us, or a share) is what counts as
    growth; by default half of the effect (per kernel for the intercept), never less than the margin.
    """

    OUTCOMES: ClassVar[dict[str, str]] = {
        "grows": "the term is above the smallest that counts",
        "some": "half of that or more, surely not none and surely not that much: a necessary prediction stays open",
        "zero": "less than half of that, and the interval lies inside it",
        "shrinks": "the term is below minus the smallest that counts",
    }
    term: Literal["intercept", "slope"]
    bound: Literal["", "bandwidth", "compute"] = ""
    kernels: list[str] = []
    arm: str = ""
    against: str = ""
    at_least: float | None = None


class Gap(Check, frozen=True, kw_only=True, tag="gap"):
    """Idle time per kernel boundary inside a replayed step, from the profiler traces of two arms.

    ``at_least_us`` is what counts; by default half of the effect spread over the step's boundaries. The
    difference of two traces of equal arms, where recorded, widens the interval.
    """

    OUTCOMES: ClassVar[dict[str, str]] = {
        "grows": "each boundary costs more",
        "some": "half of what counts or more, surely not none and surely not that much: a necessary prediction stays open",
        "same": "less than half of that, and the interval lies inside it",
        "shrinks": "each boundary costs less",
    }
    arm: str = ""
    against: str = ""
    at_least_us: float | None = None


class Reconcile(Check, frozen=True, kw_only=True, tag="reconcile"):
    """Which share of a difference a part of it explains.

    From recordings: ``term`` of the traces (``gaps``, ``kernels`` = duration of matched kernels, ``launches`` =
    kernels only one arm has) against the measured difference of the step. From tables: ``part`` and ``whole``.
    """

    OUTCOMES: ClassVar[dict[str, str]] = {
        "explained": "at least ``share`` of it, half by default (and at most twice of it)",
        "not_explained": "less than that",
        "overshoots": "more than twice: the part cannot be what happened, or it is hidden elsewhere",
    }
    term: Literal["", "gaps", "kernels", "launches"] = ""
    arm: str = ""
    against: str = ""
    part: float | Quantity | None = None
    whole: float | Quantity | None = None
    share: float = 0.5


class LedgerFigure(Check, frozen=True, kw_only=True, tag="ledger"):
    """A fact of the runs (bytes, addresses, counts; see the recording's schema), in every block.

    Against another arm: compared block by block, ``modulo`` first where given, differences up to ``tolerance``
    count as equal. Blocks in which the equal arms (baseline and repeat) differ are left out: there the figure
    varies by itself. With ``bytes``: the arm's own figure against that number. ``unit`` and ``label``: of the figure, for
    people.
    """

    OUTCOMES: ClassVar[dict[str, str]] = {
        "more": "larger in at least nine of ten blocks and smaller in none",
        "less": "smaller in at least nine of ten blocks and larger in none",
        "equal": "equal in at least nine of ten blocks",
        "changes": "an address that differs in at least half of the blocks, up or down",
        "varies": "none of these; equal arms may vary as much",
        "matches": "equals ``bytes`` in every run",
        "differs": "never equals ``bytes``",
    }
    figure: str
    arm: str
    against: str = ""
    bytes: int | None = None
    modulo: int | None = None
    tolerance: float = 0.0
    unit: Literal["bytes", "count"] = "bytes"
    label: str = ""
    recording: str = ""


class Owner(Check, frozen=True, kw_only=True, tag="owner"):
    """Who holds the live blocks of a size in the arm's snapshot; ``stream``: on the default one or another."""

    OUTCOMES: ClassVar[dict[str, str]] = {
        "blas_workspace": "the BLAS library's workspace",
        "blas_lt_workspace": "the BLAS-Lt library's workspace",
        "aiter": "AITER",
        "python": "a Python tensor",
        "raw_allocation": "a raw allocation",
        "graph_pool": "a graph's private pool",
        "nccl": "NCCL or RCCL",
        "convolution_workspace": "a convolution workspace",
        "unknown": "a live block without a nameable owner",
        "several": "blocks of that size with different owners",
        "gone": "no live block of that size",
    }
    arm: str
    bytes: int
    stream: Literal["any", "default", "side"] = "side"


class ModesCheck(Check, frozen=True, kw_only=True, tag="modes"):
    """Whether runs of equal arms fall on two levels; each block's common level is taken out first."""

    OUTCOMES: ClassVar[dict[str, str]] = {
        "two_modes": "two levels, further apart than half of the effect (or the margin)",
        "one_mode": "one level",
    }
    arms_together: list[str]
    metric: str = ""


class Dose(Check, frozen=True, kw_only=True, tag="dose"):
    """Whether time grows with a dose: trend over the ranks of the doses, fitted in every block.

    Three of the arms in one recording are enough; the recording with most of them is used.
    """

    OUTCOMES: ClassVar[dict[str, str]] = {
        "rises": "the trend over all doses is above half of the effect",
        "falls": "the trend is below minus half of the effect",
        "flat": "the trend is below half of the effect on both sides",
    }
    doses: dict[str, float]
    metric: str = ""

    def __post_init__(self) -> None:
        if len(self.doses) < 3:
            raise ValueError("a dose response needs at least three doses")


class StepCount(Check, frozen=True, kw_only=True, tag="step"):
    """Whether time jumps once at some count and stays: two levels against a straight line against nothing.

    The baseline is the count 0. Three of the arms in one recording are enough; the recording with most is used.
    """

    OUTCOMES: ClassVar[dict[str, str]] = {
        "step": "one jump of more than half of the effect, levels before and after it flat",
        "ramp": "a steady growth",
        "flat": "no count differs by half of the effect",
        "irregular": "large changes that are neither (up and down with the count, for example)",
    }
    counts: dict[str, int]
    metric: str = ""

    def __post_init__(self) -> None:
        if len(self.counts) < 3:
            raise ValueError("a step needs at least three counts")


class Compare(Check, frozen=True, kw_only=True, tag="compare"):
    """Two quantities from tables or published numbers, in ``unit``; equal up to the relative ``tolerance``.

    ``tell``: columns of the left quantity's row that say where its number comes from (device, replicates).
    """

    OUTCOMES: ClassVar[dict[str, str]] = {
        "less": "left is smaller",
        "equal": "equal up to the tolerance",
        "more": "left is larger",
    }
    left: float | Quantity
    right: float | Quantity
    tolerance: float = 0.0
    source: str = ""
    unit: str = ""
    tell: list[str] = []


class Seen(Check, frozen=True, kw_only=True, tag="seen"):
    """What a demonstration or a published statement says: one row of a table, its ``column`` 0 or not.

    ``say`` names the column with the words for people, ``tell`` columns that say where it was seen.
    """

    OUTCOMES: ClassVar[dict[str, str]] = {"yes": "the cell is not 0", "no": "the cell is 0"}
    table: str
    column: str
    where: dict[str, str | float | int]
    say: str
    tell: list[str] = []
    source: str = ""


AnyCheck = (
    Ratio
    | Equivalence
    | EffectShare
    | KernelRatio
    | DeltaFit
    | Gap
    | Reconcile
    | LedgerFigure
    | Owner
    | ModesCheck
    | Dose
    | StepCount
    | Compare
    | Seen
)
CHECKS: dict[str, type[Check]] = {str(kind.__struct_config__.tag): kind for kind in typing.get_args(AnyCheck)}


def list_checks() -> dict[str, dict[str, object]]:
    """Every check: what it does, its parameters (required or default), its outcomes."""
    return {
        name: {
            "does": " ".join((kind.__doc__ or "").split()),
            "parameters": {
                item.name: "required" if item.required else _default(item)
                for item in msgspec.structs.fields(kind)
                if item.name not in {"text", "needs", "run", "notebook"}
            },
            "outcomes": dict(kind.OUTCOMES),
        }
        for name, kind in CHECKS.items()
    }


def _default(item: msgspec.structs.FieldInfo) -> object:
    return item.default if item.default is not msgspec.NODEFAULT else item.default_factory()
