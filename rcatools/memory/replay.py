"""Replay a snapshot's history through the allocator's rules and check every event.

At each event the model predicts what the allocator does; the file says what it did. Driver addresses, driver
failures and the moments when other streams finish are taken from the file, because no rule gives them. What
the file does not say cannot be checked, and is counted with its reason instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rcatools.errors import InputError
from rcatools.memory.endstate import end_state_difference
from rcatools.memory.engine import Engine, Mismatch
from rcatools.memory.oom_state import OomState
from rcatools.memory.rules import Rules, rules_from_snapshot
from rcatools.memory.snapshot import Snapshot
from rcatools.memory.start import StartState


@dataclass(frozen=True)
class Replay:
    """The outcome of replaying one device's history.

    Attributes:
        device: device index.
        events: events in the history.
        checked: events for which the rules give one definite answer.
        exact: checked events where the file has that answer.
        unverifiable: number of other events by reason (keys of ``engine.UNVERIFIABLE``).
        mismatches: the first events that differ, at most 20.
        segment_sequence_exact: every driver request and release came as predicted, in size and order.
        end_state_exact: segments and blocks after the last event equal the snapshot's.
        end_difference: the first difference at the end, None where equal.
        peak_reserved, peak_allocated, peak_active, peak_requested: largest bytes during the history.
        start: what existed before the first event.
        mode: "complete" (from an empty allocator), "from_middle" (from a state worked out backwards) or
            "no_history".
        rules: the rules used.
        ooms: what was cached at each out-of-memory event.
    """

    device: int
    events: int
    checked: int
    exact: int
    unverifiable: dict[str, int]
    mismatches: tuple[Mismatch, ...]
    segment_sequence_exact: bool
    end_state_exact: bool
    end_difference: str | None
    peak_reserved: int
    peak_allocated: int
    peak_active: int
    peak_requested: int
    start: StartState
    mode: str
    rules: Rules
    ooms: tuple[OomState, ...]

    @property
    def fraction_exact(self) -> float | None:
        """Exact among checked; None where nothing could be checked."""
        return self.exact / self.checked if self.checked else None

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "device": self.device,
            "events": self.events,
            "checked": self.checked,
            "exact": self.exact,
            "fraction_exact": self.fraction_exact,
            "unverifiable": sum(self.unverifiable.values()),
            "unverifiable_reasons": self.unverifiable,
            "segment_sequence_exact": self.segment_sequence_exact,
            "end_state_exact": self.end_state_exact,
            "end_difference": self.end_difference,
            "peak_reserved": self.peak_reserved,
            "peak_allocated": self.peak_allocated,
            "first_mismatch": self.mismatches[0].as_dict() if self.mismatches else None,
            "ooms": [o.as_dict() for o in self.ooms],
            "mode": self.mode,
            "torch_rules": self.rules.version,
        }


def replay_all(snapshot: Snapshot, *, rules: Rules | None = None) -> list[Replay]:
    """Replay every device of a snapshot; errors as in ``replay``."""
    if not snapshot.histories:
        return [replay(snapshot, rules=rules)]
    return [replay(snapshot, history.device, rules=rules) for history in snapshot.histories]


def replay(snapshot: Snapshot, device: int | None = None, *, rules: Rules | None = None) -> Replay:
    """Replay one device's history.

    Args:
        snapshot: the snapshot.
        device: which device; default: the one with most events.
        rules: rules to test; default: those of the snapshot's settings.

    Raises:
        InputError: the snapshot holds nothing for the device.
    """
    if not snapshot.histories:
        raise InputError(
            f"{snapshot.source} holds no segment and no event: there is nothing to replay; take it after _record_memory_history()"
        )
    if device is None:
        device = max(snapshot.histories, key=lambda h: h.events).device
    if device not in snapshot.devices:
        raise InputError(
            f"{snapshot.source} holds nothing for device {device}; it has {snapshot.devices}, give one of them"
        )
    chosen = rules or rules_from_snapshot(snapshot.settings)
    engine = _best_run(snapshot, device, chosen)
    heap = engine.heap
    difference = end_state_difference(heap, snapshot, device)
    unverifiable = engine.unverifiable
    checked = engine.n - sum(unverifiable.values())
    recorded = snapshot.history(device).recorded
    return Replay(
        device=device,
        events=engine.n,
        checked=checked,
        exact=checked - engine.wrong,
        unverifiable=unverifiable,
        mismatches=tuple(engine.mismatches),
        segment_sequence_exact=engine.segments_exact,
        end_state_exact=difference is None,
        end_difference=difference,
        peak_reserved=heap.peak_reserved,
        peak_allocated=heap.peak_allocated,
        peak_active=heap.peak_active,
        peak_requested=heap.peak_requested,
        start=engine.start,
        mode="no_history" if not recorded else "complete" if engine.start.empty else "from_middle",
        rules=chosen,
        ooms=tuple(engine.ooms),
    )


def _best_run(snapshot: Snapshot, device: int, rules: Rules) -> Engine:
    """Replay; where events of a private pool do not fit, try whether that pool was told not to split."""
    engine = Engine(snapshot, device, rules)
    engine.run()
    if engine.doubted:
        other = Engine(snapshot, device, rules, frozenset(engine.doubted))
        other.run()
        if other.wrong < engine.wrong:
            return other
    return engine
