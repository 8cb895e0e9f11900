"""Reads verdict.json back and refuses one that has not the form of ``diagnosis.records``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from rcatools.diagnosis.records import Diagnosis
from rcatools.errors import InputError

MAX_BYTES = 64 * 2**20
FILE_NAME = "verdict.json"


def read(folder: Path) -> dict[str, Any]:
    """The document in a report folder.

    Raises:
        InputError: the file is missing, too large, no JSON, or not of the form of verdict.json.
    """
    file = folder / FILE_NAME
    if not folder.is_dir():
        raise InputError(f"no report folder at {folder}: give one written by 'rcatools report'")
    if not file.is_file():
        raise InputError(f"{folder} has no {FILE_NAME}: run 'rcatools report' again")
    if file.stat().st_size > MAX_BYTES:
        raise InputError(
            f"{file} is larger than {MAX_BYTES} bytes: it is not a verdict, run 'rcatools report' again"
        )
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is damaged ({error}): run 'rcatools report' again") from None
    return check(document, str(file))


def check(document: Any, where: str) -> dict[str, Any]:
    """The document itself once its form is known to be right.

    Raises:
        InputError: a field is missing or has the wrong type; the message names it.
    """
    if not isinstance(document, dict):
        raise InputError(f"{where} is not a verdict: it holds no mapping; run 'rcatools report' again")
    try:
        msgspec.convert(_record_form(document), Diagnosis, strict=True)
        _check_live(document.get("live"))
        _check_questions(document.get("questions", []))
        _check_environment(document["environment"])
    except (msgspec.ValidationError, KeyError, TypeError, AttributeError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{where} has not the form of a verdict ({reason}): run 'rcatools report' again"
        ) from None
    return document


def _record_form(document: dict[str, Any]) -> dict[str, Any]:
    """The document rearranged into the fields of ``Diagnosis``; inverse of ``Diagnosis.document``."""
    plain = {key: value for key, value in document.items() if key != "chain"}
    plain["chain_ends_at"], plain["chain_text"] = document["chain"]["ends_at"], document["chain"]["text"]
    plain["observations"] = [
        {
            **{key: item[key] for key in ("id", "text", "check", "run")},
            "outcome": {
                "name": item["outcome"],
                **{
                    key: item[key]
                    for key in ("definite", "observed", "evidence", "reason", "detection_limit")
                },
            },
        }
        for item in document["observations"]
    ]
    return plain


def _check_questions(questions: Any) -> None:
    good = isinstance(questions, list) and all(
        isinstance(item, dict)
        and isinstance(item.get("question"), str)
        and isinstance(item.get("sentences"), list)
        and all(isinstance(text, str) for text in item["sentences"])
        for item in questions
    )
    if not good:
        raise TypeError("'questions' must hold questions with lists of sentences")


def _check_environment(environment: dict[str, Any]) -> None:
    for key in ("recordings", "checks", "tables"):
        items = environment.get(key) or []
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise TypeError(f"'environment.{key}' must be a list of mappings")
    for item in environment.get("recordings") or []:
        if not isinstance(item.get("files") or {}, dict):
            raise TypeError("'files' of a recording must be a mapping")
    for item in environment.get("checks") or []:
        if not all(isinstance(item.get(key), str) for key in ("recording", "check", "verdict", "text")):
            raise TypeError("a check needs recording, check, verdict and text")


def _check_live(live: Any) -> None:
    if live is not None and not (
        isinstance(live, dict)
        and isinstance(live.get("sentences"), list)
        and all(isinstance(text, str) for text in live["sentences"])
    ):
        raise TypeError("'live' must hold a list of sentences")
