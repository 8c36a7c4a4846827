"""What a run says and hears: `log.jsonl` with TensorBoard events, the progress display, and signals to stop."""

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from asrnorm.core.distributed import World
from asrnorm.core.files import describe_failure
from asrnorm.core.progress import Progress
from asrnorm.core.results import read_log_rows
from asrnorm.methods import Method
from asrnorm.training.run_folder import advising, write_run_file

logger = logging.getLogger("asrnorm")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGREE_EVERY = 10  # steps after which processes ask each other whether to stop


class RunLog:
    """Rows of numbers by step; a step has at most one row, however often the run was killed.

    Args:
        path: of `log.jsonl`; `None` writes nothing, as in all processes but the first.
        events: folder for TensorBoard; `None` writes none.
        step: at which the run resumes; later rows, of a process killed before its next checkpoint, are removed.

    Raises:
        StorageError: the file cannot be written.
    """

    def __init__(self, path: Path | None, events: Path | None, step: int) -> None:
        self._path, self._events, self._step = path, events, step
        self._file: Any = None
        self._writer: Any = None
        self._excepthook: Callable[[threading.ExceptHookArgs], object] | None = None

    def __enter__(self) -> "RunLog":
        self.cut(self._step)
        if self._path is not None and self._events is not None:
            self._excepthook = threading.excepthook
            threading.excepthook = self._ignore_events_thread
            with self._tolerating_events():
                self._writer = _open_writer(self._events, self._step)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._excepthook is not None:
            threading.excepthook = self._excepthook
        for output in (self._file, self._writer):
            try:
                if output is not None:
                    output.close()
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
            self._file = self._path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any]) -> None:
        """Append the row of a step."""
        if self._path is None:
            return
        with advising(self._path):
            self._file.write(f"{json.dumps(row)}\n")
            self._file.flush()
        with self._tolerating_events():
            for name, value in flatten(row) if self._writer is not None else ():
                if name != "step":
                    self._writer.add_scalar(name, value, row["step"])

    def sync(self) -> None:
        """Flush the rows to the disk, before a checkpoint of their step is written."""
        if self._path is not None:
            with advising(self._path):
                os.fsync(self._file.fileno())

    @contextmanager
    def _tolerating_events(self) -> Iterator[None]:
        """Continue without TensorBoard events if they cannot be written: the log has the same numbers."""
        try:
            yield
        except OSError as error:
            self._writer = None
            where = describe_failure(error, self._events or Path("events"))
            logger.warning("%s; no more TensorBoard events are written", where)

    def _ignore_events_thread(self, failure: threading.ExceptHookArgs) -> None:
        """Show no traceback of TensorBoard's writer thread: the next row meets the same error and reports it."""
        is_theirs = type(failure.thread).__module__.startswith("tensorboard.")
        if not (is_theirs and issubclass(failure.exc_type, OSError)) and self._excepthook is not None:
            self._excepthook(failure)


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of nested dicts and lists, each with its path."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}/")
        elif isinstance(value, list | tuple):
            yield from flatten({str(index): item for index, item in enumerate(value)}, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)


def _open_writer(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        _warn_without_tensorboard()
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)  # hides later events of a process that was killed


@cache
def _warn_without_tensorboard() -> None:
    logger.warning("no TensorBoard events are written; pip install tensorboard for them")  # once per process


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
