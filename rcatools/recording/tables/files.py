"""Opens one file of any accepted form, within size limits and without ever running what it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from rcatools.errors import InputError, UnsafeInputError
from rcatools.files import readable_file
from rcatools.recording.tables import harness
from rcatools.recording.tables.delimited import read_delimited
from rcatools.recording.tables.model import Sheet
from rcatools.recording.tables.names import listed

MAX_BYTES = 2 << 30
MAX_JSON_BYTES = 512 << 20
ACCEPTED = (
    "CSV, TSV or a Markdown table; JSON rows, JSON Lines, or JSON of pytest-benchmark, hyperfine, nvbench, "
    "google-benchmark or vllm bench; Go-benchmark text; Parquet"
)


def read_sheet(path: Path, as_text: tuple[str, ...] = ()) -> Sheet:
    """Read a file into a sheet.

    Args:
        path: the file.
        as_text: columns to keep as text (those that name an arm or a run).

    Raises:
        InputError: the file is of no accepted form, or damaged.
        UnsafeInputError: the file is larger than the limits (2 GiB; JSON 512 MiB).
        OSError: the file cannot be read.
    """
    path = readable_file(path, "a table", piped=True)
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise UnsafeInputError(
            f"{path.name} has {size:,} bytes, more than {MAX_BYTES:,}; give the columns you need"
        )
    if path.suffix.lower() == ".parquet":
        return Sheet(_read_parquet(path), "table", path.name)
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)  # a pipe tells no size
    if len(data) > MAX_BYTES:
        raise UnsafeInputError(f"{path.name} holds more than {MAX_BYTES:,} bytes; give the columns you need")
    head = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head[:1] in (b"{", b"[") or path.suffix.lower() in (".json", ".jsonl", ".ndjson"):
        return _read_json(data, path.name)
    if head.startswith(b"Benchmark") or b"\nBenchmark" in data[:65536]:
        sheet = harness.read_go_text(data.decode("utf-8", "replace"), path.name)
        if sheet is not None:
            return sheet
    return read_delimited(data, path.name, as_text)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        file = pa.parquet.ParquetFile(path)
        in_memory = sum(
            file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)
        )
        if in_memory > MAX_BYTES:
            raise UnsafeInputError(
                f"{path.name} unpacks to {in_memory:,} bytes, more than {MAX_BYTES:,}; give the columns you need"
            )
        frame: pd.DataFrame = file.read().to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path.name} is no readable Parquet file ({str(error).splitlines()[0][:150]}); write it again or give CSV"
        ) from None
    if frame.empty:
        raise InputError(f"{path.name} has no rows; give one row per measurement")
    return frame


def _read_json(data: bytes, source: str) -> Sheet:
    if len(data) > MAX_JSON_BYTES:
        raise UnsafeInputError(
            f"{source} has {len(data):,} bytes of JSON, more than {MAX_JSON_BYTES:,}; give CSV"
        )
    document = _parse(data, source)
    sheet = harness.read_document(document, source)
    if sheet is not None:
        return sheet
    frame = _rows_of(document, source)
    if frame.empty:
        raise InputError(f"{source} holds no rows; give one row per measurement")
    frame.columns = [str(c) for c in frame.columns]
    return Sheet(frame, "table", source)


def _parse(data: bytes, source: str) -> Any:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{source} is not UTF-8 text; save it as UTF-8") from None
    try:
        return json.loads(text)
    except RecursionError:
        raise UnsafeInputError(f"{source} nests deeper than a table ever does; give flat rows") from None
    except ValueError as whole:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2:
            raise InputError(f"{source} is no JSON ({whole}); write it again or give CSV") from None
        try:
            return [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            raise InputError(
                f"{source} is neither JSON nor JSON Lines ({whole}); write it again or give CSV"
            ) from None


def _rows_of(document: Any, source: str) -> pd.DataFrame:
    """Rows of plain JSON: a list of objects, an object of equal lists, or arms with their values."""
    if isinstance(document, dict):
        for key in ("rows", "data", "results", "samples", "measurements"):
            if isinstance(document.get(key), list) and document[key] and isinstance(document[key][0], dict):
                return _rows_of(document[key], source)
        lists = {k: v for k, v in document.items() if isinstance(v, list) and v}
        if lists and all(_flat(v) for v in lists.values()):
            if "arm" in {k.lower() for k in lists} and len({len(v) for v in lists.values()}) == 1:
                return pd.DataFrame(lists)
            if len(lists) == len(document):
                rows = [(arm, i + 1, v) for arm, values in lists.items() for i, v in enumerate(values)]
                return pd.DataFrame(rows, columns=["arm", "row", "value"]).drop(columns="row")
        raise InputError(
            f"{source}: a JSON object with keys {listed(document, 6)} is no table; accepted: {ACCEPTED}"
        )
    if isinstance(document, list) and document and all(isinstance(row, dict) for row in document):
        return _unfolded(pd.DataFrame(document), source)
    raise InputError(f"{source}: JSON must be a list of rows or a known result file; accepted: {ACCEPTED}")


def _unfolded(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    """Rows whose value is a list of samples become one row per sample; other nested columns are left out."""
    nested = [c for c in frame.columns if frame[c].map(lambda v: isinstance(v, list | dict)).any()]
    flat_lists = [c for c in nested if frame[c].map(lambda v: isinstance(v, list) and _flat(v)).all()]
    if len(flat_lists) == 1:
        column = flat_lists[0]
        frame = frame.drop(columns=[c for c in nested if c != column])
        frame = frame.explode(column, ignore_index=True)
        if "sample" not in {str(c).lower() for c in frame.columns}:
            others = [c for c in frame.columns if c != column]
            frame["sample"] = (
                frame.groupby(others, sort=False, dropna=False).cumcount() if others else range(len(frame))
            )
        return frame.infer_objects()
    if nested and len(nested) == frame.shape[1]:
        raise InputError(f"{source}: every column holds nested JSON; give flat rows")
    return frame.drop(columns=nested)


def _flat(values: list[Any]) -> bool:
    return all(not isinstance(v, list | dict) for v in values)
