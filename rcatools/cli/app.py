"""The command line: finds the command's module, imports only that one, maps errors to exit codes.

A command is a module with ``SUMMARY`` (one line), ``EXAMPLE`` (one shell line),
``add_arguments(parser)`` and ``run(args) -> int``. It uses argparse from the standard library because
the recorder must start in GPU containers that hold only torch, numpy, pandas and pyarrow.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rcatools import __version__
from rcatools.errors import InputError, RcaError, UnavailableError, UnknownNameError

COMMANDS: dict[str, str] = {
    "doctor": "Say what this machine has and what is missing",
    "record": "Measure an investigation and write a recording",
    "report": "Run the notebooks and write the findings",
    "compare": "Give a verdict for a table of repeated measurements",
    "trace": "Read, check and compare profiler traces",
    "snapshot": "Read torch memory snapshots: ledger, owners, replay, diff",
    "serving": "Measure and read vLLM servers",
    "sweep": "Run many reports or recordings, one per table row",
    "index": "Index many recordings or reports for queries",
    "bisect": "Name the first bad commit among noisy recordings",
    "findings": "Render findings.md again from a report folder",
}


class Parser(argparse.ArgumentParser):
    """An argument parser that raises InputError instead of printing usage and leaving."""

    def error(self, message: str) -> NoReturn:
        """Raise one line that names the command and where help is."""
        raise InputError(f"{message} (see {self.prog} --help)")


def new_parser(prog: str, description: str, example: str | None = None) -> Parser:
    """A parser with the project's layout of help: description, options, one example."""
    return Parser(
        prog=prog,
        description=description,
        epilog=f"example: {example}" if example else None,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def print_json(document: Any) -> None:
    """Write one strict JSON document to stdout (numbers that are not finite raise ValueError)."""
    sys.stdout.write(json.dumps(document, allow_nan=False, ensure_ascii=False, indent=2) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code (0, 1, 2 or 3; 130 after Ctrl-C)."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(args)
    except RcaError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return _fail("stopped by Ctrl-C", 130)
    except SystemExit as error:  # argparse's --help
        return error.code if isinstance(error.code, int) else 0
    except (IsADirectoryError, FileNotFoundError, PermissionError, NotADirectoryError) as error:
        return _fail(f"cannot use {error.filename}: {error.strerror}; give a readable path", 2)
    except MemoryError:
        return _fail("out of memory while reading the input; give a smaller file", 2)


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in {"-h", "--help", "help"}:
        print(_overview())
        return 0 if args else 2
    if args[0] in {"-V", "--version"}:
        print(f"rcatools {__version__}")
        return 0
    name = args[0]
    if name not in COMMANDS:
        raise UnknownNameError("command", name, COMMANDS)
    try:
        module = importlib.import_module(f"rcatools.cli.{name}")
        parser = new_parser(f"rcatools {name}", module.SUMMARY, module.EXAMPLE)
        module.add_arguments(parser)
        return int(module.run(parser.parse_args(args[1:])) or 0)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("rcatools"):
            raise
        raise UnavailableError(
            f"'rcatools {name}' needs the package {error.name}, which is not installed; "
            "run 'make setup' or 'pip install -e .' in the checkout"
        ) from error


def _overview() -> str:
    names = [name for name in COMMANDS if importlib.util.find_spec(f"rcatools.cli.{name}")]
    rows = "\n".join(f"  {name:<10} {COMMANDS[name]}" for name in names)
    return (
        "usage: rcatools COMMAND [options]\n\n"
        "Root-cause investigation of GPU performance regressions.\n\n"
        f"commands:\n{rows}\n\n"
        "exit codes: 0 done, 1 --fail-on matched, 2 wrong input or call, 3 a run or notebook failed\n"
        "example: rcatools report capture-stream --out report"
    )


def _fail(message: str, code: int) -> int:
    print(f"rcatools: {' '.join(message.split())}", file=sys.stderr)
    return code
