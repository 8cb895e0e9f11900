"""Call stacks in one line: which line of a program asked for a block."""

from __future__ import annotations

from collections.abc import Sequence

from rcatools.memory.owners import ALLOCATOR_FRAMES
from rcatools.memory.snapshot import Frame

_LIBRARY = ("torch/", "torch\\", "<frozen", "runpy.py")


def site(frames: Sequence[Frame]) -> str:
    """The innermost Python line outside torch, else the innermost named function that is not the allocator's.

    Only the last part of a file's path is given, because paths hold names of people and machines. Empty for
    an empty stack.
    """
    for name, filename, line in frames:
        if filename.endswith(".py") and not any(part in filename for part in _LIBRARY):
            return f"{name} ({_last_part(filename)}:{line})"
    for name, _, _ in frames:
        if name and not ALLOCATOR_FRAMES.search(name):
            return name[:160]
    return ""


def _last_part(filename: str) -> str:
    return filename.replace("\\", "/").rsplit("/", 1)[-1]
