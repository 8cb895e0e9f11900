"""What each kernel does: attention, matmul, norm, ... told from its name and the operation that launched it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import pandas as pd

OTHER = "other"


_WORD_BEGINS = "(^|[^a-z])"


@dataclass(frozen=True)
class Rule:
    """One line of ``roles.toml``: what is searched in names, and in operations."""

    role: str
    name: tuple[re.Pattern[str], ...]
    op: tuple[re.Pattern[str], ...]


@cache
def rules() -> tuple[Rule, ...]:
    """The rules of ``roles.toml`` in order."""
    text = resources.files("rcatools.trace").joinpath("roles.toml").read_text(encoding="utf-8")

    return tuple(
        Rule(entry["role"], _joined(entry.get("name", ())), _joined(entry.get("op", ())))
        for entry in tomllib.loads(text)["rule"]
    )


def _joined(patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Patterns as few expressions: one of those that begin with a letter, which are searched fast, and one of the rest."""
    fast: list[str] = []
    rest: list[str] = []
    for pattern in patterns:
        word = pattern.removeprefix(_WORD_BEGINS)
        begins_with_letter = re.match(r"[a-z_](?![?*{])", word) is not None
        if begins_with_letter and word != pattern:  # the same, told after the first letter
            word = f"{word[0]}(?<![a-z]{word[0]}){word[1:]}"
        (fast if begins_with_letter else rest).append(word if begins_with_letter else pattern)
    return tuple(re.compile("|".join(f"(?:{one})" for one in group)) for group in (fast, rest) if group)


def _found(expressions: tuple[re.Pattern[str], ...], text: str) -> bool:
    return any(expression.search(text) for expression in expressions)


@cache
def role_of(name: str, op: str = "") -> tuple[str, str]:
    """The role of a kernel and its basis: "name", "op", or "none" for the role "other".

    Args:
        name: full kernel name.
        op: framework operation that launched it, empty when unknown.
    """
    lowered = name.lower()
    for rule in rules():
        if _found(rule.name, lowered):
            return rule.role, "name"
    if op:
        operation = op.lower()
        for rule in rules():
            if _found(rule.op, operation):
                return rule.role, "op"
    return OTHER, "none"


def roles(table: pd.DataFrame) -> pd.Categorical:
    """The role of every row of ``Trace.kernels``; copies are "copy", sets are "fill"."""
    names, ops = table["full_name"].cat, table["op"].cat
    name_codes = names.codes.to_numpy().astype(np.int64)
    op_codes = ops.codes.to_numpy().astype(np.int64)
    kinds = table["kind"].astype(object).to_numpy()
    width = len(ops.categories) + 1
    keys, inverse = np.unique(name_codes * width + op_codes, return_inverse=True)
    known = [
        role_of(str(names.categories[key // width]), str(ops.categories[key % width]))[0] for key in keys
    ]
    labels = sorted({*known, "copy", "fill"})
    codes = np.array([labels.index(role) for role in known], dtype=np.int64)
    per_row = codes[inverse] if len(keys) else np.zeros(0, dtype=np.int64)
    per_row = np.where(kinds == "memcpy", labels.index("copy"), per_row)
    per_row = np.where(kinds == "memset", labels.index("fill"), per_row)
    return pd.Categorical.from_codes(per_row, categories=pd.Index(labels, dtype=object))
