"""What an out-of-memory message says about its cause, in the wording of any torch version."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rcatools.units import byte_size

_UNIT = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_AMOUNT = r"([0-9]+(?:\.[0-9]+)?) (bytes|B|[KMGT]iB)"
_FIELDS = {
    "requested": rf"[Tt]ried to allocate {_AMOUNT}",
    "capacity": rf"total capaci?ty of {_AMOUNT}|{_AMOUNT} total capacity",
    "free": rf"of which {_AMOUNT} is free|{_AMOUNT} (?:is )?free",
    "allocated": rf"[Oo]f the allocated memory {_AMOUNT} is allocated by PyTorch|{_AMOUNT} already allocated",
    "idle": rf"{_AMOUNT} is reserved by PyTorch but unallocated",
    "reserved": rf"{_AMOUNT} (?:cached|reserved in total by PyTorch)",
    "private_pools": rf"with {_AMOUNT} allocated in private pools",
    "process": rf"this process has {_AMOUNT} memory in use",
    "allowed": rf"{_AMOUNT} allowed",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _FIELDS.items()}
_DEVICE = re.compile(r"\bGPU (\d+)\b")

NOT_CAPACITY = "not_capacity"
CAPACITY = "capacity"
CACHE_MAY_COVER = "cache_may_cover"
ALLOWANCE = "allowance"
UNREADABLE = "incomplete"


@dataclass(frozen=True)
class OomReport:
    """One message, read. Sizes in bytes, None where the message does not state them.

    Attributes:
        device: device index.
        requested: what was asked for.
        capacity: the device's memory.
        free: what the driver called free.
        allocated: in use by torch.
        idle: held by torch and unused ("reserved but unallocated"; older: reserved minus allocated).
        private_pools: part of ``allocated`` that lies in private pools, free or not.
        non_torch: capacity minus free, allocated and idle: other libraries, the driver, other processes.
        short_by: how much the request exceeds free plus idle memory; None if it does not.
        allowed: the process's own limit, where one was set.
        cause: "not_capacity" (free memory would do, so another limit failed the request), "capacity" (not even
            free plus idle memory would do), "cache_may_cover" (free plus idle memory would do, if it is in one
            piece and in the right pool), "allowance" (the process's own limit), or "incomplete".
        advice: what to look at, one sentence each.
    """

    device: int | None
    requested: int | None
    capacity: int | None
    free: int | None
    allocated: int | None
    idle: int | None
    private_pools: int | None
    non_torch: int | None
    short_by: int | None
    allowed: int | None
    cause: str
    advice: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {**self.__dict__, "advice": list(self.advice)}


def is_oom_line(line: str) -> bool:
    """Whether a line is such a message."""
    return "out of memory" in line and _PATTERNS["requested"].search(line) is not None


def read_oom_line(line: str) -> OomReport:
    """Read one message; what it does not state stays None. Figures are rounded in the message to 0.01 units."""
    values = {name: _amount(pattern, line) for name, pattern in _PATTERNS.items()}
    requested, capacity, free = values["requested"], values["capacity"], values["free"]
    allocated, idle = values["allocated"], values["idle"]
    if idle is None and values["reserved"] is not None and allocated is not None:
        idle = max(values["reserved"] - allocated, 0)
    non_torch = None
    if capacity is not None and free is not None and allocated is not None and idle is not None:
        non_torch = capacity - free - allocated - idle
    short = None
    if requested is not None and free is not None:
        missing = requested - free - (idle or 0)
        short = missing if missing > 0 else None
    device = _DEVICE.search(line)
    cause = _cause(requested, free, idle, values["allowed"], allocated)
    return OomReport(
        device=int(device[1]) if device else None,
        requested=requested,
        capacity=capacity,
        free=free,
        allocated=allocated,
        idle=idle,
        private_pools=values["private_pools"],
        non_torch=non_torch,
        short_by=short,
        allowed=values["allowed"],
        cause=cause,
        advice=_advice(cause, idle, values["private_pools"], short),
    )


def _amount(pattern: re.Pattern[str], line: str) -> int | None:
    match = pattern.search(line)
    if match is None:
        return None
    groups = [g for g in match.groups() if g is not None]
    return round(float(groups[0]) * _UNIT[groups[1]])


def _cause(
    requested: int | None, free: int | None, idle: int | None, allowed: int | None, allocated: int | None
) -> str:
    if requested is None or free is None:
        return UNREADABLE
    if (
        allowed is not None
        and allocated is not None
        and allocated + (idle or 0) + requested > allowed
        and free >= requested
    ):
        return ALLOWANCE
    if free >= requested:
        return NOT_CAPACITY
    return CACHE_MAY_COVER if free + (idle or 0) >= requested else CAPACITY


def _advice(cause: str, idle: int | None, private: int | None, short: int | None) -> tuple[str, ...]:
    out = []
    if cause == NOT_CAPACITY:
        out.append(
            "the driver calls more memory free than was asked for: look for a limit outside the allocator (unified "
            "memory or GTT limit, per-allocation limit, a free figure read at another moment)"
        )
        out.append(f"allocator settings cannot help: only {byte_size(idle)} is idle inside it")
    elif cause == ALLOWANCE:
        out.append("the process's own memory fraction was reached, not the device's capacity")
    elif cause == CAPACITY:
        out.append(
            f"free and idle memory together are {byte_size(short)} short: use less, or a larger device"
        )
    elif cause == CACHE_MAY_COVER:
        out.append(
            f"free plus {byte_size(idle)} idle memory would do; whether it is in one piece, on the same stream and in "
            "the same pool is not in the message: take a snapshot and read its ledger"
        )
    if private:
        out.append(
            f"{byte_size(private)} of the allocated bytes lie in private pools and may be unused there"
        )
    return tuple(out)
