"""``rcatools record``: measures only, writes a recording."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rcatools.cli.values import nonempty_path
from rcatools.errors import InputError

SUMMARY = "Measure an investigation on this machine and write a recording. Judges nothing."
EXAMPLE = "rcatools record capture-stream --out recordings/tonight --blocks 14"
MOST = {
    "blocks": 100_000,  # design.MOST_BLOCKS
    "pilot": 100_000,
    "looks": 1000,
    "ranks": 64,
    "effect": 100,
    "budget_s": 10**7,
    "timeout_s": 10**7,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("investigation", help="name of a folder in data/investigations")
    parser.add_argument(
        "--out", type=nonempty_path, required=True, help="folder to write; must not hold a recording"
    )
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda", "rocm"])
    parser.add_argument("--arms", help="comma-separated names; the baseline is always added")
    parser.add_argument("--blocks", type=int, help="number of blocks (default: the investigation's)")
    parser.add_argument(
        "--budget-s", type=float, help="begin no further block after this many seconds (one is always made)"
    )
    parser.add_argument("--isolation", default="fork", choices=["fork", "spawn"])
    parser.add_argument("--seed", type=int, default=1, help="of the schedule")
    parser.add_argument("--resume", action="store_true", help="continue a recording that was interrupted")
    parser.add_argument(
        "--keep-going", action="store_true", help="do not stop when every run of the first block failed alike"
    )
    parser.add_argument("-p", action="append", default=[], metavar="name=value", help="workload parameter")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="setting for every run"
    )
    parser.add_argument(
        "--timeout-s", type=float, default=300, help="end a run that gives no answer for so long"
    )
    parser.add_argument(
        "--inspect", default="all", help="arms with an untimed run for snapshot and trace: all, none or names"
    )
    parser.add_argument("--spawn-share", type=float, help="share of blocks in fresh interpreters (0 to 1)")
    parser.add_argument(
        "--ranks", type=int, default=1, help="processes per run, one per GPU, summing inside the step"
    )
    parser.add_argument(
        "--stop-early",
        nargs="?",
        const="pocock",
        choices=["pocock", "obrien-fleming"],
        help="stop at a planned look once every suspect is decided (default bound: pocock)",
    )
    parser.add_argument("--looks", type=int, help="number of planned looks (default: the investigation's)")
    parser.add_argument(
        "--pilot",
        type=int,
        metavar="N",
        help="record N blocks of the baseline and its repeat only, and say how many blocks are needed",
    )
    parser.add_argument(
        "--effect", type=float, help="with --pilot: ratio minus one to be seen (default: margin)"
    )
    parser.add_argument(
        "--keep-diff",
        action="store_true",
        help="store uncommitted changes as text beside the manifest (read them first: they may hold secrets)",
    )
    parser.add_argument(
        "--checkout",
        action="append",
        default=[],
        type=nonempty_path,
        metavar="DIR",
        help="a further git checkout whose code is measured: its state goes into the manifest too",
    )


def run(args: argparse.Namespace) -> int:
    """Record and say where the recording is."""
    from rcatools.experiment.arms import load_plan
    from rcatools.experiment.runner import record

    check_numbers(args)
    plan = load_plan(args.investigation)
    options = make_options(args, plan)
    try:
        with stopped_like_ctrl_c(signal.SIGTERM, signal.SIGHUP):
            manifest = record(plan, options, progress_printer())
    except KeyboardInterrupt:
        print(
            f"rcatools: stopped, every finished run is kept; go on with the same command and --resume "
            f"({args.out})",
            file=sys.stderr,
        )
        return 130
    for name in manifest.get("diffs", ()):
        print(
            f"rcatools: {args.out / name} holds uncommitted code: read it before you share the recording",
            file=sys.stderr,
        )
    for line in summary(manifest, args.out):
        print(line)
    if args.pilot:
        from rcatools.experiment import pilot
        from rcatools.recording.reader import open_recording

        arms = len(plan.choose(None, manifest["device"]["backend"]))
        found = pilot.assess(
            open_recording(args.out), effect=args.effect or plan.margin, planned=args.blocks or plan.blocks
        )
        print("\n".join(pilot.sentences(found, arms)))
    return 0


@contextlib.contextmanager
def stopped_like_ctrl_c(*signals: signal.Signals) -> Iterator[None]:
    """Treat further signals as Ctrl-C while a recording is made."""
    before = {name: signal.signal(name, signal.default_int_handler) for name in signals}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def check_numbers(args: argparse.Namespace) -> None:
    """Refuse numbers without a meaning before anything is started."""
    for name, most in MOST.items():
        value = getattr(args, name, None)
        if value is not None and not 0 < value <= most:
            raise InputError(f"--{name.replace('_', '-')} must be above 0 and at most {most:g}, got {value}")
    if args.seed < 0:
        raise InputError(f"--seed must be 0 or more, got {args.seed}")
    if args.spawn_share is not None and not 0 <= args.spawn_share <= 1:
        raise InputError(f"--spawn-share must lie between 0 and 1, got {args.spawn_share}")
    if args.pilot and (args.arms or args.stop_early):
        raise InputError("--pilot chooses its arms and blocks itself: leave out --arms and --stop-early")
    if args.pilot is not None and args.pilot < 3:
        raise InputError(f"--pilot needs 3 blocks or more, got {args.pilot}")
    if args.effect is not None and not args.pilot:
        raise InputError("--effect says what --pilot shall be able to see: add --pilot N, or leave it out")


def named_arms(text: str | None) -> tuple[str, ...] | None:
    """The arms of a comma-separated list, or None where none was given."""
    if text is None:
        return None
    arms = tuple(filter(None, (name.strip() for name in text.split(","))))
    if not arms:
        raise InputError(f"--arms {text!r} names no arm: give names such as off,side, or leave it out")
    return arms


def make_options(args: argparse.Namespace, plan: Any) -> Any:
    """The recorder's options from the command line."""
    from rcatools.experiment.pilot import pilot_arms
    from rcatools.experiment.prepare import Options

    arms = named_arms(args.arms)
    inspect = {"all": None, "none": ()}.get(args.inspect, tuple(filter(None, args.inspect.split(","))))
    return Options(
        out=args.out,
        device=args.device,
        arms=pilot_arms(plan) if args.pilot else arms,
        blocks=args.pilot or args.blocks,
        budget_s=args.budget_s,
        isolation=args.isolation,
        seed=args.seed,
        resume=args.resume,
        parameters=pairs(args.p, "-p"),
        timeout_s=args.timeout_s,
        inspect=() if args.pilot else inspect,
        spawn_share=args.spawn_share,
        env=pairs(args.env, "--env"),
        ranks=args.ranks,
        stop_early=args.stop_early,
        looks=args.looks,
        keep_diff=args.keep_diff,
        checkouts=tuple(args.checkout),
        keep_going=args.keep_going,
        command="rcatools " + " ".join(shlex.quote(word) for word in command_words(sys.argv[1:])),
    )


def summary(manifest: dict[str, Any], out: Path) -> list[str]:
    """What was recorded, why it ended, and what a reader of it must know."""
    counts = manifest["counts"]
    lines = [
        f"{out}: {manifest['state']}, {counts['ok']} of {counts['planned']} runs ok, {counts['failed']} failed, "
        f"{counts['blocks_whole']} of {manifest['design']['blocks']} planned blocks whole"
        f" (ended by {manifest['stopped_by']})"
    ]
    for name, text in (
        ("throttled", "ran under reduced clocks; they are kept and marked"),
        ("shared_device", "had other processes on the device"),
        ("damaged_parts", "had a damaged result, set aside in parts/damaged and made again with --resume"),
    ):
        if counts.get(name):
            lines.append(f"  {counts[name]} runs {text}")
    for row in manifest.get("looks", ()):
        ratio = "n/a" if row["ratio"] is None else f"{row['ratio']:.4f}"
        p = "n/a" if row["p_value"] is None else f"{row['p_value']:.2g}"
        lines.append(
            f"  look after {row['blocks']} blocks, {row['arm']}: ratio {ratio}, p {p} "
            f"(needed {row['p_needed']:.4f}): {row['decision']}"
        )
    return lines


def pairs(items: list[str], option: str) -> dict[str, str]:
    """``name=value`` words as a mapping; InputError where a word has another form."""
    result: dict[str, str] = {}
    for item in items:
        name, sign, value = item.partition("=")
        if not sign or not name:
            raise InputError(f"{option} needs name=value, got {item!r}; write it so")
        if name in result:
            raise InputError(f"{option} {name} is given twice: give it once")
        result[name] = value
    return result


def command_words(words: list[str]) -> list[str]:
    """The command line with the output folder reduced to its last part, so that no private path is kept."""
    result = []
    for previous, word in zip(["", *words], words, strict=False):
        result.append(Path(word).name if previous == "--out" else word)
    return result


def progress_printer() -> Any:
    """A function that reports each run: one rewritten line on a terminal, plain lines in a log."""
    started = time.monotonic()
    terminal = sys.stderr.isatty()

    def report(number: int, total: int, part: dict[str, Any]) -> None:
        elapsed = time.monotonic() - started
        left = elapsed / max(number, 1) * (total - number)
        failed = "" if part["outcome"] == "ok" else f" {part['outcome']}: {part['reason']}"
        text = f"[{number}/{total}] {part['run']} {part['wall_s']:.1f} s, about {left:.0f} s left{failed}"
        end = "\r" if terminal and not failed and number < total else "\n"
        print(f"{text:<100}" if terminal else text, end=end, file=sys.stderr, flush=True)

    return report
