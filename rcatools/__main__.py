"""``python -m rcatools`` is the same as the ``rcatools`` command."""

from rcatools.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
