"""What-if scenarios from YAML files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rcatools.errors import InputError, UnknownNameError
from rcatools.files import readable_file
from rcatools.memory.whatif import Scenario

MAX_SCENARIO_BYTES = 1 << 20
MAX_STEPS = 100_000


def load_scenario(path: str | Path) -> Scenario:
    """Run a scenario file (YAML): keys ``settings``, ``torch``, ``limit`` and ``steps``.

    Each step is a mapping with one key: ``alloc: {name, size, stream}``, ``free: name or names``,
    ``record_stream: {name, stream}``, ``sync``, ``empty_cache``, ``release: pool``,
    ``capture: {pool, stream, steps}``, ``mempool: {pool, use_on_oom, no_split, steps}`` and
    ``repeat: {times, steps}`` (``{i}`` in names is the round's number). ``sync`` and ``empty_cache`` may
    stand as bare words.

    Raises:
        InputError: the file is not such a scenario; the message names the step.
    """
    import yaml

    with readable_file(path, "a YAML file with a list of steps").open("rb") as file:
        data = file.read(MAX_SCENARIO_BYTES + 1)
    if len(data) > MAX_SCENARIO_BYTES:
        raise InputError(
            f"{path} is larger than {MAX_SCENARIO_BYTES} bytes; a scenario is a short list of steps"
        )
    try:
        document = yaml.safe_load(data)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise InputError(f"{path} is not valid YAML ({why}); correct it") from error
    if not isinstance(document, Mapping) or not isinstance(document.get("steps"), list):
        raise InputError(
            f"{path} needs a 'steps' list, such as 'steps: [alloc: {{name: a, size: 2 MiB}}, free: a]'"
        )
    unknown = set(map(str, document)) - {"settings", "torch", "limit", "steps", "title"}
    if unknown:
        raise UnknownNameError(
            "scenario key", sorted(unknown)[0], ["settings", "torch", "limit", "steps", "title"]
        )
    scenario = Scenario(
        str(document.get("settings") or ""), str(document.get("torch") or "2.11"), document.get("limit")
    )
    _Runner(scenario).run(document["steps"], "steps", {})
    return scenario


class _Runner:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.left = MAX_STEPS

    def run(self, steps: Any, where: str, names: dict[str, Any]) -> None:
        if not isinstance(steps, Sequence) or isinstance(steps, str):
            raise InputError(
                f"{where}: this must be a list of steps, not {type(steps).__name__}; put each step behind a dash"
            )
        for number, step in enumerate(steps):
            self._count(where)
            self._step(step, f"{where}[{number}]", names)

    def _count(self, where: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise InputError(f"{where}: more than {MAX_STEPS} steps; shorten the repeats")

    def _step(self, step: Any, where: str, names: dict[str, Any]) -> None:
        if isinstance(step, str):
            step = {step: None}
        if not isinstance(step, Mapping) or len(step) != 1:
            raise InputError(
                f"{where}: a step is a mapping with one key, such as 'alloc: {{name: a, size: 2 MiB}}'"
            )
        ((kind, value),) = step.items()
        try:
            self._do(str(kind), value, where, names)
        except InputError as error:
            if str(error).startswith("steps["):  # a step inside this one was named already
                raise
            raise InputError(f"{where}: {error}") from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{where}: {kind} misses or mistakes a field ({error}); correct it") from error

    def _do(self, kind: str, value: Any, where: str, names: dict[str, Any]) -> None:
        scenario = self.scenario

        def text(raw: Any) -> str:
            out = str(raw)
            for key, number in names.items():
                out = out.replace("{" + key + "}", str(number))
            return out

        if kind == "alloc":
            stream = value.get("stream")
            scenario.alloc(text(value["name"]), value["size"], None if stream is None else text(stream))
        elif kind == "free":
            scenario.free(*[text(n) for n in (value if isinstance(value, list) else [value])])
        elif kind == "record_stream":
            scenario.record_stream(text(value["name"]), text(value["stream"]))
        elif kind == "sync":
            scenario.sync(None if value is None else text(value))
        elif kind == "empty_cache":
            scenario.empty_cache()
        elif kind == "release":
            scenario.release(text(value))
        elif kind == "capture":
            with scenario.capture(
                text(value["pool"]), text(value["stream"]), rng_state=bool(value.get("rng_state", True))
            ):
                self.run(value["steps"], f"{where}.capture", names)
        elif kind == "mempool":
            options = {k: bool(value.get(k, False)) for k in ("use_on_oom", "no_split")}
            with scenario.mempool(text(value["pool"]), **options):
                self.run(value["steps"], f"{where}.mempool", names)
        elif kind == "repeat":
            for number in range(int(value["times"])):
                self._count(where)
                self.run(value["steps"], f"{where}.repeat", {**names, str(value.get("as", "i")): number})
        else:
            known = [
                "alloc",
                "free",
                "record_stream",
                "sync",
                "empty_cache",
                "release",
                "capture",
                "mempool",
                "repeat",
            ]
            raise UnknownNameError("step", kind, known)
