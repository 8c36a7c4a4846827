"""Progress of long work: a bar on a terminal, a plain line every ten seconds elsewhere."""

import time
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

_SECONDS = 10.0  # between plain lines
_HOUR, _MINUTE = 3600, 60


class Progress:
    """Progress on standard error, as a context manager; `done` counts the work of an earlier run.

    `columns` stand in the bar before its rate.
    """

    def __init__(
        self,
        total: int,
        unit: str,
        *columns: str | ProgressColumn,
        done: int = 0,
        digits: int = 0,
        shown: bool = True,
        console: Console | None = None,
    ) -> None:
        self.console = console or Console(stderr=True, quiet=not shown, highlight=False)
        self.total, self.done, self._first = total, done, done
        self._unit, self._digits = unit, digits
        self._started = self._spoke = time.monotonic()
        self._bars = Bars(
            *columns,
            _Rate(unit, digits),
            TimeRemainingColumn(),
            console=self.console,
            disable=not (shown and self.console.is_terminal),
            speed_estimate_period=60,
        )
        self._task = self._bars.add_task("", total=total, completed=done)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def show(self, **changes: Any) -> None:
        """Update the bar: `description`, `completed`, `total`."""
        self._bars.update(self._task, **changes)

    def is_due(self, always: bool = False) -> bool:
        """Tell whether a plain line is due, and start the next interval if so."""
        now = time.monotonic()
        if self.console.is_terminal or (now - self._spoke < _SECONDS and not always):
            return False
        self._spoke = now
        return True

    def pace(self) -> str:
        """Return the rate up to the last plain line and the time left at that rate."""
        rate = (self.done - self._first) / max(self._spoke - self._started, 1e-9)
        left = describe_seconds((self.total - self.done) / max(rate, 1e-9))
        return f"{rate:,.{self._digits}f} {self._unit}/s, {left} left"

    def say(self, line: str) -> None:
        """Print one line, above the bar if there is one."""
        self.console.print(line, markup=False, soft_wrap=True)


class PartProgress(Progress):
    """Progress of work that consists of named parts."""

    def __init__(self, total: int, unit: str, *, shown: bool = True, console: Console | None = None) -> None:
        columns = (TextColumn("{task.description:<26}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
        super().__init__(total, unit, *columns, shown=shown, console=console)
        self._part = ""

    def begin(self, part: str) -> None:
        """Start the part of this name."""
        self._part = part
        self.show(description=part)

    def advance(self, count: int) -> None:
        """Count finished work."""
        self.done += count
        self.show(completed=self.done)
        if self.is_due():
            self.say(f"{self._part}: {100 * self.done / max(self.total, 1):.0f} % done, {self.pace()}")

    def skip(self, count: int) -> None:
        """Remove work that an earlier run has done from the total, so that it does not distort the rate."""
        self.total -= count
        self.show(total=self.total)


class _Rate(ProgressColumn):
    def __init__(self, unit: str, digits: int) -> None:
        super().__init__()
        self._unit, self._digits = unit, digits

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.{self._digits}f} {self._unit}/s" if task.speed else "")


def describe_seconds(seconds: float) -> str:
    """Return a duration in at most two units."""
    whole = round(seconds)
    if whole >= _HOUR:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _MINUTE} min {whole % _MINUTE} s" if whole >= _MINUTE else f"{whole} s"
