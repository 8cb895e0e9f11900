"""What each kernel does: attention, matmul, norm, ... told from its name and the operation that launched it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import pandas as pd

OTHER = "other"


@dataclass(frozen=True)
class Rule:
    """One line of ``roles.toml``; a rule without patterns of a sort matches nothing by that sort."""

    role: str
    name: re.Pattern[str] | None
    op: re.Pattern[str] | None


@cache
def rules() -> tuple[Rule, ...]:
    """The rules of ``roles.toml`` in order."""
    text = resources.files("rcatools.trace").joinpath("roles.toml").read_text(encoding="utf-8")

    def joined(patterns: list[str] | None) -> re.Pattern[str] | None:
        return re.compile("|".join(f"(?:{pattern})" for pattern in patterns)) if patterns else None

    return tuple(
        Rule(entry["role"], joined(entry.get("name")), joined(entry.get("op")))
        for entry in tomllib.loads(text)["rule"]
    )


@cache
def role_of(name: str, op: str = "") -> tuple[str, str]:
    """The role of a kernel and its basis: "name", "op", or "none" for the role "other".

    Args:
        name: full kernel name.
        op: framework operation that launched it, empty when unknown.
    """
    lowered = name.lower()
    for rule in rules():
        if rule.name is not None and rule.name.search(lowered):
            return rule.role, "name"
    if op:
        operation = op.lower()
        for rule in rules():
            if rule.op is not None and rule.op.search(operation):
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
