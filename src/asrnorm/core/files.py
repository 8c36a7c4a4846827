"""Atomic file writes, and locks that a crash releases."""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

from asrnorm.core.errors import InputError, StorageError

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_OPEN_FILES = "/proc/"  # target of /dev/stdout and /dev/fd
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


def write_whole(path: Path, content: bytes | str, *, follow_links: bool = True) -> None:
    """Write a file atomically: after a crash or power loss it holds the old content or the new one, complete.

    `follow_links` is that of `replacing`. Raises `StorageError` if the disk is full or the folder is not writable.
    """
    try:
        with replacing(path, follow_links=follow_links) as temporary:
            temporary.write_bytes(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)
    except OSError as error:
        raise StorageError(describe_failure(error, path)) from None


@contextmanager
def replacing(path: Path, *, follow_links: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`; the file written there replaces `path` when the block ends.

    The temporary name is hidden and keeps the suffix, `.<name>.<process>.tmp<suffix>`, because libraries choose the
    format by suffix. The parent folder is created. After an error the temporary file is removed and `path` is
    unchanged.

    Args:
        path: the file. If it is a link, the file it points to is replaced; if it is a device or a pipe such as
            `/dev/stdout`, the content is written into it.
        follow_links: `False` replaces a link, device or pipe itself, for files in a folder that somebody else may have
            made: a link there must not choose which file is overwritten.

    Raises:
        OSError: from the system, naming `path` instead of the temporary file, for callers that add their own message.
    """
    if follow_links and _is_special(path):
        with _writing_into(path) as temporary:
            yield temporary
        return
    if follow_links and path.is_symlink():
        path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path)
        temporary.unlink(missing_ok=True)  # of a killed process of the same number, or a link
        yield temporary
        sync_file(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            _name_file(error, temporary, path)
        raise


def open_to_append(path: Path) -> IO[bytes]:
    """Open a file to append to it; raise `OSError` if it is a link, for the reason given in `replacing`."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)

    try:
        return open(path, "ab", opener=opener)
    except OSError as error:
        if path.is_symlink():
            raise OSError(error.errno, "is a symbolic link, and a file of a run must not be one; remove it") from None
        raise


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files that killed processes left beside `path`."""
    for leftover in _find_temporary(path.parent.absolute()):
        number = leftover.name.removeprefix(f".{path.name}.").removesuffix(f".tmp{path.suffix}")
        if number.isdecimal() and not _is_running(int(number)):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)


@cache
def _find_temporary(folder: Path) -> tuple[Path, ...]:
    """Return the temporary files that a folder has at the first write; listed once, for folders of many files."""
    return tuple(folder.glob(".*.tmp*"))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # the number comes from a file name
        return False
    except OSError:  # a process of another user
        return True
    return True


def _is_special(path: Path) -> bool:
    """Tell whether a path is a device, a pipe or an open file, which must not be replaced by a file."""
    try:
        mode = path.stat().st_mode
        return is_open_file(path) or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    except OSError:
        return False


def is_open_file(path: Path) -> bool:
    """Tell whether a path names a file that a process has open, such as `/dev/stdin` or `/dev/fd/3`."""
    target = str(path.readlink()) if path.is_symlink() else ""
    return any(name.startswith(_OPEN_FILES) for name in (target, f"{path.parent.resolve()}/"))


@contextmanager
def _writing_into(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder, path.name)
        yield temporary
        try:
            with temporary.open("rb") as content, path.open("wb") as device:
                shutil.copyfileobj(content, device)
        except BrokenPipeError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None


def _name_file(error: OSError, temporary: Path, path: Path) -> None:
    if error.errno is None or error.filename not in (None, temporary, str(temporary)):
        return
    error.filename = str(path)
    if error.filename2 is not None:  # set by a rename
        del error.filename2


def sync_file(path: Path) -> None:
    """Flush the content of a file to disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of the content of a file; raise `InputError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(describe_failure(error, path)) from None


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk where the system supports it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows cannot open folders; others may be writable but not readable
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:  # returned by some network file systems
            raise
    finally:
        os.close(handle)


def describe_failure(error: OSError, path: Path) -> str:
    """Return one line with the file and the reason the system gave."""
    return f"{path}: {error.strerror or error}"


_BUSY = frozenset({errno.EACCES, errno.EAGAIN})
# File systems without locks: two processes may do the same work twice, but renames still leave one complete file.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


def take_lock(file: IO[bytes] | int, *, wait: bool = False, shared: bool = False) -> bool:
    """Lock an open file, or its descriptor, until it is closed; return `False` on a file system without locks.

    The kernel releases the lock when the process ends, however it ends. While another process holds it, `wait` blocks,
    and otherwise `BlockingIOError` is raised.
    """
    import fcntl  # Unix only; importing the package must not need it

    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(file, how)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        if error.errno in _BUSY:
            raise BlockingIOError(error.errno, error.strerror) from None
        raise
    return True


@contextmanager
def hold_lock(path: Path) -> Iterator[bool]:
    """Hold the lock file `path` during a `with` block, waiting until it is free; yield whether it is locked.

    The empty file stays: if it were removed, a third process could lock a new file of the same name.
    """
    with path.open("ab") as handle:
        yield take_lock(handle, wait=True)
