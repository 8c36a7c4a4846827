"""Worker processes that corrupt parts of a set of images and return them in order."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, NamedTuple

from asrnorm.core.errors import InputError
from asrnorm.data.corruptions.base import Pixels, corrupt

_KILLED = (
    'a worker process died: a script needs `if __name__ == "__main__":` around the call; otherwise memory was short, '
    "and fewer workers need less; finished files are kept"
)


class Job(NamedTuple):
    """Images to corrupt; `start` is the index of the first, the other fields are arguments of `corrupt`."""

    images_nhwc: Pixels
    name: str
    severity: int
    start: int
    seed: int = 0
    preset: str | None = None
    options: Mapping[str, Any] = {}

    def run(self) -> Pixels:
        """Return the corrupted images."""
        indices = range(self.start, self.start + len(self.images_nhwc))
        return corrupt(
            self.images_nhwc,
            self.name,
            severity=self.severity,
            seed=self.seed,
            preset=self.preset,
            indices=indices,
            **self.options,
        )


@contextmanager
def worker_pool(workers: int) -> Iterator[Callable[[Iterable[Job]], Iterator[Pixels]]]:
    """Give a function that yields the result of each job, in order, while workers compute the next ones.

    Workers end with this process, however it ends.

    Args:
        workers: number of processes; 1 computes in this process.

    Raises:
        InputError: a worker was killed.
    """
    if workers == 1:
        yield lambda jobs: map(Job.run, jobs)
        return
    # Forking a process that holds threads (torch, OpenCV) may hang, so workers are spawned.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _start_worker)
    try:
        yield lambda jobs: _run_ahead(pool, jobs, 2 * workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _run_ahead(pool: ProcessPoolExecutor, jobs: Iterable[Job], ahead: int) -> Iterator[Pixels]:
    waiting: deque[Future[Pixels]] = deque()
    try:
        for job in jobs:
            waiting.append(pool.submit(job.run))
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent alone answers Ctrl-C
    parent = multiprocessing.parent_process()
    if parent is not None:  # a parent that is killed cannot stop its workers, so they wait for its end
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: Any) -> None:
    parent.join()
    os._exit(1)
