"""Downloads over HTTP(S) that resume, try several mirrors, and leave either the right file or none.

A download grows in `<name>.part` beside its final name; `<name>.part.json` remembers where it came from, so that a
later call, also after a kill, asks the same server for the rest. Proxies and certificates are those of the environment
(`https_proxy`, `no_proxy`, `SSL_CERT_FILE`).
"""

import http.client
import json
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
from asrnorm.data.fetch.checksum import matches
from asrnorm.data.fetch.partial_file import PartialFile

CHUNK = 256 << 10
LARGEST = 16 << 30  # where the size is not known beforehand
_MOST_JSON = 16 << 20  # bytes of a registry's answer
AGENT = {"User-Agent": "asrnorm-data-fetch", "Accept-Encoding": "identity"}
Progress = Callable[[int, int | None], None]
"""Called with the bytes there and the bytes in all (None where the server does not say)."""


@dataclass(frozen=True)
class Policy:
    """How patient a download is.

    Args:
        timeout: seconds without a byte, or without a connection, that count as a failure.
        attempts: failures in a row without any new byte before the next mirror is tried.
        pause: seconds before the second attempt; doubled each time.
    """

    timeout: float = 30.0
    attempts: int = 3
    pause: float = 1.0


class NoMirrorError(FetchError):
    """No mirror gave the file; `reasons` has one phrase a host."""

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        self.reasons = tuple(dict.fromkeys(reasons)) or ("no mirror is known",)
        super().__init__(f"{name}: no mirror gave it ({'; '.join(self.reasons)})")


class _MirrorError(Exception):
    """This mirror will not do; `again` where trying it once more may help, `unreachable` where the whole host is."""

    def __init__(self, reason: str, again: bool = False, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.again = again
        self.unreachable = unreachable


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http(s) only, and never from https down to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if after not in ("http", "https") or (before == "https" and after == "http"):
            raise _MirrorError(f"redirects to {after}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


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
    """Fetch one file from the first mirror that has it.

    Args:
        urls: mirrors of the same bytes.
        destination: the final name; its folder must exist. A file of that name is replaced.
        digest: `algorithm:hex` of the right file; empty where none is published.
        size: of the right file in bytes, where known.
        progress: told how far it is.
        policy: timeouts and attempts.
        unreachable: hosts that did not answer before and are passed over; those found so are added.

    Returns:
        `destination`.

    Raises:
        FetchError: no mirror gave the right file (`NoMirrorError`), or the disk is too small. What came so far stays
            in `.part` for the next call, unless its checksum is wrong or the disk is full.
    """
    patience = policy or Policy()
    part = PartialFile(destination)
    reasons = []
    gone = set() if unreachable is None else unreachable
    for url in urls:
        host = _host(url)
        if host in gone:
            reasons.append(f"{host}: cannot be reached")
            continue
        try:
            _from_mirror(url, part, digest, size, progress or _silent, patience)
            part.settle()
            return destination
        except _MirrorError as error:
            reasons.append(f"{host}: {error}")
            if error.unreachable:
                gone.add(host)
    raise NoMirrorError(destination.name, reasons)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


def read_json(url: str, policy: Policy | None = None) -> Any:
    """Return the JSON document at `url`, for the small answers of package registries.

    Raises:
        FetchError: the server does not answer, or not with JSON.
    """
    try:
        request = urllib.request.Request(url, headers={**AGENT, "Accept": "application/json"})
        with _open(request, policy or Policy()) as answer:
            return json.loads(answer.read(_MOST_JSON))
    except (_MirrorError, ValueError, http.client.HTTPException, OSError) as error:
        raise FetchError(f"{url}: {first_line(error)}") from error


def _from_mirror(
    url: str, part: PartialFile, digest: str, size: int | None, progress: Progress, patience: Policy
) -> None:
    """Grow `part` from one mirror until it is the right file."""
    failures = 0
    resumed = len(part) > 0
    while True:
        before = len(part)
        try:
            _transfer(url, part, digest, size, progress, patience)
        except _MirrorError as error:
            failures = 1 if len(part) > before else failures + 1
            if not error.again or failures >= patience.attempts:
                raise
            time.sleep(patience.pause * 2 ** (failures - 1))
            continue
        if not digest or matches(part.path, digest):
            return
        part.discard()
        if not resumed:
            raise _MirrorError("another file than the published one (checksum differs)")
        resumed = False  # what lay there before may have been at fault: once more from the start


def _transfer(url: str, part: PartialFile, digest: str, size: int | None, progress: Progress, patience: Policy) -> None:
    """One request: all bytes, or those that are missing."""
    have = len(part)
    if size is not None and have >= size:
        if have == size and digest:
            return
        part.discard()
        have = 0
    headers = dict(AGENT)
    validator = part.validator(url)
    if have and (validator or digest):  # with neither, nobody could tell whether the two halves fit together
        headers["Range"] = f"bytes={have}-"
        if validator:
            headers["If-Range"] = validator
    else:
        have = 0
    try:
        request = urllib.request.Request(url, headers=headers)
        with _open(request, patience) as answer:
            have = _start(answer, have)
            total = _total(answer, have, size)
            part.need((total if total is not None else size or 0) - have)
            if not have:
                part.discard()
            part.remember(url, answer.headers)
            _receive(answer, part, have, total, progress)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:
            if digest and matches(part.path, digest):  # stopped between the last byte and the check
                return
            part.discard()
            raise _MirrorError("has no more than what is here already", again=True) from error
        raise _MirrorError(f"HTTP {error.code}", again=error.code in (408, 425, 429) or error.code >= 500) from error
    except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise _MirrorError(f"connection broke ({first_line(error)})", again=True) from error
    except ValueError as error:  # an address, or that of a proxy, that is none
        raise _MirrorError(f"cannot be asked ({first_line(error)})", unreachable=True) from error


def _open(request: urllib.request.Request, patience: Policy) -> Any:
    opener = urllib.request.build_opener(_Redirects)
    try:
        return opener.open(request, timeout=patience.timeout)
    except urllib.error.HTTPError:
        raise
    except urllib.error.URLError as error:
        nameless = isinstance(error.reason, socket.gaierror)
        reason = "cannot be reached" if nameless else f"cannot be reached ({first_line(error.reason)})"
        raise _MirrorError(reason, unreachable=True) from error


def _start(answer: Any, have: int) -> int:
    """Where the answer's first byte belongs: 0, or `have` where the server honoured the range."""
    if "text/html" in (answer.headers.get("Content-Type") or ""):
        raise _MirrorError("answers with a web page instead of the file")
    if answer.status != 206:
        return 0
    content_range = answer.headers.get("Content-Range") or ""
    if not content_range.startswith(f"bytes {have}-"):
        raise _MirrorError(f"sends another range than asked for ({content_range or 'none'})")
    return have


def _total(answer: Any, have: int, size: int | None) -> int | None:
    length = answer.headers.get("Content-Length")
    total = have + int(length) if length and length.isdigit() else None
    if total is not None and size is not None and total != size:
        raise _MirrorError(f"has {total} bytes, the published file {size}")
    if (total or 0) > LARGEST:
        raise _MirrorError(f"announces {total} bytes, more than any data set here")
    return total if total is not None else size


def _receive(answer: Any, part: PartialFile, have: int, total: int | None, progress: Progress) -> None:
    done = have
    progress(done, total)
    with part.path.open("ab") as stream:
        while block := _read(answer):
            done += len(block)
            if done > (LARGEST if total is None else total):
                raise _MirrorError("sends more bytes than it should")
            try:
                stream.write(block)
                stream.flush()
            except OSError as error:
                part.discard()  # a full disk must not stay full because of us
                raise FetchError(f"{part.destination}: cannot be written: {error.strerror}") from error
            progress(done, total)
    if total is not None and done < total:
        raise _MirrorError(f"stopped after {done} of {total} bytes", again=True)


def _read(answer: Any) -> bytes:
    try:
        return bytes(answer.read(CHUNK))
    except (OSError, http.client.HTTPException) as error:
        raise _MirrorError(f"connection broke ({first_line(error)})", again=True) from error


def _silent(done: int, total: int | None) -> None:
    """Report nothing."""
