"""Arms: what differs from the baseline, as data in ``data/investigations/<slug>/arms.toml``.

TOML because the recorder runs where only torch, numpy, pandas and pyarrow are installed.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rcatools.errors import InputError, UnknownNameError

STAGES = (
    "start",
    "before_profile",
    "after_profile",
    "before_kv",
    "after_kv",
    "before_capture",
    "after_capture",
)
ROLES = ("baseline", "repeat", "suspect", "fix", "probe", "plant_additive", "plant_multiplicative")
PROFILES = ("none", "side", "current", "legacy")
KV_MODES = ("free", "first", "fixed")
CAPTURES = ("fresh", "fresh_warm", "runtime", "eager")
STEP_KEYS = ("empty_kernels", "kv_read")
_PLAN_KEYS = (
    "workload",
    "baseline",
    "metric",
    "margin",
    "confidence",
    "blocks",
    "looks",
    "spawn_share",
    "parameters",
    "short",
)


@dataclass(frozen=True)
class Action:
    """One thing done at a stage: a name in ``actions.ACTIONS`` and its argument ("touch_streams:4")."""

    name: str
    argument: str | None = None

    def __str__(self) -> str:
        """The form used in arms.toml."""
        return self.name if self.argument is None else f"{self.name}:{self.argument}"


@dataclass(frozen=True)
class Arm:
    """One named variant of the procedure.

    Attributes:
        name, role, summary: how it is called, what it is for, one line for people.
        profile: stream of the throwaway capture before the KV cache ("none" leaves it out).
        actions: what is done at each stage.
        step: changes of the decode step.
        kv: "free", "first" (allocated before the profile) or "fixed" (size ignores the estimate).
        capture: "fresh" (a new stream that runs nothing), "fresh_warm" (a new stream that also runs the
            warm-up, as vLLM's does), "runtime" (the runtime stream) or "eager".
        scratch: True takes a raw 79,691,776-byte scratch once, in the first forward with attention.
        empty_cache: False leaves out the cache release before the KV cache.
        env: environment of its process.
        backends: where it makes sense.
        isolation: "any" or "spawn" (a fresh interpreter, for settings read when a library loads).
        settings: what a workload other than "decode" is told; that workload checks the names.
    """

    name: str
    role: str
    summary: str
    profile: str = "none"
    actions: dict[str, tuple[Action, ...]] = field(default_factory=dict)
    step: dict[str, float] = field(default_factory=dict)
    kv: str = "free"
    capture: str = "fresh"
    scratch: bool = False
    empty_cache: bool = True
    env: dict[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = ("cuda", "rocm", "cpu")
    isolation: str = "any"
    settings: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON for the manifest; actions in their text form."""
        document = asdict(self) | {"backends": list(self.backends)}
        document["actions"] = {stage: [str(a) for a in actions] for stage, actions in self.actions.items()}
        return document


@dataclass(frozen=True)
class Plan:
    """All that an investigation's arms.toml declares.

    Attributes:
        investigation: slug.
        workload: "decode" or another name the worker knows.
        baseline: name of the baseline arm.
        metric: the metric that is judged, such as "step_us".
        margin: equivalence margin as a ratio minus one.
        confidence: of the intervals.
        blocks: planned number of blocks.
        looks: planned looks of a sequential stop.
        spawn_share: share of blocks in which every arm runs in a fresh interpreter.
        arms: all arms in order.
        parameters: workload parameters other than the backend's defaults, by backend.
        short: workload parameters of a short live check, in place of those.
    """

    investigation: str
    workload: str
    baseline: str
    metric: str
    margin: float
    confidence: float
    blocks: int
    looks: int
    spawn_share: float
    arms: tuple[Arm, ...]
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)
    short: dict[str, Any] = field(default_factory=dict)

    def choose(self, names: Iterable[str] | None, backend: str) -> tuple[Arm, ...]:
        """The arms to run on a backend, in declared order; the baseline is always among them.

        Raises:
            UnknownNameError: a name is no arm.
            InputError: a named arm does not exist on this backend.
        """
        by_name = {arm.name: arm for arm in self.arms}
        if names is None:
            return tuple(arm for arm in self.arms if backend in arm.backends)
        wanted = set(names) | {self.baseline}
        for name in wanted:
            if name not in by_name:
                raise UnknownNameError("arm", name, by_name)
            if backend not in by_name[name].backends:
                places = ", ".join(by_name[name].backends)
                raise InputError(f"arm {name!r} exists only on {places}, this is {backend}: leave it out")
        return tuple(arm for arm in self.arms if arm.name in wanted)


def data_folder() -> Path:
    """The project's data folder: $RCATOOLS_DATA, or ``data`` beside the package."""
    override = os.environ.get("RCATOOLS_DATA")
    return Path(override) if override else Path(__file__).resolve().parents[2] / "data"


def load_plan(investigation: str, folder: Path | None = None) -> Plan:
    """Read ``arms.toml`` of an investigation.

    Raises:
        UnknownNameError: no such investigation, or a name inside the file is not known.
        InputError: the file is damaged; the message names the arm and the key.
    """
    root = (folder or data_folder()) / "investigations"
    known = sorted(file.parent.name for file in root.glob("*/arms.toml"))
    if investigation not in known:
        if not known:
            raise InputError(
                f"no investigations in {root}: run in a checkout, or set RCATOOLS_DATA to its data folder"
            )
        raise UnknownNameError("investigation", investigation, known)
    file = root / investigation / "arms.toml"
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is no valid TOML ({error}): correct it") from None
    return parse_plan(investigation, document, str(file))


def parse_plan(investigation: str, document: dict[str, Any], where: str) -> Plan:
    """Check a parsed arms.toml and turn it into a Plan; errors as in load_plan."""
    for key in document:
        if key not in {*_PLAN_KEYS, "arm"}:
            raise UnknownNameError(f"key in {where}", key, {*_PLAN_KEYS, "arm"})
    for key in ("workload", "baseline", "metric", "margin", "blocks"):
        if key not in document:
            raise InputError(f"{where} lacks the key '{key}': add it")
    arms = tuple(_parse_arm(item, where) for item in document.get("arm", []))
    names = [arm.name for arm in arms]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise InputError(f"{where} declares the arm {doubled[0]!r} twice: keep one")
    if document["baseline"] not in names:
        raise UnknownNameError(f"baseline in {where}", str(document["baseline"]), names)
    return Plan(
        investigation=investigation,
        workload=str(document["workload"]),
        baseline=str(document["baseline"]),
        metric=str(document["metric"]),
        margin=_number(document, "margin", where, low=0, high=1),
        confidence=_number(document, "confidence", where, low=0.5, high=1, default=0.95),
        blocks=int(_number(document, "blocks", where, low=0, high=1e6)),
        looks=int(_number(document, "looks", where, low=0, high=100, default=5)),
        spawn_share=_number(document, "spawn_share", where, low=-1, high=1, default=0.15),
        arms=arms,
        parameters=dict(document.get("parameters", {})),
        short=dict(document.get("short", {})),
    )


def parse_action(text: str, where: str) -> Action:
    """An action from its text form; the name must be known, the argument must be there if needed."""
    from rcatools.experiment.actions import ACTIONS, NEEDS_ARGUMENT

    name, _, argument = text.partition(":")
    if name not in ACTIONS:
        raise UnknownNameError(f"action in {where}", name, ACTIONS)
    if (name in NEEDS_ARGUMENT) != bool(argument):
        need = "needs" if name in NEEDS_ARGUMENT else "takes no"
        raise InputError(f"{where}: action {name!r} {need} argument, as in '{name}:4'")
    if argument and not (argument.isdigit() and int(argument) <= 10**6):
        raise InputError(f"{where}: the argument of {text!r} must be a whole number up to 1000000")
    return Action(name, argument or None)


def _parse_arm(item: dict[str, Any], where: str) -> Arm:
    name = item.get("name")
    if not isinstance(name, str) or not name.replace("_", "a").isalnum():
        raise InputError(f"{where}: an arm needs a name of letters, digits and underscores, got {name!r}")
    place = f"{where}, arm {name!r}"
    known = {"name", "role", "summary", "profile", "step", "kv", "capture", "scratch", "empty_cache", "env"}
    known |= {"backends", "isolation", "settings", *STAGES}
    for key in item:
        if key not in known:
            raise UnknownNameError(f"key in {place}", key, known)
    for key, allowed in (("role", ROLES), ("profile", PROFILES), ("kv", KV_MODES), ("capture", CAPTURES)):
        if key in item and item[key] not in allowed:
            raise UnknownNameError(f"{key} in {place}", str(item[key]), allowed)
    for key in item.get("step", {}):
        if key not in STEP_KEYS:
            raise UnknownNameError(f"step key in {place}", key, STEP_KEYS)
    if "role" not in item or "summary" not in item:
        raise InputError(f"{place}: 'role' and 'summary' are required: add them")
    plain = {key: item[key] for key in item if key not in {*STAGES, "backends", "env"}}
    return Arm(
        **plain,
        actions={
            stage: tuple(parse_action(text, place) for text in item[stage])
            for stage in STAGES
            if stage in item
        },
        env={str(k): str(v) for k, v in item.get("env", {}).items()},
        backends=tuple(item.get("backends", ("cuda", "rocm", "cpu"))),
    )


def _number(
    document: dict[str, Any], key: str, where: str, *, low: float, high: float, default: float | None = None
) -> float:
    value = document.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low < value <= high:
        raise InputError(f"{where}: '{key}' must be a number above {low} and up to {high}, got {value!r}")
    return float(value)
