"""All benchmarks: ``python -m benchmarks [NAME...]``, which is what ``make bench`` runs.

Each is a script of its own with ``--help``. Nothing is asserted; figures are printed side by side, with the machine
and the date. What needs a GPU says so on a machine without one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BY_DEFAULT = ("engine", "compare_speed", "snapshot_speed", "trace_speed", "report_speed")


def main(names: list[str]) -> int:
    """Run the named benchmarks, or those that end within minutes anywhere; 1 if one failed."""
    failed = []
    for name in names or [name for name in BY_DEFAULT if (HERE / f"{name}.py").is_file()]:
        print(f"\n== {name}", flush=True)
        done = subprocess.run([sys.executable, str(HERE / f"{name}.py")], cwd=HERE.parent, check=False)
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
