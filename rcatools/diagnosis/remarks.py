"""Remarks of hypotheses: sentences that an investigation says only where its observations came out as named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rcatools import units
from rcatools.diagnosis.investigation import Expectations, Hypothesis, Spec, outcomes_of
from rcatools.diagnosis.parts import Evidence
from rcatools.diagnosis.records import HypothesisResult, Observation, Status
from rcatools.diagnosis.wording import replicated

OPEN_OUTCOMES = ("not_tested", "undecided")
_PLACE = re.compile(r"\{(\w+)(:time)?\}")


def placeholders(spec: Spec) -> Iterator[tuple[str, str]]:
    """(place, observation) of every figure that the headline, a remark or a ``stands`` asks for."""
    yield from (("effect.beside", name) for name in spec.effect.beside)
    for i, hypothesis in enumerate(spec.hypotheses):
        for name, _ in _PLACE.findall(hypothesis.stands):
            yield f"hypotheses[{i}].stands", name
        for k, remark in enumerate(hypothesis.remarks):
            for name, _ in _PLACE.findall(remark.text):
                yield f"hypotheses[{i}].remarks[{k}].text", name


def remarks(
    declared: Sequence[Hypothesis],
    judged: Sequence[HypothesisResult],
    observed: Mapping[str, Observation],
) -> tuple[str, ...]:
    """The remarks that apply, of hypotheses that are not contradicted, with their figures filled in."""
    status = {item.id: item.status for item in judged}
    return tuple(
        filled(remark.text, observed)
        for hypothesis in declared
        if status.get(hypothesis.id) is not Status.CONTRADICTED
        for remark in hypothesis.remarks
        if _applies(remark.when, observed)
    )


def filled(text: str, observed: Mapping[str, Observation]) -> str:
    """A text on one line with the figures of the observations it names: ``{name}`` as they are, ``{name:time}`` as
    "takes 1.6 % more time [...]"."""
    return _PLACE.sub(
        lambda match: figures(observed[match.group(1)], in_words=bool(match.group(2))), " ".join(text.split())
    )


def moved(estimate: str, verdict: str) -> str:
    """A change of time with its interval in words; less time is said as such, since "60 % faster" has two readings."""
    share, _, bounds = estimate.partition(" [")
    how = (
        f"takes {share.lstrip('+-')} less time" if verdict == "faster" else f"is {share.lstrip('+-')} slower"
    )
    return f"{how} [{bounds}" if bounds else how


def way(low: float | None, high: float | None) -> str:
    """The way a ratio of times points where its interval leaves 1 out: "slower", "faster", else empty."""
    if low is not None and low > 1:
        return "slower"
    return "faster" if high is not None and high < 1 else ""


def _applies(when: Expectations, observed: Mapping[str, Observation]) -> bool:
    return all(state_of(observed[name]) in outcomes_of(expected) for name, expected in when.items())


def state_of(observation: Observation) -> str:
    """The outcome where it is definite, else "undecided", or "not_tested"."""
    outcome = observation.outcome
    if outcome.name is None:
        return "not_tested"
    return outcome.name if outcome.definite else "undecided"


def figures(observation: Observation, *, in_words: bool = False) -> str:
    """The figures of an observation in short: estimate, interval, replicates; or why there are none."""
    outcome = observation.outcome
    if not outcome.evidence:
        return outcome.reason or "not tested"
    return "; ".join(_short(item, in_words) for item in outcome.evidence)


def _short(item: Evidence, in_words: bool) -> str:
    simple = item.unit == "ratio" and item.value is not None and item.ci_low is not None
    if not simple or len(item.arms) != 2:
        return item.text
    size = units.estimate(item.value, item.ci_low, item.ci_high)
    if in_words:
        seen = way(item.ci_low, item.ci_high)
        size = moved(size, seen) if seen else f"shows no change of time, {size}"
    text = f"{size}, {replicated(item.n or 0, item.replicate)}"
    text += f", {item.device}" if item.device else ""
    text += f"; {item.note}" if item.note else ""
    return f"{text}, too few for a verdict" if "too few" in item.text else text
