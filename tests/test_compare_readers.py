"""Every accepted form of a table gives the same rows, and nothing in it is ignored in silence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compare_help import arm, compare, result, run, write

from rcatools.errors import InputError, UnknownNameError
from rcatools.recording.tables import Request, Table, read_tables
from rcatools.recording.tables.files import read_sheet
from rcatools.recording.tables.names import more_is_better, statistic_of

DATA = Path(__file__).parent / "data" / "compare"
ROWS = [("a", 1, 10.5), ("a", 2, 10.25), ("a", 3, 11.0), ("b", 1, 12.0), ("b", 2, 12.5), ("b", 3, 11.75)]


def read(path: Path, baseline: str = "a", **request: object) -> Table:
    return read_tables([(None, path)], Request(baseline, **request))  # type: ignore[arg-type]


def rows_of(table: Table) -> list[tuple[str, str, float]]:
    return [
        (str(a), str(r), float(v)) for a, r, v in table.frame[["arm", "run", "value"]].itertuples(index=False)
    ]


FORMS = {
    "plain.csv": "arm,run,value\n" + "".join(f"{a},{r},{v}\n" for a, r, v in ROWS),
    "other order and case.csv": "Value, RUN ,Arm\n" + "".join(f"{v},{r},{a}\n" for a, r, v in ROWS),
    "quoted.csv": '"arm","run","value"\r\n' + "".join(f'"{a}","{r}","{v}"\r\n' for a, r, v in ROWS),
    "tabs.tsv": "arm\trun\tvalue\n" + "".join(f"{a}\t{r}\t{v}\n" for a, r, v in ROWS),
    "semicolons.csv": "arm;run;value\n" + "".join(f"{a};{r};{v}\n".replace(".", ",") for a, r, v in ROWS),
    "comments.csv": "# measured by hand\n\narm,run,value\n" + "".join(f"{a},{r},{v}\n" for a, r, v in ROWS),
    "units.csv": "arm,run,value\n" + "".join(f"{a},{r},{v} ms\n" for a, r, v in ROWS),
    "markdown.md": "| arm | run | value |\n|:--|--:|---|\n"
    + "".join(f"| `{a}` | {r} | **{v}** |\n" for a, r, v in ROWS),
    "rows.json": json.dumps([dict(zip(("arm", "run", "value"), row, strict=True)) for row in ROWS]),
    "columns.json": json.dumps({k: [row[i] for row in ROWS] for i, k in enumerate(("arm", "run", "value"))}),
    "wrapped.json": json.dumps(
        {"rows": [dict(zip(("arm", "run", "value"), row, strict=True)) for row in ROWS]}
    ),
    "lines.jsonl": "".join(
        json.dumps(dict(zip(("arm", "run", "value"), row, strict=True))) + "\n" for row in ROWS
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_one_table_read_alike(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FORMS[name], encoding="utf-8")
    assert rows_of(read(path)) == [(a, str(r), v) for a, r, v in ROWS]


def test_utf16_and_byte_order_marks(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-8-sig"):
        path = tmp_path / f"{encoding}.csv"
        path.write_text(FORMS["plain.csv"], encoding=encoding)
        assert len(read(path).frame) == 6


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pd.DataFrame(ROWS, columns=["arm", "run", "value"]).to_parquet(path)
    assert rows_of(read(path)) == [(a, str(r), v) for a, r, v in ROWS]


def test_a_wide_table_pairs_its_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "w.csv", "block,off,on", [(i, 100 + i, 103 + i * 1.01) for i in range(6)])
    document = compare(path, "--baseline", "off")
    assert (document["unit"], document["paired"], document["form"]) == ("block", True, "wide")
    assert arm(document)["n"] == 6
    plain = write(tmp_path / "p.csv", "off_ms,on_ms", [(100 + i, 103 + i * 1.01) for i in range(6)])
    document = compare(plain, "--baseline", "off_ms")
    assert (document["unit"], document["paired"]) == ("row", False)


def test_wide_arms_with_their_own_mean_sd_and_n(tmp_path: Path) -> None:
    columns = "kernel,base_mean,base_sd,base_n,head_mean,head_sd,head_n"
    path = write(
        tmp_path / "s.csv", columns, [("k1", 10, 0.1, 8, 11, 0.1, 8), ("k2", 10, 0.1, 8, 10.0, 0.1, 8)]
    )
    document = compare(path, "--baseline", "base")
    assert document["unit"] == "summary"
    assert result(document, "k1")["verdict"] == "slower"
    assert result(document, "k2")["verdict"] == "equivalent"
    assert result(document, "k1")["arms"][0]["arm"] == "head"


def test_unknown_columns_are_listed(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.csv", "arm,value,driver,temperature_c", [(a, v, "580", 61.5) for a, _, v in ROWS]
    )
    document = compare(path, "--baseline", "a", "--value", "value")
    assert document["unknown_columns"] == ["driver", "temperature_c"]
    assert "'driver', 'temperature_c'" in run(path, "--baseline", "a")[1]


def test_parameters_split_workloads(tmp_path: Path) -> None:
    rows = [(a, b, s, 10 * b * (1.2 if (a, s) == ("y", "long") else 1) + i / 100)
            for a in ("x", "y") for b in (1, 8) for s in ("short", "long") for i in range(4)]  # fmt: skip
    path = write(tmp_path / "t.csv", "arm,batch_size,prompt_kind,value", rows)
    document = compare(path, "--baseline", "x")
    assert {r["workload"] for r in document["results"]} == {
        f"batch_size={b} prompt_kind={s}" for b in (1, 8) for s in ("short", "long")
    }
    assert result(document, "batch_size=8 prompt_kind=long")["verdict"] == "slower"


def test_several_value_columns_are_several_metrics(tmp_path: Path) -> None:
    rows = [
        (a, i, t, 1000 / t) for a, m in (("x", 10), ("y", 12)) for i, t in enumerate(m + np.arange(4) / 100)
    ]
    path = write(tmp_path / "t.csv", "arm,run,tpot_ms,output_tok_s", rows)
    document = compare(path, "--baseline", "x")
    verdicts = {r["metric"]: (r["verdict"], r["higher_is_better"]) for r in document["results"]}
    assert verdicts == {"tpot_ms": ("slower", False), "output_tok_s": ("slower", True)}
    alone = compare(path, "--baseline", "x", "--metric", "tpot_ms")
    assert alone["metric"] == "tpot_ms"
    assert alone["verdict"] == "slower"


def test_the_arm_column_is_found_by_the_baseline(tmp_path: Path) -> None:
    rows = [(k, i, v) for k, m in ((2, 38), (3, 30)) for i, v in enumerate(m + np.arange(3) / 10)]
    document = compare(write(tmp_path / "t.csv", "k,rep,ms", rows), "--baseline", "2")
    assert document["verdict"] == "faster"
    assert "'k' names the arms" in " ".join(document["notes"])
    both = write(tmp_path / "u.csv", "engine,branch,value", [("main", "main", 1), ("x", "y", 2)])
    with pytest.raises(InputError, match="--arm-column"):
        read(both, "main")
    with pytest.raises(UnknownNameError, match="did you mean 'main'"):
        read(both, "mian", arm_column="engine")


def test_hyperfine_runs_are_processes_and_failures_are_counted() -> None:
    document = compare(DATA / "hyperfine.json", "--baseline", "old")
    assert (document["verdict"], document["unit"], document["form"]) == ("slower", "run", "hyperfine")
    assert arm(document)["n_candidate"] == 6
    assert document["excluded"] == {"missing": 1}
    assert document["levels"]["new"] == pytest.approx(0.551, abs=1e-3)


def test_pytest_benchmark_rounds_are_one_process() -> None:
    document = compare(
        f"old={DATA / 'pytest_benchmark.json'}", f"new={DATA / 'pytest_benchmark.json'}", "--baseline", "old"
    )
    fast = result(document, "test_x.py::test_fast")
    assert fast["arms"][0]["reasons"][:2] == ["single_run_per_arm", "pooled_samples_refused"]
    assert fast["levels"]["old"] == pytest.approx(0.0011)
    assert result(document, "test_x.py::test_slow")["levels"]["old"] == pytest.approx(0.011)


def test_nvbench_states_and_times() -> None:
    frame = read_sheet(DATA / "nvbench.json").frame
    assert frame["metric"].tolist() == ["gpu_time_cold_s", "gpu_time_batch_s"]
    assert frame["value"].tolist() == pytest.approx([0.0010034, 0.0010014])
    assert set(frame["workload"]) == {"copy N=1024 on H200"}
    assert frame["within_sd"].iloc[0] == pytest.approx(0.0010034 * 0.0005)
    document = compare(f"x={DATA / 'nvbench.json'}", f"y={DATA / 'nvbench.json'}", "--baseline", "x")
    assert document["verdict"] == "undecided"
    assert "pooled_samples_refused" in document["results"][0]["arms"][0]["reasons"]


def test_vllm_bench_files_are_runs(tmp_path: Path) -> None:
    template = json.loads((DATA / "vllm_bench.json").read_text())
    rng, files = np.random.default_rng(1), []
    for name, factor in (("before", 1.0), ("after", 1.1)):
        for i in range(1, 5):
            tpot = 20.5 * factor * np.exp(rng.normal(0, 0.005))
            document = template | {"mean_tpot_ms": tpot, "output_throughput": 5000 / tpot}
            files.append(tmp_path / f"{name}-{i}.json")
            files[-1].write_text(json.dumps(document))
    document = compare(
        *files, "--baseline", "before", "--metric", "mean_tpot_ms", "--metric", "output_throughput"
    )
    assert document["form"] == "vllm bench"
    assert {r["metric"]: (r["verdict"], r["arms"][0]["n"]) for r in document["results"]} == {
        "mean_tpot_ms": ("slower", 4),
        "output_throughput": ("slower", 4),
    }
    metrics = set(read_sheet(files[0]).frame["metric"])
    assert {"request_throughput", "p99_ttft_ms", "median_tpot_ms"} <= metrics
    assert not metrics & {"duration", "completed", "std_ttft_ms"}


def test_go_text_and_google_benchmark(tmp_path: Path) -> None:
    slow = tmp_path / "slow.txt"
    slow.write_text((DATA / "go.txt").read_text().replace(" 123", " 143"))
    document = compare(f"old={DATA / 'go.txt'}", f"new={slow}", "--baseline", "old", "--metric", "ns/op")
    assert arm(document)["ratio"] == pytest.approx(1.162, abs=0.002)
    assert arm(document)["n"] == 3
    frame = read_sheet(DATA / "google.json").frame
    assert frame["value"].tolist() == [50.1, 50.0, 50.3, 50.2]
    assert set(frame["metric"]) == {"real_time_us", "cpu_time_us"}


def test_a_value_that_is_a_list_holds_samples(tmp_path: Path) -> None:
    rows = [{"arm": a, "block": b, "ms": [10 + b, 10.1 + b, 30.0]} for a in ("off", "on") for b in range(3)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(rows))
    document = compare(path, "--baseline", "off")
    assert (document["unit"], arm(document)["n"]) == ("block", 3)
    assert document["levels"]["off"] == pytest.approx(np.exp(np.mean(np.log([10.1, 11.1, 12.1]))))


def test_one_result_file_of_one_arm_asks_for_another() -> None:
    code, _, err = run(DATA / "vllm_bench.json", "--baseline", "x")
    assert code == 2
    assert "NAME=FILE" in err


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("prefill_tok_s", True), ("tok/s", True), ("GB/s", True), ("TFLOPS", True), ("output_throughput", True),
        ("req_per_second", True), ("fps", True), ("bandwidth_gb_s", True), ("images/sec", True),
        ("time_ms", False), ("latency", False), ("mean_ttft_ms", False), ("ns/op", False), ("B/op", False),
        ("peak_reserved_mib", False), ("ms_per_token", False), ("elapsed_s", False), ("us", False),
        ("value", None), ("score", None),
    ],
)  # fmt: skip
def test_direction_by_name(name: str, better: bool | None) -> None:
    assert more_is_better(name) is better


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mean_ms", ("mean", "ms")), ("Median", ("median", "")), ("stddev", ("sd", "")), ("base_sd", ("sd", "base")),
        ("repeats", ("count", "")), ("min", ("low", "")), ("within_run_sd_ms", ("within_sd", "")),
        ("tolerance_pct", ("margin", "")), ("head_ms", (None, "head_ms")),
    ],
)  # fmt: skip
def test_statistics_by_name(name: str, expected: tuple[str | None, str]) -> None:
    assert statistic_of(name) == expected


def test_measured_h200_arms(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[1].parent / "shared" / "h200" / "decode_arms.json"
    if not source.is_file():
        pytest.skip(f"no recording at {source}")
    document = compare(source, "--baseline", "off", "--value", "ms")
    found = {entry["arm"]: entry for entry in document["arms"]}
    assert document["unit"] == "block"
    assert found["off2"]["role"] == "repeat"
    assert document["noise_floor"] < 0.002
    for name, log_ratio in (
        ("side", 0.0497),
        ("side_gc", 0.0502),
        ("plant_add", 0.112),
        ("plant_mul", 0.256),
    ):
        assert found[name]["verdict"] == "slower"
        assert np.log(found[name]["ratio"]) == pytest.approx(log_ratio, abs=1e-3)
    for name in ("current", "pad_untracked", "no_empty_off"):
        assert found[name]["verdict"] == "equivalent"
