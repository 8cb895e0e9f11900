"""The trace command: documents, exit codes, one-line errors; and reconciliation with measured times."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from trace_support import DATA, chain, event, shared, write

from rcatools.cli.app import main
from rcatools.trace.diff import diff
from rcatools.trace.read import load_trace
from rcatools.trace.reconcile import predict, reconcile, share_of_difference

ROOT = Path(__file__).resolve().parents[1]
OFF, SIDE = str(DATA / "trace_off.json.gz"), str(DATA / "trace_side.json.gz")


def document(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, object]:
    assert main(["trace", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))  # type: ignore[no-any-return]


def test_summary_document(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "summary", OFF)
    assert {"format", "devices", "streams", "coverage", "kernels", "warnings"} <= found.keys()
    assert found["format"] == "kineto"
    device = found["devices"][0]  # type: ignore[index]
    assert device == {
        "device": 0,
        "name": "NVIDIA H200",
        "kernels": 1650,
        "kernel_us": 12228.958,
        "busy_us": 12406.963,
        "span_us": 13563.575,
        "idle_us": 1156.612,
    }
    assert found["streams"] == [{"device": 0, "stream": 13, "kernels": 1650, "busy_us": 12406.963}]
    assert found["coverage"] == {
        "kernels": 1650,
        "kernel_us": 12228.958,
        "linked": 1650,
        "linked_us": 12228.958,
        "unlinked": 0,
        "unlinked_us": 0.0,
        "graph": 1650,
        "graph_us": 12228.958,
        "dropped_events": 0,
    }
    first = found["kernels"][0]  # type: ignore[index]
    assert {
        "name",
        "device",
        "count",
        "total_us",
        "mean_us",
        "median_us",
        "p95_us",
        "min_us",
        "max_us",
        "share",
        "role",
        "bound",
        "bound_basis",
    } <= first.keys()
    assert sum(row["count"] for row in found["kernels"]) == 1650  # type: ignore[attr-defined]


def test_health_document(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "health", str(shared("cases/bad-traces-a/collapse.json")))
    assert found["ok"] is False
    assert {"idle", "per_step"} <= set(found["blocks"])  # type: ignore[call-overload]
    assert {"code", "text", "count", "us"} <= found["findings"][0].keys()  # type: ignore[index]


def test_diff_document(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(
        capsys, "diff", OFF, SIDE, "--steps", "5", "--measured-a-us", "2542", "--measured-b-us", "2668"
    )
    assert set(found["terms"]) == {
        "slower_us",
        "launches_us",
        "replaced_us",
        "new_us",
        "gone_us",
        "unaligned_us",
        "gaps_us",
    }  # type: ignore[call-overload]
    assert sum(found["terms"].values()) == pytest.approx(found["total_delta_us"], abs=0.001)  # type: ignore[attr-defined]
    assert {"count", "median_us", "sum_us"} <= found["gaps"]["a"].keys()  # type: ignore[index]
    assert found["gaps"]["us_per_boundary"] == pytest.approx(0.35, abs=0.02)  # type: ignore[index]
    assert {"us_per_kernel", "ci"} <= found["additive"].keys()  # type: ignore[attr-defined]
    assert {"ratio", "ci"} <= found["multiplicative"].keys()  # type: ignore[attr-defined]
    assert (found["comparable"], found["reading"]) == (True, "additive")
    assert {"reasons", "kernels", "coverage_a", "coverage_b"} <= found.keys()
    assert found["end_to_end"]["explained_share"] == pytest.approx(0.983, abs=0.001)  # type: ignore[index]


@pytest.mark.parametrize(
    ("args", "words"),
    [(("summary", OFF), ["H200", "coverage: 1650 kernels", "more kernels", "warning"]), (("health", OFF), ["nothing found that forbids", "overlap_on_stream"]),
     (("diff", OFF, SIDE), ["reading: additive", "gaps", "total", "aligned"])],
)  # fmt: skip
def test_text_output(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], words: list[str]) -> None:
    assert main(["trace", *args, "--top", "3"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in words)


def test_names_from_files_cannot_drive_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "t.json", [event("evil\x1b[2J\u202ename", 1, 5)], device="Ca\x07rd")
    assert main(["trace", "summary", str(path)]) == 0
    out = capsys.readouterr().out
    assert "evil" in out
    assert all(character.isprintable() or character == "\n" for character in out)


@pytest.mark.parametrize(
    ("args", "message"),
    [(("summary", "none.json"), "does not exist"), (("diff", OFF), "required"), (("summary", OFF, "--ceilings", "none.csv"), "does not exist"),
     (("diff", OFF, SIDE, "--steps", "5"), "go together"), (("summary", OFF, "--max-bytes", "1000"), "max_bytes"), ((), "required"),
     (("summary", OFF, "--declared", OFF), "list of")],
)  # fmt: skip
def test_errors_are_one_line_and_exit_two(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
) -> None:
    assert main(["trace", *args]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("action", [[], ["summary"], ["health"], ["diff"]])
def test_help_holds_an_example(capsys: pytest.CaptureFixture[str], action: list[str]) -> None:
    assert main(["trace", *action, "--help"]) == 0
    assert "example: rcatools trace" in capsys.readouterr().out


def test_ceilings_and_declared_work_reach_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ceilings, declared = tmp_path / "c.json", tmp_path / "d.json"
    ceilings.write_text(json.dumps({"bytes_per_s": 4.1e12, "flops": {"bf16": 780e12}, "source": "probe"}))
    declared.write_text(json.dumps([{"name": "reduce_kernel", "bytes": 1.2e8, "flops": 6e7}]))
    found = document(capsys, "summary", OFF, "--ceilings", str(ceilings), "--declared", str(declared))
    row = next(row for row in found["kernels"] if "reduce_kernel" in row["name"])  # type: ignore[attr-defined]
    assert row["bound"] == "bandwidth"
    assert "probe" in row["bound_basis"]
    assert row["bytes_per_s"] == pytest.approx(1.2e8 / 33.457e-6, rel=1e-3)


def test_reconciliation_keeps_explained_and_unexplained_apart() -> None:
    difference = diff(load_trace(OFF), load_trace(SIDE))
    found = reconcile(difference, 5, 2542.0, 2700.0)
    assert found.kernels_us == pytest.approx(-30.72 / 5)
    assert found.gaps_us == pytest.approx(649.844 / 5)
    assert found.kernels_us + found.gaps_us + found.unexplained_us == pytest.approx(158.0)
    assert found.explained_share == pytest.approx(619.124 / 5 / 158)
    assert reconcile(difference, 5, 2542.0, 2542.0).explained_share is None
    with pytest.raises(ValueError, match="positive"):
        reconcile(difference, 0, 1.0, 1.0)


def test_a_kernel_win_without_an_end_to_end_gain() -> None:
    folder = shared("cases/kernel-win-no-e2e")
    rows = {row["arm"]: row for row in csv.DictReader((folder / "kernel.csv").open())}
    steps = {row["arm"]: 1000 * float(row["tpot_ms"]) for row in csv.DictReader((folder / "e2e.csv").open())}
    found = predict(
        float(rows["before"]["median_us"]),
        float(rows["after"]["median_us"]),
        69,
        steps["before"],
        steps["after"],
    )
    assert found.predicted_us == pytest.approx(-248, abs=0.5)
    assert f"{found.predicted_share:.2%}" == "-1.05%"
    assert f"{found.observed_share:+.2%}" == "+0.04%"


def test_the_hottest_kernel_is_not_the_whole_gap() -> None:
    folder = shared("cases/hot-kernel-is-not-the-gap")
    totals = {row["engine"]: row for row in csv.DictReader((folder / "totals.csv").open())}
    x, y = totals["X"], totals["Y"]
    found = share_of_difference(
        *(
            1000 * float(side[key])
            for key in ("kernel_ms_per_token", "quantize_ms_per_token")
            for side in (x, y)
        )
    )
    assert round(found.best_ratio, 3) == 1.305
    assert round(found.remaining_ratio, 2) == 1.72
    assert round(found.total_ratio, 2) == 2.25
    assert f"{found.of_difference:.1%}" == "40.9%"


def test_same_work_under_other_names_is_compared_by_role(tmp_path: Path) -> None:
    """Attention keeps its number of calls, the matrix products change name and family: roles, not names, are compared."""
    a = chain([41.11] * 31 + [80.0] * 60, ["PagedAttnOnline<bf16>"] * 31 + ["Cijk_MT128x128x32"] * 60)
    b = chain([5.1] * 32 + [30.0] * 60, ["kernel_paged_attention_2d"] * 32 + ["wvSplitK_hf"] * 60)
    found = diff(load_trace(write(tmp_path / "a.json", a)), load_trace(write(tmp_path / "b.json", b)))
    roles = found.decomposition.roles.set_index("role")
    assert roles.loc["attention", ["count_a", "count_b"]].tolist() == [31, 32]
    assert roles.loc["matmul", "delta_us"] == pytest.approx(60 * -50)
    replaced = found.kernels[found.kernels["term"] == "replaced"].set_index("role")
    assert replaced.loc["attention", "ratio"] == pytest.approx(5.1 / 41.11)
    assert (replaced["confidence"] == 0.3).all()


MEASURED = """
import re, sys
from rcatools.trace.read import load_trace
def peak():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1]) * 1024
before = peak()
trace = load_trace(sys.argv[1])
print(peak() - before, trace.counts.events, len(trace.kernels))
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="peak memory is read from Linux' /proc")
def test_memory_does_not_grow_with_what_is_not_read(tmp_path: Path) -> None:
    """A trace of 80 MB, most of it Python calls and operations: a quarter of its size must do."""
    call = json.dumps({"ph": "X", "cat": "python_function", "name": "module.py(12): step", "pid": 1, "tid": 1, "ts": 5.125, "dur": 1.5, "args": {"Python id": 1, "Python parent id": None, "text": "x" * 120}})  # fmt: skip
    operation = json.dumps({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 6.5, "dur": 1.5, "args": {"External id": 9, "Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}})  # fmt: skip
    kernels = [json.dumps(entry) for entry in chain([5.0] * 500, ["gemm"] * 500)]
    block = ",\n".join([*[call] * 500, *[operation] * 100, *kernels[:20]])
    path = tmp_path / "t.json"
    with path.open("w") as file:
        file.write('{"traceEvents": [')
        file.write(",\n".join([block] * 500))
        file.write("]}")
    size = path.stat().st_size
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    grown, events, found = map(int, done.stdout.split())
    assert size > 70e6
    assert (events, found) == (500 * 620, 500 * 10)
    assert grown < size / 4
