"""The index: the same verdicts as a report, everything counted, only what changed read again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from index_support import recording

from rcatools.batch import index, index_read
from rcatools.batch.index_query import STORE, TABLES, query
from rcatools.batch.jobs import Job
from rcatools.cli import main
from rcatools.errors import InputError
from rcatools.recording import open_recording
from rcatools.recording.writer import exclusive
from rcatools.stats.noise import noise_floor
from rcatools.stats.paired import compare_blocks

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    for number in range(6):
        recording(
            tmp_path / f"night-{number % 2}" / f"r{number}", seed=number, ratio=1.0 + 0.03 * (number > 2)
        )
    return tmp_path


def tables(root: Path) -> dict[str, Any]:
    return {name: table.to_pylist() for name, table in index.open_store(root / STORE).items()}


def test_verdicts_are_those_of_the_paired_comparison(many: Path) -> None:
    index.update(many)
    found = tables(many)
    assert len(found["recordings"]) == 6
    for row in found["recordings"]:
        values = open_recording(many / row["recording"]).block_values("step_us")
        floor = noise_floor(values["off"], values["off_again"])
        assert floor is not None
        expected = compare_blocks(
            values["off"], values["side"], margin=0.01, confidence=0.95, noise_floor=floor.floor
        )
        effects = [e for e in found["effects"] if e["recording"] == row["recording"]]
        side = next(e for e in effects if e["arm"] == "side")
        assert [e["arm"] for e in effects] == ["off", "off_again", "side"]
        assert side["ratio"] == pytest.approx(expected.estimate.ratio, rel=1e-12)
        assert side["ci_low"] == pytest.approx(expected.estimate.ci_low, rel=1e-12)
        assert (side["verdict"], side["reasons"]) == (expected.verdict, ",".join(expected.reasons))
        assert row["noise_floor"] == pytest.approx(floor.floor, rel=1e-12)
        assert row["baseline_us"] == pytest.approx(float(np.exp(np.log(values["off"]).mean())), rel=1e-12)
    assert len(found["runs"]) == 6 * 3 * 8


def test_embedded_recordings_are_read_as_the_reader_reads_them(tmp_path: Path) -> None:
    root = ROOT / "data" / "recordings"
    index.update(root, tmp_path)
    found = {name: table.to_pylist() for name, table in index.open_store(tmp_path).items()}
    assert found["problems"] == []
    assert {row["recording"] for row in found["recordings"]} == {
        p.parent.name for p in root.glob("*/manifest.json")
    }
    for row in found["recordings"]:
        values = open_recording(root / row["recording"]).block_values(row["metric"])
        runs = [r for r in found["runs"] if r["recording"] == row["recording"]]
        assert len(runs) == int(values.notna().sum().sum())
        assert all(values.loc[r["block"], r["arm"]] == pytest.approx(r["value_us"], rel=1e-12) for r in runs)


def test_a_second_call_reads_only_what_changed(many: Path) -> None:
    assert vars(index.update(many)) | {"seconds": 0} == {
        "counts": {"recordings": 6, "effects": 18, "runs": 144, "reports": 0, "jobs": 0, "problems": 0},
        "read": 6, "kept": 0, "gone": 0, "seconds": 0,
    }  # fmt: skip
    before = tables(many)
    again = index.update(many)
    assert (again.read, again.kept, again.gone) == (0, 6, 0)
    assert tables(many) == before
    shutil.rmtree(many / "night-0" / "r0")
    recording(many / "new" / "r9", seed=9)
    recording(many / "new" / "r1", seed=1)
    shutil.rmtree(many / "night-1" / "r1")
    shutil.copytree(many / "new" / "r9", many / "night-1" / "r1")
    updated = index.update(many)
    assert (updated.read, updated.kept, updated.gone) == (3, 4, 1)
    after = tables(many)
    assert {row["recording"] for row in after["recordings"]} == {
        "night-1/r1", "night-0/r2", "night-1/r3", "night-0/r4", "night-1/r5", "new/r9", "new/r1",
    }  # fmt: skip
    level = {row["recording"]: row["baseline_us"] for row in after["recordings"]}
    assert level["night-1/r1"] == level["new/r9"] != level["new/r1"]
    assert len(after["effects"]) == 21
    assert len([p for p in (many / STORE).iterdir() if p.name.startswith("gen-")]) == 1


def break_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


def break_samples(folder: Path) -> None:
    (folder / "samples.parquet").write_bytes(b"PAR1 not really")


def lose_samples(folder: Path) -> None:
    (folder / "samples.parquet").unlink()


def negative_time(folder: Path) -> None:
    import pandas as pd

    frame = pd.read_parquet(folder / "samples.parquet")
    frame.loc[0, "value"] = -1.0
    frame.to_parquet(folder / "samples.parquet")


def other_shape(folder: Path) -> None:
    document = json.loads((folder / "manifest.json").read_text())
    document["device"] = {"uuid": {"a": 1}}
    document["design"]["confidence"] = "high"
    (folder / "manifest.json").write_text(json.dumps(document))


def no_baseline(folder: Path) -> None:
    import pandas as pd

    frame = pd.read_parquet(folder / "samples.parquet")
    frame[frame["arm"] != "off"].to_parquet(folder / "samples.parquet")


@pytest.mark.parametrize(
    "damage", [break_manifest, break_samples, lose_samples, negative_time, other_shape, no_baseline]
)
def test_a_damaged_recording_is_counted_and_the_others_are_kept(many: Path, damage: Any) -> None:
    damage(many / "night-0" / "r0")
    updated = index.update(many)
    assert updated.counts["recordings"] == 5
    assert updated.counts["problems"] == 1
    problem = tables(many)["problems"][0]
    assert problem["path"] == "night-0/r0"
    assert problem["reason"]
    assert "\n" not in problem["reason"]
    assert index.update(many).read == 0
    shutil.rmtree(many / "night-0" / "r0")
    recording(many / "night-0" / "r0")
    assert index.update(many).counts["problems"] == 0


def test_links_and_hidden_folders_are_not_followed(many: Path) -> None:
    (many / "loop").symlink_to(many)
    (many / ".hidden").mkdir()
    shutil.copytree(many / "night-0" / "r0", many / ".hidden" / "r0")
    assert index.update(many).counts["recordings"] == 6


def test_a_folder_that_cannot_be_listed_is_counted(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = index.os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "night-0":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(index.os, "scandir", scandir)
    assert index.update(many).counts["problems"] == 1
    assert "night-0 cannot be listed" in tables(many)["problems"][0]["reason"]
    monkeypatch.undo()
    assert index.update(many).counts | {"effects": 0, "runs": 0} == {
        "recordings": 6, "effects": 0, "runs": 0, "reports": 0, "jobs": 0, "problems": 0,
    }  # fmt: skip


def test_recordings_of_a_sweep_carry_its_labels_and_broken_off_ones_do_not_count(tmp_path: Path) -> None:
    job = Job(tmp_path / "jobs" / "0123456789abcdef")
    job.create({"kind": "record", "labels": {"commit": "c0ffee1", "day": "2026-11-09", "model": "m"}},
               {"row": 4, "name": "nightly"})  # fmt: skip
    for number in (1, 2):
        assert job.begin_attempt() == number
        recording(job.attempt(number) / "recording", seed=number)
    job.write_status("done", attempt=2, place={"host": "node-7", "backend": "rocm", "mask": "3"})
    index.update(tmp_path)
    found = tables(tmp_path)
    rows = {row["recording"].split("/")[-2]: row for row in found["recordings"]}
    assert (rows["1"]["current"], rows["2"]["current"]) == (False, True)
    assert (rows["2"]["commit"], rows["2"]["day"], rows["2"]["name"]) == ("c0ffee1", "2026-11-09", "nightly")
    assert json.loads(rows["2"]["labels"])["model"] == "m"
    assert [(j["row"], j["state"], j["host"], j["mask"]) for j in found["jobs"]] == [
        (4, "done", "node-7", "3")
    ]
    job.reopen("again")
    index.update(tmp_path)
    assert not any(row["current"] for row in tables(tmp_path)["recordings"])


def test_reports_are_indexed_with_their_answer(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    document = {
        "investigation": "capture-stream", "answer": "It is slower.",
        "effect": {"arm": "side", "ratio": 1.07, "ci_low": 1.06, "ci_high": 1.08, "verdict": "slower"},
        "hypotheses": [{"id": "queue", "status": "supported"}, {"id": "kv", "status": "contradicted"}],
    }  # fmt: skip
    (folder / "verdict.json").write_text(json.dumps(document))
    index.update(tmp_path)
    (row,) = tables(tmp_path)["reports"]
    assert (row["verdict"], row["ratio"], row["supported"]) == ("slower", 1.07, "queue")


def test_many_are_read_by_several_processes_with_the_same_result(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.update(many)
    alone = tables(many)
    shutil.rmtree(many / STORE)
    monkeypatch.setattr(index, "PARALLEL_FROM", 1)
    monkeypatch.setattr(index, "CHUNK", 2)
    index.update(many, workers=2)
    assert tables(many) == alone


def test_two_updates_exclude_each_other(many: Path) -> None:
    with exclusive(many / STORE), pytest.raises(InputError, match="another runner"):
        index.update(many)


def test_questions_in_sql_see_the_tables_and_nothing_else(many: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no index"):
        query(many / STORE, "SELECT 1")
    index.update(many)
    names, rows = query(
        many / STORE, "SELECT verdict, count(*) AS n FROM effects WHERE arm = 'side' GROUP BY 1 ORDER BY 1"
    )
    assert (names, rows) == (["verdict", "n"], [("equivalent", 3), ("slower", 3)])
    for name in TABLES:
        assert query(many / STORE, f"SELECT count(*) FROM {name}")[1] == [(len(tables(many)[name]),)]
    target = tmp_path / "stolen.csv"
    for sql in (
        f"COPY recordings TO '{target}'",
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SELEC 1",
        "SELECT nothing FROM recordings",
    ):
        with pytest.raises(InputError, match="cannot be answered") as caught:
            query(many / STORE, sql)
        assert "\n" not in str(caught.value)
    assert not target.exists()


def test_the_store_is_plain_parquet_for_other_tools(many: Path) -> None:
    index.update(many)
    file = next((many / STORE).glob("gen-*/recordings.parquet"))
    assert duckdb.sql(f"SELECT count(*) FROM '{file}'").fetchall() == [(6,)]
    assert set(index.SCHEMAS) == set(TABLES)
    assert pa.parquet.read_schema(file).equals(index.SCHEMAS["recordings"])


def test_medians_are_those_of_numpy() -> None:
    rng = np.random.default_rng(5)
    cell = rng.integers(0, 9, 200)
    values = rng.lognormal(0, 1, 200)
    cells, medians = index_read._medians(cell, values)
    assert list(medians) == [np.median(values[cell == c]) for c in cells]


def test_the_command_prints_one_document_and_refuses_wrong_calls(
    many: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", str(many), "--json", "--page", str(many / "page.html")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["verdicts"] == {"equivalent": 3, "slower": 3}
    assert shown["updated"]["read"] == 6
    page = (many / "page.html").read_text()
    assert "<script" not in page
    assert "side (6)" in page
    assert (
        main(
            ["index", str(many), "--query", "SELECT avg(ratio) AS r FROM effects WHERE arm = 'off'", "--json"]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out) == {"columns": ["r"], "rows": [[None]]}
    for words in (
        ["index", "/absent"],
        ["index", str(many), "--margin", "2"],
        ["index", str(many), "--workers", "0"],
    ):
        assert main(words) == 2
        shown_err = capsys.readouterr()
        assert shown_err.out == ""
        assert shown_err.err.count("\n") == 1
