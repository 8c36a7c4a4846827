"""Files that are there whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from asrnorm.errors import StorageError


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file under its name only when it is whole and on the disk.

    Raises:
        StorageError: the disk is full or the place cannot be written; what was there stays.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise StorageError(f"{path}: {error.strerror}") from None
