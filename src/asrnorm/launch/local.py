"""Jobs on this machine: so many at once, shared out over its GPUs."""

import os
import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from asrnorm.core.errors import InputError
from asrnorm.core.settings import DEVICE_VARIABLE, count_cores
from asrnorm.launch.jobs import Ended, Job, Wish, work
from asrnorm.launch.mps import TURNS, Sharing, share_gpus

PER_GPU = 2  # a run of the paper's networks leaves half of a large GPU idle
_RECOVERY_SECONDS = 10.0  # until a GPU answers again that another process has brought down


class LocalExecutor:
    """Runs jobs as processes of this machine; those on one GPU at the same time, where MPS can be had.

    Args:
        workers: jobs at once; by default two a GPU, one where there is none.
        gpus: as `CUDA_VISIBLE_DEVICES` names them; worker i takes the GPU i modulo their number.
        environment: of the processes; this one's where `None`.

    Raises:
        InputError: fewer than one worker.

    Example:
        >>> LocalExecutor(gpus=["0", "1"]).slots()
        4
    """

    def __init__(
        self, workers: int | None = None, gpus: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"workers must be at least 1, not {workers}")
        self._workers = workers or PER_GPU * len(gpus) or 1
        self._gpus = tuple(gpus)
        self._environment = dict(os.environ if environment is None else environment)
        self._free = list(range(self._workers))
        self._ended: queue.SimpleQueue[tuple[int, Ended]] = queue.SimpleQueue()
        self._wish: Wish = "go on"
        self._stopped = threading.Event()
        self._sharing: Sharing | None = None
        self._sharing_lock = threading.Lock()
        self._at_the_end = ExitStack()
        self._failed: set[Job] = set()

    def slots(self) -> int:
        """Return the number of workers."""
        return self._workers

    def submit(self, job: Job) -> None:
        """Begin a job in a thread, which starts the processes and waits for them."""
        worker = self._free.pop(0)
        threading.Thread(target=self._do, args=(worker, job), daemon=True).start()

    def collect(self) -> list[Ended]:
        """Return the jobs that have ended since the last call."""
        found = []
        while not self._ended.empty():
            worker, ended = self._ended.get()
            self._free.append(worker)
            self._free.sort()
            found.append(ended)
        return found

    def stop(self, *, at_once: bool = False) -> None:
        """Tell all processes to stop."""
        self._wish = "stop at once" if at_once else "stop"
        self._stopped.set()

    def close(self) -> None:
        """Leave the threads to the processes that they still wait for, which `stop` has told."""
        if self._wish == "go on":
            self.stop()
        with self._sharing_lock:
            self._sharing = TURNS  # for a thread that comes too late
            self._at_the_end.close()

    def environment_of(self, worker: int, *, apart: bool = False) -> dict[str, str]:
        """Return the environment of a worker's processes: its GPU, how it is shared, and a share of the cores.

        Args:
            worker: by its number.
            apart: keep out of MPS.
        """
        environment = dict(self._environment)
        if self._gpus:
            gpu = self._gpus[worker % len(self._gpus)]
            environment["CUDA_VISIBLE_DEVICES"] = gpu
            environment.setdefault(DEVICE_VARIABLE, "cuda")
            if not apart:
                environment.update(self._share().variables.get(gpu, {}))
        environment.setdefault("OMP_NUM_THREADS", str(max(1, count_cores() // self._workers)))
        return environment

    def _share(self) -> Sharing:
        """Begin to share the GPUs, at the first call: in the thread of a job, so that nobody else waits for it."""
        with self._sharing_lock:
            if self._sharing is None:
                clients = -(-self._workers // len(self._gpus))
                self._sharing = self._at_the_end.enter_context(share_gpus(self._gpus, clients, self._environment))
            return self._sharing

    def _do(self, worker: int, job: Job) -> None:
        # A process that breaks the GPU's memory rules takes the others of its MPS server along. None of them meets it
        # again: whatever failed has its second try outside.
        environment = self.environment_of(worker, apart=job in self._failed)
        if self._gpus and job in self._failed:
            self._stopped.wait(_RECOVERY_SECONDS)
        ended = work(job, environment, lambda: self._wish)
        if ended.status == "failed":
            self._failed.add(job)
        self._ended.put((worker, ended))
