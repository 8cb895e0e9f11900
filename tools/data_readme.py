"""Writes the list of embedded recordings in data/README.md from their manifests.

python tools/data_readme.py
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- recordings: written by tools/data_readme.py -->", "<!-- end -->"


def section(folder: Path) -> str:
    """One recording: machine, software, size, and the command that made it."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    device, environment = manifest["device"], manifest["environment"]
    packages = environment.get("packages", {})
    code = environment.get("code", {})
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20
    design, counts = manifest["design"], manifest["counts"]
    commit = f"commit {code['commit'][:12]}" if code.get("commit") else "no commit recorded"
    state = " with uncommitted changes" if code.get("dirty") else ""
    return "\n".join(
        [
            f"### {folder.name}",
            "",
            f"{device['name']} ({device['backend']}, driver {device.get('driver') or 'none'}), torch "
            f"{packages.get('torch')}, Python {environment.get('python')}; made {manifest['created_utc'][:10]}, {commit}"
            f"{state}. {len(design['arms'])} arms, {counts.get('ok')} runs ended well and {counts.get('failed', 0)} failed; "
            f"{size:.1f} MiB.",
            "",
            "```sh",
            manifest["command"],
            "```",
        ]
    )


def text() -> str:
    """The whole README with the list as it should be."""
    readme = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    before, _, rest = readme.partition(START)
    _, _, after = rest.partition(END)
    found = sorted(path.parent for path in (ROOT / "data" / "recordings").glob("*/manifest.json"))
    return f"{before}{START}\n" + "".join(f"\n{section(folder)}\n" for folder in found) + f"\n{END}{after}"


if __name__ == "__main__":
    (ROOT / "data" / "README.md").write_text(text(), encoding="utf-8")
