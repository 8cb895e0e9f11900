"""Which arm is the baseline once more: names of A/A arms."""

from __future__ import annotations

import re

_AGAIN = re.compile(
    r"again|re[\s_-]?run|repeat(?:ed)?|re[\s_-]?test|twin|dup(?:licate)?|bis|a[\s_/-]?a|"
    r"(?:an?[\s_-]?)?(?:earlier|previous|later|second|2nd)(?:[\s_-]?(?:run|time|session))?|"
    r"(?:run|rep)[\s_-]?[2-9]|[\[(]?[2-9][\])]?",
    re.I,
)
_ALWAYS = re.compile(r"a[\s_/\-]?a|aa[\s_\-]?(?:control|arm|test)|null[\s_\-]?arm|placebo|sham", re.I)
_PLAIN = frozenset(
    [
        "off",
        "base",
        "baseline",
        "main",
        "master",
        "trunk",
        "control",
        "ref",
        "reference",
        "before",
        "old",
        "stock",
        "default",
        "none",
    ]
)
_SEPARATORS = " _-.:/"


def is_repeat_of(arm: str, baseline: str) -> bool:
    """Whether an arm's name says it is the baseline measured again.

    True for "A/A", "aa", "sham"; for the baseline's name, a separator, and a word such as "again", "rerun",
    "earlier run" or a digit 2 to 9 ("main (2)", "k2_2"); and, without a separator, for such a word or a digit
    behind a name that can only be a baseline ("off2", "base2"), because "fa2" is not "fa" once more.
    """
    name, base = arm.strip().lower(), baseline.strip().lower()
    if name == base or not base:
        return False
    if _ALWAYS.fullmatch(name):
        return True
    if not name.startswith(base):
        return False
    rest = name[len(base) :]
    behind = rest.lstrip(_SEPARATORS)
    separated = len(behind) < len(rest)
    return (separated or base in _PLAIN) and _AGAIN.fullmatch(behind) is not None
