"""A headless Chromium, driven by its own protocol over a pipe: pages in any width and color scheme, and what they load and say.

Protocol: Chrome DevTools Protocol, messages that end with a zero byte, on file descriptors 3 and 4 (--remote-debugging-pipe).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = os.environ.get("FLUIDTOOL_TEST_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
MISSING = f"needs a browser: none of {', '.join(NAMES)} is in PATH"
DEADLINE = 60.0  # seconds that an answer may take


class Browser:
    """One page of a running browser. `requests`, `complaints`: what it loaded, and what its console said, since `open`."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._left, self._last, self._session = write, read, b"", 0, ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.forget()

    def call(self, method: str, **params: Any) -> Any:
        """The result of a method of the protocol."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._last:
            self._event(answer)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def forget(self) -> None:
        """Go on with another page that shares no storage with those before."""
        self._session = ""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, address: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self.requests, self.complaints = [], []
        assert "errorText" not in self.call("Page.navigate", url=address)
        while self._event(self._message()) != "Page.loadEventFired":
            pass

    def look(self, width: int, dark: bool) -> None:
        """Show the page at a width, in a color scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives in the page, or what its promise is fulfilled with."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """The value of an expression once it is true."""
        end = time.monotonic() + DEADLINE
        while not (found := self.value(expression)):
            assert time.monotonic() < end, f"not true after {DEADLINE:.0f} s: {expression}"
            time.sleep(0.05)
        return found

    def _message(self) -> Any:
        while b"\0" not in self._left:
            assert select.select([self._read], [], [], DEADLINE)[0], "the browser does not answer"
            part = os.read(self._read, 1 << 16)
            assert part, "the browser ended"
            self._left += part
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)

    def _event(self, message: Any) -> str:
        method, params = message.get("method", ""), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        return str(method)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with a new profile; it ends with the block."""
    import fcntl  # where there is no pipe of file descriptors there is no browser either: Windows

    ends = [*os.pipe(), *os.pipe()]
    theirs_in, ours_out, ours_in, theirs_out = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)

    def connect() -> None:
        os.dup2(theirs_in, 3)
        os.dup2(theirs_out, 4)

    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-background-networking",
    ]
    command = [str(BROWSER), *options, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        command,
        preexec_fn=connect,  # noqa: PLW1509 (it only makes two system calls)
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_out, ours_in)
    finally:
        process.terminate()
        process.wait(30)
        os.close(ours_out)
        os.close(ours_in)
