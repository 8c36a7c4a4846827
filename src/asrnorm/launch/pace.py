"""How far runs are and how fast they go, read off their logs; and how long the rest will take."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from asrnorm.launch.job import Job
from asrnorm.launch.position import read_position
from asrnorm.launch.queue import Board


@dataclass(frozen=True)
class Pace:
    """Where a job stands.

    Attributes:
        phase: `train`, `choose` in the first of two passes, `evaluate`, or the name of an evaluation or analysis.
        step: that the log has come to.
        rate: steps a second since the launch first looked; 0 where not known.
    """

    phase: str
    step: int
    steps: int
    rate: float


class PaceKeeper:
    """Looks at the logs of running jobs, and learns from them what a step of each recipe takes."""

    def __init__(self) -> None:
        self._first: dict[Job, tuple[float, str, int]] = {}
        self._seconds: dict[str, float] = {}  # a step of each recipe

    def look(self, job: Job) -> Pace:
        """Return where a running job stands."""
        phase, step = read_position(job)
        now = time.monotonic()
        began, seen, first = self._first.setdefault(job, (now, phase, step))
        if seen != phase or step < first:
            self._first[job] = began, _, first = (now, phase, step)
        rate = (step - first) / (now - began) if now > began else 0.0
        if rate > 0 and phase in ("train", "choose"):
            self._seconds[job.config.recipe] = 1 / rate
        return Pace(phase, step, job.config.steps, rate)

    def forget(self, jobs: Iterable[Job]) -> None:
        """Leave out what is known of jobs that have ended: at another try they begin elsewhere."""
        for job in jobs:
            self._first.pop(job, None)

    def seconds_left(self, board: Board) -> float | None:
        """Return how long the rest will take if every recipe goes on at its pace; `None` before one has shown it."""
        if not self._seconds:
            return None
        mean = sum(self._seconds.values()) / len(self._seconds)
        work, rest = 0.0, (*board.running, *board.waiting, *board.elsewhere)
        for job in rest:
            phase, step = read_position(job)
            passes = 2 if phase == "choose" else 1  # the second goes as far as the first finds best: at most as long
            work += (passes * job.config.steps - step) * self._seconds.get(job.config.recipe, mean)
        return work / max(1, min(board.slots, len(rest)))
