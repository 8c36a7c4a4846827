"""A launch on the screen: a live table on a terminal, plain lines elsewhere."""

import time
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from asrnorm.launch.pace import Pace, PaceKeeper
from asrnorm.launch.queue import Board

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
