"""The log of a run: `log.jsonl`, one row a step that has something to say, and the same numbers for TensorBoard."""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from asrnorm.results import read_log_rows
from asrnorm.storage import describe_failure
from asrnorm.training.folder import advising, write_run_file

logger = logging.getLogger("asrnorm")


class RunLog:
    """Rows of numbers by step; a step has one row at most, however often the run was killed.

    Args:
        path: of `log.jsonl`; `None` writes nothing, as all processes but one do.
        events: folder for TensorBoard; `None` writes none.
        step: where the run goes on; later rows, of a process that was killed before its next checkpoint, are cut.

    Raises:
        StorageError: the file cannot be written.
    """

    def __init__(self, path: Path | None, events: Path | None, step: int) -> None:
        self._path, self._events, self._step = path, events, step
        self._file: Any = None
        self._writer: Any = None
        self._before: Callable[[threading.ExceptHookArgs], object] | None = None

    def __enter__(self) -> "RunLog":
        self.cut(self._step)
        if self._path is not None and self._events is not None:
            self._before = threading.excepthook
            threading.excepthook = self._hear_of_thread
            with self._doing_without():
                self._writer = _open_writer(self._events, self._step)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            threading.excepthook = self._before
        for thing in (self._file, self._writer):
            try:
                if thing is not None:
                    thing.close()
            except OSError:  # a full disk, which has been spoken of; the rows come again on resume
                logger.debug("%s: not closed", self._path)

    def cut(self, step: int) -> None:
        """Leave out the rows after a step, and the rest of a line that a kill cut short."""
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
        with self._doing_without():
            for name, value in flatten(row) if self._writer is not None else ():
                if name != "step":
                    self._writer.add_scalar(name, value, row["step"])

    def sync(self) -> None:
        """Bring the rows to the disk; a checkpoint of their step may then be written."""
        if self._path is None:
            return
        with advising(self._path):
            os.fsync(self._file.fileno())

    @contextmanager
    def _doing_without(self) -> Iterator[None]:
        """Go on without TensorBoard's events where they cannot be written: all they hold is in the log."""
        try:
            yield
        except OSError as error:
            self._writer = None
            where = describe_failure(error, self._events or Path("events"))
            logger.warning("%s; no more TensorBoard events are written", where)

    def _hear_of_thread(self, failure: threading.ExceptHookArgs) -> None:
        """Leave out what the events' own thread fails with: the next row meets it again, and says so in a line."""
        is_theirs = type(failure.thread).__module__.startswith("tensorboard.")
        if not (is_theirs and issubclass(failure.exc_type, OSError)) and self._before is not None:
            self._before(failure)


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of nested dicts and lists, each under a path.

    Example:
        >>> list(flatten({"loss": 1.5, "lambdas": {"norm1": {"mu": [0.1, 0.2]}}}))
        [('loss', 1.5), ('lambdas/norm1/mu/0', 0.1), ('lambdas/norm1/mu/1', 0.2)]
    """
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
        _say_absent()
        return None
    # Later events, of a process that was killed, are hidden.
    return SummaryWriter(str(folder), purge_step=step + 1)


@cache
def _say_absent() -> None:
    logger.warning("no TensorBoard events are written; pip install tensorboard for them")  # once a process
