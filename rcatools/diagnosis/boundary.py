"""What one kernel boundary costs, and whether it explains what kernels timed alone take longer.

A kernel is timed alone as launches back to back in a graph, so each of its times holds one boundary. Set against
that: the price of a boundary between tiny kernels, measured in every process, and the gaps and durations of the
traced step, where the two are told apart.
"""

from __future__ import annotations

import numpy as np

from rcatools import units
from rcatools.diagnosis.case import Case
from rcatools.diagnosis.means import mean_over_blocks
from rcatools.diagnosis.parts import Boundary, KernelResult
from rcatools.diagnosis.steps import StepFigures
from rcatools.diagnosis.wording import counted
from rcatools.recording import Recording

SHORT_NAME = 60


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
    sentences = [text, *_alone(kernels, mean.value, longer, recording), *_durations(case)]
    return Boundary(
        base_us=base,
        delta_us=mean.value,
        ci_low_us=mean.low,
        ci_high_us=mean.high,
        n=mean.n,
        gap_us=longer,
        recording=recording.name,
        sentences=tuple(f"{item}." for item in sentences),
    )


def _gap_growth(case: Case) -> float | None:
    """Microseconds by which a gap of the suspect's traced step is longer than the baseline's; None without traces."""
    own, base = case.step_figures(case.suspect), case.step_figures(case.baseline)
    if own is None or base is None or not own[0].boundaries or not base[0].boundaries:
        return None
    gap = [float(f.gap_us.mean() / f.boundaries) for f in (own[0], base[0])]
    return gap[0] - gap[1]


def _alone(
    kernels: tuple[KernelResult, ...], price: float, longer: float | None, recording: Recording
) -> list[str]:
    """Whether one boundary explains the differences of kernels timed alone."""
    parameters = recording.manifest.workload.get("parameters", {})
    cold = isinstance(parameters, dict) and parameters.get("cache") == "cold"
    if not kernels or cold or price <= 0:
        return []
    most = max(price, longer or price)
    inside = [item for item in kernels if _reaches(item, price / 2, most)]
    outside = [item for item in kernels if item not in inside]
    text = (
        "A kernel is timed alone in a graph that launches nothing else, back to back, so each of its times holds a "
        f"boundary: {len(inside)} of {len(kernels)} differences are of the size of one "
        f"({units.duration_us(price / 2)} to {units.duration_us(most)} a launch)"
    )
    if outside:
        listed = ", ".join(
            f"{item.kernel} ({units.signed_duration_us(item.delta_us)} a launch)" for item in outside
        )
        text += f"; not explained by it: {listed}"
    return [text]


def _reaches(kernel: KernelResult, low: float, high: float) -> bool:
    """Whether the interval of a kernel's difference, in microseconds, touches the range."""
    bounds = [kernel.ratio if b is None else b for b in (kernel.ci_low, kernel.ci_high)]
    return kernel.base_us * (bounds[0] - 1) <= high and kernel.base_us * (bounds[1] - 1) >= low


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
    return name.removeprefix("void ").split("<")[0][:SHORT_NAME], rises[name]
