"""Whatever bytes a trace file holds, reading it gives a trace or one of our errors, and every analysis of it works."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_support import chain, document, event

from rcatools.errors import RcaError
from rcatools.trace.diff import diff
from rcatools.trace.health import health
from rcatools.trace.model import Trace
from rcatools.trace.read import load_trace
from rcatools.trace.summary import summarize

KINETO = json.dumps(document(chain([5.0, 7.25, 3.5], ["gemm", "norm", "x"])), indent=1).encode()
CSV = (
    b"Kind,Agent_Id,Queue_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp\n"
    b'KERNEL_DISPATCH,Agent 4,3,"gemm, a",1,100,12900\nKERNEL_DISPATCH,4,3,norm,2,13463,14464\n'
)
ROCPROF = json.dumps(
    {"rocprofiler-sdk-tool": [{"agents": [{"id": {"handle": 9}, "node_id": 1, "type": 2}], "kernel_symbols": [{"kernel_id": 1, "formatted_kernel_name": "k"}],
     "buffer_records": {"kernel_dispatch": [{"start_timestamp": 10, "end_timestamp": 30, "dispatch_info": {"kernel_id": 1, "agent_id": {"handle": 9}}}]}}]}
).encode()  # fmt: skip


def analyse(trace: Trace) -> None:
    """All documents must be strict JSON."""
    for found in (summarize(trace), health(trace)):
        json.dumps(found.to_json(), allow_nan=False)
    if len(trace.kernels):
        json.dumps(diff(trace, trace).to_json(), allow_nan=False)


def read(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        try:
            trace = load_trace(path)
        except RcaError:
            return
        analyse(trace)


@settings(max_examples=60, deadline=None)
@given(
    base=st.sampled_from([KINETO, CSV, ROCPROF]),
    edits=st.lists(
        st.tuples(st.integers(0, 2000), st.integers(0, 3), st.binary(max_size=6)), min_size=1, max_size=5
    ),
)
def test_damaged_files_give_a_trace_or_an_error(base: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    content = base
    for place, cut, new in edits:
        at = place % (len(content) + 1)
        content = content[:at] + new + content[at + cut :]
    read(content)


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=300))
def test_any_bytes_give_a_trace_or_an_error(content: bytes) -> None:
    read(content)


@pytest.mark.parametrize("number", ["1e308", "-1e308", "9" * 40, "-" + "9" * 40, "9223372036854775807", "18446744073709551615", "0.1e-300", "4.6e18", "2305843009213693.952"])  # fmt: skip
@pytest.mark.parametrize("key", ["ts", "dur", "correlation", "stream", "device", "bytes", "External id"])
def test_extreme_numbers_overflow_nothing(number: str, key: str) -> None:
    odd = event("odd", 1003, 2, correlation=2, bytes=5, **{"External id": 4})
    text = json.dumps(document([*chain([5.0, 7.25], ["gemm", "norm"]), odd]))
    start = text.index('"odd"')
    at = text.index(f'"{key}": ', start) + len(key) + 4
    end = min(text.index(mark, at) for mark in (",", "}") if mark in text[at:])
    read((text[:at] + number + text[end:]).encode())


@pytest.mark.parametrize(
    "number", ["9" * 25, "-" + "9" * 25, "1e30", "nan", "inf", "9223372036854775807", ""]
)
@pytest.mark.parametrize("column", [1, 2, 4, 5, 6])
def test_extreme_csv_cells_overflow_nothing(number: str, column: int) -> None:
    row = ["KERNEL_DISPATCH", "4", "3", "norm", "2", "13463", "14464"]
    row[column] = number
    read(CSV + ",".join(row).encode() + b"\n")


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**70, -(2**70)])
def test_extreme_rocprof_numbers_overflow_nothing(number: int) -> None:
    for old in (b"10", b"30", b"9", b"1"):
        read(ROCPROF.replace(b": " + old, b": " + str(number).encode()))
