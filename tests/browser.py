"""Headless Chromium driven over its debugging port: what a page logs, requests and looks like."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tornado.websocket import websocket_connect

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)


class Page:
    """One open page; ``problems`` and ``requests`` fill while it lives."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.numbers = itertools.count(1)
        self.problems: list[str] = []
        self.requests: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the debugging protocol; events that come meanwhile are kept."""
        number = next(self.numbers)
        await self.socket.write_message(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            text = await asyncio.wait_for(self.socket.read_message(), 60)
            assert text is not None, "Chromium closed the connection"
            message = json.loads(text)
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
            self._event(message)

    def _event(self, message: dict[str, Any]) -> None:
        kind, details = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(details["exceptionDetails"])[:500])
        elif kind == "Runtime.consoleAPICalled" and details["type"] in {"error", "warning", "assert"}:
            self.problems.append(json.dumps(details["args"])[:500])
        elif kind == "Log.entryAdded" and details["entry"]["level"] in {"error", "warning"}:
            self.problems.append(details["entry"]["text"][:500])
        elif kind == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])

    async def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression; promises are awaited."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def open(
        self, address: str, *, width: int = 1280, dark: bool = False, scripts: bool = True
    ) -> None:
        """Open an address at a width and wait until it is loaded."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        await self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        await self.call("Page.navigate", url=address)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if await self.evaluate("document.readyState === 'complete' && location.href !== 'about:blank'"):
                return
        raise AssertionError(f"{address} did not load")

    async def screenshot(self, path: Path, height: int | None = None) -> None:
        """Write a PNG of the whole page, or of its first ``height`` pixels."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))


def with_page(work: Callable[[Page], Any]) -> Any:
    """Run an async function on a page of a fresh Chromium and return its result."""
    assert CHROMIUM
    folder = tempfile.mkdtemp(prefix="rca-chromium-")
    process = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return asyncio.run(_drive(Path(folder), process, work))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


async def _drive(folder: Path, process: subprocess.Popen[bytes], work: Callable[[Page], Any]) -> Any:
    port_file = folder / "DevToolsActivePort"
    deadline = time.monotonic() + 60
    while not (port_file.is_file() and port_file.read_text().count("\n")):
        assert process.poll() is None, "Chromium did not start"
        assert time.monotonic() < deadline, "Chromium opened no debugging port"
        await asyncio.sleep(0.05)
    port = port_file.read_text().splitlines()[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30) as answer:
        address = next(tab["webSocketDebuggerUrl"] for tab in json.load(answer) if tab["type"] == "page")
    socket = await websocket_connect(address, max_message_size=2**28)
    try:
        return await work(Page(socket))
    finally:
        socket.close()
