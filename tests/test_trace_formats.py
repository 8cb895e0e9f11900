"""rocprofv3 CSV and JSON of several versions, rocpd and nsys databases, and the cache."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from trace_support import DATA, chain, event, write

from rcatools.errors import InputError
from rcatools.trace import cache
from rcatools.trace.health import health
from rcatools.trace.read import load_trace
from rcatools.trace.summary import summarize

ROCM_7 = '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n"KERNEL_DISPATCH","Agent 4",1,2,9,1,10,"gemm, a<1, 2>",1,1550151853029637,1550151853042437,0,0,8,0,16,64,1,1,1024,1024,1\n"KERNEL_DISPATCH","Agent 4",1,2,9,2,11,"norm",2,1550151853043000,1550151853044001,0,0,8,0,16,64,1,1,1024,1,1\n'
ROCM_62 = "Kind,Agent_Id,Queue_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp,Private_Segment_Size,Group_Segment_Size,Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z\nKERNEL_DISPATCH,4,3,9,1,10,gemm,1,100,12900,0,0,64,1,1,1024,1024,1\nKERNEL_DISPATCH,4,3,9,2,11,norm,2,13463,14464,0,0,64,1,1,1024,1,1\n"
ROCPD2CSV = '"Guid","Kind","Agent_Id","Queue_Id","Stream_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp","Lds_Block_Size"\n"g","KERNEL_DISPATCH","GPU 0","1","2","gemm",1,100,12900,0\n"g","KERNEL_DISPATCH","GPU 0","1","2","norm",2,13463,14464,0\n'
ROCPROF_V1 = '"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","BeginNs","EndNs","DurationNs"\n0,"gemm",4,3,0,1,1,1024,64,100,12900,12800\n1,"norm",4,3,1,1,1,1024,64,13463,14464,1001\n'
WITH_DURATION = "kernel_name,start_timestamp,Duration,stream_id,agent_id,queue_id\ngemm,100,12800,2,4,1\nnorm,13463,1001,2,4,1\n"


@pytest.mark.parametrize(
    ("text", "device", "stream", "grid"),
    [(ROCM_7, 4, 2, "1024,1024,1"), (ROCM_62, 4, 3, "1024,1024,1"), (ROCPD2CSV, 0, 2, ""), (ROCPROF_V1, 4, 3, "1024"), (WITH_DURATION, 4, 2, "")],
    ids=["rocm7", "rocm6.2", "rocpd2csv", "rocprof", "duration"],
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_csv_of_every_version(
    tmp_path: Path, text: str, device: int, stream: int, grid: str, packed: bool
) -> None:
    path = tmp_path / ("kernel_trace.csv.gz" if packed else "kernel_trace.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    trace = load_trace(path)
    assert trace.format == "rocprofv3-csv"
    table = trace.kernels
    assert table["dur_ns"].tolist() == [12800, 1001]
    assert table["start_ns"].tolist() == [0, 13363]
    assert (set(table["device"]), set(table["stream"])) == ({device}, {stream})
    assert table["grid"].astype(str).iloc[0] == grid


def test_csv_rows_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "kernel_trace.csv"
    path.write_text(
        ROCM_62
        + "KERNEL_DISPATCH,4,3,9,3,10,gemm,1,oops,12900\nKERNEL_DISPATCH,4\n\nKERNEL_DISPATCH,4,3,9,4,10,back,3,20000,19000\n"
    )
    trace = load_trace(path)
    assert (trace.counts.events, trace.counts.dropped, trace.counts.excluded) == (5, 2, 1)
    assert {"dropped_events", "negative_duration"} <= {warning.code for warning in trace.warnings}


def test_copies_of_both_directions_belong_to_the_gpu(tmp_path: Path) -> None:
    path = tmp_path / "memory_copy_trace.csv"
    path.write_text("Kind,Direction,Stream_Id,Source_Agent_Id,Destination_Agent_Id,Correlation_Id,Start_Timestamp,End_Timestamp\n"
                    "MEMORY_COPY,MEMORY_COPY_HOST_TO_DEVICE,0,Agent 0,Agent 4,1,100,200\nMEMORY_COPY,MEMORY_COPY_DEVICE_TO_HOST,0,Agent 4,Agent 0,2,300,350\n")  # fmt: skip
    table = load_trace(path).kernels
    assert set(table["device"]) == {4}
    assert set(table["kind"].astype(str)) == {"memcpy"}


def rocprof_json() -> dict[str, object]:
    def dispatch(number: int, kernel: int, start: int, end: int) -> dict[str, object]:
        return {"start_timestamp": start, "end_timestamp": end, "correlation_id": {"internal": number, "external": 0}, "stream_id": {"handle": 5},
                "dispatch_info": {"kernel_id": kernel, "agent_id": {"handle": 99}, "queue_id": {"handle": 1}, "grid_size": {"x": 64, "y": 1, "z": 1}, "workgroup_size": {"x": 64, "y": 1, "z": 1}}}  # fmt: skip

    process = {
        "agents": [{"id": {"handle": 98}, "node_id": 0, "type": 1, "name": "cpu"}, {"id": {"handle": 99}, "node_id": 1, "type": 2, "product_name": "Card"}],
        "kernel_symbols": [{"kernel_id": 1, "formatted_kernel_name": "void add<float>(int)", "truncated_kernel_name": "add"},
                           {"kernel_id": 2, "formatted_kernel_name": "void add<half>(int)", "truncated_kernel_name": "add"}],
        "strings": {"buffer_records": [{"kind": "NONE", "operations": []}, {"kind": "HIP_RUNTIME_API", "operations": ["none", "hipLaunchKernel", "hipGraphLaunch"]}]},
        "buffer_records": {
            "kernel_dispatch": [dispatch(1, 1, 1000, 3000), dispatch(2, 2, 4000, 4500), dispatch(7, 3, 5000, 5100)],
            "memory_copy": [{"start_timestamp": 100, "end_timestamp": 900, "src_agent_id": {"handle": 98}, "dst_agent_id": {"handle": 99}, "bytes": 4096}],
            "hip_api": [{"kind": 1, "operation": 1, "start_timestamp": 500, "correlation_id": {"internal": 1}}, {"kind": 1, "operation": 2, "start_timestamp": 600, "correlation_id": {"internal": 2}}],
        },
    }  # fmt: skip
    return {"rocprofiler-sdk-tool": [process]}


def test_rocprof_json_links_calls_and_keeps_both_names(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(rocprof_json()))
    trace = load_trace(path)
    kernels = trace.only_kernels()
    assert kernels["name"].astype(str).tolist() == ["add", "add", "kernel 3"]
    assert kernels["full_name"].astype(str).tolist()[:2] == ["void add<float>(int)", "void add<half>(int)"]
    assert kernels["linked"].tolist() == [True, True, False]
    assert kernels["graph"].tolist() == [False, True, False]
    assert trace.devices == {1: "Card"}
    assert trace.kernels["bytes"].max() == 4096


def nsys(path: Path, *, graph: bool = True) -> Path:
    with sqlite3.connect(path) as db:
        db.executescript("""
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'cudaGraphLaunch_v10000'), (3, 'gemm<float>'), (4, 'gemm');
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, correlationId INTEGER, nameId INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, 1, 1), (30, 40, 2, 2);
            CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
            INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA Card');
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, bytes INTEGER, copyKind INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (50, 90, 0, 7, 9, 4096, 1);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER,
                demangledName INTEGER, shortName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 1100, 0, 7, 1, 3, 4, 8, 1, 1, 128, 1, 1), (1200, 1300, 0, 7, 2, 3, 4, 8, 1, 1, 128, 1, 1),
                (1400, NULL, 0, 7, 2, 3, 4, 8, 1, 1, 128, 1, 1);
        """)
    return path


def test_nsys_database(tmp_path: Path) -> None:
    trace = load_trace(nsys(tmp_path / "p.sqlite"))
    kernels = trace.only_kernels()
    assert trace.format == "nsys"
    assert kernels["name"].astype(str).tolist() == ["gemm<float>"] * 2
    assert kernels["dur_ns"].tolist() == [1000, 100]
    assert kernels["launch"].astype(str).tolist() == ["cudaLaunchKernel", "cudaGraphLaunch"]
    assert kernels["graph"].tolist() == [False, True]
    assert trace.devices == {0: "NVIDIA Card"}
    assert trace.counts.dropped == 1
    assert trace.kernels["name"].astype(str).iloc[0] == "Memcpy HtoD"


def rocpd(path: Path) -> Path:
    with sqlite3.connect(path) as db:
        db.executescript("""
            CREATE TABLE rocpd_kernel_dispatch_g1 (id INTEGER); INSERT INTO rocpd_kernel_dispatch_g1 VALUES (1), (2), (3);
            CREATE TABLE rocpd_info_agent_g1 (id INTEGER, type TEXT, absolute_index INTEGER, name TEXT, product_name TEXT);
            INSERT INTO rocpd_info_agent_g1 VALUES (1, 'CPU', 0, 'cpu', 'EPYC'), (2, 'GPU', 1, 'gfx942', 'AMD Card');
            CREATE TABLE k (name TEXT, start INTEGER, "end" INTEGER, agent_abs_index INTEGER, stream_id INTEGER, queue_id INTEGER, stack_id INTEGER,
                grid_x INTEGER, grid_y INTEGER, grid_z INTEGER, workgroup_x INTEGER, workgroup_y INTEGER, workgroup_z INTEGER);
            INSERT INTO k VALUES ('gemm', 1000, 3000, 1, 0, 2, 11, 64, 1, 1, 64, 1, 1), ('norm', 3500, 3600, 1, 0, 2, 12, 64, 1, 1, 64, 1, 1);
            CREATE VIEW kernels AS SELECT * FROM k;
            CREATE TABLE r (stack_id INTEGER, name TEXT, start INTEGER); INSERT INTO r VALUES (11, 'hipLaunchKernel', 900), (12, 'hipGraphLaunch', 950);
            CREATE VIEW regions AS SELECT * FROM r;
            CREATE TABLE m (name TEXT, start INTEGER, "end" INTEGER, dst_agent_abs_index INTEGER, src_agent_abs_index INTEGER, dst_agent_type TEXT, stream_id INTEGER, queue_id INTEGER, stack_id INTEGER, size INTEGER);
            INSERT INTO m VALUES ('MEMORY_COPY_DEVICE_TO_HOST', 4000, 4100, 0, 1, 'CPU', 0, 0, 13, 512);
            CREATE VIEW memory_copies AS SELECT * FROM m;
        """)
    return path


def test_rocpd_database(tmp_path: Path) -> None:
    trace = load_trace(rocpd(tmp_path / "r.db"))
    kernels = trace.only_kernels()
    assert trace.format == "rocpd"
    assert kernels["dur_ns"].tolist() == [2000, 100]
    assert kernels["graph"].tolist() == [False, True]
    assert kernels["linked"].all()
    assert set(trace.kernels["device"]) == {1}
    assert trace.devices == {1: "AMD Card"}
    assert trace.counts.dropped == 1  # three dispatches, two of them in the view
    assert summarize(trace).coverage.graph == 1


def test_other_databases_and_a_rocpd_without_views_are_refused(tmp_path: Path) -> None:
    for name, script, message in (
        ("a.db", "CREATE TABLE t (x)", "neither rocpd nor nsys"),
        ("b.db", "CREATE TABLE rocpd_kernel_dispatch_g (id)", "without its view"),
        ("c.db", "CREATE TABLE rocpd_op (id); CREATE TABLE rocpd_api (id)", "RPD database"),
    ):
        with sqlite3.connect(tmp_path / name) as db:
            db.executescript(script)
        with pytest.raises(InputError, match=message):
            load_trace(tmp_path / name)


def test_a_database_is_opened_read_only(tmp_path: Path) -> None:
    path = nsys(tmp_path / "p.sqlite")
    before = path.read_bytes()
    load_trace(path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.sqlite"]


@pytest.mark.parametrize("kind", ["kineto", "excluded", "empty", "nsys"])
def test_the_cache_gives_the_same_trace(tmp_path: Path, kind: str) -> None:
    path = {
        "kineto": lambda: DATA / "trace_side.json.gz",
        "excluded": lambda: write(
            tmp_path / "t.json", [*chain([5.0] * 9, ["k"] * 9), event("broken", 1, 1e15)]
        ),
        "empty": lambda: write(tmp_path / "e.json", []),
        "nsys": lambda: nsys(tmp_path / "p.sqlite"),
    }[kind]()
    folder = tmp_path / "cache"
    plain, first, second = (
        load_trace(path),
        load_trace(path, cache_folder=folder),
        load_trace(path, cache_folder=folder),
    )
    assert len(list(folder.iterdir())) == 1
    for trace in (first, second):
        pd.testing.assert_frame_equal(trace.kernels, plain.kernels, check_categorical=False)
        pd.testing.assert_frame_equal(
            trace.excluded, plain.excluded, check_categorical=False, check_dtype=False
        )
        pd.testing.assert_frame_equal(trace.steps, plain.steps)
        assert (trace.label, trace.format, dict(trace.devices), trace.counts) == (
            plain.label,
            plain.format,
            dict(plain.devices),
            plain.counts,
        )
        assert [w.to_json() for w in trace.warnings] == [w.to_json() for w in plain.warnings]
        assert json.dumps(health(trace).to_json()) == json.dumps(health(plain).to_json())
        assert json.dumps(summarize(trace).to_json()) == json.dumps(summarize(plain).to_json())


def test_a_changed_file_and_a_broken_cache_are_read_anew(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    path = write(tmp_path / "t.json", chain([5.0] * 3, ["k"] * 3))
    load_trace(path, cache_folder=folder)
    write(path, chain([5.0] * 4, ["k"] * 4))
    assert len(load_trace(path, cache_folder=folder).kernels) == 4
    for file in folder.iterdir():
        file.write_bytes(b"PAR1 broken")
    assert len(load_trace(path, cache_folder=folder).kernels) == 4
    assert cache.load(tmp_path / "none") is None


def test_a_cache_that_cannot_be_written_is_only_slower(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    trace = load_trace(write(tmp_path / "t.json", chain([5.0], ["k"])), cache_folder=blocked / "sub")
    assert trace.kernels["dur_ns"].dtype == np.int64
