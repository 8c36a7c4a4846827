"""Run jobs through Slurm with submitit; the run folders lie on a shared file system."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asrnorm.core.errors import InputError, import_extra
from asrnorm.launch.jobs import Ended, Job, execute_remotely, forwarded, last_line

_WORKERS = 64  # default number of jobs in Slurm's queue


class SlurmExecutor:
    """Runs every job as one Slurm job; after a time limit or preemption it resumes in a new one.

    `folder`, which all machines share, is for the files of submitit and Slurm; `options` are those of
    `submitit.AutoExecutor.update_parameters`; at most `workers` jobs are in the queue; the cluster `local` runs
    processes on this machine.
    """

    def __init__(
        self, folder: Path, options: Mapping[str, Any], workers: int | None = None, cluster: str = "slurm"
    ) -> None:
        self._submitit = import_extra("submitit", "--slurm", "submitit", "slurm")
        try:
            self._executor = self._submitit.AutoExecutor(folder=folder, cluster=cluster)
            self._executor.update_parameters(name="asrnorm", **options)
        except (RuntimeError, NameError, ValueError, TypeError) as error:
            raise InputError(f"--slurm: {' '.join(str(error).split())}") from None
        # `gpus_per_node=1`, `slurm_gpus_per_task=1`, `slurm_gres=gpu:1` or the like
        given = [(name, str(value)) for name, value in options.items() if value]
        self._has_gpu = any("gpu" in name or (name.endswith("gres") and "gpu" in value) for name, value in given)
        self._workers = workers or _WORKERS
        self._running: dict[Job, Any] = {}
        self._stopping = False

    def slots(self) -> int:
        """Return how many jobs may wait or run in Slurm at once."""
        return self._workers

    def submit(self, job: Job) -> None:
        """Submit a job to Slurm."""
        try:
            there = forwarded(on_gpu=self._has_gpu and job.config.device != "cpu")
            self._running[job] = self._executor.submit(execute_remotely, job, *there)
        except self._submitit.core.utils.FailedJobError as error:  # raised by sbatch
            raise InputError(f"--slurm: {last_line(error)}") from None

    def collect(self) -> list[Ended]:
        """Return the jobs that have ended."""
        ready = [job for job, handle in self._running.items() if handle.done()]
        return [self._outcome(job, self._running.pop(job)) for job in ready]

    def stop(self, *, at_once: bool = False) -> None:  # noqa: ARG002
        """Cancel all jobs; Slurm terminates their processes, and kills them after its `KillWait`."""
        if not self._stopping:
            self._stopping = True
            for handle in self._running.values():
                handle.cancel()

    def close(self) -> None:
        """Cancel the jobs that have not ended."""
        self.stop()

    def _outcome(self, job: Job, handle: Any) -> Ended:
        try:
            ended: Ended = handle.result()
        except self._submitit.core.utils.UncompletedJobError:
            return Ended(job, "stopped" if self._stopping else "lost", f"Slurm ended it ({handle.state})")
        except self._submitit.core.utils.FailedJobError as error:
            return Ended(job, "stopped" if self._stopping else "failed", last_line(error))
        return ended
