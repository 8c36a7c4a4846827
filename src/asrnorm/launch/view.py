"""How far runs are and how fast they go, read off their logs; and how long the rest will take.

A launch on the screen: a live table on a terminal, plain lines elsewhere.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from asrnorm.launch.jobs import Job
from asrnorm.launch.queue import Board, read_position


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


_LOOK = 1.0  # seconds between two looks at the logs
_SPEAK = 60.0  # seconds between plain lines that say where things stand
_MOST_ROWS = 20


class LaunchView:
    """Shows a launch on standard error; a context manager.

    Args:
        console: where to write; standard error by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._pace = PaceKeeper()
        self._looked = float("-inf")
        self._spoke = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def say(self, line: str) -> None:
        """Write one line, above the table where there is one."""
        self._console.print(line, markup=False, soft_wrap=True)

    def show(self, board: Board) -> None:
        """Show where a launch stands, if it is time to."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        paces = {job.name: self._pace.look(job) for job in board.running}
        self._pace.forget([*board.waiting, *board.elsewhere])
        headline = describe(board, self._pace.seconds_left(board))
        if self._console.is_terminal:
            elapsed = {job.name: now - began for job, began in board.running.items()}
            table = _table(paces, elapsed)
            failures = [Text(f"{one.job.name}: {one.error}", style="red") for one in board.failed[-3:]]
            self._live.update(Group(Text(headline, style="bold"), table, *failures), refresh=True)
        elif now - self._spoke >= _SPEAK:
            self._spoke = now
            self.say(headline)
            for name, pace in paces.items():
                rate = f", {_rate(pace)} steps/s" if pace.rate else ""
                self.say(f"  {name}: {pace.phase}, step {pace.step:,} of {pace.steps:,}{rate}")


def describe(board: Board, seconds_left: float | None) -> str:
    """Return one line: done, running, failed, waiting, time left.

    Example:
        >>> describe(Board(), None)
        '0 done, 0 running, 0 failed, 0 waiting'
    """
    parts = [
        f"{len(board.done)} done",
        f"{len(board.running)} running",
        f"{len(board.failed)} failed",
        f"{len(board.waiting)} waiting",
    ]
    if board.elsewhere:
        parts.append(f"{len(board.elsewhere)} at work in another process")
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
        cells = (f"{pace.step:,}", f"{pace.steps:,}", _rate(pace), _clock(elapsed[name]))
        table.add_row(Text(name), pace.phase, *cells)
    if len(paces) > _MOST_ROWS:
        table.add_row(f"... and {len(paces) - _MOST_ROWS} more")
    return table


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _rate(pace: Pace) -> str:
    if not pace.rate:
        return ""
    return f"{pace.rate:,.1f}" if pace.rate >= 1 else f"{pace.rate:.3f}"
