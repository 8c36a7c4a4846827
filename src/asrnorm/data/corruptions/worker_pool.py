"""Worker processes that corrupt chunks of a set of images and return them in order."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import Any

from asrnorm.core.errors import InputError
from asrnorm.data.corruptions.base import Pixels, corrupt

_KILLED = (
    'a worker process died: a script needs `if __name__ == "__main__":` around the call; if it has that, memory ran '
    "out, and fewer workers need less; finished files are kept"
)

Job = Callable[[], Pixels]


def corrupt_chunks(images_nhwc: Pixels, chunk: int, name: str, severity: int, **arguments: Any) -> Iterator[Job]:
    """Yield calls of `corrupt` for `chunk` images each; the index of an image is its position in the whole."""
    for start in range(0, len(images_nhwc), chunk):
        part = images_nhwc[start : start + chunk]
        yield partial(corrupt, part, name, severity=severity, indices=range(start, start + len(part)), **arguments)


@contextmanager
def worker_pool(workers: int) -> Iterator[Callable[[Iterable[Job]], Iterator[Pixels]]]:
    """Return a function that yields the result of each job, in order, while workers compute the next ones.

    With one worker, this process computes. Workers end with it, even if it is killed.
    """
    if workers == 1:
        yield lambda jobs: (job() for job in jobs)
        return
    # Forking a process with threads (torch, OpenCV) may hang, so workers are spawned.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)
    try:
        yield lambda jobs: _run_ahead(pool, jobs, 2 * workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _run_ahead(pool: ProcessPoolExecutor, jobs: Iterable[Job], ahead: int) -> Iterator[Pixels]:
    waiting: deque[Future[Pixels]] = deque()
    try:
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) > ahead:  # more would only fill the memory
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise InputError(_KILLED) from None
    finally:
        for future in waiting:
            future.cancel()


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent reacts to Ctrl-C
    parent: Any = multiprocessing.parent_process()

    def exit_with_parent() -> None:
        parent.join()
        os._exit(1)

    # A parent that is killed cannot stop its workers, so each watches it.
    threading.Thread(target=exit_with_parent, daemon=True).start()
