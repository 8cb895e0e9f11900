"""Broken and hostile trace files: a clear line or a counted exclusion, never a traceback or a silent loss."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_support import chain, document, event, shared, write

from rcatools.cli import main
from rcatools.errors import InputError, UnsafeInputError
from rcatools.trace import events
from rcatools.trace.health import health
from rcatools.trace.kineto_events import time_ns
from rcatools.trace.read import load_trace
from rcatools.trace.stream import Limits
from rcatools.trace.summary import summarize

TEN = chain([5.0 + i for i in range(10)], [f"k{i}" for i in range(10)])


def codes(path: Path) -> dict[str, int]:
    return {warning.code: warning.count for warning in load_trace(path).warnings}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut files into parts of a few events, so that borders fall everywhere."""
    monkeypatch.setattr(events, "PART_BYTES", 700)


def test_case_files_are_read_repaired_excluded_or_refused() -> None:
    folder = "cases/bad-traces-a/"
    known = {
        "nonfinite_arg.json": ("repaired_non_finite", 40),
        "control_char.json": ("repaired_control_character", 40),
        "corrupt_dur.json": ("impossible_duration", 40),
        "truncated.json": ("truncated", 33),
        "metadata_only.json": ("no_gpu_events", 0),
        "no_gpu.json": ("no_gpu_events", 0),
    }
    for name, (code, kernels) in known.items():
        trace = load_trace(shared(folder + name))
        assert code in {warning.code for warning in trace.warnings}, name
        assert len(trace.only_kernels()) == kernels, name
    zero = load_trace(shared(folder + "zero_dur.json"))
    assert len(zero.kernels) == 41
    assert health(zero).findings[-2].code == "zero_duration"


def test_corrupt_duration_is_kept_apart_and_shown_with_and_without() -> None:
    trace = load_trace(shared("cases/bad-traces-a/corrupt_dur.json"))
    assert summarize(trace).coverage.kernel_us == 2515.0
    assert summarize(trace).coverage.dropped_events == 1
    finding = next(f for f in health(trace).findings if f.code == "impossible_duration")
    assert finding.us == trace.excluded["dur_us"].sum() > 7e15
    assert "2515.000 us without" in finding.text
    assert "idle" in finding.blocks


def test_collapse_blocks_idle_and_per_step() -> None:
    trace = load_trace(shared("cases/bad-traces-a/collapse.json"))
    checked = health(trace)
    assert not checked.ok
    assert {"idle", "per_step"} <= set(checked.blocks)
    found = {finding.code: finding for finding in checked.findings}
    assert found["missing_steps"].count == 30
    assert "99.1 %" in found["dominant_event"].text
    assert summarize(trace).devices[0].idle_us is None


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_truncated_gzip_gives_the_complete_events(tmp_path: Path, keep: float) -> None:
    many = chain([5.0] * 3000, [f"kernel number {i}" for i in range(3000)])
    packed = gzip.compress(json.dumps(document(many)).encode())
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed[: int(keep * len(packed))])
    trace = load_trace(path)
    found = {warning.code for warning in trace.warnings}
    assert "truncated" in found
    assert 0 < len(trace.kernels) < 3000
    names = sorted(trace.kernels["name"].astype(str), key=lambda name: int(name.split()[-1]))
    assert names == [f"kernel number {i}" for i in range(len(names))]
    assert "totals" in health(trace).blocks


def test_damaged_gzip_is_told_from_a_short_one(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(json.dumps(document(TEN * 200)).encode(), compresslevel=1))
    for at in range(len(packed) // 2, len(packed) // 2 + 40):
        packed[at] ^= 0x5A
    path = tmp_path / "t.json.gz"
    path.write_bytes(bytes(packed))
    assert codes(path)["truncated"] == 1


def test_gzip_members_one_after_another_are_one_stream(tmp_path: Path) -> None:
    text = json.dumps(document(TEN)).encode()
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(text[:400]) + gzip.compress(text[400:]) + b"\0" * 512)
    trace = load_trace(path)
    assert len(trace.kernels) == 10
    assert not trace.warnings


def test_torn_writes_lose_only_the_torn_events(tmp_path: Path) -> None:
    lines = [json.dumps(entry) for entry in TEN]
    lines[5] = lines[5][:60] + lines[6] + lines[5][60:90]  # one writer inside another's event
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + ", ".join(lines) + "]}")
    trace = load_trace(path)
    assert trace.counts.dropped == 1
    assert {"k0", "k1", "k4", "k9"} <= set(trace.kernels["name"].astype(str))
    assert len(trace.kernels) >= 8
    assert "dropped_events" in {warning.code for warning in trace.warnings}


def test_two_documents_in_one_file_count_what_is_left_out(tmp_path: Path) -> None:
    text = json.dumps(document(TEN))
    path = tmp_path / "t.json"
    path.write_text(text + text)
    trace = load_trace(path)
    assert len(trace.kernels) <= 20
    assert {"trailing_data", "dropped_events"} & {warning.code for warning in trace.warnings}


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "inf", "-nan", "nan(ind)"])
def test_bare_non_finite_numbers_are_taken_as_missing(tmp_path: Path, token: str) -> None:
    text = json.dumps(document(TEN)).replace(
        '"stream": 7, "correlation": 4', f'"stream": 7, "x": {token}, "correlation": 4'
    )
    path = tmp_path / "t.json"
    path.write_text(text)
    trace = load_trace(path)
    assert len(trace.kernels) == 10
    assert trace.counts.repaired == 1
    assert trace.counts.dropped == 0


def test_an_event_without_a_usable_time_is_counted(tmp_path: Path) -> None:
    bad = [
        event("a", 5000, 2),
        event("nan", 5010, 1),
        event("b", 5020, 2),
        {**event("none", 5030, 1), "dur": None},
    ]
    text = json.dumps(document(bad)).replace('"ts": 5010', '"ts": NaN')
    path = tmp_path / "t.json"
    path.write_text(text)
    trace = load_trace(path)
    assert trace.kernels["name"].astype(str).tolist() == ["a", "b"]
    assert trace.counts.dropped == 2
    assert codes(path)["bad_time"] == 2


def test_control_characters_and_bad_utf8_are_repaired_and_counted(tmp_path: Path) -> None:
    raw = json.dumps(document(TEN)).encode().replace(b'"k3"', b'"k\x013"').replace(b'"k6"', b'"k\xff6"')
    path = tmp_path / "t.json"
    path.write_bytes(raw)
    trace = load_trace(path)
    assert len(trace.kernels) == 10
    assert {"repaired_control_character": 1, "repaired_bad_utf8": 1}.items() <= codes(path).items()


def test_half_characters_are_replaced_and_every_analysis_still_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [*TEN, event("x\ud800y", 9000, 1), event("ok", 9100, 1, note="\udfff")]
    path = write(tmp_path / "t.json", entries, "Card \ud801")
    trace = load_trace(path)
    assert {"x\ufffdy", "ok"} <= set(trace.kernels["name"].astype(str))
    assert trace.devices == {0: "Card \ufffd"}
    assert codes(path) == {"repaired_bad_utf8": 2}
    for words in (["summary"], ["summary", "--json"], ["health"]):
        assert main(["trace", *words, str(path)]) == 0
    capsys.readouterr().out.encode()


def test_events_of_any_category_are_counted_and_those_asked_for_found(tmp_path: Path) -> None:
    """Spellings nobody knows, events without a category, and more categories than the decoder keeps apart."""
    odd = [{"ph": "X", "cat": f"sort {i}", "name": f"n{i}", "ts": i, "dur": 1} for i in range(200)]
    bare = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}] * 40
    mine = [{**entry, "cat": entry["cat"].replace("kernel", "Kernel").upper()} for entry in TEN]
    mixed = [entry for group in zip(odd[:20], bare[:20], mine, strict=True) for entry in group]
    path = write(tmp_path / "t.json", [*mixed, *odd[20:], *bare[20:]])
    trace = load_trace(path)
    assert trace.counts.events == 260
    assert (trace.counts.dropped, trace.counts.repaired) == (0, 0)
    plain = load_trace(write(tmp_path / "p.json", TEN))
    for column in ("name", "start_ns", "dur_ns", "launch", "linked", "launch_ns"):
        assert trace.kernels[column].tolist() == plain.kernels[column].tolist()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_skipping_categories_changes_nothing_that_is_read(data: st.DataObject) -> None:
    """The typed way and the plain way give the same events of the categories that are asked for."""
    import tempfile

    from rcatools.trace.event_records import Event, Operation
    from rcatools.trace.events import EventStream
    from rcatools.trace.stream import ByteSource

    names = st.sampled_from(["kernel", "cpu_op", "python_function", "ac2g", "odd", None])
    entries = []
    for number, category in enumerate(data.draw(st.lists(names, min_size=1, max_size=30))):
        entry = {**event(f"n{number}", number, 1), "cat": category}
        entries.append({key: value for key, value in entry.items() if value is not None})
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "t.json", entries)
        ways = [
            [e for part in EventStream(ByteSource(path), wanted).parts() for e in part]
            for wanted in (None, {"kernel": Event, "cpu_op": Operation})
        ]
    assert len(ways[0]) == len(ways[1]) == len(entries)
    for plain, typed in zip(*ways, strict=True):
        assert plain.cat == typed.cat
        if plain.cat in ("kernel", "cpu_op"):
            assert (plain.name, bytes(plain.ts)) == (typed.name, bytes(typed.ts))
        if plain.cat == "kernel":
            assert plain.args == typed.args


def test_times_and_numbers_written_as_text_are_read(tmp_path: Path) -> None:
    entries = [event("a", "100.125", "2.5", correlation=1), event("b", "110", "3", correlation=2)]
    entries[1]["args"]["stream"] = "7"
    trace = load_trace(write(tmp_path / "t.json", entries))
    assert trace.kernels["dur_ns"].tolist() == [2500, 3000]
    assert trace.kernels["start_ns"].tolist() == [0, 9875]
    assert trace.kernels["stream"].tolist() == [7, 7]


def test_wrong_types_in_one_event_do_not_lose_it(tmp_path: Path) -> None:
    entries = [*TEN, {**event(5, 9000, 1), "args": []}, {**event("x", 9100, 1), "cat": None}]  # type: ignore[arg-type]
    trace = load_trace(write(tmp_path / "t.json", entries))
    assert len(trace.kernels) == 11
    assert "5" in set(trace.kernels["name"].astype(str))


@pytest.mark.parametrize("text", ['{"traceEvents": []}', "[]", '{"traceEvents": [ ] , "a": 1}'])
def test_empty_lists_hold_no_gpu_activity(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    trace = load_trace(path)
    assert [warning.code for warning in trace.warnings] == ["no_gpu_events"]
    assert health(trace).blocks == ("everything",)


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(TEN))
    assert len(load_trace(path).kernels) == 10
    path.write_text(json.dumps(TEN)[:-1])  # Chrome's format allows the bracket to be missing
    assert len(load_trace(path).kernels) == 10
    assert codes(path) == {"truncated": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "empty"), (b"hello", "not a known trace format"), (b"\x80\x05}q", "not a known"), (b"{}", "traceEvents"),
     (b'{"a": 1, "traceEvents": {"x": 1}}', "traceEvents"), (b"   \n", "nothing can be read"), (b"a,b,c\n1,2,3\n", "kernel name"),
     (b'{"rocprofiler-sdk-tool": [', "rocprofv3"), (b"SQLite format 3\0" + b"x" * 2000, "database"), (b"\x1f\x8b\x08", "nothing can be read")],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_trace(path)
    assert "\n" not in str(caught.value)


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_trace(tmp_path / "none.json")
    with pytest.raises(InputError, match="is a folder"):
        load_trace(tmp_path)


def test_a_decompression_bomb_is_stopped_and_the_limit_named(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (8 << 20), compresslevel=9))
    with pytest.raises(UnsafeInputError, match="max_ratio"):
        load_trace(path, Limits(ratio_from=1 << 20))
    with pytest.raises(UnsafeInputError, match="max_bytes"):
        load_trace(path, Limits(max_bytes=1 << 20))


def test_one_endless_event_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "' + "a" * (5 << 20))
    with pytest.raises(UnsafeInputError, match="one event"):
        load_trace(path, Limits(max_event_bytes=1 << 20))


def test_deep_nesting_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    deep = "[" * 100_000 + "]" * 100_000
    path.write_text(
        '{"traceEvents": [{"ph": "X", "args": {"a": ' + deep + "}}, " + json.dumps(event("k", 1, 1)) + "]}"
    )
    trace = load_trace(path)
    assert trace.counts.dropped + len(trace.kernels) >= 1


def test_borders_inside_names_do_not_cut_events(tmp_path: Path) -> None:
    tricky = ['}, {"ph": "X"', "a]}", 'x"},{"ph":"X","cat":"kernel"', "\\", '\\"}, {"ph"', "é漢"] * 20
    trace = load_trace(write(tmp_path / "t.json", chain([3.0] * len(tricky), tricky)))
    assert sorted(trace.kernels["name"].astype(str)) == sorted(tricky)
    assert not trace.warnings


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=25),
    indent=st.sampled_from([None, 0, 1, 4]),
    ascii_only=st.booleans(),
    extra=st.dictionaries(st.sampled_from(["Input Dims", "a", "ph"]), st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s), max_leaves=6), max_size=2),
)  # fmt: skip
def test_any_valid_document_is_read_whole(
    names: list[str], indent: int | None, ascii_only: bool, extra: dict[str, object]
) -> None:
    import tempfile

    entries = [
        {**event(name, 10 * i, 1), "args": {"device": 0, "stream": 7, **extra}}
        for i, name in enumerate(names)
    ]
    text = json.dumps(document(entries), indent=indent, ensure_ascii=ascii_only)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        trace = load_trace(path)
    assert len(trace.kernels) == len(names)
    assert trace.counts.dropped == 0


@given(st.decimals(min_value=-(10**9), max_value=10**14, places=3, allow_nan=False))
def test_times_keep_their_nanoseconds(value: object) -> None:
    from decimal import Decimal

    assert time_ns(str(value).encode()) == int(Decimal(str(value)) * 1000)


@pytest.mark.parametrize(("text", "nanoseconds"), [(b"1.5e3", 1500000), (b'"12"', 12000), (b"2211714296495.6534", 2211714296495653), (b"null", None), (b"true", None), (b"1e400", None)])  # fmt: skip
def test_unusual_time_texts(text: bytes, nanoseconds: int | None) -> None:
    assert time_ns(text) == nanoseconds
