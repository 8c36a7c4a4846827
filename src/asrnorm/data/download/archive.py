"""Unpacking of untrusted archives: zip (and wheels), tar in any compression, and single compressed files.

Only requested members are written, to names that the caller chooses, as new plain files below one folder. Links and
devices are never created. `Limits` bounds the bytes decompressed and written, whatever the archive declares.
"""

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from asrnorm.core.errors import AsrnormError, FetchError, InputError, first_line
from asrnorm.data.download.catalog import path_inside

# A tar header (long name, pax record) is read in one piece; archives of data sets need less than this.
MAX_READ = 8 << 20
# Small archives may expand a thousandfold (a blank image), so the ratio is checked from this size on.
RATIO_FROM = 64 << 20
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Limits:
    """How much an archive may expand to."""

    total: int = 8 << 30  # bytes, in a compressed tar of everything decompressed on the way
    ratio: float = 200.0  # decompressed bytes per byte of archive, above 64 MiB
    members: int = 500_000  # requested or not


@dataclass(frozen=True)
class _Member:
    name: str
    is_plain: bool
    is_folder: bool
    open: Callable[[], IO[bytes]]


def unpack(
    archive: Path, folder: Path, select: Callable[[str], str | None], limits: Limits | None = None
) -> dict[str, Path]:
    """Write the requested members of an archive as new files below an existing folder that nobody else writes to.

    `select` maps a member's name to a path below the folder, or to None to skip it. The result has the file written
    for each such path, in the order of the archive.

    Raises:
        InputError: the file is not an archive, or is damaged or hostile.
        FetchError: the files could not be written, for example on a full disk.
    """
    written: dict[str, Path] = {}
    budget = _Budget(archive, limits or Limits())
    try:
        for count, member in enumerate(_members(archive, budget), start=1):
            if count > budget.limits.members:
                raise InputError(f"{archive.name}: more than {budget.limits.members} members; not a data set's archive")
            _check_name(archive, member.name)
            # Some zip files of Windows have backslashes.
            target = None if member.is_folder else select(member.name.replace("\\", "/"))
            if target is None:
                continue
            if not member.is_plain:
                raise InputError(f"{archive.name}: {member.name!r} is a link or a device, not a file")
            written[target] = _write(archive, member, path_inside(folder, target), budget)
    except AsrnormError:
        raise
    except Exception as error:  # the parsers of the standard library raise anything on damaged input
        if isinstance(error, OSError) and error.errno is not None:  # gzip and bz2 raise it without a number
            raise FetchError(f"{archive.name}: cannot be unpacked into {folder}: {error.strerror}") from error
        raise InputError(f"{archive.name}: damaged or cut short ({first_line(error)}); download it again") from error
    return written


def is_archive(path: Path) -> bool:
    """Return whether the file begins like an archive or compressed file that `unpack` reads."""
    with path.open("rb") as stream:
        head = stream.read(512)
    return _is_zip(head) or _opener(head) is not None or _is_tar(head)


@dataclass(frozen=True)
class _Budget:
    """Stops an archive that expands beyond its limits."""

    archive: Path
    limits: Limits

    def check(self, expanded: int) -> None:
        largest = max(RATIO_FROM, self.archive.stat().st_size * self.limits.ratio)
        if expanded > min(self.limits.total, largest):
            raise InputError(f"{self.archive.name}: expands beyond {expanded >> 20} MiB, as a decompression bomb does")


@dataclass(frozen=True)
class _Guard:
    """A decompressed stream for `tarfile` that rejects huge reads and stops at the budget."""

    inner: IO[bytes]
    budget: _Budget

    def read(self, count: int = -1) -> bytes:
        if not 0 <= count <= MAX_READ:
            raise InputError(f"{self.budget.archive.name}: a header of {count} bytes; damaged or hostile")
        data = self.inner.read(count)
        self.budget.check(self.inner.tell())
        return data

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            raise InputError(f"{self.budget.archive.name}: unexpected seek")
        self.budget.check(position)
        return self.inner.seek(position)

    def tell(self) -> int:
        return self.inner.tell()

    def __enter__(self) -> "_Guard":
        return self

    def __exit__(self, *_: object) -> None: ...  # the owner of the inner stream closes it


def _members(archive: Path, budget: _Budget) -> Iterator[_Member]:
    with archive.open("rb") as raw:
        head = raw.read(512)
        raw.seek(0)
        if _is_zip(head):
            yield from _zip_members(raw, budget)
        elif opener := _opener(head):
            with opener(raw) as inner:
                start = inner.read(512)
                inner.seek(0)
                if _is_tar(start):
                    yield from _tar_members(inner, budget)
                else:
                    name = archive.name.rsplit(".", 1)[0]
                    yield _Member(name, True, False, open=lambda: cast(IO[bytes], _Guard(inner, budget)))
        elif _is_tar(head):
            yield from _tar_members(raw, budget)
        else:
            raise InputError(f"{archive.name}: not a zip, tar, gz, bz2 or xz file")


def _zip_members(raw: IO[bytes], budget: _Budget) -> Iterator[_Member]:
    with zipfile.ZipFile(raw) as opened:
        entries = opened.infolist()
        budget.check(sum(entry.file_size for entry in entries))
        for entry in entries:
            kind = stat.S_IFMT(entry.external_attr >> 16)
            yield _Member(
                entry.orig_filename,  # `filename` is cut at a NUL and has separators replaced
                is_plain=kind in (0, stat.S_IFREG),
                is_folder=entry.is_dir(),
                open=lambda entry=entry: opened.open(entry),  # type: ignore[misc]
            )


def _tar_members(inner: IO[bytes], budget: _Budget) -> Iterator[_Member]:
    with tarfile.open(fileobj=cast(IO[bytes], _Guard(inner, budget)), mode="r:") as opened:
        while (entry := opened.next()) is not None:
            yield _Member(
                entry.name,
                is_plain=entry.isreg() and not entry.issparse(),
                is_folder=entry.isdir(),
                open=lambda entry=entry: cast(IO[bytes], opened.extractfile(entry)),  # type: ignore[misc]
            )
            cast(Any, opened).members = []  # tarfile keeps every header; millions of them would fill the memory


def _is_zip(head: bytes) -> bool:
    return head[:4] in (b"PK\x03\x04", b"PK\x05\x06")


def _opener(head: bytes) -> Callable[[Any], Any] | None:
    openers: Any = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
    return next((opener for magic, opener in openers.items() if head.startswith(magic)), None)


def _is_tar(head: bytes) -> bool:
    if head[257:262] == b"ustar":
        return True
    try:  # tar files older than POSIX have only a header checksum
        return len(head) == 512 and head[:1] != b"\0" and bool(tarfile.TarInfo.frombuf(head, "utf-8", "replace"))
    except (tarfile.TarError, ValueError):
        return False


def _check_name(archive: Path, name: str) -> None:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if name.startswith(("/", "\\")) or ".." in parts or (parts and parts[0].endswith(":")) or name[1:3] == ":\\":
        raise InputError(f"{archive.name}: {name!r} leads outside the folder; hostile archive, refused")


def _write(archive: Path, member: _Member, target: Path, budget: _Budget) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        stream = target.open("xb")
    except FileExistsError:  # the same member again, one that differs in case only, or a folder of that name
        raise InputError(f"{archive.name}: {member.name!r} comes twice") from None
    done = 0
    with stream, member.open() as inner:
        while chunk := inner.read(_CHUNK):
            done += len(chunk)
            budget.check(done)
            stream.write(chunk)
    return target
