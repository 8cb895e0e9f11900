"""From observations to the links of the chain and the hypotheses.

The rule for a hypothesis:

* contradicted, if a necessary prediction fails: its outcome is definite (within the detection limit) and
  another one;
* supported, if every necessary prediction that was tested holds, at least one prediction holds that a rival does
  not share, and every rival is either contradicted or told apart by such a prediction. A rival that says nothing
  about an observation is not told apart by it: only one that expects another outcome is;
* not tested, if no prediction was tested; undecided otherwise, with the run that would tell it from its rivals.

If two rivals pass, neither is supported: the recordings do not tell them apart, or both act.
No probability is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rcatools.diagnosis.investigation import Expectations, Hypothesis, Investigation, Link, outcomes_of
from rcatools.diagnosis.records import (
    Decide,
    Evidence,
    HypothesisResult,
    LinkResult,
    LinkVerdict,
    Observation,
    Outcome,
    PredictionResult,
    Status,
)
from rcatools.diagnosis.wording import SOME, in_words

Observed = Mapping[str, Observation]
MOST_SHOWN = 3


def holds(outcome: Outcome, expected: Sequence[str], *, necessary: bool = True) -> bool | None:
    """Whether an outcome is as expected; None where it was not tested or does not decide.

    A change that is there and smaller than what counts is neither growth nor none: it fails what is merely
    suggested, and decides nothing about what is necessary.
    """
    if outcome.name is None or not outcome.definite:
        return None
    if outcome.name == SOME and necessary and SOME not in expected:
        return None
    return outcome.name in expected


def judge_links(links: Sequence[Link], observed: Observed) -> tuple[tuple[LinkResult, ...], str | None, str]:
    """The links with their verdicts, the id of the first that is not shown, and a sentence about the chain."""
    results: list[LinkResult] = []
    ended: str | None = None
    for link in links:
        verdict, reason, evidence = _judge_link(link, observed)
        if verdict is LinkVerdict.NOT_SHOWN and ended is None:
            ended = link.id
        results.append(LinkResult(link.id, link.text, verdict, reason, evidence, ended is None))
    if not results:
        return (), None, ""
    if ended is not None:
        end = next(item for item in results if item.id == ended)
        after = [item.id for item in results if item.verdict is LinkVerdict.SHOWN and not item.as_cause]
        text = f'As a cause the chain ends at ({ended}), "{end.text}", which was not shown.'
        if after:
            text += f" What ({'), ('.join(after)}) shows is then the effect of something else."
        return tuple(results), ended, f"{text} {_capital(end.reason)}."
    open_links = [item.id for item in results if item.verdict is not LinkVerdict.SHOWN]
    if open_links:
        are = "is" if len(open_links) == 1 else "are"
        return tuple(results), None, f"No link failed; ({'), ('.join(open_links)}) {are} not settled."
    return tuple(results), None, "Every link of the chain was shown."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _judge_link(link: Link, observed: Observed) -> tuple[LinkVerdict, str, tuple[Evidence, ...]]:
    def states(expectations: Expectations) -> list[bool | None]:
        return [holds(observed[name].outcome, outcomes_of(e)) for name, e in expectations.items()]

    names = [*link.all, *link.any]
    evidence = tuple(item for name in names for item in observed[name].outcome.evidence)
    together, either = states(link.all), states(link.any)
    failed = [
        name
        for expectations, found in ((link.all, together), (link.any, either))
        for name, state in zip(expectations, found, strict=True)
        if state is False
    ]
    wanted = {**link.all, **link.any}
    if False in together or (either and all(state is False for state in either)):
        reason = "; ".join(
            f"{observed[name].text}: {in_words(outcomes_of(wanted[name]))} expected, seen {observed[name].outcome.observed}"
            for name in failed
        )
        return LinkVerdict.NOT_SHOWN, reason, evidence
    if all(state is True for state in together) and (not either or True in either):
        return LinkVerdict.SHOWN, "", evidence
    missing = "; ".join(
        dict.fromkeys(observed[name].outcome.reason for name in names if observed[name].outcome.reason)
    )
    untested = all(observed[name].outcome.name is None for name in names)
    return (LinkVerdict.NOT_TESTED if untested else LinkVerdict.UNDECIDED), missing, evidence


def judge_hypotheses(investigation: Investigation, observed: Observed) -> tuple[HypothesisResult, ...]:
    """Every hypothesis with its predictions, status, reason and deciding run, in declared order."""
    declared = investigation.spec.hypotheses
    predictions = {item.id: _predictions(investigation, item, observed) for item in declared}
    fallen = {
        name for name, items in predictions.items() if any(p.necessary and p.holds is False for p in items)
    }
    passed = {item.id for item in declared if _passes(investigation, item, predictions[item.id], fallen)}
    titles = {item.id: f"'{item.title}'" for item in declared}
    results = []
    for item in declared:
        rivals = [rival.id for rival in investigation.rivals(item)]
        items = predictions[item.id]
        status, reason = _status(item.id, items, rivals, fallen, passed, titles)
        decide = _decide(items, rivals, fallen, observed, titles) if status in _OPEN else None
        results.append(
            HypothesisResult(
                id=item.id,
                title=item.title,
                group=item.group,
                mechanism=item.mechanism,
                source=item.source,
                status=status,
                reason=reason,
                predictions=items,
                decide=decide,
            )
        )
    return tuple(results)


_OPEN = (Status.UNDECIDED, Status.NOT_TESTED)


def _predictions(
    investigation: Investigation, hypothesis: Hypothesis, observed: Observed
) -> tuple[PredictionResult, ...]:
    found = []
    for necessary, expectations in ((True, hypothesis.predicts), (False, hypothesis.suggests)):
        for name, expected in expectations.items():
            outcome = observed[name].outcome
            wanted = outcomes_of(expected)
            state = holds(outcome, wanted, necessary=necessary)
            seen = {outcome.name} if state and outcome.name else set(wanted)
            distinct = [
                rival.id for rival in investigation.rivals(hypothesis) if _expects_other(rival, name, seen)
            ]
            found.append(
                PredictionResult(
                    observation=name,
                    text=observed[name].text,
                    expected=in_words(wanted),
                    observed=outcome.observed,
                    holds=state,
                    necessary=necessary,
                    distinct_from=tuple(distinct),
                    places=outcome.evidence,
                    reason=outcome.reason,
                    outcome=outcome.name,
                )
            )
    return tuple(found)


def _expects_other(rival: Hypothesis, observation: str, outcomes: set[str]) -> bool:
    for expected in (rival.predicts, rival.suggests):
        if observation in expected:
            return not outcomes & set(outcomes_of(expected[observation]))
    return False


def _passes(
    investigation: Investigation,
    hypothesis: Hypothesis,
    predictions: Sequence[PredictionResult],
    fallen: set[str],
) -> bool:
    rivals = investigation.rivals(hypothesis)
    if hypothesis.id in fallen or any(_unclear(p) for p in predictions):
        return False
    if not any(p.holds and (p.distinct_from or not rivals) for p in predictions):
        return False
    return not _not_told_apart(rivals, predictions, fallen)


def _unclear(prediction: PredictionResult) -> bool:
    """Necessary and tested, but the data do not decide it."""
    return prediction.necessary and prediction.holds is None and prediction.outcome is not None


def _not_told_apart(
    rivals: Sequence[Hypothesis], predictions: Sequence[PredictionResult], fallen: set[str]
) -> list[str]:
    """Rivals that stand and share everything that was seen to hold."""
    apart = {name for p in predictions if p.holds for name in p.distinct_from}
    return [rival.id for rival in rivals if rival.id not in fallen | apart]


def _status(
    name: str,
    predictions: Sequence[PredictionResult],
    rivals: Sequence[str],
    fallen: set[str],
    passed: set[str],
    titles: Mapping[str, str],
) -> tuple[Status, str]:
    together = [titles[rival] for rival in rivals if rival in passed]
    if name in fallen:
        failed = [p for p in predictions if p.necessary and p.holds is False]
        texts = [f"{p.text}: {p.expected} expected, seen {p.observed}" for p in failed]
        return Status.CONTRADICTED, "; ".join(texts)
    if name in passed and not together:
        return Status.SUPPORTED, _support(predictions, [r for r in rivals if r not in fallen], titles)
    if name in passed:
        return (
            Status.UNDECIDED,
            f"it and {' and '.join(together)} both pass: either both act, or these data do not tell them apart",
        )
    if all(p.outcome is None for p in predictions):
        reasons = list(dict.fromkeys(p.reason for p in predictions if p.reason))
        return Status.NOT_TESTED, "; ".join(reasons[:3])
    unclear = [f"{p.text} ({p.reason or p.observed})" for p in predictions if _unclear(p)]
    if unclear:
        return Status.UNDECIDED, f"it needs, and the data do not decide: {'; '.join(unclear)}"
    apart = {rival for p in predictions if p.holds for rival in p.distinct_from}
    shared = [titles[rival] for rival in rivals if rival not in fallen | apart]
    if shared:
        return Status.UNDECIDED, f"nothing that holds tells it from {' and '.join(shared)}"
    return Status.UNDECIDED, "no prediction that holds is its own"


def _support(
    predictions: Sequence[PredictionResult], standing: Sequence[str], titles: Mapping[str, str]
) -> str:
    """What a supported hypothesis rests on, first what most rivals do not share, and what is missing."""
    held = [p for p in predictions if p.holds]
    own = sorted((p for p in held if p.distinct_from), key=lambda p: (-len(p.distinct_from), not p.necessary))
    shown = own or held
    reason = "; ".join(f"{p.text}: {p.observed}" for p in shown[:MOST_SHOWN])
    if len(held) > len(shown[:MOST_SHOWN]):
        reason += f"; {len(held) - len(shown[:MOST_SHOWN])} more predictions hold"
    reason += ". None that is necessary fails"
    if standing:
        names = " and ".join(titles[rival] for rival in standing)
        reason += f". Told apart from {names} by what it alone predicts"
    untested = [p.text for p in predictions if p.necessary and p.holds is None]
    if untested:
        reason += f". Not tested, though necessary: {'; '.join(untested)}"
    return reason


def _decide(
    predictions: Sequence[PredictionResult],
    rivals: Sequence[str],
    fallen: set[str],
    observed: Observed,
    titles: Mapping[str, str],
) -> Decide | None:
    """The untested prediction that tells it from most standing rivals, necessary ones first."""
    standing = set(rivals) - fallen
    candidates = [p for p in predictions if p.holds is None and observed[p.observation].run]
    if not candidates:
        return None
    best = max(candidates, key=lambda p: (len(standing & set(p.distinct_from)), p.necessary))
    told = sorted(standing & set(best.distinct_from))
    text = f"{best.text}: {best.expected} would support it"
    text += f" against {' and '.join(titles[rival] for rival in told)}" if told else ""
    text += (
        "; another outcome would contradict it" if best.necessary else "; another outcome would not settle it"
    )
    if best.reason:
        text += f" (now: {best.reason})"
    return Decide(observed[best.observation].run, text)
