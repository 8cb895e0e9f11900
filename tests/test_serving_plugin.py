"""The plugin on stand-ins for the layouts of 0.25, 0.26 and 0.33: which stream a profile is captured on, in which order."""

from __future__ import annotations

import gzip
import importlib
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import vllm_standins as standins

from rcatools.serving import layouts, plugin, variants
from rcatools.serving.hook import after_import
from rcatools.serving.layouts import LayoutError, capture_generator, recognise_v1, recognise_v2
from rcatools.serving.markers import Marker, marker_facts, problem, read_markers

VERSIONS = ("0.25", "0.26", "0.33")


@pytest.fixture(autouse=True)
def clean_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept = {
        name: module for name, module in sys.modules.items() if name == "torch" or name.startswith("vllm.")
    }
    finders = list(sys.meta_path)
    monkeypatch.setattr(plugin, "_active", [])
    yield
    sys.meta_path[:] = finders
    for name in [
        name for name in sys.modules if name in ("torch", "vllm", "standin_torch") or name.startswith("vllm.")
    ]:
        del sys.modules[name]
    sys.modules.update(kept)


def started(
    arm: str,
    version: str,
    tmp: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    platform: str = "rocm",
    runner: str = "V1",
) -> tuple[ModuleType, Any]:
    torch = standins.install(version, platform=platform, runner=runner)
    monkeypatch.setenv(variants.ARM, arm)
    monkeypatch.setenv(variants.RUN, "run-1")
    monkeypatch.setenv(variants.MARKERS, str(tmp))
    plugin.register()
    base = importlib.import_module(plugin.WORKER)
    base.Worker(type("Config", (), {"world_size": 1}), 0)
    name = layouts.V2_MODULE if runner == "V2" else layouts.V1_MODULE
    return torch, importlib.import_module(name).GPUModelRunner


def marker(tmp: Path) -> Marker:
    (found,) = read_markers(tmp)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("platform", ["rocm", "cuda"])
def test_side_profiles_on_a_new_stream(
    version: str, platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, runner_class = started("side", version, tmp_path, monkeypatch, platform=platform)
    runner = runner_class()
    assert runner.profile_cudagraph_memory() == 111
    assert torch.log[1:] == ["enter tp", "enter pp"] + ["enter dp"] * (version == "0.33") + [
        "profile on stream 1"
    ]
    assert (
        torch.cuda.runtime is None
    )  # not even 0.26 on ROCm makes the runtime stream earlier than the others
    assert runner.capture_model() == 222
    assert torch.log[-1] == "real capture on stream 2"
    found = marker(tmp_path)
    assert (found.profile_calls, found.captures, found.estimate_bytes, found.graph_bytes) == (1, 1, 111, 222)
    assert found.patched == [
        "vllm.v1.worker.gpu_model_runner.GPUModelRunner.profile_cudagraph_memory",
        "vllm.v1.worker.gpu_model_runner.graph_capture",
    ]
    assert problem([found], arm="side", run="run-1") == ""


@pytest.mark.parametrize("version", VERSIONS)
def test_current_profiles_on_the_runtime_stream_and_makes_no_other(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, runner_class = started("current", version, tmp_path, monkeypatch, platform="cuda")
    runner = runner_class()
    runner.profile_cudagraph_memory()
    assert torch.log[-1] == f"profile on {torch.cuda.runtime}"
    assert ("enter dp" in torch.log) == (version == "0.33")
    assert torch.cuda.made == 1
    runner.capture_model()
    assert torch.log[-1] == "real capture on stream 2"


@pytest.mark.parametrize("version", VERSIONS)
def test_off_captures_nothing_and_stock_changes_nothing(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, runner_class = started("off", version, tmp_path, monkeypatch)
    assert runner_class().profile_cudagraph_memory() == 0
    assert torch.log == ["runner made"]
    assert problem([marker(tmp_path)], arm="off", run="run-1") == ""


@pytest.mark.parametrize(
    ("version", "stream"), [("0.25", "stream 1"), ("0.26", "stream 1"), ("0.33", "stream 1")]
)
def test_stock_is_what_the_version_does(
    version: str, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, runner_class = started("stock", version, tmp_path, monkeypatch)
    assert runner_class().profile_cudagraph_memory() == 111
    assert torch.log[-1] == f"profile on {stream}"
    assert (torch.cuda.runtime is not None) == (version == "0.26")  # on ROCm, 0.26 takes the runtime stream
    found = marker(tmp_path)
    assert found.patched == []
    assert found.estimate_bytes == 111


@pytest.mark.parametrize("version", VERSIONS)
def test_fixes_act_after_the_profile(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, runner_class = started("clear_blas", version, tmp_path, monkeypatch)
    runner_class().profile_cudagraph_memory()
    assert torch.log[-3:] == ["profile on stream 1", "clear_blas", "empty_cache"]


def test_side_gc_only_collects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, runner_class = started("side_gc", "0.33", tmp_path, monkeypatch)
    runner_class().profile_cudagraph_memory()
    assert torch.log[-2:] == ["profile on stream 1", "empty_cache"]


@pytest.mark.parametrize("version", VERSIONS)
def test_prewarm_runs_a_forward_on_the_runtime_stream_first(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, runner_class = started("prewarm", version, tmp_path, monkeypatch)
    runner_class().profile_cudagraph_memory()
    assert torch.log[1:3] == ["runtime stream made", "forward 8 on stream 1"]
    assert torch.log[-1] == "profile on stream 2"


def test_v2_of_0_33(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, runner_class = started("current", "0.33", tmp_path, monkeypatch, runner="V2")
    runner = runner_class()
    assert runner.profile_cudagraph_memory() == 111
    assert torch.log[-1] == f"capture on {torch.cuda.runtime}"
    assert runner.capture_model() == 222
    assert torch.log[-1] == "capture on stream 2"
    found = marker(tmp_path)
    assert found.model_runner == "V2"
    assert (found.estimate_bytes, found.graph_bytes) == (111, 222)
    assert found.patched[1] == "vllm.v1.worker.gpu.cudagraph_utils.graph_capture"


def test_v2_prewarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, runner_class = started("prewarm", "0.33", tmp_path, monkeypatch, runner="V2")
    runner_class().profile_cudagraph_memory()
    assert "forward 4 on stream 1" in torch.log


def test_v2_without_a_profile_refuses_before_weights_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, runner_class = started("side", "0.26", tmp_path, monkeypatch, runner="V2")
    with pytest.raises(LayoutError, match="VLLM_USE_V2_MODEL_RUNNER=0"):
        runner_class()
    assert torch.log == []
    assert "profiles no graphs" in problem([marker(tmp_path)], arm="side", run="run-1")


def test_off_is_possible_where_v2_profiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, runner_class = started("off", "0.25", tmp_path, monkeypatch, runner="V2")
    assert runner_class().profile_cudagraph_memory() == 0


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "vllm.v1.worker.gpu_model_runner",
            "def profile_cudagraph_memory",
            "def renamed",
            "has no GPUModelRunner",
        ),
        ("vllm.v1.worker.gpu_model_runner", "with graph_capture(", "with other(", "does not enter"),
        (
            "vllm.distributed.parallel_state",
            "torch.cuda.Stream(device=device)",
            "pool[device]",
            "unknown way",
        ),
        (
            "vllm.distributed.parallel_state",
            "def graph_capture(device)",
            "def graph_capture(a, b)",
            "takes a, b",
        ),
    ],
)
def test_unknown_layouts_are_refused_before_weights_load(
    name: str, old: str, new: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {"vllm.distributed.parallel_state": standins.COMMON + standins.STATE["0.25"]}
    runner_name = layouts.V1_MODULE
    sources[runner_name] = standins.RUNNER.replace("BODY", standins.PLAIN)
    torch = standins.install("0.25")
    sources[name] = sources[name].replace(old, new).replace("get_tp_group()", "get_tp_group()")
    standins.add("vllm.distributed.parallel_state", sources["vllm.distributed.parallel_state"])
    standins.add(runner_name, sources[runner_name])
    monkeypatch.setenv(variants.ARM, "side")
    monkeypatch.setenv(variants.MARKERS, str(tmp_path))
    plugin.register()
    with pytest.raises(LayoutError, match=message):
        sys.modules[runner_name].GPUModelRunner()
    assert torch.log == []
    assert marker(tmp_path).error


def test_on_the_cpu_nothing_is_patched_and_the_marker_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, runner_class = started("side", "0.33", tmp_path, monkeypatch, platform="cpu")
    method = vars(runner_class)["profile_cudagraph_memory"]
    runner_class()
    found = marker(tmp_path)
    assert found.effect.startswith(variants.NOTHING_TO_PATCH)
    assert found.patched == []
    assert vars(runner_class)["profile_cudagraph_memory"] is method
    assert problem([found], arm="side", run="run-1") == ""
    assert torch.log == ["runner made"]


def test_worker_and_kv_blocks_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started("stock", "0.33", tmp_path, monkeypatch)
    wrapper = importlib.import_module(plugin.WORKER_BASE).WorkerWrapperBase()
    wrapper.initialize_from_config([type("Config", (), {"num_blocks": 4321})])
    found = marker(tmp_path)
    assert (found.rank, found.world_size, found.kv_blocks, found.platform) == (0, 1, 4321, "rocm")


def test_without_the_variable_nothing_happens_and_a_wrong_one_is_loud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variants.ARM, raising=False)
    finders = list(sys.meta_path)
    plugin.register()
    assert sys.meta_path == finders
    monkeypatch.setenv(variants.ARM, "sideways")
    with pytest.raises(ValueError, match="names no variant"):
        plugin.register()


def test_repeated_loading_patches_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, runner_class = started("side", "0.33", tmp_path, monkeypatch)
    plugin.register()
    runner_class().profile_cudagraph_memory()
    assert marker(tmp_path).captures == 1
    assert torch.log.count("enter tp") == 1


def test_plugin_imports_no_more_than_it_needs() -> None:
    code = (
        "import sys, rcatools.serving.plugin; "
        "heavy = {'numpy', 'pandas', 'torch', 'pyarrow', 'msgspec', 'vllm'} & set(sys.modules); print(heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_hook_acts_once_the_module_is_imported_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[int] = []
    after_import("late_module", lambda module: seen.append(module.value))
    assert seen == []
    module = importlib.import_module("late_module")
    assert seen == [1]
    assert module.__spec__ is not None
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    after_import("late_module", lambda module: seen.append(2))
    assert seen == [1, 2]
    (tmp_path / "refused_module.py").write_text("")

    def refuse(_: ModuleType) -> None:
        raise LayoutError("no")

    after_import("refused_module", refuse)
    with pytest.raises(LayoutError):
        importlib.import_module("refused_module")


@pytest.mark.parametrize("initialized", [True, False])
def test_snapshots_at_three_points_of_the_start(
    initialized: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variants.SNAPSHOTS, str(tmp_path / "snapshots"))
    torch, runner_class = started("side", "0.33", tmp_path / "markers", monkeypatch)
    taken: list[str] = []
    memory = SimpleNamespace(
        _record_memory_history=lambda **_: taken.append("history"),
        _snapshot=lambda: {"segments": [], "log_so_far": list(torch.log)},
    )
    for name, value in {"is_available": lambda: True, "is_initialized": lambda: initialized}.items():
        setattr(torch.cuda, name, value)
    torch.cuda.memory, torch.cuda.synchronize = memory, lambda: None
    worker_class = importlib.import_module(plugin.WORKER).Worker
    one = worker_class(type("Config", (), {"world_size": 1}), 0)
    one.load_model()
    runner_class().profile_cudagraph_memory()
    wrapper = importlib.import_module(plugin.WORKER_BASE).WorkerWrapperBase()
    wrapper.initialize_from_config([type("Config", (), {"num_blocks": 5})])
    one.compile_or_warm_up_model()
    found = marker(tmp_path / "markers")
    names = [f"rank0-{point}.pickle.gz" for point in variants.POINTS] if initialized else []
    assert found.snapshots == names
    assert taken == (["history"] if initialized else [])
    if initialized:
        with gzip.open(tmp_path / "snapshots" / names[0]) as stream:
            assert pickle.load(stream)["log_so_far"][-1] == "profile on stream 1"


def worker(**changes: Any) -> Marker:
    values: dict[str, Any] = {
        "arm": "side",
        "run": "r",
        "pid": 1,
        "rank": 0,
        "world_size": 1,
        "model_runner": "V1",
    }
    values |= {"patched": ["a"], "effect": "x", "profile_calls": 1, "captures": 1}
    return Marker(**{**values, **changes})


@pytest.mark.parametrize(
    ("markers", "message"),
    [
        ([], "no marker was written"),
        ([worker(run="other")], "no marker was written"),
        ([Marker("side", "r")], "front end only"),
        ([worker(arm="off")], "ran the arm 'off'"),
        ([worker(world_size=4), worker(rank=2, pid=2, world_size=4)], "no marker of worker rank 1, 3"),
        ([worker(error="unknown layout")], "the plugin refused: unknown layout"),
        ([worker(model_runner="")], "does not know"),
        ([worker(profile_calls=0, captures=0)], "never profiled its graphs"),
        ([worker(captures=0)], "had no graph to profile"),
        ([worker(effect=f"{variants.NOTHING_TO_PATCH} (cpu)")], "says both"),
        ([worker()], ""),
        ([worker(effect=f"{variants.NOTHING_TO_PATCH} (cpu)", patched=[], profile_calls=0, captures=0)], ""),
    ],
)
def test_results_count_only_with_every_workers_marker(markers: list[Marker], message: str) -> None:
    found = problem(markers, arm="side", run="r")
    assert message in found
    assert bool(found) == bool(message)


def test_markers_survive_damage_and_give_facts(tmp_path: Path) -> None:
    for rank, size in ((0, 100), (1, 120)):
        worker(
            pid=rank + 1, rank=rank, world_size=2, kv_blocks=50 - rank, estimate_bytes=size, graph_bytes=90
        ).write(str(tmp_path))
    (tmp_path / "9.json").write_text("{")
    (tmp_path / "8.json").write_text(json.dumps({"unknown": 1}))
    markers = read_markers(tmp_path)
    assert [item.pid for item in markers] == [1, 2]
    facts = marker_facts(markers, run="r")
    assert (facts["workers"], facts["kv_blocks"], facts["memory_exact"]) == (2, 49, True)
    assert marker_facts(markers, run="other") == {}


def test_layouts_of_the_stand_ins() -> None:
    for version in VERSIONS:
        standins.install(version, runner="V2")
        assert recognise_v1(sys.modules[layouts.V1_MODULE]).hands_context == (version == "0.26")
        found = recognise_v2(sys.modules[layouts.V2_MODULE], sys.modules[layouts.V2_CAPTURE_MODULE])
        assert found.captures == (version == "0.33")
        capture_generator(sys.modules[layouts.STATE_MODULE].graph_capture)
