"""Files that are there whole or not at all.

Locks between processes that a crash cannot leave behind: the kernel drops them with the process that holds them.
"""

import errno
import glob
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from asrnorm.core.errors import StorageError

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # what the system calls it
_OPEN_FILES = "/proc/"  # where /dev/stdout and /dev/fd lead to
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file so that under its name there is the old content or the new one, whole, whenever the power goes.

    Raises:
        StorageError: the disk is full or the place cannot be written; what was there stays.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as place:
        ...     write_whole(Path(place) / "a", "whole")
        ...     (Path(place) / "a").read_bytes(), len(list(Path(place).iterdir()))
        (b'whole', 1)
    """
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)
    except OSError as error:
        raise StorageError(describe_failure(error, path)) from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; what the body writes there takes the place of `path` once it is on the disk.

    The name is hidden, `.<name>.<process>.tmp<suffix>`: it ends as `path` does, since libraries tell formats by that.
    The folder of `path` is made. After an error, of whatever kind, nothing is left and what was there stays. Behind a
    link it is the file that is replaced, and into a device or a pipe, as `/dev/stdout` is, the content is written.

    Raises:
        OSError: as the system gave it, for a caller that knows more to say than `write_whole` does; it names `path`
            where it named the temporary file or, as on a full disk, none.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as place:
        ...     with replacing(Path(place) / "a.txt") as temporary:
        ...         _ = temporary.write_text("whole")
        ...     [file.name for file in Path(place).iterdir()]
        ['a.txt']
    """
    if _is_special(path):
        with _writing_into(path) as temporary:
            yield temporary
        return
    if path.is_symlink():
        path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        sync_file(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):  # what went wrong before is what is reported
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            _name_file(error, temporary, path)
        raise


def remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed while they were `replacing` a file left beside it."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp*"):
        number = leftover.name.removeprefix(f".{path.name}.").partition(".")[0]
        if number.isdecimal() and not _is_running(int(number)):
            leftover.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # the name may hold any number
        return False
    except OSError:  # somebody else's
        return True
    return True


def _is_special(path: Path) -> bool:
    """Tell whether a name stands for a device, a pipe or an open file, which a file must not take the place of."""
    try:
        mode = path.stat().st_mode
        target = str(path.readlink()) if path.is_symlink() else ""
        opened = any(place.startswith(_OPEN_FILES) for place in (target, f"{path.parent.resolve()}/"))
    except OSError:
        return False
    return opened or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


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
    if error.filename2 is not None:  # of a rename, the same name again
        del error.filename2


def sync_file(path: Path) -> None:
    """Bring the content of a file to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring the names of a folder to the disk; nothing is done where the system has no such thing."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders, and some may be written but not read
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:  # which some network file systems answer
            raise
    finally:
        os.close(handle)


def describe_failure(error: OSError, path: Path) -> str:
    """Return one line that names the file and says what the system did.

    Example:
        >>> describe_failure(OSError(errno.ENOSPC, "No space left on device", ".a.txt.17.tmp.txt"), Path("a.txt"))
        'a.txt: No space left on device'
    """
    return f"{path}: {error.strerror or error}"


_BUSY = frozenset({errno.EACCES, errno.EAGAIN})
# File systems without locks: two processes then do the same work twice, and renames still leave one whole file.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


def take_lock(file: IO[bytes] | int, *, wait: bool = False, shared: bool = False) -> bool:
    """Lock an open file until it is closed, and return whether it is locked: not on a file system without locks.

    Args:
        file: open, or its descriptor.
        wait: for whoever holds it.
        shared: with others who share it too.

    Raises:
        BlockingIOError: another process holds it, and `wait` is not set.
        OSError: the disk failed.

    Example:
        >>> from tempfile import TemporaryFile
        >>> with TemporaryFile() as file:
        ...     take_lock(file)
        True
    """
    import fcntl  # Unix alone has it, and importing this package must not need it

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
    """Hold the lock `path` for the length of a `with` block; wait for whoever holds it.

    The empty file stays: removing it would let a third process lock a new file of the same name. The block is given
    whether the lock is held, as `take_lock` returns it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, hold_lock(Path(folder) / "entry.lock") as held:
        ...     held
        True
    """
    with path.open("ab") as handle:
        yield take_lock(handle, wait=True)
