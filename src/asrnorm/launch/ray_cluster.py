"""Run jobs on a Ray cluster whose machines share the run folders through a file system.

A job whose machine dies moves to another one and resumes from its last checkpoint.
"""

import logging
import re
import socket
import time
from typing import Any

from asrnorm.core.errors import InputError, first_line, import_extra
from asrnorm.launch.jobs import Ended, Job, execute_remotely, forwarded, last_line
from asrnorm.launch.local import PER_GPU

_SECONDS = 2.0  # between two queries of the cluster's size
_ANSWER_SECONDS = 5.0


class RayExecutor:
    """Runs every job as one Ray task with half a GPU and a core, or one core if the cluster has no GPU.

    The address is that of `ray.init`. At most `workers` jobs run at once; by default as many as fit on the cluster.
    """

    def __init__(self, address: str = "auto", workers: int | None = None) -> None:
        self._ray = import_extra("ray", "--ray", "Ray", "ray")
        _ping(address)
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
        """Return how many jobs fit on the machines that are alive."""
        now = time.monotonic()
        if now - self._looked >= _SECONDS:
            self._looked, self._resources = now, self._ray.cluster_resources()
        room = int(self._resources.get("GPU", 0) * PER_GPU) or int(self._resources.get("CPU", 0))
        return max(1, min(room, self._workers) if self._workers else room)

    def submit(self, job: Job) -> None:
        """Submit a job to the cluster."""
        has_gpu = self._resources.get("GPU", 0) > 0 and job.config.device != "cpu"
        # No retries by Ray: the launch counts and reports lost jobs itself.
        options = {"num_cpus": 1, "num_gpus": 1 / PER_GPU if has_gpu else 0, "max_retries": 0}
        remote = self._ray.remote(scheduling_strategy="SPREAD", **options)(execute_remotely)
        self._running[remote.remote(job, *forwarded(on_gpu=has_gpu))] = job

    def collect(self) -> list[Ended]:
        """Return the jobs that have ended or whose machine is gone."""
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [self._outcome(reference, self._running.pop(reference)) for reference in ready]

    def stop(self, *, at_once: bool = False) -> None:
        """Cancel all tasks: their processes write a checkpoint, or are killed with `at_once`."""
        if at_once not in self._stopping:
            self._stopping.add(at_once)
            for reference in self._running:
                self._ray.cancel(reference, force=at_once)

    def close(self) -> None:
        """Disconnect; the cluster ends the remaining tasks."""
        self._ray.shutdown()

    def _outcome(self, reference: Any, job: Job) -> Ended:
        errors = self._ray.exceptions
        try:
            ended: Ended = self._ray.get(reference)
        except errors.TaskCancelledError:
            return Ended(job, "stopped")
        except (errors.RayTaskError, errors.OutOfMemoryError) as error:
            return Ended(job, "failed", last_line(error))
        except errors.RayError as error:  # the worker or its machine is gone
            return Ended(job, "lost", f"its machine was lost ({type(error).__name__})")
        return ended


def _ping(address: str) -> None:
    """Raise `InputError` if nothing listens at the address; Ray itself would retry for many minutes."""
    named = re.fullmatch(r"(?:ray://)?(\[[0-9a-fA-F:]+\]|[^:/\s]+):(\d{1,5})", address)
    if named is None:  # auto, local, or another form that Ray knows
        return
    try:
        socket.create_connection((named[1].strip("[]"), int(named[2])), _ANSWER_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(f"no Ray cluster at {address!r} ({first_line(error)}); start one: ray start --head") from None
