"""The table of a sweep: read with types, refused whole when one row is wrong, named by its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_support import comparison, notebook, table

from rcatools.batch.rows import read_rows
from rcatools.errors import InputError, UnknownNameError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    comparison(tmp_path, "a.csv", 1.0)
    comparison(tmp_path, "b.csv", 1.1, seed=1)
    notebook(tmp_path, "book", "x", parameters="x: int = 1  # a number\nrate: float = 0.5  # a share")
    return tmp_path


def compare_row(**more: Any) -> dict[str, Any]:
    return {"kind": "compare", "table": "a.csv", "baseline": "before", **more}


def test_cells_become_typed_parameters(folder: Path) -> None:
    rows = read_rows(
        table(
            folder,
            [
                compare_row(margin="0.03", arms="after", higher_is_better="no", name="first"),
                {"kind": "notebook", "notebook": "book.ipynb", "p.x": "7", "label.commit": "abc", "env.FLAG": "1"},
                {"kind": "record", "investigation": "capture-stream", "arms": "side,current", "blocks": "3",
                 "p.layers": "2", "device": "cpu", "timeout_s": "60"},
                {"investigation": "capture-stream", "p.margin": "0.02"},
            ],
        )
    )  # fmt: skip
    assert [row.kind for row in rows] == ["compare", "notebook", "record", "report"]
    assert [row.device for row in rows] == ["none", "none", "cpu", "none"]
    assert [row.name for row in rows] == ["first", "row-2", "row-3", "row-4"]
    assert rows[0].parameters["margin"] == 0.03
    assert rows[0].parameters["higher_is_better"] is False
    assert rows[0].parameters["arms"] == ["after"]
    assert rows[1].settings == {"x": 7}
    assert rows[1].labels == {"commit": "abc"}
    assert rows[1].env == {"FLAG": "1"}
    assert rows[2].parameters["blocks"] == 3
    assert rows[2].settings == {"layers": 2}
    assert rows[2].timeout_s == 60
    assert rows[3].settings["margin"] == 0.02


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (compare_row(table="absent.csv"), "no file at absent.csv"),
        (compare_row(baseline=""), "needs 'baseline'"),
        (compare_row(margin="wide"), "'margin' must be of type float"),
        (compare_row(margin="nan"), "'margin' is nan"),
        (compare_row(margin="2"), "between 0 and 1"),
        (compare_row(kind="comapre"), "did you mean 'compare'"),
        (compare_row(blocks="3"), "no parameter 'blocks'"),
        (compare_row(device="gpu"), "measures nothing"),
        (compare_row(timeout_s="0"), "above 0"),
        (compare_row(**{"p.x": "1"}), "takes no 'p.'"),
        ({"kind": "notebook", "notebook": "book.ipynb", "p.y": "1"}, "unknown parameter of book.ipynb 'y'"),
        ({"kind": "notebook", "notebook": "book.ipynb", "p.x": "1.5"}, "'x' must be of type int"),
        ({"kind": "notebook", "notebook": "book.ipynb", "p.rate": "nan"}, "JSON cannot hold it"),
        ({"kind": "notebook", "notebook": "nowhere.ipynb"}, "no notebook at"),
        ({"kind": "record", "investigation": "capture-strem"}, "capture-stre"),
        ({"kind": "record", "investigation": "capture-stream", "arms": "sidee"}, "did you mean 'side'"),
        ({"kind": "record", "investigation": "capture-stream", "p.layer": "2"}, "did you mean 'layers'"),
        ({"kind": "record", "investigation": "capture-stream", "blocks": "0"}, "above 0"),
        ({"kind": "record", "investigation": "capture-stream", "device": "tpu"}, "unknown device 'tpu'"),
        ({"kind": "report", "investigation": "capture-stream", "recordings": "absent"}, "absent"),
        ({"kind": "report", "investigation": "capture-stream", "p.out": "x"}, "set by the row itself"),
        ({"kind": "report", "investigation": "capture-stream", "arms": "side"}, "need 'live'"),
        ({"investigation": "capture-stream", "p.margn": "0.1"}, "did you mean 'margin'"),
    ],
)  # fmt: skip
def test_one_wrong_row_refuses_the_table_with_one_line(folder: Path, row: dict[str, Any], says: str) -> None:
    rows = [compare_row(table="b.csv"), row, {**row, "label.again": "yes"}]
    with pytest.raises(InputError) as caught:
        read_rows(table(folder, rows))
    text = str(caught.value)
    assert says in text
    assert "row 2 of sweep.csv" in text
    assert "(1 more rows are wrong)" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("kind,tabel,baseline", "did you mean 'table'"),
        ("kind,table,table", "twice"),
        ("kind,table,env.PATH", "set by the runner"),
        ("kind,table,env.HIP_VISIBLE_DEVICES", "set by the runner"),
        ("kind,table,label.A b", "does not end in a name"),
        ("kind,table,p.", "does not end in a name"),
    ],
)
def test_a_wrong_column_is_named(folder: Path, header: str, says: str) -> None:
    path = folder / "sweep.csv"
    path.write_text(header + "\ncompare,a.csv,before\n")
    with pytest.raises(InputError, match=says):
        read_rows(path)


@pytest.mark.parametrize("content", [b"", b"kind,table\n", b"\xff\xfe\x00", b'kind,table\n"a'])
def test_what_is_no_table_is_refused(folder: Path, content: bytes) -> None:
    path = folder / "sweep.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"sweep\.csv"):
        read_rows(path)


def test_more_cells_than_columns_are_refused(folder: Path) -> None:
    path = folder / "sweep.csv"
    path.write_text("kind,table,baseline,arms\ncompare,a.csv,before,after,other\n")
    with pytest.raises(InputError, match=r"row 1 .* 5 cells for 4 columns"):
        read_rows(path)


def test_the_hash_follows_every_input_and_nothing_else(folder: Path) -> None:
    def job(**more: Any) -> str:
        return read_rows(table(folder, [compare_row(**more)]))[0].job

    first = job()
    assert job(name="another name") == first
    assert job(arms="") == first
    changed = [job(margin="0.03"), job(arms="after"), job(**{"label.day": "1"}), job(**{"env.A": "1"}),
               job(timeout_s="9"), job(group="g"), job(table="b.csv")]  # fmt: skip
    assert len({first, *changed}) == 1 + len(changed)
    comparison(folder, "a.csv", 1.0, seed=99)
    assert job() != first


def test_the_hash_does_not_depend_on_where_the_table_lies(folder: Path, tmp_path_factory: Any) -> None:
    first = read_rows(table(folder, [compare_row()]))[0]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "a.csv").write_bytes((folder / "a.csv").read_bytes())
    second = read_rows(table(elsewhere, [compare_row()]))[0]
    assert first.job == second.job
    assert first.parameters["table"] != second.parameters["table"]


def test_equal_rows_and_groups_on_two_devices_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"row 2 of sweep\.csv says the same as row 1"):
        read_rows(table(folder, [compare_row(), compare_row(name="again")]))
    record = {"kind": "record", "investigation": "capture-stream", "group": "pair"}
    with pytest.raises(InputError, match="another device than row 1 of its group 'pair'"):
        read_rows(table(folder, [{**record, "device": "rocm"}, {**record, "device": "cuda"}]))


def test_unknown_kinds_of_columns_name_the_near_one(folder: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'baseline'"):
        read_rows(table(folder, [{"kind": "compare", "table": "a.csv", "basline": "before"}]))


@given(st.text(max_size=120))
@settings(max_examples=60, deadline=None)
def test_any_text_is_read_or_refused_with_one_line(tmp_path_factory: Any, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "sweep.csv"
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        told = str(len(read_rows(path)))
    except InputError as error:
        told = str(error)
    assert "\n" not in told
