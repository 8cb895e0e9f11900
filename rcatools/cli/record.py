"""``rcatools record``: measures only, writes a recording."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rcatools.errors import InputError

SUMMARY = "Measure an investigation on this machine and write a recording. Judges nothing."
EXAMPLE = "rcatools record capture-stream --out recordings/tonight --blocks 14"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("investigation", help="name of a folder in data/investigations")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; must not hold a recording")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda", "rocm"])
    parser.add_argument("--arms", help="comma-separated names; the baseline is always added")
    parser.add_argument("--blocks", type=int, help="number of blocks (default: the investigation's)")
    parser.add_argument("--budget-s", type=float, help="begin no further block after this many seconds")
    parser.add_argument("--isolation", default="fork", choices=["fork", "spawn"])
    parser.add_argument("--seed", type=int, default=1, help="of the schedule")
    parser.add_argument("--resume", action="store_true", help="continue a recording that was interrupted")
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


def run(args: argparse.Namespace) -> int:
    """Record and say where the recording is."""
    from rcatools.experiment.arms import load_plan
    from rcatools.experiment.runner import Options, record

    for name, value in (
        ("--blocks", args.blocks),
        ("--budget-s", args.budget_s),
        ("--timeout-s", args.timeout_s),
    ):
        if value is not None and value <= 0:
            raise InputError(f"{name} must be above 0, got {value}")
    plan = load_plan(args.investigation)
    options = Options(
        out=args.out,
        device=args.device,
        arms=tuple(filter(None, args.arms.split(","))) if args.arms else None,
        blocks=args.blocks,
        budget_s=args.budget_s,
        isolation=args.isolation,
        seed=args.seed,
        resume=args.resume,
        parameters=pairs(args.p, "-p"),
        timeout_s=args.timeout_s,
        inspect={"all": None, "none": ()}.get(args.inspect, tuple(filter(None, args.inspect.split(",")))),
        spawn_share=args.spawn_share,
        env=pairs(args.env, "--env"),
        command="rcatools " + " ".join(shlex.quote(word) for word in command_words(sys.argv[1:])),
    )
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        manifest = record(plan, options, progress_printer())
    except KeyboardInterrupt:
        print(f"rcatools: stopped; go on with --out {args.out} --resume", file=sys.stderr)
        return 130
    counts = manifest["counts"]
    print(
        f"{args.out}: {manifest['state']}, {counts['ok']} of {counts['planned']} runs ok, {counts['failed']} failed"
    )
    return 0


def pairs(items: list[str], option: str) -> dict[str, str]:
    """``name=value`` words as a mapping; InputError where a word has another form."""
    result = {}
    for item in items:
        name, sign, value = item.partition("=")
        if not sign or not name:
            raise InputError(f"{option} needs name=value, got {item!r}")
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
