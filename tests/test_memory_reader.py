"""Reading snapshots: every pickle protocol and layout, and files that are hostile or damaged."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import pickletools
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcatools.errors import InputError, UnsafeInputError
from rcatools.memory.build import build_snapshot
from rcatools.memory.columns import StackTable, TraceColumns
from rcatools.memory.ledger import ledger
from rcatools.memory.peak import peak
from rcatools.memory.read import load_snapshot, parse_snapshot
from rcatools.memory.replay import replay
from rcatools.memory.snapshot import Snapshot
from rcatools.memory.unpickle import Machine

DATA = Path(__file__).parent / "data" / "snapshots"
SAMPLES = ["streams4", "graph_pools", "expandable", "owner_lt_76", "raw_allocations", "random_records"]
MIB = 1 << 20


class BuiltinsOnly(pickle.Unpickler):
    """Python's own unpickler without any global: the independent reader of these tests."""

    def find_class(self, module: str, name: str) -> Any:
        raise AssertionError((module, name))


def raw(name: str) -> dict[str, Any]:
    return BuiltinsOnly(io.BytesIO(gzip.decompress((DATA / f"{name}.pickle.gz").read_bytes()))).load()


def by_python(top: dict[str, Any]) -> Snapshot:
    """The tables built from plain Python objects, without the reader under test."""
    stacks = StackTable()
    traces = []
    for entries in top.get("device_traces", []):
        traces.append(TraceColumns(stacks))
        traces[-1].extend(entries)
    return build_snapshot(top, traces, Counter(), "reference")


def resolved_stacks(snapshot: Snapshot, table: pd.DataFrame) -> list[object]:
    return [snapshot.stack(i) for i in table["stack"].tolist()]


def assert_same(a: Snapshot, b: Snapshot) -> None:
    for name in ("segments", "blocks", "events"):
        left, right = getattr(a, name), getattr(b, name)
        pd.testing.assert_frame_equal(left.drop(columns="stack"), right.drop(columns="stack"))
        assert resolved_stacks(a, left) == resolved_stacks(b, right)
    assert a.settings == b.settings
    assert a.histories == b.histories
    assert [n.code for n in a.notes] == [n.code for n in b.notes]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_protocol_and_json_give_the_same_tables(name: str) -> None:
    top = raw(name)
    expected = by_python(top)
    for protocol in range(6):
        data = pickle.dumps(top, protocol)
        assert_same(parse_snapshot(data, "reference"), expected)
        assert_same(parse_snapshot(pickletools.optimize(data), "reference"), expected)
    assert_same(parse_snapshot(json.dumps(top).encode(), "reference"), expected)


def event(number: int, **more: Any) -> dict[str, Any]:
    return {"action": "alloc", "addr": 512 * number, "size": 512, "stream": 0, "time_us": number, **more}


def many_events() -> list[dict[str, Any]]:
    """Events of many shapes: shared and own stacks, pool ids, rare keys, numbers of every width."""
    frames = [{"name": f"f{i}", "filename": "a.py", "line": i} for i in range(400)]
    shared = [frames[1], frames[2]]
    out = []
    for i in range(3000):
        e = event(
            i, addr=(1 << (i % 48)) * 512, size=1 << (i % 40), stream=(i % 7) * 0x0123456789ABC % (1 << 47)
        )
        kind = i % 5
        if kind == 1:
            e["frames"] = [frames[i % 400], frames[(i * 7) % 400], frames[3]]
        elif kind == 2:
            e["frames"] = shared
        elif kind == 3:
            e |= {"frames": [], "pool_id": (0, i % 3), "user_metadata": f"note {i % 2}"}
        elif kind == 4:
            e |= {"frames": [frames[i % 400]], "pool_id": [i % 2, 0], "compile_context": "N/A"}
        e["action"] = ("alloc", "free_requested", "free_completed", "segment_alloc", "annotate")[i % 5]
        if i % 50 == 0:
            e = {"action": "oom", "device_free": i, "size": 512, "stream": 0, "time_us": i}
        out.append(e)
    return out


@pytest.mark.parametrize("protocol", range(6))
def test_the_fast_path_reads_what_the_slow_path_reads(protocol: int) -> None:
    top = {"segments": [], "device_traces": [many_events(), [], [event(1)]], "allocator_settings": {}}
    assert_same(parse_snapshot(pickle.dumps(top, protocol), "reference"), by_python(top))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=60),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
        | st.tuples(inner)
    ),
    max_leaves=20,
)


@settings(max_examples=80, deadline=None)
@given(value=json_values, protocol=st.integers(0, 5), shared=st.booleans())
def test_the_machine_reads_any_plain_data_as_python_does(value: Any, protocol: int, shared: bool) -> None:
    whole = {"x": value, "y": value if shared else None}
    data = pickle.dumps(whole, protocol)
    assert Machine(data, StackTable()).load() == whole == pickle.loads(data)


# hostile and damaged files


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch /tmp/never",))


def protocol_0_instance() -> bytes:
    return b"(ios\nsystem\n(S'true'\ntR."


HOSTILE = {
    "reduce": pickle.dumps(Evil(), 2),
    "reduce_in_an_event": pickle.dumps(
        {"segments": [], "device_traces": [[event(1), event(2, frames=Evil())]]}, 4
    ),
    "old_instance": protocol_0_instance(),
    "numpy": pickle.dumps({"segments": np.zeros(3)}, 5),
    "extension": b"\x80\x02\x82\x01.",
    "persistent": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "object_state": b"\x80\x02}}b.",
    "class": pickle.dumps(dict, 2),
    "set": pickle.dumps({1, 2}, 4),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused_and_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "evil.pickle"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(UnsafeInputError, match=r"evil\.pickle.*nothing was run") as caught:
        load_snapshot(path)
    if name.startswith("reduce"):
        assert "system" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_size_limits_hold_for_packed_files(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.pickle.gz"
    bomb.write_bytes(gzip.compress(b"\x80\x04" + b"]" * (64 << 20)))
    with pytest.raises(UnsafeInputError, match="once unpacked"):
        load_snapshot(bomb, max_bytes=1 << 20)


GOOD = pickle.dumps({"segments": [], "device_traces": [[event(i) for i in range(50)]]}, 4)


@pytest.mark.parametrize("cut", [1, 2, 20, 100, len(GOOD) - 1])
def test_truncated_files(cut: int, tmp_path: Path) -> None:
    plain = tmp_path / "cut.pickle"
    plain.write_bytes(GOOD[:cut])
    with pytest.raises(InputError, match=r"cut\.pickle"):
        load_snapshot(plain)
    packed = tmp_path / "cut.pickle.gz"
    packed.write_bytes(gzip.compress(GOOD)[:-9])
    with pytest.raises(InputError, match=r"cut\.pickle\.gz"):
        load_snapshot(packed)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"   ",
        b"hello world",
        b"\x80\x04N.",
        pickle.dumps([1, 2]),
        pickle.dumps({"segments": 5}),
        b'{"segments": 5}',
        b'{"a": ',
        b"[1, 2]",
        b"[" * 100_000,
        b"\x80\x02\x8b\xff\xff\xff\x7f",
        b"\x80\x02r\xff\xff\xff\x7f.",
        b"\x80\x02]r\xff\xff\xff\x7f.",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 60),
        b"\x80\x02(e.",
        b"\x80\x02uuu.",
        b"\x80\x02h\x05.",
        b"\x80\x02}]K\x01s.",
        b"\x1f\x8b\x08\x00garbage",
    ],
)
def test_what_is_no_snapshot_is_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        load_snapshot(path)
    assert "file" in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(max_examples=150, deadline=None)
@given(
    data=st.binary(max_size=60),
    at=st.integers(0, len(GOOD) - 1),
    protocol=st.sampled_from([b"", b"\x80\x04"]),
)
def test_random_bytes_never_escape_as_another_error(data: bytes, at: int, protocol: bytes) -> None:
    for candidate in (protocol + data, GOOD[:at] + data + GOOD[at + len(data) :]):
        message = "fuzz"
        try:
            ledger(parse_snapshot(candidate, "fuzz"))
        except InputError as error:
            message = str(error)
        assert "fuzz" in message


def segment(**more: Any) -> dict[str, Any]:
    return {
        "device": 0,
        "address": 2 * MIB,
        "total_size": 2 * MIB,
        "allocated_size": 512,
        "active_size": 512,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "blocks": [
            {"address": 2 * MIB, "size": 512, "requested_size": 100, "state": "active_allocated"},
            {"address": 2 * MIB + 512, "size": 2 * MIB - 512, "requested_size": 0, "state": "inactive"},
        ],
        **more,
    }


def snapshot_of(*segments: Any, traces: Any = (), **more: Any) -> Snapshot:
    return parse_snapshot(
        pickle.dumps({"segments": list(segments), "device_traces": list(traces), **more}), "made"
    )


def codes(snapshot: Snapshot) -> set[str]:
    return {note.code for note in snapshot.notes}


def test_zero_segments_and_no_traces() -> None:
    empty = parse_snapshot(b'{"segments": []}', "empty")
    assert "no_segments" in codes(empty)
    balance = ledger(empty)
    assert len(balance.rows) == 0
    with pytest.raises(InputError, match="nothing to replay"):
        replay(empty)
    idle = snapshot_of(traces=[[]])
    assert peak(idle, 0) is None


def test_huge_numbers_leave_the_rest_standing() -> None:
    good = segment()
    snapshot = snapshot_of(
        good,
        segment(total_size=1 << 63),
        segment(address=1 << 64),
        segment(stream=-(1 << 63), address=4 * MIB, blocks=[]),
        traces=[[event(1), event(2, size=1 << 63), event(3, addr=1 << 70), event(4, time_us=1 << 63)]],
        allocator_settings={"max_split_size": (1 << 64) - 1, "garbage_collection_threshold": 0.0},
    )
    assert {"segment_number_out_of_range", "event_number_out_of_range"} <= codes(snapshot)
    assert len(snapshot.segments) == 2
    assert snapshot.segments["stream"].tolist() == [0, 1 << 63]
    assert len(snapshot.events) == 2
    assert snapshot.events["time_us"].tolist() == [1, -1]
    assert snapshot.settings["max_split_size"] == (1 << 64) - 1
    assert ledger(snapshot).devices["reserved"].tolist() == [4 * MIB]


def test_wrong_types_are_counted() -> None:
    snapshot = snapshot_of(
        segment(blocks=[5, {"size": "big"}, {"size": 2 * MIB, "state": "purple"}]),
        "text",
        None,
        traces=[[event(1), 7, event(2, action=None), event(3, frames="nothing", pool_id="x")], 9],
        external_annotations=[1, {"name": "a"}],
    )
    found = {note.code: note.count for note in snapshot.notes}
    assert found["segment_not_a_mapping"] == 2
    assert found["block_not_a_mapping"] == 1
    assert found["block_number_out_of_range"] == 1
    assert found["block_state_unknown"] == 1
    assert found["event_not_a_mapping"] == 1
    assert found["trace_not_a_list"] == 1
    assert found["unknown_actions"] == 1
    assert snapshot.annotations == [{"name": "a"}]
    assert len(snapshot.events) == 3


def test_blocks_larger_than_their_segment_are_refused() -> None:
    with pytest.raises(InputError, match="the file is damaged"):
        ledger(snapshot_of(segment(total_size=MIB)))


def test_blocks_without_addresses_follow_their_segment() -> None:
    blocks = [{"size": 512, "state": "active_allocated"}, {"size": 2 * MIB - 512, "state": "inactive"}]
    snapshot = snapshot_of(segment(blocks=blocks))
    assert snapshot.blocks["address"].tolist() == [2 * MIB, 2 * MIB + 512]
    assert "block_addresses_computed" in codes(snapshot)


def test_newest_layout_with_host_memory_and_pools() -> None:
    trace = [
        {"action": "segment_alloc", "addr": 2 * MIB, "size": 2 * MIB, "stream": 0, "pool_id": (0, 0)},
        {"action": "alloc", "addr": 2 * MIB, "size": 100, "stream": 0, "pool_id": (0, 0)},
        {"action": "annotate", "addr": 2 * MIB, "size": 100, "stream": 0, "pool_id": (0, 0)},
    ]
    snapshot = snapshot_of(
        segment(), traces=[trace], host_segments=[segment(address=9 * MIB)], host_traces=[[1, 2]]
    )
    assert snapshot.pools == [(0, 0)]
    assert snapshot.host_segments["total_size"].tolist() == [2 * MIB]
    assert snapshot.host_events == 2
    result = replay(snapshot)
    assert (result.checked, result.exact) == (2, 2)
    assert result.unverifiable == {"not_an_allocator_event": 1}
    assert result.end_state_exact


def test_several_devices_keep_their_histories_apart() -> None:
    other = segment(
        device=2, address=8 * MIB, blocks=[{"address": 8 * MIB, "size": 2 * MIB, "state": "inactive"}]
    )
    trace = [
        {"action": "segment_alloc", "addr": 2 * MIB, "size": 2 * MIB, "stream": 0},
        {"action": "alloc", "addr": 2 * MIB, "size": 100, "stream": 0},
    ]
    snapshot = snapshot_of(segment(), other, traces=[trace, [], []])
    assert snapshot.devices == [0, 2]
    assert snapshot.history(0).complete
    assert not snapshot.history(2).recorded
    assert ledger(snapshot).devices["device"].tolist() == [0, 2]
    assert replay(snapshot).exact == 2
    assert replay(snapshot, 2).mode == "no_history"
    with pytest.raises(InputError, match="nothing for device 1"):
        replay(snapshot, 1)
