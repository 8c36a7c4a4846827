"""Worker processes that corrupt pieces of one data set and write them into a file, or hand them back."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from asrnorm.data.corruption.apply import corrupt
from asrnorm.data.corruption.base import Pixels
from asrnorm.data.corruption.whole_file import PartialArray
from asrnorm.errors import InputError

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
