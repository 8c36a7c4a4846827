"""Run jobs on this machine, several at once, distributed over its GPUs."""

import os
import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from asrnorm.core.errors import InputError
from asrnorm.core.settings import DEVICE_VARIABLE, count_cores
from asrnorm.launch.jobs import Ended, Job, Request, execute
from asrnorm.launch.mps import TURNS, Sharing, share_gpus

PER_GPU = 2  # a run of the paper's networks leaves half of a large GPU idle
_RECOVERY_SECONDS = 10.0  # until a GPU that another process has crashed answers again


class LocalExecutor:
    """Runs jobs as processes of this machine; jobs on one GPU run concurrently where MPS is available.

    By default there are two `workers` per GPU, or one without a GPU. `gpus` are named as in `CUDA_VISIBLE_DEVICES`;
    worker i takes GPU i modulo their number. The processes have this process's `environment` unless one is given.
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
        self._request: Request = "continue"
        self._stopped = threading.Event()
        self._sharing: Sharing | None = None
        self._sharing_lock = threading.Lock()
        self._cleanup = ExitStack()
        self._failed: set[Job] = set()

    def slots(self) -> int:
        """Return the number of workers."""
        return self._workers

    def submit(self, job: Job) -> None:
        """Start a job in a thread, which starts the processes and waits for them."""
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
        """Stop all processes."""
        self._request = "stop at once" if at_once else "stop"
        self._stopped.set()

    def close(self) -> None:
        """Stop the processes, without waiting for the threads that wait for them, and end the MPS daemon."""
        if self._request == "continue":
            self.stop()
        with self._sharing_lock:
            self._sharing = TURNS  # for a thread that asks later
            self._cleanup.close()

    def environment_of(self, worker: int, *, apart: bool = False) -> dict[str, str]:
        """Return the environment of a worker's processes: its GPU, shared by MPS unless `apart`, and its cores."""
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
        """Start MPS at the first call, in the thread of a job, so that the launcher does not wait for it."""
        with self._sharing_lock:
            if self._sharing is None:
                clients = -(-self._workers // len(self._gpus))
                self._sharing = self._cleanup.enter_context(share_gpus(self._gpus, clients, self._environment))
            return self._sharing

    def _do(self, worker: int, job: Job) -> None:
        # A process with an illegal memory access takes down the other clients of its MPS server, so every failed job
        # is tried again outside of MPS.
        environment = self.environment_of(worker, apart=job in self._failed)
        if self._gpus and job in self._failed:
            self._stopped.wait(_RECOVERY_SECONDS)
        ended = execute(job, environment, lambda: self._request)
        if ended.status == "failed":
            self._failed.add(job)
        self._ended.put((worker, ended))
