"""Every error a user can meet, in one tree.

RcaError
├── InputError             a file, table or parameter from outside is wrong (exit code 2)
│   ├── UnknownNameError   a name that is not in the list of known ones
│   └── UnsafeInputError   a file that tries to do more than hold data, or is too large
├── UnavailableError       this machine lacks what the call needs (exit code 2)
└── RunError               a measurement or a notebook failed (exit code 3)

Each message is one line that says what is wrong, where, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RcaError(Exception):
    """Root of the tree; ``exit_code`` is what the command line returns."""

    exit_code = 2


class InputError(RcaError):
    """Something given from outside cannot be used."""


class UnknownNameError(InputError):
    """A name that nobody declared.

    Args:
        kind: what sort of name it is, such as "parameter".
        name: the name that was given.
        known: the names that exist.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(names)
        super().__init__(f"unknown {kind} {name!r}: {hint}")
        self.name = name
        self.near = near[0] if near else None


class UnsafeInputError(InputError):
    """A file that is hostile or beyond the size limits."""


class UnavailableError(RcaError):
    """The machine or the installation lacks something the call needs."""


class RunError(RcaError):
    """A run or a notebook failed; what was measured before is kept."""

    exit_code = 3
