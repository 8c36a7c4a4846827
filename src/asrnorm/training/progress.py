"""How far a run is: a bar on a terminal, plain lines elsewhere."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

_SECONDS = 10.0  # between plain lines
_HOUR, _MINUTE = 3600, 60


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.1f} steps/s" if task.speed else "")


class RunProgress:
    """Counts steps on standard error, with loss, accuracy, rate and time left; a context manager.

    Args:
        label: what is running.
        steps: how many there are.
        step: how many are done already.
        shown: false says nothing at all, as all processes but one do.
        console: where to write; standard error by default.
    """

    def __init__(
        self, label: str, steps: int, step: int, *, shown: bool = True, console: Console | None = None
    ) -> None:
        self._console = console or Console(stderr=True, quiet=not shown, highlight=False)
        self._label, self._steps, self._first = label, steps, step
        self._step, self._described = step, label
        self._started = self._spoke = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
        self._bars = Progress(*columns, console=self._console, disable=not (shown and self._console.is_terminal))
        self._task = self._bars.add_task(label, total=steps, completed=step)

    def __enter__(self) -> "RunProgress":
        self._bars.start()
        if self._first:
            self.say(f"{self._label}: going on from step {self._first:,} of {self._steps:,}")
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def advance(self, step: int, row: dict[str, Any] | None = None) -> None:
        """Note that a step is done; `row` is what its row of the log says."""
        self._step = step
        numbers = f"loss {row['loss']:.4f}, accuracy {row['accuracy']:.3f}" if row and "loss" in row else ""
        if numbers:
            self._described = f"{self._label}  {numbers}"
        self._bars.update(self._task, completed=step, description=self._described)
        if not numbers or not self._may_speak(step == self._steps):
            return
        rate = (step - self._first) / max(self._spoke - self._started, 1e-9)
        left = describe_seconds((self._steps - step) / max(rate, 1e-9))
        self.say(f"{self._label}: step {step:,} of {self._steps:,}, {numbers}, {rate:,.1f} steps/s, {left} left")

    def grow(self, done: float) -> None:
        """Note that a part of a grow phase is done, 0 to 1."""
        self._bars.update(self._task, description=f"{self._label}  growing, {100 * done:.0f} %")
        if self._may_speak():
            self.say(f"{self._label}: step {self._step:,} of {self._steps:,}, growing, {100 * done:.0f} % done")

    def _may_speak(self, always: bool = False) -> bool:
        """Whether a plain line is due; if so, it is noted as said."""
        now = time.monotonic()
        if self._console.is_terminal or (now - self._spoke < _SECONDS and not always):
            return False
        self._spoke = now
        return True

    def say(self, line: str) -> None:
        """Write one line, above the bar where there is one."""
        self._console.print(line, markup=False, soft_wrap=True)


def describe_seconds(seconds: float) -> str:
    """Return a length of time in two units at most.

    Example:
        >>> describe_seconds(4000), describe_seconds(65), describe_seconds(3)
        ('1 h 6 min', '1 min 5 s', '3 s')
    """
    whole = round(seconds)
    if whole >= _HOUR:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _MINUTE} min {whole % _MINUTE} s" if whole >= _MINUTE else f"{whole} s"
