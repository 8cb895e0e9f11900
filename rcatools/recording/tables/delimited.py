"""Delimited text: CSV, TSV, semicolons, and tables as people paste them into an issue (Markdown)."""

from __future__ import annotations

import csv
import io
import re

import pandas as pd
import pyarrow as pa
import pyarrow.csv

from rcatools.errors import InputError
from rcatools.recording.tables.model import Sheet
from rcatools.recording.tables.names import listed, role_of

_DELIMITERS = ",\t;|"
_MAX_HEADER = 1 << 20
_MAX_COLUMNS = 2000
_NULLS = ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "none", "<NA>"]
_TEXT_ROLES = ("arm", "block", "run", "sample", "metric", "workload", "machine", "day", "class", "unit")


def read_delimited(data: bytes, source: str, as_text: tuple[str, ...] = ()) -> Sheet:
    """Read delimited text with a header line.

    Args:
        data: the file.
        source: its name, for messages.
        as_text: columns to keep as text whatever they look like, beside those whose name is a role.

    Raises:
        InputError: the file is empty, has no header, no rows, ragged rows, or is not text.
    """
    data = _as_utf8(data, source)
    data = _without_comments(data)
    if data.lstrip()[:1] == b"|":
        data = _from_markdown(data)
    header_end = data.find(b"\n")
    header = data[: header_end if header_end >= 0 else len(data)].decode("utf-8", "replace").strip("\r\n")
    if not header.strip():
        raise InputError(f"{source} is empty; give a table with a header line and one row per measurement")
    if header_end < 0 or not data[header_end:].strip():
        raise InputError(f"{source} has a header but no rows; give one row per measurement")
    if len(header) > _MAX_HEADER:
        raise InputError(
            f"{source}: the first line has {len(header):,} characters; this is no table, give CSV, JSON or Parquet"
        )
    delimiter = max(_DELIMITERS, key=header.count) if any(c in header for c in _DELIMITERS) else ","
    names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
    _check_header(names, source)
    frame = _read(data, names, delimiter, source, as_text)
    if frame.empty:
        raise InputError(f"{source} has a header but no rows; give one row per measurement")
    return Sheet(frame, "table", source, decimal_comma=delimiter == ";" and _commas_for_points(frame))


def _read(
    data: bytes, names: list[str], delimiter: str, source: str, as_text: tuple[str, ...]
) -> pd.DataFrame:
    text = pa.dictionary(pa.int32(), pa.string())
    kept = {name: text for name in names if role_of(name) in _TEXT_ROLES or name in as_text}
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(data),
            read_options=pa.csv.ReadOptions(column_names=names, skip_rows=1, block_size=4 << 20),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter),
            convert_options=pa.csv.ConvertOptions(
                column_types=kept, null_values=_NULLS, strings_can_be_null=True, timestamp_parsers=[]
            ),
        )
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{source} cannot be read as a table ({_plain(str(error))}); give CSV with the same columns in every line"
        ) from None
    frame: pd.DataFrame = table.to_pandas(self_destruct=True, date_as_object=True)
    return frame


def _as_utf8(data: bytes, source: str) -> bytes:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            return data.decode("utf-16").encode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{source} is neither UTF-8 nor UTF-16 text; save it as UTF-8") from None
    if data[:3] == b"\xef\xbb\xbf":
        data = data[3:]
    if b"\x00" in data[:4096]:
        raise InputError(f"{source} is a binary file, not a table; give CSV, JSON or Parquet")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{source} is not UTF-8 text (line {line:,}); save it as UTF-8") from None
    return data


def _without_comments(data: bytes) -> bytes:
    """The data from its first line that is neither blank nor a comment."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        line = data[start : end if end >= 0 else len(data)].strip()
        if line and not line.startswith(b"#"):
            break
        if end < 0:
            return b""
        start = end + 1
    return data[start:]


def _from_markdown(data: bytes) -> bytes:
    """A pipe table as tab-separated text; code ticks and bold marks around cells are removed."""
    rows = io.StringIO()
    writer = csv.writer(rows, delimiter="\t", lineterminator="\n")
    for line in data.decode("utf-8", "replace").splitlines():
        cells = line.strip()
        if not cells.startswith("|"):
            if cells:
                break
            continue
        parts = [
            re.sub(r"^[*_`]+|[*_`]+$", "", part.strip()) for part in re.split(r"(?<!\\)\|", cells.strip("|"))
        ]
        if not all(re.fullmatch(r":?-{2,}:?", part) for part in parts):
            writer.writerow([part.replace("\\|", "|") for part in parts])
    return rows.getvalue().encode()


def _check_header(names: list[str], source: str) -> None:
    if len(names) > _MAX_COLUMNS:
        raise InputError(f"{source} has {len(names):,} columns, more than {_MAX_COLUMNS:,}")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{source} names the column {name!r} twice; give each column its own name")
        seen.add(name)
    if all(_is_number(name) for name in names):
        raise InputError(
            f"{source}: the first line holds numbers; it must name the columns ({listed(names, 4)})"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _commas_for_points(frame: pd.DataFrame) -> bool:
    """Whether text cells of a semicolon file are numbers with a decimal comma."""
    for name in frame.columns:
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column):
            texts = [str(v) for v in column.dropna().unique()[:50]]
            if (
                texts
                and all(re.fullmatch(r"\s*[+-]?\d+(?:,\d+)?\s*", t) for t in texts)
                and "," in "".join(texts)
            ):
                return True
    return False


def _plain(message: str) -> str:
    """The first line of a library's message, without its internals."""
    text = message.split("\n", maxsplit=1)[0].removeprefix("CSV parse error: ").removeprefix("In CSV ")
    return text if len(text) <= 200 else text[:197] + "..."
