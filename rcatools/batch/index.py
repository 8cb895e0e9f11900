"""Gathers all recordings, reports and jobs below a folder into one Parquet store.

    DIR/.rcatools-index/current.json      the generation that counts, written last
    DIR/.rcatools-index/gen-N/*.parquet   recordings, effects, runs, reports, jobs, problems

A second call reads only what is new or changed. What cannot be read is a row of ``problems``, never left out
silently.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rcatools.batch.index_query import STORE, generation
from rcatools.batch.index_read import Found, Rows, read_all
from rcatools.errors import InputError
from rcatools.files import write_json
from rcatools.recording.writer import exclusive

CHUNK = 250
PARALLEL_FROM = 1000
__all__ = ["SCHEMAS", "STORE", "Updated", "open_store", "update", "walk"]

_TEXT, _REAL, _WHOLE, _FLAG = pa.string(), pa.float64(), pa.int64(), pa.bool_()


def _schema(**kinds: str) -> pa.Schema:
    types = {"text": _TEXT, "real": _REAL, "whole": _WHOLE, "flag": _FLAG}
    return pa.schema([(name, types[kind]) for kind, names in kinds.items() for name in names.split()])


SCHEMAS: dict[str, pa.Schema] = {
    "recordings": _schema(
        text="recording stamp investigation state created_utc day backend device arch machine host driver torch "
        "commit workload baseline metric job name labels",
        real="margin baseline_us noise_floor noise_sd",
        whole="planned ok failed blocks samples",
        flag="dirty current",
    ),
    "effects": _schema(
        text="recording arm role metric verdict reasons",
        real="level_us ratio ci_low ci_high p_value mde",
        whole="n",
    ),
    "runs": _schema(text="recording arm", real="value_us", whole="block"),
    "reports": _schema(
        text="report stamp investigation answer verdict arm supported name labels",
        real="ratio ci_low ci_high",
    ),
    "jobs": _schema(
        text="job stamp name kind state verdict host backend mask error labels",
        real="seconds",
        whole="row attempts",
    ),
    "problems": _schema(text="path kind stamp reason"),
}
_KEYS = {"recordings": "recording", "reports": "report", "jobs": "job", "problems": "path"}
_KINDS = {"recordings": "recording", "reports": "report", "jobs": "job"}


@dataclass(frozen=True)
class Updated:
    """What an update found.

    Attributes:
        counts: rows of each table.
        read: things read anew.
        kept: things unchanged since the last call.
        gone: things that are not there any more.
        seconds: time it took.
    """

    counts: dict[str, int]
    read: int
    kept: int
    gone: int
    seconds: float


def update(
    root: Path,
    store: Path | None = None,
    *,
    workers: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Updated:
    """Bring the store of a folder up to date.

    Args:
        root: folder that holds recordings, reports or sweeps.
        store: where the tables go; None: STORE inside the folder.
        workers: processes that read; None: one per core.
        say: told what goes on.

    Raises:
        InputError: no such folder, or another update is running.
    """
    begun = time.monotonic()
    if not root.is_dir():
        raise InputError(f"no folder at {root}: give the folder that holds the recordings or sweeps")
    place = store or root / STORE
    with exclusive(place):
        found = {(item.kind, item.path): item for item in walk(root)}
        old = {name: _old_table(place, name) for name in SCHEMAS}
        known = _known(old)
        new = [item for key, item in found.items() if known.get(key) != item.stamp]
        gone = [key for key in known if key not in found]
        say(f"{len(found)} found, {len(new)} new or changed")
        stale = {path for _, path in gone} | {item.path for item in new}
        tables = {name: _without(table, name, stale) for name, table in old.items()}
        for rows in _read(root, new, workers, say):
            for name, schema in SCHEMAS.items():
                made = getattr(rows, name)
                if made:
                    tables[name].append(pa.Table.from_pylist(made, schema=schema))
        counts = _write(place, tables)
    return Updated(counts, len(new), len(found) - len(new), len(gone), round(time.monotonic() - begun, 2))


def walk(root: Path) -> Iterator[Found]:
    """Everything below a folder, folders that cannot be listed too; links and hidden folders are not followed."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        names: dict[str, os.DirEntry[str]] = {}
        try:
            with os.scandir(folder) as entries:
                names = {entry.name: entry for entry in entries}
        except OSError:
            yield Found("folder", str(folder.relative_to(root)), "")
            continue
        where = str(folder.relative_to(root))
        if "manifest.json" in names:
            yield Found("recording", where, _stamp(names, ("manifest.json", "samples.parquet"), folder))
            continue
        if "job.json" in names:
            yield Found("job", where, _stamp(names, ("job.json", "status.json"), None))
        if "verdict.json" in names:
            yield Found("report", where, _stamp(names, ("verdict.json",), folder))
        waiting += [
            Path(entry.path)
            for name, entry in sorted(names.items(), reverse=True)
            if not name.startswith(".") and name != "previous" and entry.is_dir(follow_symlinks=False)
        ]


def _stamp(names: dict[str, os.DirEntry[str]], wanted: Sequence[str], inside: Path | None) -> str:
    parts = []
    for name in wanted:
        if name in names:
            facts = names[name].stat()
            parts.append(f"{facts.st_mtime_ns:x}.{facts.st_size:x}")
    if inside is not None and inside.parent.parent.name == "attempts":
        for name in ("job.json", "status.json"):
            file = inside.parents[2] / name
            parts.append(f"{file.stat().st_mtime_ns:x}" if file.is_file() else "-")
    return "-".join(parts)


def _read(
    root: Path, new: Sequence[Found], workers: int | None, say: Callable[[str], None]
) -> Iterator[Rows]:
    chunks = [list(new[i : i + CHUNK]) for i in range(0, len(new), CHUNK)]
    count = min(workers or len(os.sched_getaffinity(0)), len(chunks))
    if len(new) < PARALLEL_FROM or count < 2:
        for chunk in chunks:
            yield read_all(str(root), chunk)
        return
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        for done, rows in enumerate(pool.map(read_all, [str(root)] * len(chunks), chunks), 1):
            say(f"{min(done * CHUNK, len(new))} of {len(new)} read")
            yield rows


def _known(old: dict[str, pa.Table]) -> dict[tuple[str, str], str]:
    known = {}
    for name, kind in _KINDS.items():
        table = old[name]
        paths, stamps = table[_KEYS[name]].to_pylist(), table["stamp"].to_pylist()
        known.update({(kind, path): stamp for path, stamp in zip(paths, stamps, strict=True)})
    for entry in old["problems"].to_pylist():
        known[entry["kind"], entry["path"]] = entry["stamp"]
    return known


def _without(table: pa.Table, name: str, stale: set[str]) -> list[pa.Table]:
    if not stale or not table.num_rows:
        return [table]
    key = _KEYS.get(name, "recording")
    kept = pc.invert(pc.is_in(table[key], value_set=pa.array(sorted(stale), _TEXT)))
    return [table.filter(kept)]


def _write(store: Path, tables: dict[str, list[pa.Table]]) -> dict[str, int]:
    number = generation(store) + 1
    folder = store / f"gen-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    counts = {}
    for name, parts in tables.items():
        whole = pa.concat_tables([part.cast(SCHEMAS[name]) for part in parts])
        key = _KEYS.get(name, "recording")
        whole = whole.sort_by([(key, "ascending")]) if name not in {"runs", "effects"} else whole
        pq.write_table(whole, folder / f"{name}.parquet", compression="zstd")
        counts[name] = whole.num_rows
    write_json(store / "current.json", {"generation": number, "version": 1, "counts": counts})
    for other in store.glob("gen-*"):
        if other.name != folder.name:
            shutil.rmtree(other, ignore_errors=True)
    return counts


def _old_table(store: Path, name: str) -> pa.Table:
    """A table of the store; empty where there is none, or an earlier library wrote another form."""
    file = store / f"gen-{generation(store)}" / f"{name}.parquet"
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException):
        return SCHEMAS[name].empty_table()
    return table if table.schema.equals(SCHEMAS[name]) else SCHEMAS[name].empty_table()


def open_store(store: Path) -> dict[str, pa.Table]:
    """All tables of a store.

    Raises:
        InputError: nothing was indexed there.
    """
    if not generation(store):
        raise InputError(f"no index at {store}: run 'rcatools index FOLDER' first")
    return {name: _old_table(store, name) for name in SCHEMAS}
