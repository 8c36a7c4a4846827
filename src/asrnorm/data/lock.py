"""A lock between processes that a crash cannot leave behind."""

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# File systems without locks; two builders then do the same work twice, and the renames still leave one whole entry.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock `path` for the length of a `with` block; wait for whoever holds it.

    The kernel drops the lock when its holder ends, however it ends, so that a waiting process takes over. The empty
    file stays: removing it would let a third process lock a new file of the same name.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, hold_lock(Path(folder) / "entry.lock"):
        ...     "alone"
        'alone'
    """
    with path.open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
