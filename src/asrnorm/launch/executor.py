"""What runs jobs: the contract, and how a job ends."""

from dataclasses import dataclass
from typing import Literal, Protocol

from asrnorm.launch.job import Job

Status = Literal["done", "failed", "stopped", "busy", "lost"]


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Attributes:
        status: `busy` where another process is at work on it; `lost` where the machine it was on is gone.
        error: one line, where it failed or was lost.
    """

    job: Job
    status: Status
    error: str = ""


class Executor(Protocol):
    """A place where jobs run, several at once."""

    def slots(self) -> int:
        """Return how many jobs it can run at once; it may grow and shrink."""

    def submit(self, job: Job) -> None:
        """Begin a job."""

    def collect(self) -> list[Ended]:
        """Return the jobs that have ended since the last call, without waiting."""

    def stop(self, *, at_once: bool = False) -> None:
        """Tell all jobs to stop: after a checkpoint, or at once."""

    def close(self) -> None:
        """Leave nothing behind."""
