"""How far runs are and how fast they go, read off their logs; and how long the rest will take."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from asrnorm.launch.job import Job
from asrnorm.launch.queue import Board

_TAIL = 65_536  # bytes; a row with the lambdas of a deep network has some thousands


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


def read_position(job: Job) -> tuple[str, int]:
    """Return the phase of a job and the step that its log has come to, from the files in its folder."""
    if (job.folder / "result.json").exists():
        rest = job.missing()
        return (rest[0].label if rest else "done"), job.config.steps
    if (job.folder / "model.safetensors").exists():
        return "evaluate", job.config.steps
    if (job.folder / "log.jsonl").exists():
        step = last_step(job.folder / "log.jsonl")
        return ("train" if step < job.config.steps else "evaluate"), step
    if (job.folder / "choice" / "log.jsonl").exists():
        return "choose", last_step(job.folder / "choice" / "log.jsonl")
    return "train", 0


def last_step(log: Path) -> int:
    """Return the step of the last whole row of a log, 0 where there is none.

    Example:
        >>> last_step(Path("nowhere.jsonl"))
        0
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            step = json.loads(line)["step"]
        except (ValueError, KeyError, TypeError):  # a row that is just being written, or cut by the tail
            continue
        return int(step)
    return 0
