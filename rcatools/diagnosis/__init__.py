"""Hypotheses with predictions, published claims, evidence and verdicts.

investigation = load_investigation("data/investigations/capture-stream")
diagnosis = judge(investigation, [open_recording("data/recordings/capture-stream-h200")])
diagnosis.document()   # verdict.json
"""

from rcatools.diagnosis.engine import judge, judge_causes
from rcatools.diagnosis.loading import load_investigation, parse_investigation
from rcatools.diagnosis.records import Diagnosis
from rcatools.diagnosis.vocabulary import list_checks

__all__ = [
    "Diagnosis",
    "judge",
    "judge_causes",
    "list_checks",
    "load_investigation",
    "parse_investigation",
]
