"""An HTTP server on 127.0.0.1 that serves ranges, and misbehaves where a test asks it to."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Page:
    """What one path answers.

    Args:
        body: the whole file.
        etag: its version; sent, and compared with If-Range.
        cut: the first so many answers stop after `cut_at` bytes.
        status: answers with this status alone.
        location: redirects there.
        ranges: whether Range is honoured.
        pause: seconds between pieces of 64 KiB.
        kind: Content-Type.
        lie: announce this length instead of the right one; none if negative.
    """

    body: bytes = b""
    etag: str = '"v1"'
    cut: int = 0
    cut_at: int = 0
    status: int = 0
    location: str = ""
    ranges: bool = True
    pause: float = 0.0
    kind: str = "application/octet-stream"
    lie: int | None = None


@dataclass
class Server:
    """Pages by path, and the requests that came: `(path, headers)`."""

    pages: dict[str, Page] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    address: str = ""

    def url(self, path: str) -> str:
        return f"{self.address}{path}"


@contextmanager
def serve() -> Iterator[Server]:
    server = Server()
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    http.daemon_threads = True
    server.address = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def _handler(server: Server) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.requests.append((self.path, dict(self.headers)))
            page = server.pages.get(self.path, Page(status=404))
            if page.location:
                self.send_response(302)
                self.send_header("Location", page.location)
                self.end_headers()
                return
            if page.status:
                self.send_error(page.status)
                return
            start = self._start(page)
            if start is None:
                self.send_error(416)
                return
            body = page.body[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Type", page.kind)
            self.send_header("ETag", page.etag)
            if page.lie is None or page.lie >= 0:
                self.send_header("Content-Length", str(len(body) if page.lie is None else page.lie))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(page.body) - 1}/{len(page.body)}")
            self.end_headers()
            self._send(page, body)

        def _start(self, page: Page) -> int | None:
            wanted = self.headers.get("Range")
            if not wanted or not page.ranges or self.headers.get("If-Range", page.etag) != page.etag:
                return 0
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            return start if start < len(page.body) else None

        def _send(self, page: Page, body: bytes) -> None:
            if page.cut:
                page.cut -= 1
                body = body[: page.cut_at]
            try:
                for at in range(0, len(body), 1 << 16):
                    self.wfile.write(body[at : at + (1 << 16)])
                    time.sleep(page.pause)
            except ConnectionError:
                pass  # the client was killed, as some tests do
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    return Handler
