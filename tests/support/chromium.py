"""Chromium without a window, told what to do over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClientConnection, websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
HEIGHT, TALLEST = 900, 1600
"""Pixels of the window, and of a picture at most."""

LONGEST = 200
"""Seconds of a look."""

MOST_BYTES = 64 << 20
"""Of a message: pictures come as text."""

FACTS = """(() => {
    const inside = node => [...node.querySelectorAll("*")].filter(each => each.shadowRoot).map(each =>
        [...each.shadowRoot.children].map(child => child.innerText ?? "").join(" ") + inside(each.shadowRoot)
    ).join(" ");
    return JSON.stringify({
        title: document.title, text: (document.body?.innerText ?? "") + inside(document),
        width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight,
        cut: [...document.querySelectorAll("dd")].filter(each => each.scrollHeight > each.clientHeight + 1)
            .map(each => each.innerText),
        broken: [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)});
})()"""


@dataclass(frozen=True)
class Seen:
    """A page as it was shown.

    width, height: in pixels. cut: definitions of which a part is out of sight; broken: pictures that are
    missing; errors: of scripts and resources. picture: PNG. answer: the value of what was to be evaluated.
    """

    title: str
    text: str
    width: int
    height: int
    cut: list[str]
    broken: list[str]
    errors: list[str]
    picture: bytes
    answer: Any


def find_browser() -> str | None:
    """The program, or None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass(frozen=True)
class Browser:
    """A running browser; address: of its DevTools."""

    address: str

    def look(
        self, url: str, width: int, ready: Callable[[str], bool], dark: bool = False, after: str = "0"
    ) -> Seen:
        """A page in a window of this width, as soon as `ready` says so of its text, after 20 s at most.

        dark: as a browser that prefers dark pages. after: an expression, or a promise, waited for then.
        """
        with urllib.request.urlopen(f"{self.address}/json/list", timeout=20) as answer:
            target = next(each for each in json.load(answer) if each["type"] == "page")
        return IOLoop(make_current=False).run_sync(
            lambda: _look(target["webSocketDebuggerUrl"], url, width, ready, dark, after), timeout=LONGEST
        )


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    """The browser until the block ends."""
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0")
    command = [program, *options, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            found = (re.search(r"listening on ws://([^/]+)/", line) for line in process.stderr)
            yield Browser("http://" + next(filter(None, found))[1])
        finally:
            process.kill()


async def _look(
    socket: str, url: str, width: int, ready: Callable[[str], bool], dark: bool, after: str
) -> Seen:
    page = _Page(await websocket_connect(socket, max_message_size=MOST_BYTES))
    for domain in ("Page", "Runtime", "Log"):
        await page.call(f"{domain}.enable")
    screen = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": width < 600}
    await page.call("Emulation.setDeviceMetricsOverride", **screen)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    await page.call("Emulation.setEmulatedMedia", features=[scheme])
    await page.call("Page.navigate", url=url)
    for _ in range(80):
        await page.pause(0.25)
        facts = json.loads((await page.call("Runtime.evaluate", expression=FACTS))["result"]["value"])
        if ready(facts["text"]):
            break
    await page.pause(0.5)
    answer = await page.call("Runtime.evaluate", expression=after, awaitPromise=True, returnByValue=True)
    area = {"x": 0, "y": 0, "width": width, "height": min(facts["height"], TALLEST), "scale": 1}
    taken = await page.call("Page.captureScreenshot", captureBeyondViewport=True, clip=area)
    await page.call("Page.navigate", url="about:blank")
    page.socket.close()
    picture = base64.b64decode(taken["data"])
    return Seen(**facts, errors=page.errors, picture=picture, answer=answer["result"].get("value"))


class _Page:
    """Calls one after the other; errors that the page reports meanwhile."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self.socket, self.errors, self._number = socket, list[str](), 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self.socket.write_message(
            json.dumps({"id": self._number, "method": method, "params": parameters})
        )
        while (message := await self.socket.read_message()) is not None:
            heard = json.loads(message)
            if heard.get("id") == self._number:
                assert "error" not in heard, heard
                return heard["result"]
            self._note(heard)
        raise ConnectionError(f"the browser went away during {method}")

    async def pause(self, seconds: float) -> None:
        """Let the page work, in its own time."""
        expression = f"new Promise(done => setTimeout(done, {1000 * seconds}))"
        await self.call("Runtime.evaluate", expression=expression, awaitPromise=True)

    def _note(self, heard: dict[str, Any]) -> None:
        if heard["method"] == "Runtime.exceptionThrown":
            self.errors.append(heard["params"]["exceptionDetails"]["text"])
        entry = heard["params"].get("entry", {})
        if entry.get("level") == "error":
            self.errors.append(entry["text"])
