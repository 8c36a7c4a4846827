"""What a run says and hears: `log.jsonl`, the progress display, and signals to stop."""

import io
import json
import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from asrnorm.core.distributed import World
from asrnorm.core.files import open_to_append
from asrnorm.core.progress import Progress
from asrnorm.core.results import read_log_rows
from asrnorm.methods import Method
from asrnorm.training.run_folder import advising, write_run_file
from asrnorm.training.track import Trackers

logger = logging.getLogger("asrnorm")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGREE_EVERY = 10  # steps after which processes ask each other whether to stop


class RunLog:
    """Rows of numbers by step; a step has at most one row, however often the run was killed.

    Args:
        path: of `log.jsonl`; `None` writes nothing, as in all processes but the first.
        trackers: are told the rows too.
        step: at which the run resumes; later rows, of a process killed before its next checkpoint, are removed.

    Raises:
        StorageError: the file cannot be written.
    """

    def __init__(self, path: Path | None, trackers: Trackers | None, step: int) -> None:
        self._path, self._trackers, self._step = path, trackers, step
        self._file: Any = None

    def __enter__(self) -> "RunLog":
        rows = read_log_rows(self._path) if self._path is not None and self._path.is_file() else []
        self.cut(self._step)
        if self._trackers is not None:
            self._trackers.start(self._step, told=rows[-1]["step"] if rows else 0)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._trackers is not None:
            self._trackers.flush()
        try:
            if self._file is not None:
                self._file.close()
        except OSError:  # a full disk, which was reported before; a resumed run writes the rows again
            logger.debug("%s: not closed", self._path)

    def cut(self, step: int) -> None:
        """Remove the rows after a step, and a line that a kill cut short."""
        if self._path is None:
            return
        if self._file is not None:
            self._file.close()
        with advising(self._path):
            kept = "".join(f"{json.dumps(row)}\n" for row in read_log_rows(self._path) if row["step"] <= step)
        write_run_file(self._path, kept.encode())
        with advising(self._path):
            self._file = io.TextIOWrapper(open_to_append(self._path), encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        """Append the row of a step."""
        if self._path is None:
            return
        if self._trackers is not None:  # before the log, which says what they were told
            self._trackers.write(row)
        with advising(self._path):
            self._file.write(f"{json.dumps(row)}\n")
            self._file.flush()

    def sync(self) -> None:
        """Flush the rows to the disk, before a checkpoint of their step is written."""
        if self._path is not None:
            with advising(self._path):
                os.fsync(self._file.fileno())


class RunProgress(Progress):
    """Steps, loss, accuracy, rate and time left on standard error; a context manager. `step` were done before."""

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
            self.say(f"{self._label}: resuming from step {self.done:,} of {self.total:,}")
        return self

    def advance(self, step: int, row: dict[str, Any] | None = None) -> None:
        """Show that a step is done; `row` is its row in the log."""
        self.done = step
        numbers = f"loss {row['loss']:.4f}, accuracy {row['accuracy']:.3f}" if row and "loss" in row else ""
        if numbers:
            self._described = f"{self._label}  {numbers}"
        self.show(completed=step, description=self._described)
        if numbers and self.is_due(always=step == self.total):
            self.say(f"{self._label}: step {step:,} of {self.total:,}, {numbers}, {self.pace()}")

    def grow(self, done: float) -> None:
        """Show which fraction of a grow phase is done, 0 to 1."""
        self.show(description=f"{self._label}  growing, {100 * done:.0f} %")
        if self.is_due():
            self.say(f"{self._label}: step {self.done:,} of {self.total:,}, growing, {100 * done:.0f} % done")


class Interruption:
    """Turns Ctrl-C and SIGTERM into a flag for the length of a `with` block; a second Ctrl-C stops at once.

    Example:
        >>> with Interruption() as interruption:
        ...     interruption.requested
        False
    """

    def __init__(self) -> None:
        self.requested = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # Python delivers signals to no other
            self._handlers = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def is_agreed(self, world: World, step: int, device: torch.device) -> bool:
        """Tell whether the run stops after a step; several processes ask each other now and then, and agree."""
        if world.size == 1:
            return self.requested
        if step % _AGREE_EVERY:
            return False
        return bool(world.sum(torch.tensor(int(self.requested), device=device)))

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True


class PhaseInterrupted(Exception):  # noqa: N818
    """A grow phase was interrupted; it has made no lasting change, and is due again."""


@contextmanager
def reporting_progress(method: Method, progress: RunProgress, interruption: Interruption) -> Iterator[None]:
    """Show the progress of the method's grow phases, and interrupt a phase if the run is to stop.

    With several processes a phase runs to its end: each does a part of the work, and they would wait for each other.

    Raises:
        PhaseInterrupted: from within a phase.
    """

    def on_progress(done: float) -> None:
        progress.grow(done)
        if interruption.requested and method.world.size == 1:
            raise PhaseInterrupted

    method.on_progress = on_progress
    try:
        yield
    finally:
        del method.on_progress
