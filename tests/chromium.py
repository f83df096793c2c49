"""A real browser for tests: Chromium without a window, driven over its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from websockets.sync.client import ClientConnection, connect

from waiting import WAIT_S, wait_until

PROGRAM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WHY_MISSING: Final = "no Chromium is installed here (apt-get install chromium)" if PROGRAM is None else None


class Chromium:
    """One tab of a browser with a profile of its own.

    Args:
        folder: The folder for the profile.
        width: The width of the tab in pixels.
        height: The height of the tab in pixels.
    """

    def __init__(self, folder: Path, *, width: int = 1280, height: int = 800) -> None:
        assert PROGRAM is not None, WHY_MISSING
        self._numbers = 0
        self.problems: list[str] = []
        """What the browser logged as errors: exceptions of scripts, and what a policy refused."""
        # Root may not use Chromium's own sandbox.
        as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
        self._process = subprocess.Popen(
            [
                PROGRAM,
                *("--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-first-run"),
                *("--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", f"--window-size={width},{height}"),
                *("--disable-background-networking", "--disable-component-update", "--no-proxy-server", *as_root),
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._open = ExitStack()
        self._socket: ClientConnection = self._open.enter_context(connect(self._address(folder), max_size=None))
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        self._open.close()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result."""
        self._numbers += 1
        self._socket.send(json.dumps({"id": self._numbers, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=WAIT_S))
            self._note(message)
            if message.get("id") == self._numbers:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]

    def resize(self, width: int, height: int) -> None:
        """Give the tab this size in pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """Prefer the colour scheme "light" or "dark", as a person does in the settings of the system."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def log_in(self, url: str, token: str, path: str = "/") -> None:
        """Give the browser the cookie that Airflow's login sets."""
        self.call("Network.setCookie", name="_token", value=token, url=url, path=path, httpOnly=True, sameSite="Lax")

    def open(self, url: str) -> None:
        """Open an address, and return once the page and its scripts are loaded."""
        self.evaluate("window.isLeft = true")
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer}"
        self.wait_for("!window.isLeft && document.readyState === 'complete'")

    def follow(self, script: str) -> None:
        """Run a script that leads to another page, and return once that is loaded."""
        self.evaluate(f"window.isLeft = true; {script}")
        self.wait_for("!window.isLeft && document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        result = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in result, f"{script}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true. A page may be left in the meantime."""

        def holds() -> Any:
            try:
                return self.evaluate(f"Boolean({condition})")
            except AssertionError as error:
                if "context" in str(error):
                    return None  # The page was just left.
                raise

        wait_until(holds, describe=lambda: f"{condition}\n{self.evaluate('document.body.innerText')}")

    def press(self, key: str, code: int) -> None:
        """Press a key: its name, and its virtual key code."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def type(self, text: str) -> None:
        """Type text into what has the focus."""
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        """Write what the tab shows as a PNG file."""
        image = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(image))

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(message["params"]["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.problems.append(message["params"]["entry"]["text"])

    def _address(self, folder: Path) -> str:
        """Return the address of the tab's socket, once the browser has written its port into its profile."""
        port_file = folder / "DevToolsActivePort"

        def port() -> str | None:
            assert self._process.poll() is None, f"{PROGRAM} ended with {self._process.returncode}"
            return port_file.read_text().partition("\n")[0] if port_file.exists() else None

        number = wait_until(port)
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            with urllib.request.urlopen(f"http://127.0.0.1:{number}/json/list", timeout=WAIT_S) as answer:
                tabs = [each for each in json.load(answer) if each["type"] == "page"]
            if tabs:
                return str(tabs[0]["webSocketDebuggerUrl"])
            time.sleep(0.1)
        raise AssertionError("Chromium opened no tab")
