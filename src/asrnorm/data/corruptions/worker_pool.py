"""Files that appear under their names only when they are whole.

Worker processes that corrupt pieces of one data set and write them into a file, or hand them back.
"""

import errno
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from asrnorm.core.errors import InputError
from asrnorm.core.files import DISK_FULL, replacing, sync_folder, take_lock
from asrnorm.data.corruptions.apply import corrupt
from asrnorm.data.corruptions.base import Pixels


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


_KILLED = (
    'a worker process died: a script needs `if __name__ == "__main__":` around the call; otherwise memory was short, '
    "and fewer workers need less"
)


@dataclass(frozen=True)
class Piece:
    """Some of the images, from `start` to before `stop`, at one severity; they become rows `row`... of `target`."""

    target: PartialArray
    row: int
    name: str
    severity: int
    start: int
    stop: int
    seed: int
    preset: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


Run = Callable[[Iterable[Piece]], Iterator[int]]


@contextmanager
def hire(images_nhwc: Pixels, workers: int) -> Iterator[Run]:
    """Give a function that does pieces and yields how many images each had, as they get done.

    Args:
        images_nhwc: the whole data set; each worker gets it once.
        workers: processes; one works in this process.
    """
    if workers == 1:
        yield lambda pieces: (_do(images_nhwc, piece) for piece in pieces)
        return
    # Forking a process that holds threads (torch, OpenCV) may hang it, so workers start afresh.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _begin, (images_nhwc,))
    try:
        yield lambda pieces: _share(pool, pieces)
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Order:
    """Images to be corrupted at one severity and handed back; `start` is the index of the first."""

    images_nhwc: Pixels
    name: str
    severity: int
    start: int
    seed: int


Deliver = Callable[[Iterable[Order]], Iterator[Pixels]]


@contextmanager
def hire_couriers(workers: int) -> Iterator[Deliver]:
    """Give a function that yields the corrupted images of each order, in order, while workers are on the next ones.

    Args:
        workers: processes; one works in this process.
    """
    if workers == 1:
        yield lambda orders: map(_fill, orders)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _begin, (None,))
    try:
        yield lambda orders: _deliver(pool, orders, 2 * workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _deliver(pool: ProcessPoolExecutor, orders: Iterable[Order], ahead: int) -> Iterator[Pixels]:
    waiting: deque[Future[Pixels]] = deque()
    try:
        for order in orders:
            waiting.append(pool.submit(_fill, order))
            if len(waiting) > ahead:  # more would only fill the memory
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise InputError(_KILLED) from None
    finally:
        for future in waiting:
            future.cancel()


def _fill(order: Order) -> Pixels:
    indices = range(order.start, order.start + len(order.images_nhwc))
    return corrupt(order.images_nhwc, order.name, severity=order.severity, seed=order.seed, indices=indices)


def _share(pool: ProcessPoolExecutor, pieces: Iterable[Piece]) -> Iterator[int]:
    futures = []
    try:
        futures = [pool.submit(_do_in_worker, piece) for piece in pieces]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool:
        raise InputError(f"{_KILLED}; finished files are kept") from None
    finally:
        for future in futures:
            future.cancel()


def _do(images_nhwc: Pixels, piece: Piece) -> int:
    corrupted = corrupt(
        images_nhwc[piece.start : piece.stop],
        piece.name,
        severity=piece.severity,
        seed=piece.seed,
        preset=piece.preset,
        indices=range(piece.start, piece.stop),
        **piece.options,
    )
    piece.target.write_rows(piece.row, corrupted)
    return len(corrupted)


_shared: dict[str, Pixels] = {}


def _begin(images_nhwc: Pixels | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent alone answers Ctrl-C, once
    if images_nhwc is not None:
        _shared["images"] = images_nhwc
    parent = multiprocessing.parent_process()
    if parent is not None:  # a parent that is killed cannot stop its workers: they watch it
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _do_in_worker(piece: Piece) -> int:
    return _do(_shared["images"], piece)
