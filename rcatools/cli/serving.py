"""``rcatools serving``: fresh vLLM servers arm by arm, and results that vLLM wrote elsewhere."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from dataclasses import replace
from typing import Any

from rcatools.cli.app import new_action, print_json
from rcatools.cli.values import nonempty_path
from rcatools.errors import InputError
from rcatools.files import readable_file

SUMMARY = "Measure vLLM in fresh processes arm by arm, or read the results and logs that it wrote."
EXAMPLE = "rcatools serving record --model MODEL --bench serve --concurrency 1,8,32 --out serving"
INVESTIGATION = "vllm-capture-stream"
MOST = 10**9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _record_arguments(new_action(actions, "record", "measure arms in alternating fresh processes", EXAMPLE))
    example = "rcatools serving ingest off=a/ side=b/ off=c/ side=d/ --out recording"
    _ingest_arguments(new_action(actions, "ingest", "make a recording of results and logs", example))
    example = "rcatools serving log server.log --json"
    log = new_action(
        actions, "log", "what a server log says: estimate and actual, KV cache, skipped profiling", example
    )
    log.add_argument("files", nargs="+", type=nonempty_path, metavar="FILE")
    log.add_argument("--json", action="store_true", help="write one JSON document to stdout")


def _record_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "investigation", nargs="?", default=INVESTIGATION, help=f"its arms are run (default {INVESTIGATION})"
    )
    parser.add_argument("--model", required=True, help="name or folder, as for 'vllm serve'")
    parser.add_argument("--out", type=nonempty_path, required=True, help="folder to write")
    parser.add_argument("--bench", choices=["latency", "serve"], default="latency")
    parser.add_argument("--arms", help="comma-separated names; the baseline is always added")
    parser.add_argument("--blocks", type=int, help="number of blocks (default: the investigation's)")
    parser.add_argument(
        "--concurrency", default="1,8,32", help="requests at a time, one after the other (serve)"
    )
    parser.add_argument(
        "--prompts", type=int, default=8, help="requests per load, times the concurrency (serve)"
    )
    parser.add_argument("--input-len", type=int, default=32)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=1, help="sequences of one iteration (latency)")
    parser.add_argument("--iterations", type=int, default=10, help="measured iterations (latency)")
    parser.add_argument("--warmup", type=int, default=3, help="unmeasured iterations or requests")
    parser.add_argument(
        "--kv-blocks", type=int, help="fixed number of KV blocks, the same in all arms; default: vLLM chooses"
    )
    parser.add_argument(
        "--engine-args", default="", help="more options of the engine, in one word: --engine-args='...'"
    )
    parser.add_argument("--bench-args", default="", help="more options of 'vllm bench', in one word")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="setting for every run"
    )
    parser.add_argument("--vllm", help="path of 'vllm' (default: beside this Python, or on PATH)")
    parser.add_argument("--ready-s", type=float, default=900, help="end a server that is not ready by then")
    parser.add_argument(
        "--timeout-s", type=float, default=1800, help="end a benchmark without a result by then"
    )
    parser.add_argument(
        "--budget-s", type=float, help="begin no further block after this many seconds (one is always made)"
    )
    parser.add_argument(
        "--snapshots", action="store_true", help="one more run per arm, with allocator snapshots"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the schedule")
    parser.add_argument("--resume", action="store_true", help="continue a recording that was interrupted")
    parser.add_argument("--json", action="store_true", help="write one JSON document to stdout")


def _ingest_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="ARM=PATH",
        help="one process each: a result file (file.log beside it is read too), or a folder with the results and log of "
        "one server; a path alone names its arm (off-1/, off-2/: arm off); or the folder of a sweep",
    )
    parser.add_argument(
        "--out", type=nonempty_path, required=True, help="folder to write; must not hold a recording"
    )
    parser.add_argument("--investigation", default=INVESTIGATION, help="what the recording belongs to")
    parser.add_argument("--baseline", default="", help="baseline arm (default: the investigation's)")
    parser.add_argument("--margin", type=float, help="equivalence margin (default: the investigation's)")
    parser.add_argument("--batch-size", type=int, help="of 'bench latency' results")
    parser.add_argument("--output-len", type=int, help="of 'bench latency' and 'bench throughput' results")
    parser.add_argument("--device", default="", help="name of the card that it was measured on")
    parser.add_argument("--backend", default="", choices=["", "rocm", "cuda", "cpu"])
    parser.add_argument("--json", action="store_true", help="write one JSON document to stdout")


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    if args.action == "log":
        return _log(args)
    return _record(args) if args.action == "record" else _ingest(args)


def _record(args: argparse.Namespace) -> int:
    from rcatools.cli.record import command_words, named_arms, pairs, progress_printer
    from rcatools.experiment.arms import load_plan
    from rcatools.serving.commands import Workload, shown
    from rcatools.serving.installation import find_vllm, inspect_vllm
    from rcatools.serving.measure import Limits
    from rcatools.serving.runner import Options, check_plan, record

    for name in ("blocks", "kv_blocks", "budget_s"):
        if getattr(args, name) is not None:
            _above_zero(name, getattr(args, name))
    for name in ("prompts", "input_len", "output_len", "batch_size", "iterations", "ready_s", "timeout_s"):
        _above_zero(name, getattr(args, name))
    for name in ("warmup", "seed"):
        if not 0 <= getattr(args, name) <= MOST:
            raise InputError(f"--{name} must be 0 or more and at most {MOST:g}, got {getattr(args, name)}")
    plan = load_plan(args.investigation)
    check_plan(plan)
    workload = Workload(
        model=args.model,
        bench=args.bench,
        input_len=args.input_len,
        output_len=args.output_len,
        batch_size=args.batch_size,
        iterations=args.iterations,
        warmup=args.warmup,
        concurrency=_numbers(args.concurrency),
        prompts=args.prompts,
        kv_blocks=args.kv_blocks,
        engine_args=_words(args.engine_args, "--engine-args"),
        bench_args=_words(args.bench_args, "--bench-args"),
    )
    env = pairs(args.env, "--env")
    vllm = inspect_vllm(find_vllm(args.vllm), env)
    if not vllm.plugin:
        print(
            "rcatools: the plugin is not installed for this vLLM, so its runs will not count; "
            "install this package there: pip install --no-deps -e CHECKOUT",
            file=sys.stderr,
        )
    options = Options(
        out=args.out,
        workload=workload,
        arms=named_arms(args.arms),
        blocks=args.blocks,
        budget_s=args.budget_s,
        seed=args.seed,
        resume=args.resume,
        limits=Limits(ready_s=args.ready_s, bench_s=args.timeout_s),
        snapshots=args.snapshots,
        env=env,
        command="rcatools " + " ".join(shlex.quote(word) for word in shown(command_words(sys.argv[1:]))),
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        manifest = record(plan, options, vllm, progress_printer())
    except KeyboardInterrupt:
        print(f"rcatools: stopped; go on with --out {args.out} --resume", file=sys.stderr)
        return 130
    return _show(args, manifest)


def _ingest(args: argparse.Namespace) -> int:
    from rcatools.cli.record import command_words
    from rcatools.experiment.arms import load_plan
    from rcatools.serving.commands import shown
    from rcatools.serving.ingest import Settings, ingest, parse_sources
    from rcatools.serving.metrics import Lengths

    for name in ("batch_size", "output_len"):
        if getattr(args, name) is not None:
            _above_zero(name, getattr(args, name))
    if args.margin is not None and not 0 < args.margin < 1:
        raise InputError(f"--margin must be between 0 and 1 (0.02 is 2 %), got {args.margin}")
    settings = Settings(
        baseline=args.baseline,
        margin=args.margin,
        lengths=Lengths(args.batch_size, args.output_len),
        device=args.device,
        backend=args.backend,
        command="rcatools " + " ".join(shlex.quote(word) for word in shown(command_words(sys.argv[1:]))),
    )
    manifest = ingest(load_plan(args.investigation), parse_sources(args.runs), args.out, settings)
    return _show(args, manifest)


def _show(args: argparse.Namespace, manifest: dict[str, Any]) -> int:
    from rcatools.serving.summary import summary, summary_lines

    found = summary(args.out, manifest)
    if args.json:
        print_json(found)
    else:
        print("\n".join(summary_lines(found)))
    return 0


def _log(args: argparse.Namespace) -> int:
    from rcatools.serving.logs import LogFacts, read_log
    from rcatools.serving.summary import log_document, log_lines

    found = []
    for file in args.files:
        facts = read_log(readable_file(file, "the log of a vLLM server", piped=True))
        if replace(facts, notes=()) == LogFacts():
            raise InputError(f"{file} holds no line that a vLLM server writes; give the log of one")
        found.append(log_document(file.name, facts))
    if args.json:
        print_json({"logs": found})
    else:
        print("\n".join(line for item in found for line in log_lines(item)))
    return 0


def _above_zero(name: str, value: float) -> None:
    if not 0 < value <= MOST:
        raise InputError(f"--{name.replace('_', '-')} must be above 0 and at most {MOST:g}, got {value:g}")


def _numbers(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdigit() and 0 < int(word) <= 100_000 for word in words):
        raise InputError(f"--concurrency needs whole numbers such as 1,8,32, got {text!r}")
    return tuple(dict.fromkeys(int(word) for word in words))


def _words(text: str, option: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"{option}: {error} in {text!r}; quote it as for a shell") from None
