"""``rcatools trace``: read, check and compare profiler traces."""

from __future__ import annotations

import argparse
import json
import math
from typing import TYPE_CHECKING, Any

from rcatools.cli.app import new_action, print_json
from rcatools.cli.values import nonempty_path, whole, writable_folder
from rcatools.errors import InputError
from rcatools.units import duration_us, percent, significant

if TYPE_CHECKING:
    from rcatools.trace.bounds import Ceilings
    from rcatools.trace.diff import TraceDiff
    from rcatools.trace.health import Health
    from rcatools.trace.model import Trace
    from rcatools.trace.reconcile import Reconciliation
    from rcatools.trace.summary import Summary
    from rcatools.trace.work import Work

SUMMARY = "Read, check and compare profiler traces (torch.profiler, rocprofv3, rocpd, nsys)"
EXAMPLE = "rcatools trace diff baseline.json.gz candidate.json.gz --json"
NAME_WIDTH = 64
LONGEST_STEP_US = 1e12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions summary, health and diff."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text, files in (
        ("summary", "kernel table, busy time, streams, coverage, bounds", ("file",)),
        ("health", "what may not be concluded from a trace", ("file",)),
        ("diff", "difference of two traces in terms that add up", ("baseline", "candidate")),
    ):
        action = new_action(actions, name, text, _EXAMPLES[name])
        for file in files:
            action.add_argument(
                file, metavar=file.upper(), help="trace: .json, .json.gz, .csv, .db or .sqlite"
            )
        action.add_argument("--json", action="store_true", help="print one JSON document")
        action.add_argument("--top", type=whole(0), default=20, help="rows of the text tables (default 20)")
        action.add_argument(
            "--max-bytes", type=whole(1), help="most uncompressed bytes to read (default 16 GiB)"
        )
        action.add_argument(
            "--cache",
            metavar="DIR",
            type=nonempty_path,
            help="keep read traces here, so that reading again is instant",
        )
        if name != "health":
            action.add_argument(
                "--ceilings",
                metavar="FILE",
                help="ceilings of the device: rocprof-compute's roofline.csv or JSON",
            )
        if name == "summary":
            action.add_argument(
                "--declared",
                metavar="FILE",
                help="JSON list of {name, bytes, flops} of a workload's own kernels",
            )
        if name == "diff":
            action.add_argument(
                "--steps", type=whole(1), help="steps in each trace, to compare with measured times"
            )
            action.add_argument("--measured-a-us", type=float, help="measured step time of the baseline")
            action.add_argument("--measured-b-us", type=float, help="measured step time of the candidate")


_EXAMPLES = {
    "summary": "rcatools trace summary trace.json.gz --top 10",
    "health": "rcatools trace health trace.json.gz --json",
    "diff": EXAMPLE,
}


def run(args: argparse.Namespace) -> int:
    """Run one action; the result goes to stdout. Each action imports only what it needs."""
    return {"summary": _summary, "health": _health, "diff": _diff}[args.action](args)


def _summary(args: argparse.Namespace) -> int:
    from rcatools.trace.summary import summarize

    trace = _load(args.file, args)
    summary = summarize(trace, _ceilings(args.ceilings, trace), _declared(args.declared))
    if args.json:
        print_json(summary.to_json())
    else:
        print(_summary_text(summary, args.top))
    return 0


def _health(args: argparse.Namespace) -> int:
    from rcatools.trace.health import health

    trace = _load(args.file, args)
    checked = health(trace)
    if args.json:
        print_json(checked.to_json())
    else:
        print(_health_text(trace, checked))
    return 0


def _diff(args: argparse.Namespace) -> int:
    from rcatools.trace.diff import diff
    from rcatools.trace.reconcile import reconcile

    measured = _measured(args)
    baseline, candidate = _load(args.baseline, args), _load(args.candidate, args)
    difference = diff(baseline, candidate, _ceilings(args.ceilings, baseline))
    reconciled = reconcile(difference, *measured) if measured else None
    if args.json:
        document = difference.to_json()
        print_json({**document, "end_to_end": reconciled.to_json()} if reconciled else document)
    else:
        print(_diff_text(difference, reconciled, args.top))
    return 0


def _load(path: str, args: argparse.Namespace) -> Trace:
    from rcatools.trace.read import load_trace
    from rcatools.trace.stream import DEFAULT_LIMITS, Limits

    limits = Limits(max_bytes=args.max_bytes) if args.max_bytes else DEFAULT_LIMITS
    if args.cache is not None:
        writable_folder(args.cache, "--cache")
    return load_trace(path, limits, args.cache)


def _measured(args: argparse.Namespace) -> tuple[int, float, float] | None:
    given = (args.steps, args.measured_a_us, args.measured_b_us)
    if given == (None, None, None):
        return None
    if None in given or not all(0 < x <= LONGEST_STEP_US for x in given[1:]):
        raise InputError(
            "--steps, --measured-a-us and --measured-b-us go together, the times above 0 and up to "
            f"{LONGEST_STEP_US:g} us; give all three"
        )
    return given


def _ceilings(path: str | None, trace: Trace) -> Ceilings | None:
    from rcatools.report.trace_ceilings import for_devices

    return for_devices(trace.devices.values(), path)


def _declared(path: str | None) -> dict[str, Work] | None:
    from rcatools.trace.stream import existing_file
    from rcatools.trace.work import Work

    if path is None:
        return None
    form = 'a JSON list such as [{"name": "kv_gather", "bytes": 8388608, "flops": 16777216}]'
    file = existing_file(path, form)
    try:
        works = {
            str(entry["name"]): Work(
                float(entry["bytes"]), float(entry["flops"]), str(entry.get("dtype", "bf16"))
            )
            for entry in json.loads(file.read_text("utf-8"))
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError(f"{file.name}: not a list of name, bytes and flops; give {form}") from None
    for name, work in works.items():
        if not (math.isfinite(work.bytes) and math.isfinite(work.flops) and min(work.bytes, work.flops) >= 0):
            raise InputError(
                f"{file.name}: bytes and flops of {name[:60]!r} must be numbers of 0 or more; correct them"
            )
    return works


def _plain(text: Any, width: int | None = None) -> str:
    """One printable line of a text from a file."""
    line = "".join(character if character.isprintable() else "?" for character in str(text))
    return line if width is None or len(line) <= width else line[: width - 3] + "..."


def _summary_text(summary: Summary, top: int) -> str:
    from rcatools.trace.records import records

    lines = [f"format {summary.format}"]
    for device in summary.devices:
        idle = "not to be read (see warnings)" if device.idle_us is None else duration_us(device.idle_us, 4)
        lines.append(
            f"device {device.device} ({_plain(device.name or 'name not recorded')}): {device.kernels} kernels, "
            f"{duration_us(device.kernel_us, 5)} in kernels, busy {duration_us(device.busy_us, 5)}, "
            f"span {duration_us(device.span_us, 5)}, idle {idle}"
        )
    held = summary.coverage
    lines.append(
        f"coverage: {held.kernels} kernels, {held.linked} linked to a launch, {held.unlinked} not "
        f"({duration_us(held.unlinked_us, 4)}), {held.graph} from graphs ({duration_us(held.graph_us, 4)}), "
        f"{held.dropped_events} events left out"
    )
    rows = summary.kernels.head(top)
    if len(rows):
        lines.append("")
        lines.append(
            f"{'share':>7} {'total':>10} {'count':>7} {'median':>10}  {'role':<16} {'bound':<12} kernel"
        )
    for row in records(rows):
        lines.append(
            f"{percent(row['share']):>7} {duration_us(row['total_us']):>10} {row['count']:>7} {duration_us(row['median_us']):>10}  "
            f"{row['role']:<16} {row['bound']:<12} {_plain(row['name'], NAME_WIDTH)}"
        )
    if len(summary.kernels) > top:
        rest = summary.kernels.iloc[top:]
        lines.append(f"{percent(float(rest['share'].sum())):>7} in {len(rest)} more kernels")
    lines += (
        ["", *(f"warning: {_plain(warning.text)}" for warning in summary.warnings)]
        if summary.warnings
        else []
    )
    return "\n".join(lines)


def _health_text(trace: Trace, checked: Health) -> str:
    counts = trace.counts
    lines = [
        f"{_plain(trace.label)}: {counts.events} events read, {counts.dropped} dropped, {counts.repaired} repaired, "
        f"{counts.excluded} excluded"
    ]
    if checked.blocks:
        lines.append("may not be concluded: " + ", ".join(checked.blocks))
    else:
        lines.append("nothing found that forbids a conclusion")
    lines += [f"- {finding.code}: {_plain(finding.text)}" for finding in checked.findings]
    return "\n".join(lines)


def _diff_text(difference: TraceDiff, reconciled: Reconciliation | None, top: int) -> str:
    from rcatools.trace.records import records

    lines = [
        ("comparable" if difference.comparable else "NOT COMPARABLE") + f"; reading: {difference.reading}",
        *(
            f"- {'stops the comparison' if reason.blocking else 'note'}: {_plain(reason.text)}"
            for reason in difference.reasons
        ),
        "",
        *difference.statements,
    ]
    if reconciled:
        lines.append(reconciled.statement)
    lines += ["", f"{'term':<12} {'us':>16}"]
    lines += [f"{term.removesuffix('_us'):<12} {value:>+16.3f}" for term, value in difference.terms.items()]
    lines.append(f"{'total':<12} {difference.total_delta_us:>+16.3f}")
    lines.append(
        f"aligned: {percent(difference.aligned_share[0])} of the time of a, {percent(difference.aligned_share[1])} of b"
    )
    lines += [
        "",
        f"{'delta us':>14} {'term':<10} {'count a':>8} {'count b':>8} {'ratio':>7}  {'role':<14} kernel",
    ]
    for row in records(difference.kernels.head(top)):
        names = row["name_a"] if row["name_b"] is None else row["name_b"]
        if row["term"] == "replaced":
            names = f"{_plain(row['name_a'], NAME_WIDTH // 2)} -> {_plain(row['name_b'], NAME_WIDTH // 2)}"
        lines.append(
            f"{row['delta_us']:>+14.3f} {row['term']:<10} {row['count_a']:>8} {row['count_b']:>8} {significant(row['ratio']):>7}  "
            f"{row['role']:<14} {_plain(names, NAME_WIDTH + 4)}"
        )
    return "\n".join(lines)
