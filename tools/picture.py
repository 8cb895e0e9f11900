"""Takes the README's picture of a report with headless Chromium.

python tools/picture.py report/report.html docs/report.png
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser import Page, with_page  # noqa: E402

WIDTH, HEIGHT = 1180, 1080


async def take(view: Page, source: Path, target: Path) -> None:
    """Open the page, wait until it is drawn, write its first screen."""
    await view.open(source.resolve().as_uri(), width=WIDTH)
    while not await view.evaluate("document.documentElement.dataset.drawn === 'yes'"):
        await asyncio.sleep(0.1)
    target.parent.mkdir(parents=True, exist_ok=True)
    await view.screenshot(target, HEIGHT)


if __name__ == "__main__":
    page, picture = Path(sys.argv[1]), Path(sys.argv[2])
    with_page(lambda view: take(view, page, picture))
    print(f"{picture}: {picture.stat().st_size} bytes")
