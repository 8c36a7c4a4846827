"""A headless chromium, driven over a pipe by the DevTools protocol: no driver, no package, no open port."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# The browser reads commands from descriptor 3 and answers on 4; both must be there when it starts.
_LAUNCH = (
    "import os, sys; r, w = map(int, sys.argv[1:3]); r, w = os.dup(r), os.dup(w); "
    "r2, w2 = os.dup(r), os.dup(w); os.dup2(r2, 3); os.dup2(w2, 4); os.execvp(sys.argv[3], sys.argv[3:])"
)
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Page:
    """One tab. What went wrong in it is in `problems`, what it asked for in `requests`."""

    def __init__(self, browser, session):
        self._browser, self._session = browser, session
        self.problems: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def _call(self, method, **parameters):
        return self._browser.call(method, self._session, **parameters)

    def open(self, path: Path, *, width=1200, height=900, dark=False):
        """Show a file in a window of this size, and wait until it is there."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self._call("Emulation.setEmulatedMedia", features=[scheme, still])
        self.visit(path.resolve().as_uri())
        return self

    def visit(self, address: str):
        """Go to an address and wait until it is there."""
        self._call("Page.navigate", url=address)
        self._browser.wait(lambda event: event.get("method") == "Page.loadEventFired")

    def run(self, script: str):
        """Return the value of an expression of JavaScript."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"]["exception"].get("description", answer))
        return answer["result"].get("value")

    def press(self, key: str):
        """Press and release a key, such as Enter."""
        text = {"Enter": "\r", " ": " "}.get(key)
        extra = {"text": text} if text else {}
        code = {"Enter": 13, "Tab": 9, " ": 32}[key]
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **extra)

    def picture(self, path: Path, *, whole=False):
        """Write what is seen, or the whole page, as PNG."""
        data = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def note(self, event):
        method, values = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(values["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.problems.append(str(values["args"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.problems.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])


class Browser:
    """A running chromium."""

    def __init__(self, process, commands, answers):
        self._process, self._commands, self._answers = process, commands, answers
        self._number, self._rest, self._past = 0, b"", []
        self.page: Page | None = None

    def call(self, method, session=None, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._past.append(answer)

    def wait(self, wanted):
        """Return the next event that is wanted, among those that came while another answer was waited for too."""
        while self._past:
            event = self._past.pop(0)
            if wanted(event):
                return event
        while not wanted(event := self._read()):
            pass
        return event

    def _read(self):
        while b"\0" not in self._rest:
            part = os.read(self._answers, 1 << 20)
            assert part, "chromium has gone"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        if self.page is not None and "method" in message:
            self.page.note(message)
        return message

    def new_page(self) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.page = Page(self, session)
        return self.page


@contextlib.contextmanager
def open_browser():
    """Give a browser; it and its profile are gone afterwards."""
    command_out, command_in = os.pipe()
    answer_out, answer_in = os.pipe()
    # Its profile goes under a home of its own, so that nothing of the user's is read or written.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        flags = [*_FLAGS, f"--user-data-dir={home}/profile"]
        process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(command_out), str(answer_in), str(CHROMIUM), *flags],
            pass_fds=(command_out, answer_in),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": home},
        )
        os.close(command_out)
        os.close(answer_in)
        browser = Browser(process, command_in, answer_out)
        try:
            yield browser
        finally:
            with contextlib.suppress(OSError, AssertionError):
                browser.call("Browser.close")
            os.close(command_in)
            os.close(answer_out)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
