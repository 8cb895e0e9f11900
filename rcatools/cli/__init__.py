"""The ``rcatools`` command: thin modules, each loaded only when its command is called."""

from rcatools.cli.app import main

__all__ = ["main"]
