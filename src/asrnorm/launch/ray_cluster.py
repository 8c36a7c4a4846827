"""Jobs on the machines of a Ray cluster, which share the run folders through their file system.

A job whose machine dies is handed to another, where its run goes on from its last checkpoint.
"""

import logging
import re
import socket
import time
from typing import Any

from asrnorm.core.errors import InputError, MissingDependencyError, first_line
from asrnorm.launch.jobs import Ended, Job, forwarded, last_line, work_there
from asrnorm.launch.local import PER_GPU

_SECONDS = 2.0  # between two looks at the size of the cluster
_ANSWER_SECONDS = 5.0


class RayExecutor:
    """Runs every job as one Ray task: half a GPU and a core each, or a core where the cluster has no GPU.

    Args:
        address: of the cluster, as `ray.init` takes it; `auto` is one that this machine is part of.
        workers: the most jobs at once; by default as many as the cluster has room for.

    Raises:
        MissingDependencyError: Ray is not installed.
        InputError: no cluster answers there.
    """

    def __init__(self, address: str = "auto", workers: int | None = None) -> None:
        self._ray = _import_ray()
        _knock(address)
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            line = " ".join(str(error).split())[:200]
            raise InputError(f"no Ray cluster at {address!r} ({line}); start one: ray start --head") from None
        self._workers = workers
        self._running: dict[Any, Job] = {}
        self._resources: dict[str, float] = {}
        self._looked = float("-inf")
        self._stopping: set[bool] = set()

    def slots(self) -> int:
        """Return how many jobs the machines that are alive have room for."""
        now = time.monotonic()
        if now - self._looked >= _SECONDS:
            self._looked, self._resources = now, self._ray.cluster_resources()
        room = int(self._resources.get("GPU", 0) * PER_GPU) or int(self._resources.get("CPU", 0))
        return max(1, min(room, self._workers) if self._workers else room)

    def submit(self, job: Job) -> None:
        """Hand a job to the cluster."""
        has_gpu = self._resources.get("GPU", 0) > 0 and job.config.device != "cpu"
        # Losses are counted and told of by the launch, not tried again behind its back.
        options = {"num_cpus": 1, "num_gpus": 1 / PER_GPU if has_gpu else 0, "max_retries": 0}
        remote = self._ray.remote(scheduling_strategy="SPREAD", **options)(work_there)
        self._running[remote.remote(job, *forwarded(on_gpu=has_gpu))] = job

    def collect(self) -> list[Ended]:
        """Return the jobs that have ended, or whose machine has."""
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [self._settle(reference, self._running.pop(reference)) for reference in ready]

    def stop(self, *, at_once: bool = False) -> None:
        """Cancel all tasks: they tell their processes to write a checkpoint, or are killed."""
        if at_once not in self._stopping:
            self._stopping.add(at_once)
            for reference in self._running:
                self._ray.cancel(reference, force=at_once)

    def close(self) -> None:
        """Leave the cluster; it goes on without us, and tasks that are left are ended by it."""
        self._ray.shutdown()

    def _settle(self, reference: Any, job: Job) -> Ended:
        errors = self._ray.exceptions
        try:
            ended: Ended = self._ray.get(reference)
        except errors.TaskCancelledError:
            return Ended(job, "stopped")
        except (errors.RayTaskError, errors.OutOfMemoryError) as error:
            return Ended(job, "failed", last_line(error))
        except errors.RayError as error:  # a worker or a machine that is gone
            return Ended(job, "lost", f"its machine was lost ({type(error).__name__})")
        return ended


def _knock(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself would try it for many minutes.

    Raises:
        InputError: nobody there.
    """
    named = re.fullmatch(r"(?:ray://)?(\[[0-9a-fA-F:]+\]|[^:/\s]+):(\d{1,5})", address)
    if named is None:  # auto, local, or what Ray may make sense of
        return
    try:
        socket.create_connection((named[1].strip("[]"), int(named[2])), _ANSWER_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(f"no Ray cluster at {address!r} ({first_line(error)}); start one: ray start --head") from None


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingDependencyError("--ray needs Ray; pip install 'asrnorm[ray]'") from None
    return ray
