"""Files as nobody wrote them yet: real ones rewritten in other spellings, orders and times, against a slow model.

The model reads the whole document with Python's json and decimal fractions, and shares no code with the readers.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from trace_support import DATA, shared

from rcatools.trace.read import load_trace
from rcatools.trace.summary import summarize

GPU = {"kernel": "kernel", "gpu_memcpy": "copy", "memcpy": "copy", "gpu_memset": "set", "memset": "set"}
FILES = [
    "real/tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "real/tracelens/inference/sglang_Qwen3-8B_decode.json.gz",
    "real/hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "real/hta/critical_path_alexnet/benchmark_result_2869224_1695835535_trace.json.gz",
]
LARGE = "real/tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"  # a third of its kernels has no launch
Event = dict[str, Any]


def nanoseconds(value: Any) -> int:
    return int(Decimal(str(value)) * 1000)


def model(events: list[Event]) -> dict[str, Any]:
    """Figures of a list of events by plain loops."""
    kernels, spans, launches, operations = [], {}, {}, {}
    for entry in events:
        sort, args = str(entry.get("cat")).lower(), entry.get("args") or {}
        if entry.get("ph") != "X":
            continue
        if sort in ("cuda_runtime", "cuda_driver") and "correlation" in args:
            launches[args["correlation"]] = (entry["name"], nanoseconds(entry["ts"]))
        if sort == "cpu_op" and "External id" in args:
            operations[args["External id"]] = (
                entry["name"],
                nanoseconds(entry["ts"]),
                nanoseconds(entry["dur"]),
            )
        if sort in GPU:
            start = nanoseconds(entry["ts"])
            spans.setdefault(args["device"], []).append((start, start + nanoseconds(entry["dur"])))
            if GPU[sort] == "kernel":
                kernels.append((entry["name"], nanoseconds(entry["dur"]), args))
    linked = [launches.get(args.get("correlation")) for _, _, args in kernels]
    named = []
    for (_, _, args), call in zip(kernels, linked, strict=True):
        operation = operations.get(args.get("External id"))
        inside = operation and call and operation[1] <= call[1] <= operation[1] + operation[2]
        named.append(operation[0] if inside else "")
    return {
        "kernels": len(kernels),
        "names": sorted({name for name, _, _ in kernels}),
        "ns": sum(duration for _, duration, _ in kernels),
        "busy": {device: union(parts) for device, parts in spans.items()},
        "streams": sorted({args["stream"] for _, _, args in kernels}),
        "linked": sum(call is not None for call in linked),
        "graph": sum(call is not None and "graphlaunch" in call[0].lower() for call in linked),
        "graph_ns": sum(d for (_, d, _), call in zip(kernels, linked, strict=True) if call and "graphlaunch" in call[0].lower()),
        "ops": sorted(named),
    }  # fmt: skip


def union(parts: list[tuple[int, int]]) -> int:
    total = reach = 0
    for start, end in sorted(parts):
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return total


def ours(path: Path) -> dict[str, Any]:
    trace = load_trace(path)
    kernels, found = trace.only_kernels(), summarize(trace)
    return {
        "kernels": found.coverage.kernels,
        "names": sorted(found.kernels["name"].unique()),
        "ns": round(1000 * found.coverage.kernel_us),
        "busy": {device.device: round(1000 * device.busy_us) for device in found.devices},
        "streams": sorted(set(kernels["stream"].tolist())),
        "linked": found.coverage.linked,
        "graph": found.coverage.graph,
        "graph_ns": round(1000 * found.coverage.graph_us),
        "ops": sorted(kernels["op"].astype(str)),
    }


def cased(change: Callable[[str], str]) -> Callable[[Any], Any]:
    def again(value: Any) -> Any:
        if isinstance(value, dict):
            return {change(key): again(item) for key, item in value.items()}
        return [again(item) for item in value] if isinstance(value, list) else value

    return again


def shuffled_keys(document: Event) -> Event:
    generator = random.Random(1)

    def turned(entry: Event) -> Event:
        keys = list(entry)
        generator.shuffle(keys)
        return {key: turned(entry[key]) if isinstance(entry[key], dict) else entry[key] for key in keys}

    return {**document, "traceEvents": [turned(entry) for entry in document["traceEvents"]]}


def shuffled_events(document: Event) -> Event:
    events = list(document["traceEvents"])
    random.Random(2).shuffle(events)
    return {**document, "traceEvents": events}


def by_date(document: Event) -> Event:
    """Microseconds since 1970, as kineto wrote them until 2024: doubles no longer hold their nanoseconds."""
    start = Decimal("1764600000000000.417")
    return with_times(document, lambda value: Decimal(str(value)) + (start if value < 10**15 else Decimal("0.417")))  # fmt: skip


def as_text(document: Event) -> Event:
    return with_times(document, str, keys=("ts", "dur"))


def with_times(document: Event, change: Callable[[Any], Any], keys: tuple[str, ...] = ("ts",)) -> Event:
    events = [
        {key: change(item) if key in keys and item is not None else item for key, item in entry.items()}
        for entry in document["traceEvents"]
    ]
    return {**document, "traceEvents": events}


def old_spellings(document: Event) -> Event:
    """Category names and the external id of 2021."""
    old = {"kernel": "Kernel", "cuda_runtime": "Runtime", "cpu_op": "Operator", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset"}  # fmt: skip
    events = []
    for entry in document["traceEvents"]:
        category, args = entry.get("cat"), entry.get("args") or {}
        if category in ("kernel", "gpu_memcpy", "gpu_memset") and "External id" in args:
            args = {("external id" if key == "External id" else key): item for key, item in args.items()}
        if "Input Dims" in args:
            args = {("Input dims" if key == "Input Dims" else key): item for key, item in args.items()}
        events.append({**entry, "cat": old.get(category, category), "args": args} if category else entry)
    return {**document, "traceEvents": events}


def on_stream_zero(document: Event) -> Event:
    """ROCm's default stream, and device numbers that count CPUs."""
    events = []
    for entry in document["traceEvents"]:
        if str(entry.get("cat")).lower() in GPU:
            entry = {**entry, "args": {**entry["args"], "stream": 0, "device": entry["args"]["device"] + 8}}  # noqa: PLW2901
        events.append(entry)
    return {**document, "traceEvents": events}


def written(document: Event, **form: Any) -> bytes:
    """JSON with decimals as they are."""
    marks: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Decimal):
            marks[f"@{len(marks)}@"] = str(value)
            return f"@{len(marks) - 1}@"
        raise TypeError(type(value))

    pieces = json.dumps(document, default=plain, **form).split('"@')
    text = pieces[0] + "".join(marks[f"@{piece.split('@', 1)[0]}@"] + piece.split('@"', 1)[1] for piece in pieces[1:])  # fmt: skip
    return text.encode()


CHANGES: dict[str, Callable[[Event], Event]] = {
    "as it is": lambda document: document,
    "upper-case keys": cased(str.upper),
    "lower-case keys": cased(str.lower),
    "title-case keys": cased(str.title),
    "keys in any order": shuffled_keys,
    "events in any order": shuffled_events,
    "times since 1970": by_date,
    "times as text": as_text,
    "spellings of 2021": old_spellings,
    "stream 0, device 8": on_stream_zero,
    "list before the rest": lambda d: {"traceEvents": d["traceEvents"], **{k: v for k, v in d.items() if k != "traceEvents"}},
}  # fmt: skip
KNOWN_TO_MODEL = {"keys in any order", "events in any order", "times since 1970", "times as text", "stream 0, device 8"}  # fmt: skip


CASES = [(file, change) for file in (*FILES, "own") for change in CHANGES]
CASES += [(LARGE, change) for change in ("upper-case keys", "events in any order", "times since 1970")]


@pytest.mark.parametrize(("file", "change"), CASES, ids=[f"{f.split('/')[-1][:12]}-{c}" for f, c in CASES])
def test_rewritten_kineto_files_give_the_models_figures(file: str, change: str, tmp_path: Path) -> None:
    source = DATA / "trace_side.json.gz" if file == "own" else shared(file)
    document = json.loads(gzip.decompress(source.read_bytes()), parse_float=Decimal)
    changed = CHANGES[change](document)
    path = tmp_path / "t.json"
    path.write_bytes(written(changed, indent=random.Random(change).choice([None, 1])))
    expected = model((changed if change in KNOWN_TO_MODEL else document)["traceEvents"])
    assert ours(path) == expected
    assert expected["kernels"] > 0


@pytest.mark.parametrize("name", ["Qwen_Qwen1.5-0.5B-Chat__1016005", "gaunernst_bert-small-uncased__1016001"])
def test_rocm_names_and_headers_in_any_case_say_the_same(name: str, tmp_path: Path) -> None:
    source = shared(f"real/tracelens/mi300/{name}.json.gz")
    document = json.loads(gzip.decompress(source.read_bytes()))
    path = tmp_path / "t.json"
    path.write_text(json.dumps(cased(str.upper)(document)))
    plain, odd = load_trace(source), load_trace(path)
    assert odd.devices == plain.devices
    assert odd.meta["backend"] == plain.meta["backend"] == "rocm"
    assert odd.meta["record_shapes"] == plain.meta["record_shapes"]
    assert [w.code for w in odd.warnings] == [w.code for w in plain.warnings]
    assert odd.counts == plain.counts


# --- rocprofv3 CSV ----------------------------------------------------------------------------------------

KERNEL_CSV = "real/flydsl/flash_attn_func/discover_kernel_trace.csv"


def csv_variant(rows: list[dict[str, str]], variant: str) -> str:
    """The rows as another ROCm version or tool writes them."""
    header = list(rows[0])
    names = {key: key for key in header}
    newline = "\r\n" if variant == "dos" else "\n"
    quoting = csv.QUOTE_ALL if variant == "quoted" else csv.QUOTE_MINIMAL
    if variant == "upper":
        names = {key: key.upper() for key in header}
    if variant == "rocpd2csv":
        names = {key: key.title() for key in header}
        rows = [{"Guid": "abc", **row} for row in rows]
        names, header = {"Guid": "Guid", **names}, ["Guid", *header]
    if variant == "shuffled":
        random.Random(3).shuffle(header)
    if variant == "no stream":
        header = [key for key in header if key != "Stream_Id"]
    if variant == "agent number":
        rows = [{**row, "Agent_Id": row["Agent_Id"].split()[-1]} for row in rows]
    if variant == "duration":
        rows = [{**row, "Duration": str(int(row["End_Timestamp"]) - int(row["Start_Timestamp"]))} for row in rows]  # fmt: skip
        header = [*(key for key in header if key != "End_Timestamp"), "Duration"]
        names["Duration"] = "Duration"
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=newline, quoting=quoting)
    writer.writerow([names[key] for key in header])
    writer.writerows([[row[key] for key in header] for row in rows])
    return ("\ufeff" if variant == "bom" else "") + out.getvalue()


@pytest.mark.parametrize("variant", ["plain", "upper", "rocpd2csv", "shuffled", "no stream", "agent number", "duration", "dos", "quoted", "bom"])  # fmt: skip
def test_rewritten_csv_files_give_the_models_figures(variant: str, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(shared(KERNEL_CSV).read_text())))
    path = tmp_path / "x_kernel_trace.csv"
    path.write_bytes(csv_variant(rows, variant).encode())
    trace = load_trace(path)
    times = [(int(row["Start_Timestamp"]), int(row["End_Timestamp"])) for row in rows]
    assert len(trace.kernels) == len(rows)
    assert trace.kernels["dur_ns"].sum() == sum(end - start for start, end in times)
    assert [round(1000 * device.busy_us) for device in summarize(trace).devices] == [union(times)]
    assert sorted(trace.kernels["name"].astype(str)) == sorted(row["Kernel_Name"] for row in rows)
    assert set(trace.kernels["device"]) == {int(row["Agent_Id"].split()[-1]) for row in rows}
    column = "Queue_Id" if variant == "no stream" else "Stream_Id"
    assert set(trace.kernels["stream"]) == {int(row[column]) for row in rows}
    assert set(trace.kernels["queue"]) == {int(row["Queue_Id"]) for row in rows}


# --- databases --------------------------------------------------------------------------------------------


class Made:
    """A random profile: kernels over streams with calls that launched them, some of them graph launches."""

    def __init__(self, seed: int) -> None:
        generator = random.Random(seed)
        self.kernels: list[
            tuple[int, int, int, int, int, int]
        ] = []  # start, end, device, stream, number, name
        self.calls: list[tuple[int, int, int, int]] = []  # number, kind, start, end
        at = 1_764_600_000_000_000_000
        for number in range(1, 301):
            at += generator.randrange(0, 4000)
            lasts = generator.choice([0, generator.randrange(1, 9000)])
            self.kernels.append((at, at + lasts, generator.randrange(2), generator.randrange(3), number // 3, generator.randrange(9)))  # fmt: skip
        for number in {row[4] for row in self.kernels}:
            if generator.random() < 0.8:
                self.calls.append(
                    (number, generator.randrange(2), at - 10**9 + number, at - 10**9 + number + 50)
                )

    def figures(self) -> dict[str, Any]:
        calls = {number: kind for number, kind, _, _ in self.calls}
        devices = {row[2] for row in self.kernels}
        linked = [row for row in self.kernels if row[4] in calls]
        return {
            "kernels": len(self.kernels),
            "ns": sum(row[1] - row[0] for row in self.kernels),
            "busy": {d: union([row[:2] for row in self.kernels if row[2] == d]) for d in devices},
            "names": sorted({f"kernel_{row[5]}<float>" for row in self.kernels}),
            "streams": sorted({row[3] for row in self.kernels}),
            "linked": len(linked),
            "graph": sum(calls[row[4]] for row in linked),
        }


def made_nsys(path: Path, made: Made, fold: Callable[[str], str]) -> None:
    import sqlite3

    def table(name: str, *columns: str) -> str:
        return f"CREATE TABLE {name} ({', '.join(fold(column) for column in columns)});"

    with sqlite3.connect(path) as db:
        db.executescript(
            table("StringIds", "id", "value")
            + table("CUPTI_ACTIVITY_KIND_RUNTIME", "start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue")
            + table("CUPTI_ACTIVITY_KIND_KERNEL", "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName", "shortName", "mangledName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
            + table("TARGET_INFO_GPU", "id", "name", "busLocation") + table("ENUM_CUDA_MEMCPY_OPER", "id", "name", "label")
        )  # fmt: skip
        names = [(100 + i, f"kernel_{i}<float>") for i in range(9)] + [
            (200 + i, f"kernel_{i}") for i in range(9)
        ]
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [*names, (1, "cudaLaunchKernel_v7000"), (2, "cudaGraphLaunch_v10000")])  # fmt: skip
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, 1, ?, ?, 0)", [(s, e, n, 1 + k) for n, k, s, e in made.calls])  # fmt: skip
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, 1, ?, ?, 1, ?, ?, 0, 1, 1, 1, 32, 1, 1)",
                       [(s, e, d, t, n, 100 + i, 200 + i) for s, e, d, t, n, i in made.kernels])  # fmt: skip


def made_rocpd(path: Path, made: Made, fold: Callable[[str], str]) -> None:
    import sqlite3

    guid = "0000a1b2"
    with sqlite3.connect(path) as db:
        db.executescript(f"""
            CREATE TABLE rocpd_info_agent_{guid} (id, guid, type, absolute_index, name, product_name);
            INSERT INTO rocpd_info_agent_{guid} VALUES (1, 'g', 'CPU', 7, 'cpu', 'EPYC'), (2, 'g', 'GPU', 0, 'gfx942', 'Card'), (3, 'g', 'GPU', 1, 'gfx942', 'Card');
            CREATE TABLE rocpd_info_kernel_symbol_{guid} (id, display_name);
            CREATE TABLE rocpd_kernel_dispatch_{guid} (id INTEGER PRIMARY KEY, start, "end", agent, stream_id, queue_id, stack_id, kernel_id);
            CREATE TABLE rocpd_region_{guid} (stack_id, name, start, "end");
            CREATE VIEW kernels AS SELECT K.id, S.display_name AS {fold("name")}, K.stack_id AS {fold("stack_id")}, K.agent AS {fold("agent_abs_index")},
                K.queue_id AS {fold("queue_id")}, K.stream_id AS {fold("stream_id")}, K.start AS {fold("start")}, K."end" AS "{fold("end")}", K."end" - K.start AS duration
                FROM rocpd_kernel_dispatch_{guid} K JOIN rocpd_info_kernel_symbol_{guid} S ON S.id = K.kernel_id;
            CREATE VIEW regions AS SELECT * FROM rocpd_region_{guid};
        """)
        db.executemany(f"INSERT INTO rocpd_info_kernel_symbol_{guid} VALUES (?, ?)", [(i, f"kernel_{i}<float>") for i in range(9)])  # fmt: skip
        db.executemany(f'INSERT INTO rocpd_kernel_dispatch_{guid} (start, "end", agent, stream_id, queue_id, stack_id, kernel_id) VALUES (?, ?, ?, ?, ?, ?, ?)',
                       [(s, e, d, t, t + 10, n, i) for s, e, d, t, n, i in made.kernels])  # fmt: skip
        db.executemany(f"INSERT INTO rocpd_region_{guid} VALUES (?, ?, ?, ?)", [(n, ("hipLaunchKernel", "hipGraphLaunch")[k], s, e) for n, k, s, e in made.calls])  # fmt: skip


@pytest.mark.parametrize("fold", [str, str.upper], ids=["as documented", "upper-case columns"])
@pytest.mark.parametrize("make", [made_nsys, made_rocpd], ids=["nsys", "rocpd"])
@pytest.mark.parametrize("seed", [1, 2])
def test_databases_give_the_models_figures(
    make: Callable[[Path, Made, Callable[[str], str]], None], fold: Callable[[str], str], seed: int, tmp_path: Path
) -> None:  # fmt: skip
    made = Made(seed)
    make(tmp_path / "p.db", made, fold)
    found = ours(tmp_path / "p.db")
    assert {key: found[key] for key in made.figures()} == made.figures()
