"""How far an audit is: a bar on a terminal, plain lines elsewhere."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from asrnorm.training.progress import describe_seconds

_SECONDS = 10.0  # between plain lines


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} passes/s" if task.speed else "")


class AuditProgress:
    """Counts passes of an image through a network, a backward one as two; a context manager.

    Args:
        total: passes there are to do.
        shown: false says nothing at all.
        console: where to write; standard error by default.
    """

    def __init__(self, total: int, *, shown: bool = True, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, quiet=not shown, highlight=False)
        columns = (TextColumn("{task.description:<26}"), BarColumn(), TaskProgressColumn(), _Rate())
        self._bar = Progress(
            *columns,
            TimeRemainingColumn(),
            console=self._console,
            disable=not (shown and self._console.is_terminal),
            speed_estimate_period=60,
        )
        self._task = self._bar.add_task("", total=total)
        self._total, self._done, self._part = total, 0, ""
        self._started = self._spoke = time.monotonic()

    def __enter__(self) -> "AuditProgress":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def begin(self, part: str) -> None:
        """Name what is being measured."""
        self._part = part
        self._bar.update(self._task, description=part)

    def advance(self, passes: int) -> None:
        """Count passes that are done."""
        self._done += passes
        self._bar.update(self._task, advance=passes)
        now = time.monotonic()
        if self._console.is_terminal or now - self._spoke < _SECONDS:
            return
        self._spoke = now
        rate = self._done / max(now - self._started, 1e-9)
        left = describe_seconds((self._total - self._done) / max(rate, 1e-9))
        share = 100 * self._done / max(self._total, 1)
        self.say(f"{self._part}: {share:.0f} % done, {rate:,.0f} passes/s, {left} left")

    def skip(self, passes: int) -> None:
        """Take passes off the total: they were done by an earlier try, and say nothing of the rate of this one."""
        self._total -= passes
        self._bar.update(self._task, total=self._total)

    def say(self, line: str) -> None:
        """Write one line, above the bar where there is one."""
        self._console.print(line, markup=False, soft_wrap=True)
