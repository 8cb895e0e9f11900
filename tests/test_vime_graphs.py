"""Times of graphs as a recording, and the two benchmarks that need a card, run here with made-up parts."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from vime_samples import DEVICE, graph_result, made_up

from rcatools.diagnosis import decode_product as dp
from rcatools.diagnosis.graph_hazards import write_tables
from rcatools.errors import InputError, RunError
from rcatools.experiment.graph_recording import write_graph_recording
from rcatools.experiment.product_recording import write_product_recording
from rcatools.recording import Recording, open_recording

ROOT = Path(__file__).resolve().parents[1]


def written(folder: Path, document: dict[str, Any]) -> Recording:
    (folder / "x.json").write_text(json.dumps(document))
    write_graph_recording(folder / "x.json", folder / "graphs")
    return open_recording(folder / "graphs")


def test_a_process_is_a_replicate_and_its_drift_cancels_in_pairs(tmp_path: Path) -> None:
    recording = written(tmp_path, graph_result(5))
    assert recording.warnings == ()
    assert recording.manifest.design["replicate"] == "process"
    values = recording.block_values("graph_m8_us")
    assert len(values) == 5
    found = dp.compare_arms(values, "packed_cached_column", "packed_cached", margin=0.05)
    assert found is not None
    assert (found.estimate.ratio, found.estimate.n) == (pytest.approx(24 / 25, rel=1e-3), 5)
    same = dp.compare_arms(values, "packed_cached_again", "packed_cached", margin=0.05)
    assert same is not None
    assert same.estimate.ratio == pytest.approx(1)
    assert set(recording.block_values("eager_m8_us").columns) - set(values.columns) == {"packed_readback"}


@pytest.mark.parametrize("key", ["device", "environment", "unix_time", "scenarios"])
def test_results_without_device_or_times_are_refused_in_one_line(key: str, tmp_path: Path) -> None:
    document = graph_result(2)
    del document[key]
    with pytest.raises(InputError, match=key):
        written(tmp_path, document)
    with pytest.raises(InputError, match="no times of replays"):
        written(tmp_path, graph_result(0))


def test_quoted_tables_name_the_device_and_the_processes(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(graph_result(3)))
    write_tables(tmp_path / "x.json", tmp_path)
    times = (tmp_path / "graph_times.csv").read_text().splitlines()
    assert times[0] == "how,form,rows,us,processes,device"
    assert "graph,packed_cached,8,25.26,3,a card" in times
    assert ",a card,refused: no <b>copy</b>" in (tmp_path / "captures.csv").read_text()


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def parts(table: dict[str, Any], once: dict[str, Any] | None, lost: set[int] = frozenset()) -> Any:  # type: ignore[assignment]
    """Stands in for a process of the benchmark."""

    def run(job: dict[str, Any], timeout_s: float = 0.0) -> dict[str, Any] | None:
        if job["part"] == "once":
            return once
        number = int(Path(job["out"]).stem.rsplit("_", 1)[1])
        return (
            None if number in lost else table | {"seed": number, "clocks": None, "unix_time": 1.8e9 + number}
        )

    return run


@pytest.fixture
def measured() -> tuple[dict[str, Any], dict[str, Any]]:
    """(table of one process, what is measured once), as the processes of the benchmark write them."""
    document = made_up(1)
    place = {"device": DEVICE, "environment": document["environment"]}
    table = {"table": [row | {"us_per_call": row["us_per_call"][0]} for row in document["table"]]}
    table |= {"ceilings": document["ceilings"][0], **place}
    once = {key: document[key] for key in ("compiled", "equality", "grid")} | {"not_run": [], **place}
    return table, once


def test_the_product_benchmark_writes_what_can_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    bench = script("decode_matmul")
    monkeypatch.setattr(bench, "in_a_process", parts(*measured, lost={2}))
    assert bench.session(tmp_path, 4, 3, 60.0, 0) == 1  # one process was lost
    document = json.loads((tmp_path / "decode_matmul.json").read_text())
    assert document["not_run"] == ["table 2: failed"]
    assert len(document["table"][0]["us_per_call"]) == len(document["processes"]) == 3
    write_product_recording(tmp_path / "decode_matmul.json", tmp_path / "made")
    assert open_recording(tmp_path / "made").manifest.state == "stopped"


def test_a_stopped_product_benchmark_has_kept_everything_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    bench = script("decode_matmul")
    run = parts(*measured)

    def until_the_third(job: dict[str, Any], timeout_s: float = 0.0) -> dict[str, Any] | None:
        if Path(job["out"]).stem == "part_table_2":
            raise KeyboardInterrupt
        return run(job)

    monkeypatch.setattr(bench, "in_a_process", until_the_third)
    with pytest.raises(KeyboardInterrupt):
        bench.session(tmp_path, 8, 3, 60.0, 0)
    document = json.loads((tmp_path / "decode_matmul.json").read_text())
    assert len(document["processes"]) == 2
    assert document["equality"] == measured[1]["equality"]


def test_no_process_starts_that_would_end_after_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    bench = script("decode_matmul")
    clock = {"now": 0.0}

    def run(job: dict[str, Any], timeout_s: float = 0.0) -> dict[str, Any] | None:
        clock["now"] += 20.0
        return parts(*measured)(job)

    monkeypatch.setattr(bench, "in_a_process", run)
    monkeypatch.setattr(bench.time, "monotonic", lambda: clock["now"])
    bench.session(tmp_path, 8, 3, 90.0, 0)
    document = json.loads((tmp_path / "decode_matmul.json").read_text())
    # 20 s for what is measured once, then 20 s a process: a fourth would end at 100 s
    assert len(document["processes"]) == 3
    assert [text.partition(":")[0] for text in document["not_run"]] == [f"table {n}" for n in (3, 4, 5, 6, 7)]


def test_what_a_dying_process_had_finished_is_kept(tmp_path: Path) -> None:
    bench = script("decode_matmul")
    bench.sys.executable, python = str(tmp_path / "python"), bench.sys.executable
    try:
        (tmp_path / "python").write_text(
            f"#!/bin/sh\nprintf '%s' '{{\"equality\": [1], \"not_run\": []}}' > {tmp_path}/part.json\nexit 3\n"
        )
        (tmp_path / "python").chmod(0o755)
        found = bench.in_a_process({"part": "once", "out": str(tmp_path / "part.json")})
        assert found == {"equality": [1], "not_run": [], "lost": "ended with code 3"}
        assert not (tmp_path / "part.json").exists()
        (tmp_path / "python").write_text("#!/bin/sh\nexit 3\n")
        assert bench.in_a_process({"part": "once", "out": str(tmp_path / "part.json")}) is None
    finally:
        bench.sys.executable = python


def test_a_group_that_does_not_start_is_part_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = script("capture_hazards")

    def no_group(*_: Any, **__: Any) -> Any:
        raise RunError("1 worker processes did not join within 60 s")

    monkeypatch.setattr(bench, "run_group", no_group)
    found = bench.tried("timed_replays", {}, 1)
    assert (found["state"], found["results"]) == ("not started", {})
    assert "did not join" in found["errors"]["all"]


def test_every_form_is_timed_and_those_that_no_graph_takes_only_eagerly() -> None:
    bench = script("capture_hazards")
    made = bench.scenarios(3, 8)
    timed = [made[f"timed_replays_{number}"][1] for number in range(3)]
    assert [item["seed"] for item in timed] == [1, 2, 3]
    assert "packed_cached_again" in timed[0]["forms"]
    assert set(timed[0]["eager_only"]) == set(bench.REFUSED)
    assert not set(timed[0]["forms"]) & set(timed[0]["eager_only"])
    for form in bench.REFUSED:  # a refused capture poisons its process, so each is tried alone
        assert made[f"capture_{form}"][1]["forms"] == (form,)
