"""What a trace does not allow one to conclude, found before any table is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rcatools.trace.model import Trace


@dataclass(frozen=True)
class Finding:
    """One defect: how many events it concerns and how much time."""

    code: str
    text: str
    count: int
    us: float

    def to_json(self) -> dict[str, Any]:
        """The form of the command line."""
        return vars(self)


@dataclass(frozen=True)
class Health:
    """``blocks`` names what may not be concluded from the trace: "idle", "per_step", "durations", ..."""

    blocks: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Nothing is blocked."""
        return not self.blocks

    def to_json(self) -> dict[str, Any]:
        """The form of the command line."""
        return {
            "ok": self.ok,
            "blocks": list(self.blocks),
            "findings": [finding.to_json() for finding in self.findings],
        }


def health(trace: Trace) -> Health:
    """Check one trace."""
    findings = [Finding(w.code, w.text, w.count, 0.0) for w in trace.warnings]
    return Health(blocks=(), findings=tuple(findings))
