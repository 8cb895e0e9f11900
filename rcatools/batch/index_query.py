"""Asks the store of an index in SQL; imports DuckDB and nothing else that is large."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rcatools.errors import InputError, UnavailableError

STORE = ".rcatools-index"
TABLES = ("recordings", "effects", "runs", "reports", "jobs", "problems")


def generation(store: Path) -> int:
    """Number of the tables that count, 0 where nothing was indexed."""
    try:
        return int(json.loads((store / "current.json").read_text(encoding="utf-8"))["generation"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def query(store: Path, sql: str, limit: int = 100_000) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Ask the store; returns column names and rows.

    The statement sees the six tables and nothing else: no file, no network, no extension.

    Args:
        store: folder of the store.
        sql: one statement in DuckDB's SQL.
        limit: most rows that are returned.

    Raises:
        UnavailableError: DuckDB is not installed.
        InputError: nothing was indexed, or the statement is wrong.
    """
    try:
        import duckdb
    except ImportError:
        raise UnavailableError(
            "questions in SQL need duckdb: 'pip install rcatools[fleet]'; the overview works without"
        ) from None
    number = generation(store)
    if not number:
        raise InputError(f"no index at {store}: run 'rcatools index FOLDER' first")
    if not sql.strip():
        raise InputError(f"the query is empty: ask one of the tables {', '.join(TABLES)}")
    connection = duckdb.connect(":memory:")
    try:
        for name in TABLES:
            file = store / f"gen-{number}" / f"{name}.parquet"
            if not file.is_file():
                raise InputError(f"the index at {store} lacks {file.name}: run 'rcatools index FOLDER' again")
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet(?)", [str(file)])
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        cursor = connection.execute(sql)
        if cursor is None or not cursor.description:
            raise InputError(f"the query asks for nothing: SELECT from the tables {', '.join(TABLES)}")
        return [column[0] for column in cursor.description], cursor.fetchmany(limit)
    except duckdb.Error as error:
        why = str(error).splitlines()[0]
        raise InputError(
            f"the query cannot be answered ({why}): correct it; the tables are {', '.join(TABLES)}"
        ) from None
    finally:
        connection.close()
