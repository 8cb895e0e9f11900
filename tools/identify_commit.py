"""Names the commit whose code made a recording that was made from an uncommitted working tree.

python tools/identify_commit.py RECORDING COMMIT

A recorder that runs from a copied working tree sees an older commit and uncommitted changes. Where those changes were
committed later, byte by byte, the recording belongs to that commit: the hash of the difference between both commits
is the recorded hash of the changes, and the hash of the library's sources in that commit is the recorded one. Both are
checked here before the manifest says so; what the recorder saw stays under "identified_from".
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rcatools.device.fingerprint import source_hash  # noqa: E402
from rcatools.files import write_json  # noqa: E402

DIFF = ("diff", "--binary", "--no-ext-diff", "--no-textconv", "--no-color")


def git(*arguments: str) -> bytes:
    """Output of one git command in this checkout."""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


def difference(seen: dict[str, Any], commit: str) -> str | None:
    """What speaks against the recorded working tree being this commit, or None."""
    changes = hashlib.sha256(git(*DIFF, seen["commit"], commit)).hexdigest()
    if changes != seen["diff_sha256"]:
        return f"the difference from {seen['commit'][:12]} to {commit[:12]} is not the one recorded"
    if seen.get("untracked_files"):
        return "there were untracked files, which no commit can show"
    with tempfile.TemporaryDirectory() as folder:
        archive = git("archive", commit, "rcatools")
        subprocess.run(["tar", "xf", "-", "-C", folder], input=archive, check=True)
        if source_hash(Path(folder) / "rcatools") != seen["source_sha256"]:
            return f"the library's sources in {commit[:12]} are not the ones recorded"
    return None


def main() -> int:
    """Check and write; 0 if the manifest now names the commit."""
    file = Path(sys.argv[1]) / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    seen = manifest["environment"]["code"]
    if not seen.get("dirty") or not seen.get("diff_sha256"):
        print("identify_commit: this recording holds no uncommitted changes", file=sys.stderr)
        return 2
    commit = git("rev-parse", f"{sys.argv[2]}^{{commit}}").decode().strip()
    against = difference(seen, commit)
    if against:
        print(f"identify_commit: {against}", file=sys.stderr)
        return 2
    manifest["environment"]["code"] = {
        "source_sha256": seen["source_sha256"],
        "commit": commit,
        "dirty": False,
        "diff_sha256": None,
        "untracked_files": 0,
        "untracked_sha256": None,
        "reason": "a copied working tree, equal to this commit by the hash of its changes and of its sources",
        "identified_from": {key: seen[key] for key in ("commit", "diff_sha256")},
    }
    write_json(file, manifest)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
