"""How far a run is: a bar on a terminal, plain lines elsewhere."""

from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from asrnorm.progress import Progress


class RunProgress(Progress):
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
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        super().__init__(steps, "steps", *columns, done=step, digits=1, shown=shown, console=console)
        self._label = self._described = label
        self.show(description=label)

    def __enter__(self) -> Self:
        super().__enter__()
        if self.done:
            self.say(f"{self._label}: going on from step {self.done:,} of {self.total:,}")
        return self

    def advance(self, step: int, row: dict[str, Any] | None = None) -> None:
        """Note that a step is done; `row` is what its row of the log says."""
        self.done = step
        numbers = f"loss {row['loss']:.4f}, accuracy {row['accuracy']:.3f}" if row and "loss" in row else ""
        if numbers:
            self._described = f"{self._label}  {numbers}"
        self.show(completed=step, description=self._described)
        if numbers and self.is_due(always=step == self.total):
            self.say(f"{self._label}: step {step:,} of {self.total:,}, {numbers}, {self.pace()}")

    def grow(self, done: float) -> None:
        """Note that a part of a grow phase is done, 0 to 1."""
        self.show(description=f"{self._label}  growing, {100 * done:.0f} %")
        if self.is_due():
            self.say(f"{self._label}: step {self.done:,} of {self.total:,}, growing, {100 * done:.0f} % done")
