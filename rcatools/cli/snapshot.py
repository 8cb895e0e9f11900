"""Read torch memory snapshots: who holds which bytes, and did the allocator follow its rules."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from rcatools.cli.app import print_json
from rcatools.errors import InputError

if TYPE_CHECKING:
    from rcatools.memory.snapshot import Snapshot

SUMMARY = (
    "Read torch memory snapshots (.pickle, .json, plain or .gz): ledger, owners, replay, diff, oom, whatif."
)
EXAMPLE = "rcatools snapshot ledger snapshot.pickle.gz --json"

_ACTIONS = {
    "ledger": "where every reserved byte is, per device, stream, pool and size class",
    "owners": "who holds each live block, and what it strands",
    "replay": "check every recorded event against the allocator's rules",
    "diff": "what is new, gone and grown between two snapshots",
    "oom": "what each out-of-memory line of a log says about its cause",
    "whatif": "simulate a sequence of allocations from a YAML file, without a GPU",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = "\n".join(f"  {name:<8} {text}" for name, text in _ACTIONS.items())
    parser.description = f"{SUMMARY}\n\nactions:\n{actions}"
    parser.add_argument("action", choices=list(_ACTIONS), metavar="ACTION", help=", ".join(_ACTIONS))
    parser.add_argument("files", nargs="+", metavar="FILE", help="one file; for diff two, A then B")
    parser.add_argument("--json", action="store_true", help="write one JSON document to stdout")
    parser.add_argument("--device", type=int, help="only this device")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="variable in force where the snapshot was made, such as CUBLASLT_WORKSPACE_SIZE=77824 (owners, diff)",
    )
    parser.add_argument(
        "--request", metavar="SIZE", help="ledger: list unused blocks that would hold SIZE, such as '2 GiB'"
    )
    parser.add_argument(
        "--resized", metavar="FILE", help="owners: the same program with another workspace size"
    )
    parser.add_argument(
        "--cleared", metavar="FILE", help="owners: the same process after clearing the workspaces"
    )
    parser.add_argument(
        "--change",
        metavar="NAME=VALUE->VALUE",
        help="owners: what differs in --resized, such as 'CUBLASLT_WORKSPACE_SIZE=77824->40960'",
    )
    parser.add_argument("--platform", choices=["cuda", "rocm"], help="owners: where the snapshot was made")
    parser.add_argument("--torch", metavar="VERSION", help="replay with the rules of this torch version")
    parser.add_argument(
        "--conf",
        metavar="SETTINGS",
        help="replay with these allocator settings, as in PYTORCH_CUDA_ALLOC_CONF",
    )
    parser.add_argument("--top", type=int, default=20, help="rows to print without --json (default 20)")
    parser.add_argument(
        "--max-gib", type=float, default=4.0, help="refuse files larger than this once unpacked (default 4)"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the action says; 0, or an InputError for wrong input."""
    wanted = 2 if args.action == "diff" else 1
    if len(args.files) != wanted:
        raise InputError(
            f"snapshot {args.action} takes {wanted} file{'s' if wanted > 1 else ''}, got {len(args.files)} (see rcatools snapshot --help)"
        )
    if args.action == "whatif":
        return _whatif(args)
    if args.action == "oom":
        return _oom(args)
    from rcatools.memory.read import load_snapshot

    snapshots = [load_snapshot(path, max_bytes=int(args.max_gib * (1 << 30))) for path in args.files]
    for snapshot in snapshots:
        if args.device is not None and args.device not in snapshot.devices:
            raise InputError(
                f"{snapshot.source} holds nothing for device {args.device}; it has {snapshot.devices}"
            )
    environment = _environment(args.env)
    if args.action == "ledger":
        return _show(args, *_ledger(snapshots[0], args))
    if args.action == "owners":
        return _show(args, *_owners(snapshots[0], args, environment))
    if args.action == "replay":
        return _show(args, *_replay(snapshots[0], args))
    return _show(args, *_diff(snapshots[0], snapshots[1], environment))


def _environment(pairs: list[str]) -> dict[str, str]:
    out = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise InputError(f"--env needs NAME=VALUE, got {pair!r}")
        out[name] = value
    return out


def _show(args: argparse.Namespace, document: dict[str, Any], tables: list[tuple[str, Any]]) -> int:
    if args.json:
        print_json(document)
        return 0
    for title, table in tables:
        print(f"{title}\n")
        if isinstance(table, str):
            print(table)
        elif table.empty:
            print("none")
        else:
            print(table.head(args.top).to_string(index=False))
            if len(table) > args.top:
                print(f"... {len(table) - args.top} more rows (--top)")
        print()
    for warning in document.get("warnings", []):
        print(f"note: {warning['text']}", file=sys.stderr)
    return 0


def _ledger(snapshot: Snapshot, args: argparse.Namespace) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    from rcatools.memory.document import fitting_records, ledger_document, ledger_table

    document, tables = ledger_document(snapshot, args.device), ledger_table(snapshot, args.device)
    if args.request is not None:
        from rcatools.memory.ledger import fitting_blocks
        from rcatools.memory.whatif import parse_size

        fitting = fitting_blocks(snapshot, parse_size(args.request))
        if args.device is not None:
            fitting = fitting[fitting["device"] == args.device]
        document["fitting"] = fitting_records(fitting)
        tables.append((f"unused blocks that would hold {args.request}", fitting))
    return document, tables


def _owners(
    snapshot: Snapshot, args: argparse.Namespace, environment: dict[str, str]
) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    from rcatools.memory.document import owners_document, owners_table
    from rcatools.memory.intervention import apply_intervention, intervene, parse_change
    from rcatools.memory.owners import owners
    from rcatools.memory.read import load_snapshot

    if (args.resized is None) != (args.change is None) or (args.cleared is not None and args.resized is None):
        raise InputError(
            "an intervention needs --resized FILE and --change NAME=VALUE->VALUE (and may have --cleared FILE)"
        )
    outcome, change = None, None
    if args.change is not None:
        change = parse_change(args.change)
        resized = load_snapshot(args.resized)
        cleared = load_snapshot(args.cleared) if args.cleared else None
        outcome = intervene(snapshot, resized, cleared, change)
        environment = {change.variable: change.before, **environment}
    everyone = owners(snapshot, environment, args.platform)
    blocks = [b for b in everyone if args.device is None or b.device == args.device]
    if outcome is not None:
        blocks = apply_intervention(blocks, outcome)
    return owners_document(snapshot, blocks, outcome), owners_table(snapshot, blocks)


def _replay(snapshot: Snapshot, args: argparse.Namespace) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    from rcatools.memory.document import replay_document, replay_text
    from rcatools.memory.replay import replay, replay_all
    from rcatools.memory.rules import rules_from_settings, rules_from_snapshot

    rules = None
    if args.conf is not None:
        rules = rules_from_settings(args.conf, args.torch or "2.11")
    elif args.torch is not None:
        rules = rules_from_snapshot(snapshot.settings, args.torch)
    if args.device is None:
        results = replay_all(snapshot, rules=rules)
    else:
        results = [replay(snapshot, args.device, rules=rules)]
    return replay_document(snapshot, results), [(f"device {r.device}", replay_text(r)) for r in results]


def _diff(
    a: Snapshot, b: Snapshot, environment: dict[str, str]
) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    from rcatools.memory.diff import diff
    from rcatools.memory.document import diff_document

    result = diff(a, b, environment)
    ledger = result.ledger[[c for c in result.ledger.columns if not str(c).endswith(("_a", "_b"))]]
    return diff_document(result), [
        ("blocks that changed, by size (B - A)", result.blocks),
        ("bytes that changed, by line of code", result.sites),
        ("ledger, B - A", ledger),
    ]


def _whatif(args: argparse.Namespace) -> int:
    from rcatools.memory.document import ledger_document, ledger_table
    from rcatools.memory.scenario_file import load_scenario

    scenario = load_scenario(args.files[0])
    snapshot = scenario.snapshot(os.path.basename(args.files[0]))
    document = {**ledger_document(snapshot, None), "scenario": scenario.summary()}
    return _show(args, document, [("segments", scenario.segments()), *ledger_table(snapshot, None)])


def _oom(args: argparse.Namespace) -> int:
    from rcatools.memory.document import oom_document, oom_table
    from rcatools.memory.oom import is_oom_line, read_oom_line

    limit = int(args.max_gib * (1 << 30))
    reports = []
    with open(args.files[0], encoding="utf-8", errors="replace") as file:
        read = 0
        for number, line in enumerate(file, 1):
            read += len(line)
            if read > limit:
                raise InputError(
                    f"{args.files[0]} is larger than {args.max_gib} GiB; cut it, or raise --max-gib"
                )
            if is_oom_line(line):
                reports.append((number, read_oom_line(line)))
    if not reports:
        raise InputError(
            f"{args.files[0]} holds no out-of-memory line of torch ('... out of memory. Tried to allocate ...')"
        )
    return _show(args, oom_document(reports), oom_table(reports))
