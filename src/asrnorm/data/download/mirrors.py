"""Downloads over HTTP(S) that resume, try several mirrors, and give the final name to the right file only.

A download is written to `<name>.part` next to its final name; `<name>.part.json` records the URL and the version of the
file, so that a later call, also after a kill, requests only the rest. Proxies and certificates come from the
environment (`https_proxy`, `no_proxy`, `SSL_CERT_FILE`).

pooch would replace only the checksum and the rename here: it takes one URL per file, deletes partial downloads, and
does not limit the size of an answer.
"""

import http.client
import json
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from asrnorm.core.errors import FetchError, first_line
from asrnorm.core.files import sync_file
from asrnorm.core.reading import read_json
from asrnorm.data.download.content import matches

DISK_MARGIN = 64 << 20  # bytes left free on the disk
MAX_BYTES = 16 << 30  # of a file whose size is not known beforehand
_CHUNK = 256 << 10
_HEADERS = {"User-Agent": "asrnorm-data-fetch", "Accept-Encoding": "identity"}
Progress = Callable[[int, int | None], None]
"""Called with the bytes received and the bytes in total (None if the server does not say)."""


@dataclass(frozen=True)
class Policy:
    """Timeouts and retries of a download."""

    timeout: float = 30.0  # seconds without a byte, or without a connection, that count as a failure
    attempts: int = 3  # failures in a row without any new byte before the next mirror is tried
    pause: float = 1.0  # seconds before the second attempt; doubled each time


class NoMirrorError(FetchError):
    """No mirror provided the file; `reasons` has one phrase per host."""

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        self.reasons = tuple(dict.fromkeys(reasons)) or ("no mirror is known",)
        super().__init__(f"{name}: no mirror provides it ({'; '.join(self.reasons)})")


class _MirrorError(Exception):
    """One mirror failed; `retry`: another attempt may help, `unreachable`: the host does not answer at all."""

    def __init__(self, reason: str, retry: bool = False, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.retry, self.unreachable = retry, unreachable


def download(
    urls: Sequence[str],
    destination: Path,
    *,
    digest: str = "",
    size: int | None = None,
    progress: Progress | None = None,
    policy: Policy | None = None,
    unreachable: set[str] | None = None,
) -> Path:
    """Download one file from the first of its mirrors that has the right bytes, and return `destination`.

    `digest` (`algorithm:hex`) and `size` are those of the right file, if they are known. Hosts in `unreachable` are
    skipped, and those that do not answer are added to it.

    Raises:
        FetchError: no mirror provided the right file (`NoMirrorError`), or the disk is too small. The bytes received
            stay in `.part` for the next call, unless their checksum is wrong or the disk is full.
    """
    progress = progress or (lambda _done, _total: None)
    transfer = _Transfer(PartialFile(destination), digest, size, progress, policy or Policy())
    skipped = set() if unreachable is None else unreachable
    reasons = []
    for url in urls:
        host = _host(url)
        if host in skipped:
            reasons.append(f"{host}: cannot be reached")
            continue
        try:
            transfer.run(url)
            transfer.part.install()
            return destination
        except _MirrorError as error:
            reasons.append(f"{host}: {error}")
            if error.unreachable:
                skipped.add(host)
    raise NoMirrorError(destination.name, reasons)


class PartialFile:
    """The bytes received so far for `destination`, and a note of where they came from."""

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self.path = destination.with_name(destination.name + ".part")
        self._note = destination.with_name(destination.name + ".part.json")

    def __len__(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def validator(self, url: str) -> str:
        """Return the ETag or date of the version at `url` that the bytes belong to; empty if it is not known."""
        try:
            note = read_json(self._note)
            return str(note["validator"]) if note["url"] == url else ""
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def record(self, url: str, headers: Any) -> None:
        """Record where the bytes come from, before the first of them is written."""
        etag = headers.get("ETag") or ""
        # A weak tag does not promise equal bytes, so a range request cannot rely on it.
        validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified") or ""
        self._note.write_text(json.dumps({"url": url, "validator": validator}))

    def discard(self) -> None:
        """Delete the bytes and the note."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def install(self) -> None:
        """Give the file its final name."""
        sync_file(self.path)
        self.path.replace(self.destination)
        self._note.unlink(missing_ok=True)


def check_disk(name: str, folder: Path, needed: int) -> None:
    """Raise `FetchError` if the disk of `folder` is too full for `needed` more bytes and a margin."""
    free = shutil.disk_usage(folder).free
    if needed + DISK_MARGIN > free:
        raise FetchError(
            f"{name}: needs {(needed + DISK_MARGIN) >> 20} MiB in {folder}, which has {free >> 20} MiB free"
        )


@dataclass(frozen=True)
class _Transfer:
    """The download of one file from any of its mirrors."""

    part: PartialFile
    digest: str
    size: int | None
    progress: Progress
    policy: Policy

    def run(self, url: str) -> None:
        """Request `url` until the partial file is the right file, or raise `_MirrorError`."""
        failures = 0
        resumed = len(self.part) > 0
        while True:
            before = len(self.part)
            try:
                self._request(url)
            except _MirrorError as error:
                failures = 1 if len(self.part) > before else failures + 1
                if not error.retry or failures >= self.policy.attempts:
                    raise
                time.sleep(self.policy.pause * 2 ** (failures - 1))
                continue
            if not self.digest or matches(self.part.path, self.digest):
                return
            self.part.discard()
            if not resumed:
                raise _MirrorError("another file than the published one (checksum differs)")
            resumed = False  # the bytes of an earlier call may have been wrong: start again once

    def _request(self, url: str) -> None:
        """Send one request, for all bytes or for the missing ones, and append the answer."""
        part, digest = self.part, self.digest
        have = len(part)
        if self.size is not None and have >= self.size:
            if have == self.size and digest:
                return
            part.discard()
            have = 0
        headers = dict(_HEADERS)
        validator = part.validator(url)
        if have and (validator or digest):  # without either, nothing shows that two halves belong together
            headers["Range"] = f"bytes={have}-"
            if validator:
                headers["If-Range"] = validator
        else:
            have = 0
        try:
            with _open(urllib.request.Request(url, headers=headers), self.policy) as response:
                have = _offset(response, have)
                total = self._total(response, have)
                check_disk(part.destination.name, part.path.parent, (total or 0) - have)
                if not have:
                    part.discard()
                part.record(url, response.headers)
                self._receive(response, have, total)
        except urllib.error.HTTPError as error:
            if error.code == 416 and have:
                if digest and matches(part.path, digest):  # stopped between the last byte and the checksum
                    return
                part.discard()
                raise _MirrorError("has fewer bytes than were received", retry=True) from error
            retry = error.code in (408, 425, 429) or error.code >= 500
            raise _MirrorError(f"HTTP {error.code}", retry=retry) from error
        except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
            raise _MirrorError(f"connection broke ({first_line(error)})", retry=True) from error
        except ValueError as error:  # a malformed address, of the mirror or of a proxy
            raise _MirrorError(f"malformed address ({first_line(error)})", unreachable=True) from error

    def _total(self, response: Any, have: int) -> int | None:
        length = response.headers.get("Content-Length")
        if not (length and length.isdigit()):
            return self.size
        total = have + int(length)
        if self.size is not None and total != self.size:
            raise _MirrorError(f"has {total} bytes, the published file {self.size}")
        if total > MAX_BYTES:
            raise _MirrorError(f"announces {total} bytes, more than any data set here")
        return total

    def _receive(self, response: Any, done: int, total: int | None) -> None:
        self.progress(done, total)
        with self.part.path.open("ab") as stream:
            while chunk := _read(response):
                done += len(chunk)
                if done > (MAX_BYTES if total is None else total):
                    raise _MirrorError("sends more bytes than it should")
                try:
                    stream.write(chunk)
                    stream.flush()
                except OSError as error:
                    self.part.discard()  # frees the full disk
                    raise FetchError(f"{self.part.destination}: cannot be written: {error.strerror}") from error
                self.progress(done, total)
        if total is not None and done < total:
            raise _MirrorError(f"stopped after {done} of {total} bytes", retry=True)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http(s) only, and never from https down to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if after not in ("http", "https") or (before == "https" and after == "http"):
            raise _MirrorError(f"redirects to {after}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(request: urllib.request.Request, policy: Policy) -> Any:
    opener = urllib.request.build_opener(_Redirects)
    try:
        return opener.open(request, timeout=policy.timeout)
    except urllib.error.HTTPError:
        raise
    except urllib.error.URLError as error:
        unknown_host = isinstance(error.reason, socket.gaierror)
        reason = "cannot be reached" if unknown_host else f"cannot be reached ({first_line(error.reason)})"
        raise _MirrorError(reason, unreachable=True) from error


def _offset(response: Any, have: int) -> int:
    """Return where the first byte of the response belongs: 0, or `have` if the server honoured the range."""
    if "text/html" in (response.headers.get("Content-Type") or ""):
        raise _MirrorError("answers with a web page instead of the file")
    if response.status != 206:
        return 0
    content_range = response.headers.get("Content-Range") or ""
    if not content_range.startswith(f"bytes {have}-"):
        raise _MirrorError(f"sends another range than asked for ({content_range or 'none'})")
    return have


def _read(response: Any) -> bytes:
    try:
        return bytes(response.read(_CHUNK))
    except (OSError, http.client.HTTPException) as error:
        raise _MirrorError(f"connection broke ({first_line(error)})", retry=True) from error


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or url
    except ValueError:  # a malformed address
        return url
