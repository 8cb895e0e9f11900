"""Whether recordings that are judged together come from the same code: told after the declared causes."""

from __future__ import annotations

from rcatools.diagnosis.case import Case
from rcatools.diagnosis.records import Decide, HypothesisResult, Status
from rcatools.recording import Recording
from rcatools.recording.provenance import ProvenanceDifference, compare_provenance

ID, GROUP = "recordings_differ", "provenance"
ASKED = ("code", "package", "setting")
SHOWN = 6


def between_recordings(case: Case) -> tuple[HypothesisResult, ...]:
    """One hypothesis where recordings of the device differ in code, packages or settings; else none.

    It stays undecided: what differs may or may not matter, and only recordings from one state can tell.
    """
    if case.primary is None:
        return ()
    found = [
        (recording, differences)
        for recording in case.recordings[1:]
        if (differences := asked(case.primary, recording))
    ]
    if not found:
        return ()
    reason = "; ".join(
        f"{recording.name} and {case.primary.name} differ in {listed(differences)}"
        for recording, differences in found
    )
    return (
        HypothesisResult(
            id=ID,
            title="the recordings come from different code or surroundings",
            group=GROUP,
            mechanism="a difference between recordings may be one of the code, not of what was varied",
            source="the fingerprints of the recordings",
            status=Status.UNDECIDED,
            reason=f"{reason}; arms are compared only within one recording",
            predictions=(),
            decide=Decide(
                f"rcatools record {case.spec.slug} --out {case.spec.slug}-one-state",
                "All arms recorded from one commit with one set of packages would exclude it",
            ),
        ),
    )


def asked(first: Recording, second: Recording) -> tuple[ProvenanceDifference, ...]:
    """The differences that could change a time: code, packages, settings."""
    return tuple(d for d in compare_provenance(first.manifest, second.manifest) if d.kind in ASKED)


def listed(differences: tuple[ProvenanceDifference, ...]) -> str:
    """Differences in words, the first few with their values."""
    texts = [f"{d.key} ({d.first} against {d.second})" for d in differences[:SHOWN]]
    left = len(differences) - SHOWN
    return ", ".join(texts) + (f" and {left} more" if left > 0 else "")
