"""Every hazard on the published form and on the safe ones, as one table.

    python -m rcatools.workload.vime.demonstrate --out hazards.csv

Takes about 15 seconds on two cores: each hang lasts as long as its watchdog.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rcatools.device.backend import describe
from rcatools.device.fingerprint import environment
from rcatools.workload.vime.contract import VocabLayout
from rcatools.workload.vime.group import GroupOutcome, run_group

PUBLISHED = "packed_cached"
SAFE = ("safe_agreed", "safe_carried", "safe_carried_flat")
WATCHDOG_S = 10.0
HANG_WATCHDOG_S = 2.0
ROW_COUNTS = 40


@dataclass(frozen=True)
class Demonstration:
    """One hazard met by one form.

    ``harmed`` is 1 where the hazard did its harm, 0 where it did not; ``seen`` says in words what came out.
    """

    hazard: str
    form: str
    safe: int
    device: str
    harmed: int
    seen: str


def demonstrate() -> Iterator[Demonstration]:
    """All hazards that a CPU can show, one after the other."""
    two, one = VocabLayout.even(4096, 2), VocabLayout.even(4096, 1)
    for form in (PUBLISHED, *SAFE):
        yield _threads(form, two)
    for form in (PUBLISHED, *SAFE):
        yield _forgets(form, two, "gather")
        yield _forgets(form, two, "barrier")
    yield _groups("packed_once", one)
    yield _groups("safe_agreed", one)
    yield from _row_counts(one)


def _run(hazard: str, world: int, watchdog_s: float = WATCHDOG_S, **arguments: Any) -> GroupOutcome:
    return run_group(f"hazards.{hazard}", world, watchdog_s=watchdog_s, arguments=arguments)


def _row(hazard: str, form: str, harmed: bool, seen: str, safe: bool | None = None) -> Demonstration:
    device = describe("cpu", None).name
    return Demonstration(hazard, form, int(form in SAFE if safe is None else safe), device, int(harmed), seen)


def _threads(form: str, layout: VocabLayout) -> Demonstration:
    outcome = _run("threads_share_buffer", 2, layout=layout, form=form, rows=8, seed=1)
    results = list(outcome.require().values())
    wrong = sum(not right for result in results for right in result.values())
    total = sum(len(result) for result in results)
    return _row("shared_buffer", form, wrong > 0, f"{wrong} of {total} results wrong")


def _forgets(form: str, layout: VocabLayout, then: str) -> Demonstration:
    watchdog = HANG_WATCHDOG_S if then == "barrier" else WATCHDOG_S
    outcome = _run("one_rank_forgets", 2, watchdog, layout=layout, form=form, rows=8, seed=1, then=then)
    wrong = sum(not result["right"] for result in outcome.results.values())
    parts = {
        "hang": f"every rank waits, ended after {outcome.seconds:.1f} s",
        "error": f"{len(outcome.errors)} ranks failed without naming the contract",
        "done": "both ranks right",
    }
    seen = parts[outcome.state] + (f", {wrong} returned a wrong result" if wrong else "")
    hazard = "rank_skips_then_gather" if then == "gather" else "rank_skips_then_barrier"
    return _row(hazard, form, outcome.state != "done" or wrong > 0, seen)


def _groups(form: str, layout: VocabLayout) -> Demonstration:
    outcome = _run("groups_come_and_go", 1, layout=layout, form=form, rows=8, seed=1, rounds=100)
    (report,) = outcome.require().values()
    seen = (
        f"{report['reused_ids']} of {report['rounds']} new groups had an old id, "
        f"{report['unchecked']} were taken for verified"
    )
    return _row("reused_group_id", form, report["unchecked"] > 0, seen)


def _row_counts(layout: VocabLayout) -> Iterator[Demonstration]:
    rows = list(range(1, ROW_COUNTS + 1))
    outcome = _run("visit_row_counts", 1, 30.0, layout=layout, row_counts=rows, passes=3)
    (report,) = outcome.require().values()
    for name, found in report.items():
        safe = name in {"owned_buffers", "agreed_cache"}
        seen = f"{100 * found['hit_rate']:.0f} % hits over {ROW_COUNTS} row counts in turn"
        yield _row("row_count_thrash", name, found["hit_rate"] < 1, seen, safe)


def surroundings() -> dict[str, str]:
    """When and with what the table is made: UTC time, torch, Python, system, SHA-256 of the package source, commit.

    The commit is empty where git tells none or where the tree has uncommitted changes.
    """
    made = environment()
    code = made["code"]
    commit = code["commit"] if code["commit"] and not code.get("dirty") else ""
    return {
        "made_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "torch": str(made["packages"].get("torch", "")),
        "python": str(made["python"]),
        "os": str(made["os"]),
        "source_sha256": str(code["source_sha256"]),
        "commit": str(commit),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the table as CSV."""
    parser = argparse.ArgumentParser(prog="python -m rcatools.workload.vime.demonstrate", description=__doc__)
    parser.add_argument("--out", type=Path, help="file to write; standard output where left out")
    args = parser.parse_args(argv)
    where = surroundings()
    rows = [asdict(item) | where for item in demonstrate()]
    text = io.StringIO()
    columns = [*(item.name for item in fields(Demonstration)), *where]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if args.out is None:
        sys.stdout.write(text.getvalue())
    else:
        args.out.write_text(text.getvalue(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
