"""Locks between processes that a crash cannot leave behind: the kernel drops them with the process that holds them."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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
