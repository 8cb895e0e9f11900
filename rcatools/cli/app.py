"""The command line: finds the command's module, imports only that one, maps errors to exit codes.

A command is a module with ``SUMMARY`` (one line), ``EXAMPLE`` (one shell line),
``add_arguments(parser)`` and ``run(args) -> int``. It uses argparse from the standard library because
the recorder must start in GPU containers that hold only torch, numpy, pandas and pyarrow.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import importlib.util
import io
import json
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from rcatools import __version__
from rcatools.errors import InputError, RcaError, UnavailableError, UnknownNameError
from rcatools.files import shown

LONGEST = 1200  # characters of one message
TRACEBACK = "RCATOOLS_TRACEBACK"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
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


def new_action(actions: Any, name: str, text: str, example: str) -> argparse.ArgumentParser:
    """A parser for one action of a command, with a help and an example of its own."""
    made: argparse.ArgumentParser = actions.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example: {example}",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return made


def print_json(document: Any) -> None:
    """Write one strict JSON document to stdout (numbers that are not finite raise ValueError)."""
    sys.stdout.write(json.dumps(document, allow_nan=False, ensure_ascii=False, indent=2) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code (0, 1, 2 or 3; 130 after Ctrl-C)."""
    args = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        code = _dispatch(args)
        sys.stdout.flush()
        return code
    except RcaError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        _drop_output()
        return 0
    except KeyboardInterrupt:
        return _fail("stopped by Ctrl-C", 130)
    except SystemExit as error:  # argparse's --help
        return error.code if isinstance(error.code, int) else 0
    except OSError as error:
        return _fail(_of_system(error), 2)
    except MemoryError:
        return _fail("out of memory while reading the input; give a smaller file", 2)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        return _fail(_of_ours(error), 3)


def _prepare_streams() -> None:
    """Make both outputs writable: closed ones go nowhere, what an encoding cannot say is escaped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _of_system(error: OSError) -> str:
    """One line for what the operating system refused."""
    why = error.strerror or str(error) or type(error).__name__
    if error.errno in FULL:
        if error.filename is None:
            _drop_output()
        return f"cannot write {error.filename or 'the output'}: {why}; free space, then run it again"
    if error.filename is None:
        return f"the input cannot be read: {why}; give a regular file"
    return f"cannot use {shown(os.fsdecode(error.filename))}: {why}; give a path that can be used"


def _of_ours(error: Exception) -> str:
    """One line for a fault of this program, with the place where it showed."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""
    return (
        f"a fault of rcatools, not of the call: {type(error).__name__}: {error}{place}; "
        f"set {TRACEBACK}=1 to see where, and report it"
    )


def _drop_output() -> None:
    """Send what is still to be written to nowhere, so that leaving says nothing more about it."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
        return int(module.run(_parsed(parser, args[1:])) or 0)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("rcatools"):
            raise
        raise UnavailableError(
            f"'rcatools {name}' needs the package {error.name}, which is not installed; "
            "run 'make setup' or 'pip install -e .' in the checkout"
        ) from error


def _parsed(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """The arguments; what nobody reads is named, with the help of the action that was asked for."""
    args, unread = parser.parse_known_args(words)
    if unread:
        prog = " ".join([parser.prog, *filter(None, [getattr(args, "action", None)])])
        raise InputError(f"unrecognized arguments: {' '.join(unread)} (see {prog} --help)")
    return args


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
    """One printable line on stderr, whatever the message quotes."""
    line = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
    print(f"rcatools: {line if len(line) <= LONGEST else line[: LONGEST - 1] + '…'}", file=sys.stderr)
    return code
