"""Bad tables: one clear line and exit code 2, or a counted exclusion; never a traceback, never a quiet guess."""

from __future__ import annotations

from pathlib import Path

import pytest
from compare_help import arm, compare, run

GOOD_A = "a,1.00\na,1.02\na,0.99\n"
GOOD_B = "b,1.10\nb,1.12\nb,1.09\n"
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "empty"),
    "blank lines": ("\n\n\n", "empty"),
    "header only": ("arm,value\n", "no rows"),
    "header without line end": ("arm,value", "no rows"),
    "one arm": ("arm,value\n" + GOOD_A, "second"),
    "baseline absent": ("arm,value\nc,1\nb,2\n", "unknown baseline arm 'a'"),
    "no arm column": ("value\n1\n2\n", "no column names the arms or is called 'a'"),
    "text among numbers": ("arm,value\na,fast\n" + GOOD_A + GOOD_B, "'fast' in data row 1"),
    "formula": ("arm,value\na,=1+1\n" + GOOD_A + GOOD_B, "not a number"),
    "mixed units": ("arm,value\na,900 us\na,1 ms\nb,1 ms\n", "mixes units: ms (2 rows), us (1 rows)"),
    "unit on some rows": ("arm,value\na,1 ms\na,1\nb,1\n", "mixes units"),
    "unit column mixed": ("arm,value,unit\na,1,ms\na,900,us\nb,1,ms\n", "'ms', 'us'"),
    "factor 1000": ("arm,value\n" + GOOD_A + "a,1010\n" + GOOD_B, "factor 1,000"),
    "arms in different units": ("arm,value\n" + GOOD_A + "b,1100\nb,1120\nb,1090\n", "factor 1,000"),
    "decimal comma": ('arm,value\na,"1,5"\nb,"1,6"\n', "decimal comma"),
    "nothing positive": ("arm,value\na,-1\nb,0\n", "2 zero or negative"),
    "nothing but gaps": ("arm,value\na,\nb,nan\n", "2 missing"),
    "thousands of arms": ("arm,value\na,1\n" + "".join(f"x{i},1\n" for i in range(5000)), "5,001 arms"),
    "no quantity": ("arm,value\na,1e-200\na,2e-200\nb,1e200\n", "cannot be one quantity"),
    "negative spread": ("arm,mean,sd,n\na,10,-1,5\nb,11,1,5\n", "negative spread"),
    "range upside down": ("arm,median,min,max,n\na,10,11,9,5\nb,11,10,12,5\n", "upside down"),
    "ragged": ("arm,value\na,1\nb,1,2\n", "Expected 2 columns, got 3"),
    "column twice": ("arm,value,value\na,1,1\n", "'value' twice"),
    "numbers as header": ("1,2\n3,4\n", "must name the columns"),
    "no numbers": ("arm,note\na,x\nb,y\n", "no column holds measurements"),
    "binary": (b"\x7fELF\x00\x01\x02" * 50, "binary"),
    "not UTF-8": (b"arm,value\na\xe9,1\nb,1\n", "not UTF-8 text (line 2)"),
}


def table(tmp_path: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_with_one_line(tmp_path: Path, kind: str) -> None:
    content, expected = REFUSED[kind]
    code, out, err = run(table(tmp_path, content), "--baseline", "a", "--json")
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert expected in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ("a,nan", "missing"),
        ("a,", "missing"),
        ("a,N/A", "missing"),
        ("a,inf", "infinite"),
        ("b,-inf", "infinite"),
        ("a,1e999", "infinite"),
        ("a,0", "not_positive"),
        ("b,-1.5", "not_positive"),
        (",1.01", "no_arm"),
        ("a,OOM", "failed"),
        ("b,timeout", "failed"),
    ],
)
def test_left_out_and_counted(tmp_path: Path, row: str, cause: str) -> None:
    document = compare(table(tmp_path, f"arm,value\n{GOOD_A}{row}\n{GOOD_B}"), "--baseline", "a")
    assert document["excluded"] == {cause: 1}
    assert arm(document)["n_baseline"] == 3
    assert arm(document)["n_candidate"] == 3
    assert "Left out and counted: 1" in run(tmp_path / "t.csv", "--baseline", "a")[1]


def test_copied_rows_are_counted_and_equal_values_are_not_copies(tmp_path: Path) -> None:
    rows = "".join(f"{a},{i},{v + i / 100}\n" for a, v in (("a", 1), ("b", 1.1)) for i in range(4))
    once = compare(table(tmp_path, "arm,run,value\n" + rows), "--baseline", "a")
    twice = compare(table(tmp_path, "arm,run,value\n" + rows + rows), "--baseline", "a")
    assert twice["excluded"] == {"duplicate": 8}
    assert arm(twice)["p_value"] == arm(once)["p_value"]
    equal = compare(table(tmp_path, "arm,value\na,1\na,1\na,1.1\nb,1\nb,1\nb,1.2\n"), "--baseline", "a")
    assert equal["excluded"] == {}
    assert arm(equal)["n"] == 3
    keyed = "arm,run,sample,value\na,1,1,5\na,1,1,5\na,1,2,5.1\nb,1,1,6\nb,1,2,6.1\n"
    assert compare(table(tmp_path, keyed), "--baseline", "a")["excluded"] == {"duplicate": 1}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"a": [1, 2', "no JSON"),
        ("[" * 50_000 + "]" * 50_000, "nests deeper"),
        ('"text"', "must be a list of rows"),
        ("[]", "must be a list of rows"),
        ('{"x": {"y": 1}}', "no table"),
        ('{"benchmarks": [{"stats": {}}]}', "NAME=FILE"),
        ('{"benchmarks": [{"states": []}]}', "nvbench file without any measurement"),
        ('{"results": [{"command": "x", "times": []}]}', "without any measurement"),
    ],
)
def test_bad_json_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    code, out, err = run(table(tmp_path, content, "t.json"), "--baseline", "a")
    assert (code, out) == (2, "")
    assert expected in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ("--baseline", "a", "--margin", "5"),
        ("--baseline", "a", "--margin", "x"),
        ("--baseline", "a", "--confidence", "95"),
        ("--baseline", "a", "--fail-on", "worse"),
        ("--baseline", "a", "--value", "time"),
        ("--baseline", "a", "--arm", "zzz"),
        ("--baseline", "a", "--aa", "zzz"),
        ("--baseline", "a", "--metric", "x"),
        ("--baseline", "a", "--figure", "x.png"),
        ("--baseline", "a", "--by", "nothing"),
        (),
    ],
)
def test_wrong_calls_are_refused(tmp_path: Path, args: tuple[str, ...]) -> None:
    code, out, err = run(table(tmp_path, "arm,value\n" + GOOD_A + GOOD_B), *args)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


def test_missing_files_and_directories(tmp_path: Path) -> None:
    assert run(tmp_path / "none.csv", "--baseline", "a")[0] == 2
    assert run(tmp_path, "--baseline", "a")[0] == 2


def test_hostile_parquet_and_pickle_are_not_run(tmp_path: Path) -> None:
    fake = table(tmp_path, b"PAR1" + b"\x00" * 64, "t.parquet")
    assert run(fake, "--baseline", "a")[0] == 2
    pickled = table(tmp_path, b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix", "t.csv")
    assert run(pickled, "--baseline", "a")[0] == 2


def test_an_odd_scale_can_be_meant(tmp_path: Path) -> None:
    path = table(tmp_path, "arm,value\n" + GOOD_A + "b,1100\nb,1120\nb,1090\n")
    assert compare(path, "--baseline", "a", "--any-scale")["verdict"] == "slower"
