"""What one kernel boundary costs, and whether it explains what kernels timed alone take longer.

A kernel is timed alone as launches back to back in a graph, so each of its times holds one boundary. Set against
that: the price of a boundary between tiny kernels, measured in every process, and the gaps and durations of the
traced step, where the two are told apart.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.checks_kernels import declared_kernels, per_step
from rcatools.diagnosis.means import mean_over_blocks
from rcatools.diagnosis.parts import Boundary, KernelResult
from rcatools.diagnosis.steps import StepFigures
from rcatools.recording import Recording
from rcatools.stats.records import Verdict
from rcatools.units import counted

SHORT_NAME = 60
SIDES = ("below", "within", "above")
REDUCTION = "splitkreduce"  # as the BLAS library names the kernel that sums the parts of a product
ACCOUNTS = 0.8  # of the effect: a price that makes less leaves something to explain


def boundary(case: Case, kernels: tuple[KernelResult, ...]) -> Boundary | None:
    """The suspect's price of a boundary against the baseline's; None where runs did not measure it."""
    metric = case.spec.effect.boundary_metric
    pair = (case.suspect, case.baseline)
    recording = case.recording_with(pair, metric) if metric else None
    if recording is None:
        return None
    times = np.exp(case.logs(recording, metric)[list(pair)].to_numpy())
    mean = mean_over_blocks(times[:, 0] - times[:, 1], case.confidence(recording))
    if mean is None:
        return None
    base = float(np.nanmedian(times[:, 1]))
    longer = _gap_growth(case)
    text = (
        f"One boundary between tiny kernels costs {units.duration_us(base)} in {case.baseline} and "
        f"{units.duration_us(mean.value)} [{units.duration_us(mean.low)}, {units.duration_us(mean.high)}] more in "
        f"{case.suspect} ({counted(mean.n, 'block')})"
    )
    if longer is not None:
        text += f"; in the traced step a gap between kernels is {units.duration_us(longer)} longer"
    traced = case.step_figures(case.baseline)
    boundaries = traced[0].boundaries if traced is not None and traced[0].boundaries else None
    whole = _step_longer(case)
    share = mean.value * boundaries / whole if boundaries and whole and whole > 0 else None
    sentences = [
        text,
        *_accounts(mean.value, boundaries, whole, share),
        *_alone(kernels, mean.value, longer, recording, case),
        *_durations(case),
    ]
    return Boundary(
        base_us=base,
        delta_us=mean.value,
        ci_low_us=mean.low,
        ci_high_us=mean.high,
        n=mean.n,
        gap_us=longer,
        recording=recording.name,
        sentences=tuple(f"{item}." for item in sentences),
        share=share,
        boundaries=boundaries,
    )


def _step_longer(case: Case) -> float | None:
    """Microseconds by which the suspect's step takes longer, median over blocks; None without a verdict."""
    found = case.compare(case.suspect)
    if found is None or found[0].verdict not in (Verdict.SLOWER, Verdict.FASTER):
        return None
    table = np.exp(case.logs(found[1], case.metric)[[case.suspect, case.baseline]].to_numpy())
    return float(np.nanmedian(table[:, 0] - table[:, 1]))


def _accounts(price: float, boundaries: float | None, whole: float | None, share: float | None) -> list[str]:
    """How much of the effect the price between tiny kernels makes, at each boundary of the step."""
    if share is None or boundaries is None or whole is None:
        return []
    text = (
        f"At each of the {boundaries:.0f} boundaries of the step that price makes "
        f"{units.duration_us(price * boundaries)} of {units.duration_us(whole)}: it accounts for {units.share(share)} of the effect"
    )
    return [text if share >= ACCOUNTS else f"{text}; why the step's kernels pay more is not known"]


def _gap_growth(case: Case) -> float | None:
    """Microseconds by which a gap of the suspect's traced step is longer than the baseline's; None without traces."""
    own, base = case.step_figures(case.suspect), case.step_figures(case.baseline)
    if own is None or base is None or not own[0].boundaries or not base[0].boundaries:
        return None
    gap = [float(f.gap_us.mean() / f.boundaries) for f in (own[0], base[0])]
    return gap[0] - gap[1]


def _alone(
    kernels: tuple[KernelResult, ...],
    price: float,
    longer: float | None,
    recording: Recording,
    case: Case,
) -> list[str]:
    """Which differences of kernels timed alone lie below, within and above the price of a boundary."""
    if not kernels or _flushed(recording) or price <= 0:
        return []
    low, high = sorted((price, longer or price))
    text = (
        "A kernel is timed alone in a graph that launches nothing else, back to back, so each of its times holds a "
        f"boundary, which costs {units.duration_us(low)}"
    )
    text += f" (tiny kernels) to {units.duration_us(high)} (traced step) more" if longer else " more"
    two = split_products(case, recording)
    sides = {
        side: [k.kernel for k in kernels if against_price(k, low, high, 1 + (k.kernel in two)) == side]
        for side in SIDES
    }
    placed = "; ".join(f"{side}: {', '.join(names)}" for side, names in sides.items() if names)
    return [
        f"{text}. Differences a launch against that, by their intervals: {placed}",
        *_split(case, recording),
    ]


def marked(kernels: tuple[KernelResult, ...], found: Boundary | None, case: Case) -> tuple[KernelResult, ...]:
    """The kernels, each with where its difference a launch lies against the price of a boundary."""
    recording = next((r for r in case.recordings if found is not None and r.name == found.recording), None)
    if found is None or recording is None or found.delta_us <= 0 or _flushed(recording):
        return kernels
    low, high = sorted((found.delta_us, found.gap_us or found.delta_us))
    two = split_products(case, recording)
    return tuple(
        replace(
            item,
            against_boundary=against_price(item, low, high, 1 + (item.kernel in two))
            + (" two" if item.kernel in two else ""),
        )
        for item in kernels
    )


def against_price(kernel: KernelResult, low: float, high: float, boundaries: int = 1) -> str:
    """One of ``SIDES``: the interval of a kernel's difference a launch, microseconds, against low to high for each boundary."""
    low, high = boundaries * low, boundaries * high
    bounds = [kernel.ratio if b is None else b for b in (kernel.ci_low, kernel.ci_high)]
    least, most = (kernel.base_us * (b - 1) for b in bounds)
    return "below" if most < low else "above" if least > high else "within"


def _flushed(recording: Recording) -> bool:
    """Whether kernels were timed one by one, so that their times hold no boundary."""
    parameters = recording.manifest.workload.get("parameters", {})
    return isinstance(parameters, dict) and parameters.get("cache") == "cold"


def split_products(case: Case, recording: Recording) -> dict[str, str]:
    """Declared kernels that the traced step runs as a product and the reduction of its parts, with the reduction's name.

    The declared order is the order of the step. A reduction is given to the declared kernel before the one that the
    next device kernel is named after; where no name tells, to none.
    """
    traced = case.step_figures(case.baseline)
    declared = list(declared_kernels(recording))
    found: dict[str, str] = {}
    if traced is None:
        return found
    for name, after in pairwise(traced[0].order):
        place = next((k for k, known in enumerate(declared) if known in after), 0)
        if REDUCTION in name.lower() and place:
            found[declared[place - 1]] = _short_name(name)
    return found


def _split(case: Case, recording: Recording) -> list[str]:
    """A sentence where the traced step runs more kernels than were declared: some launches are two kernels."""
    traced = case.step_figures(case.baseline)
    declared = sum(per_step(entry) for entry in declared_kernels(recording).values())
    if traced is None or not declared or traced[0].kernels <= declared:
        return []
    more = traced[0].kernels - declared
    products = "; ".join(
        f"{name} is a product and its {reduction}, two kernels a launch, and is held against two boundaries"
        for name, reduction in split_products(case, recording).items()
    )
    text = f"The traced step runs {traced[0].kernels:.0f} kernels where {declared:.0f} launches are declared, {more:.0f} more"
    return [f"{text}: {products}" if products else text]


def _durations(case: Case) -> list[str]:
    """What happens to the durations themselves in the traced step, beside what equal arms differ by."""
    own, base = case.step_figures(case.suspect), case.step_figures(case.baseline)
    if own is None or base is None:
        return []
    grown = _largest(base[0], own[0])
    if grown is None:
        return []
    total = float(own[0].kernel_us.mean() - base[0].kernel_us.mean())
    name, rise = grown
    text = (
        f"In the traced step, where durations and gaps are told apart, the kernel whose own duration grows most "
        f"({name}) takes {_more(rise)} a launch"
    )
    for repeat in case.spec.effect.repeat:
        again = case.step_figures(repeat)
        found = _largest(base[0], again[0]) if again else None
        if found is not None:
            text += f" (in {repeat}, an arm equal to the baseline, {_more(found[1])})"
            break
    return [f"{text}; all kernels together take {_more(total)} a step"]


def _more(us: float) -> str:
    return f"{units.duration_us(abs(us))} {'more' if us >= 0 else 'less'}"


def _largest(base: StepFigures, own: StepFigures) -> tuple[str, float] | None:
    """The kernel whose mean duration grows most, and by how many microseconds a launch."""
    rises = {
        name: us / count - base.by_name[name][1] / count
        for name, (count, us) in own.by_name.items()
        if name in base.by_name and base.by_name[name][0] == count > 0
    }
    if not rises:
        return None
    name = max(rises, key=lambda key: rises[key])
    return _short_name(name), rises[name]


def _short_name(name: str) -> str:
    return name.removeprefix("void ").split("<")[0][:SHORT_NAME]
