"""The command group; a command's module is imported only when that command runs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence

import click

from rcatools.errors import RcaError

# name -> (module with a typer ``app``, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "doctor": ("rcatools.cli.doctor", "Say what this machine has and what is missing."),
    "record": ("rcatools.cli.record", "Measure an investigation and write a recording."),
    "report": ("rcatools.cli.report", "Run the notebooks and write the findings."),
    "compare": ("rcatools.cli.compare", "Give a verdict for a table of repeated measurements."),
    "trace": ("rcatools.cli.trace", "Read, check and compare profiler traces."),
    "snapshot": ("rcatools.cli.snapshot", "Read torch memory snapshots: ledger, owners, replay, diff."),
    "serving": ("rcatools.cli.serving", "Measure and read vLLM servers."),
    "sweep": ("rcatools.cli.sweep", "Run many reports or recordings, one per table row."),
    "index": ("rcatools.cli.index", "Index many recordings or reports for queries."),
    "findings": ("rcatools.cli.findings", "Render findings.md again from a report folder."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use, so that ``--help`` stays instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The command names in the order of the table."""
        return [name for name, (module, _) in COMMANDS.items() if importlib.util.find_spec(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The click command of a name, or None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        import typer.main

        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command list from the table, importing none of them."""
        rows = [(name, COMMANDS[name][1]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code (0, 1, 2 or 3; 130 after Ctrl-C)."""
    group = LazyGroup("rcatools", help="Root-cause investigation of GPU performance regressions.")
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        result = group.main(args=args, prog_name="rcatools", standalone_mode=False)
    except RcaError as error:
        print(f"rcatools: {_one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx else "")
        return 2
    except click.ClickException as error:
        print(f"rcatools: {_one_line(error.format_message())}", file=sys.stderr)
        return 2
    except (click.Abort, KeyboardInterrupt):
        print("rcatools: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def _one_line(text: str) -> str:
    return " ".join(text.split())
