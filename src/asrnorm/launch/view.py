"""Display of a launch: a live table on a terminal, plain lines elsewhere; rates and time left from the logs."""

import time
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from asrnorm.launch.jobs import Job
from asrnorm.launch.queue import Board, read_position


class Pace(NamedTuple):
    """Progress of a job: its phase and last step, and the steps per second since the launch first read its log."""

    phase: str
    step: int
    steps: int
    rate: float  # 0 if unknown


class PaceEstimator:
    """Estimates the time per step of each recipe from the logs of running jobs."""

    def __init__(self) -> None:
        self._first: dict[Job, tuple[float, str, int]] = {}
        self._seconds: dict[str, float] = {}  # per step, by recipe

    def update(self, job: Job) -> Pace:
        """Return the progress of a running job."""
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
        """Forget jobs that have ended; another attempt starts at another step."""
        for job in jobs:
            self._first.pop(job, None)

    def seconds_left(self, board: Board) -> float | None:
        """Return the estimated time for the remaining jobs, or `None` before any rate is known."""
        if not self._seconds:
            return None
        mean = sum(self._seconds.values()) / len(self._seconds)
        work, rest = 0.0, (*board.running, *board.waiting, *board.busy)
        for job in rest:
            phase, step = read_position(job)
            passes = 2 if phase == "choose" else 1  # the second is at most as long as the first
            work += (passes * job.config.steps - step) * self._seconds.get(job.config.recipe, mean)
        return work / max(1, min(board.slots, len(rest)))


_REFRESH_SECONDS = 1.0  # between two reads of the logs
_LINE_SECONDS = 60.0  # between plain lines
_MOST_ROWS = 20


class LaunchView:
    """Shows a launch, as a context manager, by default on standard error."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._pace = PaceEstimator()
        self._looked = float("-inf")
        self._spoke = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def say(self, line: str) -> None:
        """Print one line, above the table if there is one."""
        self._console.print(line, markup=False, soft_wrap=True)

    def show(self, board: Board) -> None:
        """Refresh the display if it is due."""
        now = time.monotonic()
        if now - self._looked < _REFRESH_SECONDS:
            return
        self._looked = now
        paces = {job.name: self._pace.update(job) for job in board.running}
        self._pace.forget([*board.waiting, *board.busy])
        headline = describe(board, self._pace.seconds_left(board))
        if self._console.is_terminal:
            elapsed = {job.name: now - began for job, began in board.running.items()}
            failures = [Text(f"{one.job.name}: {one.error}", style="red") for one in board.failed[-3:]]
            self._live.update(Group(Text(headline, style="bold"), _table(paces, elapsed), *failures), refresh=True)
        elif now - self._spoke >= _LINE_SECONDS:
            self._spoke = now
            self.say(headline)
            for name, pace in paces.items():
                rate = f", {_rate(pace)} steps/s" if pace.rate else ""
                self.say(f"  {name}: {pace.phase}, step {pace.step:,} of {pace.steps:,}{rate}")


def describe(board: Board, seconds_left: float | None) -> str:
    """Return one line: done, running, failed, waiting, time left."""
    parts = [f"{len(getattr(board, state))} {state}" for state in ("done", "running", "failed", "waiting")]
    if board.busy:
        parts.append(f"{len(board.busy)} running in another process")
    if board.stopping:
        parts.append("stopping")
    elif seconds_left is not None:
        parts.append(f"about {_clock(seconds_left)} left")
    return ", ".join(parts)


def _table(paces: dict[str, Pace], elapsed: dict[str, float]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True, overflow="ellipsis", ratio=1)
    for heading in ("phase", "step", "of", "steps/s", "for"):
        table.add_column(heading, justify="left" if heading == "phase" else "right", no_wrap=True)
    for name, pace in list(paces.items())[:_MOST_ROWS]:
        numbers = (f"{pace.step:,}", f"{pace.steps:,}", _rate(pace), _clock(elapsed[name]))
        table.add_row(Text(name), pace.phase, *numbers)
    if len(paces) > _MOST_ROWS:
        table.add_row(f"... and {len(paces) - _MOST_ROWS} more")
    return table


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _rate(pace: Pace) -> str:
    return f"{pace.rate:,.1f}" if pace.rate >= 1 else f"{pace.rate:.3f}" if pace.rate else ""
