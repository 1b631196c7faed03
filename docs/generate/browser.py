"""The pages of the site as a browser shows them: wide and narrow, light and dark; what is cut off or broken is told.

A headless Chromium is started, and asked over its debugging port (Chrome DevTools Protocol). A page is right if

    it is as wide as the window, and nothing in it reaches beyond, but for what scrolls
    every formula is rendered, no LaTeX stands there raw, and every picture has a width
    the console has no error and no warning, and no address outside of the site is asked for
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from asyncio import sleep
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

from tornado.websocket import WebSocketClientConnection, websocket_connect

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
VIEWS = tuple((width, scheme) for width in (1280, 400) for scheme in ("light", "dark"))
HEIGHT, WAIT_S, STEPS = 900, 0.1, 200
LOCAL = ("file:", "data:", "about:")
READY = """document.readyState == 'complete' && (window.MathJax && MathJax.startup && MathJax.startup.promise
    ? MathJax.startup.promise.then(() => true) : true)"""
FAULTS = r"""(() => {
    const scrolls = (node) => {
        for (let above = node.parentElement; above && above !== document.body; above = above.parentElement)
            if (['auto', 'scroll'].includes(getComputedStyle(above).overflowX)) return true;
        return false;
    };
    const beyond = [...document.querySelectorAll('article *, main *')].filter((node) => {
        const box = node.getBoundingClientRect();
        return box.width && box.right > innerWidth + 1 && !scrolls(node) && getComputedStyle(node).position !== 'fixed'
            && !node.closest('.sidebar-drawer, .toc-drawer, mjx-assistive-mml, svg');
    });
    const words = (node) => `${node.tagName.toLowerCase()} "${node.textContent.trim().slice(0, 30)}"`;
    const found = beyond.slice(0, 3).map((node) => `cut off: ${words(node)}`);
    if (document.documentElement.scrollWidth > innerWidth) found.push('the page is wider than the window');
    if (document.querySelector('mjx-merror, [data-mjx-error]')) found.push('a formula has an error');
    if (/\\begin\{aligned|\$\$/.test(document.body.innerText)) found.push('LaTeX that is not rendered');
    for (const image of document.images) if (!image.naturalWidth) found.push(`no picture: ${image.src}`);
    return {faults: found, height: document.documentElement.scrollHeight};
})()"""


@final
@dataclass
class Browser:
    """A window of a browser, by its debugging protocol."""

    socket: WebSocketClientConnection
    number: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    async def call(self, method: str, **options: Any) -> Any:
        """The result of a method; what the browser tells meanwhile is kept."""
        self.number += 1
        await self.socket.write_message(json.dumps({"id": self.number, "method": method, "params": options}))
        while True:
            text = await self.socket.read_message()
            if text is None:
                raise RuntimeError(f"the browser ended before it answered {method}")
            message = json.loads(text)
            if message.get("id") == self.number:
                return message.get("result", {})
            self.events.append(message)

    async def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript; None where it has none."""
        found = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return found.get("result", {}).get("value")

    async def faults(self, page: Path, width: int, scheme: str, picture: Path | None = None) -> list[str]:
        """What is wrong with a page in a window; a picture of it is written if there is a place for one."""
        self.events.clear()
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        await self.call("Page.navigate", url=page.resolve().as_uri())
        found = await self.value_within(READY) and await self.value_within(FAULTS)
        if not found:
            return ["the page does not load"]
        if picture is not None:
            whole = {"x": 0, "y": 0, "width": width, "height": min(found["height"], 8 * HEIGHT), "scale": 1}
            shot = await self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=whole)
            picture.write_bytes(base64.b64decode(shot["data"]))
        return [*found["faults"], *told(self.events)]

    async def value_within(self, expression: str) -> Any:
        """The first value that is not empty, within some seconds."""
        for _ in range(STEPS):
            if value := await self.value(expression):
                return value
            await sleep(WAIT_S)
        return None


def told(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The errors, warnings and addresses outside of the site that a browser told of."""
    for event in events:
        kind, what = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            yield f"exception: {what['exceptionDetails']['text']}"
        if kind == "Log.entryAdded" and what["entry"]["level"] == "error":
            yield f"console: {what['entry']['text']}"
        if kind == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
            yield f"console: {what['args']}"
        if kind == "Network.requestWillBeSent" and not what["request"]["url"].startswith(LOCAL):
            yield f"asks for {what['request']['url']}"


def browser_path() -> str:
    """A Chromium of this machine; empty if there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), "")


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """A window of a headless Chromium, which ends with the context."""
    with TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files",
                   "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]  # fmt: skip
        process = subprocess.Popen([browser_path(), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port = Path(profile) / "DevToolsActivePort"
            for _ in range(STEPS):
                if port.exists() and len(lines := port.read_text().split()) == 2:
                    break
                await sleep(WAIT_S)
            address = f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            root = Browser(await websocket_connect(address, max_message_size=1 << 28))
            target = (await root.call("Target.createTarget", url="about:blank"))["targetId"]
            page = f"ws://127.0.0.1:{lines[0]}/devtools/page/{target}"
            window = Browser(await websocket_connect(page, max_message_size=1 << 28))
            for domain in ("Page", "Runtime", "Log", "Network"):
                await window.call(f"{domain}.enable")
            yield window
            for socket in (window.socket, root.socket):
                socket.close()
                while await socket.read_message() is not None:  # until it is closed
                    pass
        finally:
            process.terminate()
            process.wait()


async def look(pages: Iterable[Path], pictures: Path | None = None) -> dict[str, list[str]]:
    """Every view with a fault -> its faults; pictures of all views are written into a folder, if one is given."""
    if not browser_path():
        raise SystemExit(f"no browser is found. Install one of {', '.join(BROWSERS)}.")
    faults = {}
    async with open_browser() as window:
        for page in pages:
            for width, scheme in VIEWS:
                name = f"{page.parent.name}-{page.stem}-{width}-{scheme}"
                picture = None if pictures is None else pictures / f"{name}.png"
                if found := await window.faults(page, width, scheme, picture):
                    faults[name] = found
    return faults
