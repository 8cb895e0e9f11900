"""arms.toml: what loads, and the one line that says what is wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from rcatools.errors import InputError, UnknownNameError
from rcatools.experiment.actions import ACTIONS, NEEDS_ARGUMENT
from rcatools.experiment.arms import Arm, load_plan, parse_action, parse_plan
from rcatools.experiment.worker import arm_from_dict

ROOT = Path(__file__).resolve().parents[1]
HEAD: dict[str, Any] = {
    "workload": "decode",
    "baseline": "off",
    "metric": "step_us",
    "margin": 0.01,
    "blocks": 4,
}
OFF = {"name": "off", "role": "baseline", "summary": "nothing"}


def parse(*arms: dict[str, Any], **head: Any) -> Any:
    return parse_plan("x", {**HEAD, **head, "arm": [OFF, *arms]}, "arms.toml")


def test_the_embedded_investigation_loads_with_every_declared_arm() -> None:
    plan = load_plan("capture-stream")
    declared = tomllib.loads((ROOT / "data/investigations/capture-stream/arms.toml").read_text())["arm"]
    assert [arm.name for arm in plan.arms] == [arm["name"] for arm in declared]
    by_name = {arm.name: arm for arm in plan.arms}
    assert by_name["streams_4"].actions["after_profile"][0].argument == "4"
    assert by_name["plant_multiplicative"].step == {"kv_read": 1.2}
    assert "hw_queue_side" not in {arm.name for arm in plan.choose(None, "cuda")}
    assert [arm.name for arm in plan.choose(["side"], "cuda")] == ["off", "side"]


def test_every_arm_survives_the_way_through_the_manifest() -> None:
    for arm in load_plan("capture-stream").arms:
        assert arm_from_dict(arm.as_dict()) == arm


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ({"name": "a", "role": "probe"}, "'role' and 'summary' are required"),
        ({"name": "a b", "role": "probe", "summary": ""}, "letters, digits and underscores"),
        ({"name": 3, "role": "probe", "summary": ""}, "got 3"),
        ({"name": "a", "role": "prob", "summary": ""}, "did you mean 'probe'"),
        ({"name": "a", "role": "probe", "summary": "", "profil": "side"}, "did you mean 'profile'"),
        ({"name": "a", "role": "probe", "summary": "", "profile": "sid"}, "did you mean 'side'"),
        ({"name": "a", "role": "probe", "summary": "", "kv": "last"}, "known: first, fixed, free"),
        ({"name": "a", "role": "probe", "summary": "", "capture": "fres"}, "did you mean 'fresh'"),
        ({"name": "a", "role": "probe", "summary": "", "step": {"kv": 1}}, "step key"),
        ({"name": "a", "role": "probe", "summary": "", "before_kv": ["emty_cache"]}, "'empty_cache'"),
        ({"name": "a", "role": "probe", "summary": "", "before_kv": ["pad_side"]}, "needs argument"),
        ({"name": "a", "role": "probe", "summary": "", "before_kv": ["gc:4"]}, "takes no argument"),
        ({"name": "a", "role": "probe", "summary": "", "before_kv": ["pad_side:1e3"]}, "whole number"),
        ({"name": "off", "role": "probe", "summary": ""}, "twice"),
    ],
)
def test_a_wrong_arm_is_named_with_what_is_wrong(arm: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse(arm)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ({"margin": 0}, "'margin' must be a number above 0"),
        ({"margin": "0.01"}, "got '0.01'"),
        ({"blocks": True}, "got True"),
        ({"looks": -1}, "'looks'"),
        ({"baseline": "of"}, "did you mean 'off'"),
        ({"marign": 1}, "did you mean 'margin'"),
    ],
)
def test_a_wrong_head_is_named_with_what_is_wrong(head: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse(**head)


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="RCATOOLS_DATA"):
        load_plan("x", tmp_path)
    folder = tmp_path / "investigations" / "x"
    folder.mkdir(parents=True)
    for content in (b"workload = ", b"\xff\xfe"):
        (folder / "arms.toml").write_bytes(content)
        with pytest.raises(InputError, match=r"arms\.toml"):
            load_plan("x", tmp_path)
    with pytest.raises(UnknownNameError, match="did you mean 'x'"):
        load_plan("xx", tmp_path)


def test_arms_of_another_backend_are_refused_by_name() -> None:
    plan = parse({"name": "q", "role": "probe", "summary": "", "backends": ["rocm"]})
    with pytest.raises(InputError, match="only on rocm"):
        plan.choose(["q"], "cuda")
    with pytest.raises(UnknownNameError):
        plan.choose(["p"], "cuda")


def test_every_action_has_help_and_parses() -> None:
    for name, function in ACTIONS.items():
        assert function.__doc__
        text = f"{name}:2" if name in NEEDS_ARGUMENT else name
        assert str(parse_action(text, "here")) == text


def test_an_arm_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Arm("a", "probe", "s").name = "b"  # type: ignore[misc]
