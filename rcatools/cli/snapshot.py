"""Read torch memory snapshots: who holds which bytes, and did the allocator follow its rules."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from rcatools.cli.app import new_action, print_json
from rcatools.cli.values import number, whole
from rcatools.errors import InputError, UnknownNameError
from rcatools.files import readable_file

if TYPE_CHECKING:
    from rcatools.memory.snapshot import Snapshot

SUMMARY = (
    "Read torch memory snapshots (.pickle, .json, plain or .gz): ledger, owners, replay, diff, oom, whatif."
)
EXAMPLE = "rcatools snapshot ledger snapshot.pickle.gz --json"
LONGEST_LINE = 1 << 20

_ACTIONS = {
    "ledger": "where every reserved byte is, per device, stream, pool and size class",
    "owners": "who holds each live block, and what it strands",
    "replay": "check every recorded event against the allocator's rules",
    "diff": "what is new, gone and grown between two snapshots",
    "oom": "what each out-of-memory line of a log says about its cause",
    "whatif": "simulate a sequence of allocations from a YAML file, without a GPU",
}
_EXAMPLES = {
    "ledger": EXAMPLE,
    "owners": "rcatools snapshot owners snapshot.pickle.gz --env CUBLASLT_WORKSPACE_SIZE=77824",
    "replay": "rcatools snapshot replay snapshot.pickle.gz --torch 2.11",
    "diff": "rcatools snapshot diff before.pickle.gz after.pickle.gz",
    "oom": "rcatools snapshot oom train.log",
    "whatif": "rcatools snapshot whatif steps.yaml",
}
_FILES = {
    "diff": (("before", "A"), ("after", "B")),
    "oom": (("file", "LOG"),),
    "whatif": (("file", "STEPS.yaml"),),
}
_TORCH = re.compile(r"\d+\.\d+(?:\.\d+)?(?:[.+a-z0-9]*)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions, each with the options it reads."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in _ACTIONS.items():
        action = new_action(actions, name, text, _EXAMPLES[name])
        for file, shown in _FILES.get(name, (("file", "FILE"),)):
            action.add_argument(file, metavar=shown)
        action.add_argument("--json", action="store_true", help="write one JSON document to stdout")
        action.add_argument(
            "--top", type=whole(0), default=20, help="rows to print without --json (default 20)"
        )
        if name != "whatif":
            action.add_argument(
                "--max-gib",
                type=number(0, 1024),
                default=4.0,
                help="refuse files larger than this once unpacked (default 4)",
            )
        if name in ("ledger", "owners", "replay"):
            action.add_argument("--device", type=int, help="only this device")
        if name in ("owners", "diff"):
            action.add_argument(
                "--env",
                action="append",
                default=[],
                metavar="NAME=VALUE",
                help="variable in force where the snapshot was made, such as CUBLASLT_WORKSPACE_SIZE=77824",
            )
        if name == "ledger":
            action.add_argument(
                "--request", metavar="SIZE", help="list unused blocks that would hold SIZE, such as '2 GiB'"
            )
        if name == "owners":
            action.add_argument(
                "--resized", metavar="FILE", help="the same program with another workspace size"
            )
            action.add_argument(
                "--cleared", metavar="FILE", help="the same process after clearing the workspaces"
            )
            action.add_argument(
                "--change",
                metavar="NAME=VALUE->VALUE",
                help="what differs in --resized, such as 'CUBLASLT_WORKSPACE_SIZE=77824->40960'",
            )
            action.add_argument("--platform", choices=["cuda", "rocm"], help="where the snapshot was made")
        if name == "replay":
            action.add_argument("--torch", metavar="VERSION", help="with the rules of this torch version")
            action.add_argument(
                "--conf", metavar="SETTINGS", help="with these settings, as in PYTORCH_CUDA_ALLOC_CONF"
            )


def run(args: argparse.Namespace) -> int:
    """Do what the action says; 0, or an InputError for wrong input."""
    if args.action == "whatif":
        return _whatif(args)
    if args.action == "oom":
        return _oom(args)
    if args.action == "diff":
        environment = _environment(args.env)
        before, after = _load(args.before, args), _load(args.after, args)
        return _show(args, *_diff(before, after, environment))
    environment = _environment(args.env) if args.action == "owners" else {}
    if args.action == "replay":
        _check_rules(args)
    snapshot = _load(args.file, args)
    if args.device is not None and args.device not in snapshot.devices:
        raise InputError(
            f"{snapshot.source} holds nothing for device {args.device}; it has {snapshot.devices}, give one of them"
        )
    if args.action == "ledger":
        return _show(args, *_ledger(snapshot, args))
    if args.action == "owners":
        return _show(args, *_owners(snapshot, args, environment))
    return _show(args, *_replay(snapshot, args))


def _load(path: str, args: argparse.Namespace) -> Snapshot:
    from rcatools.memory.read import load_snapshot

    return load_snapshot(path, max_bytes=int(args.max_gib * (1 << 30)))


def _check_rules(args: argparse.Namespace) -> None:
    """Refuse a version or a setting that would be read as another one in silence."""
    from rcatools.memory.rules import DECIDING, parse_settings

    if args.torch is not None and not _TORCH.fullmatch(args.torch):
        raise InputError(f"--torch needs a version such as 2.11, got {args.torch!r}")
    for key in parse_settings(args.conf or ""):
        if key not in DECIDING and difflib.get_close_matches(key, DECIDING, n=1, cutoff=0.8):
            raise UnknownNameError("allocator setting", key, DECIDING)


def _environment(pairs: list[str]) -> dict[str, str]:
    from rcatools.memory.workspaces import workspace_bytes, workspace_form

    out: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise InputError(f"--env needs NAME=VALUE, got {pair!r}; write it so")
        if name in out:
            raise InputError(f"--env {name} is given twice; give it once")
        if workspace_bytes(name, value) is None:
            raise InputError(f"--env {pair}: this sets no workspace size; {workspace_form(name)}")
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

    if (args.resized is None) != (args.change is None) or (args.cleared is not None and args.resized is None):
        raise InputError(
            "an intervention needs both --resized FILE and --change NAME=VALUE->VALUE, and may have --cleared FILE; "
            "give what is missing"
        )
    outcome, change = None, None
    if args.change is not None:
        change = parse_change(args.change)
        resized = _load(args.resized, args)
        cleared = _load(args.cleared, args) if args.cleared else None
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

    scenario = load_scenario(args.file)
    snapshot = scenario.snapshot(os.path.basename(args.file))
    document = {**ledger_document(snapshot, None), "scenario": scenario.summary()}
    return _show(args, document, [("segments", scenario.segments()), *ledger_table(snapshot, None)])


def _oom(args: argparse.Namespace) -> int:
    from rcatools.memory.document import oom_document, oom_table
    from rcatools.memory.oom import is_oom_line, read_oom_line

    limit = int(args.max_gib * (1 << 30))
    reports = []
    path = readable_file(args.file, "the log of a program that ran out of memory", piped=True)
    with path.open(encoding="utf-8", errors="replace") as file:
        read = 0
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), ""), 1):
            read += len(line)
            if read > limit:
                raise InputError(f"{path} is larger than {args.max_gib:g} GiB; cut it, or raise --max-gib")
            if is_oom_line(line):
                reports.append((number, read_oom_line(line)))
    if not reports:
        raise InputError(
            f"{path} holds no out-of-memory line of torch ('... out of memory. Tried to allocate ...'); "
            "give the log that does"
        )
    return _show(args, oom_document(reports), oom_table(reports))
