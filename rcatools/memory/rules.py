"""The rules of torch's native caching allocator: constants, settings and what changed between versions.

The rules hold for CUDA and for ROCm builds, which compile the same source. They were checked against
recorded histories of torch 2.11 on an H200 and against public snapshots; other versions follow their
documented differences. Nothing here was run on ROCm.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rcatools.errors import InputError

KIB = 1 << 10
MIB = 1 << 20
UNLIMITED = (1 << 63) - 1
BUCKETS = 16
"""Rounding can be set per power of two of MiB: 1, 2, 4, ... and the last for everything above."""


@dataclass(frozen=True)
class Rules:
    """Everything the allocator's decisions depend on; sizes in bytes.

    Attributes:
        min_block: every block is a multiple of this.
        small_size: requests up to this size use the small pool.
        small_buffer: driver request of the small pool.
        large_buffer: driver request for requests below ``min_large``.
        min_large: requests from this size on get a driver segment of their own size.
        round_large: granule of those driver requests.
        max_split_size: larger blocks are never split.
        max_non_split_rounding: how much larger a reused unsplit block may be.
        roundup_divisions: divisions between powers of two per bucket; 0 and 1 round to ``min_block``.
        gc_threshold: share of the limit at which old blocks are collected; 0 is off.
        expandable: whether new memory comes from expandable segments.
        overflow_first: use pools marked ``use_on_oom`` before giving anything back to the driver
            (torch 2.11 and later) rather than after everything else failed.
        mempool_is_capture: an active MemPool has the effects of a graph capture: frees that wait for other
            streams are not looked at and the default pools are not released (before torch 2.13).
        version: what the rules were chosen for, for the reader.
    """

    min_block: int = 512
    small_size: int = MIB
    small_buffer: int = 2 * MIB
    large_buffer: int = 20 * MIB
    min_large: int = 10 * MIB
    round_large: int = 2 * MIB
    max_split_size: int = UNLIMITED
    max_non_split_rounding: int = 20 * MIB
    roundup_divisions: tuple[int, ...] = field(default=(0,) * BUCKETS)
    gc_threshold: float = 0.0
    expandable: bool = False
    overflow_first: bool = True
    mempool_is_capture: bool = True
    version: str = "2.11"

    def round_size(self, nbytes: int) -> int:
        """The block size a request is rounded to."""
        if nbytes < self.min_block:
            return self.min_block
        divisions = self.roundup_divisions[bucket_of(nbytes)]
        if divisions > 1 and nbytes > self.min_block * divisions:
            return _round_power2_divisions(nbytes, divisions)
        return -(-nbytes // self.min_block) * self.min_block

    def driver_size(self, rounded: int) -> int:
        """The size asked of the driver when no cached block fits."""
        if rounded <= self.small_size:
            return self.small_buffer
        if rounded < self.min_large:
            return self.large_buffer
        return -(-rounded // self.round_large) * self.round_large

    def splits(self, small: bool, rounded: int, remaining: int) -> bool:
        """Whether the rest of a chosen block becomes a free block of its own."""
        if small or self.expandable:
            return remaining >= self.min_block
        return rounded < self.max_split_size and remaining > self.small_size


def bucket_of(nbytes: int) -> int:
    """The rounding bucket of a size: sizes up to 1 MiB, then one per power of two, the last open."""
    # a size belongs to the largest power of two that it reaches
    return min(max(nbytes.bit_length() - 1 - 20, 0), BUCKETS - 1)


def _round_power2_divisions(nbytes: int, divisions: int) -> int:
    if nbytes & (nbytes - 1) == 0:
        return nbytes
    floor = 1 << (nbytes.bit_length() - 1)
    step = floor >> (divisions.bit_length() - 1)
    if step == 0:
        return floor << 1
    return -(-nbytes // step) * step


DECIDING = (
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "expandable_segments",
    "large_segment_size_mb",
    "roundup_power2_divisions",
)
_SETTING = re.compile(r"\s*([A-Za-z_0-9]+)\s*:\s*(\[[^\]]*\]|[^,:\[\]]+)\s*(?:,|$)")


def parse_settings(text: str) -> dict[str, str]:
    """The keys and values of an allocator settings string such as ``max_split_size_mb:64``.

    Raises:
        InputError: the text is not such a string.
    """
    out: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _SETTING.match(text, position)
        if match is None:
            raise InputError(
                f"allocator settings are written key:value,key:value, such as max_split_size_mb:64; got {text[position : position + 40]!r}"
            )
        out[match[1].lower()] = match[2].strip()
        position = match.end()
    return out


def rules_from_settings(text: str, version: str = "2.11") -> Rules:
    """Rules for a settings string (``PYTORCH_CUDA_ALLOC_CONF``) and a torch version.

    Keys that do not change decisions (pinned memory, locks) are accepted and ignored.

    Raises:
        InputError: a value is not valid.
    """
    rules = rules_for_version(version)
    for key, value in parse_settings(text).items():
        try:
            if key == "max_split_size_mb":
                rules = replace(rules, max_split_size=_positive(value) * MIB)
            elif key == "max_non_split_rounding_mb":
                rules = replace(rules, max_non_split_rounding=_positive(value) * MIB)
            elif key == "garbage_collection_threshold":
                rules = replace(rules, gc_threshold=float(value))
            elif key == "expandable_segments":
                rules = replace(rules, expandable=value.lower() in ("true", "1"))
            elif key == "large_segment_size_mb":
                rules = replace(rules, large_buffer=_positive(value) * MIB)
            elif key == "roundup_power2_divisions":
                rules = replace(rules, roundup_divisions=_divisions(value))
        except ValueError as error:
            raise InputError(
                f"allocator setting {key}:{value} is not valid ({error}); write it as torch takes it"
            ) from error
    return rules


def _positive(text: str) -> int:
    value = int(text)
    if not 0 < value <= 1 << 30:
        raise ValueError("a size in MiB must be above 0")
    return value


def _divisions(value: str) -> tuple[int, ...]:
    if not value.startswith("["):
        return (int(value),) * BUCKETS
    out = [0] * BUCKETS
    first, last_bucket = True, -1
    for part in value.strip("[]").split(","):
        name, _, number = part.strip().partition(":")
        count = int(number)
        if name.strip() == ">":
            out[last_bucket + 1 :] = [count] * (BUCKETS - last_bucket - 1)
        else:
            bucket = min(max(int(name).bit_length() - 1, 0), BUCKETS - 1)
            if first:  # smaller sizes follow the first entry
                out[:bucket] = [count] * bucket
            out[bucket] = count
            last_bucket = bucket
        first = False
    return tuple(out)


def rules_for_version(version: str) -> Rules:
    """The default rules of a torch version such as "2.9.1" or "2.11.0+cu130"; unknown text means the newest.

    Two things differ between them: overflow pools come after the full release up to 2.9 and before it from
    2.11 (2.10 was not examined), and an active MemPool counts as a capture before 2.13.
    """
    match = re.match(r"\s*v?(\d+)\.(\d+)", version)
    pair = (int(match[1]), int(match[2])) if match else (99, 0)
    return Rules(
        overflow_first=pair >= (2, 10),
        mempool_is_capture=pair < (2, 13),
        version=f"{pair[0]}.{pair[1]}" if match else "newest",
    )


def rules_from_snapshot(settings: Mapping[str, Any], version: str | None = None) -> Rules:
    """Rules for a snapshot's ``allocator_settings`` (empty in old files: defaults).

    The mapping states the values in force when the snapshot was made; a change during the recording is
    not in the file.
    """
    rules = rules_for_version(version or guess_version(settings))
    text = settings.get("PYTORCH_CUDA_ALLOC_CONF", "")
    if isinstance(text, str) and text:
        with contextlib.suppress(InputError):  # the parsed values below are what was in force
            rules = replace(rules_from_settings(text, rules.version), version=rules.version)
    split = settings.get("max_split_size")
    if type(split) is int:
        rules = replace(rules, max_split_size=split if 0 < split < UNLIMITED else UNLIMITED)
    threshold = settings.get("garbage_collection_threshold")
    if isinstance(threshold, (int, float)) and 0 <= threshold < 1:
        rules = replace(rules, gc_threshold=float(threshold))
    if isinstance(settings.get("expandable_segments"), bool):
        rules = replace(rules, expandable=settings["expandable_segments"])
    divisions = settings.get("roundup_power2_divisions")
    if isinstance(divisions, Mapping):
        values = [divisions.get(str(1 << i), 0) for i in range(BUCKETS)]
        if all(type(v) is int and 0 <= v < 1 << 20 for v in values):
            rules = replace(rules, roundup_divisions=tuple(values))
    return rules


def guess_version(settings: Mapping[str, Any]) -> str:
    """A torch version whose settings have these keys; the newest keys decide."""
    if "max_cached_size" in settings:
        return "2.15"
    if "graph_capture_record_stream_reuse" in settings:
        return "2.11"
    return "2.8" if settings else "2.1"
