"""Files that appear under their names only when they are whole."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from asrnorm.errors import InputError
from asrnorm.lock import take_lock
from asrnorm.storage import DISK_FULL, replacing, sync_folder


class PartialArray:
    """A uint8 array on disk that is being filled, under a hidden name beside its final one.

    Any process may write rows through `write_rows`; the owner renames the file when all are there.

    Args:
        path: where the file is to appear.
        shape: of the array.
    """

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self.path = path
        self.shape = shape
        self.hidden = path.with_name(f".{path.name}.partial")
        self.header = _header(shape)
        self.num_bytes = len(self.header) + int(np.prod(shape))

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Reserve the space, let the body write all rows, then put the file in place; after an error, remove it.

        The space is reserved first, so that a full disk is found before any work is done.

        Raises:
            InputError: the disk is full, or another process is writing the same file.
        """
        descriptor = _open_alone(self.hidden)
        try:
            os.ftruncate(descriptor, 0)
            _reserve(descriptor, self.num_bytes)
            os.pwrite(descriptor, self.header, 0)
            yield
            os.fsync(descriptor)
            self.hidden.replace(self.path)  # before the lock goes, so that nobody else opens what is now final
            sync_folder(self.path.parent)
        except OSError as error:
            self.hidden.unlink(missing_ok=True)
            if error.errno in DISK_FULL:
                raise InputError(full_disk(self.path, self.num_bytes)) from None
            raise
        except BaseException:
            self.hidden.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def write_rows(self, first: int, rows: NDArray[np.uint8]) -> None:
        """Write consecutive rows, from any process."""
        row_bytes = int(np.prod(self.shape[1:]))
        offset = len(self.header) + first * row_bytes
        view = memoryview(rows.tobytes())
        descriptor = os.open(self.hidden, os.O_WRONLY)
        try:
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(descriptor)

    def is_finished(self) -> bool:
        """Return whether the file is there, whole as far as its header and length say.

        Raises:
            InputError: something else lies under its name.
        """
        if not self.path.exists():
            return False
        with self.path.open("rb") as file:
            header = file.read(len(self.header))
        if header != self.header or self.path.stat().st_size != self.num_bytes:
            raise InputError(
                f"{self.path} is no uint8 array of shape {self.shape}: move it away, or use another folder"
            )
        return True


def write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    _write_whole(path, text.encode())


def write_image(path: Path, image: Image.Image) -> None:
    """Write a PNG file, and the folders it lies in, whole or not at all."""
    file = BytesIO()
    image.save(file, "PNG")
    _write_whole(path, file.getvalue())


def _write_whole(path: Path, content: bytes) -> None:
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise InputError(full_disk(path, len(content))) from None
        raise


def full_disk(path: Path, num_bytes: int) -> str:
    """Return the line that says the disk is full."""
    return f"no space left for {path} ({num_bytes / 1e6:.3g} MB): free some, or choose another folder with --out"


def _header(shape: tuple[int, ...]) -> bytes:
    file = BytesIO()
    fields = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


def _open_alone(path: Path) -> int:
    """Open `path` for writing under a lock that ends with the process; what a killed process left is taken over."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            take_lock(descriptor)
            # Between opening and locking, the owner may have renamed or removed the file: then it is not ours to fill.
            with suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == path.stat().st_ino:
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise InputError(
                f"{path} is being written by another process: wait for it, or use another folder"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _reserve(descriptor: int, num_bytes: int) -> None:
    try:
        os.posix_fallocate(descriptor, 0, num_bytes)
    except (AttributeError, OSError) as error:  # macOS has no such call, some file systems refuse it
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        os.ftruncate(descriptor, num_bytes)
